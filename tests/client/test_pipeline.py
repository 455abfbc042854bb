"""Batches in flight: their order, how many bytes there may be, and what becomes of them when one fails."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import FakeServant, FakeWorker, fake_cluster, sending
from interrupts import at_line, ctrl_c, when
from patience import patience

from mgraph.batch import COLUMNS
from mgraph.calls import CallSize
from mgraph.client.batches import pipeline as pipelines
from mgraph.client.batches.pipeline import Pipeline, _InFlight
from mgraph.client.calls import batch_queue, loop_runner
from mgraph.client.calls import coordinator as coordinators
from mgraph.client.calls.batch_group import MOST, SmallBatch, layout
from mgraph.client.calls.batch_queue import BatchQueue
from mgraph.errors import CapacityError, GraphClosed, InvalidOption, MgraphError, StoreError, WorkerLost

pytestmark = pytest.mark.timeout(60)


def pipeline(coordinator, max_bytes: int = 1 << 20) -> Pipeline:
    """A pipeline whose batches are the arguments of a fake shard."""
    return Pipeline(coordinator, sending(coordinator), max_bytes)


def test_batches_are_applied_in_order_while_later_ones_are_on_their_way():
    with fake_cluster(2) as (coordinator, workers):
        slow = patience(1.0)
        with pipeline(coordinator) as pipe:
            pending = [pipe.update({"seconds": slow if k == 0 else 0.0}) for k in range(20)]
            assert not pending[0].done()  # nothing waited for the first
        assert [p.result(0).epoch for p in pending] == list(range(1, 21))
        assert pending[0].result().inserted == 2
        assert pending[0].result().seconds > 0.99 * slow
        assert coordinator.status.epoch == 20
        assert [line for line in workers[1].log if line.startswith("begin")] == [f"begin {k}" for k in range(1, 21)]


def test_large_and_small_batches_keep_their_order():
    big = np.zeros(30 << 20, np.uint8)  # large enough to be serialized in another thread
    with fake_cluster(2) as (coordinator, _), pipeline(coordinator, 1 << 30) as pipe:
        pending = [pipe.update({"array": big if k % 2 == 0 else big[:1]}) for k in range(4)]
        assert [p.result(20).epoch for p in pending] == [1, 2, 3, 4]


def test_no_more_bytes_are_in_flight_than_allowed():
    with fake_cluster(2) as (coordinator, _):
        half = np.zeros(40, np.uint8)  # 80 bytes for two ranks
        with pipeline(coordinator, 200) as pipe:
            slow = patience(0.5)
            first, second = (pipe.update({"array": half, "seconds": slow}) for _ in range(2))
            assert not first.done()
            pipe.update({"array": half})
            assert first.done()
            assert not second.done()
            huge = pipe.update({"array": np.zeros(1000, np.uint8)})  # goes alone
            assert huge.result().epoch == 4
        assert coordinator.status.epoch == 4


def test_other_calls_come_after_the_batches_before_them():
    with fake_cluster(2) as (coordinator, _), pipeline(coordinator) as pipe:
        pending = [pipe.update({"seconds": 0.05}) for _ in range(4)]
        assert len(coordinator.call("echo")) == 2
        assert all(p.done() for p in pending)
        assert coordinator.call("update")[0]["epoch"] == 5
        assert pipe.update({}).result().epoch == 6


@pytest.mark.parametrize("failing", [[1], [0, 1]])
def test_a_batch_fails_and_those_after_it_are_not_applied(failing):
    with fake_cluster(2) as (coordinator, workers):
        pending = []
        with (
            pytest.raises(CapacityError, match="has no room .the batch of epoch 3 in a pipeline"),
            pipeline(coordinator) as pipe,
        ):
            for k in range(6):  # once the failure is known here, update refuses
                pending.append(pipe.update({"fails": failing if k == 2 else []}))
        assert [p.exception() is None for p in pending] == [True, True, False, False, False, False][: len(pending)]
        assert len(pending) > 2
        assert isinstance(pending[2].exception(), CapacityError)
        assert all(isinstance(p.exception(), MgraphError) for p in pending[3:])
        assert coordinator.status.epoch == 2
        for worker in workers:
            assert worker.log.count("begin 4") == 0
        assert coordinator.call("update")[0]["epoch"] == 3


def test_the_next_call_raises_what_an_earlier_batch_did():
    with fake_cluster(2) as (coordinator, _):
        pipe = pipeline(coordinator)
        with pytest.raises(CapacityError), pipe:
            pipe.update({"fails": [0]}).exception(10)
            with pytest.raises(CapacityError, match="epoch 1"):
                pipe.update({})
        with pytest.raises(InvalidOption, match="inside its with block"):
            pipe.update({})


def test_an_error_in_the_block_is_not_hidden_and_what_was_sent_is_applied():
    with fake_cluster(1) as (coordinator, _):
        with pytest.raises(ZeroDivisionError), pipeline(coordinator) as pipe:
            pipe.update({"seconds": 0.2})
            pipe.update({})
            1 / 0  # noqa: B018
        assert coordinator.status.epoch == 2


def test_two_pipelines_share_the_ranks():
    with fake_cluster(2) as (coordinator, _):
        epochs = []

        def send():
            with pipeline(coordinator) as pipe:
                epochs.extend([pipe.update({}) for _ in range(20)])

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(p.result(0).epoch for p in epochs) == list(range(1, 61))


def test_keyboard_interrupt_drops_what_is_in_flight():
    with fake_cluster(2) as (coordinator, _):
        pending, slow, began = [], patience(0.5), time.monotonic()
        sent = when(lambda: len(pending) == 10, ctrl_c)
        with sent, pytest.raises(KeyboardInterrupt), pipeline(coordinator) as pipe:
            pipe.update({}).result()
            for _ in range(10):
                pending.append(pipe.update({"seconds": slow}))
            pending[-1].result()
        assert time.monotonic() - began < 6 * slow
        assert all(p.done() for p in pending)
        assert pending[-1].exception() is not None
        assert 1 <= coordinator.status.epoch <= 5  # what a rank has committed, all have
        assert coordinator.call("update")[0]["epoch"] == coordinator.status.epoch


def test_a_second_interrupt_leaves_no_lost_batch_without_an_outcome(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    with fake_cluster(1) as (coordinator, _):
        monkeypatch.setattr(coordinator, "recall", interrupted)
        with pytest.raises(KeyboardInterrupt), pipeline(coordinator) as pipe:
            report = pipe.update({})
            report.result(10)
            lost = _InFlight(lambda: None, type(report)(coordinator.runner, lambda: None), epoch=2, lost=True)
            pipe._sent, pipe._lost = [lost], 1
            raise KeyboardInterrupt
        assert isinstance(lost.pending.exception(0), GraphClosed)
        assert "the batch of epoch 2 may be in the store" in str(lost.pending.exception())


def test_worker_is_lost_with_batches_in_flight():
    with fake_cluster(2) as (coordinator, workers):
        with pytest.raises(WorkerLost, match="epoch 1"), pipeline(coordinator) as pipe:
            pipe.update({}).result()
            pending = [pipe.update({"seconds": 0.3}) for _ in range(3)]
            for session in workers[1].table.sessions.values():
                workers[1].thread.loop.call_soon_threadsafe(session.comm.abort)
        assert all(p.exception(0) is not None for p in pending)
        with pytest.raises(MgraphError):
            coordinator.call("echo")


def test_the_client_ends_while_a_report_is_awaited():
    with fake_cluster(1) as (coordinator, _):
        pipe = pipeline(coordinator)
        pipe.__enter__()
        pending = pipe.update({"fails": [9]})  # all wait for a rank that there is not
        with pytest.raises(TimeoutError):
            pending.result(0.05)
        coordinator.close()
        with pytest.raises((GraphClosed, WorkerLost)):
            pending.result(5)
        assert not pending.cancel()


# ---- small batches share messages ------------------------------------------------------------------------------------


def small(fails: int = 0, milliseconds: int = 0, n: int = 1) -> dict[str, Any]:
    """A batch of `n` edges that fails on the rank `fails`, unless that is 0, and takes so long."""
    ends = {"src": np.full(n, fails, np.uint32), "dst": np.full(n, milliseconds, np.uint32)}
    return {**ends, **dict.fromkeys(COLUMNS[2:])}


def groups(worker: FakeWorker) -> list[int]:
    """How many batches each message had."""
    return [int(line.split()[-1]) for line in worker.log if line.startswith("group")]


def test_small_batches_share_messages_and_keep_their_epochs_and_reports():
    with fake_cluster(2) as (coordinator, workers):
        with pipeline(coordinator) as pipe:
            slow = pipe.update(small(milliseconds=300))
            pending = [pipe.update(small(n=k)) for k in range(1, 501)]
            alone = pipe.update({"seconds": 0.0})  # of another kind
            last = pipe.update(small(n=7))
        assert slow.result(0).seconds > 0.29
        assert [p.result(0).epoch for p in pending] == list(range(2, 502))
        assert [p.result(0).inserted for p in pending] == [2 * k for k in range(1, 501)]
        assert (alone.result(0).epoch, last.result(0).epoch) == (502, 503)
        assert coordinator.status.epoch == 503
        for worker in workers:
            assert [line for line in worker.log if line.startswith("begin")] == [f"begin {k}" for k in range(1, 504)]
            assert sum(groups(worker)) == 502
            assert len(groups(worker)) < 60
            assert max(groups(worker)) == MOST


def test_other_calls_come_after_small_batches_that_wait():
    with fake_cluster(2) as (coordinator, _), pipeline(coordinator) as pipe:
        for k in range(5):
            pending = [pipe.update(small(milliseconds=5)) for _ in range(20)]
            assert coordinator.call("update")[0]["epoch"] == 21 * (k + 1)
            assert all(p.done() for p in pending)


@pytest.mark.parametrize("at", [0, 1, 30, 63])
def test_a_small_batch_fails_and_those_before_it_are_reported(at):
    with fake_cluster(2) as (coordinator, _):
        error = rf"has no room .the batch of epoch {at + 2} in a pipeline"
        with pytest.raises(CapacityError, match=error), pipeline(coordinator) as pipe:
            pending, queued = [pipe.update(small())], threading.Event()
            coordinator.runner.loop.call_soon_threadsafe(queued.wait, 10)
            pending += [pipe.update(small(fails=int(k == at), n=k + 1)) for k in range(150)]
            queued.set()
        assert [p.result(0).epoch for p in pending[: at + 1]] == list(range(1, at + 2))
        assert [p.result(0).inserted for p in pending[1 : at + 1]] == [2 * (k + 1) for k in range(at)]
        assert isinstance(pending[at + 1].exception(0), CapacityError)
        assert all(isinstance(p.exception(0), MgraphError) for p in pending[at + 1 :])
        assert "before it failed" in str(pending[-1].exception(0))
        assert coordinator.status.epoch == at + 1
        assert coordinator.call("update")[0]["epoch"] == at + 2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_batch_of_a_group_that_the_store_may_have_says_so(monkeypatch, count):
    """The refusals of `count` batches of a group could not be written."""

    def updates(self: FakeServant, attempt: int, sizes: np.ndarray, **rest: Any) -> None:
        assert len(sizes) == 5
        self.refuses = count
        raise self.not_refused()

    first = "the batch of epoch 3 in a pipeline; those before it are committed"
    monkeypatch.setattr(FakeServant, "updates", updates)
    with fake_cluster(2) as (coordinator, _):
        with pytest.raises(StoreError, match=first), pipeline(coordinator) as pipe:
            pending, queued = [pipe.update({}) for _ in range(2)], threading.Event()
            coordinator.runner.loop.call_soon_threadsafe(queued.wait, 10)
            pending += [pipe.update(small()) for _ in range(5)]
            queued.set()
        assert [p.result(0).epoch for p in pending[:2]] == [1, 2]
        errors = [p.exception(0) for p in pending[2:]]
        assert ["whether the store has it" in str(error) for error in errors] == [k < count for k in range(5)]
        assert [f"epoch {epoch} " in str(error) for epoch, error in enumerate(errors, 3)] == [True] * 5
        assert ["before it failed" in str(error) for error in errors] == [k >= count for k in range(5)]
        assert coordinator.status.epoch == 2


def test_keyboard_interrupt_drops_small_batches_that_wait():
    with fake_cluster(2) as (coordinator, _):
        pending = []
        sent = when(lambda: len(pending) == 200, ctrl_c)
        with sent, pytest.raises(KeyboardInterrupt), pipeline(coordinator) as pipe:
            for _ in range(200):
                pending.append(pipe.update(small(milliseconds=20)))
            pending[-1].result()
        made = [p for p in pending if p.exception(10) is None]  # those in the queue are refused on the event loop
        assert [p.result(0).epoch for p in made] == list(range(1, len(made) + 1))
        assert len(made) <= coordinator.status.epoch < 200
        assert isinstance(pending[-1].exception(0), GraphClosed)
        assert coordinator.call("update")[0]["epoch"] == coordinator.status.epoch


def test_batches_are_sent_after_ctrl_c_at_any_line_that_queued_another():
    """The block goes on. It finds no lock held, and no queue for which nobody has begun a task."""
    files = {module.__file__ for module in (pipelines, coordinators, batch_queue, loop_runner, threading)}
    line, reached = 0, True
    with fake_cluster(1) as (coordinator, _):
        while reached:
            with pipeline(coordinator) as pipe:
                with (
                    suppress(KeyboardInterrupt),
                    at_line(line, files, lambda: signal.raise_signal(signal.SIGINT)) as came,
                ):
                    pipe.update(small())
                assert pipe.update(small(n=2)).result(patience(5)).inserted == 2
            reached, line = came(), line + 1
    assert line > 30


def test_a_worker_is_lost_with_small_batches_that_wait():
    with fake_cluster(2) as (coordinator, workers):
        with pytest.raises(WorkerLost), pipeline(coordinator) as pipe:
            pending = [pipe.update(small(milliseconds=20)) for _ in range(100)]
            for session in list(workers[1].table.sessions.values()):
                workers[1].thread.loop.call_soon_threadsafe(session.comm.abort)
            pending[-1].exception(10)
        assert all(p.done() for p in pending)
        assert isinstance(pending[-1].exception(0), MgraphError)


def test_two_pipelines_of_small_batches_share_the_ranks():
    with fake_cluster(2) as (coordinator, _):
        found: dict[int, list[int]] = {}

        def send(n: int) -> None:
            with pipeline(coordinator) as pipe:
                pending = [pipe.update(small(n=n)) for _ in range(200)]
            assert {p.result(0).inserted for p in pending} == {2 * n}
            found[n] = [p.result(0).epoch for p in pending]

        threads = [threading.Thread(target=send, args=(n,)) for n in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert all(epochs == sorted(epochs) for epochs in found.values())
        assert sorted(epoch for epochs in found.values() for epoch in epochs) == list(range(1, 601))


def test_a_closed_graph_ends_small_batches_that_wait():
    with fake_cluster(1) as (coordinator, _):
        pipe = pipeline(coordinator)
        pipe.__enter__()
        pending = [pipe.update(small(fails=9)) for _ in range(10)]  # all wait for a rank that there is not
        coordinator.close()
        assert all(isinstance(p.exception(5), MgraphError) for p in pending)


class Watched(deque):
    """A queue that calls `then`, once, when somebody has seen that it is empty."""

    then: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        then = None if len(self) else self.then
        if then is not None:
            self.then = None
            then()
            return False
        return len(self) > 0


def test_a_small_batch_that_comes_while_the_sending_task_ends_is_sent():
    sent: list[int] = []
    none = np.empty(0, np.uint32)
    sender = SimpleNamespace(room=lambda n: None, group_sent=lambda *sent: None)
    share = {**dict.fromkeys(COLUMNS), "src": none, "dst": none}

    async def launch(call, shares, sizes, room, told, group):
        sent.extend(size.nbytes for item in group.items for size in item.sizes)

    async def run():
        posted = BatchQueue(asyncio.Lock(), set())
        posted._waiting = waiting = Watched()

        def post(n):
            if posted.add(SmallBatch(sender, [share], [CallSize(n)], layout([share]), None)):
                posted.begin(launch)

        post(1)
        await posted.send(launch)  # a call sends it before the task has begun
        waiting.then = lambda: post(2)  # from the user's thread, when the task has seen that nothing waits
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert sent == [1, 2]
