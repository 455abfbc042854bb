"""Coordinator of a graph's calls, which run in the same order on all ranks."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar

from mgraph.calls import CALLS, CallSize, RemoteCall
from mgraph.client.calls.admission import may_lack_memory, refusal
from mgraph.client.calls.batch_group import WAITING, BatchGroup, SmallBatch, committed_counts
from mgraph.client.calls.batch_queue import BatchQueue
from mgraph.client.calls.caller import GraphStatus, Value
from mgraph.client.calls.channel_calls import ChannelCalls
from mgraph.client.calls.exchange_lifecycle import ExchangeLifecycle
from mgraph.client.calls.graph_lock import GraphLock
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.calls.send_lock import SendLock
from mgraph.client.connections.session import Session
from mgraph.client.connections.sessions import CLOSE_SECONDS, Asked, Sessions
from mgraph.errors import CapacityError, GraphClosed, MgraphError
from mgraph.protocol import ABORT_SECONDS, PATIENCE_SECONDS, Answer, Publish, ShardState

__all__ = ["Coordinator", "Flight", "Value"]

GRACE_SECONDS = 2 * ABORT_SECONDS  #: time after Ctrl-C for the ranks to be released

T = TypeVar("T")
Flight = asyncio.Task[list[Value]]  #: a batch in flight; the result of the task is the ranks' answers


class Coordinator:
    """Makes the calls of a graph on all its shards, in the same order.

    One call runs at a time, reads included; calls of other threads wait in a queue, in the order in which they came.
    Only batches of a pipeline may overlap: the ranks queue them, and other calls wait until all of them are committed.
    `ExchangeLifecycle` handles failures of ranks.

    The sessions end when this object is collected. Only its graph refers to it, and the sessions do not.

    Parameters
    ----------
    graph : str
        The graph's id.
    runner : LoopRunner
        Runs coroutines on the client's event loop.
    addresses : sequence of str
        The addresses of the workers, in rank order.
    connection_args : dict
        The client's security arguments for `distributed.comm.connect`.
    patience : float
        Seconds without a message after which a worker counts as lost.

    Attributes
    ----------
    groups : bool
        True: small batches of a pipeline share messages.
    sessions : Sessions
        The sessions with all ranks, and the ranks' last states.
    exchange : ExchangeLifecycle
        The exchange that the ranks share.
    one_process : bool
        True if all workers are in this process.
    lock : context manager
        Holds back the calls of other clients and threads; a no-op unless the graph is shared. On entry, `status` is
        brought up to date with the ranks.
    client : distributed.Client or None
        The client whose cluster holds the graph, if known.
    """

    groups = True
    client: Any = None

    def __init__(
        self,
        graph: str,
        runner: LoopRunner,
        addresses: Sequence[str],
        connection_args: dict[str, Any],
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.graph, self.runner, self.addresses = graph, runner, tuple(addresses)
        self.sessions = Sessions(graph, self.addresses, patience)
        self.exchange = ExchangeLifecycle(self.sessions)
        self._connection_args, self._process = connection_args, os.getpid()
        self._send_lock = SendLock()
        self._interrupted = False
        self._graph_lock: GraphLock | None = None
        self.lock: AbstractContextManager[None] = nullcontext()
        self._flying: dict[Flight, Sequence[CallSize]] = {}
        self._ahead = 0  # epochs in flight
        self._queue = BatchQueue(self._send_lock, self._flying)
        self._channels = ChannelCalls(
            runner, self.sessions, self.exchange, self._send_lock, self._flying, self._queue, self._may_call
        )
        self.one_process = all(address.startswith("inproc:") for address in self.addresses)
        weakref.finalize(self, _drop, runner, self.sessions.all).atexit = False  # at exit the system closes the comms

    # ---- from the user's thread --------------------------------------------------------------------------------------

    def open(self, attach: bool = False) -> None:
        """Open all sessions or none.

        With `attach`, connect to the shards of a published graph.

        Raises
        ------
        WorkerLost
            A worker cannot be reached from this process.
        GraphClosed
            The graph is not published any more.
        """
        self.runner.run(self.sessions.open(self._connection_args, attach), ABORT_SECONDS)
        if attach:
            self._share()

    def publish(self, name: str | None, card: bytes = b"") -> None:
        """Let the workers keep the shards, with a `card` for clients that attach. None withdraws the name.

        Rank 0 is published last, since clients look for the graph there.
        """
        if name is None and self._graph_lock is None:
            return
        self._check_process()
        with self.lock:
            self.runner.run(self._publish(name, card), GRACE_SECONDS)

    def _may_call(self) -> bool:
        """Return True if no other client can call the graph now."""
        return self._graph_lock is None or self._graph_lock.held

    def _share(self) -> None:
        lock = GraphLock(self.runner, self.sessions, self.exchange, self._send_lock, self._flying)
        self.lock = self._graph_lock = lock
        self.exchange.shared = True

    def call(
        self,
        name: str,
        args: Value | None = None,
        shares: Sequence[Value] | None = None,
    ) -> list[Value]:
        """Make a call on all ranks and return their answers in order.

        Parameters
        ----------
        name : str
            A key of `mgraph.calls.CALLS`, which describes each call.
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
            The call's error on a rank. If ranks raised different errors, the one that caused the others.
        """
        self._check_process()
        call, args, shares = CALLS[name], args or {}, shares or [{}] * len(self.addresses)
        # Channels first; otherwise the comm, from the event loop.
        with self.lock:
            try:
                answers = self._channels.call(call, args, shares)
            except KeyboardInterrupt:
                self._interrupted = True
                raise
            if answers is None:
                return self._run(self._call_locked(call, [{**args, **share} for share in shares]))
            self._interrupted = False
            return answers

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the event loop. Ctrl-C leaves the graph `unsettled`: a change may be under way."""
        if os.getpid() != self._process:
            work.close()
        self._check_process()
        try:
            return self.runner.run(work, GRACE_SECONDS)
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
        """Send a batch without waiting for its outcome.

        The ranks apply batches in the order sent.

        Parameters
        ----------
        name, shares
            As in `call`.
        sizes : sequence of CallSize
            The call's size for each rank.
        room : callable
            Awaited on the event loop before the batch is sent. If it raises an error, the batch is not sent.
        sent : callable
            Called on the event loop with the batch's `Flight` and its epoch.
        """
        self._run(self._launch_locked(CALLS[name], shares, sizes, room, sent))

    def post(self, small: SmallBatch) -> None:
        """Queue a small batch, to be sent soon in a group.

        Later calls and batches come after it on the ranks. Blocks while the queue has `WAITING` batches.
        """
        self._check_process()
        begin = partial(self._queue.begin, self._launch)
        try:
            if self._queue.add(small) and not self.runner.post(begin):
                raise GraphClosed(f"the Dask client of graph {self.graph} is closed (epoch {self.sessions.epoch})")
        except BaseException:
            self.runner.post(begin)  # after Ctrl-C no batch may wait for a task that nobody has begun
            raise
        if len(self._queue) >= WAITING:
            self._run(self._queue.send_locked(self._launch))

    def flush(self, wait: bool = True) -> None:
        """Do nothing: the event loop sends small batches by itself."""

    def land(self) -> None:
        """Wait until no batch is in flight."""
        self._run(self._queue.send_locked(self._launch))
        self._run(self._landed())

    def recall(self) -> bool:
        """Drop the batches in flight that the ranks have not voted on, and wait until none is in flight.

        From now on, senders must refuse their queued batches. Returns False: the event loop may still handle some.
        """
        self._run(self._recall())
        return False

    def close(self) -> None:
        """End the sessions, so that the workers free the shards.

        May be called at any time, and twice. Takes a few seconds at most.
        """
        self.sessions.closed = True
        if os.getpid() != self._process:  # the sessions are the parent's
            return
        try:
            if self.runner.alive:
                self.runner.run(self.sessions.close(), CLOSE_SECONDS)
        finally:
            self.drop()

    def drop(self) -> None:
        """Close every comm without waiting, from any thread. A graph that is collected unclosed ends this way."""
        _drop(self.runner, self.sessions.all)

    def forget(self, result: str) -> None:
        """Free a result on the workers with the next call. Safe in a finalizer: it only records the key."""
        self.sessions.forget(result)

    def _check_process(self) -> None:
        """Raise `GraphClosed` in a forked child, whose calls would mix with its parent's on the same sockets."""
        if os.getpid() != self._process:
            raise GraphClosed(
                f"graph {self.graph} on a cluster is of process {self._process}, of which this one is a fork: publish "
                "the graph there, and attach to it here by a Dask client of this process"
            )

    def check(self) -> None:
        """Raise `GraphClosed`, `GraphLost` or `WorkerLost` if no call is possible any more. Makes no call."""
        self._check_process()
        if not self.sessions.closed and not self.runner.alive:
            raise GraphClosed(f"the Dask client of graph {self.graph} is closed (epoch {self.sessions.epoch})")
        self.exchange.check()

    @property
    def status(self) -> GraphStatus:
        """The client's knowledge of the graph; makes no call."""
        sessions, lost = self.sessions, self.exchange.lost
        usable = not (lost or sessions.closed) and self.runner.alive
        unsettled = self._interrupted or self.exchange.aborting or lost
        silent = tuple(session.address for session in sessions.all if session.silent) if lost else ()
        # In the order of `GraphStatus`, whose own constructor takes twice as long.
        status = (
            self.graph, self.addresses, self.one_process, 0, sessions.states, sessions.epoch, sessions.changes,
            sessions.closed, usable, unsettled, silent,
        )  # fmt: skip
        return tuple.__new__(GraphStatus, status)

    @property
    def settled(self) -> bool:
        """True if `status` is usable and not unsettled."""
        sessions = self.sessions
        blocked = self._interrupted or sessions.closed or self.exchange.blocked or sessions.any_lost
        return not blocked and self.runner.alive and os.getpid() == self._process

    @property
    def epoch(self) -> int:
        """The last epoch that every rank acknowledged."""
        return self.sessions.epoch

    @property
    def states(self) -> list[ShardState]:
        """The last state of each rank."""
        return self.sessions.states

    @property
    def write_once(self) -> bool:
        """True if an array for all ranks is written once, to memory that all of them read."""
        return self.sessions.write_once

    @property
    def reached(self) -> int:
        """The epoch that all ranks have reached, even during a call: by their last beats, at most a second old."""
        return max(self.sessions.epoch, min(session.reached for session in self.sessions.all))

    @property
    def queued(self) -> int:
        """The number of batches in flight, and of small batches that wait for the next message."""
        # In this order a batch that passes on meanwhile is not missed.
        return len(self._queue) + self._queue.leaving + self._ahead

    # ---- on the event loop -------------------------------------------------------------------------------------------

    async def _call_locked(self, call: RemoteCall, rank_args: list[Value]) -> list[Value]:
        async with self._send_lock:
            # Calls come after the small batches of the queue and the batches in flight.
            await self._queue.send(self._launch)
            await self._ready(call.exchange, alone=True)
            if self.sessions.common_due:
                await self.sessions.open_common()
            epoch = self.sessions.epoch + 1 if call.epoch else None
            if call.epoch:
                rank_args = [{**args, "epoch": epoch} for args in rank_args]

            # Reserve memory on the workers, then send.
            sizes = [call.size(args) for args in rank_args]
            await self._reserve(sizes)
            calls = self.sessions.calls(call.handler, rank_args, self.exchange.number)
            answers = await self.exchange.finish_call(call, self.sessions.send(calls, sizes), epoch)
            self._interrupted = False  # an interrupted call before this one has ended
            return answers

    async def _publish(self, name: str | None, card: bytes) -> None:
        async with self._send_lock:
            await self._queue.send(self._launch)
            await self._ready(connect=False, alone=True)
            state = GraphLock.packed_state(self.exchange, self.sessions)
            if self._graph_lock is None:
                self._share()

            # On failure, withdraw the name from the ranks that have it.
            ranks = range(len(self.addresses))
            for rank in reversed(ranks):
                message = Publish(self.sessions.next_number(), name, card, self.exchange.number, state)
                try:
                    await asyncio.shield(self.sessions.ask(rank, message))
                except BaseException:
                    withdraw = Publish(self.sessions.next_number(), None)
                    asked = [self.sessions.ask(other, withdraw) for other in ranks[rank:] if name is not None]
                    if asked:  # the name may be taken again at once
                        await asyncio.wait(asked, timeout=ABORT_SECONDS)
                    raise

    async def _ready(self, connect: bool, alone: bool) -> None:
        """Wait until a call can be sent.

        That is after all batches in flight if the call runs `alone`, or if the ranks are being released.
        """
        if alone or not self.exchange.connected:
            await self._landed()
        self.check()
        if not self._may_call():
            raise MgraphError(f"graph {self.graph} was published while this call, or its pipeline, was under way")
        await self.exchange.wait_for_aborts()
        if connect and not self.exchange.connected:
            await self.exchange.connect()

    def _may_lack_memory(self, sizes: Sequence[CallSize]) -> bool:
        """Return True if a worker may lack memory for its call. Within one process nothing is copied."""
        return not self.one_process and may_lack_memory(sizes, list(self._flying.values()), self.sessions.states)

    async def _reserve(self, sizes: Sequence[CallSize]) -> None:
        """Reserve memory for a call's arguments if a worker may lack it.

        Nothing is in flight: the memory of earlier calls is free again, and a failed call releases no rank twice.
        """
        if not self._may_lack_memory(sizes):
            return
        why = refusal(await self._ask("reserve", [size._asdict() for size in sizes]))
        if why is not None:
            await self._free_reserved()
            raise CapacityError(f"graph {self.graph}: {why}; nothing was sent")

    async def _free_reserved(self) -> None:
        await self._ask("reserve", [{"nbytes": 0}] * len(self.addresses))

    async def _ask(self, method: str, rank_args: list[Value]) -> list[Value]:
        calls = self.sessions.calls(method, rank_args, self.exchange.number)
        return await self.exchange.finish(self.sessions.send(calls), together=False)

    async def _launch_locked(
        self,
        call: RemoteCall,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[Flight, int], None],
    ) -> None:
        async with self._send_lock:
            await self._queue.send(self._launch)
            await self._launch(call, shares, sizes, room, sent)

    async def _launch(
        self,
        call: RemoteCall,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[Flight, int], None],
        group: BatchGroup | None = None,
    ) -> None:
        # Wait until the batch may be sent.
        await room()
        await self._ready(connect=True, alone=False)
        # Raises an error if the batch before failed meanwhile.
        await room()
        if self._may_lack_memory(sizes):
            await self._landed()
            await room()
            await self._reserve(sizes)
            # Ctrl-C may have ended the pipeline meanwhile.
            try:
                await room()
            except BaseException:
                await self._free_reserved()
                raise
        # Send it as the epoch after the batches in flight.
        epoch = self.sessions.epoch + 1 + self._ahead
        rank_args = [{**args, "epoch": epoch, "ahead": True} for args in shares]
        asked = self.sessions.send(self.sessions.calls(call.handler, rank_args, self.exchange.number), sizes)
        before = next(reversed(self._flying), None)
        flight = asyncio.create_task(self._land(before, asked, epoch, group))
        self._flying[flight] = sizes
        self._ahead += len(group.items) if group else 1
        sent(flight, epoch)

    async def _land(
        self, before: Flight | None, asked: Asked, epoch: int, group: BatchGroup | None = None
    ) -> list[Value]:
        """Return the answers to a batch in flight.

        If the batch `before` it failed, the ranks refuse this one's epoch.
        """
        try:
            # Land in order: an earlier failure decides this batch, too.
            if before is not None:
                try:
                    await asyncio.wait([before])
                except asyncio.CancelledError:
                    # Ctrl-C came just as the batch before this one landed.
                    await self.exchange.abort()
                    raise
                if before.cancelled() or before.exception() is not None:
                    await asyncio.wait(asked, timeout=ABORT_SECONDS)
                    # It may have landed before Ctrl-C came. After a loss it is lost too, whatever the ranks answered:
                    # all epochs up to one that is acknowledged have an answer.
                    if before.cancelled() and all(isinstance(_outcome(task), dict) for task in asked):
                        return [task.result().value for task in asked]
                    self.check()
                    if before.cancelled():  # so Ctrl-C has stopped this one, too
                        raise asyncio.CancelledError
                    raise MgraphError(f"graph {self.graph}: epoch {epoch} was not applied: a batch before it failed")

            # Errors from here on are this batch's own.
            return await self.exchange.finish(asked, together=True)
        except BaseException:
            if group is not None:
                group.done = committed_counts([_outcome(task) for task in asked])
            raise
        finally:
            self._ahead -= len(group.items) if group else 1
            del self._flying[asyncio.current_task()]  # type: ignore[arg-type]
            del asked, before  # see `ExchangeLifecycle.finish`

    async def _landed(self) -> None:
        while self._flying:
            await asyncio.wait(self._flying)

    async def _recall(self) -> None:
        # A flight that is cancelled before it begins would neither abort the call nor leave `_flying`.
        while self._flying and getcoroutinestate(next(iter(self._flying)).get_coro()) == CORO_CREATED:  # type: ignore[arg-type]
            await asyncio.sleep(0)
        if self._flying:
            next(iter(self._flying)).cancel()  # aborts, which fails those after it
        await self._landed()


def _outcome(asked: asyncio.Task[Answer]) -> Value | BaseException | None:
    """Return a rank's answer or error; None if neither has come."""
    if not asked.done() or asked.cancelled():
        return None
    return asked.exception() or asked.result().value


def _drop(runner: LoopRunner, sessions: list[Session]) -> None:
    for session in sessions:
        if not runner.post(session.drop):
            session.abandon()
