"""The client's side of one graph: the order of its calls, one at a time or batches in flight."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mgraph.errors import MgraphError
from mgraph.runtime.bridge import Bridge
from mgraph.runtime.link import Link
from mgraph.runtime.protocol import ABORT_SECONDS
from mgraph.runtime.ranks import CLOSE_SECONDS, Answer, Ranks

__all__ = ["Coordinator"]


class Coordinator:
    """Calls the shards of one graph, all of them in the same order.

    One call is under way at a time, for reads too; callers of other threads queue, first come, first served. Only
    batches of a pipeline may be several: the ranks queue them, and other calls wait until all have landed. What follows
    where a rank fails is the business of its `Ranks`.

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
    ranks : Ranks
        The sessions, and what is known of them.
    """

    def __init__(self, graph: str, bridge: Bridge, addresses: Sequence[str], connection_args: dict[str, Any]) -> None:
        self.graph, self.bridge, self.addresses = graph, bridge, tuple(addresses)
        self.ranks = Ranks(graph, len(self.addresses))
        self._connection_args = connection_args
        self._turn = asyncio.Lock()
        self._flying: list[asyncio.Task[list[Answer]]] = []
        weakref.finalize(self, _drop, bridge, self.ranks.links).atexit = False  # at exit the system closes the comms

    # ---- from the user's thread --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open all sessions, or none.

        Raises
        ------
        WorkerLost
            A worker cannot be reached from here.
        """
        self.bridge.run(lambda: self.ranks.open(self.addresses, self._connection_args), ABORT_SECONDS)

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
        self.ranks.closed = True
        try:
            if self.bridge.alive:
                self.bridge.run(self.ranks.close, CLOSE_SECONDS)
        finally:
            self.drop()

    def drop(self) -> None:
        """Close every comm without waiting, from any thread; what happens to a graph that nobody closed."""
        _drop(self.bridge, self.ranks.links)

    def forget(self, result: str) -> None:
        """Free a result on the workers with the next call; safe in a finalizer, since it only notes it."""
        self.ranks.forget(result)

    def check(self) -> None:
        """Raise what any call would raise now without asking a worker."""
        self.ranks.check()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.ranks.closed

    @property
    def epoch(self) -> int:
        """The last epoch that every rank acknowledged."""
        return self.ranks.epoch

    @property
    def states(self) -> list[Answer]:
        """What each rank last said of itself: epoch, edges, bytes and the like."""
        return self.ranks.states

    # ---- on the event loop -------------------------------------------------------------------------------------------

    async def _call_in_turn(self, method: str, given: list[Answer], connect: bool, commits: bool) -> list[Answer]:
        async with self._turn:
            await self._ready(connect, alone=True)
            if commits:
                given = [{**args, "epoch": self.ranks.epoch + 1} for args in given]
            answers = await self.ranks.call(method, given, connect)
            self.ranks.note(answers)
            return answers

    async def _ready(self, connect: bool, alone: bool) -> None:
        """Wait until a call can be sent: after the batches in flight, if `alone` or if they are being released."""
        if alone or not self.ranks.connected:
            await self._landed()
        self.ranks.check()
        await self.ranks.settled()
        if connect and not self.ranks.connected:
            await self.ranks.connect()

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
            epoch = self.ranks.epoch + 1 + len(self._flying)
            futures = self.ranks.send(method, [{**args, "epoch": epoch} for args in given])
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
                    self.ranks.check()
                    raise MgraphError(f"graph {self.graph}: epoch {epoch} was not applied: a batch before it failed")
            answers = await self.ranks.collected(futures, together=True)
            self.ranks.note(answers)
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


def _drop(bridge: Bridge, links: list[Link]) -> None:
    for link in links:
        if not (bridge.alive and bridge.post(link.drop)):
            link.abandon()
