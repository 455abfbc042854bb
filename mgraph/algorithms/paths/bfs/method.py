"""Method `bfs` and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, Vertex
from mgraph.algorithms.paths.bfs.maintain import Distances
from mgraph.algorithms.paths.bfs.program import run, warm
from mgraph.checks import check_direction, check_flag

__all__ = ["ALGORITHM", "bfs"]

T = TypeVar("T")


def bfs(self: Runs[T], source: int | str, direction: str = "out", predecessors: bool = False) -> T:
    """Return the distance in edges from `source` to every vertex: int32, -1 if unreachable.

    The distances stay on the workers.

    Parameters
    ----------
    source : int or str
        A vertex id, or a key in a graph that has them.
    direction : "out" | "in"
        "out" follows edges forwards. "in" follows them backwards, which gives the distance of each vertex to `source`,
        and needs ``reverse=True`` or an undirected graph.
    predecessors : bool
        Find each vertex's predecessor on a shortest path, too. The result has them as ``.predecessors``: users' ids as
        int64, -1 for `source` and for unreachable vertices. Among several, the first in the graph's internal order is
        chosen, so the result does not depend on timing. During the search this takes 8 bytes per vertex of the whole
        graph on each worker, afterwards 8 bytes per owned vertex until the result is freed. The first such search on a
        machine also compiles kernels for some seconds.

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
        A worker has too little memory. It needs 8.1 bytes per own vertex, a quarter byte per vertex of the whole graph
        (half a byte on several workers), 1 / 64 byte per own arc, and the memory of `predecessors`.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work, a superstep per level. A top-down superstep sends 4 bytes per vertex found in another worker's range,
    and at most 1 / 8 byte per vertex of the whole graph. In a bottom-up superstep each worker receives at most 1 / 8
    byte per vertex of the whole graph. Predecessors are sent at the end, 8 bytes per vertex from each worker. The
    distances are exact and do not depend on timing. The search is level-synchronous and, if the graph has in-edges,
    direction-optimising: S. Beamer, K. Asanović, D. Patterson, "Direction-optimizing breadth-first search", SC 2012. On
    GPUs, a search that has explored few edges after 128 levels goes on by near and far lists, as `sssp` does, if there
    are 8 bytes per vertex of the whole graph and 16 per own vertex left.

    Examples
    --------
    >>> distances = g.bfs(0, predecessors=True)  # doctest: +SKIP
    >>> distances.to_numpy(), distances.predecessors.to_numpy()  # doctest: +SKIP
    (array([ 0,  1,  2, -1], dtype=int32), array([-1,  0,  1, -1]))
    """
    return self.run("bfs", source=source, direction=direction, predecessors=predecessors)


def check(graph: GraphFacts, source: Any, direction: Any = "out", predecessors: Any = False) -> dict[str, Any]:
    """Convert the user's arguments to the program's."""
    direction = check_direction(direction, graph.reverse)
    vertex = Vertex(graph.vertex(source, "source"))
    return {"source": vertex, "direction": direction, "predecessors": check_flag(predecessors, "predecessors")}


ALGORITHM = Algorithm(
    name="bfs",
    check=check,
    run=run,
    columns={"distance": "value", "predecessors": "vertex"},
    scalars=("levels", "reached", "bottom_up"),
    warm=warm,
    maintain=Distances,
)
