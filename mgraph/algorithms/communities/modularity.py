"""Modularity, from the weights of vertices and communities in whole units (`primitives.weight_sums`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard, VertexData
from mgraph.algorithms.communities.multilevel import FILE
from mgraph.algorithms.communities.multilevel.arguments import check_resolution
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.weight_sums import WeightSums, unit_of
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Library

__all__ = ["ALGORITHM", "modularity", "run", "warm"]

PART = 1 << 22  #: sums of communities per exchange


def modularity(self: Runs[Any], labels: Any, resolution: float = 1.0) -> float:
    """Return the modularity of communities: a float64 number, at most 1.

    It is the share of weight on edges inside of communities, less `resolution` times the expected share if edges were
    drawn at random between vertices of the same strengths. On a directed graph these are the strengths of out- and
    in-edges, and a self-loop counts once in each; on an undirected graph it counts twice. This is NetworkX's
    definition.

    Parameters
    ----------
    labels : result, or array of num_vertices whole numbers
        The community of each vertex: numbers from 0 to ``num_vertices - 1``, such as the result of `louvain`,
        `label_propagation` or `connected_components`. A result of this graph stays on the workers, unless the graph was
        reordered since.
    resolution : float
        0 to 1e100.

    Returns
    -------
    float
        0.0 for a graph without edges, or whose weights are all 0.

    Raises
    ------
    InvalidOption
        `labels` has another length, or other numbers; a weight is negative or not finite; or `resolution` is out of
        its range.
    GraphClosed
        `labels` is a closed result.
    CapacityError
        A worker has too little memory: 12 bytes per vertex of the whole graph and 32 per own vertex.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m), in two supersteps: each worker receives 4 bytes per vertex of the others, and 8 bytes per vertex of the
    graph from each of them. Weights are added up as whole numbers of a unit of 2**-61 of the sum of all.
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
    """Return the program's arguments. The labels are checked on the workers."""
    try:
        count = len(labels)
    except TypeError:
        raise InvalidOption(f"labels is {labels!r}; it must be a result, or an array with a label a vertex") from None
    if count != graph.n_vertices:
        raise InvalidOption(f"there are {count} labels and {graph.n_vertices} vertices; each vertex needs one")
    return {"labels": VertexData(labels), "resolution": check_resolution(resolution)}


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    WeightSums(shard, shard.out_edges.view(), shard.out_edges, shard.lo, 0, file=FILE)


def _everyones(shard: Shard, kernels: Library, labels: Array) -> Array:
    """Return the labels of all vertices as indices: uint32[n].

    Raises `InvalidOption` on every rank for a bad label.
    """
    # Check the own labels.
    labels, n = shard.device.asarray(labels), shard.n_vertices
    whole = labels.dtype.kind != "f"
    given = shard.device.astype(labels, np.int64 if whole else np.float64)
    own, wrong = shard.device.empty(len(labels), np.uint32), shard.device.zeros(1, np.int64)
    kernels.TakeLabels(
        len(labels), whole=given if whole else None, real=None if whole else given, n=len(labels), end=n, labels=own,
        wrong=wrong,
    )  # fmt: skip

    # All ranks report a bad label together.
    if int(shard.exchange.allreduce(shard.device.to_host(wrong))[0]):
        low, high = (float(labels.min()), float(labels.max())) if len(labels) else (np.inf, -np.inf)
        low, high = (float(shard.exchange.allreduce(np.array([x]), op)[0]) for x, op in ((low, "min"), (high, "max")))
        raise InvalidOption(
            f"labels must be whole numbers from 0 to {n - 1}, one for each vertex; these are from {low:g} to {high:g}"
        )
    return all_gather(shard, own)


def _summed(shard: Shard, sums: Array) -> None:
    """Replace sums by those over all ranks, on every rank. An allgather per `PART` of them."""
    if shard.size == 1:
        return
    for begin in range(0, len(sums), PART):
        own = sums[begin : begin + PART]
        for rank, part in enumerate(shard.exchange.allgather(own.copy())):
            if rank != shard.rank:
                own += part


def run(shard: Shard, labels: Array, resolution: float = 1.0) -> Columns:
    """Return the modularity of the communities of `labels`, and each own vertex's share of it.

    Parameters
    ----------
    shard : Shard
    labels : numbers[hi - lo]
        The community of each own vertex, 0 to n_vertices - 1.
    resolution : float

    Returns
    -------
    columns : dict
        "share", float64[hi - lo] on the shard's device: the contribution of each own vertex's edges and strength.
    scalars : dict
        ``modularity``, the sum of the shares of all vertices.

    Raises
    ------
    InvalidOption
        A label is no whole number in that range, or a weight is negative or not finite; on every rank.

    Notes
    -----
    O(n + m): up to five launches, twice as many if there may be hubs. Sums of weights are exact in their unit, and do
    not depend on timing.
    """
    # Weigh the rows and the communities.
    device, rows, out = shard.device, shard.hi - shard.lo, shard.out_edges
    directed = shard.in_edges is not out
    loops = 1 if directed else 2
    weights = WeightSums(shard, out.view(), out, shard.lo, rows, loops, unit_of(shard, "modularity", loops, FILE), FILE)
    labels_of_all = _everyones(shard, weights.kernels, labels)
    strength, within, sums = weights.strengths(), device.zeros(rows, np.int64), device.zeros(shard.n_vertices, np.int64)
    weights.weigh("within", labels_of_all, within)
    if directed:
        weights.weigh("incoming", labels_of_all, sums)
    else:
        own = labels_of_all[shard.lo : shard.hi]
        weights.kernels.SumByLabel(rows, labels=own, strength=strength, n=rows, sums=sums)
    _summed(shard, sums)

    # Share of v: within(v) / total - resolution * strength(v) / total * sum(community of v) / total.
    total = int(shard.exchange.allreduce(np.array([device.total(strength)]))[0])
    shares = device.zeros(rows, np.float64)
    if total:
        weights.kernels.Contributions(
            rows, labels=labels_of_all, within=within, strength=strength, sums=sums, first=shard.lo, n=rows,
            total=float(total), resolution=resolution, shares=shares,
        )  # fmt: skip
    q = float(shard.exchange.allreduce(Device.to_host(shares.sum()).reshape(1))[0])
    return {"share": shares}, {"modularity": q}


ALGORITHM = Algorithm(
    name="modularity", check=check, run=run, columns={"share": "value"}, scalars=("modularity",), warm=warm
)
