"""Users' method `core_number`, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.density.core_number.program import run, warm

__all__ = ["ALGORITHM", "core_number"]

T = TypeVar("T")


def core_number(self: Runs[T]) -> T:
    """Return the core number of each vertex: int64, on the workers.

    It is the largest k for which the vertex is in the k-core. The k-core is the largest subgraph in which every vertex
    has k edges or more. On a directed graph, edges to and from a vertex count. Self-loops are ignored.

    Returns
    -------
    VertexValues
        With ``.largest``, the largest core number of the graph, its degeneracy.

    Raises
    ------
    CapacityError
        A worker has too little memory. It needs 28 bytes for each of its own vertices and, on several workers with
        GPUs, 16 for each vertex of the whole graph. In-edges that a directed graph does not store are made for the
        call, which takes 32 bytes per arc meanwhile.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work: vertices are removed level by level, from frontier to frontier. On several workers 4 bytes travel for
    each edge between vertices of two of them; on GPUs each level has one superstep or more, in which 8 bytes travel for
    each vertex that has lost such edges. Among CPU workers of one host 4 bytes travel for each vertex at most. The
    result is exact. After H. Kabir, K. Madduri, "Parallel k-core decomposition on multicore platforms", IPDPSW 2017.

    Examples
    --------
    >>> g.insert([0, 1, 2, 0], [1, 2, 0, 3])  # of 5 vertices  # doctest: +SKIP
    >>> g.core_number().to_numpy()  # doctest: +SKIP
    array([2, 2, 2, 1, 0])
    """
    return self.run("core_number")


def check(graph: GraphFacts) -> dict[str, Any]:
    """Return the program's arguments: none."""
    return {}


ALGORITHM = Algorithm(
    name="core_number", check=check, run=run, columns={"core": "value"}, scalars=("largest",), warm=warm
)
