"""Betweenness centrality."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from mgraph.graph import DynamicGraph
from mgraph.networkx.calls import by_node, offered, refusing, weighted, why_no_weight
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph

__all__ = ["betweenness_centrality"]

SEARCHES = 64  #: `distances` does so many at once


def _why_no_betweenness(G: Any, weight: Any = None, **others: Any) -> str | None:
    return why_no_weight(weight)


@offered(_why_no_betweenness)
def betweenness_centrality(
    G: Graph,
    k: int | None = None,
    normalized: bool = True,
    weight: Any = None,
    endpoints: bool = False,
    seed: Any = None,
) -> dict[Any, float]:
    """As `networkx.betweenness_centrality`, of paths by numbers of edges; with `k`, from the same nodes as there."""
    if weighted(G, weight):
        raise Refused("the backend has no betweenness centrality by weights")
    nodes = list(G)
    drawn = (seed or Random()).sample(nodes, k) if k is not None and k != len(G) else nodes
    if len(G) == 0:
        return {}
    with refusing(G) as graph:
        ids = None if drawn is nodes else np.array([G._contents.index[node] for node in drawn], np.int64)
        if not endpoints:
            return by_node(G, graph.betweenness_centrality(ids, normalized=normalized).to_numpy())
        return by_node(G, _with_endpoints(graph, ids, normalized))


def _with_endpoints(graph: DynamicGraph, ids: np.ndarray | None, normalized: bool) -> np.ndarray:
    """Betweenness in which paths count for their ends, too. A second search from each source finds which there are."""
    n = graph.num_vertices
    if n < 2:
        return np.zeros(n)
    sources = np.arange(n) if ids is None else ids
    counts = graph.betweenness_centrality(sources, normalized=False).to_numpy()
    if n > 2:
        paths = np.full(n, len(sources))
        paths[sources] -= 1
        counts = np.nan_to_num(counts) * (paths / (n - 1)) * (1 if graph.directed else 2)  # as they were; NaN: 0 paths
    for at in range(0, len(sources), SEARCHES):
        some = sources[at : at + SEARCHES]
        reached = graph.distances(some).to_numpy() >= 0
        counts += reached.sum(axis=0)
        counts[some] += reached.sum(axis=1) - 2  # itself once as a source and once as an end
    return counts * (1 / (len(sources) * (n - 1)) if normalized else n / (len(sources) * (1 if graph.directed else 2)))
