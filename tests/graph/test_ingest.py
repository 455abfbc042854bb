"""Batches made on the workers, and batches in flight, on real worker processes."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from graph_clusters import HERE, addresses, assert_clean, check_graph, on
from graph_model import GraphModel, random_batch
from patience import patience
from plain_graph import fresh_rng

from mgraph import (
    DynamicGraph,
    EdgeBatch,
    GraphClosed,
    InvalidBatch,
    InvalidOption,
    MgraphError,
    ReadError,
    UnknownVertex,
)
from mgraph.sources.rmat import Rmat

N = 50


def columns(batch: EdgeBatch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name) for name in ("src", "dst", "weight", "op") if getattr(batch, name) is not None}


def slices(batch: EdgeBatch, parts: int) -> list[EdgeBatch]:
    n = len(batch)
    return [batch[n * i // parts : n * (i + 1) // parts] for i in range(parts)]


def apply_steps(graph: DynamicGraph, model: GraphModel, reports: list, parts: list[EdgeBatch]) -> None:
    """The reports are the model's, for steps of one part a worker."""
    size, first = len(graph.workers), graph.epoch - len(reports) + 1
    steps = [parts[at : at + size] for at in range(0, len(parts), size)]
    assert [report.epoch for report in reports] == list(range(first, first + len(steps)))
    for report, step in zip(reports, steps, strict=True):
        whole = {name: np.concatenate([getattr(part, name) for part in step]) for name in columns(step[0])}
        counts = model.update(EdgeBatch(**whole))
        assert (report.inserted, report.updated, report.deleted, report.missing) == counts
        assert report.seconds > 0


KINDS = [{}, {"directed": False, "weighted": True}, {"reverse": True}]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_files_and_futures_against_the_model(client3, tmp_path, size, kind):
    rng = fresh_rng()
    workers = addresses(client3)[:size]
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    with DynamicGraph(client3, N, workers=workers, order=rng.permutation(N), **kind) as graph:
        parts = slices(random_batch(rng, N, 500, model.weighted), 5)
        for i, part in enumerate(parts):
            np.savez(tmp_path / f"{i}.npz", **columns(part))
        apply_steps(graph, model, graph.ingest([tmp_path / f"{i}.npz" for i in range(5)]), parts)
        parts = slices(random_batch(rng, N, 500, model.weighted), 4)
        apply_steps(graph, model, graph.ingest(client3.scatter(parts, hash=False)), parts)
        check_graph(graph, model, rng)
    assert_clean(client3)


def test_data_frames_and_dask_arrays(client):
    pandas, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    import dask.array as da

    rng = fresh_rng()
    model = GraphModel(N, weighted=True)
    with DynamicGraph(client, N, weighted=True) as graph:
        batch = random_batch(rng, N, 400, True)
        frame = dd.from_pandas(pandas.DataFrame({**columns(batch), "other": "x"}), npartitions=3, sort=False)
        parts = [
            EdgeBatch(*(p[c].to_numpy() for c in columns(batch)))
            for p in (frame.get_partition(i).compute() for i in range(3))
        ]
        with pytest.raises(InvalidBatch, match="the data frame has no column 'target'; its columns are 'src', 'dst'"):
            graph.ingest(frame, target="target")
        assert graph.epoch == 0
        apply_steps(graph, model, graph.ingest(frame), parts)
        batch = random_batch(rng, N, 400, True)
        arrays = [da.from_array(column, chunks=100) for column in columns(batch).values()]
        arrays[1] = arrays[1].rechunk(70)
        apply_steps(graph, model, graph.ingest(tuple(arrays)), slices(batch, 4))
        batch = random_batch(rng, N, 90, False, 0)
        source = {name: da.from_array(column, chunks=30) for name, column in columns(batch).items()}
        named = {"from": source["src"], "to": source["dst"], "Weight": source["src"]}
        with pytest.warns(UserWarning, match="the mapping has no column 'weight'"):
            assert len(graph.ingest(named, source="from", target="to")) == 2
        model.update(EdgeBatch(batch.src, batch.dst))
        check_graph(graph, model, rng)


def test_columns_whose_lengths_dask_does_not_know(client):
    pandas, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    import dask.array as da

    frame = dd.from_pandas(pandas.DataFrame({"src": range(20), "dst": range(20, 40)}), npartitions=3)
    array = da.arange(40, chunks=10)
    few = array[array < 20]
    with DynamicGraph(client, N) as graph:
        for source, known in (
            ((frame.src, frame.dst), 0),
            ({"dst": frame.dst, "src": frame.src}, 20),
            ((frame.src.values, frame.dst.values), 20),
            ((frame.src, frame.dst.values), 20),
            ((few, few), 0),
        ):
            reports = graph.ingest(source)
            assert sum(report.updated for report in reports) == known
        assert graph.num_edges == 40
        for source, message in [
            ((few, da.arange(20, chunks=20)), "dst has 1 partitions and src 4"),
            ((frame.src, frame.dst.repartition(npartitions=1)), "dst has 1 partitions and src 3"),
            ((frame.src, [1, 2]), "dst is list"),
            ((da.arange(4), da.arange(5)), "dst has 5 entries and src 4"),
        ]:
            with pytest.raises(InvalidBatch, match=message):
                graph.ingest(source)


def test_one_part_alone(client):
    delayed = pytest.importorskip("dask").delayed
    with DynamicGraph(client, N) as graph:
        assert len(graph.ingest(delayed(lambda: ([1], [2]))())) == 1
        assert len(graph.ingest(client.submit(lambda: ([3], [4])))) == 1
        assert graph.has_edges([1, 3], [2, 4]).all()


@pytest.mark.parametrize("end", [StopIteration, SystemExit, KeyboardInterrupt])
def test_a_function_that_raises_what_ends_a_loop_or_a_process(place, end):
    def source(rank, size, step):
        if step == 2 and rank == size - 1:
            raise end("of this test")
        return [step], [rank]

    with DynamicGraph(place, N) as graph:
        size = len(graph.workers)
        with pytest.raises(
            MgraphError, match=f"{end.__name__}: of this test.*ingest step 2, epoch 3, rank {size - 1}"
        ) as raised:
            graph.ingest(source)
        assert type(raised.value) is MgraphError
        assert (graph.epoch, graph.num_edges) == (2, 2 * size)
        assert graph.insert([40], [41]).epoch == 3


def test_functions_on_each_worker(client):
    def ring(rank, size, step):
        return None if step == 3 else ([step], [10 * rank + step])

    with DynamicGraph(client, 20) as graph:
        reports = graph.ingest(ring)
        assert [(r.inserted, r.epoch) for r in reports] == [(2, 1), (2, 2), (2, 3)]
        assert graph.neighbors([0, 1, 2]).dst.tolist() == [0, 10, 1, 11, 2, 12]
        assert [r.updated for r in graph.ingest(ring, steps=2)] == [2, 2]
        assert graph.ingest(ring, steps=0) == []
        assert graph.epoch == 5


@pytest.mark.parametrize("directed", [True, False])
def test_a_generator_gives_the_same_graph_on_any_number_of_workers(client, directed):
    found = []
    for size in (HERE, 1, 2):
        with DynamicGraph(n_vertices=1 << 8, **on(client, size), directed=directed) as graph:
            reports = graph.ingest(Rmat(8, 2000 // max(size, 1)), steps=3)
            assert sum(report.inserted for report in reports) == graph.num_edges
            found.append((graph.to_csr(), graph.bfs(1).to_numpy()))
    for rows, distances in found[1:]:
        np.testing.assert_array_equal(found[0][0].offsets, rows.offsets)
        np.testing.assert_array_equal(found[0][0].dst, rows.dst)
        np.testing.assert_array_equal(found[0][1], distances)


def fails_late(rank, size, step):
    if rank == 1 and step == 2:
        raise ZeroDivisionError("of this test")
    return [step], [rank]


def test_bad_sources_are_refused_before_anything_changed(client, tmp_path):
    dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    with DynamicGraph(client, N) as graph:
        for source, error in [
            (3, InvalidOption),
            ([], InvalidOption),
            (client.submit(lambda: 5), InvalidBatch),
            (EdgeBatch([0], [1]), InvalidOption),
            ([EdgeBatch([0], [1])], InvalidOption),
            (["edges.txt"], InvalidOption),
            ((da.zeros(4, dtype=int), da.zeros(5, dtype=int)), InvalidBatch),
            ((da.zeros((4, 2), dtype=int), da.zeros((4, 2), dtype=int)), InvalidBatch),
            ({"dst": da.zeros(4, dtype=int)}, InvalidBatch),
            ((da.zeros(4), da.full(4, 0.5)), InvalidBatch),  # found by a worker
            ([client.submit(lambda: 5)], InvalidBatch),
            ([client.submit(lambda: 1 / 0)], ZeroDivisionError),
        ]:
            with pytest.raises(error):
                graph.ingest(source)
        for source in (["a.npz"], dask.delayed(lambda: ([0], [1]))()):
            with pytest.raises(InvalidOption, match="steps"):
                graph.ingest(source, steps=3)
        with (tmp_path / "one.npz").open("wb") as file:
            np.save(file, np.arange(3))
        with pytest.raises(ReadError, match=r"one\.npz: the file has one array"):
            graph.ingest([tmp_path / "one.npz"])
        with pytest.raises(ReadError, match=r"no\.npz.*ingest step 0, epoch 1, rank 0"):
            graph.ingest([tmp_path / "no.npz"])
        assert (graph.epoch, graph.num_edges) == (0, 0)
        with pytest.raises(ZeroDivisionError) as raised:
            graph.ingest(fails_late)
        assert any("ingest step 2, epoch 3, rank 1" in note for note in raised.value.__notes__)
        assert (graph.epoch, graph.num_edges) == (2, 4)
        with pytest.raises(UnknownVertex, match=f"dst\\[1\\] is {N}.*epoch 3"):
            graph.ingest(client.scatter([([0, 1], [1, N])]))
        assert graph.insert([40], [41]).epoch == 3
    with pytest.raises(GraphClosed):
        graph.ingest(fails_late)
    assert_clean(client)


# ---- batches of this process in flight -------------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [1, 1 << 28])
def test_a_pipeline_against_the_model(place, max_bytes):
    rng = fresh_rng()
    model = GraphModel(N, directed=False, weighted=True)
    with DynamicGraph(place, N, directed=False, weighted=True) as graph:
        batches = [random_batch(rng, N, int(rng.integers(0, 200)), True) for _ in range(15)]
        with graph.pipeline(max_bytes) as pipe:
            pending = [pipe.update(batch) for batch in batches]
        for epoch, (batch, p) in enumerate(zip(batches, pending, strict=True), 1):
            report = p.result()
            assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(batch)
            assert report.epoch == epoch
        check_graph(graph, model, rng)


def test_many_small_batches_in_a_pipeline_and_reads_between_them_against_the_model(place):
    rng = fresh_rng()
    model = GraphModel(N, directed=True, weighted=True)
    with DynamicGraph(place, N, weighted=True) as graph:
        sent = []
        with graph.pipeline() as pipe:
            for at in range(300):
                n = 30_000 if at == 150 else int(rng.integers(0, 30))
                batch = random_batch(rng, N, n, weighted=bool(rng.random() < 0.8), deletes=rng.choice([0, 0.4]))
                sent.append((pipe.update(batch), model.update(batch)))
                if at % 97 == 0:
                    assert graph.degrees().sum() == len(model.edges)
        for epoch, (pending, counts) in enumerate(sent, 1):
            report = pending.result()
            assert (report.inserted, report.updated, report.deleted, report.missing) == counts
            assert report.epoch == epoch
        check_graph(graph, model, rng)


def refuse(epoch: int) -> None:
    """The worker refuses this epoch before it has exchanged anything, and votes against groups with it."""
    from mgraph.worker.calls import changes
    from mgraph.worker.commit.change import GroupChange

    def update(rank, at, **share):
        if at == epoch and rank.number == 1:
            raise MgraphError("this one is refused")
        return changes.applied(rank, at, **share)

    def prepare(group):
        group.prepare_all()
        if 0 < epoch - group.shard.epoch <= group.epochs and group.shard.rank == 1:
            raise MgraphError("a group is refused")

    changes.applied, changes.update = getattr(changes, "applied", changes.update), update
    GroupChange.prepare_all = getattr(GroupChange, "prepare_all", GroupChange.prepare)
    GroupChange.prepare = prepare


def accept() -> None:
    from mgraph.worker.calls import changes
    from mgraph.worker.commit.change import GroupChange

    changes.update, GroupChange.prepare = changes.applied, GroupChange.prepare_all


@pytest.mark.parametrize("stored", [False, True])
def test_a_small_batch_that_one_rank_refuses_is_the_first_that_is_not_applied(client, stored, tmp_path):
    rng = fresh_rng()
    batches = [random_batch(rng, N, int(rng.integers(1, 30)), False) for _ in range(120)]
    refused = int(rng.integers(1, 100))
    model = GraphModel(N)
    client.run(refuse, refused)
    try:
        with DynamicGraph(client, N, store=tmp_path if stored else None) as graph:
            pending = []
            with (
                pytest.raises(MgraphError, match=f"refused .the batch of epoch {refused} in"),
                graph.pipeline() as pipe,
            ):
                pending.extend(pipe.update(batch) for batch in batches)
            for epoch, (batch, p) in enumerate(zip(batches[: refused - 1], pending, strict=False), 1):
                report = p.result()
                assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(batch)
                assert report.epoch == epoch
            assert all(isinstance(p.exception(), MgraphError) for p in pending[refused - 1 :])
            client.run(accept)
            assert graph.epoch == refused - 1
            check_graph(graph, model, rng)
            with graph.pipeline() as pipe:
                pending = [pipe.update(batch) for batch in batches[refused - 1 :]]
            for batch, p in zip(batches[refused - 1 :], pending, strict=True):
                assert p.result().inserted == model.update(batch)[0]
            check_graph(graph, model, rng)
        if stored:
            with DynamicGraph.open(client, tmp_path) as graph:
                assert graph.epoch == len(batches)
                check_graph(graph, model, rng)
    finally:
        client.run(accept)
    assert_clean(client)


def test_a_pipeline_checks_each_batch_before_it_is_sent(place):
    with DynamicGraph(place, N) as graph:
        with pytest.raises(UnknownVertex), graph.pipeline() as pipe:
            pipe.update(EdgeBatch([0], [1]))
            pipe.update(EdgeBatch([0], [N]))
        assert graph.num_edges == 1
        with pytest.raises(InvalidOption):
            graph.pipeline(max_bytes=0)
        with graph.pipeline() as pipe, pytest.raises(TypeError):
            pipe.update(([0], [1]))


def test_deletes_by_one_number(place):
    with DynamicGraph(place, N, directed=False) as graph:
        graph.insert([0, 1, 2], [1, 2, 3])
        assert graph.update(EdgeBatch([1, 3], [0, 0], op=-1)).deleted == 1


# ---- what Dask shows -------------------------------------------------------------------------------------------------


def metrics(client) -> list[dict]:
    return [worker["metrics"] for worker in client.sync(client.scheduler.identity, n_workers=-1)["workers"].values()]


def wait_for(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + patience(seconds)
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_the_scheduler_knows_edges_bytes_epoch_and_batch_rate_of_each_worker(client):
    with DynamicGraph(client, 1000) as graph:
        graph.ingest(Rmat(9, 1000), steps=3)

        def known() -> bool:
            graph.insert([], [])
            found = [m.get("mgraph", {}) for m in metrics(client)]
            return sum(m.get("edges", 0) for m in found) == graph.num_edges and all(m["batch_rate"] > 0 for m in found)

        assert wait_for(known)
        for m in metrics(client):
            assert set(m["mgraph"]) == {"graphs", "edges", "bytes", "epoch", "batch_rate", "shards"}
            assert m["mgraph"]["graphs"] == 1
            assert m["mgraph"]["bytes"] > 0
            assert m["mgraph"]["epoch"] >= 3
            assert all(
                isinstance(m[f"mgraph_{name}"], int | float) for name in ("edges", "bytes", "epoch", "batch_rate")
            )
    assert wait_for(lambda: all(m["mgraph"]["graphs"] == 0 == m["mgraph_edges"] for m in metrics(client)))


def test_workers_process_ids_differ(client):
    """The tests above mean it: parts are read in the workers, not here."""
    with DynamicGraph(client, 1 << 23) as graph:
        graph.ingest(lambda rank, size, step: None if step else ([os.getpid()], [rank]))
        assert graph.has_edges(list(client.run(os.getpid).values()), [0, 1]).any()
        assert not graph.has_edges([os.getpid()], [0]).any()
