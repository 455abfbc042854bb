"""A network of Dask's comms and of the collectives of an exchange.

It delays messages, breaks connections, and has partitions: what a machine sends to another one is held until the
partition heals, or until the connection ends.
"""

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

from mgraph.errors import Aborted, WorkerLost
from mgraph.exchange import Exchange

__all__ = ["Network", "VirtualExchange"]

POLL_SECONDS = 0.05  #: at most between two looks at whether a wait was aborted
UNACKNOWLEDGED = 30.0  #: virtual seconds without acknowledgements after which TCP ends a connection, as Dask sets it
LATER = 5.0  #: virtual seconds by which one end does so after the other, at most
RETRY_SECONDS = 0.2  #: between two attempts to connect


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
        self._sent: deque[Callable[[], None]] = deque()  # to the other end, under way
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
        self._sent.append(act)
        self._last = max(self._last + 1e-6, network.world.now + network.delay(self.process, self.peer.process))
        network.post(self.process, self.peer.process, self._last - network.world.now, self._arrive)

    def _arrive(self) -> None:
        """Let the other end have the first message under way: messages that were held stay in their order."""
        if self._sent:
            self._sent.popleft()()

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

    def expire(self) -> None:
        """End this end, whose messages are not acknowledged; those that are held never come."""
        if not self._closed:
            self._sent.clear()
            self.abort()

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
    partitions : list of set
        Of each partition, the pairs of machines of which the first sends nothing to the second. A machine has the name
        of its process, also after that has ended and another one has begun.
    """

    def __init__(self, world: World, voted: Callable[[], None]) -> None:
        self.world, self.voted = world, voted
        self.listeners: dict[str, tuple[Process, Loop, Callable[[Comm], Awaitable[object]]]] = {}
        self.slow: dict[str, float] = {}
        self.partitions: list[frozenset[tuple[str, str]]] = []
        self._held: list[tuple[Process, Process, Callable[[], None]]] = []
        self._since: dict[frozenset[str], float] = {}  # when two machines began to lack acknowledgements
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

    def post(self, sender: Process, receiver: Process, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` when a message of so many seconds arrives: after a partition, if it meets one."""
        self.world.after(seconds, None, partial(self._arrive, sender, receiver, act))

    def _arrive(self, sender: Process, receiver: Process, act: Callable[[], None]) -> None:
        if self.partitions and self.cuts(sender.name, receiver.name):
            self._held.append((sender, receiver, act))
        else:
            act()

    # ---- partitions --------------------------------------------------------------------------------------------------

    def cuts(self, sender: str, receiver: str) -> bool:
        """Return True if no message of a machine reaches another one."""
        return any((sender, receiver) in pairs for pairs in self.partitions)

    def apart(self, one: str, other: str) -> bool:
        """Return True if two machines have no connection: messages or their acknowledgements are missing."""
        return bool(self.partitions) and (self.cuts(one, other) or self.cuts(other, one))

    def connected(self) -> list[tuple[str, str]]:
        """Return the pairs of machines that have a connection."""
        pairs = {(comm.local_address, comm.peer_address) for comm in self.comms if not comm.closed()}
        for members in self.meetings.values():
            machines = [member.machine for member in members.values() if member.open]
            pairs |= {(one, other) for one in machines for other in machines}
        return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})

    def divide(self, pairs: frozenset[tuple[str, str]]) -> None:
        """Begin a partition."""
        self.partitions.append(pairs)
        for machines in sorted({(min(pair), max(pair)) for pair in pairs}):
            ends = frozenset(machines)
            if ends not in self._since:
                self._since[ends] = self.world.now
                self.world.after(UNACKNOWLEDGED, None, partial(self._expire, ends, self.world.now))

    def heal(self, pairs: frozenset[tuple[str, str]] | None = None) -> None:
        """End a partition, or all of them. What was held comes, as the seed says when."""
        if pairs is not None and pairs not in self.partitions:  # it has healed
            return
        if pairs is None:
            self.partitions.clear()
        else:
            self.partitions.remove(pairs)
        self._since = {ends: began for ends, began in self._since.items() if self.apart(*ends)}
        held, self._held = self._held, []
        for sender, receiver, act in held:
            self.post(sender, receiver, self.delay(sender, receiver), act)

    def _expire(self, ends: frozenset[str], began: float) -> None:
        """End the connections of two machines, each end at a time of its own, if they are still apart."""
        if self._since.get(ends) != began:
            return

        def expire(end: VirtualComm | VirtualExchange, *peer: int) -> None:
            if self._since.get(ends) == began:
                end.expire(*peer)

        for comm in self.comms:
            if {comm.local_address, comm.peer_address} == ends and not comm.closed():
                self.world.after(self.world.rng.random() * LATER, None, partial(expire, comm))
        for members in self.meetings.values():
            for rank, member in members.items():
                for peer, other in members.items():
                    if rank != peer and {member.machine, other.machine} == ends:
                        self.world.after(self.world.rng.random() * LATER, None, partial(expire, member, peer))

    # ---- connections -------------------------------------------------------------------------------------------------

    async def connect(self, address: str, timeout: float = 3.0, **options: Any) -> Comm:
        """Connect to an address, as `distributed.comm.connect`."""
        caller = self.world.fiber
        assert caller is not None
        process, loop, serve = self.listeners.get(address, (None, None, None))
        await asyncio.sleep(self.world.rng.random() * 0.001)
        end = self.world.now + timeout
        while process is not None and self.apart(caller.process.name, process.name):
            if self.world.now >= end:
                raise OSError(f"{address} does not answer")
            await asyncio.sleep(RETRY_SECONDS)
            process, loop, serve = self.listeners[address]
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
        self,
        network: Network,
        graph: str,
        attempt: int,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        patience: float,
    ) -> None:
        super().__init__(rank, size, aborted)
        fiber = network.world.fiber
        assert fiber is not None
        self._network, self._process, self._patience = network, fiber.process, patience
        self._ended: set[int] = set()  # ranks to which the connection has ended
        self._members = network.meetings.setdefault((graph, attempt), {})
        self._members[rank] = self
        self._step, self._inbox, self._open = 0, dict[tuple[int, int], bytes](), True
        self._waiting: deque[Fiber] = deque()

    address = b"virtual"

    @property
    def open(self) -> bool:
        """True until it is closed, or its process ends."""
        return self._open and not self._process.dead

    @property
    def machine(self) -> str:
        """The name of the machine."""
        return self._process.name

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Check that all ranks have an exchange of this attempt, and wait until they can be reached."""
        assert len(addresses) == self.size == len(self._members)
        network, world = self._network, self._network.world
        end = world.now + self._patience
        while far := [rank for rank, other in self._members.items() if network.apart(self.machine, other.machine)]:
            if self.aborted():
                raise Aborted(f"rank {self.rank} was released")
            if world.now >= end:
                raise WorkerLost(f"rank {far[0]} was not reached within {self._patience:g} s")
            world.block(self._waiting, RETRY_SECONDS)

    def expire(self, rank: int) -> None:
        """End the connections to a rank, whose acknowledgements are missing; it learns that if messages reach it."""
        if rank not in self._ended:
            self._ended.add(rank)
            self._network.world.wake(self._waiting)
            other = self._members[rank]
            self._network.post(self._process, other._process, 0.0, partial(other.expire, self.rank))

    def allgather(self, part: Any, lengths: Any = None) -> list[Any]:
        """Send a part to all ranks, and wait for theirs."""
        # Send. After a call that has found an end, none is possible.
        world, self._step = self._network.world, self._step + 1
        key, message = (self._step, self.rank), pickle.dumps(part)
        self._check_ended(self._ended)
        for rank, member in self._members.items():
            if rank != self.rank:
                seconds = self._network.delay(self._process, member._process)
                arrive = partial(self._deliver, member, key, message)
                self._network.post(self._process, member._process, seconds, arrive)
        # Wait, as long as the attempt is not aborted.
        self._inbox[key] = message
        keys = [(self._step, rank) for rank in range(self.size)]
        while not self._inbox.keys() >= set(keys):
            if self.aborted():
                raise Aborted(f"rank {self.rank} was released")
            self._check_ended({rank for rank in self._ended if (self._step, rank) not in self._inbox})
            world.block(self._waiting, POLL_SECONDS)
        return [pickle.loads(self._inbox.pop(key)) for key in keys]

    def _check_ended(self, ranks: set[int]) -> None:
        """Raise `Aborted`, as `TcpExchange`, where the connection to one of these ranks has ended."""
        if ranks:
            raise Aborted(f"rank {self.rank} found that rank {min(ranks)} has closed its connection")

    def _deliver(self, member: VirtualExchange, key: tuple[int, int], message: bytes) -> None:
        if member.rank not in self._ended and self.rank not in member._ended:
            member._receive(key, message)

    def _receive(self, key: tuple[int, int], message: bytes) -> None:
        if self.open:
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
