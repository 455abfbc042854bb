"""Method `multi_source_bfs` and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, Vertices
from mgraph.algorithms.paths.multi_source_bfs.program import run, warm

__all__ = ["ALGORITHM", "multi_source_bfs"]

T = TypeVar("T")


def multi_source_bfs(self: Runs[T], sources: Any) -> T:
    """Return the distance in edges from the nearest of `sources` to every vertex: int32, -1 if unreachable.

    The distances stay on the workers.

    Parameters
    ----------
    sources : array-like, shape (k,)
        Vertices, by id or key; repeats are allowed.

    Returns
    -------
    VertexValues
        With ``.nearest``, the id of the nearest source of each vertex: int64, the smallest of several, -1 if
        unreachable; ``.levels``, the largest distance plus one; and ``.reached``, the number of vertices reached.

    Raises
    ------
    UnknownVertex
        A source is not a vertex of the graph.
    InvalidOption
        `sources` is empty or no array of whole numbers.
    CapacityError
        A worker has too little memory: 40 bytes per vertex of the whole graph suffice.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work. Each level is a superstep, which sends 16 bytes per vertex found in another worker's range. The
    result does not depend on timing, the structure, the order of the vertices, the order of `sources` or the number of
    workers. It is the graph's Voronoi diagram: M. Erwig, "The graph Voronoi diagram with applications", Networks 36(3),
    2000.

    Examples
    --------
    >>> g.insert([0, 1, 3], [1, 2, 2])  # of 5 vertices  # doctest: +SKIP
    >>> distances = g.multi_source_bfs([3, 0])  # doctest: +SKIP
    >>> distances.to_numpy(), distances.nearest.to_numpy()  # doctest: +SKIP
    (array([ 0,  1,  1,  0, -1], dtype=int32), array([ 0,  0,  3,  3, -1]))
    """
    return self.run("multi_source_bfs", sources=sources)


def check(graph: GraphFacts, sources: Any) -> dict[str, Any]:
    """Convert the user's arguments to the program's."""
    return {"sources": Vertices(graph.vertices(sources, "sources"))}


ALGORITHM = Algorithm(
    name="multi_source_bfs",
    check=check,
    run=run,
    columns={"distance": "value", "nearest": "label"},
    scalars=("levels", "reached"),
    warm=warm,
)
