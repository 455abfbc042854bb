"""What BFS is to find, by SciPy, and the check of a search against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.csgraph import dijkstra
from spmd import Graph, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.partition import Partition

__all__ = ["check", "levels", "nearest"]


def levels(graph: Graph, source: int, direction: str = "out") -> np.ndarray:
    matrix = graph.matrix() if direction == "out" else graph.matrix().T.tocsr()
    far = dijkstra(matrix, unweighted=True, indices=source)
    return np.where(np.isinf(far), -1, far).astype(np.int32)


def nearest(graph: Graph, distance: np.ndarray, direction: str = "out") -> np.ndarray:
    """The least vertex of the level before from which an arc leads to each; -1 where there is none."""
    src, dst = graph.arcs if direction == "out" else graph.arcs[::-1]
    tree = (distance[src] >= 0) & (distance[dst] == distance[src] + 1)
    least = np.full(graph.n, graph.n, np.int64)
    np.minimum.at(least, dst[tree], src[tree].astype(np.int64))
    return np.where(least == graph.n, -1, least)


def check(
    graph: Graph,
    partition: Partition,
    source: int,
    reverse: bool,
    direction: str = "out",
    **kind: Any,
) -> dict:
    """Search for distances, and again with predecessors, and compare both; what the search says of itself."""
    made = shards(graph, partition, reverse=reverse, **kind)
    got, info = run(made, ALGORITHMS["bfs"], source, direction)
    want = levels(graph, source, direction)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)
    assert info["levels"] == want.max() + 1
    assert info["reached"] == (want >= 0).sum()
    both, same = run(made, ALGORITHMS["bfs"], source, direction, predecessors=True)
    assert list(both) == ["distance", "predecessors"]
    np.testing.assert_array_equal(both["distance"], want)
    assert both["predecessors"].dtype == np.int64
    np.testing.assert_array_equal(both["predecessors"], nearest(graph, want, direction))
    assert same == info
    return info
