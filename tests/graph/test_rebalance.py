"""Moving the ranges of a living graph between worker processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from graph_clusters import HERE, assert_clean, check_graph, on
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.sources.rmat import Rmat

N = 60


@pytest.mark.parametrize("kind", [{}, {"directed": False, "weighted": True}, {"reverse": True}], ids=str)
def test_a_skewed_graph_becomes_even_and_stays_the_same_graph(client3, kind):
    with DynamicGraph(client3, 1 << 12, **kind) as graph:
        graph.ingest(Rmat(12, 10_000, shuffled=False), steps=2)
        before = graph.balance()
        assert before.ratio > 1.5
        rows, distances, ranks = graph.to_csr(), graph.bfs(0), graph.pagerank()
        kept, top = distances.to_numpy(), ranks.top(20)
        after = graph.rebalance()
        assert after.ratio < 1.3
        assert sum(worker.edges for worker in after.workers) == graph.num_edges
        assert sum(worker.vertices for worker in after.workers) == 1 << 12
        assert graph.epoch == 2
        now = graph.to_csr()
        for name in ("offsets", "dst", "weight"):
            np.testing.assert_array_equal(getattr(now, name), getattr(rows, name))
        np.testing.assert_array_equal(graph.bfs(0).to_numpy(), kept)
        assert np.abs(graph.pagerank().to_numpy() - ranks.to_numpy()).sum() < 1e-5
        np.testing.assert_array_equal(distances.to_numpy(), kept)  # results lie as they did
        assert ranks.top(20) == top
        graph.rebalance()
        assert graph.balance().ratio == after.ratio
    assert_clean(client3)


@pytest.mark.parametrize("directed", [True, False])
def test_a_skewed_graph_is_even_from_its_build_on_and_stays_so(client3, directed):
    """Ranges by the degrees of the edges it is built of; more of the same kind keep them within 1.3 of even."""
    source = Rmat(12, 5_000, seed=4, shuffled=False)
    parts = [source(rank, 3, step, Device()) for step in range(2) for rank in range(3)]
    src, dst = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    ends = src if directed else np.concatenate([src, dst])
    with DynamicGraph(client3, 1 << 12, directed=directed) as graph:
        graph.ingest(source, steps=2)
        assert graph.balance().ratio > 1.5
    with DynamicGraph(client3, 1 << 12, directed=directed, balance=np.bincount(ends, minlength=1 << 12)) as graph:
        graph.ingest(source, steps=2)
        built = graph.num_edges
        assert graph.balance().ratio < 1.3
        graph.ingest(Rmat(12, 5_000, seed=5, shuffled=False), steps=6)
        assert graph.num_edges > 1.5 * built
        assert graph.balance().ratio < 1.3


def test_batches_go_on_after_a_move(place):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    model = GraphModel(N, directed=False)
    with DynamicGraph(place, N, directed=False, order=rng.permutation(N), balance=np.arange(N) ** 2) as graph:
        for round_ in range(3):
            batch = random_batch(rng, model.n_vertices, 200, False)
            graph.update(batch)
            model.update(batch)
            graph.rebalance()
            check_graph(graph, model, rng)
            graph.add_vertices(2)
            model.n_vertices += 2
            dead = rng.integers(0, N, 2)
            assert graph.delete_vertices(dead).deleted == model.delete_vertices(dead.tolist())
            check_graph(graph, model, rng)
            assert graph.epoch == 3 * (round_ + 1)  # a batch, vertices added, vertices deleted; a move takes none


def test_reads_of_other_threads_while_ranges_move(place):
    rng = np.random.default_rng(2)
    with DynamicGraph(place, N) as graph, ThreadPoolExecutor(3) as pool:
        src, dst = np.divmod(rng.choice(N * N, 600, replace=False), N)
        graph.insert(src, dst)
        degrees = np.bincount(src, minlength=N)

        def read(turn: int) -> bool:
            if turn % 4 == 0:
                graph.delete(src[: 10 * turn], dst[: 10 * turn])
                graph.rebalance()
                graph.insert(src[: 10 * turn], dst[: 10 * turn])
                graph.rebalance()
                return True
            late = src[300:], dst[300:]
            rows = graph.neighbors([N - 1, 0])
            return bool(graph.has_edges(*late).all()) and int(rows.offsets[1]) <= degrees[N - 1]

        assert all(pool.map(read, range(24)))
        np.testing.assert_array_equal(graph.degrees(), degrees)


def test_balance_shows_each_worker(client):
    with DynamicGraph(client, N, directed=False) as graph:
        assert graph.balance().ratio == 1
        graph.insert([0, 1], [1, 2])
        balance = graph.balance()
        assert [worker.arcs for worker in balance.workers] == [4, 0]
        assert [worker.edges for worker in balance.workers] == [2, 0]
        assert balance.ratio == 2
        assert all(worker.seconds > 0 and worker.nbytes > 0 for worker in balance.workers)
        assert "most arcs of a worker over the mean: 2.00" in repr(balance)
        assert graph.workers[1] in repr(balance)


@pytest.mark.parametrize("size", [HERE, 1])
def test_one_rank_has_nothing_to_move(client, size):
    with DynamicGraph(n_vertices=N, **on(client, size)) as graph:
        graph.insert([0, 1], [1, 2])
        assert graph.rebalance().ratio == 1
        assert graph.has_edges([0, 1], [1, 2]).all()
