"""Inbox of a shard's thread: requests from the event loop and from clients' channels."""

from __future__ import annotations

import logging
import select
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mgraph.channel import Bell, Channel, ChannelClosed, poll_awake

__all__ = ["Inbox"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Inbox(Generic[T]):
    """Queue with a single reading thread. Any thread may put a request into it.

    The reading thread polls both at once: the descriptor of a bell for the queue, and the descriptor of the channel.
    """

    def __init__(self) -> None:
        self._queue = deque[T]()
        self._bell, self._stopped = Bell(), False
        self._poll = select.poll()
        self._ringing = self._bell.fileno()
        self._poll.register(self._bell, select.POLLIN)
        self._joining = deque[tuple[Channel, Callable[[bytes], T]]]()
        self._channels: dict[int, tuple[Channel, Callable[[bytes], T]]] = {}  # keys are descriptors

    def put(self, request: T) -> None:
        """Append a request."""
        self._queue.append(request)
        self._bell.ring()

    def listen(self, channel: Channel, read: Callable[[bytes], T]) -> None:
        """Take requests from `channel`, too, until its other end closes it. Any thread.

        The reading thread calls `read` to make a request of a message.
        """
        self._joining.append((channel, read))
        self._bell.ring()

    def stop(self) -> None:
        """Make `get` return None from now on."""
        self._stopped = True
        self._bell.ring()

    def get(self) -> T | None:
        """Wait for the next request; None after `stop`. The queue comes first."""
        while not self._stopped:
            if self._queue:
                return self._queue.popleft()
            # Wait for the bell or a message.
            for descriptor, _ in poll_awake(self._poll):
                if descriptor == self._ringing:
                    self._bell.silence()
                    self._join()
                elif (request := self._receive(descriptor)) is not None:
                    return request
        return None

    def _join(self) -> None:
        while self._joining:
            channel, read = self._joining.popleft()
            self._channels[channel.fileno()] = channel, read
            self._poll.register(channel, select.POLLIN)

    def __len__(self) -> int:
        """The number of requests in the queue; a message of the channel comes alone, and does not count."""
        return len(self._queue)

    def peek(self) -> T | None:
        """Return the request that `get` returns next, if it was put already."""
        return self._queue[0] if self._queue else None

    def _receive(self, descriptor: int) -> T | None:
        channel, read = self._channels[descriptor]
        # A client that ended or sends other bytes loses its channel.
        try:
            data = channel.receive()
            return None if data is None else read(data)
        except ChannelClosed:  # the client has ended, and its comm will say so
            self._leave(descriptor)
        except Exception:
            logger.exception("a message of a client's channel cannot be read; the channel is closed")
            self._leave(descriptor)
        return None

    def _leave(self, descriptor: int) -> None:
        channel, _ = self._channels.pop(descriptor)
        self._poll.unregister(channel)
        channel.shut()

    def close(self) -> None:
        """Close all channels. The reading thread calls it last."""
        self._join()
        for descriptor in list(self._channels):
            self._leave(descriptor)
