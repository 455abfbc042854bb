"""Queue of small batches, which are sent in groups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from mgraph.calls import CALLS, CallSize, RemoteCall
from mgraph.client.calls.batch_group import MOST, BatchGroup, SmallBatch, first_group
from mgraph.client.calls.caller import Value
from mgraph.client.calls.send_lock import SendLock

__all__ = ["BatchQueue", "Launch"]

#: awaits `room`, sends a call with each rank's arguments, and calls `sent`; the last argument is the group
Launch = Callable[
    [RemoteCall, list[Value], list[CallSize], Callable[[], Awaitable[None]], Callable[[Any, int], None], BatchGroup],
    Awaitable[None],
]


class BatchQueue:
    """Small batches in a queue for the next message, in the order in which they were added.

    Parameters
    ----------
    lock : SendLock
        The lock under which calls are sent.
    flying : collection of asyncio.Task
        The batches in flight.

    Attributes
    ----------
    leaving : int
        The number of batches of the group that is being sent.
    """

    def __init__(self, lock: SendLock, flying: Collection[asyncio.Task[Any]]) -> None:
        self._lock, self._flying = lock, flying
        self._waiting: deque[SmallBatch] = deque()
        self.leaving = 0
        # True while a task sends the batches of the queue.
        self._sending = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, small: SmallBatch) -> bool:
        """Append a batch, from the user's thread. Return True if `begin` must be called."""
        self._waiting.append(small)
        if self._sending:
            return False
        self._sending = True
        return True

    # ---- on the event loop -------------------------------------------------------------------------------------------

    def begin(self, launch: Launch) -> None:
        """Start a task that sends the batches of the queue, unless one does."""
        if self._task is None or self._task.done():
            self._sending, self._task = True, asyncio.create_task(self._send_while_waiting(launch))

    async def _send_while_waiting(self, launch: Launch) -> None:
        """Send all batches in groups. While two messages are in flight, batches wait and share the next one."""
        while True:
            while self._waiting:
                async with self._lock:
                    await self._send_group(launch)
                while len(self._flying) > 1 and len(self._waiting) < MOST:
                    await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
            self._sending = False
            # Batches added before the line above started no other task.
            if not self._waiting:
                return
            self._sending = True

    async def send_locked(self, launch: Launch) -> None:
        """Take the lock and send all batches."""
        if self._sending or self._waiting:  # a task that sends has the lock
            async with self._lock:
                await self.send(launch)

    async def send(self, launch: Launch) -> None:
        """Send all batches; the caller holds the lock."""
        while self._waiting:
            await self._send_group(launch)

    async def _send_group(self, launch: Launch) -> None:
        """Send the first batches that can share a message."""
        if not self._waiting:
            return

        group = first_group(self._waiting)
        self.leaving = len(group.items)
        for _ in group.items:
            self._waiting.popleft()

        # If the group cannot be sent, its pipeline ends or recovers.
        sender = group.items[0].sender
        try:
            on_sent = partial(sender.group_sent, group)
            await launch(CALLS["updates"], group.shares(), group.sizes, sender.room(group.nbytes), on_sent, group)
        except BaseException as error:
            sender.group_refused(group, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self.leaving = 0
