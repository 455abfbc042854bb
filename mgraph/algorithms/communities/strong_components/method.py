"""Users' method `strongly_connected_components`, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.communities.strong_components.program import run, warm

__all__ = ["ALGORITHM", "strongly_connected_components"]

T = TypeVar("T")


def strongly_connected_components(self: Runs[T]) -> T:
    """Return the strongly connected component of each vertex: int64, on the workers.

    A component is named by the smallest vertex id in it. Two vertices are in one component if there is a path from each
    to the other. In an undirected graph these are the connected components, and are found as they are.

    Returns
    -------
    VertexValues
        With ``.components``, the number of components.

    Raises
    ------
    CapacityError
        A worker has too little memory. It needs 12 bytes for each vertex of the whole graph, 24 for each of its own,
        and inboxes. Of CPU workers on one host, only the first needs 8 of these 12. In-edges that the graph does not
        store are made for the call, which takes 32 bytes per arc meanwhile.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work per round of a directed graph. The first one trims, and searches forward and backward once; about log
    k rounds follow for k remaining components. A round has a superstep per level of its longest search, in which 8
    bytes travel for each changed vertex of another worker. Each worker also receives 4 bytes per round for each vertex
    without a component, but not from CPU workers of its host. The result is exact. After G. M. Slota, S. Rajamanickam,
    K. Madduri, "BFS and coloring-based parallel algorithms for strongly connected components and related problems",
    IPDPS 2014.

    Examples
    --------
    >>> g.insert([0, 1, 2, 2], [1, 2, 1, 3])  # of 4 vertices  # doctest: +SKIP
    >>> g.strongly_connected_components().to_numpy()  # doctest: +SKIP
    array([0, 1, 1, 3])
    """
    return self.run("strongly_connected_components")


def check(graph: GraphFacts) -> dict[str, Any]:
    """Return the program's arguments: none."""
    return {}


ALGORITHM = Algorithm(
    name="strongly_connected_components",
    check=check,
    run=run,
    columns={"component": "label"},
    scalars=("components",),
    warm=warm,
)
