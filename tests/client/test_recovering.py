"""Batches in flight in a graph that comes back after a loss: small ones share messages, and none is lost or doubled."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from fakes import FAKE_CALLS, FakeWorker, LoopThread, Votes, assert_clean, sending, wait_for
from patience import patience
from test_pipeline import groups, small

from mgraph.batch import TOLD
from mgraph.calls import CALLS, CallSize
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.calls.batch_group import SmallBatch
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.stores.recovery import Incarnation, Recovering
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import CapacityError, StoreError, WorkerLost
from mgraph.failures import Recovered
from mgraph.partition import Partition
from mgraph.protocol import Result

pytestmark = pytest.mark.timeout(60)

STORED = 77  #: insertions that the store says of a batch that was committed and not acknowledged


@contextmanager
def recovering(monkeypatch: pytest.MonkeyPatch, ahead: int = 0) -> Iterator[tuple[Recovering, list[FakeWorker]]]:
    """A graph on two fake workers. After a loss its store has `ahead` epochs more than were acknowledged."""
    for name, call in FAKE_CALLS.items():
        monkeypatch.setitem(CALLS, name, call)
    votes = Votes(2)
    workers, loop = [FakeWorker(number, votes) for number in range(2)], LoopThread("fake-client")
    numbering, number = Numbering(Partition((0, 5, 10))), iter(range(9))

    def opened() -> Coordinator:
        addresses = [worker.address for worker in workers]
        coordinator = Coordinator(f"g{next(number)}", LoopRunner(loop.loop), addresses, {}, patience=10)
        coordinator.open()
        return coordinator

    def reopen(lost: Incarnation, generation: int) -> Incarnation:
        coordinator, epoch = opened(), lost.caller.status.epoch + ahead
        coordinator.call("begin_at", {"epoch": epoch})
        counts = np.zeros((max(0, ahead), len(TOLD)), np.int64)
        counts[:, 0] = STORED
        return Incarnation(coordinator, None, numbering, None, epoch, counts)  # type: ignore[arg-type]

    graph = Recovering(Incarnation(opened(), None, numbering, None), reopen, 3)  # type: ignore[arg-type]
    try:
        yield graph, workers
    finally:
        graph.close()
        assert_clean(workers)
        for worker in workers:
            worker.stop()
        loop.stop()


def pipeline(graph: Recovering) -> Pipeline:
    return Pipeline(graph, sending(graph), 1 << 20)


def cut(worker: FakeWorker) -> None:
    """Lose a worker's session."""
    for session in list(worker.table.sessions.values()):
        worker.thread.loop.call_soon_threadsafe(session.comm.abort)


def test_small_batches_share_messages(monkeypatch):
    with recovering(monkeypatch) as (graph, workers):
        with pipeline(graph) as pipe:
            pending = [pipe.update(small(milliseconds=200)), *(pipe.update(small(n=k)) for k in range(1, 301))]
        assert [p.result(0).epoch for p in pending] == list(range(1, 302))
        assert [p.result(0).inserted for p in pending[1:]] == [2 * k for k in range(1, 301)]
        for worker in workers:
            assert sum(groups(worker)) == 301
            assert len(groups(worker)) < 40


@pytest.mark.parametrize("ahead", [0, pytest.param(1, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("rank", [0, 1])
def test_small_batches_in_flight_and_waiting_outlast_a_worker(monkeypatch, ahead, rank):
    """Those that the store has are reported by it, and the others are sent again, in their order."""
    with recovering(monkeypatch, ahead) as (graph, workers):
        with pipeline(graph) as pipe:
            first = pipe.update(small(n=1))
            assert first.result(10).epoch == 1
            pending = [pipe.update(small(milliseconds=10, n=k)) for k in range(2, 202)]
            cut(workers[rank])
            pending += [pipe.update(small(n=k)) for k in range(202, 252)]
        assert len(graph.recoveries) == 1
        assert [p.result(0).epoch for p in pending] == list(range(2, 252))
        told = graph.recoveries[0].acknowledged
        expected = [2 * k for k in range(2, told + 1)] + [STORED] * ahead
        expected += [2 * k for k in range(told + 1 + ahead, 252)]
        assert [p.result(0).inserted for p in pending] == expected
        assert graph.status.epoch == 251


def test_batches_after_one_that_was_lost_are_lost_with_it(monkeypatch):
    """The last answers come only after a rank that had answered all is lost: the store is asked for all of them."""
    with recovering(monkeypatch, ahead=3) as (graph, workers):
        caller = graph._incarnations[0].caller
        assert isinstance(caller, Coordinator)
        (late, take), (lost, answers) = ((session, session._take) for session in caller.sessions.all)
        loop, held, seen = caller.runner.loop, list[object](), list[object]()
        with pipeline(graph) as pipe:
            pending = [pipe.update({})]
            assert pending[0].result(10).epoch == 1
            monkeypatch.setattr(late, "_take", lambda message: held.append(message))
            monkeypatch.setattr(lost, "_take", lambda message: (answers(message), seen.append(message)))
            pending += [pipe.update({}) for _ in range(3)]
            assert wait_for(lambda: min(sum(isinstance(m, Result) for m in to) for to in (held, seen)) == 3)

            def release() -> None:
                late._take = take
                for message in held:
                    take(message)

            cut(workers[1])
            assert wait_for(lambda: caller.exchange.aborting)
            loop.call_soon_threadsafe(release)
        assert [p.result(0).epoch for p in pending] == [1, 2, 3, 4]
        assert [p.result(0).inserted for p in pending] == [2, STORED, STORED, STORED]
        assert [recovery.acknowledged for recovery in graph.recoveries] == [1]


def test_a_store_without_what_was_acknowledged_ends_the_graph(monkeypatch):
    """As after a machine stopped, with changes that were written in the background."""
    with recovering(monkeypatch, ahead=-2) as (graph, workers):
        problem = "the store has epoch 3, and epoch 5 was acknowledged"
        with pytest.raises(WorkerLost, match=problem), pipeline(graph) as pipe:
            assert [pipe.update(small(n=k)) for k in range(1, 6)][-1].result(10).epoch == 5
            cut(workers[0])
            pipe.update(small(n=6)).result(10)
        with pytest.raises(WorkerLost, match=problem):
            graph.call("echo")
        assert graph.recoveries == []


def test_recoveries_that_ctrl_c_ended_do_not_count(monkeypatch):
    with recovering(monkeypatch) as (graph, workers):
        graph.call("update")
        cut(workers[0])
        assert wait_for(lambda: graph._incarnations[0].caller.exchange.lost)
        with monkeypatch.context() as patch:
            patch.setattr(graph, "_reopen", lambda *_: signal.raise_signal(signal.SIGINT))
            for _ in range(4):
                with pytest.raises(KeyboardInterrupt):
                    graph.call("echo")
        with pytest.raises(Recovered):
            graph.call("echo")
        assert len(graph.call("echo")) == 2


def test_large_and_small_batches_keep_their_order_over_two_losses(monkeypatch):
    with recovering(monkeypatch) as (graph, workers):
        with pipeline(graph) as pipe:
            pending = []
            for k in range(60):
                pending.append(pipe.update(small(milliseconds=5, n=k + 1) if k % 3 else {"seconds": 0.005}))
                if k in (20, 40):
                    cut(workers[k % 2])
        assert [p.result(0).epoch for p in pending] == list(range(1, 61))
        assert [p.result(0).inserted for p in pending] == [2 * (k + 1) if k % 3 else 2 for k in range(60)]
        assert 1 <= len(graph.recoveries) <= 2


def test_a_small_batch_that_a_rank_refuses_ends_the_pipeline_as_without_recovery(monkeypatch):
    with recovering(monkeypatch) as (graph, _):
        with pytest.raises(CapacityError, match="the batch of epoch 12 in a pipeline"), pipeline(graph) as pipe:
            pending = [pipe.update(small(milliseconds=100))]
            pending += [pipe.update(small(fails=int(k == 10), n=k + 1)) for k in range(40)]
        assert [p.result(0).epoch for p in pending[:11]] == list(range(1, 12))
        assert all(p.exception(0) is not None for p in pending[11:])
        assert graph.recoveries == []


def test_a_graph_that_does_not_come_back_ends_small_batches_that_wait(monkeypatch):
    with recovering(monkeypatch) as (graph, workers):

        def fail(lost: Incarnation, generation: int) -> Incarnation:
            raise WorkerLost("no worker is there")

        graph._reopen = fail
        with pytest.raises(WorkerLost, match="could not be opened again"), pipeline(graph) as pipe:
            pending = [pipe.update(small(milliseconds=10)) for _ in range(100)]
            cut(workers[1])
            pending[-1].exception(10)
        assert all(p.done() for p in pending)
        assert isinstance(pending[-1].exception(0), WorkerLost)


def test_a_graph_that_does_not_come_back_ends_a_batch_that_waits_for_room(monkeypatch):
    with recovering(monkeypatch) as (graph, workers):

        def fail(lost: Incarnation, generation: int) -> Incarnation:
            raise StoreError("a file is damaged")

        async def room() -> None:
            cut(workers[1])
            while not graph._is_lost(graph._incarnations[-1]):
                await asyncio.sleep(0.001)
            raise Recovered("a worker was lost")

        graph._reopen = fail
        for _ in range(2):  # the failure is the answer of later calls, too
            with pytest.raises(WorkerLost, match="could not be opened again: a file is damaged"):
                graph.launch("update", [{}, {}], [CallSize(0)] * 2, room, print)


@pytest.mark.parametrize("queued", [False, True])
def test_no_loss_waits_for_a_batch_whose_call_was_interrupted(monkeypatch, queued):
    """Ctrl-C comes while a batch is queued, and the block goes on; nobody knows whether that batch is in the queue."""
    with recovering(monkeypatch) as (graph, workers):
        post = graph.post

        def interrupted(small: SmallBatch) -> None:
            if queued:
                post(small)
            raise KeyboardInterrupt

        with pipeline(graph) as pipe:
            pending = [pipe.update(small(milliseconds=100, n=1))]
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(graph, "post", interrupted)
                pipe.update(small(n=2))
            cut(workers[0])
            pending.append(pipe.update(small(n=3)))
            assert pending[1].result(patience(5)).inserted == 6
        assert len(graph.recoveries) == 1
        assert [p.result(0).inserted for p in pending] == [2, 6]
        assert graph.status.epoch == 2


def test_another_thread_that_makes_calls_recovers_the_graph_and_the_pipeline_goes_on(monkeypatch):
    with recovering(monkeypatch) as (graph, workers):
        over = threading.Event()

        def ask() -> None:
            while not over.wait(0.01):
                try_again(lambda: graph.call("echo"))

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            with pipeline(graph) as pipe:
                pending = [pipe.update(small(milliseconds=5, n=k + 1)) for k in range(100)]
                cut(workers[0])
                assert wait_for(lambda: len(graph.recoveries) == 1)
                pending += [pipe.update(small(n=k + 1)) for k in range(100, 150)]
        finally:
            over.set()
            thread.join(20)
        assert [p.result(0).epoch for p in pending] == list(range(1, 151))
        assert [p.result(0).inserted for p in pending] == [2 * (k + 1) for k in range(150)]


def try_again(call: Callable[[], object]) -> None:
    """Make a call until no worker is lost in it."""
    while True:
        with suppress(Recovered):
            call()
            return


def test_counts_that_a_lost_graph_did_not_hear_are_unknown():
    # The graph knew that epoch 5 was committed, so its store was asked for the counts of later epochs alone.
    counts = np.arange(12).reshape(2, 6)
    now = Incarnation(None, None, None, None, 7, counts)  # type: ignore[arg-type]
    assert now.since(5).tolist() == [[-1] * 6, *counts.tolist()]
    assert now.since(7).tolist() == counts[1:].tolist()
    assert now.since(8).shape == (0, 6)
