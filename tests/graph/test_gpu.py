"""The whole path on GPUs: one worker with one GPU, and two that exchange over UCX."""

from __future__ import annotations

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD, Clusters, assert_clean, check_graph, gpu_workers
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph, EdgeBatch
from mgraph.client.connections import local_memory
from mgraph.device import Device

N = 200


def stream(client: Client | None, seed: int, **options) -> None:
    """Batches in device memory, reads and algorithms, against the model and the same graph on the CPU."""
    import cupy

    rng = np.random.default_rng(seed)
    kinds = {"directed": True, "weighted": False, **options}
    with DynamicGraph(client, N, device="cuda", **options) as graph:
        assert graph.device == "cuda"
        model = GraphModel(N, kinds["directed"], kinds["weighted"])
        for _ in range(4):
            batch = random_batch(rng, N, 1000, model.weighted)
            columns = (batch.src, batch.dst, batch.weight, batch.op)
            report = graph.update(EdgeBatch(*(None if c is None else cupy.asarray(c) for c in columns)))
            assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(batch)
            check_graph(graph, model, rng)
        dead = rng.integers(0, N, 4)
        assert graph.delete_vertices(dead).deleted == model.delete_vertices(dead.tolist())
        graph.add_vertices(7)
        model.n_vertices += 7
        check_graph(graph, model, rng)
        search, pagerank = graph.bfs(1, predecessors=True), graph.pagerank()
        distances, predecessors, ranks = search.to_numpy(), search.predecessors.to_numpy(), pagerank.to_numpy()
        assert graph.pagerank(start=pagerank).iterations <= 2
        host = graph.to_csr()
    with DynamicGraph(client, N + 7, device="cpu", **options) as same:
        same.insert(np.repeat(np.arange(N + 7), np.diff(host.offsets)), host.dst, host.weight)
        found = same.bfs(1, predecessors=True)
        np.testing.assert_array_equal(found.to_numpy(), distances)
        np.testing.assert_array_equal(found.predecessors.to_numpy(), predecessors)
        assert np.abs(same.pagerank().to_numpy() - ranks).sum() < 1e-5
    assert_clean(client)


KINDS = [{}, {"directed": False}, {"reverse": True, "weighted": True}, {"structure": "csr"}]


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_one_gpu():
    with gpu_workers(1) as client:
        for seed, options in enumerate(KINDS):
            stream(client, seed, **options)


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_in_this_process():
    import cupy

    for seed, options in enumerate(KINDS):
        stream(None, seed, **options)
    flow(None, 1)
    mine = cupy.cuda.Stream(non_blocking=True)
    with mine, DynamicGraph(n_vertices=N) as graph:  # calls run on the graph's own stream
        assert graph.device == "cuda"
        src = cupy.zeros(1 << 24, np.uint32)
        src[-N:] = cupy.arange(N)
        assert graph.insert(src[-N:], (src[-N:] + np.uint32(1)) % np.uint32(N)).inserted == N
        ranks = graph.pagerank()
        assert ranks[[0, 1]].tolist() == ranks.to_numpy()[:2].tolist()
        assert cupy.cuda.get_current_stream() == mine
    with DynamicGraph(device="cuda", order="degree") as graph:  # which grows
        for last in (5, 60, 61, 4000):
            assert graph.insert(cupy.arange(last), cupy.arange(1, last + 1)).epoch > 0
            assert graph.num_vertices == last + 1
        assert graph.bfs(0).to_numpy().tolist() == list(range(4001))


@pytest.mark.multigpu(2)
@pytest.mark.timeout(600)
def test_the_callers_device_stays_current():
    import cupy

    with cupy.cuda.Device(1):
        with DynamicGraph(n_vertices=N) as graph:
            graph.insert(cupy.arange(N - 1), cupy.arange(1, N))  # which lie on the other GPU
            assert graph.bfs(0).to_numpy().tolist() == list(range(N))
        assert cupy.cuda.Device().id == 1


@pytest.mark.multigpu(2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("exchange", ["ucx", "tcp", "peer"])
def test_two_gpus(clusters: Clusters, exchange: str) -> None:
    if exchange == "ucx":
        pytest.importorskip("ucxx")
    with clusters.lend(2, gpus=True) as client:
        for seed, options in enumerate(KINDS):
            with DynamicGraph(client, N, device="cuda") as graph:
                assert graph.exchange == "peer"
            stream(client, seed, exchange=exchange, **options)


def random_edges(rank: int, size: int, step: int, device) -> tuple:
    """A part made of the shard's own arrays; src, dst, weight, op."""
    rng = np.random.default_rng(100 * step + rank)
    batch = random_batch(rng, N, 500, True)
    return tuple(device.asarray(column) for column in (batch.src, batch.dst, batch.weight, batch.op))


def flow(client: Client | None, size: int) -> None:
    """Ingest, a pipeline of batches in device memory, and a move of the ranges, against the model."""
    import cupy

    from mgraph.sources.rmat import Rmat

    rng = np.random.default_rng(size)
    with DynamicGraph(client, N, device="cuda", directed=False, weighted=True) as graph:
        model = GraphModel(N, directed=False, weighted=True)
        reports = graph.ingest(random_edges, steps=4)
        for step, report in enumerate(reports):
            parts = [random_edges(rank, size, step, Device()) for rank in range(size)]
            counts = model.update(EdgeBatch(*(np.concatenate(columns) for columns in zip(*parts, strict=True))))
            assert (report.inserted, report.updated, report.deleted, report.missing) == counts
        batches = [random_batch(rng, N, 1000, True) for _ in range(5)]
        with graph.pipeline() as pipe:
            for batch in batches:
                columns = (batch.src, batch.dst, batch.weight, batch.op)
                pipe.update(EdgeBatch(*map(cupy.asarray, columns)))
        for batch in batches:
            model.update(batch)
        check_graph(graph, model, rng)
        graph.rebalance()
        check_graph(graph, model, rng)
        graph.reorder()
        check_graph(graph, model, rng)
    with DynamicGraph(client, 1 << 12, device="cuda", reverse=True, order="degree") as graph:
        graph.ingest(Rmat(12, 40_000 // size, shuffled=False), steps=2)
        before, distances = graph.to_csr(), graph.bfs(0).to_numpy()
        assert graph.balance().ratio < 1.3
        assert graph.rebalance().ratio < 1.3
        after = graph.to_csr()
        np.testing.assert_array_equal(after.offsets, before.offsets)
        np.testing.assert_array_equal(after.dst, before.dst)
        np.testing.assert_array_equal(graph.bfs(0).to_numpy(), distances)
    assert_clean(client)


@pytest.mark.gpu
def test_ids_in_device_memory_are_checked():
    import cupy

    from mgraph.errors import UnknownVertex

    with DynamicGraph(n_vertices=N, device="cuda") as graph:
        ids = cupy.arange(2 * N, dtype=np.uint32)
        assert graph.insert(ids[:N:2], ids[1 : N // 2 + 1]).inserted == N // 2  # one of them is no plain array
        for name, src, dst in (("src", ids[: N + 1], ids[: N + 1] * 0), ("dst", ids[:N] * 0, ids[1 : N + 1])):
            with pytest.raises(UnknownVertex, match=rf"{name}\[{N if name == 'src' else N - 1}\] is {N}"):
                graph.insert(src, dst)
        assert graph.epoch == 1
    with DynamicGraph(device="cuda") as graph:
        graph.insert(ids[:N], ids[:N][::-1])
        assert graph.num_vertices == N
        graph.insert(ids[:1], ids[N : N + 1])
        assert graph.num_vertices == N + 1


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_ingest_pipeline_and_rebalance_on_one_gpu():
    with gpu_workers(1) as client:
        flow(client, 1)


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_batches_in_device_memory_of_the_same_process():
    import cupy

    with LocalCluster(n_workers=1, processes=False, **NO_DASHBOARD) as cluster, Client(cluster) as client:
        with DynamicGraph(client, N, device="cuda") as graph, graph.pipeline() as pipe:
            src, dst = (cupy.random.permutation(N).astype(np.uint32) for _ in range(2))
            assert pipe.update(EdgeBatch(src, dst)).result().inserted == N
            assert pipe.update(EdgeBatch(src, dst)).result().updated == N
        assert_clean(client)


@pytest.mark.multigpu(2)
@pytest.mark.timeout(600)
def test_ingest_pipeline_and_rebalance_on_two_gpus(clusters: Clusters) -> None:
    with clusters.lend(2, gpus=True) as client:
        flow(client, 2)


@pytest.mark.gpu
def test_memory_that_a_client_shares_with_the_worker_of_a_gpu(monkeypatch):
    """Columns of more than 1 MiB, which the GPU reads where they lie, and results that it writes there."""
    monkeypatch.setattr(local_memory, "WORTH", 1)
    rng, n, m = np.random.default_rng(7), 1_000_000, 600_000
    batches = [EdgeBatch(*rng.integers(0, n, (2, m), np.uint32), rng.random(m, np.float32)) for _ in range(4)]
    found = []
    with gpu_workers(1) as client:
        for place, device in ((client, "cuda"), (None, "cpu")):
            with DynamicGraph(place, n, device=device, weighted=True) as graph:
                with graph.pipeline() as pipe:
                    reports = [pipe.update(batch) for batch in batches]
                if place is not None:
                    (session,) = graph._directory.coordinator.sessions.all
                    assert session._memory.shared is not None
                told = [(one.result().inserted, one.result().updated) for one in reports]
                csr = graph.to_csr()
                found.append([told, csr.offsets, csr.dst, csr.weight, *(graph.bfs(0).to_numpy() for _ in range(2))])
        assert_clean(client)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.multigpu(2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [{}, {"weighted": True, "directed": False}, {"order": "degree"}], ids=str)
def test_two_gpus_read_one_copy_of_a_batch(clusters: Clusters, monkeypatch: pytest.MonkeyPatch, kind: dict) -> None:
    """The columns are overwritten as soon as a call has ended; the largest batch is dealt."""
    monkeypatch.setattr(local_memory, "WORTH", 1)
    rng, n = np.random.default_rng(11), 100_000
    sizes = [100_000, 100_000, *[150_000, 20_000, 1_025, 9_000, 1] * 3, 600_000]
    found = []
    with clusters.lend(2, gpus=True) as client:
        batches = [
            EdgeBatch(*rng.integers(0, n, (2, m), np.uint32), rng.random(m, np.float32) if "weighted" in kind else None)
            for m in sizes
        ]
        for place, device in ((client, "cuda"), (None, "cpu")):
            with DynamicGraph(place, n, device=device, **kind) as graph:
                told = [(r.inserted, r.updated) for r in map(graph.update, batches)]
                if place is not None:
                    assert graph._directory.coordinator.sessions.common is not None
                csr = graph.to_csr()
                found.append([told, csr.offsets, csr.dst, *([csr.weight] if "weighted" in kind else [])])
        assert_clean(client)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
