"""What PageRank is compared with: NetworkX, its iteration in float64, and the limit as a linear system's solution."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from spmd import Graph


def with_networkx(graph: Graph, **options: Any) -> np.ndarray:
    oracle = (nx.DiGraph if graph.directed else nx.Graph)()
    oracle.add_nodes_from(range(graph.n))
    oracle.add_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    if "tol" in options:
        options["tol"] /= graph.n  # NetworkX multiplies it by the number of vertices
    ranks = nx.pagerank(oracle, weight=None, max_iter=1000, **options)
    return np.array([ranks[v] for v in range(graph.n)])


def _flow(graph: Graph) -> tuple[Any, np.ndarray]:
    """The matrix that hands shares on, and who hands on nothing."""
    import scipy.sparse as sp

    matrix = graph.matrix()
    degree = matrix.sum(axis=1)
    return (matrix.T @ sp.diags_array(1 / np.where(degree, degree, 1))).tocsr(), degree == 0


def iterate(graph: Graph, alpha: float = 0.85, tol: float = 1e-6, max_iter: int = 100) -> tuple[np.ndarray, int]:
    """NetworkX's iteration in float64, for graphs that would take it minutes to hold; and its number of steps."""
    flow, dangling = _flow(graph)
    x = np.full(graph.n, 1 / graph.n)
    for step in range(1, max_iter + 1):
        new = alpha * (flow @ x) + (alpha * x[dangling].sum() + 1 - alpha) / graph.n
        change, x = np.abs(new - x).sum(), new
        if change < tol:
            return x, step
    return x, max_iter


def limit(graph: Graph, alpha: float) -> np.ndarray:
    """The ranks that the iteration tends to, to float64's rounding, however slowly: an LU decomposition."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    flow, _ = _flow(graph)
    ranks = splu((sp.eye_array(graph.n) - alpha * flow).tocsc()).solve(np.full(graph.n, 1 / graph.n))
    return ranks / ranks.sum()
