"""Method `k_truss`, and the check of its argument."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Names, Runs
from mgraph.algorithms.density.k_truss.program import run, warm
from mgraph.batch import EdgeBatch
from mgraph.checks import check_whole
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "k_truss"]


def k_truss(self: Runs[Any], k: int) -> EdgeBatch:
    """Return the k-truss of an undirected graph.

    It is the largest set of edges in which each is in ``k - 2`` triangles or more.

    Parameters
    ----------
    k : int
        0 or more. Up to 2 all edges are in it, except for self-loops, which are ignored.

    Returns
    -------
    EdgeBatch
        In this process: each edge once, ascending, with ``src < dst`` by ids or positions in `vertices`, without
        weights. Its vertices are those of NetworkX's k-truss, and ``update(batch)`` makes a graph of it.

    Raises
    ------
    InvalidOption
        The graph is directed, or `k` is no whole number of 0 or more.
    CapacityError
        A worker has too little memory: that of `triangles`, and 16 bytes more per kept edge.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(m sqrt(m)) work at most per round, which counts the triangles of all remaining edges and removes those with too
    few. There are at most two rounds for k = 3; for others usually a few, and in the worst case one per edge. A round
    is a superstep per 16 MiB of a worker's edges, in which each worker receives all remaining edges once, 4 bytes per
    edge and 8 per vertex, and sends back 4 bytes for each. The result is exact. After J. Cohen, "Trusses: cohesive
    subgraphs for social network analysis", 2008.

    Examples
    --------
    >>> g.insert([0, 1, 2, 0], [1, 2, 0, 3])  # with directed=False  # doctest: +SKIP
    >>> truss = g.k_truss(3)  # doctest: +SKIP
    >>> truss.src, truss.dst  # doctest: +SKIP
    (array([0, 0, 1], dtype=uint32), array([1, 2, 2], dtype=uint32))
    """
    edges: EdgeBatch = self.run("k_truss", k=k)
    return edges


def check(graph: GraphFacts, k: Any) -> dict[str, Any]:
    """Return the program's arguments. The graph must be undirected."""
    if graph.directed:
        raise InvalidOption("k_truss is for undirected graphs; create the graph with directed=False")
    return {"k": min(check_whole(k, "k"), sys.maxsize)}


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> EdgeBatch:
    """Join the edges of all ranks, the lower id first, in ascending order."""
    src, dst = (np.concatenate(columns[name]).astype(np.uint64) for name in ("src", "dst"))
    keys = np.minimum(src, dst) << np.uint64(32) | np.maximum(src, dst)
    keys.sort()
    src, dst = (names(end.astype(np.uint32)) for end in (keys >> np.uint64(32), keys))
    kinds = {"u": None, "i": "int64", "O": "string"}
    return EdgeBatch(src, dst, keys=kinds[src.dtype.kind])


ALGORITHM = Algorithm(
    name="k_truss",
    check=check,
    run=run,
    columns={"src": "vertex", "dst": "vertex"},
    scalars=("rounds",),
    warm=warm,
    result=result,
)
