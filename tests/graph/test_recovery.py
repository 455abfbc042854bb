"""With ``recover="auto"`` a worker is lost during every kind of call, and the program goes on as if it had not been."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import cluster_processes
import numpy as np
import pytest
from dask.distributed import Client
from faults import before, cut, hit, rest
from graph_clusters import assert_clean, processes
from graph_model import GraphModel, random_batch
from patience import patience
from plain_graph import fresh_rng
from promise_records import note
from test_store import assert_graph
from test_store_kills import _kill, _part

from mgraph import DynamicGraph, EdgeBatch, GraphClosed, InvalidOption, StoreError, UpdateReport, WorkerLost
from mgraph.client.calls.batch_group import SMALL
from mgraph.client.creation import restoring

N = 60
LIMIT = 20.0  #: seconds in which a call that loses a worker ends, on a machine that does other things, too


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with processes(2) as client:
        yield client


@contextmanager
def in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < patience(LIMIT)


class Both:
    """A graph that comes back, and its model, changed alike. Each batch is half deletions, so that counts tell."""

    def __init__(self, client: Client | None, path: Path, rng: np.random.Generator, **options: object) -> None:
        self.rng, self.model = rng, GraphModel(N, weighted=True)
        self.graph = DynamicGraph(client, N, weighted=True, store=path, recover="auto", **options)
        self.update()

    def batches(self, n: int, edges: int = 200) -> tuple[list[EdgeBatch], list[tuple[int, ...]]]:
        """Batches, and what each is to count."""
        made = [random_batch(self.rng, self.model.n_vertices, edges, True, 0.5) for _ in range(n)]
        return made, [self.model.update(batch) for batch in made]

    def update(self, edges: int = 200) -> None:
        (batch,), (counts,) = self.batches(1, edges)
        assert counted(self.graph.update(batch)) == counts

    def large(self) -> None:
        """Each rank gets a part of the batch and sends rows to their owners; a smaller one comes whole to each."""
        self.update(4 * SMALL // 10)

    def pipeline(self, edges: int = 200) -> None:
        batches, counts = self.batches(6, edges)
        epoch = self.graph.epoch
        with self.graph.pipeline() as flight:
            pending = [flight.update(batch) for batch in batches]
            assert counted(pending[0].result(LIMIT)) == counts[0]
        assert [counted(one.result(0)) for one in pending] == counts
        assert [one.result(0).epoch for one in pending] == list(range(epoch + 1, epoch + 7))

    def large_pipeline(self) -> None:
        """Batches that are decided one by one: small ones may be decided together."""
        self.pipeline(4 * SMALL // 10)

    def ingest(self) -> None:
        batches, counts = self.batches(5)
        reports = self.graph.ingest(lambda rank, size, step: _part(batches, rank, size, step))
        assert [counted(report) for report in reports] == counts

    def delete(self) -> None:
        ids = self.rng.integers(0, N, 5)
        gone = len(self.model.edges)
        self.model.delete_vertices(ids.tolist())
        assert self.graph.delete_vertices(ids).deleted == gone - len(self.model.edges)

    def add(self) -> None:
        first = self.model.n_vertices
        self.model.n_vertices += 3
        assert self.graph.add_vertices(3) == range(first, first + 3)

    def search(self) -> None:
        assert len(self.graph.bfs(0).to_numpy()) == self.model.n_vertices

    def gather(self) -> None:
        """A result that is lost between its run and its read is computed again."""
        ranks, whole = self.graph.pagerank(), self.graph.modularity(np.arange(self.model.n_vertices) % 3)
        values = ranks.to_numpy()
        assert abs(values.sum() - 1) < 1e-6
        assert np.allclose(ranks[[3, 5]], values[[3, 5]])
        assert np.isclose(dict(ranks.top(self.model.n_vertices))[7], values[7])
        assert np.isclose(whole, self.graph.modularity(np.arange(self.model.n_vertices) % 3))

    def move(self) -> None:
        self.graph.rebalance()

    def read(self) -> None:
        assert self.graph.degrees().sum() == len(self.model.edges)
        assert_graph(self.graph, self.model)

    def snapshot(self) -> None:
        assert self.graph.snapshot() == self.graph.epoch


def counted(report: UpdateReport) -> tuple[int, int, int, int]:
    return report.inserted, report.updated, report.deleted, report.missing


CALLS = [
    ("update", "sort", 0), ("large", "exchange", 0), ("update", "prepare", 0), ("update", "vote", 0),
    ("update", "commit", 0), ("pipeline", "commit", 0), ("large_pipeline", "commit", 2), ("large_pipeline", "sort", 3),
    ("ingest", "prepare", 3), ("ingest", "commit", 1), ("delete", "commit", 0), ("add", "commit vertices", 0),
    ("add", "prepare vertices", 0), ("search", "superstep", 0), ("gather", "gather", 0), ("gather", "gather", 1),
    ("gather", "gather", 2), ("move", "move", 0), ("move", "switch", 0),
]  # fmt: skip


def lose(client: Client, both: Both, calls: list[tuple[str, str, int]], act: Callable[..., object], *args: int) -> None:
    """Lose a worker in each of these calls, and check what the call returns, and the graph."""
    graph = both.graph
    for turn, (call, stage, at) in enumerate(calls):
        print(call, stage)
        before_it = len(graph.recoveries)
        if stage == "exchange" and len(graph.workers) == 1:  # the nanny took too long: nothing is exchanged
            continue
        client.run(before, stage, act, *args, at=at, workers=[graph.workers[turn % len(graph.workers)]])
        with in_time():
            getattr(both, call)()
        assert len(graph.recoveries) == before_it + 1, (call, stage)
        both.read()
        note("losses", workers_lost_in_a_stage_of_a_call=1)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("part", range(0, len(CALLS), 4))
def test_a_worker_is_killed_in_each_stage_of_each_kind_of_call(own_client, tmp_path, part):
    both = Both(own_client, tmp_path / "store", fresh_rng())
    with both.graph:
        lose(own_client, both, CALLS[part : part + 4], hit, signal.SIGKILL)
    assert_clean(own_client)


def test_a_session_is_cut_in_each_kind_of_call(client, tmp_path, caplog):
    both = Both(client, tmp_path / "store", fresh_rng())
    with both.graph as graph, caplog.at_level(logging.WARNING, "mgraph"):
        lose(client, both, CALLS[::8], cut)
        last = graph.recoveries[-1]
        assert last.workers == graph.workers
        assert last.acknowledged <= last.epoch <= graph.epoch
    assert "the graph is opened again from its store" in caplog.text
    assert f"at epoch {last.epoch}" in caplog.text
    assert_clean(client)


def test_reports_of_a_window_after_a_loss(client, tmp_path):
    with DynamicGraph(client, N, window=10, store=tmp_path / "store", recover="auto") as graph:
        graph.insert([0, 1, 2], [1, 2, 3], time=[0, 1, 9])
        client.run(before, "commit", cut, workers=[graph.workers[0]])
        report = graph.insert([4, 5, 3], [5, 6, 4], time=[11, 0, 10])  # two leave, and one comes too late
        assert (*counted(report), report.late, report.expired) == (2, 0, 0, 0, 1, 2)
        client.run(before, "commit", cut, workers=[graph.workers[0]])
        report = graph.expire(10)
        assert (*counted(report), report.late, report.expired) == (0, 0, 0, 0, 0, 1)
        client.run(before, "commit", cut, at=1, workers=[graph.workers[0]])
        steps = [EdgeBatch([6], [7], time=[12]), EdgeBatch([7], [8], time=[21]), EdgeBatch([8], [9], time=[2])]
        reports = graph.ingest(lambda rank, size, step: steps[step] if rank == 0 and step < len(steps) else None)
        assert [(report.inserted, report.late, report.expired) for report in reports] == [
            (1, 0, 0), (1, 0, 2), (0, 1, 0)
        ]  # fmt: skip
        assert (len(graph.recoveries), graph.num_edges) == (3, 2)
    assert_clean(client)


@pytest.mark.slow
def test_a_session_is_cut_in_the_other_stages(client, tmp_path):
    both = Both(client, tmp_path / "store", fresh_rng())
    with both.graph:
        lose(client, both, [*CALLS[1::2], *CALLS[2::4], *CALLS[4::8]], cut)
    assert_clean(client)


@pytest.mark.slow
def test_the_scheduler_is_killed_too(tmp_path):
    with cluster_processes.processes(tmp_path) as cluster:
        graph = DynamicGraph(cluster.client, N, store=tmp_path / "store", recover="auto")
        graph.insert([1], [2])
        for pid in (cluster.scheduler.pid, *cluster.workers.values()):
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises((WorkerLost, GraphClosed)):
            graph.insert([2], [3])
        assert time.monotonic() - began < patience(80)
        graph.close()
    with DynamicGraph.open(None, tmp_path / "store") as graph:
        assert 1 <= graph.epoch <= 2


@pytest.mark.slow
def test_a_worker_is_stopped(own_client, tmp_path, caplog):
    """It is restarted by its nanny, since it holds the store's lock."""
    both = Both(own_client, tmp_path / "store", fresh_rng(), patience=2)
    with both.graph as graph, caplog.at_level(logging.WARNING, "mgraph"):
        lose(own_client, both, [CALLS[4]], hit, signal.SIGSTOP)
        assert len(graph.workers) == 2
    assert "are restarted by their nannies" in caplog.text
    assert_clean(own_client)


@pytest.mark.parametrize("calls", [("snapshot", "ingest"), pytest.param(("read", "pipeline"), marks=pytest.mark.slow)])
def test_a_session_is_cut_between_calls_and_while_a_snapshot_is_written(client, tmp_path, calls):
    both = Both(client, tmp_path / "store", fresh_rng(), order="degree")
    with both.graph as graph:
        before_it = graph.pagerank()
        for call in calls:
            client.run(cut_now, workers=[graph.workers[-1]])
            with in_time():
                getattr(both, call)()
            both.read()
        assert len(graph.recoveries) == 2
        with pytest.raises(GraphClosed, match="was lost with a worker, and the graph is at epoch .*: run it again"):
            before_it.to_numpy()
        client.run(cut_now)
        assert graph.num_vertices == N
        assert graph.fingerprint() == graph.fingerprint()
    with pytest.raises(GraphClosed, match="is closed"):
        graph.insert([1], [2])
    assert_clean(client)


def test_a_maintained_result_has_the_changes_after_each_loss(client, tmp_path):
    """The workers count changes anew, and may come to the count of the last read."""
    with DynamicGraph(client, 8, directed=False, store=tmp_path / "store", recover="auto") as graph:
        live = graph.maintain("connected_components")
        for i in range(4):
            client.run(cut_now, workers=[graph.workers[-1]])
            graph.insert([i], [i + 1])
            assert (live.result().components, live.epoch) == (7 - i, graph.epoch)
            assert live.result().to_numpy().tolist() == [0] * (i + 2) + list(range(i + 2, 8))
            assert live.report.how == "unchanged"
        assert len(graph.recoveries) == 4
    assert_clean(client)


def test_names_of_communities_do_not_come_back(client, tmp_path):
    """After a loss they pass on if a rank could save them, and are new ones with a new history if not."""
    options = {"directed": False, "store": tmp_path / "store", "recover": "auto"}
    with DynamicGraph(client, 8, **options) as graph:
        graph.insert([0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3])
        live = graph.maintain("leiden")
        first, before = live.epoch, live.names().to_numpy()
        client.run(cut_now, workers=[graph.workers[-1]])
        graph.insert([6], [7])
        after = live.names().to_numpy()
        assert len(graph.recoveries) == 1
        for members in ([0, 1, 2], [3, 4, 5], [6, 7]):
            (name,) = set(after[members])
            assert name in before[members] or name > before.max()
        if after.min() > before.max():
            with pytest.raises(InvalidOption, match=f"^since is {first}; .* begins at epoch {live.epoch}"):
                live.changes(first)
        else:
            assert live.changes(first).communities.num_rows
    assert_clean(client)


def cut_now() -> None:
    with suppress(ConnectionError):
        cut()


@pytest.mark.slow
def test_all_workers_are_killed_again_and_again(own_client, tmp_path):
    rng = fresh_rng()
    client = own_client
    both = Both(client, tmp_path / "store", rng, sync="background", snapshot_bytes=20_000)
    with both.graph as graph:
        for _ in range(2):
            pids = list(client.run(os.getpid, workers=list(graph.workers)).values())
            killer = threading.Timer(float(rng.random() * 0.3), lambda pids=pids: [_kill(pid) for pid in pids])
            killer.start()
            with in_time():
                while killer.is_alive() or not graph.recoveries:
                    getattr(both, str(rng.choice(["update", "pipeline", "ingest"])))()
            both.read()
    assert_clean(client)


def test_threads_share_a_recovery(client, tmp_path):
    with DynamicGraph(client, N, store=tmp_path / "store", recover="auto") as graph:
        graph.insert([0], [1])
        errors: list[BaseException] = []

        def insert(thread: int) -> None:
            try:
                for i in range(10):
                    graph.insert([thread], [i])
                    assert graph.has_edges([thread], [i])[0]
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=insert, args=(10 + thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        client.run(cut_now, workers=[graph.workers[0]])
        for thread in threads:
            thread.join(LIMIT)
        assert errors == []
        assert len(graph.recoveries) == 1
        assert (graph.num_edges, graph.epoch) == (41, 41)


@pytest.mark.slow
def test_a_worker_that_does_not_stop_is_named(own_client, tmp_path, monkeypatch):
    """Its session has ended, and its thread works on: the store is in use until that ends."""
    monkeypatch.setattr(restoring, "WORKERS_SECONDS", 2.0)
    path, began = tmp_path / "store", time.monotonic()
    with DynamicGraph(own_client, N, store=path, recover="auto") as graph:
        graph.insert([0], [1])
        own_client.run(before, "prepare", rest, 40, None, workers=[graph.workers[1]])
        own_client.run(before, "prepare", cut, workers=[graph.workers[0]])
        in_use = f"is in use by the worker at {graph.workers[1]}, process"
        with in_time(), pytest.raises(WorkerLost, match=f"could not be opened again: .*{in_use}"):
            graph.insert([1], [2])
    with in_time(), pytest.raises(StoreError, match=in_use):
        DynamicGraph.open(own_client, path)
    time.sleep(max(0, began + 45 - time.monotonic()))
    with DynamicGraph.open(own_client, path) as graph:
        assert (graph.epoch, graph.num_edges) == (1, 1)
    assert_clean(own_client)


def test_it_gives_up_after_max_recoveries_in_a_row(client, tmp_path):
    with DynamicGraph(client, N, store=tmp_path / "store", recover="auto", max_recoveries=1) as graph:
        graph.insert([0], [1])
        with in_time(), pytest.raises(WorkerLost, match="was opened again 1 times in a row: open the store"):
            graph.ingest(lambda rank, size, step: cut())
        with pytest.raises(WorkerLost, match="in a row"):
            graph.degrees()
    with DynamicGraph.open(client, tmp_path / "store", recover="auto") as graph:
        assert (graph.epoch, graph.num_edges) == (1, 1)


def test_what_recovery_needs(client, tmp_path):
    with pytest.raises(InvalidOption, match="there is no store"):
        DynamicGraph(client, N, recover="auto")
    with pytest.raises(InvalidOption, match="recover is 'always'"):
        DynamicGraph(client, N, store=tmp_path / "store", recover="always")
    with pytest.raises(InvalidOption, match="max_recoveries is 0"):
        DynamicGraph(client, N, store=tmp_path / "store", recover="auto", max_recoveries=0)
    assert not (tmp_path / "store").exists()
