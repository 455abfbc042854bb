"""Threads of a graph in this process: calls that another thread overtakes, and reads of state during a call."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch, MgraphError, Operations
from mgraph.client.batches import mixed
from mgraph.client.batches.updates import Updates
from mgraph.client.results.maintained import Live
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.worker.calls import HANDLERS
from mgraph.worker.commit import ballot
from mgraph.worker.commit.change import BatchChange

pytestmark = pytest.mark.timeout(60)


def in_thread(*calls) -> None:
    thread = threading.Thread(target=lambda: [call() for call in calls])
    thread.start()
    thread.join()


@pytest.fixture
def overtaken(monkeypatch):
    """``overtaken(owner, name, *calls)``: another thread makes the calls once, right before `name` of `owner` ends."""

    def overtake(owner, name, *calls) -> list:
        left, real = [calls], getattr(owner, name)

        def method(*args, **kwargs):
            answer = real(*args, **kwargs)
            if left:
                in_thread(*left.pop())
            return answer

        monkeypatch.setattr(owner, name, method)
        return left

    return overtake


@pytest.mark.parametrize("first", ["bcd", "dcb"])  # keys in order, and not
@pytest.mark.parametrize("algorithm", ["connected_components", "strongly_connected_components", "label_propagation"])
def test_labels_by_keys_of_vertices_that_another_thread_adds(overtaken, first, algorithm):
    with DynamicGraph(keys="string", directed=False, device="cpu") as graph:
        graph.insert(list(first[:-1]), list(first[1:]))
        more = [f"a{i:04}" for i in range(3000)]
        left = overtaken(Numbering, "by_key", lambda: graph.insert(more, ["b"] * 3000))
        labels = graph.run(algorithm).to_series()
        assert not left
        assert labels.index.tolist() == [*first, *more]
        assert labels.to_dict() == graph.run(algorithm).to_series().to_dict()
        if algorithm != "label_propagation":
            assert set(labels) == {"a0000"}


def test_a_maintained_result_of_vertices_that_another_thread_adds(overtaken):
    with DynamicGraph(keys="int64", directed=False, device="cpu") as graph:
        graph.insert([50, 40], [40, 30])
        with graph.maintain("connected_components") as live:
            graph.insert([20], [30])
            left = overtaken(Numbering, "by_key", lambda: graph.insert(range(10), [50] * 10))
            assert set(live.result().to_series()) == {0}
            assert not left


def test_rows_name_vertices_that_another_thread_adds(overtaken):
    with DynamicGraph(n_vertices=10, order=np.arange(10)[::-1].copy(), device="cpu") as graph:
        graph.insert([0], [1])
        left = overtaken(mixed, "row_args", lambda: graph.add_vertices(5), lambda: graph.insert([0], [12]))
        answers = graph.execute(Operations(["insert", "neighbors"], [0, 0], [2, 0]))
        assert not left
        assert sorted(answers.neighbors.dst.tolist()) == [1, 2, 12]
        assert (answers.report.inserted, graph.epoch) == (1, 4)


def test_a_batch_does_not_count_on_vertices_of_a_batch_that_is_refused(monkeypatch):
    """Another thread's batch adds vertices while it is prepared, and removes them with its refusal."""
    growing, checked, real = threading.Event(), threading.Event(), (BatchChange.prepare, Updates._vertices_after)

    def refuse(self, *args):
        if threading.current_thread() is thread:
            growing.set()
            checked.wait()
            raise CapacityError("of this test")
        return real[0](self, *args)

    def after(self, *args):
        if threading.current_thread() is not thread:
            thread.start()
            growing.wait()
            n = real[1](self, *args)
            checked.set()
            return n
        return real[1](self, *args)

    def grow() -> None:
        with pytest.raises(CapacityError, match="of this test"):
            graph.insert([0], [1000])

    with DynamicGraph(keys=None, device="cpu") as graph:
        graph.insert([0], [1])
        monkeypatch.setattr(ballot, "FEW", -1)  # small batches take the way of large ones
        monkeypatch.setattr(BatchChange, "prepare", refuse)
        monkeypatch.setattr(Updates, "_vertices_after", after)
        thread = threading.Thread(target=grow)
        assert graph.insert([900], [800]).inserted == 1
        thread.join()
        assert (graph.num_vertices, graph.num_edges) == (901, 2)


KEYED = EdgeBatch(["a"], ["b"], keys="string")


@pytest.mark.parametrize(
    ("call", "first", "other", "why"),
    [
        ("update", KEYED, EdgeBatch([5], [1]), "has string keys and the graph has none"),
        ("update", EdgeBatch([5], [1]), KEYED, "has vertex ids and the graph has keys of the kind 'string'"),
        ("update", EdgeBatch([0], [1]), KEYED, "has vertex ids and the graph has keys of the kind 'string'"),
        ("execute", Operations(["insert"], [0], [1]), KEYED, "has vertex ids and the graph has keys of the kind 'str"),
        ("update", EdgeBatch([0], [1]), EdgeBatch([7], [5], keys="int64"), None),
    ],
)
def test_the_first_batch_of_another_thread_decides_about_keys(overtaken, call, first, other, why):
    with DynamicGraph(device="cpu") as graph:
        left = overtaken(Directory, "takes", lambda: graph.update(other))
        with nullcontext() if why is None else pytest.raises(InvalidBatch, match=why):
            getattr(graph, call)(first)
        assert not left
        assert graph.num_edges == 1 + (why is None)
        assert len(graph.vertices()) == graph.num_vertices


@pytest.mark.parametrize("call", ["update", "execute"])
def test_ids_in_a_pipeline_name_no_vertices_of_keys_that_another_thread_adds(overtaken, call):
    batch = Operations(["insert"], [0], [1]) if call == "execute" else EdgeBatch([0], [1])
    with DynamicGraph(device="cpu") as graph:
        left = overtaken(Directory, "takes", lambda: graph.update(KEYED))
        with pytest.raises(MgraphError), graph.pipeline() as pipe:
            getattr(pipe, call)(batch)
        assert not left
        assert (graph.num_edges, graph.vertices().tolist()) == (1, ["a", "b"])


def test_memory_is_counted_while_another_thread_makes_calls():
    """What a call adds while the bytes of a graph are summed may count or not."""

    class Growing:
        def __init__(self, add):
            self.add = add

        @property
        def nbytes(self) -> int:
            self.add()
            return 1

    with DynamicGraph(n_vertices=10, device="cpu") as graph:
        graph.insert([0], [1])
        live = graph.maintain("connected_components")
        graph.insert([1], [2])
        shard = graph._directory.coordinator._session.calls.shard
        before = graph.nbytes
        shard.results["one"] = Growing(lambda: shard.results.setdefault("two", Growing(int)))
        shard.maintained["one"] = Growing(lambda: shard.maintained.setdefault("two", Growing(int)))
        assert graph.nbytes == before + 2
        assert graph.balance().workers[0].nbytes > before + 2
        shard.results.clear()
        shard.maintained.clear()
        live.close()


def test_a_result_that_another_thread_maintains_while_eager_ones_are_updated(monkeypatch):
    closed, more = Live.closed, []

    def also(self) -> bool:
        if not more:
            more.append(None)
            in_thread(lambda: more.append(graph.maintain("pagerank", eager=True)))
        return closed.fget(self)

    with DynamicGraph(n_vertices=10, device="cpu") as graph:
        lives = [graph.maintain("connected_components", eager=True) for _ in range(3)]
        with monkeypatch.context() as patch:
            patch.setattr(Live, "closed", property(also))
            graph.insert([0], [1])
        graph.insert([1], [2])
        assert [live.epoch for live in (*lives, more[1])] == [2] * 4


# ---- close -----------------------------------------------------------------------------------------------------------


def closing(graph) -> threading.Thread:
    """Return a thread that closes the graph, and waits for the call that runs."""
    thread = threading.Thread(target=graph.close)
    thread.start()
    while not graph._directory.coordinator.status.closed:
        time.sleep(0.001)
    return thread


def test_a_graph_that_another_thread_closes_at_the_end_of_a_call_stays_closed():
    class Closing:
        """The live state of the graph, which another thread closes once it is read."""

        def __init__(self, live):
            self.live, self.states, self.threads = live, live.states, []

        @property
        def shard(self):
            if not self.threads:
                self.threads.append(closing(graph))
            return self.live.shard

    graph = DynamicGraph(n_vertices=10, device="cpu")
    graph.insert([0], [1])
    coordinator = graph._directory.coordinator
    coordinator._live = live = Closing(coordinator._live)
    graph.insert([1], [2])
    live.threads[0].join()
    status = coordinator.status
    assert (status.closed, status.usable, status.epoch) == (True, False, 2)


@pytest.mark.parametrize("who", ["a call of another thread", "a signal handler"])
def test_a_graph_that_is_closed_during_a_call_is_freed_by_that_call(monkeypatch, who):
    graph, degrees, threads = DynamicGraph(n_vertices=10, device="cpu"), HANDLERS["degrees"], []
    coordinator = graph._directory.coordinator

    def closed(*args, **options):
        if who == "a signal handler":
            signal.raise_signal(signal.SIGUSR1)
        else:
            threads.append(closing(graph))
            in_thread(coordinator._free)  # as at the end of a call
        return degrees(*args, **options)

    monkeypatch.setitem(HANDLERS, "degrees", closed)
    before = signal.signal(signal.SIGUSR1, lambda *_: graph.close())
    try:
        assert graph.degrees([1]).tolist() == [0]
    finally:
        signal.signal(signal.SIGUSR1, before)
    for thread in threads:
        thread.join()
    assert coordinator._session is None
