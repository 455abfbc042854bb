"""The method `distances` that users call, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, Vertices
from mgraph.algorithms.paths.distances.program import run, warm

__all__ = ["ALGORITHM", "distances"]

T = TypeVar("T")


def distances(self: Runs[T], sources: Any) -> T:
    """The distance of each vertex from each of `sources` in edges: int32[k, n], -1 if unreachable, on the workers.

    Parameters
    ----------
    sources : array of ints, shape (k,)
        Vertex ids; one may come several times.

    Returns
    -------
    VertexRows
        ``to_numpy()[i, v]`` is the distance of v from ``sources[i]``.

    Raises
    ------
    UnknownVertex
        A source is not a vertex of the graph.
    InvalidOption
        `sources` is empty or no array of whole numbers.
    CapacityError
        A worker has too little memory: 4 k bytes for each owned vertex for the result, and 40 bytes for each vertex of
        the whole graph.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    64 searches go at a time, and an edge is read once for all of them that are at the same place. Each level is a
    superstep, in which 16 bytes travel for each vertex that is found in another worker's range. After M. Then et al.,
    "The more the merrier: efficient multi-source graph traversal", PVLDB 8(4), 2014.

    Examples
    --------
    >>> g.insert([0, 1], [1, 2])  # of 4 vertices  # doctest: +SKIP
    >>> g.distances([0, 1]).to_numpy()  # doctest: +SKIP
    array([[ 0,  1,  2, -1],
           [-1,  0,  1, -1]], dtype=int32)
    """
    return self.run("distances", sources=sources)


def check(graph: GraphFacts, sources: Any) -> dict[str, Any]:
    """The program's arguments from the user's."""
    return {"sources": Vertices(graph.vertices(sources, "sources"))}


ALGORITHM = Algorithm(
    name="distances",
    check=check,
    run=run,
    columns={"distance": "rows"},
    scalars=(),
    warm=warm,
)
