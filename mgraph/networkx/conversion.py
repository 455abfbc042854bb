"""Conversions between NetworkX's graphs and the backend's."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping
from typing import Any

import networkx as nx
import numpy as np

from mgraph.convert.build import edges_of
from mgraph.networkx.extract import NO_DEFAULT, attribute_names, filled_contents
from mgraph.networkx.graph import DiGraph, Graph

__all__ = ["convert_from_nx", "convert_to_nx"]

#: functions for which parallel edges become their sum; for others, the smallest
SUMMED = {
    *("hits", "leiden_communities", "leiden_partitions", "louvain_communities", "louvain_partitions", "modularity"),
    "pagerank",
}


def convert_from_nx(
    graph: Any,
    *,
    edge_attrs: Mapping[Hashable, Any] | None = None,
    node_attrs: Mapping[Hashable, Any] | None = None,
    preserve_edge_attrs: bool = False,
    preserve_node_attrs: bool = False,
    preserve_graph_attrs: bool = False,
    name: str | None = None,
    graph_name: str | None = None,
) -> Graph:
    """Return a backend graph with the nodes and edges of a NetworkX graph. O(n + m), in Python.

    Parameters
    ----------
    graph : networkx.Graph
        Parallel edges of a multigraph are merged.
    edge_attrs : mapping, optional
        The name of the edge attribute to keep, and its default.
    preserve_edge_attrs : bool
        Keep the attribute that the edges have.
    name : str, optional
        The function to be called; `SUMMED` decides by it how parallel edges are merged.
    node_attrs, preserve_node_attrs, preserve_graph_attrs, graph_name
        NetworkX's options.

    Raises
    ------
    Refused
        Edges have two attributes to keep, a value is no number, or some edges lack an attribute without a default.
    """
    # Copy the edges, with at most one attribute.
    wanted = dict.fromkeys(attribute_names(graph), NO_DEFAULT) if preserve_edge_attrs else edge_attrs or {}
    contents = filled_contents(graph, wanted, "sum" if name in SUMMED else "least")

    # Copy the nodes, and remember the source of merged edges: another function may need another rule.
    nodes = _node_data(graph, node_attrs, preserve_node_attrs)
    result: Graph = (DiGraph if contents.directed else Graph)._of(contents, nodes)
    if contents.merged is not None:
        result._source = weakref.ref(graph), wanted
    if preserve_graph_attrs:
        result.graph.update(graph.graph)
    return result


def _node_data(graph: Any, wanted: Mapping[Hashable, Any] | None, preserve: bool) -> dict[Any, dict]:
    """Return the kept attributes of each node."""
    if preserve:
        return {node: dict(data) for node, data in graph.nodes(data=True)}
    if wanted:
        return {
            node: {name: data.get(name, default) for name, default in wanted.items()}
            for node, data in graph.nodes(data=True)
        }
    return {node: {} for node in graph}


def convert_to_nx(result: Any, *, name: str | None = None) -> Any:
    """Return the `networkx.Graph` or `networkx.DiGraph` of a backend graph, and anything else unchanged. O(n + m)."""
    # Copy the graph's attributes and the nodes.
    if not isinstance(result, Graph):
        return result
    contents = result._contents
    src, dst, values = edges_of(contents.graph())
    plain = nx.DiGraph if contents.directed else nx.Graph
    graph = object.__new__(plain)  # `plain()` is a graph of the backend where `backend_priority.classes` says so
    graph.__init__()
    graph.graph.update(result.graph)
    graph.add_nodes_from((node, dict(data)) for node, data in result._node.items())

    # Copy the edges, as integers if all values were.
    ends = (map(contents.nodes.__getitem__, side.tolist()) for side in (src, dst))
    if values is None:
        graph.add_edges_from(zip(*ends, strict=True))
    else:
        numbers = (values.astype(np.int64) if contents.whole else values).tolist()
        graph.add_weighted_edges_from(zip(*ends, numbers, strict=True), weight=contents.attribute)
    return graph
