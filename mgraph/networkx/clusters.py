"""Triangles, clustering coefficients and cores."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from mgraph.graph import DynamicGraph
from mgraph.networkx.calls import by_node, chosen, offered, refusing, weighted, why_no_weight
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph

__all__ = ["average_clustering", "clustering", "core_number", "k_core", "transitivity", "triangles"]


def _why_no_triangles(G: Any, weight: Any = None, **others: Any) -> str | None:
    if G.is_multigraph():
        return "NetworkX does not define it for multigraphs"
    return why_no_weight(weight)


def _no_weights(G: Graph, weight: Any) -> None:
    if weighted(G, weight):
        raise Refused("the backend has no clustering coefficients by weights")


@offered(_why_no_triangles)
def triangles(G: Graph, nodes: Any = None) -> Any:
    """As `networkx.triangles`."""
    if len(G) == 0:
        return dict.fromkeys(G.nbunch_iter(nodes))  # an error for a node
    with refusing(G) as graph:
        return chosen(G, graph.triangles(), nodes)


@offered(_why_no_triangles)
def clustering(G: Graph, nodes: Any = None, weight: Any = None) -> Any:
    """As `networkx.clustering`."""
    _no_weights(G, weight)
    if len(G) == 0:
        return dict.fromkeys(G.nbunch_iter(nodes))
    with refusing(G) as graph:
        return chosen(G, graph.clustering("fagiolo"), nodes)


@offered(_why_no_triangles)
def average_clustering(G: Graph, nodes: Any = None, weight: Any = None, count_zeros: bool = True) -> float:
    """As `networkx.average_clustering`."""
    found = clustering(G, nodes, weight).values()
    counted = [value for value in found if count_zeros or value > 0]
    return sum(counted) / len(counted)


def _why_no_transitivity(G: Any) -> str | None:
    return "the graph is directed" if G.is_directed() else _why_no_triangles(G)


@offered(_why_no_transitivity)
def transitivity(G: Graph) -> float:
    """As `networkx.transitivity`."""
    if len(G) == 0:
        return 0
    with refusing(G) as graph:
        return graph.transitivity()


def _check_no_loops(graph: DynamicGraph) -> None:
    every = np.arange(graph.num_vertices)
    if graph.has_edges(every, every).any():
        raise nx.NetworkXNotImplemented(
            "Input graph has self loops which is not permitted; "
            "Consider using G.remove_edges_from(nx.selfloop_edges(G))."
        )


@offered()
def core_number(G: Graph) -> dict[Any, int]:
    """As `networkx.core_number`."""
    if len(G) == 0:
        return {}
    with refusing(G) as graph:
        _check_no_loops(graph)
        return by_node(G, graph.core_number().to_numpy())


@offered()
def k_core(G: Graph, k: int | None = None, core_number: dict[Any, int] | None = None) -> Graph:
    """As `networkx.k_core`: a graph of the backend."""
    if not G._contents.exact:
        raise Refused("float32 does not hold all values of the edges' attribute, which the k-core would have")
    with refusing(G) as graph:
        if core_number is not None:
            least = max(core_number.values()) if k is None else k
            inside = np.array([node in core_number and core_number[node] >= least for node in G], bool)
        else:
            _check_no_loops(graph)
            if len(G) == 0 and k is None:
                raise ValueError("the graph has no nodes, and so no innermost core")
            found = None if len(G) == 0 else graph.k_core(None if k is None else max(k, 0))
            inside = np.zeros(0, bool) if found is None else found.to_numpy()
        contents = G._contents.part(inside)
        made: Graph = type(G)._of(contents, {node: dict(G._node[node]) for node in contents.nodes})
        made.graph.update(G.graph)
        return made
