"""Eccentricity, diameter, radius, center, periphery; the average length of shortest paths."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from mgraph.networkx.calls import offered, why_no_weight
from mgraph.networkx.components import is_connected, is_strongly_connected
from mgraph.networkx.graph import Graph
from mgraph.networkx.search import length_rows

__all__ = ["average_shortest_path_length", "center", "diameter", "eccentricity", "periphery", "radius"]


def _why_no_eccentricity(G: Any, v: Any = None, sp: Any = None, weight: Any = None, **others: Any) -> str | None:
    return "lengths of paths are given" if sp is not None else why_no_weight(weight)


@offered(_why_no_eccentricity)
def eccentricity(G: Graph, v: Any = None, sp: Any = None, weight: Any = None) -> Any:
    """Implement `networkx.eccentricity`. Searches from each node."""
    nodes = list(G.nbunch_iter(v))
    whole, eccentricities = weight is None or G._contents.attribute != weight or G._contents.whole, {}
    rows = length_rows(G, [G._contents.index[node] for node in nodes], weight)
    for node, row in zip(nodes, rows, strict=True):
        if not np.isfinite(row).all():
            what = "digraph is not strongly connected" if G.is_directed() else "graph is not connected"
            raise nx.NetworkXError(f"Found infinite path length because the {what}")
        eccentricities[node] = int(row.max()) if whole else float(row.max())
    return eccentricities[v] if v in G else eccentricities


def _why_none(G: Any, e: Any = None, usebounds: bool = False, weight: Any = None) -> str | None:
    return "eccentricities are given" if e is not None else why_no_weight(weight)


@offered(_why_none)
def diameter(G: Graph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:
    """Implement `networkx.diameter`."""
    return max(eccentricity(G, weight=weight).values())


@offered(_why_none)
def radius(G: Graph, e: Any = None, usebounds: bool = False, weight: Any = None) -> Any:
    """Implement `networkx.radius`."""
    return min(eccentricity(G, weight=weight).values())


@offered(_why_none)
def center(G: Graph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Any]:
    """Implement `networkx.center`."""
    if len(G) == 0 and weight is None and not G.is_directed():  # NetworkX takes it for a tree
        raise nx.NetworkXPointlessConcept("G has no nodes.")
    far = eccentricity(G, weight=weight)
    least = min(far.values())
    return [node for node in far if far[node] == least]


@offered(_why_none)
def periphery(G: Graph, e: Any = None, usebounds: bool = False, weight: Any = None) -> list[Any]:
    """Implement `networkx.periphery`."""
    far = eccentricity(G, weight=weight)
    most = max(far.values())
    return [node for node in far if far[node] == most]


def _why_no_average(G: Any, weight: Any = None, method: str | None = None) -> str | None:
    return f"the method is {method!r}" if method not in (None, "unweighted", "dijkstra") else why_no_weight(weight)


@offered(_why_no_average)
def average_shortest_path_length(G: Graph, weight: Any = None, method: str | None = None) -> float:
    """Implement `networkx.average_shortest_path_length`. Searches from each node."""
    # Refuse graphs for which the average is not defined.
    n = len(G)
    if n == 0:
        raise nx.NetworkXPointlessConcept("the null graph has no paths, thus there is no average shortest path length")
    if n == 1:
        return 0
    if G.is_directed() and not is_strongly_connected(G):
        raise nx.NetworkXError("Graph is not strongly connected.")
    if not G.is_directed() and not is_connected(G):
        raise nx.NetworkXError("Graph is not connected.")

    # average = sum of all lengths / (n (n - 1)).
    by = None if method == "unweighted" else weight
    return sum(float(row.sum()) for row in length_rows(G, range(n), by)) / (n * (n - 1))
