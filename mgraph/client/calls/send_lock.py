"""The lock under which the calls of one graph are sent: coroutines wait for it, and threads take it if it is free."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

__all__ = ["SendLock"]

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class SendLock:
    """A lock for coroutines, in the order in which they came, that a thread may take without an event loop.

    Its holder is known by a token, so that a thread whose `try_acquire` Ctrl-C interrupted can release it in any case.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holder: object = None
        self._waiting = deque[Waiter]()

    def try_acquire(self, token: object) -> bool:
        """Take the lock for `token` if nobody holds it or waits for it."""
        with self._mutex:
            if self._holder is not None or self._waiting:
                return False
            self._holder = token
            return True

    def release(self, token: object) -> None:
        """Give the lock to the coroutine that has waited longest. Nothing if `token` does not hold it."""
        with self._mutex:
            if self._holder is not token:
                return
            self._holder = None
            self._pass_on()

    def _pass_on(self) -> None:
        while self._holder is None and self._waiting:
            loop, future = self._waiting.popleft()
            with suppress(RuntimeError):  # its loop has ended, and it with that
                loop.call_soon_threadsafe(self._give, future)
                self._holder = future

    def _give(self, future: asyncio.Future[None]) -> None:
        if future.done():  # cancelled meanwhile
            self.release(future)
        else:
            future.set_result(None)

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        task, future = asyncio.current_task(), loop.create_future()
        with self._mutex:
            if self._holder is None and not self._waiting:
                self._holder = task
                return
            self._waiting.append((loop, future))
        try:
            await future
        except asyncio.CancelledError:
            with self._mutex, suppress(ValueError):
                self._waiting.remove((loop, future))
            if not future.cancelled():
                self.release(future)
            raise
        with self._mutex:
            self._holder = task

    async def __aexit__(self, *exc: object) -> None:
        self.release(asyncio.current_task())
