"""PageRank and HITS."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import networkx as nx
import numpy as np

from mgraph.networkx.calls import by_node, offered, refusing, weighted, why_no_weight
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph

__all__ = ["hits", "pagerank"]


def _why_no_pagerank(G: Any, alpha: float = 0.85, weight: Any = "weight", **others: Any) -> str | None:
    if not 0 < alpha < 1:
        return f"alpha is {alpha}, and the backend has PageRank with alpha above 0 and below 1"
    if weight is None and G.is_multigraph():
        return "each of parallel edges counts, and the backend keeps one"
    return why_no_weight(weight)


def _array(graph: Graph, values: Mapping[Any, float]) -> np.ndarray:
    """Return values by node as an array by id; 0 for nodes without a value."""
    return np.array([values.get(node, 0) for node in graph._contents.nodes], np.float64)


@offered(_why_no_pagerank)
def pagerank(
    G: Graph,
    alpha: float = 0.85,
    personalization: Mapping[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
    nstart: Mapping[Any, float] | None = None,
    weight: Hashable | None = "weight",
    dangling: Mapping[Any, float] | None = None,
) -> dict[Any, float]:
    """Implement `networkx.pagerank` in float64."""
    if len(G) == 0:
        return {}
    # Turn the mappings into arrays.
    by_weight = weighted(G, weight, merged="sum")
    with refusing(G) as graph:
        mappings = {"personalization": personalization, "start": nstart, "dangling": dangling}
        arrays = {name: _array(G, values) for name, values in mappings.items() if values is not None}
        if personalization is not None and arrays["personalization"].sum() == 0:
            raise ZeroDivisionError

        # Iterate. NetworkX's tolerance is per node.
        ranks = graph.pagerank(alpha, len(G) * tol, max_iter, dtype="float64", weight=by_weight, **arrays)
        if not ranks.converged:
            raise nx.PowerIterationFailedConvergence(max_iter)
        return by_node(G, ranks.to_numpy())


@offered()
def hits(
    G: Graph,
    max_iter: int = 100,
    tol: float = 1e-8,
    nstart: Mapping[Any, float] | None = None,
    normalized: bool = True,
) -> tuple[dict[Any, float], dict[Any, float]]:
    """Implement `networkx.hits` in float64, with the same rule for `tol`. An iteration is up to 20 products."""
    if len(G) == 0:
        return {}, {}
    start, by_weight = None if nstart is None else _array(G, nstart), weighted(G, "weight", merged="sum")
    with refusing(G) as graph:
        if graph.num_edges == 0:
            raise Refused("the graph has no edges, and so no hubs")
        hubs = graph.hits(tol, max(max_iter, 0), start, weight=by_weight, normalized=bool(normalized))
        if not hubs.converged:
            raise nx.PowerIterationFailedConvergence(max_iter)
        return by_node(G, hubs.to_numpy()), by_node(G, hubs.authorities.to_numpy())
