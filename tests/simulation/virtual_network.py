"""A network that delays messages and breaks connections: Dask's comms, and the collectives of an exchange."""

from __future__ import annotations

import asyncio
import pickle
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from distributed.comm import Comm, CommClosedError
from fibers import Fiber, Process, World
from virtual_loop import Loop

from mgraph.errors import Aborted
from mgraph.exchange import Exchange

__all__ = ["Network", "VirtualExchange"]

POLL_SECONDS = 0.05  #: at most between two looks at whether a wait was aborted


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class VirtualComm(Comm):
    """One end of a connection. Its messages come in their order, until it is closed."""

    def __init__(self, network: Network, process: Process, loop: Loop) -> None:
        super().__init__()
        self._network, self.process, self._loop = network, process, loop
        self.peer: VirtualComm = self
        self._inbox: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._closed = self._ended = False  # by this end; by the other
        self._last = 0.0  # when the last message comes to the other end

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message."""
        while not self._inbox:
            if self._closed or self._ended:
                raise CommClosedError("the connection is closed")
            self._reader = self._loop.create_future()
            await self._reader
        return pickle.loads(self._inbox.popleft())

    async def write(self, msg: Any, serializers: Any = None, on_error: Any = None) -> int:
        """Send a message."""
        if self._closed or self._ended:
            raise CommClosedError("the connection is closed")
        self._send(partial(self.peer._receive, pickle.dumps(msg)))
        return 1

    def _send(self, act: Callable[[], None]) -> None:
        network = self._network
        self._last = max(self._last + 1e-6, network.world.now + network.delay(self.process, self.peer.process))
        network.world.after(self._last - network.world.now, None, act)

    def _receive(self, message: bytes) -> None:
        if not self._closed:
            self._inbox.append(message)
            self._awake()

    def _awake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not self.process.dead:
            self._loop.call_soon(_set, reader)

    def _end(self) -> None:
        self._ended = True
        self._awake()

    async def close(self) -> None:
        """Close after what was written."""
        self.abort()

    def abort(self) -> None:
        """Close now; the other end learns it after what was written."""
        if not self._closed:
            self._closed = True
            self._awake()
            self._send(self.peer._end)

    def cut(self) -> None:
        """Break the connection: both ends are closed, and what is under way is lost."""
        for end in (self, self.peer):
            end._ended = True
            end._inbox.clear()
            end._awake()

    def closed(self) -> bool:
        """Return True if this end is closed, or knows that the other one is."""
        return self._closed or self._ended

    @property
    def local_address(self) -> str:
        """The process of this end."""
        return self.process.name

    @property
    def peer_address(self) -> str:
        """The process of the other end."""
        return self.peer.process.name


class Network:
    """Connects processes.

    Parameters
    ----------
    world : World
    voted : callable
        Called when a rank has learned the outcome of a vote.

    Attributes
    ----------
    listeners : dict
        By address, the process, its loop and the coroutine that serves a connection.
    slow : dict
        Further seconds of each message between two processes, which a fault has made slow.
    """

    def __init__(self, world: World, voted: Callable[[], None]) -> None:
        self.world, self.voted = world, voted
        self.listeners: dict[str, tuple[Process, Loop, Callable[[Comm], Awaitable[object]]]] = {}
        self.slow: dict[str, float] = {}
        self.comms: list[VirtualComm] = []
        self.meetings: dict[tuple[str, int], dict[int, VirtualExchange]] = {}
        self.loops: dict[Process, Loop] = {}

    def close(self) -> None:
        """End the loops of all processes."""
        with warnings.catch_warnings(action="ignore"):  # calls that no loop has come to are never awaited
            for loop in self.loops.values():
                loop.close()

    def delay(self, sender: Process, receiver: Process) -> float:
        """Return the seconds that a message takes."""
        rng = self.world.rng
        slow = self.slow.get(sender.name, 0.0) + self.slow.get(receiver.name, 0.0) if self.slow else 0.0
        return slow + (rng.random() * 0.001 if rng.random() < 0.9 else rng.random() * 0.3)

    async def connect(self, address: str, timeout: float = 3.0, **options: Any) -> Comm:
        """Connect to an address, as `distributed.comm.connect`."""
        caller = self.world.fiber
        assert caller is not None
        process, loop, serve = self.listeners.get(address, (None, None, None))
        await asyncio.sleep(self.world.rng.random() * 0.001)
        if process is None or loop is None or serve is None or process.dead:
            raise OSError(f"no process listens at {address}") from ConnectionRefusedError()
        ours = VirtualComm(self, caller.process, self.loops[caller.process])
        theirs = VirtualComm(self, process, loop)
        ours.peer, theirs.peer = theirs, ours
        self.comms += [ours, theirs]
        for end in (ours, theirs):
            end.process.at_death.append(end.abort)
        loop.call_soon(lambda: loop.create_task(serve(theirs)))
        return ours


class VirtualExchange(Exchange):
    """Collectives of the ranks by messages of the network."""

    name = "virtual"

    def __init__(
        self, network: Network, graph: str, attempt: int, rank: int, size: int, aborted: Callable[[], bool]
    ) -> None:
        super().__init__(rank, size, aborted)
        fiber = network.world.fiber
        assert fiber is not None
        self._network, self._process = network, fiber.process
        self._members = network.meetings.setdefault((graph, attempt), {})
        self._members[rank] = self
        self._step, self._inbox, self._open = 0, dict[tuple[int, int], bytes](), True
        self._waiting: deque[Fiber] = deque()

    address = b"virtual"

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Check that all ranks have an exchange of this attempt."""
        assert len(addresses) == self.size == len(self._members)

    def allgather(self, part: Any, lengths: Any = None) -> list[Any]:
        """Send a part to all ranks, and wait for theirs."""
        # Send.
        world, self._step = self._network.world, self._step + 1
        key, message = (self._step, self.rank), pickle.dumps(part)
        for rank, member in self._members.items():
            if rank != self.rank:
                seconds = self._network.delay(self._process, member._process)
                world.after(seconds, None, partial(member._receive, key, message))
        # Wait, as long as the attempt is not aborted.
        self._inbox[key] = message
        keys = [(self._step, rank) for rank in range(self.size)]
        while not self._inbox.keys() >= set(keys):
            if self.aborted():
                raise Aborted(f"rank {self.rank} was released")
            world.block(self._waiting, POLL_SECONDS)
        return [pickle.loads(self._inbox.pop(key)) for key in keys]

    def _receive(self, key: tuple[int, int], message: bytes) -> None:
        if self._open and not self._process.dead:
            self._inbox[key] = message
            self._network.world.wake(self._waiting)

    def alltoallv(self, parts: Sequence[Any], lengths: Any = None) -> list[Any]:
        """Send each rank its part."""
        return [row[self.rank] for row in self.allgather(list(parts))]

    def gather_values(self, values: np.ndarray, call: str) -> list[np.ndarray]:
        """Gather the arrays of all ranks."""
        return self.allgather(values)

    def least(self, value: int) -> int:
        """Return the smallest value of all ranks."""
        least = super().least(value)
        self._network.voted()
        return least

    def close(self) -> None:
        """Receive nothing any more."""
        self._open = False
