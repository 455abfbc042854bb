"""The client's end of one graph: it orders calls, and sends them one at a time, or batches in flight."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from mgraph.calls import CALLS, CallSize, RemoteCall
from mgraph.client.calls.attempt import Attempt
from mgraph.client.calls.bridge import Bridge
from mgraph.client.calls.caller import Value
from mgraph.client.calls.group import WAITING, Group, Small, made_before
from mgraph.client.calls.posting import Posted
from mgraph.client.calls.room import doubtful, lack
from mgraph.client.calls.turns import Turns
from mgraph.client.connections.session import Session
from mgraph.client.connections.sessions import CLOSE_SECONDS, Asked, Sessions
from mgraph.errors import CapacityError, GraphClosed, MgraphError
from mgraph.protocol import ABORT_SECONDS, PATIENCE_SECONDS, Answer, Publish, ShardState

__all__ = ["Coordinator", "Flight", "Value"]

GRACE_SECONDS = 2 * ABORT_SECONDS  #: for which Ctrl-C waits until the ranks are released

T = TypeVar("T")
Flight = asyncio.Task[list[Value]]  #: a batch in flight; the result of the task is the ranks' answers


class Coordinator:
    """Makes the calls of one graph on all its shards, in the same order on each.

    One call runs at a time, reads included; calls of other threads wait in a queue, in the order in which they came.
    Only batches of a pipeline may overlap: the ranks queue them, and other calls wait until all of them are committed.
    `Attempt` handles failures of ranks.

    The sessions end when this object is collected. Only its graph refers to it, and the sessions do not.

    Parameters
    ----------
    graph : str
        The graph's id.
    bridge : Bridge
        Runs coroutines on the client's event loop.
    addresses : sequence of str
        The addresses of the workers, in rank order.
    connection_args : dict
        The client's security arguments for `distributed.comm.connect`.
    patience : float
        Seconds without a message after which a worker counts as lost.

    Attributes
    ----------
    life : int
        0: a graph that comes back has another coordinator then.
    groups : bool
        True: small batches of a pipeline share messages.
    sessions : Sessions
        The sessions with all ranks, and the ranks' last states.
    attempt : Attempt
        The exchange that the ranks share.
    one_process : bool
        Whether all workers are in this process.
    client : distributed.Client or None
        The client whose cluster holds the graph, where it is known.
    """

    life, groups = 0, True
    client: Any = None

    def __init__(
        self,
        graph: str,
        bridge: Bridge,
        addresses: Sequence[str],
        connection_args: dict[str, Any],
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.graph, self.bridge, self.addresses = graph, bridge, tuple(addresses)
        self.sessions = Sessions(graph, self.addresses, patience)
        self.attempt = Attempt(self.sessions)
        self._connection_args = connection_args
        self._turn = asyncio.Lock()
        self._interrupted = False
        self._turns: Turns | None = None
        self._flying: dict[Flight, Sequence[CallSize]] = {}
        self._ahead = 0  # epochs in flight
        self._posted = Posted(self._turn, self._flying)
        self.one_process = all(address.startswith("inproc:") for address in self.addresses)
        weakref.finalize(self, _drop, bridge, self.sessions.all).atexit = False  # at exit the system closes the comms

    # ---- from the user's thread --------------------------------------------------------------------------------------

    def open(self, attach: bool = False) -> None:
        """Open all sessions, or none; with `attach` those with the shards of a published graph.

        Raises
        ------
        WorkerLost
            A worker cannot be reached from this process.
        GraphClosed
            The graph is not published any more.
        """
        self.bridge.run(self.sessions.open(self._connection_args, attach), ABORT_SECONDS)
        if attach:
            self._share()

    def turn(self) -> AbstractContextManager[None]:
        """Holds the calls of other clients back, and of this one's other threads; nothing if the graph has no others.

        When it is entered, `states` are what the ranks have now.
        """
        return nullcontext() if self._turns is None else self._turns

    def publish(self, name: str | None, card: bytes = b"") -> None:
        """Give the shards to their workers, with a `card` for clients that attach; None takes the name back.

        Rank 0, where clients look for it, comes last.
        """
        with self.turn():
            self.bridge.run(self._publish(name, card), GRACE_SECONDS)

    def _share(self) -> None:
        self._turns = Turns(self.bridge, self.sessions, self.attempt, self._flying)
        self.attempt.shared = True

    def call(
        self,
        name: str,
        args: Value | None = None,
        shares: Sequence[Value] | None = None,
    ) -> list[Value]:
        """Make a call on all ranks and return their answers, in rank order.

        Parameters
        ----------
        name : str
            One of `mgraph.calls.CALLS`, which says what the call needs.
        args : dict, optional
            Arguments that are the same for every rank.
        shares : sequence of dict, optional
            The further arguments of each rank.

        Raises
        ------
        WorkerLost
            A rank was lost during this call, or before it.
        GraphLost
            A rank was lost after the vote on an earlier batch.
        GraphClosed
            After `close`.
        CapacityError
            A worker has no room for its arguments, and nothing was sent.
        Exception
            What the call raised on a rank. If ranks raised different errors, the one that caused the others.
        """
        call, given = CALLS[name], [{**(args or {}), **share} for share in (shares or [{}] * len(self.addresses))]
        with self.turn():
            return self._run(self._call_in_turn(call, given))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the event loop. Ctrl-C leaves the graph `unsettled`: a change may be under way."""
        try:
            return self.bridge.run(work, GRACE_SECONDS)
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def launch(
        self,
        name: str,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[Flight, int], None],
    ) -> None:
        """Send a batch without waiting for its outcome. The ranks apply batches in the order in which they were sent.

        Parameters
        ----------
        name, shares
            As in `call`.
        sizes : sequence of CallSize
            What is sent to each rank.
        room : callable
            Waits, on the event loop, until the batch may be sent. If it raises, the batch is not sent.
        sent : callable
            Called on the event loop with the batch's `Flight` and its epoch.
        """
        self._run(self._launch_in_turn(CALLS[name], shares, sizes, room, sent))

    def post(self, small: Small) -> None:
        """Send a small batch soon, with others in a message. Calls and batches after it come after it on the ranks too.

        Waits while `WAITING` batches wait.
        """
        if self._posted.add(small) and not self.bridge.post(partial(self._posted.begin, self._launch)):
            raise GraphClosed(f"the Dask client of graph {self.graph} is closed (epoch {self.epoch})")
        if len(self._posted) >= WAITING:
            self._run(self._posted.send_in_turn(self._launch))

    def land(self) -> None:
        """Wait until no batch is in flight."""
        self._run(self._posted.send_in_turn(self._launch))
        self._run(self._landed())

    def recall(self) -> None:
        """Drop the batches in flight that the ranks have not voted on, and wait until none is in flight.

        What is posted must be refused by its sender from now on.
        """
        self._run(self._recall())

    def close(self) -> None:
        """End the sessions, so that the workers free the shards. It may be called at any time, also twice.

        Takes a few seconds at most.
        """
        self.sessions.closed = True
        try:
            if self.bridge.alive:
                self.bridge.run(self.sessions.close(), CLOSE_SECONDS)
        finally:
            self.drop()

    def drop(self) -> None:
        """Close every comm without waiting, from any thread. This also ends a graph that was collected unclosed."""
        _drop(self.bridge, self.sessions.all)

    def forget(self, result: str) -> None:
        """Free a result on the workers with the next call. Safe in a finalizer, since it only records the key."""
        self.sessions.forget(result)

    def check(self) -> None:
        """Raise if no call is possible any more: `GraphClosed`, `GraphLost` or `WorkerLost`. Makes no call itself."""
        if not self.closed and not self.bridge.alive:
            raise GraphClosed(f"the Dask client of graph {self.graph} is closed (epoch {self.epoch})")
        self.attempt.check()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.sessions.closed

    @property
    def epoch(self) -> int:
        """The last epoch that every rank acknowledged."""
        return self.sessions.epoch

    @property
    def changes(self) -> int:
        """The number of changes of any kind, of content or of the ranges, that every rank acknowledged."""
        return self.sessions.changes

    @property
    def silent(self) -> Sequence[str]:
        """The workers that are lost because they did not answer, and may still be there."""
        return [session.address for session in self.sessions.all if session.silent]

    @property
    def unsettled(self) -> bool:
        """Whether the ranks may have changed without this client's knowing.

        This is so after a Ctrl-C until the next call is answered, and from the loss of a rank on.
        """
        return self._interrupted or self.attempt.settling or self.attempt.lost

    @property
    def states(self) -> list[ShardState]:
        """The last known state of each rank: epoch, edges, bytes and so on."""
        return self.sessions.states

    @property
    def reached(self) -> int:
        """The epoch that all ranks have reached, during a call too: as their last beats said, at most a second ago."""
        return max(self.epoch, min(session.reached for session in self.sessions.all))

    # ---- on the event loop -------------------------------------------------------------------------------------------

    async def _call_in_turn(self, call: RemoteCall, given: list[Value]) -> list[Value]:
        async with self._turn:
            await self._posted.send(self._launch)
            await self._ready(call.exchange, alone=True)
            epoch = self.epoch + 1 if call.epoch else None
            if call.epoch:
                given = [{**args, "epoch": epoch} for args in given]
            await self._reserve([call.size(args) for args in given])
            calls = self.sessions.calls(call.handler, given, self.attempt.number)
            try:
                answers = await self.attempt.finish(self.sessions.send(calls), together=call.exchange)
            except MgraphError as error:
                error.during = epoch
                raise
            self._interrupted = False  # by a call before this one, whose turn is over
            return answers

    async def _publish(self, name: str | None, card: bytes) -> None:
        async with self._turn:
            await self._posted.send(self._launch)
            await self._ready(connect=False, alone=True)
            known = Turns.known_of(self.attempt, self.sessions)
            if self._turns is None:
                self._share()
            ranks = range(len(self.addresses))
            for rank in reversed(ranks):
                message = Publish(self.sessions.next_number(), name, card, self.attempt.number, known)
                try:
                    await asyncio.shield(self.sessions.ask(rank, message))
                except BaseException:
                    for other in ranks[rank:] if name is not None else ():
                        self.sessions.ask(other, Publish(self.sessions.next_number(), None))
                    raise

    async def _ready(self, connect: bool, alone: bool) -> None:
        """Wait until a call can be sent: after the batches in flight, if `alone` or if they are being released."""
        if alone or not self.attempt.connected:
            await self._landed()
        self.check()
        if self._turns is not None and not self._turns.held:
            raise MgraphError(f"graph {self.graph} was published while this call, or its pipeline, was under way")
        await self.attempt.settled()
        if connect and not self.attempt.connected:
            await self.attempt.connect()

    def _doubtful(self, sizes: Sequence[CallSize]) -> bool:
        """Return True if a worker may have no room for its call; within one process nothing is copied."""
        return not self.one_process and doubtful(sizes, list(self._flying.values()), self.states)

    async def _reserve(self, sizes: Sequence[CallSize]) -> None:
        """Have the workers keep memory for what they are about to be sent, where they may lack it.

        Nothing is in flight: what it takes is free again when they answer, and what fails they need not be released
        from twice.
        """
        if self._doubtful(sizes) and (why := lack(await self._ask("reserve", [size._asdict() for size in sizes]))):
            await self._ask("reserve", [{"nbytes": 0}] * len(sizes))
            raise CapacityError(f"graph {self.graph}: {why}; nothing was sent")

    async def _ask(self, method: str, given: list[Value]) -> list[Value]:
        calls = self.sessions.calls(method, given, self.attempt.number)
        return await self.attempt.finish(self.sessions.send(calls), together=False)

    async def _launch_in_turn(
        self,
        call: RemoteCall,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[Flight, int], None],
    ) -> None:
        async with self._turn:
            await self._posted.send(self._launch)
            await self._launch(call, shares, sizes, room, sent)

    async def _launch(
        self,
        call: RemoteCall,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[Flight, int], None],
        group: Group | None = None,
    ) -> None:
        # wait until the batch may be sent
        await room()
        await self._ready(connect=True, alone=False)
        await room()  # raises where the batch before failed meanwhile
        if self._doubtful(sizes):
            await self._landed()
            await room()
            await self._reserve(sizes)
        # send it as the epoch after those in flight
        epoch = self.epoch + 1 + self._ahead
        given = [{**args, "epoch": epoch, "ahead": True} for args in shares]
        asked = self.sessions.send(self.sessions.calls(call.handler, given, self.attempt.number))
        before = next(reversed(self._flying), None)
        flight = asyncio.create_task(self._land(before, asked, epoch, group))
        self._flying[flight] = sizes
        self._ahead += len(group.items) if group else 1
        sent(flight, epoch)

    async def _land(self, before: Flight | None, asked: Asked, epoch: int, group: Group | None = None) -> list[Value]:
        """The answers to a batch in flight. If the batch `before` it failed, the ranks refuse this one's epoch."""
        try:
            if before is not None:
                try:
                    await asyncio.wait([before])
                except asyncio.CancelledError:  # Ctrl-C, just when the batch before it has landed
                    await self.attempt.release()
                    raise
                if before.cancelled() or before.exception() is not None:
                    await asyncio.wait(asked, timeout=ABORT_SECONDS)
                    if all(isinstance(_outcome(task), dict) for task in asked):  # before Ctrl-C was heard of
                        return [task.result().value for task in asked]
                    self.check()
                    raise MgraphError(f"graph {self.graph}: epoch {epoch} was not applied: a batch before it failed")
            return await self.attempt.finish(asked, together=True)
        except BaseException:
            if group is not None:
                group.done = made_before([_outcome(task) for task in asked])
            raise
        finally:
            self._ahead -= len(group.items) if group else 1
            del self._flying[asyncio.current_task()]  # type: ignore[arg-type]
            del asked, before  # see `Attempt.finish`

    async def _landed(self) -> None:
        while self._flying:
            await asyncio.wait(self._flying)

    async def _recall(self) -> None:
        if self._flying:
            next(iter(self._flying)).cancel()  # aborts, which fails those after it
        await self._landed()


def _outcome(asked: asyncio.Task[Answer]) -> Value | BaseException | None:
    """What a rank has answered."""
    if not asked.done() or asked.cancelled():
        return None
    return asked.exception() or asked.result().value


def _drop(bridge: Bridge, sessions: list[Session]) -> None:
    for session in sessions:
        if not bridge.post(session.drop):
            session.abandon()
