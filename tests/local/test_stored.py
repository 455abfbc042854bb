"""A graph in this process with a store: the same log, and vertices that batches bring are in it."""

from __future__ import annotations

import errno
import signal
import time
from typing import Any

import numpy as np
import pytest
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, GraphLost, InvalidOption, StoreError
from mgraph.local import coordinator
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import Draft
from mgraph.log.segments import Segments
from mgraph.log.store import Store
from mgraph.worker.commit.change import BatchChange, GroupChange


def rows(graph: DynamicGraph) -> list[list[int]]:
    csr = graph.to_csr()
    return [csr.dst[a:b].tolist() for a, b in zip(csr.offsets[:-1], csr.offsets[1:], strict=True)]


@pytest.mark.parametrize("sync", [pytest.param("always", marks=pytest.mark.slow), "background"])
def test_everything_is_there_again(tmp_path, sync):
    rng, model, store = fresh_rng(), GraphModel(30, weighted=True), tmp_path / "store"
    with DynamicGraph(n_vertices=30, weighted=True, store=store, sync=sync) as graph:
        for _ in range(5):
            batch = random_batch(rng, 30, 60, True, 0.3)
            graph.update(batch)
            model.update(batch)
        graph.delete_vertices([3, 4])
        model.delete_vertices([3, 4])
        graph.add_vertices(2)
        model.n_vertices += 2
        epoch, ranks = graph.epoch, graph.pagerank().to_numpy()
        with pytest.raises(StoreError, match="in use"):
            DynamicGraph.open(None, store)
    for structure in ("csr", "slabgraph"):
        with DynamicGraph.open(None, store, structure=structure) as graph:
            assert (graph.epoch, graph.num_vertices, graph.num_edges) == (epoch, 32, len(model.edges))
            assert graph.exchange == "loopback"
            offsets, dst, weight = model.csr()
            csr = graph.to_csr()
            order = np.lexsort((csr.dst, np.repeat(np.arange(32), np.diff(csr.offsets))))  # slabgraph sorts no row
            np.testing.assert_array_equal(csr.offsets, offsets)
            np.testing.assert_array_equal(csr.dst[order], dst)
            np.testing.assert_array_equal(csr.weight[order], weight)
            np.testing.assert_allclose(graph.pagerank().to_numpy(), ranks, atol=1e-6)


def test_vertices_that_batches_bring_are_in_the_log(tmp_path):
    store = tmp_path / "store"
    with DynamicGraph(store=store) as graph:
        graph.insert([0, 5], [2, 1])
        assert graph.num_vertices == 6
        graph.insert([1], [9])
        graph.insert([3], [3])
        assert (graph.epoch, graph.num_vertices) == (3, 10)
        wanted = rows(graph)
        with graph.at(1) as before:
            assert (before.num_vertices, before.num_edges) == (6, 2)
    for _ in range(2):
        with DynamicGraph.open(None, store) as graph:
            assert rows(graph)[:10] == wanted
            n = graph.num_vertices
            graph.insert([n], [0])  # it goes on growing
            assert graph.num_vertices == n + 1
            wanted = rows(graph)[:10]


def test_saved_and_loaded(tmp_path):
    with DynamicGraph(n_vertices=4) as graph:
        graph.insert([0, 1], [1, 2])
        graph.save(tmp_path / "saved")
    with DynamicGraph.load(None, tmp_path / "saved") as graph:
        assert rows(graph) == [[1], [2], [], []]
        assert graph.store is None


def test_a_path_alone_is_for_a_graph_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with DynamicGraph(store=tmp_path / "store") as graph:
        graph.insert(["ada", "grace"], ["grace", "tony"])
        graph.delete(["ada"], ["grace"])
        graph.save(tmp_path / "saved")
        with pytest.raises(InvalidOption, match=r"open it with DynamicGraph\.open\('.*/store'\), on a cluster"):
            DynamicGraph(store=tmp_path / "store")
    with DynamicGraph.open("~/store") as graph, DynamicGraph.load(tmp_path / "saved") as copy:
        assert graph.insert(["ada"], ["tony"]).epoch == 3
        assert (copy.epoch, copy.num_edges, graph.num_edges) == (2, 1, 2)
    with DynamicGraph.open(store=str(tmp_path / "store"), epoch=1) as graph:
        assert graph.num_edges == 2
    for make in (DynamicGraph.open, DynamicGraph.load):
        with pytest.raises(InvalidOption, match="store is None; it must be the path of a folder"):
            make()
        with pytest.raises(InvalidOption, match=r"store is '\\ud800'; it must be the path of a folder"):
            make("\ud800")


@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_a_graph_of_this_process_comes_back_where_a_change_broke(tmp_path, monkeypatch, step):
    def breaks(self: BatchChange) -> None:
        raise ValueError("the device failed")

    with DynamicGraph(n_vertices=9, store=tmp_path / "store", recover="auto") as graph:
        graph.insert([1], [2])
        with monkeypatch.context() as patch, pytest.raises(ValueError, match="the device failed"):
            patch.setattr(BatchChange, step, breaks)
            graph.insert([2], [3])
        broke = step == "commit"  # after the vote: the store has it
        assert graph.has_edges([1, 2], [2, 3]).tolist() == [True, broke]
        assert (len(graph.recoveries), graph.epoch) == (broke, 1 + broke)
        with graph.pipeline() as flight:
            assert flight.update(EdgeBatch([4], [5])).result().epoch == 2 + broke


def test_a_change_that_ctrl_c_has_stopped_and_that_cannot_be_refused_loses_the_graph(tmp_path, monkeypatch):
    """No read says that it is not there: the store has it."""
    prepare, append = BatchChange.prepare, Segments.append

    def interrupted(change: BatchChange) -> None:
        signal.raise_signal(signal.SIGINT)
        prepare(change)

    def fails(segments: Segments, record: Draft) -> None:
        if record.kind == "refused":
            raise OSError(errno.EIO, "Input/output error")
        append(segments, record)

    with DynamicGraph(n_vertices=9, store=tmp_path / "store") as graph:
        graph.insert([1], [2])
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as stopped:
            patch.setattr(BatchChange, "prepare", interrupted)
            patch.setattr(Segments, "append", fails)
            graph.insert([2], [3])
        assert not hasattr(stopped.value, "__notes__")
        with pytest.raises(GraphLost, match="epoch 2 was not made; whether the store has it"):
            graph.degrees()
    with DynamicGraph.open(tmp_path / "store") as graph:
        assert (graph.epoch, graph.has_edges([2], [3]).tolist()) == (2, [True])


def test_of_batches_whose_commit_broke_none_is_said_not_to_be_there(tmp_path, monkeypatch):
    def breaks(self: GroupChange) -> None:
        raise ValueError("the device failed")

    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    monkeypatch.setattr(coordinator.Coordinator, "_sweep", lambda self: None)
    with DynamicGraph(n_vertices=9, store=tmp_path / "store") as graph:
        with pytest.raises(ValueError, match="the device failed"), graph.pipeline() as flight:
            monkeypatch.setattr(GroupChange, "commit", breaks)
            pending = [flight.update(EdgeBatch([k], [k + 1])) for k in range(3)]
        for epoch, report in enumerate(pending, 1):
            error = report.exception()
            says = "\n".join([str(error), *getattr(error, "__notes__", ())])
            assert f"it is not known whether the batch of epoch {epoch} in a pipeline is committed" in says
    with DynamicGraph.open(tmp_path / "store") as graph:
        assert graph.epoch == 3


def test_what_a_reader_needs_is_dropped_meanwhile(tmp_path, monkeypatch):
    """The epochs that are left are read from the snapshot that took its place; another one is named as gone."""
    real = RecordColumns.fill
    with DynamicGraph(n_vertices=10, store=tmp_path / "store", retain=1) as graph:

        def fill(bodies: RecordColumns, *args: Any) -> None:
            monkeypatch.setattr(RecordColumns, "fill", real)
            graph.snapshot()
            real(bodies, *args)

        for epoch in (1, 2):
            graph.insert([epoch], [epoch + 1])
        monkeypatch.setattr(RecordColumns, "fill", fill)
        with graph.at(2) as then:
            assert rows(then) == rows(graph)
        graph.insert([5], [6])
        graph.insert([6], [7])
        monkeypatch.setattr(RecordColumns, "fill", fill)
        with pytest.raises(InvalidOption, match="has epochs from 4 on, and 3 was asked for"):
            graph.at(3)


def test_a_snapshot_and_a_copy_wait_for_the_snapshot_that_the_graph_takes_by_itself(tmp_path, monkeypatch):
    real = Store.describe

    def describe(store: Store, name: str, *content: Any) -> None:
        time.sleep(0.2)
        real(store, name, *content)

    with DynamicGraph(n_vertices=10, store=tmp_path / "store", snapshot_bytes=1) as graph:
        monkeypatch.setattr(Store, "describe", describe)
        graph.insert([1], [2])
        graph.save(tmp_path / "saved")
        graph.insert([2], [3])
        assert graph.snapshot() == 2
    with DynamicGraph.load(None, tmp_path / "saved") as graph:
        assert (graph.epoch, graph.num_edges) == (1, 1)


@pytest.mark.parametrize("given", [{"sync": "background"}, {"retain": 1}, {"disks": "local"}, {"snapshots": "a"}])
def test_options_of_a_store_need_one(given):
    with pytest.raises(InvalidOption, match=f"{next(iter(given))} is .* and there is no store"):
        DynamicGraph(n_vertices=9, **given)


def test_what_a_store_cannot_take_and_what_is_missing_is_named(tmp_path):
    with DynamicGraph(n_vertices=9, store=tmp_path / "store", device="cpu") as graph:
        for name, what in (("a\ud800", "which UTF-8 cannot have"), (501 * "ä", "1002 bytes; 1000 are the limit")):
            with pytest.raises(InvalidOption, match=what):
                graph.update(EdgeBatch([1], [2]), offset=(name, 1))
        assert graph.epoch == 0
    (tmp_path / "store" / "store.json").unlink()
    with pytest.raises(StoreError, match=r"store/store\.json is missing, and term-000001\.json is there"):
        DynamicGraph.open(None, tmp_path / "store")


def test_paths_that_cannot_be_a_store(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with DynamicGraph(n_vertices=9, device="cpu") as graph:
        for path, message in [
            (tmp_path / "file", "a file is where a folder is needed"),
            (tmp_path / ("x" * 300), "File name too long"),
        ]:
            with pytest.raises(StoreError, match=message):
                DynamicGraph(n_vertices=9, store=path)
            with pytest.raises(StoreError, match=message):
                graph.save(path)
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        for path, message in [("a\0b", "must be the path of a folder"), ("a", "the current folder was removed")]:
            for call in (graph.save, DynamicGraph.open, lambda path: DynamicGraph(n_vertices=9, store=path)):
                with pytest.raises(InvalidOption, match=message):
                    call(path)
