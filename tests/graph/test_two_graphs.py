"""Two graphs on the same workers, from several threads of the client: each waits for its own ranks only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from graph_clusters import Clusters, assert_clean
from plain_graph import fresh_rng

from mgraph import DynamicGraph

N = 60  #: vertices of a thread


def source(first: int, seed: int):
    """A user's function that allocates and compiles: two steps of a part from each rank."""

    def made(rank: int, size: int, step: int):
        if step == 2:
            return None
        names = {"np": np, "found": np.ones(1 << 20)}
        exec(compile(f"n = int(found.sum()) and {N}", "a user's function", "exec"), names)
        return tuple(first + np.random.default_rng([seed, rank, step]).integers(0, names["n"], (2, 20)))

    return made


def levels(there: np.ndarray, vertex: int) -> list[int]:
    found, front, level = np.full(N, -1), np.arange(N) == vertex, 0
    while front.any():
        found[front] = level
        front, level = there[front].any(axis=0) & (found < 0), level + 1
    return found.tolist()


def use(graph: DynamicGraph, first: int, seed: int, calls: int) -> int:
    """Change and search the vertices `first .. first + N - 1`, beside a matrix; returns the number of their edges."""
    there, mine = np.zeros((N, N), bool), slice(first, first + N)
    for call in range(calls):
        rng = np.random.default_rng([seed, call])
        kind, made = call % 4, source(first, 1000 * seed + call)
        if kind == 0:
            assert len(graph.ingest(made)) == 2
            for rank in range(2):
                for step in range(2):
                    src, dst = made(rank, 2, step)
                    there[src - first, dst - first] = True
        elif kind == 1:
            vertex = int(rng.integers(0, N))
            distances = graph.bfs(first + vertex).to_numpy()
            assert distances[mine].tolist() == levels(there, vertex)
            assert (np.delete(distances, mine) == -1).all()
        elif kind == 2:
            assert abs(graph.pagerank().to_numpy().sum() - 1) < 1e-5
        else:
            gone = rng.integers(0, N, (2, 1000))
            deleted = there.sum()
            there[tuple(gone)] = False
            assert graph.delete(*(first + gone)).deleted == deleted - there.sum()
    return int(there.sum())


def use_two_graphs(client, threads: int, calls: int, **options) -> None:
    """Use each graph from half of the threads, which take vertices of their own."""
    seed, each = int(fresh_rng().integers(1 << 30)), threads // 2
    with ExitStack() as stack:
        graphs = [stack.enter_context(DynamicGraph(client, each * N, reverse=True, **options)) for _ in range(2)]
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        uses = [
            [pool.submit(use, graph, part * N, seed + 2 * part + number, calls) for part in range(each)]
            for number, graph in enumerate(graphs)
        ]
        for graph, futures in zip(graphs, uses, strict=True):
            assert sum(future.result(1700) for future in futures) == graph.num_edges
            assert graph.epoch == each * (3 * calls // 4)
    assert_clean(client)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("threads", "calls", "exchange"),
    [
        (4, 12, "peer"),
        pytest.param(2, 20, "peer", marks=SLOW),
        pytest.param(4, 20, "tcp", marks=SLOW),
        pytest.param(4, 2000, "peer", marks=SLOW),
    ],
)
@pytest.mark.timeout(1800)
def test_two_graphs_from_several_threads(client, threads, calls, exchange):
    use_two_graphs(client, threads, calls, exchange=exchange)


@pytest.mark.multigpu(2)
@pytest.mark.parametrize("calls", [100, pytest.param(2000, marks=SLOW)])
@pytest.mark.timeout(1800)
def test_two_graphs_on_the_same_gpus(clusters: Clusters, calls: int) -> None:
    with clusters.lend(2, gpus=True) as client:
        use_two_graphs(client, 4, calls, device="cuda", exchange="peer")
