"""Link prediction: the Jaccard coefficient of pairs of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import networkx as nx
import numpy as np

from mgraph.distinct import distinct
from mgraph.networkx.calls import offered, refusing
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph

__all__ = ["jaccard_coefficient"]


@offered()
def jaccard_coefficient(G: Graph, ebunch: Iterable[tuple[Any, Any]] | None = None) -> Iterator[tuple[Any, Any, float]]:
    """Implement `networkx.jaccard_coefficient`."""
    # Check the nodes.
    pairs = list(nx.non_edges(G) if ebunch is None else ebunch)
    index = G._contents.index
    for node in (node for pair in pairs for node in pair):
        if node not in G:  # also for unhashable nodes
            raise nx.NodeNotFound(f"Node {node} not in G.")
    if not pairs:
        return iter(())

    # Refuse self-loops, then score all pairs in one call.
    with refusing(G) as graph:
        ids = np.array([[index[u], index[v]] for u, v in pairs], np.int64)
        if graph.has_edges(*(distinct(ids.ravel()),) * 2).any():
            raise Refused("a node has a self-loop, which NetworkX and the backend count differently")
        scores = graph.jaccard(ids).tolist()
    return ((u, v, score) for (u, v), score in zip(pairs, scores, strict=True))
