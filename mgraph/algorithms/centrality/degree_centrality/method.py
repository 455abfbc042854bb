"""The method `degree_centrality` that users call, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.centrality.degree_centrality.program import run, warm

__all__ = ["ALGORITHM", "degree_centrality"]

T = TypeVar("T")


def degree_centrality(self: Runs[T]) -> T:
    """The degree of each vertex divided by ``num_vertices - 1``: float64, on the workers. Weights are ignored.

    In an undirected graph a self-loop counts 2. In a directed graph edges to and from a vertex count. In a graph of one
    vertex it is 1. All this is as in NetworkX. Deleted vertices count as vertices.

    Raises
    ------
    CapacityError
        A worker has too little memory. It needs 16 bytes for each of its own vertices and, for a directed graph, 12 for
        each vertex of the whole graph.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m). In a directed graph the workers add up in-degrees in one superstep, in which 8 bytes travel for each
    vertex. After L. C. Freeman, "Centrality in social networks: conceptual clarification", Social Networks 1, 1979.

    Examples
    --------
    >>> g.insert([0, 0], [1, 2])  # of 4 vertices  # doctest: +SKIP
    >>> g.degree_centrality().to_numpy()  # doctest: +SKIP
    array([0.66666667, 0.33333333, 0.33333333, 0.        ])
    """
    return self.run("degree_centrality")


def check(graph: GraphFacts) -> dict[str, Any]:
    """The program's arguments: none."""
    return {}


ALGORITHM = Algorithm(
    name="degree_centrality", check=check, run=run, columns={"centrality": "value"}, scalars=(), warm=warm
)
