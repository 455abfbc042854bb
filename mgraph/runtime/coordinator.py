"""The client's side of one graph: the order of its calls, and what happens when one of them fails."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from mgraph.errors import Aborted, GraphClosed, GraphLost, MgraphError, WorkerLost
from mgraph.runtime.bridge import Bridge
from mgraph.runtime.link import Link
from mgraph.runtime.protocol import ABORT_SECONDS, encode

__all__ = ["Coordinator"]

CLOSE_SECONDS = 5.0
SETTLE_SECONDS = 30.0  #: how long a call waits for ranks that had not acknowledged the abort of the call before it
ALIKE_SECONDS = 0.1  #: after a first error, how long the other ranks have to fail by themselves

Answer = dict[str, Any]


class Coordinator:
    """Calls the shards of one graph, all of them in the same order.

    One call is under way at a time, for reads too; callers of other threads queue, first come, first served. Only
    batches of a pipeline may be several: the ranks queue them, and other calls wait until all have landed. A call that
    fails on any rank is aborted on the others, so that none waits for a rank that gave up, and the exchange that
    they shared is replaced under a new attempt number before the next call.

    Parameters
    ----------
    graph : str
        The graph's id.
    bridge : Bridge
        To the event loop of the client.
    addresses : sequence of str
        The workers, in rank order.
    connection_args : dict
        For `distributed.comm.connect`: the client's security.

    Attributes
    ----------
    epoch : int
        The last epoch that every rank acknowledged.
    changes : int
        The last change of any kind, a batch or a move of range boundaries, that every rank acknowledged.
    attempt : int
        The number of the exchange in use.
    states : list of dict
        What each rank last said of itself: epoch, edges, bytes and the like.
    """

    def __init__(self, graph: str, bridge: Bridge, addresses: Sequence[str], connection_args: dict[str, Any]) -> None:
        self.graph, self.bridge, self.addresses = graph, bridge, tuple(addresses)
        self.epoch = self.changes = 0
        self.attempt = 0
        self.states: list[Answer] = [{} for _ in self.addresses]
        self.links: list[Link] = []
        self._connection_args = connection_args
        self._numbers = count()
        self._turn = asyncio.Lock()
        self._connected = False
        self._acks: list[asyncio.Future[Answer]] = []
        self._flying: list[asyncio.Task[list[Answer]]] = []
        self._fatal: MgraphError | None = None
        self._closed = False
        self._garbage: list[str] = []
        weakref.finalize(self, _drop, bridge, self.links).atexit = False  # at exit the system closes the comms

    # ---- from the user's thread --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open all sessions, or none.

        Raises
        ------
        WorkerLost
            A worker cannot be reached from here.
        """
        self.bridge.run(self._open, ABORT_SECONDS)

    def call(
        self,
        method: str,
        args: Answer | None = None,
        shares: Sequence[Answer] | None = None,
        *,
        connect: bool = False,
        commits: bool = False,
    ) -> list[Answer]:
        """Run `method` on every rank and return the answers in rank order.

        Parameters
        ----------
        method : str
            One of the servant's.
        args : dict, optional
            The same for every rank.
        shares : sequence of dict, optional
            What each rank is given besides.
        connect : bool
            Whether the ranks speak to each other in this call, so that they need an exchange. Calls that change the
            graph do.
        commits : bool
            Whether this is a batch: it is given the next epoch, as the argument `epoch`.

        Raises
        ------
        WorkerLost
            A rank was lost during this call, or before it.
        GraphLost
            A rank was lost after the vote of an earlier batch.
        GraphClosed
            After `close`.
        Exception
            Whatever the call raised on a rank; where ranks differ, the error that made the others give up.
        """
        given = [{**(args or {}), **share} for share in (shares or [{}] * len(self.addresses))]
        return self.bridge.run(lambda: self._call_in_turn(method, given, connect, commits), 2 * ABORT_SECONDS)

    def launch(
        self,
        method: str,
        shares: Sequence[Answer],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[asyncio.Task[list[Answer]], int], None],
    ) -> None:
        """Send a batch without waiting for what becomes of it; the ranks apply batches in the order sent.

        Parameters
        ----------
        method, shares
            As in `call`.
        room : callable
            Waits, on the event loop, until the batch may be sent; what it raises prevents that.
        sent : callable
            Called on the event loop with the task that has the ranks' answers in the end, and the batch's epoch.
        """
        self.bridge.run(lambda: self._launch_in_turn(method, list(shares), room, sent), 2 * ABORT_SECONDS)

    def land(self) -> None:
        """Wait until no batch is in flight."""
        self.bridge.run(self._landed, 2 * ABORT_SECONDS)

    def recall(self) -> None:
        """Drop the batches in flight that are not yet voted on, and wait until none is in flight."""
        self.bridge.run(self._recall, 2 * ABORT_SECONDS)

    def close(self) -> None:
        """End the sessions; the workers free the shards. At any time, also twice; takes a few seconds at most."""
        self._closed = True
        try:
            if self.bridge.alive:
                self.bridge.run(self._close, CLOSE_SECONDS)
        finally:
            self.drop()

    def drop(self) -> None:
        """Close every comm without waiting, from any thread; what happens to a graph that nobody closed."""
        _drop(self.bridge, self.links)

    def forget(self, result: str) -> None:
        """Free a result on the workers with the next call; safe in a finalizer, since it only notes it."""
        self._garbage.append(result)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def check(self) -> None:
        """Raise what any call would raise now without asking a worker."""
        if self._closed:
            raise GraphClosed(f"graph {self.graph} is closed (epoch {self.epoch})")
        if self._fatal is not None:
            raise type(self._fatal)(*self._fatal.args)
        if any(link.lost is not None for link in self.links):
            self._fatal = self._loss()
            raise self._loss()

    # ---- on the event loop -------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        size = len(self.addresses)
        opening = [
            asyncio.create_task(Link.open(self.graph, rank, size, address, self._connection_args))
            for rank, address in enumerate(self.addresses)
        ]
        try:
            self.links.extend(await asyncio.gather(*opening))
        except BaseException:
            for task in opening:
                task.cancel()
            done = await asyncio.gather(*opening, return_exceptions=True)
            await asyncio.gather(*(self._close_link(link) for link in done if isinstance(link, Link)))
            raise

    async def _call_in_turn(self, method: str, given: list[Answer], connect: bool, commits: bool) -> list[Answer]:
        async with self._turn:
            await self._ready(connect, alone=True)
            if commits:
                given = [{**args, "epoch": self.epoch + 1} for args in given]
            answers = await self._call(method, given, connect)
            self._note(answers)
            return answers

    async def _ready(self, connect: bool, alone: bool) -> None:
        """Wait until a call can be sent: after the batches in flight, if `alone` or if they are being released."""
        if alone or not self._connected:
            await self._landed()
        self.check()
        await self._settled()
        if connect and not self._connected:
            await self._connect()

    async def _launch_in_turn(
        self,
        method: str,
        given: list[Answer],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[asyncio.Task[list[Answer]], int], None],
    ) -> None:
        async with self._turn:
            await room()
            await self._ready(connect=True, alone=False)
            await room()  # raises where the batch before failed meanwhile
            epoch = self.epoch + 1 + len(self._flying)
            futures = self._send(method, [{**args, "epoch": epoch} for args in given])
            before = self._flying[-1] if self._flying else None
            task = asyncio.create_task(self._land(before, futures, epoch))
            self._flying.append(task)
            sent(task, epoch)

    async def _land(
        self, before: asyncio.Task[list[Answer]] | None, futures: list[asyncio.Future[Answer]], epoch: int
    ) -> list[Answer]:
        """The answers to a batch in flight; it fails where that `before` it did: the ranks refuse its epoch."""
        try:
            if before is not None:
                await asyncio.wait([before])
                if before.cancelled() or before.exception() is not None:
                    await asyncio.wait(futures, timeout=ABORT_SECONDS)
                    self.check()
                    raise MgraphError(f"graph {self.graph}: epoch {epoch} was not applied: a batch before it failed")
            answers = await self._collected(futures, together=True)
            self._note(answers)
            return answers
        finally:
            self._flying.remove(asyncio.current_task())  # type: ignore[arg-type]

    async def _landed(self) -> None:
        while self._flying:
            await asyncio.wait(self._flying)

    async def _recall(self) -> None:
        if self._flying:
            self._flying[0].cancel()  # aborts, which fails those after it
        await self._landed()

    async def _connect(self) -> None:
        """Make the exchange of this attempt: every rank opens one, then reaches the others."""
        opened = await self._call("open_exchange", [{}] * len(self.links))
        addresses = [answer["address"] for answer in opened]
        await self._call("connect_exchange", [{"addresses": addresses}] * len(self.links))
        self._connected = True

    async def _call(self, method: str, given: list[Answer], together: bool = True) -> list[Answer]:
        return await self._collected(self._send(method, given), together)

    def _send(self, method: str, given: list[Answer]) -> list[asyncio.Future[Answer]]:
        garbage, self._garbage = self._garbage, []
        message = {"type": "call", "attempt": self.attempt, "method": method, "free": garbage}
        seq = next(self._numbers)
        return [
            link.request(seq, {**message, "args": encode(args)}) for link, args in zip(self.links, given, strict=True)
        ]

    async def _collected(self, futures: list[asyncio.Future[Answer]], together: bool) -> list[Answer]:
        try:
            return await self._collect(futures, together)
        except asyncio.CancelledError:  # Ctrl-C
            await self._abort()
            raise

    async def _collect(self, futures: list[asyncio.Future[Answer]], together: bool) -> list[Answer]:
        """All answers; or, after the first error, the ranks released and the error that caused the others raised.

        Where the ranks work `together`, an error may leave the exchange between two steps, and a change half done: they
        are released even if all of them failed alike.
        """
        _, pending = await asyncio.wait(futures, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            _, pending = await asyncio.wait(pending, timeout=ALIKE_SECONDS)
        errors = _errors(futures)
        if not pending and not errors:
            return [future.result() for future in futures]
        alike = len(errors) == len(futures) and len({(type(error), str(error)) for error in errors}) == 1
        if together or not alike or self._any_lost():
            await self._abort()
        raise self._cause(_errors(futures))

    def _cause(self, errors: list[BaseException]) -> BaseException:
        real = [error for error in errors if not isinstance(error, Aborted)]
        if self._closed:
            return GraphClosed(f"graph {self.graph} was closed while a call was running (epoch {self.epoch})")
        if self._any_lost():
            return self._loss()
        if real:
            return real[0]
        return MgraphError(f"graph {self.graph}, epoch {self.epoch}: the exchange broke down: {errors[0]}")

    def _loss(self) -> WorkerLost:
        """A new error each time, since each is raised with a traceback of its own."""
        lost = next(link.lost for link in self.links if link.lost is not None)
        return WorkerLost(f"{lost} (epoch {self.epoch})")

    # ---- after a failure ---------------------------------------------------------------------------------------------

    async def _abort(self) -> None:
        """Release every rank from this attempt; waits `ABORT_SECONDS` at most for them to say so."""
        attempt, self.attempt, self._connected = self.attempt, self.attempt + 1, False
        seq = next(self._numbers)
        self._acks = [link.request(seq, {"type": "abort", "attempt": attempt}) for link in self.links]
        await asyncio.wait(self._acks, timeout=ABORT_SECONDS)
        if all(ack.done() for ack in self._acks):
            await self._judge()

    async def _settled(self) -> None:
        """Wait until an earlier abort is acknowledged by all; a rank that never does makes the graph unusable."""
        if not self._acks:
            return
        _, pending = await asyncio.wait(self._acks, timeout=SETTLE_SECONDS)
        if pending:
            ranks = [rank for rank, ack in enumerate(self._acks) if ack in pending]
            self._fatal = GraphLost(
                f"graph {self.graph}: ranks {ranks} have not come back from an aborted call within "
                f"{SETTLE_SECONDS:g} s; the last acknowledged epoch is {self.epoch}; close the graph"
            )
        else:
            await asyncio.shield(self._judge())  # Ctrl-C must not leave a batch between commit and discard
        self.check()

    async def _judge(self) -> None:
        """After all ranks acknowledged or were lost: finish or undo a batch whose vote was under way.

        A rank that had voted for a change and was released before it heard the outcome keeps what it prepared. Where
        any rank has made that change, all had voted for it, so it is made everywhere; else nowhere. Ranks count their
        changes: the one that made the most knows.
        """
        states = [ack.result() if ack.exception() is None else None for ack in self._acks]
        self._acks = []
        known = [state for state in states if state is not None]
        made = max((state["changes"] for state in known), default=0)
        broken = [state["broken"] for state in known if state.get("broken")]
        if broken or (self._any_lost() and made > self.changes):
            why = broken[0] if broken else next(str(link.lost) for link in self.links if link.lost)
            self._fatal = GraphLost(
                f"graph {self.graph} was lost after the vote on a batch ({why}); the last epoch acknowledged by all is "
                f"{self.epoch}; only close() works"
            )
        if any(state["in_doubt"] for state in known):
            await self._resolve(made)
        elif self._fatal is None and not self._any_lost():
            self._note([state for state in states if state is not None])

    async def _resolve(self, made: int) -> None:
        futures = self._send("resolve", [{"changes": made}] * len(self.links))
        done, pending = await asyncio.wait(futures, timeout=ABORT_SECONDS)
        failed = pending or any(future.exception() is not None for future in done)
        if failed and made > self.changes and self._fatal is None:
            self._fatal = GraphLost(
                f"graph {self.graph} was lost after the vote on a batch; the last epoch acknowledged by all is "
                f"{self.epoch}; only close() works"
            )
        if not failed:
            self._note([future.result() for future in futures])

    def _note(self, answers: list[Answer]) -> None:
        """Keep what the ranks say of themselves; an epoch is acknowledged once all say it."""
        for rank, answer in enumerate(answers):
            if "epoch" in answer:
                self.states[rank] = {key: value for key, value in answer.items() if not hasattr(value, "dtype")}
        if all("epoch" in answer for answer in answers):
            self.epoch = min(answer["epoch"] for answer in answers)
            self.changes = min(answer["changes"] for answer in answers)

    def _any_lost(self) -> bool:
        return any(link.lost is not None for link in self.links)

    async def _close(self) -> None:
        # a call of another thread that is under way is released by the workers, and ends for want of links
        await asyncio.gather(*(self._close_link(link) for link in self.links))

    async def _close_link(self, link: Link) -> None:
        await link.close(next(self._numbers), CLOSE_SECONDS)


def _errors(futures: list[asyncio.Future[Answer]]) -> list[BaseException]:
    done = [future for future in futures if future.done()]
    return [error for error in (future.exception() for future in done) if error is not None]


def _drop(bridge: Bridge, links: list[Link]) -> None:
    for link in links:
        if not (bridge.alive and bridge.post(link.drop)):
            link.abandon()
