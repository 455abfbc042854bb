"""The method `k_hop` that users call, and the check of its arguments."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Names, Runs, Vertices
from mgraph.algorithms.paths.k_hop.program import run, warm
from mgraph.checks import check_whole
from mgraph.structures import Csr

__all__ = ["ALGORITHM", "k_hop"]


def k_hop(self: Runs[Any], sources: Any, k: int) -> Csr:
    """The vertices within `k` edges of each of `sources`, the source included, with their distance.

    Parameters
    ----------
    sources : array of ints, shape (s,)
        Vertex ids; one may come several times.
    k : int
        The largest number of edges, 0 or more.

    Returns
    -------
    Csr
        In this process. Row i has the vertices for ``sources[i]``, nearest first, and by ascending id where they are as
        near: ``dst``, uint32[m], and ``hop``, int32[m], the number of edges from the source.

    Raises
    ------
    UnknownVertex
        A source is not a vertex of the graph.
    InvalidOption
        `sources` is empty or no array of whole numbers, or `k` is negative.
    CapacityError
        A worker has too little memory: 40 bytes for each vertex of the whole graph, and 40 for each one found.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    64 searches go at a time, as in `distances`, in `k` supersteps at most. Only what is found travels to this process,
    where it is sorted. After M. Then et al., "The more the merrier: efficient multi-source graph traversal", PVLDB
    8(4), 2014.

    Examples
    --------
    >>> g.insert([0, 1, 2], [1, 2, 3])  # doctest: +SKIP
    >>> found = g.k_hop([0, 2], 2)  # doctest: +SKIP
    >>> found.offsets, found.dst, found.hop  # doctest: +SKIP
    (array([0, 3, 5]), array([0, 1, 2, 2, 3], dtype=uint32), array([0, 1, 2, 0, 1], dtype=int32))
    """
    rows: Csr = self.run("k_hop", sources=sources, k=k)
    return rows


def check(graph: GraphFacts, sources: Any, k: Any) -> dict[str, Any]:
    """The program's arguments from the user's."""
    vertices = Vertices(graph.vertices(sources, "sources"))
    return {"sources": vertices, "k": min(check_whole(k, "k"), sys.maxsize)}


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> Csr:
    """The rows, in order, of what the ranks found."""
    vertex, row, hop = (np.concatenate(columns[name]) for name in ("vertex", "row", "hop"))
    order = np.lexsort((vertex, hop, row))
    offsets = np.zeros(info["rows"] + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=info["rows"]), out=offsets[1:])
    return Csr(offsets, names(vertex[order].astype(np.uint32)), hop=hop[order])


ALGORITHM = Algorithm(
    name="k_hop",
    check=check,
    run=run,
    columns={"vertex": "vertex", "row": "value", "hop": "value"},
    scalars=("rows",),
    warm=warm,
    result=result,
)
