"""Run coroutines on the client's event loop from a user's thread, with waits that end with loop or thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from mgraph.errors import GraphClosed

__all__ = ["STOPPED", "LoopRunner"]

T = TypeVar("T")

POLL_SECONDS = 0.5  #: time between two checks that the loop still runs
STOP_SECONDS = 0.05  #: time between two checks for a stop, in a thread with `STOPPED`

#: an event by which another thread ends the calls of this context, as Ctrl-C would
STOPPED: ContextVar[threading.Event | None] = ContextVar("STOPPED", default=None)


class LoopRunner:
    """Runs coroutines on another thread's event loop and waits for them.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        The loop of a synchronous client.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    @property
    def alive(self) -> bool:
        """True while the loop runs."""
        return self.loop.is_running()

    @property
    def here(self) -> bool:
        """True in the loop's own thread, where a call would wait for itself."""
        return asyncio._get_running_loop() is self.loop

    def run(self, work: Coroutine[Any, Any, T], grace: float) -> T:
        """Run `work` on the loop and return its result.

        Ctrl-C, or `STOPPED`, cancels `work`, waits at most `grace` seconds for it to clean up, and raises
        KeyboardInterrupt.

        Raises
        ------
        RuntimeError
            It was called from the event loop itself, and would wait for ever.
        GraphClosed
            The loop has ended, because the client was closed.
        Exception
            The error of `work`.
        """
        job, stopped = _Job(self.loop, work), STOPPED.get()
        poll = POLL_SECONDS if stopped is None else STOP_SECONDS

        # Wait in short intervals, since the loop may end without a word.
        try:
            self._check()
            self.loop.call_soon_threadsafe(job.start)
            while not job.done.wait(poll):
                if stopped is not None and stopped.is_set():
                    raise KeyboardInterrupt
                if not self.alive:
                    raise GraphClosed("the Dask client of this graph was closed while a call was running")
        except KeyboardInterrupt:
            if self.post(job.cancel):
                job.done.wait(grace)
            raise
        except RuntimeError:
            job.discard()
            raise
        return job.result()

    def post(self, function: Callable[[], object]) -> bool:
        """Queue a call of `function` on the loop. False if the loop has ended."""
        try:
            if not self.alive:
                return False
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def _check(self) -> None:
        """Raise an error if nothing can run: the loop has ended, or this is its own thread."""
        if not self.alive:
            raise GraphClosed("the Dask client of this graph is closed")
        if self.here:
            raise RuntimeError("mgraph's calls block, so they must not be made from the client's event loop")


class _Job(Generic[T]):
    """A coroutine on the loop, with an event for its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self.done = threading.Event()
        self._loop, self._work = loop, work
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(lambda task: self.done.set())

    def cancel(self) -> None:
        """Cancel the coroutine. If Ctrl-C came before `start` ran, it never starts."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._work.close()
            self.done.set()

    def discard(self) -> None:
        """Close a coroutine that will never start, because the loop has ended or refused it."""
        if self._task is None:
            self._work.close()

    def result(self) -> T:
        """Return the coroutine's result, or raise its error, once.

        An error's traceback must not refer to its task, so the task is dropped.
        """
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        except asyncio.CancelledError:
            # The loop ended; after Ctrl-C no thread waits for a result.
            raise GraphClosed("the Dask client of this graph was closed while a call was running") from None
        finally:
            del task
