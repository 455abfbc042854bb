"""What shortest paths must be: Dijkstra's in the dtype asked for, and a forest of predecessors that leads back."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from graphs import random_graph
from spmd import Graph, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.partition import Partition

SSSP = ALGORITHMS["sssp"]


def weighted(graph: Graph, seed: int, kind: str = "whole") -> Graph:
    """The graph with weights: whole numbers, fractions, many zeros, or of very different sizes."""
    rng, m = np.random.default_rng(seed), len(graph.src)
    weight = {
        "whole": lambda: rng.integers(1, 20, m),
        "fractions": lambda: rng.random(m),
        "zeros": lambda: rng.integers(0, 2, m) * rng.random(m),
        "sizes": lambda: 2.0 ** rng.integers(-60, 60, m),
        "none": lambda: np.zeros(m),
    }[kind]()
    return Graph(graph.n, graph.src, graph.dst, graph.directed, f"{graph.name}-{kind}", weight.astype(np.float32))


def distances(graph: Graph, source: int, dtype: Any) -> np.ndarray:
    """Dijkstra's distances, added up in `dtype`: the least over all paths, since such sums are monotone."""
    matrix, real = graph.matrix(), np.dtype(dtype).type
    found = np.full(graph.n, np.inf, dtype)
    found[source] = 0
    heap = [(found[source], source)]
    with np.errstate(over="ignore"):
        while heap:
            length, u = heapq.heappop(heap)
            if length > found[u]:
                continue
            row = slice(matrix.indptr[u], matrix.indptr[u + 1])
            for v, weight in zip(matrix.indices[row].tolist(), matrix.data[row].tolist(), strict=True):
                far = length + real(weight)
                if far < found[v]:
                    found[v] = far
                    heapq.heappush(heap, (far, v))
    return found


def check_forest(graph: Graph, source: int, distance: np.ndarray, predecessors: np.ndarray) -> None:
    """Each reached vertex has a predecessor from which its distance follows exactly, and all lead to the source."""
    assert predecessors.dtype == np.int64
    reached = np.isfinite(distance)
    reached[source] = False
    np.testing.assert_array_equal(predecessors >= 0, reached)
    vertices = np.flatnonzero(reached)
    before = predecessors[vertices]
    matrix = graph.matrix().tocoo()
    weights = dict(zip(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True), matrix.data.tolist(), strict=True))
    weight = np.array([weights[edge] for edge in zip(before.tolist(), vertices.tolist(), strict=True)], distance.dtype)
    np.testing.assert_array_equal(distance[before] + weight, distance[vertices])
    at = vertices
    for _ in range(graph.n):  # all go back by one step
        at = at[at != source]
        at = predecessors[at]
    assert (at == source).all()


def check(
    graph: Graph, partition: Partition, source: int, dtype: str = "float32", reverse: bool = False, **kind: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Search, and check; distances, predecessors and what the result says."""
    made = shards(graph, partition, reverse=reverse, **kind)
    found, info = run(made, SSSP, source, predecessors=True, dtype=dtype)
    want = distances(graph, source, dtype)
    assert found["distance"].dtype == dtype
    np.testing.assert_array_equal(found["distance"], want)
    assert info["reached"] == np.isfinite(want).sum()
    check_forest(graph, source, want, found["predecessors"])
    return found["distance"], found["predecessors"], info


def random_weighted(seed: int, directed: bool = True, kind: str = "whole") -> Graph:
    """A random graph of some hundred vertices with loops, repeats and several components."""
    return weighted(random_graph(seed, 300 + 11 * seed, 900, directed, skew=seed % 2 == 1), seed, kind)
