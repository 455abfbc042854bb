"""Description of the backend for NetworkX, which reads it when imported. Does not import NetworkX."""

from __future__ import annotations

from typing import Any

__all__ = ["get_info"]

FLOAT64 = "Computed in float64; weights are stored as float32."
EXACT = f"{FLOAT64} Refused where float32 does not hold a weight exactly, unless `round_weights` is set."

#: the backend's functions, and their differences from NetworkX
FUNCTIONS = {
    "all_pairs_dijkstra": EXACT,
    "all_pairs_dijkstra_path": EXACT,
    "all_pairs_dijkstra_path_length": EXACT,
    "all_pairs_shortest_path": "",
    "all_pairs_shortest_path_length": "",
    "average_clustering": "Without weights.",
    "average_shortest_path_length": EXACT,
    "betweenness_centrality": "Without weights.",
    "bidirectional_dijkstra": EXACT,
    "bidirectional_shortest_path": "",
    "center": EXACT,
    "closeness_centrality": EXACT,
    "clustering": "Without weights.",
    "connected_components": "",
    "core_number": "",
    "degree_centrality": "",
    "diameter": EXACT,
    "digraph__new__": "A live graph in this process.",
    "dijkstra_path": EXACT,
    "dijkstra_path_length": EXACT,
    "dijkstra_predecessor_and_distance": EXACT,
    "eccentricity": EXACT,
    "ego_graph": "Edges may have one numeric attribute.",
    "eigenvector_centrality": FLOAT64,
    "get_edge_attributes": "For live graphs.",
    "get_node_attributes": "For live graphs.",
    "graph__new__": "A live graph in this process.",
    "harmonic_centrality": EXACT,
    "has_path": "",
    "hits": FLOAT64,
    "in_degree_centrality": "",
    "is_connected": "",
    "is_strongly_connected": "",
    "is_weakly_connected": "",
    "jaccard_coefficient": "For nodes without self-loops.",
    "k_core": "Edges may have one numeric attribute.",
    "k_truss": "Edges may have one numeric attribute.",
    "katz_centrality": FLOAT64,
    "leiden_communities": "By the Leiden method, whose communities are connected.",
    "leiden_partitions": "By the Leiden method; each partition is computed anew.",
    "louvain_communities": "May find other communities, of about the same modularity.",
    "louvain_partitions": "May find other communities; each partition is computed anew.",
    "modularity": FLOAT64,
    "multi_source_dijkstra": EXACT,
    "multi_source_dijkstra_path": EXACT,
    "multi_source_dijkstra_path_length": EXACT,
    "node_connected_component": "",
    "number_connected_components": "",
    "number_strongly_connected_components": "",
    "number_weakly_connected_components": "",
    "out_degree_centrality": "",
    "pagerank": FLOAT64,
    "periphery": EXACT,
    "radius": EXACT,
    "set_edge_attributes": "For live graphs, whose edges have one numeric attribute.",
    "set_node_attributes": "For live graphs.",
    "shortest_path": EXACT,
    "shortest_path_length": EXACT,
    "single_source_dijkstra": EXACT,
    "single_source_dijkstra_path": EXACT,
    "single_source_dijkstra_path_length": EXACT,
    "single_source_shortest_path": "",
    "single_source_shortest_path_length": "",
    "single_target_shortest_path": "",
    "single_target_shortest_path_length": "",
    "strongly_connected_components": "Components come in the order of their first nodes.",
    "to_numpy_array": "For live graphs, which are copied.",
    "to_pandas_edgelist": "For live graphs, which are copied.",
    "to_scipy_sparse_array": "For live graphs, which are copied.",
    "transitivity": "For undirected graphs.",
    "triangles": "",
    "weakly_connected_components": "",
}


def get_info() -> dict[str, Any]:
    """Return the backend's description, functions and configuration, for the entry point ``networkx.backend_info``.

    The configuration is ``nx.config.backends.mgraph``: `device`, "auto", "cpu" or "cuda"; `min_edges`, the smallest
    graph that is converted without being asked to; and `round_weights`, True to let shortest paths use weights that
    float32 has rounded.
    """
    return {
        "backend_name": "mgraph",
        "project": "dask-mgraph",
        "package": "mgraph",
        "short_summary": "Dynamic graphs on the GPU or the CPU of this process.",
        "functions": {name: {"additional_docs": text} for name, text in FUNCTIONS.items()},
        "default_config": {"device": "auto", "min_edges": 10_000, "round_weights": False},
    }
