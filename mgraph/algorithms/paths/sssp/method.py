"""Method `sssp` and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, Vertex
from mgraph.algorithms.paths.sssp.maintain import Distances
from mgraph.algorithms.paths.sssp.program import run, warm
from mgraph.checks import check_dtype, check_flag

__all__ = ["ALGORITHM", "sssp"]

T = TypeVar("T")


def sssp(self: Runs[T], source: int | str, predecessors: bool = False, dtype: Any = "float32") -> T:
    """Return the weighted distance from `source` to every vertex, inf if unreachable.

    The distances stay on the workers. The length of a path is the sum of its edges' weights; in an unweighted
    graph each edge counts 1. An undirected edge has a single weight: the last that was set, from either end.

    Parameters
    ----------
    source : int or str
        A vertex id, or a key in a graph that has them.
    predecessors : bool
        Find each vertex's predecessor on a shortest path, too. The result has them as ``.predecessors``: users' ids as
        int64, -1 for `source` and for unreachable vertices. ``distance[v]`` is exactly ``distance[p] + weight`` as
        `dtype` adds, and the predecessors lead back to `source`. Among several, the first in the graph's internal order
        is chosen, so the result does not depend on timing. This takes another 8 bytes per vertex of the whole graph on
        each worker, afterwards 8 bytes per owned vertex.
    dtype : "float32" | "float64", or a NumPy dtype
        The dtype of the distances, in which weights are added along each path. A sum past its largest number counts as
        unreachable.

    Returns
    -------
    VertexValues
        With ``.reached``, the number of vertices reached; ``.delta``, the width of the ranges in which distances were
        settled; and ``.supersteps``, the number of times that all workers relaxed the near vertices, or advanced to
        the next range. In an unweighted graph these are 1 and the number of levels of a BFS.

    Raises
    ------
    UnknownVertex
        `source` is not a vertex of the graph.
    InvalidOption
        An edge of the graph has a negative weight: the message names it. Or `dtype` is neither float32 nor float64.
    CapacityError
        A worker has too little memory: 24 bytes per vertex of the whole graph suffice without predecessors.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    Without weights this is `bfs`. With weights: O(n + m) work in practice. A superstep follows the edges of near
    vertices. It sends 8 bytes when a vertex of another worker gets a shorter distance, 16 with float64. At least as
    many supersteps run as ranges of width `delta` contain distances. Predecessors take another superstep, in which each
    worker receives the distances of all vertices, and 8 bytes per own vertex from each of the other workers. The
    distances do not depend on timing, the structure, the order of the vertices or the number of workers, bit for bit.
    The algorithm is delta-stepping with a near and a far list: A. Davidson, S. Baxter, M. Garland, J. D. Owens,
    "Work-efficient parallel GPU methods for single-source shortest paths", IPDPS 2014.

    Examples
    --------
    >>> g.insert([0, 0, 1], [1, 2, 2], [1.0, 5.0, 1.5])  # of 4 vertices  # doctest: +SKIP
    >>> distances = g.sssp(0, predecessors=True)  # doctest: +SKIP
    >>> distances.to_numpy(), distances.predecessors.to_numpy()  # doctest: +SKIP
    (array([0. , 1. , 2.5, inf], dtype=float32), array([-1,  0,  1, -1]))
    """
    return self.run("sssp", source=source, predecessors=predecessors, dtype=dtype)


def check(graph: GraphFacts, source: Any, predecessors: Any = False, dtype: Any = "float32") -> dict[str, Any]:
    """Convert the user's arguments to the program's."""
    vertex = Vertex(graph.vertex(source, "source"))
    return {"source": vertex, "predecessors": check_flag(predecessors, "predecessors"), "dtype": check_dtype(dtype)}


ALGORITHM = Algorithm(
    name="sssp",
    check=check,
    run=run,
    columns={"distance": "value", "predecessors": "vertex"},
    scalars=("reached", "delta", "supersteps"),
    warm=warm,
    maintain=Distances,
)
