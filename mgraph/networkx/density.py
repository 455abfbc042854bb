"""Triangles, clustering coefficients and cores."""

from __future__ import annotations

from typing import Any

from mgraph.networkx.calls import by_node, check_no_loops, chosen, offered, refusing, weighted, why_no_weight
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph

__all__ = ["average_clustering", "clustering", "core_number", "transitivity", "triangles"]


def _why_no_triangles(G: Any, weight: Any = None, **others: Any) -> str | None:
    if G.is_multigraph():
        return "NetworkX does not define it for multigraphs"
    return why_no_weight(weight)


def _no_weights(G: Graph, weight: Any) -> None:
    if weighted(G, weight):
        raise Refused("the backend has no clustering coefficients by weights")


@offered(_why_no_triangles)
def triangles(G: Graph, nodes: Any = None) -> Any:
    """Implement `networkx.triangles`."""
    if len(G) == 0:
        return dict.fromkeys(G.nbunch_iter(nodes))  # an error for a node
    with refusing(G) as graph:
        return chosen(G, graph.triangles(), nodes)


@offered(_why_no_triangles)
def clustering(G: Graph, nodes: Any = None, weight: Any = None) -> Any:
    """Implement `networkx.clustering`."""
    _no_weights(G, weight)
    if len(G) == 0:
        return dict.fromkeys(G.nbunch_iter(nodes))
    with refusing(G) as graph:
        return chosen(G, graph.clustering("fagiolo"), nodes)


@offered(_why_no_triangles)
def average_clustering(G: Graph, nodes: Any = None, weight: Any = None, count_zeros: bool = True) -> float:
    """Implement `networkx.average_clustering`."""
    coefficients = clustering(G, nodes, weight).values()
    counted = [value for value in coefficients if count_zeros or value > 0]
    return sum(counted) / len(counted)


def _why_no_transitivity(G: Any) -> str | None:
    return "the graph is directed" if G.is_directed() else _why_no_triangles(G)


@offered(_why_no_transitivity)
def transitivity(G: Graph) -> float:
    """Implement `networkx.transitivity`."""
    if len(G) == 0:
        return 0
    with refusing(G) as graph:
        return graph.transitivity()


@offered()
def core_number(G: Graph) -> dict[Any, int]:
    """Implement `networkx.core_number`."""
    if len(G) == 0:
        return {}
    with refusing(G) as graph:
        check_no_loops(graph)
        return by_node(G, graph.core_number().to_numpy())
