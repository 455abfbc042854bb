"""What core numbers must be: NetworkX's for small graphs, and for large ones by a heap of the edges left."""

from __future__ import annotations

import heapq

import networkx as nx
import numpy as np
from spmd import Graph
from triangle_oracle import simple


def by_networkx(graph: Graph) -> np.ndarray:
    """Core numbers: int64[n]."""
    oracle = nx.DiGraph() if graph.directed else nx.Graph()
    oracle.add_nodes_from(range(graph.n))
    pairs = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
    oracle.add_edges_from((u, v) for u, v in pairs if u != v)  # NetworkX refuses self-loops
    found = nx.core_number(oracle)
    return np.array([found[vertex] for vertex in range(graph.n)], np.int64)


def by_heap(graph: Graph) -> np.ndarray:
    """The same: the vertex with the fewest edges left goes first."""
    arcs = simple(graph)
    both = (arcs + arcs.T if graph.directed else arcs).tocsr()
    left = np.asarray(both.sum(axis=1)).astype(int).tolist()
    heap = [(edges, vertex) for vertex, edges in enumerate(left)]
    heapq.heapify(heap)
    core, level, offsets = np.full(graph.n, -1, np.int64), 0, both.indptr.tolist()
    near, count = both.indices.tolist(), both.data.astype(int).tolist()
    while heap:
        edges, vertex = heapq.heappop(heap)
        if core[vertex] >= 0 or edges != left[vertex]:
            continue
        level = max(level, edges)
        core[vertex] = level
        for at in range(offsets[vertex], offsets[vertex + 1]):
            other = near[at]
            if core[other] < 0:
                left[other] -= count[at]
                heapq.heappush(heap, (left[other], other))
    return core
