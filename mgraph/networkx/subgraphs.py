"""Parts of a graph: cores, trusses, neighbourhoods."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.networkx.calls import check_no_loops, offered, part, refusing, why_no_weight
from mgraph.networkx.graph import Graph
from mgraph.networkx.paths import single_source_dijkstra_path_length, single_source_shortest_path_length

__all__ = ["ego_graph", "k_core", "k_truss"]


@offered()
def k_core(G: Graph, k: int | None = None, core_number: dict[Any, int] | None = None) -> Graph:
    """Implement `networkx.k_core`; returns a backend graph."""
    # The caller has the core numbers.
    with refusing(G) as graph:
        if core_number is not None:
            least = max(core_number.values()) if k is None else k
            return part(G, np.array([node in core_number and core_number[node] >= least for node in G], bool))

        # Compute them. NetworkX's k may be negative.
        check_no_loops(graph)
        if len(G) == 0 and k is None:
            raise ValueError("the graph has no nodes, and so no innermost core")
        inside = None if len(G) == 0 else graph.k_core(None if k is None else max(k, 0))
        return part(G, np.zeros(0, bool) if inside is None else inside.to_numpy())


@offered()
def k_truss(G: Graph, k: int) -> Graph:
    """Implement `networkx.k_truss`; returns a backend graph."""
    # The nodes with an edge in the truss, and all edges among them.
    with refusing(G) as graph:
        check_no_loops(graph)
        inside = np.zeros(len(G), bool)
        edges = graph.k_truss(max(k, 0)) if len(G) else None
        if edges is not None:
            inside[edges.src] = inside[edges.dst] = True
        truss = part(G, inside)

        # Remove the edges outside the truss.
        if edges is not None and len(edges):
            names = ([G._contents.nodes[i] for i in ends.tolist()] for ends in (edges.src, edges.dst))
            kept = set(map(frozenset, zip(*names, strict=True)))
            truss.remove_edges_from([edge for edge in truss.edges if frozenset(edge) not in kept])
        return truss


def _why_no_ego(
    G: Any, n: Any, radius: float = 1, center: bool = True, undirected: bool = False, distance: Any = None
) -> str | None:
    if G.is_multigraph():
        return "parallel edges are part of the result, and the backend keeps one"
    if undirected and G.is_directed():
        return "the backend has no search along the edges of a directed graph in both directions"
    return why_no_weight(distance)


@offered(_why_no_ego)
def ego_graph(
    G: Graph, n: Any, radius: float = 1, center: bool = True, undirected: bool = False, distance: Any = None
) -> Graph:
    """Implement `networkx.ego_graph`; returns a backend graph."""
    # Search from the node.
    if distance is not None:
        near = single_source_dijkstra_path_length(G, n, cutoff=radius, weight=distance)
    else:
        near = single_source_shortest_path_length(G, n, cutoff=radius)

    # Cut the neighbourhood out.
    with refusing(G) as graph:
        inside = np.zeros(graph.num_vertices, bool)
    inside[[G._contents.index[node] for node in near]] = True
    inside[G._contents.index[n]] = center
    return part(G, inside)
