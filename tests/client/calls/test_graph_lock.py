"""Two clients of one published graph: one is lost at the worst moments, and the other goes on."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from fakes import FakeServant, FakeWorker, LoopThread, by_comm, fake_cluster, sending, wait_for
from interrupts import at_line, ctrl_c, when
from patience import patience

from mgraph.batch import COLUMNS
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.calls import graph_lock
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.errors import CapacityError, GraphClosed, GraphLost, MgraphError, StoreError, WorkerLost
from mgraph.protocol import Turn


@contextmanager
def two(size: int = 2) -> Iterator[tuple[Coordinator, Coordinator, list[FakeWorker]]]:
    """The coordinator that has published a graph, and one that is attached; the graph ends with them."""
    loop = LoopThread("fake-other")
    with fake_cluster(size) as (first, workers):
        first.publish("roads", b"card")
        other = Coordinator("g", LoopRunner(loop.loop), [worker.address for worker in workers], {}, patience=10)
        other.open(attach=True)
        try:
            yield first, other, workers
        finally:
            if not other.status.closed and other.status.usable:
                other.publish(None)
            other.close()
    loop.stop()


@contextmanager
def under_way(coordinator: Coordinator, workers: list[FakeWorker], method: str, **args: Any) -> Iterator[list[Any]]:
    """A call that another thread makes, and that every worker has begun when the block is entered; its errors."""
    errors: list[Any] = []

    def call() -> None:
        try:
            coordinator.call(f"{method}_together", args)
        except MgraphError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert wait_for(lambda: all(method in worker.log for worker in workers))
    yield errors
    thread.join(20)
    assert not thread.is_alive()


def epochs(coordinator: Coordinator) -> list[int]:
    coordinator.call("echo")
    return [state.epoch for state in coordinator.status.states]


def cut(coordinator: Coordinator, ranks: list[int]) -> None:
    """Break a client's connections, as when it is killed or cut off."""
    for rank in ranks:
        coordinator.runner.post(coordinator.sessions.all[rank].drop)


@pytest.mark.parametrize("lost", [[0, 1, 2], [0], [1], [2]])
@pytest.mark.parametrize(("committed", "doubting", "epoch"), [([], [0, 1, 2], 0), ([0], [1, 2], 1), ([1], [0, 2], 1)])
def test_a_client_is_lost_after_the_vote(lost, committed, doubting, epoch):
    """Whichever of its connections break: one rank has committed and so all do, or none does."""
    with two(3) as (first, other, workers):
        with under_way(first, workers, "vote", committed=committed, doubting=doubting) as errors:
            cut(first, lost)
            assert epochs(other) == [epoch] * 3
        assert isinstance(errors[0], WorkerLost | GraphLost)
        with pytest.raises((WorkerLost, GraphLost)):
            first.call("echo")
        answers = other.call("update")
        assert [answer["epoch"] for answer in answers] == [epoch + 1] * 3


def test_a_client_is_lost_whose_change_cannot_be_refused():
    """Nobody was told that the store may have it."""
    with two() as (first, other, workers):
        assert epochs(other) == [0, 0]
        with under_way(first, workers, "refusal_fails", others="wait"):
            cut(first, [0, 1])
            with pytest.raises(GraphLost, match="whether the store has it"):
                other.call("echo")
        for worker in workers:
            worker.thread.loop.call_soon_threadsafe(worker.table.published.listed, "roads")  # as `unpublish`


def test_a_client_tells_that_a_change_cannot_be_refused_and_others_go_on():
    with two() as (first, other, _):
        with pytest.raises(StoreError, match="whether the store has it"):
            first.call("refusal_fails_together")
        assert epochs(other) == [0, 0]
        assert [state.undecided for state in other.status.states] == [1, 1]


def test_calls_wait_behind_that_of_another_client_and_no_longer(monkeypatch):
    monkeypatch.setattr(graph_lock, "KEEP_SECONDS", 3600.0)  # a client that is waited for keeps nothing
    with two() as (first, other, workers):
        with under_way(first, workers, "wait", ranks=[0, 1], seconds=0.5):
            began = time.monotonic()
            assert epochs(other) == [0, 0]
            assert time.monotonic() - began < patience(5)
            assert [worker.log.index("echo") > worker.log.index("wait") for worker in workers] == [True, True]
        first.call("update")
        assert epochs(other) == [1, 1]
        assert other.status.epoch == 1
        assert [worker.log.count("open_exchange") for worker in workers] == [1, 1]  # clients share it


def test_another_thread_of_a_client_waits_until_the_lock_is_left():
    with two() as (first, _, _):
        entered = threading.Event()

        def enter() -> None:
            with first.lock:
                entered.set()

        thread = threading.Thread(target=enter)
        with first.lock:
            thread.start()
            assert not entered.wait(0.3)
        assert entered.wait(patience(10))
        thread.join(10)


def turns(coordinator: Coordinator) -> list[int]:
    """Return a list that gets the number of each turn that a client asks for from now on."""
    numbers: list[int] = []
    session = coordinator.sessions.all[0]
    ask = session.ask

    async def noted(message: Any, *args: Any) -> Any:
        if isinstance(message, Turn):
            numbers.append(message.seq)
        return await ask(message, *args)

    session.ask = noted
    return numbers


def test_calls_in_succession_take_one_turn_and_go_by_channels():
    with two() as (first, other, _):
        numbers, calls = turns(other), by_comm(other)
        for epoch in range(1, 21):
            other.call("update")
            assert other.status.epoch == epoch
        assert len(numbers) <= 5  # one, unless the machine stood still between two calls
        assert calls.count("update") == 2  # of the first call, which connects the exchange of both ranks
        assert epochs(first) == [20, 20]
        assert epochs(other) == [20, 20]


def test_a_kept_turn_is_given_to_a_client_that_asks_and_none_starves():
    with two() as (first, other, _):
        stop, made = threading.Event(), [0]

        def update() -> None:
            while not stop.is_set():
                first.call("update")
                made[0] += 1

        thread = threading.Thread(target=update)
        thread.start()
        try:
            seen = []
            for _ in range(10):
                other.call("update")
                seen.append(other.status.epoch)
        finally:
            stop.set()
            thread.join(20)
        assert seen == sorted(set(seen))
        assert epochs(first) == [made[0] + 10] * 2


def test_a_turn_that_is_not_used_is_given_back():
    with two() as (first, _, workers):
        first.call("update")
        lock = workers[0].table.published[("g", 0)].lock
        assert wait_for(lambda: lock._holder is None, 5)


def test_a_turn_is_not_given_back_while_a_queued_batch_is_being_sent(monkeypatch):
    """Ctrl-C ends the pipeline, but not the connecting of the exchange, which its event loop has begun."""
    begun, goes_on, errors = threading.Event(), threading.Event(), []

    def connect_exchange(self: FakeServant, attempt: int, addresses: list[bytes]) -> dict[str, Any]:
        begun.set()
        goes_on.wait(10)
        return {}

    def ask() -> None:
        try:
            other.call("echo_together")
        except MgraphError as error:
            errors.append(error)

    monkeypatch.setattr(FakeServant, "connect_exchange", connect_exchange)
    with two() as (first, other, workers):
        batch = {"src": np.zeros(1, np.uint32), "dst": np.zeros(1, np.uint32), **dict.fromkeys(COLUMNS[2:])}
        pipe = Pipeline(first, sending(first), 1 << 20)
        with when(begun.is_set, ctrl_c), pytest.raises(KeyboardInterrupt), pipe:
            pipe.update(batch)
            goes_on.wait(10)
        thread = threading.Thread(target=ask)
        thread.start()
        assert wait_for(lambda: bool(workers[0].table.published[("g", 0)].lock._waiting))
        goes_on.set()
        thread.join(10)
        assert errors == []
        assert [worker.log.count("open_exchange") for worker in workers] == [1, 1]
        assert epochs(first) == [0, 0]


def test_ctrl_c_at_any_line_of_the_lock_leaves_it_to_the_block_around_or_to_other_clients():
    def press() -> None:
        # Where a function begins, Ctrl-C cannot be kept from it.
        if sys._getframe(2).f_code.co_name != "__exit__":
            signal.raise_signal(signal.SIGINT)

    files, line, reached = {graph_lock.__file__}, 0, True
    with two() as (first, other, _), ThreadPoolExecutor(1) as pool:
        first.call("update")
        while reached:
            with suppress(KeyboardInterrupt), at_line(line, files, press) as came, first.lock:
                with suppress(KeyboardInterrupt):
                    first.call("echo")
                first.call("echo")
            reached, line = came(), line + 1
            assert other.call("update")[0]["epoch"] == 2 * line
            assert pool.submit(first.call, "update").result(patience(5))[0]["epoch"] == 2 * line + 1
    assert line > 30


def test_a_failed_call_of_one_client_is_over_for_the_other():
    with two() as (first, other, _):
        with pytest.raises(CapacityError, match="rank 1"):
            first.call("fail_together", {"ranks": [1]})
        other.call("update")
        assert epochs(first) == [1, 1]


def test_what_a_lost_client_left_is_freed():
    with two() as (first, other, workers):
        other.call("echo", {"result": "kept"})
        first.call("echo", {"result": "gone"})
        first.call("echo", {"result": "freed before"})
        first.forget("freed before")
        first.call("echo")
        cut(first, [0, 1])
        assert wait_for(lambda: all("free gone" in worker.log for worker in workers))
        assert all("free kept" not in w.log and w.log.count("free freed before") == 1 for w in workers)


def test_the_shards_end_with_the_last_client_once_the_name_is_taken_back():
    with two() as (first, other, workers):
        first.publish(None)
        first.close()
        assert epochs(other) == [0, 0]
        other.close()
        assert wait_for(lambda: all(worker.log[-1] == "close" for worker in workers))
        with pytest.raises(GraphClosed):
            other.call("echo")


def test_closing_ends_a_wait_for_the_turn():
    with two() as (first, other, workers):
        errors: list[Any] = []

        def ask() -> None:
            try:
                other.call("echo")
            except MgraphError as error:
                errors.append(error)

        with under_way(first, workers, "wait", ranks=[0, 1], seconds=patience(1)):
            thread = threading.Thread(target=ask)
            thread.start()
            assert not wait_for(lambda: bool(errors), 0.3)
            other.close()
            thread.join(10)
        assert isinstance(errors[0], GraphClosed)
        first.publish(None)


def test_who_attaches_to_what_is_not_there():
    with two() as (_, other, workers):
        other.publish(None)
        loop = LoopThread("fake-third")
        third = Coordinator("g", LoopRunner(loop.loop), [worker.address for worker in workers], {})
        with pytest.raises(GraphClosed, match="not published any more"):
            third.open(attach=True)
        third.close()
        loop.stop()
