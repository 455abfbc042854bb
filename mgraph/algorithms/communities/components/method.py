"""Users' method `connected_components`, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.communities.components.maintain import Components
from mgraph.algorithms.communities.components.program import run, warm

__all__ = ["ALGORITHM", "connected_components"]

T = TypeVar("T")


def connected_components(self: Runs[T]) -> T:
    """Return the weakly connected component of each vertex: int64, on the workers.

    A component is named by the smallest vertex id in it. The direction of edges does not matter. A vertex without
    edges, such as a deleted one, is a component of its own.

    Returns
    -------
    VertexValues
        With ``.components``, the number of components, and ``.supersteps``, 1.

    Raises
    ------
    CapacityError
        A worker has too little memory. It needs 4 bytes per vertex of the whole graph, 8 on several workers, and 12 if
        the graph has an `order`. On several workers, or with an order, 4 of these bytes stay until the graph is closed.
        Of CPU workers on one host, only the first needs this memory, and keeps 8 bytes. The result takes 8 bytes per
        owned vertex.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work in practice. Each worker receives a bit per vertex of the whole graph, and from each other 8 bytes per
    vertex that it has joined outside of the largest component. If these seem to be many, it receives 4 bytes per vertex
    instead, and few pairs. CPU workers of one host receive nothing. If the graph has in-edges, most edges of the
    largest component are not read. The result is exact, and does not depend on the order of the vertices, the structure
    or the number of workers. The algorithm is a concurrent union-find after M. Sutton, T. Ben-Nun, A. Barak,
    "Optimizing parallel graph connectivity computation via subgraph sampling", IPDPS 2018.

    Examples
    --------
    >>> g.insert([0, 3], [1, 4])  # of 5 vertices  # doctest: +SKIP
    >>> components = g.connected_components()  # doctest: +SKIP
    >>> components.to_numpy(), components.components  # doctest: +SKIP
    (array([0, 0, 2, 3, 3]), 3)
    """
    return self.run("connected_components")


def check(graph: GraphFacts) -> dict[str, Any]:
    """Return the program's arguments: none."""
    return {}


ALGORITHM = Algorithm(
    name="connected_components",
    check=check,
    run=run,
    columns={"component": "label"},
    scalars=("components", "supersteps"),
    warm=warm,
    maintain=Components,
)
