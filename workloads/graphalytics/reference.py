"""Reference implementations of the six algorithms, in float64 with NumPy and SciPy.

SciPy's product of matrices takes memory like the number of paths of two edges: enough for some million edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.graphalytics.evlp import INFINITE, Dataset

__all__ = ["REFERENCE"]


def _matrix(graph: Dataset, weights: np.ndarray | None = None) -> Any:
    """Return the adjacency matrix, symmetric for an undirected graph."""
    import scipy.sparse as sparse

    n, src, dst = len(graph.ids), graph.src, graph.dst
    data = np.ones(len(src)) if weights is None else weights
    if not graph.directed:
        src, dst, data = np.concatenate([src, dst]), np.concatenate([dst, src]), np.tile(data, 2)
    return sparse.csr_array((data, (src, dst)), shape=(n, n))


def bfs(graph: Dataset) -> np.ndarray:
    """Return depths from the source."""
    from scipy.sparse import csgraph

    source = graph.place(graph.parameter("bfs.source-vertex", int))
    far = csgraph.dijkstra(_matrix(graph), unweighted=True, indices=source)
    return np.where(np.isinf(far), INFINITE, np.where(np.isinf(far), 0, far).astype(np.int64))


def pr(graph: Dataset) -> np.ndarray:
    """Return ranks after a fixed number of iterations."""
    n, alpha = len(graph.ids), graph.parameter("pr.damping-factor", float)
    matrix = _matrix(graph)
    degree = np.diff(matrix.indptr)
    back, ranks = matrix.T.tocsr(), np.full(n, 1 / max(n, 1))
    for _ in range(graph.parameter("pr.num-iterations", int)):
        # r = (1 - alpha + alpha dangling) / n + alpha A^T (r / degree)
        dangling = ranks[degree == 0].sum()
        ranks = (1 - alpha + alpha * dangling) / n + alpha * (back @ (ranks / np.maximum(degree, 1)))
    return ranks


def wcc(graph: Dataset) -> np.ndarray:
    """Return the number of each vertex's component."""
    from scipy.sparse import csgraph

    return csgraph.connected_components(_matrix(graph), directed=True, connection="weak")[1].astype(np.int64)


def cdlp(graph: Dataset) -> np.ndarray:
    """Return labels after rounds of label propagation: the most frequent around a vertex, of these the smallest."""
    n = len(graph.ids)
    u, v = np.concatenate([graph.src, graph.dst]), np.concatenate([graph.dst, graph.src])
    labels = np.arange(n)
    for _ in range(graph.parameter("cdlp.max-iterations", int)):
        # Count each label around each vertex.
        pairs, count = np.unique(u.astype(np.int64) * n + labels[v], return_counts=True)
        vertex, label = pairs // n, pairs % n
        # Sort so that the last pair of a vertex has its choice.
        order = np.lexsort((-label, count, vertex))
        labels = labels.copy()
        labels[vertex[order]] = label[order]
    return graph.ids[labels]


def lcc(graph: Dataset) -> np.ndarray:
    """Return clustering coefficients: edges among a vertex's neighbours, by all possible ones."""
    arcs = _matrix(graph)
    near = arcs + arcs.T
    near.data[:] = 1
    degree = np.diff(near.indptr)
    among = np.asarray((near @ arcs).multiply(near).sum(axis=1)).ravel()
    return among / np.maximum(degree * (degree - 1.0), 1)


def sssp(graph: Dataset) -> np.ndarray:
    """Return distances by weights from the source.

    SciPy drops weights of 0: the smallest number replaces them.
    """
    from scipy.sparse import csgraph

    source = graph.place(graph.parameter("sssp.source-vertex", int))
    weights = np.maximum(np.ones(len(graph.src)) if graph.weight is None else graph.weight, np.finfo(float).tiny)
    return csgraph.dijkstra(_matrix(graph, weights), indices=source)


REFERENCE = {"BFS": bfs, "PR": pr, "WCC": wcc, "CDLP": cdlp, "LCC": lcc, "SSSP": sssp}
