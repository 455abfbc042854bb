"""Peers on the CPU: the same kernels with SciPy and with NetworkX."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption
from workloads.gap.graphs import GapGraph
from workloads.gap.verify import ALPHA

__all__ = ["PEERS", "peers_of"]

Run = Callable[[list[int]], Any]


def _scipy(graph: GapGraph, weighted: bool) -> dict[str, Run]:
    """Return SciPy's kernels, without betweenness.

    Its PageRank is a loop over a sparse matrix, to the same tolerance.
    """
    import scipy.sparse as sparse
    from scipy.sparse import csgraph

    # Build the matrix of both directions.
    src, dst, weight = map(graph.device.to_host, graph.columns())
    n, ends = graph.n_vertices, (np.concatenate([src, dst]), np.concatenate([dst, src]))
    data = np.tile(weight if weighted else np.ones(len(src), np.float32), 2).astype(np.float64)
    matrix = sparse.csr_array((data, ends), shape=(n, n))
    degree = np.maximum(np.diff(matrix.indptr), 1)

    # Iterate r = (1 - alpha) / n + alpha A (r / degree).
    def pagerank(sources: list[int]) -> Any:
        ranks = np.full(n, 1 / n)
        for _ in range(1000):
            ranks, before = (1 - ALPHA) / n + ALPHA * (matrix @ (ranks / degree)), ranks
            if np.abs(ranks - before).sum() < 1e-4:
                break
        return ranks

    if weighted:
        return {"sssp": lambda s: csgraph.dijkstra(matrix, indices=s[0])}
    return {
        "bfs": lambda s: csgraph.breadth_first_order(matrix, s[0]),
        "pr": pagerank,
        "cc": lambda s: csgraph.connected_components(matrix, directed=False),
        "tc": lambda s: int((matrix @ matrix).multiply(matrix).sum()) // 6,
    }


def _networkx(graph: GapGraph, weighted: bool) -> dict[str, Run]:
    """Return NetworkX's kernels.

    Its tol is per vertex, and its betweenness draws its own sources, as many.
    """
    import networkx as nx

    # Build the graph.
    g = nx.Graph()
    g.add_nodes_from(range(graph.n_vertices))
    src, dst, weight = (graph.device.to_host(column).tolist() for column in graph.columns())
    if weighted:
        g.add_weighted_edges_from(zip(src, dst, weight, strict=True))
        return {"sssp": lambda s: nx.single_source_dijkstra_path_length(g, s[0])}
    g.add_edges_from(zip(src, dst, strict=True))
    return {
        "bfs": lambda s: dict(nx.bfs_predecessors(g, s[0])),
        "pr": lambda s: nx.pagerank(g, ALPHA, tol=1e-4 / graph.n_vertices, max_iter=1000),
        "cc": lambda s: list(nx.connected_components(g)),
        "bc": lambda s: nx.betweenness_centrality(g, k=len(s), seed=1),
        "tc": lambda s: sum(nx.triangles(g).values()) // 3,
    }


PEERS: dict[str, Callable[[GapGraph, bool], dict[str, Run]]] = {"scipy": _scipy, "networkx": _networkx}


def peers_of(text: str) -> list[str]:
    """Return the peers named in an option such as "scipy,networkx"."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise InvalidOption(f"--peer names {name!r}; there are {', '.join(PEERS)}")
        if find_spec(name) is None:
            raise InvalidOption(f"--peer names {name}, which is not installed: pip install {name}")
    return names
