"""The lock of a published graph, which several clients call; see `mgraph.worker.sessions.published`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection
from typing import Any

from mgraph.client.calls.exchange_lifecycle import ExchangeLifecycle
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.connections.sessions import Sessions
from mgraph.errors import GraphClosed, MgraphError
from mgraph.plain import pack, unpack
from mgraph.protocol import ABORT_SECONDS, SILENCE_SECONDS, Done, ShardState, Turn

__all__ = ["GraphLock"]

logger = logging.getLogger(__name__)

RANK = 0  #: the one that gives the lock


class GraphLock:
    """Lock a published graph against the calls of its other clients. A context manager; a thread may enter it again.

    Rank 0 gives the lock to one client after another. Other threads of this client wait. Once it is entered, the client
    knows about the ranks what the last holder knew. If that one was cut off, the ranks are released first, and an
    interrupted vote is decided.

    Parameters
    ----------
    runner : LoopRunner
    sessions : Sessions
    exchange : ExchangeLifecycle
    flying : collection of tasks
        The batches in flight, which end before the lock is given back.
    """

    def __init__(
        self, runner: LoopRunner, sessions: Sessions, exchange: ExchangeLifecycle, flying: Collection[asyncio.Task[Any]]
    ) -> None:
        self._runner, self._sessions, self._exchange, self._flying = runner, sessions, exchange, flying
        self._lock, self._depth = threading.RLock(), 0
        self._turn: int | None = None  # the number of its `Turn`; a Ctrl-C at the wrong moment may leave it so
        self._knows = False  # what the ranks have
        self._ending: set[asyncio.Task[None]] = set()

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            if self._depth == 0:
                self._runner.run(self._begin(), 2 * ABORT_SECONDS)
            self._depth += 1
        except BaseException:
            self._runner.post(self._end_soon)
            self._lock.release()
            raise

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._runner.post(self._end_soon)
        self._lock.release()

    @property
    def held(self) -> bool:
        """True if this client has the lock."""
        return self._turn is not None

    # ---- on the event loop -------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._exchange.check()
        if self._turn is not None:
            return
        seq = self._sessions.next_number()
        asked = self._sessions.ask(RANK, Turn(seq))
        loop, graph = asyncio.get_running_loop(), self._sessions.graph
        what = "graph %s: another client has had the turn for %g s; this call waits until that one's call has ended"
        late = loop.call_later(SILENCE_SECONDS, logger.warning, what, graph, SILENCE_SECONDS)
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:  # Ctrl-C
            self._sessions.tell(RANK, Done(seq))
            raise
        finally:
            late.cancel()
        if self._sessions.closed:
            raise GraphClosed(f"graph {graph} was closed while a call waited for its turn")
        given = asked.result().value
        self._turn = seq
        if given["attempt"] is None:  # the graph is not published after all
            return
        await self._go_on(given["attempt"], given["known"])

    async def _go_on(self, number: int, known: bytes | None) -> None:
        """Take over what the last holder knew; where that may be wrong, find out what the ranks have."""
        self._knows = known is not None
        if known is not None:
            connected, states = unpack(known)
            self._exchange.resume(number, connected)
            self._sessions.know([ShardState(*state) for state in states])
        else:
            self._exchange.resume(number, False)
            await self._exchange.abort()
            await self._exchange.wait_for_aborts()
        self._exchange.check()
        self._knows = True

    def _end_soon(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            task = asyncio.create_task(self._end(turn))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, turn: int) -> None:
        """Say what the ranks have, and let another client go on."""
        known = None
        try:
            while self._flying:
                await asyncio.wait(self._flying)
            await self._exchange.wait_for_aborts()
            self._exchange.check()
            if self._knows:
                known = self.known_of(self._exchange, self._sessions)
        except MgraphError:  # the next holder finds out
            pass
        finally:
            self._sessions.tell(RANK, Done(turn, self._exchange.number, known))

    @staticmethod
    def known_of(exchange: ExchangeLifecycle, sessions: Sessions) -> bytes:
        """What another client has to know to make the next call."""
        return pack((exchange.connected, [tuple(state) for state in sessions.states]))
