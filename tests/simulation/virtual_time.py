"""What the product's modules get in place of `threading`, `time` and `concurrent.futures`: it blocks fibers only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from fibers import Fiber, world

__all__ = ["Condition", "Event", "Jobs", "Lock", "RLock", "Thread", "clock", "wait_for"]


class Lock:
    """A lock of `threading`."""

    def __init__(self) -> None:
        self._owner: Fiber | None = None
        self._waiting: deque[Fiber] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, when it is free."""
        here = world()
        here.give_way()
        while self._owner is not None:
            if not blocking or (not here.block(self._waiting, None if timeout < 0 else timeout) and timeout >= 0):
                return False
        self._owner = here.fiber
        return True

    def release(self) -> None:
        """Free the lock."""
        self._owner = None
        world().wake(self._waiting, 1)

    __enter__ = acquire

    def __exit__(self, *exc: object) -> None:
        self.release()


class RLock(Lock):
    """A reentrant lock."""

    _depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, when it is free or of this fiber."""
        mine = self._owner is not None and self._owner is world().fiber
        if not mine and not super().acquire(blocking, timeout):
            return False
        self._depth += 1
        return True

    def release(self) -> None:
        """Free the lock, when it was released as often as acquired."""
        self._depth -= 1
        if self._depth == 0:
            super().release()

    __enter__ = acquire


class Condition:
    """A condition of `threading`, of a lock that is taken once."""

    def __init__(self, lock: Lock) -> None:
        self._lock, self._notified = lock, deque[Fiber]()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate holds. The lock is free meanwhile."""
        here = world()
        end = None if timeout is None else here.time() + timeout
        while not predicate() and (end is None or here.time() < end):
            self._lock.release()
            here.block(self._notified, None if end is None else end - here.time())
            self._lock.acquire()
        return predicate()

    def notify_all(self) -> None:
        """Wake all that wait."""
        world().wake(self._notified)


class Event:
    """An event of `threading`."""

    def __init__(self) -> None:
        self._is_set, self._waiting = False, deque[Fiber]()

    def is_set(self) -> bool:
        """Return True after `set`."""
        return self._is_set

    def set(self) -> None:
        """Wake all that wait."""
        self._is_set = True
        world().wake(self._waiting)

    def clear(self) -> None:
        """Make others wait again."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for `timeout` seconds."""
        if not self._is_set:
            world().block(self._waiting, timeout)
        return self._is_set


class Thread:
    """A thread of `threading`, in the process of the fiber that starts it."""

    def __init__(self, target: Callable[[], object], name: str = "", daemon: bool = True) -> None:
        self._target, self.name, self._alive, self._waiting = target, name, False, deque[Fiber]()

    def start(self) -> None:
        """Start it."""
        fiber = world().fiber
        assert fiber is not None
        self._alive = True
        world().spawn(fiber.process, self.name, self._run)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._alive = False
            world().wake(self._waiting)

    def is_alive(self) -> bool:
        """Return True while it runs."""
        return self._alive

    def join(self) -> None:
        """Wait for its end."""
        while self._alive:
            world().block(self._waiting)


class _Job(Future[Any]):
    """A future whose waits are the world's."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[Fiber] = deque()
        self.add_done_callback(lambda _: world().wake(self.waiting))

    def result(self, timeout: float | None = None) -> Any:
        wait_for([self])
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        wait_for([self])
        return super().exception(0)


class Jobs(Executor):
    """A pool of one thread."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        self._queue: deque[tuple[_Job, Callable[[], Any]]] = deque()
        self._waiting: deque[Fiber] = deque()
        self._open = True
        self._thread = Thread(self._run, thread_name_prefix)
        self._thread.start()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call."""
        job = _Job()
        self._queue.append((job, lambda: function(*args, **kwargs)))
        world().wake(self._waiting)
        return job

    def _run(self) -> None:
        while self._queue or self._open:
            if not self._queue:
                world().block(self._waiting)
                continue
            job, call = self._queue.popleft()
            world().give_way(0.5)
            try:
                value = call()
            except Exception as error:
                job.set_exception(error)
            else:
                job.set_result(value)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread after the queue."""
        self._open = False
        world().wake(self._waiting)
        self._thread.join()


class _Done:
    def __init__(self, done: set[Any], not_done: set[Any]) -> None:
        self.done, self.not_done = done, not_done


def wait_for(futures: list[Any], timeout: float | None = None) -> _Done:
    """Wait for one future, as `concurrent.futures.wait`."""
    (future,) = futures
    if not future.done():
        world().block(future.waiting, timeout)
    return _Done({future}, set()) if future.done() else _Done(set(), {future})


class _Clock:
    """The module `time`."""

    @staticmethod
    def monotonic() -> float:
        return world().time()

    perf_counter = time = monotonic

    @staticmethod
    def sleep(seconds: float) -> None:
        world().sleep(seconds)


clock = _Clock()
