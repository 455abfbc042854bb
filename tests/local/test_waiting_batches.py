"""Small batches of a pipeline in this process: when those that wait for others are applied."""

from __future__ import annotations

import os
import threading
from concurrent.futures import wait

import numpy as np
import pytest
from graph_clusters import assert_clean
from interrupts import ctrl_c, when
from patience import patience

from mgraph import DynamicGraph, EdgeBatch, GraphClosed
from mgraph.local import coordinator
from mgraph.worker.calls import changes

N = 1000

pytestmark = pytest.mark.timeout(60)


def batch(i: int) -> EdgeBatch:
    return EdgeBatch([i % N], [i // N])


@pytest.fixture
def graph():
    with DynamicGraph(n_vertices=N, device="cpu") as graph:
        yield graph
    assert_clean(None)


@pytest.fixture
def never_alone(monkeypatch):
    """Batches wait, also if none came before them, until somebody asks."""
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    monkeypatch.setattr(coordinator.Coordinator, "_sweep", lambda self: None)


def test_batches_are_applied_though_nobody_asks(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    with graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(40)]
        assert not wait(pending, patience(5)).not_done
        assert graph.epoch == 40
        assert not wait([pipe.update(batch(40))], patience(5)).not_done  # another thread sweeps
    assert_clean(None)


def test_a_batch_that_comes_alone_does_not_wait(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", 0.0)
    with graph.pipeline() as pipe:
        assert all(pipe.update(batch(i)).done() for i in range(5))


@pytest.mark.usefixtures("never_alone")
def test_batches_wait_until_they_are_many_or_somebody_asks(graph):
    with graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(coordinator.MOST - 1)]
        assert graph.epoch == 0
        assert graph._directory.coordinator.queued == coordinator.MOST - 1
        pending.append(pipe.update(batch(63)))
        assert graph.epoch == coordinator.MOST
        pending.append(pipe.update(batch(64)))
        assert not pending[-1].done()
        assert pending[-1].result(0).epoch == 65
        pending.append(pipe.update(batch(65)))
        assert graph.num_edges == 65
        assert graph.degrees().sum() == 66  # a call comes after them
        pending.append(pipe.update(batch(66)))
        large = np.arange(N, dtype=np.uint32).repeat(9)
        pending.append(pipe.update(EdgeBatch(large, large)))
        assert pending[-1].done()
        pending.append(pipe.update(batch(67)))
    assert [p.result(0).epoch for p in pending] == list(range(1, 70))


@pytest.mark.usefixtures("never_alone")
def test_a_callback_may_call_the_graph(graph):
    seen = []
    with graph.pipeline() as pipe:
        for i in range(5):
            pipe.update(batch(i)).add_done_callback(
                lambda done: seen.append((done.result().epoch, graph.degrees([0])[0]))
            )
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("never_alone")
def test_a_closed_graph_refuses_batches_that_wait(graph):
    with pytest.raises(GraphClosed, match="is closed"), graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(5)]
        graph.close()
        assert all(isinstance(p.exception(0), GraphClosed) for p in pending)


@pytest.mark.usefixtures("never_alone")
def test_ctrl_c_drops_batches_that_wait(graph):
    waiting = threading.Event()
    with when(waiting.is_set, ctrl_c), pytest.raises(KeyboardInterrupt), graph.pipeline() as pipe:
        first = pipe.update(batch(0))
        first.result()
        pending = [pipe.update(batch(i)) for i in range(1, 5)]
        waiting.set()
        threading.Event().wait(30)
    assert (graph.epoch, graph.num_edges) == (1, 1)
    assert all(isinstance(p.exception(0), GraphClosed) for p in pending)
    assert graph.insert([5], [5]).epoch == 2


@pytest.mark.usefixtures("never_alone")
def test_ctrl_c_in_a_read_that_applies_batches_ends_their_pipeline(graph, monkeypatch):
    """Otherwise later batches would take the epochs of those that were dropped."""
    begun, decide = threading.Event(), changes._decide_together

    def waits(rank, *args, **columns):
        begun.set()
        for _ in range(3000):
            rank.shard.exchange.barrier()  # where Ctrl-C ends a call
            threading.Event().wait(0.01)
        return decide(rank, *args, **columns)

    monkeypatch.setattr(changes, "_decide_together", waits)
    with pytest.raises(GraphClosed, match="dropped because of Ctrl-C"), graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(4)]
        with when(begun.is_set, ctrl_c), pytest.raises(KeyboardInterrupt):
            graph.degrees([0])
        monkeypatch.setattr(changes, "_decide_together", decide)
        assert all(isinstance(p.exception(0), GraphClosed) for p in pending)
        pipe.update(batch(4))
    assert (graph.epoch, graph.num_edges) == (0, 0)
    assert graph.insert([5], [5]).epoch == 1


def test_pipelines_and_calls_of_several_threads(graph):
    epochs, total = [], 300

    def send(first: int) -> None:
        with graph.pipeline() as pipe:
            pending = [pipe.update(batch(first + i)) for i in range(total)]
        epochs.extend(p.result(0).epoch for p in pending)
        assert [p.result(0).epoch for p in pending] == sorted(p.result(0).epoch for p in pending)

    threads = [threading.Thread(target=send, args=(total * k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert graph.degrees().sum() <= 3 * total + 1
        epochs.append(graph.insert([N - 1], [N - 1]).epoch)
    for thread in threads:
        thread.join(patience(20))
    assert sorted(epochs) == list(range(1, graph.epoch + 1))
    assert graph.num_edges == 3 * total + 1


@pytest.mark.usefixtures("never_alone")
def test_a_forked_child_has_the_batches_that_wait(graph):
    with graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(5)]
        child = os.fork()
        if child == 0:
            os._exit(0 if graph.degrees().sum() == 5 == pending[-1].result(5).epoch else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert graph.epoch == 0
    assert graph.epoch == 5
