"""All ranks of one graph as its client sees them: a request to each, and what follows where one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from mgraph.errors import Aborted, GraphClosed, GraphLost, MgraphError, WorkerLost
from mgraph.runtime.link import Link
from mgraph.runtime.protocol import ABORT_SECONDS, encode

__all__ = ["Answer", "Ranks"]

CLOSE_SECONDS = 5.0
SETTLE_SECONDS = 30.0  #: how long a call waits for ranks that had not acknowledged the abort of the call before it
ALIKE_SECONDS = 0.1  #: after a first error, how long the other ranks have to fail by themselves

Answer = dict[str, Any]


class Ranks:
    """The sessions of one graph, in rank order. Its coroutines run on the client's event loop.

    A call that fails on any rank is aborted on the others, so that none waits for a rank that gave up, and the
    exchange that they shared is replaced under a new attempt number before the next call.

    Parameters
    ----------
    graph : str
        The graph's id.
    size : int
        How many ranks.

    Attributes
    ----------
    epoch : int
        The last epoch that every rank acknowledged.
    changes : int
        The last change of any kind, a batch or a move of range boundaries, that every rank acknowledged.
    attempt : int
        The number of the exchange in use.
    connected : bool
        Whether it is open.
    closed : bool
        Whether the user closed the graph.
    states : list of dict
        What each rank last said of itself: epoch, edges, bytes and the like.
    """

    def __init__(self, graph: str, size: int) -> None:
        self.graph = graph
        self.links: list[Link] = []
        self.epoch = self.changes = self.attempt = 0
        self.connected = self.closed = False
        self.states: list[Answer] = [{} for _ in range(size)]
        self._numbers = count()
        self._acks: list[asyncio.Future[Answer]] = []
        self._fatal: MgraphError | None = None
        self._garbage: list[str] = []

    async def open(self, addresses: Sequence[str], connection_args: dict[str, Any]) -> None:
        """Open all sessions, or none."""
        size = len(addresses)
        opening = [
            asyncio.create_task(Link.open(self.graph, rank, size, address, connection_args))
            for rank, address in enumerate(addresses)
        ]
        try:
            self.links.extend(await asyncio.gather(*opening))
        except BaseException:
            for task in opening:
                task.cancel()
            done = await asyncio.gather(*opening, return_exceptions=True)
            await asyncio.gather(*(self._close_link(link) for link in done if isinstance(link, Link)))
            raise

    async def close(self) -> None:
        """End all sessions."""
        # a call of another thread that is under way is released by the workers, and ends for want of links
        await asyncio.gather(*(self._close_link(link) for link in self.links))

    async def _close_link(self, link: Link) -> None:
        await link.close(next(self._numbers), CLOSE_SECONDS)

    def check(self) -> None:
        """Raise what any call would raise now without asking a worker."""
        if self.closed:
            raise GraphClosed(f"graph {self.graph} is closed (epoch {self.epoch})")
        if self._fatal is not None:
            raise type(self._fatal)(*self._fatal.args)
        if self._any_lost():
            self._fatal = self._loss()
            raise self._loss()

    def forget(self, result: str) -> None:
        """Free a result with the next call; safe in a finalizer, since it only notes it."""
        self._garbage.append(result)

    # ---- a call ------------------------------------------------------------------------------------------------------

    async def call(self, method: str, given: list[Answer], together: bool = True) -> list[Answer]:
        """Send a request to every rank and collect the answers; see `send` and `collected`."""
        return await self.collected(self.send(method, given), together)

    async def connect(self) -> None:
        """Make the exchange of this attempt: every rank opens one, then reaches the others."""
        opened = await self.call("open_exchange", [{}] * len(self.links))
        addresses = [answer["address"] for answer in opened]
        await self.call("connect_exchange", [{"addresses": addresses}] * len(self.links))
        self.connected = True

    def send(self, method: str, given: list[Answer]) -> list[asyncio.Future[Answer]]:
        """Send `method` and what each rank is `given` without waiting."""
        garbage, self._garbage = self._garbage, []
        message = {"type": "call", "attempt": self.attempt, "method": method, "free": garbage}
        seq = next(self._numbers)
        return [
            link.request(seq, {**message, "args": encode(args)}) for link, args in zip(self.links, given, strict=True)
        ]

    async def collected(self, futures: list[asyncio.Future[Answer]], together: bool) -> list[Answer]:
        """The answers, in rank order; or the error that made the others give up, once all are released."""
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
        if self.closed:
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
        attempt, self.attempt, self.connected = self.attempt, self.attempt + 1, False
        seq = next(self._numbers)
        self._acks = [link.request(seq, {"type": "abort", "attempt": attempt}) for link in self.links]
        await asyncio.wait(self._acks, timeout=ABORT_SECONDS)
        if all(ack.done() for ack in self._acks):
            await self._judge()

    async def settled(self) -> None:
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
            self.note([state for state in states if state is not None])

    async def _resolve(self, made: int) -> None:
        futures = self.send("resolve", [{"changes": made}] * len(self.links))
        done, pending = await asyncio.wait(futures, timeout=ABORT_SECONDS)
        failed = pending or any(future.exception() is not None for future in done)
        if failed and made > self.changes and self._fatal is None:
            self._fatal = GraphLost(
                f"graph {self.graph} was lost after the vote on a batch; the last epoch acknowledged by all is "
                f"{self.epoch}; only close() works"
            )
        if not failed:
            self.note([future.result() for future in futures])

    def note(self, answers: list[Answer]) -> None:
        """Keep what the ranks say of themselves; an epoch is acknowledged once all say it."""
        for rank, answer in enumerate(answers):
            if "epoch" in answer:
                self.states[rank] = {key: value for key, value in answer.items() if not hasattr(value, "dtype")}
        if all("epoch" in answer for answer in answers):
            self.epoch = min(answer["epoch"] for answer in answers)
            self.changes = min(answer["changes"] for answer in answers)

    def _any_lost(self) -> bool:
        return any(link.lost is not None for link in self.links)


def _errors(futures: list[asyncio.Future[Answer]]) -> list[BaseException]:
    done = [future for future in futures if future.done()]
    return [error for error in (future.exception() for future in done) if error is not None]
