"""Changes of a graph whose results are maintained, and what these have to equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph, EdgeBatch

__all__ = ["IDS", "assert_same", "line", "random_change"]

IDS = np.uint32


def assert_same(live: Any, graph: DynamicGraph, arguments: dict[str, Any]) -> None:
    """The maintained result is that of a fresh run, in class, dtype, values, columns and scalars."""
    got, want = live.result(), graph.run(live.name, **arguments)
    assert type(got) is type(want) and got.dtype == want.dtype and got.epoch == live.epoch == graph.epoch
    a, b = got.to_pandas(), want.to_pandas()
    assert list(a.columns) == list(b.columns) and set(got.info) == set(want.info)
    if live.name == "pagerank":
        alpha, tol = arguments.get("alpha", 0.85), arguments.get("tol", 1e-6)
        assert np.abs(a.to_numpy(float) - b.to_numpy(float)).sum(axis=0).max() <= 2 * alpha / (1 - alpha) * tol + 4e-7
        assert got.converged == (got.error < tol)
        return
    for column in b.columns:
        np.testing.assert_array_equal(a[column], b[column], err_msg=f"{live.name} {arguments} {column}: {live.report}")
    for scalar in {"components", "reached", "levels", "total", "pairs"} & set(want.info):
        assert got.info[scalar] == want.info[scalar], (live.name, scalar, live.report)


def random_change(graph: DynamicGraph, rng: np.random.Generator, edges: GraphModel) -> None:
    """Something happens to the graph."""
    n, kind = graph.num_vertices, rng.random()
    if kind < 0.7:
        batch = random_batch(rng, n, int(rng.choice([1, 3, 10, 40])), edges.weighted, deletes=0.3)
        gone = list(edges.edges)  # deletions of edges that are there
        gone = [gone[i] for i in rng.permutation(len(gone))[: int(rng.integers(0, 6))]]
        batch = EdgeBatch(
            np.append(batch.src, [u for u, _ in gone]).astype(IDS),
            np.append(batch.dst, [v for _, v in gone]).astype(IDS),
            None if batch.weight is None else np.append(batch.weight, np.zeros(len(gone))).astype(np.float32),
            np.append(batch.op, -np.ones(len(gone))).astype(np.int8),
        )
        graph.update(batch)
        edges.update(batch)
    elif kind < 0.78:
        dead = rng.integers(0, n, 2)
        graph.delete_vertices(dead)
        edges.delete_vertices(dead.tolist())
    elif kind < 0.86:
        graph.add_vertices(int(rng.integers(1, 4)))
    elif kind < 0.93:
        graph.rebalance()
    else:
        graph.reorder()


def line(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a path of `n` vertices."""
    return np.arange(n - 1, dtype=IDS), np.arange(1, n, dtype=IDS)
