"""Lock for sending calls: coroutines wait for it, threads only try."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

__all__ = ["SendLock"]

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class SendLock:
    """FIFO lock for coroutines. Threads may take it without an event loop.

    Its holder is a token, so a thread can release it even if Ctrl-C interrupted `try_acquire`.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holder: object = None
        self._waiting = deque[Waiter]()

    def try_acquire(self, token: object) -> bool:
        """Take the lock if it is free and nobody waits. True if taken."""
        with self._mutex:
            if self._holder is not None or self._waiting:
                return False
            self._holder = token
            return True

    def release(self, token: object) -> None:
        """Pass the lock to the coroutine that has waited longest.

        Does nothing if `token` does not hold the lock.
        """
        with self._mutex:
            if self._holder is not token:
                return
            self._holder = None
            self._pass_on()

    def _pass_on(self) -> None:
        while self._holder is None and self._waiting:
            loop, future = self._waiting.popleft()
            with suppress(RuntimeError):  # the coroutine's loop has ended
                loop.call_soon_threadsafe(self._give, future)
                self._holder = future

    def _give(self, future: asyncio.Future[None]) -> None:
        if future.done():  # cancelled meanwhile
            self.release(future)
        else:
            future.set_result(None)

    async def __aenter__(self) -> None:
        # Take a free lock at once; otherwise join the queue.
        loop = asyncio.get_running_loop()
        task, future = asyncio.current_task(), loop.create_future()
        with self._mutex:
            if self._holder is None and not self._waiting:
                self._holder = task
                return
            self._waiting.append((loop, future))

        # A cancelled waiter leaves the queue, or passes the lock on if it got it meanwhile.
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
