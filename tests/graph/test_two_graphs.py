"""Two graphs on the same workers, from two threads of the client: each waits for its own ranks only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from graph_clusters import assert_clean
from plain_graph import fresh_rng

from mgraph import DynamicGraph

N = 60


def source(seed: int):
    """A user's function that allocates and compiles: two steps of a part from each rank."""

    def made(rank: int, size: int, step: int):
        if step == 2:
            return None
        names = {"np": np, "found": np.ones(1 << 20)}
        exec(compile(f"n = int(found.sum()) and {N}", "a user's function", "exec"), names)
        return tuple(np.random.default_rng([seed, rank, step]).integers(0, names["n"], (2, 20)))

    return made


def levels(there: np.ndarray, vertex: int) -> list[int]:
    found, front, level = np.full(N, -1), np.arange(N) == vertex, 0
    while front.any():
        found[front] = level
        front, level = there[front].any(axis=0) & (found < 0), level + 1
    return found.tolist()


def use(client, seed: int, calls: int, exchange: str) -> int:
    """Change and search a graph of its own, beside a matrix; returns the last epoch."""
    there = np.zeros((N, N), bool)
    with DynamicGraph(client, N, reverse=True, exchange=exchange) as graph:
        for call in range(calls):
            rng = np.random.default_rng([seed, call])
            kind, made = call % 4, source(1000 * seed + call)
            if kind == 0:
                assert len(graph.ingest(made)) == 2
                for rank in range(2):
                    for step in range(2):
                        there[made(rank, 2, step)] = True
            elif kind == 1:
                vertex = int(rng.integers(0, N))
                assert graph.bfs(vertex).to_numpy().tolist() == levels(there, vertex)
            elif kind == 2:
                assert abs(graph.pagerank().to_numpy().sum() - 1) < 1e-5
            else:
                gone = rng.integers(0, N, (2, 1000))
                deleted = there.sum()
                there[tuple(gone)] = False
                assert graph.delete(*gone).deleted == deleted - there.sum()
        assert graph.num_edges == there.sum()
        return graph.epoch


@pytest.mark.parametrize(
    ("calls", "exchange"),
    [(20, "peer"), pytest.param(20, "tcp", marks=pytest.mark.slow), pytest.param(2000, "peer", marks=pytest.mark.slow)],
)
@pytest.mark.timeout(1800)
def test_two_graphs_from_two_threads(client, calls, exchange):
    seed = int(fresh_rng().integers(1 << 30))
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(use, client, seed + number, calls, exchange) for number in range(2)]
        assert [future.result(1700) for future in futures] == [3 * calls // 4] * 2
    assert_clean(client)
