"""The method `bfs` that users call, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, Vertex
from mgraph.algorithms.paths.bfs.maintain import Distances
from mgraph.algorithms.paths.bfs.program import run, warm
from mgraph.checks import check_direction

__all__ = ["ALGORITHM", "bfs"]

T = TypeVar("T")


def bfs(self: Runs[T], source: int, direction: str = "out", predecessors: bool = False) -> T:
    """The distance of each vertex from `source` in edges: int32, -1 if unreachable. They stay on the workers.

    Parameters
    ----------
    source : int
        A vertex id.
    direction : "out" | "in"
        Whether to follow edges forwards or backwards. "in" gives the distance of each vertex to `source`, and needs
        ``reverse=True`` or an undirected graph.
    predecessors : bool
        Whether to find each vertex's predecessor on a shortest path, too. The result has them as ``.predecessors``:
        users' ids as int64, -1 for `source` and for unreachable vertices. If there are several, the first one in the
        graph's internal order is chosen, so that the result does not depend on timing. During the search this takes 8
        bytes for each vertex of the whole graph on each worker, afterwards 8 bytes for each owned vertex until the
        result is freed. The first such search on a machine also compiles kernels for some seconds.

    Returns
    -------
    VertexValues
        With ``.levels``, the largest distance plus one; ``.reached``, the number of vertices reached; and
        ``.bottom_up``, the number of supersteps that ran bottom-up.

    Raises
    ------
    UnknownVertex
        `source` is not a vertex of the graph.
    InvalidOption
        `direction` is neither "out" nor "in", or is "in" and the graph has no in-edges.
    CapacityError
        A worker has too little memory. It needs 8.1 bytes for each of its own vertices, a quarter byte for each vertex
        of the whole graph, half a byte on several workers, and 1 / 64 byte for each of its arcs; and what
        `predecessors` takes.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work, one superstep for each level. In a top-down superstep 4 bytes travel for each vertex of another
    worker that was found, and 1 / 8 byte a vertex of the whole graph at most; in a bottom-up one each worker receives
    that much at most. Predecessors are sent at the end, 8 bytes a vertex from each worker. The distances are exact and
    do not depend on timing. The search is level-synchronous and, if the graph has in-edges, direction-optimising: S.
    Beamer, K. Asanović, D. Patterson, "Direction-optimizing breadth-first search", SC 2012.

    Examples
    --------
    >>> found = g.bfs(0, predecessors=True)  # doctest: +SKIP
    >>> found.to_numpy(), found.predecessors.to_numpy()  # doctest: +SKIP
    (array([ 0,  1,  2, -1], dtype=int32), array([-1,  0,  1, -1]))
    """
    return self.run("bfs", source=source, direction=direction, predecessors=predecessors)


def check(graph: GraphFacts, source: Any, direction: Any = "out", predecessors: Any = False) -> dict[str, Any]:
    """The program's arguments from the user's."""
    direction = check_direction(direction, graph.reverse)
    vertex = Vertex(graph.vertex(source, "source"))
    return {"source": vertex, "direction": direction, "predecessors": bool(predecessors)}


ALGORITHM = Algorithm(
    name="bfs",
    check=check,
    run=run,
    columns={"distance": "value", "predecessors": "vertex"},
    scalars=("levels", "reached", "bottom_up"),
    warm=warm,
    maintain=Distances,
)
