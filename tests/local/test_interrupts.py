"""Ctrl-C, other threads, forks and failures: what they leave of a graph in this process."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import pytest
from graph_clusters import add_algorithm, assert_clean
from interrupts import after, ctrl_c, in_child, when
from patience import patience

from mgraph import DynamicGraph, GraphClosed, GraphLost, InvalidOption, MgraphError
from mgraph.algorithms import ALGORITHMS
from mgraph.keys import KeyTable
from mgraph.structures.gpma_plus import GpmaPlus
from mgraph.worker.commit import ballot
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.commit.change import BatchChange

N = 50

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def graph():
    with DynamicGraph(n_vertices=N, device="cpu") as graph:  # a child process cannot use one on a GPU
        graph.insert(np.arange(20), np.arange(1, 21))
        yield graph
    assert_clean(None)


def check_whole(graph: DynamicGraph, epoch: int, edges: int) -> None:
    assert (graph.epoch, graph.num_edges) == (epoch, edges)
    assert graph.to_csr().offsets[-1] == edges
    assert graph.insert([45], [46]).inserted == 1
    assert graph.delete([45], [46]).epoch == epoch + 2


@contextmanager
def before(monkeypatch, owner: type, method: str, act: Callable[[], object]):
    """In here `act` is called before each call of a method."""
    real = getattr(owner, method)

    def acting(*args, **options):
        act()
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, acting)
        if owner in (BatchChange, Ballot) and method != "apply_directly":
            patch.setattr(ballot, "FEW", -1)  # small batches take the way of large ones
        yield


@contextmanager
def resting(monkeypatch, owner: type, method: str, call: Callable[[], object]):
    """In here another thread makes a call, and rests before a method of it until the event is set, or the end."""
    begun, goes_on = threading.Event(), threading.Event()

    def rest() -> None:
        if threading.current_thread() is thread:
            begun.set()
            goes_on.wait(patience(30))

    thread = threading.Thread(target=call)
    with before(monkeypatch, owner, method, rest):
        thread.start()
        try:
            assert begun.wait(patience(5))
            yield goes_on
        finally:
            goes_on.set()
            thread.join()


@pytest.mark.parametrize(
    ("owner", "method", "commits"),
    [
        (BatchChange, "prepare", False), (BatchChange, "commit", True), (Ballot, "_commit", True),
        (Ballot, "apply_directly", False), (GpmaPlus, "apply_few", True),
    ],
)  # fmt: skip
def test_ctrl_c_during_a_batch_leaves_a_whole_epoch(graph, monkeypatch, owner, method, commits):
    with before(monkeypatch, owner, method, ctrl_c), pytest.raises(KeyboardInterrupt) as raised:
        graph.insert(range(30), range(10, 40))
    what = "it is in the graph, epoch 2" if commits else "nothing was changed, epoch 1"
    assert raised.value.__notes__ == [f"graph {graph.id}: a batch of 30 edges was stopped; {what}"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    check_whole(graph, 1 + commits, 20 + 30 * commits)


def test_ctrl_c_during_a_build_leaves_no_graph(monkeypatch):
    with before(monkeypatch, BatchChange, "commit", ctrl_c), pytest.raises(KeyboardInterrupt) as raised:
        DynamicGraph.from_dlpack(np.array([-5, 7]), np.array([7, 2**40]))
    told = "from_dlpack was stopped; no graph was made. What it did last: inserting 2 edges"
    assert raised.value.__notes__ == [told]
    assert_clean(None)


def test_ctrl_c_while_vertices_are_added_and_moved(graph, monkeypatch):
    for call in (lambda: graph.add_vertices(5), graph.rebalance, graph.reorder):
        n, changes = graph.num_vertices, graph._directory.coordinator.status.changes
        with before(monkeypatch, Ballot, "_commit", ctrl_c), pytest.raises(KeyboardInterrupt):
            call()
        assert graph._directory.coordinator.status.changes == changes + 1
        assert graph.num_vertices == len(graph.degrees()) == N + 5 >= n
    check_whole(graph, 2, 20)


def test_ctrl_c_ends_a_long_algorithm(graph):
    begun = threading.Event()

    def endless(shard):
        while True:
            shard.exchange.barrier()
            begun.set()

    add_algorithm("endless", endless, ["value"], [])
    try:
        with when(begun.is_set, ctrl_c), pytest.raises(KeyboardInterrupt) as raised:
            graph.run("endless")
        assert "endless was stopped at epoch 1; it has no result" in raised.value.__notes__[-1]
    finally:
        del ALGORITHMS["endless"]
    check_whole(graph, 1, 20)


def test_ctrl_c_during_an_ingest_keeps_whole_epochs(graph):
    def source(rank, size, step):
        if step == 3:
            ctrl_c()
        return [step], [40]

    with pytest.raises(KeyboardInterrupt) as raised:
        graph.ingest(source)
    assert f"the ingest was stopped at epoch {graph.epoch}; its steps up to that" in raised.value.__notes__[-1]
    assert 1 <= graph.epoch <= 4
    check_whole(graph, graph.epoch, 20 + graph.epoch - 1)


def test_ctrl_c_in_a_pipeline(graph, monkeypatch):
    from mgraph import EdgeBatch

    with pytest.raises(KeyboardInterrupt), graph.pipeline() as pipe:
        first = pipe.update(EdgeBatch([0], [30]))
        with before(monkeypatch, BatchChange, "prepare", ctrl_c):
            pipe.update(EdgeBatch([0], [31])).result()
    assert first.result().epoch == 2
    check_whole(graph, 2, 21)


def test_a_handler_of_the_application_is_called_after_the_call(graph, monkeypatch):
    heard = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: heard.append(graph.epoch))
    try:
        with before(monkeypatch, BatchChange, "commit", ctrl_c):
            assert graph.insert([0], [30]).epoch == 2
        assert heard == [2]
        # The batch is not applied, so the call must not return.
        with before(monkeypatch, BatchChange, "prepare", ctrl_c), pytest.raises(KeyboardInterrupt):
            graph.insert([0], [31])
        assert heard == [2, 2]
    finally:
        signal.signal(signal.SIGINT, handler)
    check_whole(graph, 2, 21)


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_close_ends_a_call_of_another_thread(graph, monkeypatch):
    caught = []

    def insert() -> None:
        with pytest.raises(GraphClosed, match="closed while a call was running") as raised:
            graph.insert([0], [30])
        caught.append(raised.value)

    with (
        resting(monkeypatch, BatchChange, "prepare", insert) as goes_on,
        when(lambda: graph._directory.coordinator.status.closed, goes_on.set),
    ):
        graph.close()
    assert caught
    with pytest.raises(GraphClosed, match=f"graph {graph.id} is closed"):
        graph.degrees()


def test_a_source_that_calls_its_own_graph_is_refused(graph):
    def source(rank, size, step):
        return [graph.degrees([0])[0]], [1]

    with pytest.raises(MgraphError, match="inside another call of the same graph"):
        graph.ingest(source, steps=1)
    check_whole(graph, 1, 20)


def test_threads_wait_for_each_other_and_main_can_be_interrupted_meanwhile(graph, monkeypatch):
    with (
        pytest.raises(KeyboardInterrupt),
        resting(monkeypatch, BatchChange, "commit", lambda: graph.insert([0], [30])),
        after(0.1, ctrl_c),
    ):
        graph.degrees()
    check_whole(graph, 2, 21)


# ---- the process -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process")  # of forks with threads
def test_a_forked_child_has_a_copy_of_its_own(graph):
    ranks = graph.pagerank()

    def work() -> None:
        assert graph.insert([30], [31]).epoch == 2
        assert graph.bfs(0).to_numpy()[20] == 20
        assert abs(ranks.to_numpy().sum() - 1) < 1e-5
        graph.close()

    assert in_child(work) == 0
    check_whole(graph, 1, 20)


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.parametrize("sync", ["always", "background"])
def test_a_forked_child_leaves_the_store_to_its_parent(tmp_path, sync):
    graph = DynamicGraph(n_vertices=N, store=tmp_path / "store", sync=sync, device="cpu")
    graph.insert([1], [2])

    def work() -> None:
        with pytest.raises(InvalidOption, match="copy in a forked process"):
            graph.insert([3], [4])
        assert graph.num_edges == 1
        graph.close()

    assert in_child(work) == 0
    graph.insert([5], [6])
    ends, goes_on = os.pipe()
    if (child := os.fork()) == 0:  # lives on, and holds no lock
        os.close(goes_on)
        os.read(ends, 1)
        graph.close()
        os._exit(0)
    graph.insert([7], [8])
    graph.close()
    try:
        with DynamicGraph.open(None, tmp_path / "store", device="cpu") as again:
            assert (again.epoch, again.num_edges) == (3, 3)
    finally:
        os.close(ends)
        os.close(goes_on)
        os.waitpid(child, 0)
    with DynamicGraph.open(None, tmp_path / "store", device="cpu") as again:
        assert (again.epoch, again.num_edges) == (3, 3)


@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_forked_during_a_call_finds_its_graph_lost(graph, monkeypatch):
    def work() -> None:
        with pytest.raises(GraphLost, match="forked while a call was running"):
            graph.degrees()
        graph.close()

    with resting(monkeypatch, BatchChange, "commit", lambda: graph.insert([0], [30])):
        assert in_child(work) == 0
    check_whole(graph, 2, 21)


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.parametrize("at", ["find", "_append", "_enter"])
def test_a_child_forked_while_another_thread_numbers_keys(monkeypatch, at):
    """It has the table of keys without those of the other thread's batch."""

    def work() -> None:
        signal.alarm(20)
        assert graph.insert([7, 100], [8, 7]).inserted == 2
        assert graph.vertices().tolist() == [10, 20, 7, 100, 8]
        assert graph.has_edges([10, 7, 100], [20, 8, 7]).all()
        graph.close()

    with DynamicGraph(keys="int64", device="cpu") as graph:
        graph.insert([10], [20])
        with resting(monkeypatch, KeyTable, at, lambda: graph.insert([100, 200], [200, 300])):
            assert in_child(work) == 0
        assert graph.vertices().tolist() == [10, 20, 100, 200, 300]


@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_does_not_wait_for_locks_of_threads_that_it_does_not_have(graph):
    with graph.maintain("bfs", source=0) as live:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with live._lock, graph._directory._lock, graph._updates._registering:
                held.set()
                done.wait(patience(30))

        def work() -> None:
            signal.alarm(20)
            assert live.result().to_numpy()[20] == 20
            assert graph.maintain("bfs", eager=True, source=0).result().to_numpy()[20] == 20
            assert graph.add_vertices(1) == range(N, N + 1)
            graph.close()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        status = in_child(work)
        done.set()
        thread.join()
        assert status == 0


@pytest.mark.parametrize(("owner", "method", "few"), [(BatchChange, "commit", -1), (GpmaPlus, "_prepare_growth", 1024)])
def test_a_commit_that_fails_loses_the_graph(graph, monkeypatch, owner, method, few):
    def fail(*args) -> None:
        raise RuntimeError("of this test")

    graph.insert([0], [1])  # the next batch has the memory of this one
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, fail)
        patch.setattr(ballot, "FEW", few)
        with pytest.raises(RuntimeError, match="of this test"):
            graph.insert([0], [30])
    with pytest.raises(GraphLost, match="the commit failed: RuntimeError: of this test.*the last whole epoch is 2"):
        graph.degrees()


def test_a_graph_that_nobody_closed_is_freed():
    graph = DynamicGraph(n_vertices=N)
    graph.insert([1], [2])
    shard = weakref.ref(graph._directory.coordinator._session.calls.shard)
    result = graph.bfs(1)
    del graph
    gc.collect()
    assert result.to_numpy()[2] == 1  # a result keeps its graph
    del result
    gc.collect()
    assert shard() is None


@pytest.mark.parametrize("sync", ["always", "background"])
def test_the_store_of_a_graph_that_nobody_closed_can_be_opened(tmp_path, sync):
    gc.collect()
    for i in range(3):
        if i:
            graph = DynamicGraph.open(None, tmp_path / "store", sync=sync)
        else:
            graph = DynamicGraph(n_vertices=N, store=tmp_path / "store", sync=sync)
        graph.insert([1], [i])
        result = graph.bfs(1)
        del graph, result
        gc.collect()
    with DynamicGraph.open(None, tmp_path / "store") as graph:
        assert (graph.epoch, graph.num_edges) == (3, 3)
        mine = f"mgraph-{graph.id}"
        assert [t.name for t in threading.enumerate() if t.name.startswith("mgraph-") and mine not in t.name] == []
