"""Modularity, from the weights of vertices and communities in whole units; see `communities.louvain.weights`."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.louvain.weights import Weights, unit_of
from mgraph.algorithms.primitives.replicated import share
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption

__all__ = ["run", "warm"]

PART = 1 << 22  #: sums of communities that are added up at once


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    Weights(shard, shard.out_edges.view(), shard.out_edges, shard.lo, 0)


def _everyones(shard: Shard, labels: Array) -> Array:
    """The labels of all vertices as indices: uint32[n]; `InvalidOption` on every rank if one is none."""
    labels, n = shard.device.asarray(labels), shard.n_vertices
    wrong, low, high = 0, np.inf, -np.inf
    if len(labels):
        low, high = float(labels.min()), float(labels.max())
        wrong = int(not (low >= 0 and high < n)) or int(bool((labels != labels.astype(np.int64)).any()))
    if int(shard.exchange.allreduce(np.array([wrong]))[0]):
        low, high = (float(shard.exchange.allreduce(np.array([x]), op)[0]) for x, op in ((low, "min"), (high, "max")))
        raise InvalidOption(
            f"labels must be whole numbers from 0 to {n - 1}, one for each vertex; these are from {low:g} to {high:g}"
        )
    return share(shard, shard.device.astype(labels, np.uint32))


def _summed(shard: Shard, sums: Array) -> None:
    """Replace sums by those over all ranks, which every rank needs whole; an allgather for each `PART` of them."""
    if shard.size == 1:
        return
    for begin in range(0, len(sums), PART):
        own = sums[begin : begin + PART]
        for rank, part in enumerate(shard.exchange.allgather(own.copy())):
            if rank != shard.rank:
                own += part


def run(shard: Shard, labels: Array, resolution: float = 1.0) -> Columns:
    """The modularity of the communities that `labels` gives, and each own vertex's share of it.

    Parameters
    ----------
    shard : Shard
    labels : numbers[hi - lo]
        The community of each own vertex, 0 to n_vertices - 1.
    resolution : float

    Returns
    -------
    columns : dict
        "share", float64[hi - lo] on the shard's device: what the edges of each own vertex and its strength contribute.
    scalars : dict
        ``modularity``, the sum of the shares of all vertices.

    Raises
    ------
    InvalidOption
        A label is no whole number in that range, or a weight is negative or not finite; on every rank.

    Notes
    -----
    O(n + m): up to five launches, twice as many where there may be hubs. Sums of weights are exact in their unit, and
    do not depend on timing.
    """
    device, rows, out = shard.device, shard.hi - shard.lo, shard.out_edges
    directed = shard.in_edges is not out
    every = _everyones(shard, labels)
    loops = 1 if directed else 2
    weights = Weights(shard, out.view(), out, shard.lo, rows, loops, unit_of(shard, "modularity", loops))
    strength, within, sums = weights.strengths(), device.zeros(rows, np.int64), device.zeros(shard.n_vertices, np.int64)
    weights.weigh("within", every, within)
    if directed:
        weights.weigh("received", every, sums)
    else:
        own = every[shard.lo : shard.hi]
        weights.kernels.SumByLabel(rows, labels=own, strength=strength, n=rows, sums=sums)
    _summed(shard, sums)
    total = int(shard.exchange.allreduce(Device.to_host(strength.sum(dtype=np.int64)).reshape(1))[0])
    shares = device.zeros(rows, np.float64)
    if total:
        weights.kernels.Contributions(
            rows, labels=every, within=within, strength=strength, sums=sums, first=shard.lo, n=rows,
            total=float(total), resolution=resolution, shares=shares,
        )  # fmt: skip
    q = float(shard.exchange.allreduce(Device.to_host(shares.sum()).reshape(1))[0])
    return {"share": shares}, {"modularity": q}
