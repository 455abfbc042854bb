"""From a user's thread into the client's event loop and back, such that no wait outlives either."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from mgraph.errors import GraphClosed

__all__ = ["Bridge"]

T = TypeVar("T")

POLL_SECONDS = 0.5  #: how often a waiting thread looks whether the loop is still there


class Bridge:
    """Runs coroutines on an event loop of another thread and waits for them.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        The loop of a synchronous client.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    @property
    def alive(self) -> bool:
        """Whether the loop runs."""
        return self.loop.is_running() and not self.loop.is_closed()

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], patience: float) -> T:
        """Run the coroutine that `make` returns; its result, or what it raises.

        Ctrl-C cancels the coroutine, waits at most `patience` seconds for it to clean up, and raises KeyboardInterrupt.

        Raises
        ------
        RuntimeError
            Called from the event loop itself, which would wait for ever.
        GraphClosed
            The loop ended, because the client was closed.
        """
        self._refuse_own_loop()
        job = _Job(make)
        self._post(job.start)
        try:
            while not job.done.wait(POLL_SECONDS):
                if not self.alive:
                    raise GraphClosed("the Dask client of this graph was closed while a call was running")
        except KeyboardInterrupt:
            self._post(job.cancel)
            job.done.wait(patience)
            raise
        return job.result()

    def post(self, function: Callable[[], None]) -> bool:
        """Have the loop call `function` some time; False where the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def _post(self, function: Callable[[], None]) -> None:
        if not self.alive or not self.post(function):
            raise GraphClosed("the Dask client of this graph is closed")

    def _refuse_own_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self.loop:
            raise RuntimeError("mgraph's calls wait: do not call them from the client's event loop")


class _Job:
    """One coroutine on the loop and the thread that waits for it."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.done = threading.Event()
        self._make = make
        self._task: asyncio.Task[None] | None = None
        self._value: Any = None
        self._error: BaseException | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._value = await self._make()
        except BaseException as error:  # carried to the thread that waits
            self._error = error
        finally:
            self.done.set()

    def result(self) -> Any:
        if self._error is None:
            return self._value
        error, self._error = self._error, None  # the traceback refers back to this frame: no cycle
        try:
            raise error
        finally:
            del error
