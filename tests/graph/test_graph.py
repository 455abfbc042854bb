"""The user's handle on real worker processes: batches and reads against a dict of edges."""

from __future__ import annotations

import numpy as np
import pytest
from graph_clusters import HERE, NO_DASHBOARD, assert_clean, check_graph, on
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph, EdgeBatch, UpdateReport

pytestmark = pytest.mark.both_ways(comms="slow")

N = 50

KINDS = {
    "directed": {},
    "undirected": {"directed": False},
    "reverse": {"reverse": True},
    "weighted": {"weighted": True},
    "all": {"weighted": True, "reverse": True, "permuted": True, "balanced": True, "structure": "csr"},
    "undirected, all": {"weighted": True, "directed": False, "permuted": True, "balanced": True},
}


def make(client, size, rng, kind) -> tuple[DynamicGraph, GraphModel]:
    options = dict(KINDS[kind])
    if options.pop("permuted", False):
        options["order"] = rng.permutation(N)
    if options.pop("balanced", False):
        options["balance"] = rng.integers(0, 30, N)
    graph = DynamicGraph(n_vertices=N, **on(client, size), **options)
    return graph, GraphModel(N, graph.directed, graph.weighted)


@pytest.mark.both_ways
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [HERE, 1, 2, 3])
def test_random_stream_against_the_model(client3, size, kind):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    graph, model = make(client3, size, rng, kind)
    with graph:
        for epoch in range(1, 4):
            batch = random_batch(rng, model.n_vertices, int(rng.integers(0, 300)), model.weighted)
            report = graph.update(batch)
            assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(batch)
            assert report.epoch == graph.epoch == epoch
            check_graph(graph, model, rng)
        dead = rng.integers(0, N, 4)
        assert graph.delete_vertices(dead).deleted == model.delete_vertices(dead.tolist())
        assert graph.add_vertices(7) == range(N, N + 7)
        model.n_vertices += 7
        check_graph(graph, model, rng)
        batch = random_batch(rng, N + 7, 300, model.weighted)
        assert graph.update(batch).missing == model.update(batch)[3]
        check_graph(graph, model, rng)
        assert graph.epoch == 6  # three batches, vertices deleted, vertices added, a batch
    assert_clean(client3)


def test_insert_and_delete_say_what_they_did(place):
    with DynamicGraph(place, 4) as graph:
        report = graph.insert([0, 1, 1], [1, 2, 2])
        assert report == UpdateReport(2, 0, 0, 0, 1, report.seconds)
        assert report.seconds > 0
        report = graph.delete([1, 3], [2, 0])
        assert (report.deleted, report.missing, report.epoch) == (1, 1, 2)
        assert graph.insert([0], [1]).updated == 1
        assert graph.num_edges == 1


def test_empty_batches_and_empty_questions(place):
    with DynamicGraph(place, 3, weighted=True) as graph:
        assert graph.insert([], [], []).epoch == 1
        assert graph.update(EdgeBatch([], [], op=[])).epoch == 2
        assert graph.has_edges([], []).shape == (0,)
        assert graph.degrees([]).dtype == np.uint32
        rows = graph.neighbors([])
        assert rows.offsets.tolist() == [0]
        assert rows.weight.shape == (0,)
        assert graph.delete_vertices([]).epoch == 3
        assert graph.to_csr().offsets.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("n", [0, 1])
def test_graphs_with_fewer_vertices_than_workers(place, n):
    with DynamicGraph(place, n) as graph:
        assert graph.insert([0] * n, [0] * n).inserted == n
        assert graph.num_edges == n
        assert len(graph.degrees()) == n
        graph.add_vertices(2)
        assert graph.insert([n, n + 1], [n + 1, n]).inserted == 2


def test_weights_left_out_are_one(place):
    with DynamicGraph(place, 4, weighted=True, directed=False) as graph:
        graph.insert([0, 1], [1, 2])
        graph.insert([2], [3], [2.5])
        csr = graph.to_csr()
        assert dict(zip(csr.dst.tolist(), csr.weight.tolist(), strict=True))[2] == 2.5
        assert sorted(csr.weight.tolist()) == [1, 1, 1, 1, 2.5, 2.5]


def test_the_later_of_two_orders_wins_across_shares_and_directions(place):
    with DynamicGraph(place, 4, directed=False, weighted=True) as graph:
        graph.update(EdgeBatch([0, 3, 1, 0], [1, 2, 0, 0], [1, 2, 3, 4], [1, 1, 1, 1]))
        assert graph.num_edges == 3
        assert graph.neighbors([0]).weight.tolist() == [4, 3]
        graph.update(EdgeBatch([0, 1], [1, 0], op=[1, -1]))
        assert not graph.has_edges([0, 1], [1, 0]).any()


def test_to_scipy(place):
    with DynamicGraph(place, 4, weighted=True) as graph:
        graph.insert([0, 2], [3, 1], [0.5, 2])
        matrix = graph.to_scipy()
        assert matrix.toarray().tolist() == [[0, 0, 0, 0.5], [0] * 4, [0, 2, 0, 0], [0] * 4]


def test_it_shows_epoch_edges_bytes_and_balance_of_each_worker(client):
    with DynamicGraph(client, 10, directed=False) as graph:
        graph.insert([0, 1, 7], [1, 2, 8])
        text, html = repr(graph), graph._repr_html_()
        for address in graph.workers:
            assert address in text
            assert address in html
        assert "epoch 1, 10 vertices, 3 edges, undirected, gpma+ on cpu, exchange peer" in text
        assert "1.33" in text  # rank 0 counts 2 of 3 edges
        assert "<table>" in html
        assert graph.nbytes > 0
    assert "closed" in repr(graph)


def test_several_graphs_on_one_cluster(client):
    with DynamicGraph(client, 10) as one, DynamicGraph(client, 20, directed=False, structure="csr") as two:
        one.insert([1], [2])
        two.insert([11, 12], [12, 13])
        one.insert([2], [3])
        assert (one.num_edges, two.num_edges, one.epoch, two.epoch) == (2, 2, 2, 1)
        one.close()
        assert two.has_edges([13], [12]).all()
    assert_clean(client)


@pytest.mark.both_ways
def test_calls_go_the_way_that_is_asked_for(client, way):
    with DynamicGraph(client, 4) as graph:
        sessions = graph._directory.coordinator.sessions.all
        assert [session.channel is not None for session in sessions] == [way == "channels"] * 2


def test_two_clients_on_one_cluster(client):
    from dask.distributed import Client

    with Client(client.scheduler.address) as other, DynamicGraph(client, 10) as one, DynamicGraph(other, 10) as two:
        one.insert([1], [2])
        two.insert([3], [4])
        assert one.has_edges([1, 3], [2, 4]).tolist() == [True, False]
        assert two.has_edges([1, 3], [2, 4]).tolist() == [False, True]
    assert_clean(client)


@pytest.mark.both_ways
def test_threads_take_turns(place):
    from concurrent.futures import ThreadPoolExecutor

    with DynamicGraph(place, 100) as graph, ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda i: graph.insert([i] * 10, range(i, i + 10)), range(40)))
        assert sorted(report.epoch for report in reports) == list(range(1, 41))
        assert graph.num_edges == 400


def set_part_bytes(n: int) -> int:
    """Have a worker process cut its answers at `n` bytes; what it was before. Runs there."""
    from mgraph import protocol

    before, protocol.PART_BYTES = protocol.PART_BYTES, n
    return before


@pytest.mark.both_ways
def test_answers_that_come_in_parts(client):
    rng = np.random.default_rng(1)
    n, m = 10_000, 200_000
    keys = np.unique(rng.integers(0, n, (m, 2), dtype=np.uint64) @ np.array([1 << 32, 1], np.uint64))
    src, dst = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    (before,) = set(client.run(set_part_bytes, 10_001).values())
    try:
        with DynamicGraph(client, n) as graph:
            assert graph.insert(src, dst).inserted == len(keys)
            np.testing.assert_array_equal(graph.to_csr().dst, dst)
            assert graph.has_edges(src, dst).all()
            np.testing.assert_array_equal(graph.degrees(), np.bincount(src, minlength=n))
    finally:
        client.run(set_part_bytes, before)


def test_workers_of_the_same_process(client):
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, processes=False, **NO_DASHBOARD) as cluster, Client(cluster) as local:
        rng = np.random.default_rng(5)
        with DynamicGraph(local, N, directed=False) as graph:
            model = GraphModel(N, directed=False)
            for _ in range(3):
                batch = random_batch(rng, N, 200, False)
                graph.update(batch)
                model.update(batch)
            check_graph(graph, model, rng)
        assert_clean(local)


def test_a_graph_that_nobody_closed_is_freed(client):
    graph = DynamicGraph(client, 10)
    graph.insert([1], [2])
    del graph
    assert_clean(client)


def test_a_sum_that_no_longer_grows_on_any_worker_warns_once(client3):
    with DynamicGraph(client3, n_vertices=9, weighted=True, combine="sum", reverse=True) as graph:
        graph.insert(range(9), [0] * 9, [2.0**24] * 9)
        with pytest.warns(UserWarning, match="no longer grows") as caught:
            graph.insert([8], [0], [1.0])
        assert len(caught) == 1
        graph.insert([8], [0], [1.0])
        graph.insert([4], [0], [1.0])  # of another worker
