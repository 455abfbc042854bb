"""Modularity, from the weights of vertices and communities in whole units; see `primitives.weight_sums`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard, VertexData
from mgraph.algorithms.communities.louvain.method import check_resolution
from mgraph.algorithms.communities.louvain.program import FILE
from mgraph.algorithms.primitives.replicated import share
from mgraph.algorithms.primitives.weight_sums import Weights, unit_of
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "modularity", "run", "warm"]

PART = 1 << 22  #: sums of communities that are added up at once


def modularity(self: Runs[Any], labels: Any, resolution: float = 1.0) -> float:
    """The modularity of communities: a float64 number, at most 1. Weights count, and a self-loop counts twice.

    It is the share of weight on edges inside of communities, less the share that would be there if edges were drawn at
    random between vertices of the same strengths, times `resolution`. On a directed graph these are the strengths of
    out- and in-edges, and a self-loop counts once in each. This is NetworkX's definition.

    Parameters
    ----------
    labels : result, or array of num_vertices whole numbers
        The community of each vertex: numbers from 0 to ``num_vertices - 1``, such as the result of `louvain`,
        `label_propagation` or `connected_components`. A result of this graph stays on the workers, unless the graph was
        reordered since.
    resolution : float
        0 or more.

    Returns
    -------
    float
        0.0 for a graph without edges, or whose weights are all 0.

    Raises
    ------
    InvalidOption
        `labels` has another length, or other numbers; a weight is negative or not finite; or `resolution` is.
    GraphClosed
        `labels` is a result that was closed.
    CapacityError
        A worker has too little memory. It needs 12 bytes for each vertex of the whole graph and 32 for each of its own.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m), in two supersteps: each worker receives 4 bytes for each vertex of the others, and 8 bytes for each vertex
    of the graph from each of them. Weights are added up as whole numbers of a unit that is 2**-61 of the sum of all.
    ``g.run("modularity", labels=...)`` gives each vertex's share of it, too. After M. E. J. Newman, "Analysis of
    weighted networks", Phys. Rev. E 70, 2004; for directed graphs E. A. Leicht, M. E. J. Newman, "Community structure
    in directed networks", Phys. Rev. Lett. 100, 2008.

    Examples
    --------
    >>> g.insert([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])  # with directed=False  # doctest: +SKIP
    >>> g.modularity([0, 0, 0, 3, 3, 3])  # doctest: +SKIP
    0.35714285714285715
    """
    return float(self.run("modularity", labels=labels, resolution=resolution).modularity)


def check(graph: GraphFacts, labels: Any, resolution: Any = 1.0) -> dict[str, Any]:
    """The program's arguments from the user's. The labels themselves are checked on the workers."""
    try:
        given = len(labels)
    except TypeError:
        raise InvalidOption(f"labels is {labels!r}; it must be a result, or an array with a label a vertex") from None
    if given != graph.n_vertices:
        raise InvalidOption(f"there are {given} labels and {graph.n_vertices} vertices; each vertex needs one")
    return {"labels": VertexData(labels), "resolution": check_resolution(resolution)}


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    Weights(shard, shard.out_edges.view(), shard.out_edges, shard.lo, 0, file=FILE)


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
    weights = Weights(shard, out.view(), out, shard.lo, rows, loops, unit_of(shard, "modularity", loops, FILE), FILE)
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


ALGORITHM = Algorithm(
    name="modularity", check=check, run=run, columns={"share": "value"}, scalars=("modularity",), warm=warm
)
