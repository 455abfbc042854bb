"""Connected, weakly and strongly connected components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

from mgraph.networkx.calls import offered, refusing
from mgraph.networkx.graph import Graph

__all__ = [
    "connected_components",
    "is_connected",
    "is_strongly_connected",
    "is_weakly_connected",
    "node_connected_component",
    "number_connected_components",
    "number_strongly_connected_components",
    "number_weakly_connected_components",
    "strongly_connected_components",
    "weakly_connected_components",
]


def _sets(G: Graph, algorithm: str) -> Iterator[set[Any]]:
    """Return the sets of nodes with equal labels, in the order of their first nodes."""
    # Label the nodes.
    if len(G) == 0:
        return iter(())
    with refusing(G) as graph:
        labels = graph.run(algorithm).to_numpy()

    # Sort stably by label, and split where the label changes.
    nodes, order = [*G._contents.nodes], np.argsort(labels, kind="stable")  # a live graph may change meanwhile
    parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return ({nodes[i] for i in ids.tolist()} for ids in parts)


def _number(G: Graph, algorithm: str) -> int:
    if len(G) == 0:
        return 0
    with refusing(G) as graph:
        return int(graph.run(algorithm).components)


def _is_single(G: Graph, algorithm: str) -> bool:
    if len(G) == 0:
        raise nx.NetworkXPointlessConcept("Connectivity is undefined for the null graph.")
    return _number(G, algorithm) == 1


@offered()
def connected_components(G: Graph) -> Iterator[set[Any]]:
    """Implement `networkx.connected_components`."""
    return _sets(G, "connected_components")


@offered()
def number_connected_components(G: Graph) -> int:
    """Implement `networkx.number_connected_components`."""
    return _number(G, "connected_components")


@offered()
def is_connected(G: Graph) -> bool:
    """Implement `networkx.is_connected`."""
    return _is_single(G, "connected_components")


@offered()
def node_connected_component(G: Graph, n: Any) -> set[Any]:
    """Implement `networkx.node_connected_component`."""
    with refusing(G) as graph:
        reached = graph.bfs(G._contents.index[n]).to_numpy() >= 0
    return {G._contents.nodes[i] for i in np.flatnonzero(reached).tolist()}


@offered()
def weakly_connected_components(G: Graph) -> Iterator[set[Any]]:
    """Implement `networkx.weakly_connected_components`."""
    return _sets(G, "connected_components")


@offered()
def number_weakly_connected_components(G: Graph) -> int:
    """Implement `networkx.number_weakly_connected_components`."""
    return _number(G, "connected_components")


@offered()
def is_weakly_connected(G: Graph) -> bool:
    """Implement `networkx.is_weakly_connected`."""
    return _is_single(G, "connected_components")


@offered()
def strongly_connected_components(G: Graph) -> Iterator[set[Any]]:
    """Implement `networkx.strongly_connected_components`, in the order of the components' first nodes."""
    return _sets(G, "strongly_connected_components")


@offered()
def number_strongly_connected_components(G: Graph) -> int:
    """Implement `networkx.number_strongly_connected_components`."""
    return _number(G, "strongly_connected_components")


@offered()
def is_strongly_connected(G: Graph) -> bool:
    """Implement `networkx.is_strongly_connected`."""
    return _is_single(G, "strongly_connected_components")
