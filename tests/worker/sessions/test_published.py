"""The lock of a published graph's clients, and what a client that was lost cannot do any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fakes import FakeServant

from mgraph.protocol import Abort, Call, Failure, Hello, Result
from mgraph.worker.sessions.published import SPAN, LockQueue
from mgraph.worker.sessions.thread import Asked, ShardThread


class Client:
    """Requests the lock, and notes each grant."""

    def __init__(self, lock: LockQueue) -> None:
        self.lock, self.given, self.wanted = lock, [], []

    def ask(self, seq: int) -> None:
        self.lock.ask(self, seq, self.given.append, lambda: self.wanted.append(seq))

    def end(self, seq: int, *known: Any) -> None:
        self.lock.end(self, seq, *(known or (None, None)))


def test_the_lock_goes_round_in_the_order_of_the_requests():
    lock = LockQueue(3, b"first")
    a, b, c = (Client(lock) for _ in range(3))
    a.ask(1), b.ask(1), c.ask(1), a.ask(2)
    assert (a.given, b.given, c.given) == ([{"attempt": 3, "known": b"first"}], [], [])
    b.end(1)  # it does not want it any more
    a.end(2)  # nor does this one another
    a.end(7, 9, b"never asked for")
    assert c.given == []
    a.end(1, 4, b"second")
    assert (a.given[1:], b.given, c.given) == ([], [], [{"attempt": 4, "known": b"second"}])
    c.end(1)  # nothing was done in it
    b.ask(2)
    assert b.given == [{"attempt": 4, "known": b"second"}]


def test_each_holder_is_notified_once_that_others_wait():
    lock = LockQueue(3, b"first")
    a, b, c = (Client(lock) for _ in range(3))
    a.ask(1)
    assert a.wanted == []
    b.ask(5), c.ask(6)
    assert (a.wanted, b.wanted, c.wanted) == ([1], [], [])
    a.end(1)
    assert (b.wanted, c.wanted) == ([5], [])
    b.end(5)
    assert (b.wanted, c.wanted) == ([5], [])


def test_the_lock_is_released_with_its_holder_and_leaves_nothing_known():
    lock = LockQueue(3, b"first")
    a, b, c = (Client(lock) for _ in range(3))
    a.ask(1), b.ask(1), c.ask(1)
    lock.leave(b)
    lock.leave(a)
    assert (b.given, c.given) == ([], [{"attempt": 3 + SPAN, "known": None}])
    c.end(1)  # and this one has not found it out either
    b.ask(2)
    assert b.given == [{"attempt": 3 + SPAN, "known": None}]
    b.end(2, 5 + SPAN, b"found out")
    lock.leave(b)  # it does not hold the lock
    a.ask(2)
    assert a.given[1:] == [{"attempt": 5 + SPAN, "known": b"found out"}]


@contextmanager
def shard_thread() -> Iterator[tuple[ShardThread, Callable[[Call | Abort], Any], list[str]]]:
    """A shard's thread, a function that asks it and returns its answer, and what its servant notes."""
    log: list[str] = []
    posted: list[Any] = []
    done = threading.Event()
    thread = ShardThread("mgraph-t-0", lambda aborted: FakeServant(Hello("t", 0, 1), aborted, log), list)

    def post(message: Any) -> None:
        posted.append(message)
        done.set()

    def ask(message: Call | Abort) -> Any:
        done.clear()
        thread.requests.put(Asked(message, post))
        assert done.wait(10)
        return posted[-1]

    thread.start()
    try:
        yield thread, ask, log
    finally:
        thread.stop()
        thread.join(10)


def test_what_comes_late_of_a_lost_client_does_nothing():
    """Its calls are refused, and its abort leaves the exchange of the client that went on."""
    with shard_thread() as (thread, ask, log):
        thread.abort(SPAN)
        assert isinstance(ask(Abort(1, SPAN)), Result)
        settled = log.count("settle")
        assert isinstance(ask(Call(2, SPAN + 1, "echo", {})), Result)
        assert isinstance(ask(Call(3, 2, "echo", {})), Failure)
        thread.abort(2)
        assert isinstance(ask(Abort(4, 2)), Result)
        assert log.count("settle") == settled
        assert isinstance(ask(Call(5, SPAN + 1, "echo", {})), Result)


def test_the_holder_after_one_that_is_lost_makes_calls_however_many_attempts_that_one_made():
    lock = LockQueue(3, None)
    lost, following = Client(lock), Client(lock)
    lost.ask(1), following.ask(1)
    with shard_thread() as (thread, ask, _):
        for attempt in range(3, 10):
            thread.abort(attempt)
            assert isinstance(ask(Abort(attempt, attempt)), Result)
        lock.leave(lost)
        attempt = following.given[0]["attempt"]
        thread.abort(attempt)
        assert isinstance(ask(Abort(1, attempt)), Result)
        assert isinstance(ask(Call(2, attempt + 1, "echo", {})), Result)
        assert isinstance(ask(Call(10, 10, "echo", {})), Failure)  # late, of the one that is lost
