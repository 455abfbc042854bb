"""Method `shortest_path` and the check of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Names, Runs, Vertex
from mgraph.algorithms.paths.shortest_path.program import run, warm
from mgraph.checks import check_weight

__all__ = ["ALGORITHM", "shortest_path"]


def shortest_path(self: Runs[Any], source: int | str, target: int | str, weight: bool = False) -> list[Any]:
    """Return the vertices of a shortest path from `source` to `target`, both included, as a list.

    Parameters
    ----------
    source, target : int or str
        Vertex ids, or keys in a graph that has them. The path from a vertex to itself is that vertex alone.
    weight : bool
        Measure a path by the sum of its edges' weights, added in float64, instead of the number of its edges.

    Returns
    -------
    list of int or str
        Ids or keys, in the order of the path. Among several shortest paths, the choice is always the same; it depends
        on the graph's internal order.

    Raises
    ------
    NoPath
        No path leads from `source` to `target`.
    UnknownVertex
        `source` or `target` is not a vertex of the graph.
    InvalidOption
        `weight` is True and the graph is unweighted, or an edge has a negative weight: the message names it.
    CapacityError
        A worker has too little memory for the search with predecessors, and 4 bytes per own vertex.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The call runs a whole search from `source`, like `bfs` or `sssp` with predecessors: for many targets of one source,
    take their ``.predecessors``. Then it walks back from `target`, with a superstep of two numbers for each time that
    the path goes from one worker's range to another's. Only the path's vertices come to this process, 16 bytes each.
    The references are those of `bfs` and `sssp`.

    Examples
    --------
    >>> g.insert([0, 0, 1], [1, 2, 2], [1.0, 5.0, 1.5])  # doctest: +SKIP
    >>> g.shortest_path(0, 2), g.shortest_path(0, 2, weight=True)  # doctest: +SKIP
    ([0, 2], [0, 1, 2])
    """
    path: list[int] = self.run("shortest_path", source=source, target=target, weight=weight)
    return path


def check(graph: GraphFacts, source: Any, target: Any, weight: Any = False) -> dict[str, Any]:
    """Convert the user's arguments to the program's."""
    ends = [graph.vertex(v, name) for v, name in ((source, "source"), (target, "target"))]
    by_weight = check_weight(weight, graph.weighted)
    names = (source, target) if graph.ids else (ends[0], ends[1])
    return {"source": Vertex(ends[0]), "target": Vertex(ends[1]), "names": names, "weight": by_weight}


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> list[Any]:
    """Join the ranks' parts of the path, in order from the source."""
    path, place = np.concatenate(columns["path"]), np.concatenate(columns["place"])
    whole: list[Any] = names(path[np.argsort(-place)]).tolist()
    return whole


ALGORITHM = Algorithm(
    name="shortest_path",
    check=check,
    run=run,
    columns={"path": "vertex", "place": "value"},
    scalars=("edges",),
    warm=warm,
    result=result,
)
