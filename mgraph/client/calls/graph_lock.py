"""The lock of a published graph, which several clients call.

`mgraph.worker.sessions.published` has the worker's side.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection
from functools import partial
from typing import Any

from mgraph.client.calls.exchange_lifecycle import ExchangeLifecycle
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.calls.send_lock import SendLock
from mgraph.client.connections.sessions import Sessions
from mgraph.errors import GraphClosed, MgraphError
from mgraph.plain import pack, unpack
from mgraph.protocol import ABORT_SECONDS, SILENCE_SECONDS, Done, ShardState, Turn

__all__ = ["GraphLock"]

logger = logging.getLogger(__name__)

RANK = 0  #: the rank that grants the lock
KEEP_SECONDS = 0.05  #: time after a call for which the lock is kept, unless another client wants it

_HELD = threading.local()  #: `graphs`: those whose lock the thread has


class GraphLock:
    """Lock a published graph against the calls of its other clients: a reentrant context manager.

    Rank 0 grants the lock to one client after another. Other threads of this client wait. With the lock the client
    takes over the last holder's knowledge of the ranks. If that holder was cut off, the ranks are released first, and
    an interrupted vote is decided.

    Between two calls the client keeps the lock for `KEEP_SECONDS`, or until another client wants it. So calls in
    succession ask for it once.

    Parameters
    ----------
    runner : LoopRunner
    sessions : Sessions
    exchange : ExchangeLifecycle
    send_lock : SendLock
        Calls are sent with it. What is being sent is sent before the graph's lock is returned.
    flying : collection of tasks
        The batches in flight, which end before the lock is returned, too.
    """

    def __init__(
        self,
        runner: LoopRunner,
        sessions: Sessions,
        exchange: ExchangeLifecycle,
        send_lock: SendLock,
        flying: Collection[asyncio.Task[Any]],
    ) -> None:
        self._runner, self._sessions, self._exchange = runner, sessions, exchange
        self._send_lock, self._flying = send_lock, flying
        self._lock, self._depth = threading.RLock(), 0
        # The number of its `Turn`, and the block that uses the lock. `_mutex` guards them.
        self._mutex = threading.Lock()
        self._turn: int | None = None
        self._user: object = None
        self._wanted: int | None = None  # the last turn that another client waited for
        self._uses, self._keeping = 0, False
        self._knows = False  # True if the ranks' states are known
        self._ending: set[asyncio.Task[None]] = set()
        sessions.all[RANK].wanted = self._note_wanted

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            # A block around this one keeps the graph's lock, even if Ctrl-C comes here.
            if self._depth == 0:
                self._check_thread()
                self._enter()
            else:
                self._depth += 1
        except BaseException:
            self._lock.release()
            raise

    def _enter(self) -> None:
        user = object()
        try:
            _HELD.graphs.add(self._sessions.graph)
            if not self._use_again(user):
                self._runner.run(self._begin(user), 2 * ABORT_SECONDS)
            self._depth = 1
        except BaseException:
            _HELD.graphs.discard(self._sessions.graph)
            self._runner.post(partial(self._return, user))
            raise

    def __exit__(self, *exc: object) -> None:
        depth = self._depth - 1
        try:
            self._exit(depth)
        except KeyboardInterrupt:  # other clients would wait for ever
            self._exit(depth)
            raise
        finally:
            self._lock.release()

    def _exit(self, depth: int) -> None:
        """Leave a block; nothing is lost if Ctrl-C comes here and this is called again."""
        self._depth = depth
        if depth == 0:
            _HELD.graphs.discard(self._sessions.graph)
            self._leave()

    def _check_thread(self) -> None:
        """Raise `MgraphError` if this thread has the lock as another client, and so would wait for itself."""
        _HELD.graphs = getattr(_HELD, "graphs", set())
        if (graph := self._sessions.graph) in _HELD.graphs:
            raise MgraphError(
                f"graph {graph}: this thread is in a call or a pipeline of another client of the graph, and this call "
                "would wait for its end; gather results of that client first, as by to_numpy()"
            )

    def _use_again(self, user: object) -> bool:
        """Use the lock that was kept. False if it is returned, or this client cannot make calls any more."""
        exchange = self._exchange
        with self._mutex:
            if self._turn is None or self._turn == self._wanted:
                return False
            if exchange.lost or exchange.aborting or self._sessions.closed:
                return False
            self._user, self._uses = user, self._uses + 1
            return True

    def _leave(self) -> None:
        """Keep the lock for a while, or return it if another client wants it."""
        with self._mutex:
            self._user = None
            keep = self._turn is not None and self._turn != self._wanted
            if keep and not self._keeping:
                self._runner.post(self._keep)
                self._keeping = True
        if not keep:
            self._runner.post(self._return)

    def _taken(self, user: object = None) -> int | None:
        """Return the turn, for the caller to end; None without one, or if another block than that of `user` uses it."""
        with self._mutex:
            if self._user not in (None, user):
                return None
            turn, self._turn, self._user = self._turn, None, None
            return turn

    @property
    def held(self) -> bool:
        """True if this client has the lock."""
        return self._turn is not None

    # ---- on the event loop -------------------------------------------------------------------------------------------

    async def _begin(self, user: object) -> None:
        self._exchange.check()
        if self._turn is not None:
            self._user = user
            return

        # Ask rank 0 for the lock; log a warning if another client keeps it for long.
        seq = self._sessions.next_number()
        asked = self._sessions.ask(RANK, Turn(seq))
        loop, graph = asyncio.get_running_loop(), self._sessions.graph
        warning = "graph %s: another client has had the turn for %g s; this call waits until that one's call has ended"
        late = loop.call_later(SILENCE_SECONDS, logger.warning, warning, graph, SILENCE_SECONDS)
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:  # Ctrl-C
            self._sessions.tell(RANK, Done(seq))
            raise
        finally:
            late.cancel()
        if self._sessions.closed:
            raise GraphClosed(f"graph {graph} was closed while a call waited for its turn")

        # Take over the last holder's knowledge.
        grant = asked.result().value
        with self._mutex:
            self._turn, self._user, self._uses = seq, user, self._uses + 1
        if grant["attempt"] is None:  # the graph is not published after all, and rank 0 knows of no holder
            self._wanted = seq  # so it is not kept
            return
        await self._take_over(grant["attempt"], grant["known"])

    async def _take_over(self, number: int, state: bytes | None) -> None:
        """Take over the last holder's states, or ask the ranks."""
        self._knows = state is not None

        # Without a state the last holder was cut off: the ranks may be in a call.
        if state is not None:
            connected, states = unpack(state)
            self._exchange.resume(number, connected)
            self._sessions.know([ShardState(*state) for state in states])
        else:
            self._exchange.resume(number, False)
            await self._exchange.abort()
            await self._exchange.wait_for_aborts()
        self._exchange.check()
        self._knows = True

    def _note_wanted(self, turn: int) -> None:
        """Return the lock to the client that waits for it, now or after the call under way."""
        self._wanted = turn
        if turn == self._turn:
            self._return()

    def _keep(self, uses: int = -1) -> None:
        """Return the lock if it was not used since it had this number of `uses`; else look again later."""
        with self._mutex:
            self._keeping = self._turn is not None and (self._user is not None or uses != self._uses)
        if self._keeping:
            asyncio.get_running_loop().call_later(KEEP_SECONDS, self._keep, self._uses)
        else:
            self._return()

    def _return(self, user: object = None) -> None:
        """Return the lock soon, unless another block than that of `user` uses it."""
        if (turn := self._taken(user)) is not None:
            task = asyncio.create_task(self._end(turn))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, turn: int) -> None:
        """Return the lock with the ranks' states for the next holder."""
        state = None
        try:
            # The next holder must find no call under way: after Ctrl-C the queue of a pipeline may still be connecting
            # the exchange.
            async with self._send_lock:
                while self._flying:
                    await asyncio.wait(self._flying)
                await self._exchange.wait_for_aborts()
                self._exchange.check()
                if self._knows:
                    state = self.packed_state(self._exchange, self._sessions)
        except MgraphError:  # the next holder finds out
            pass
        finally:
            self._sessions.tell(RANK, Done(turn, self._exchange.number, state))

    @staticmethod
    def packed_state(exchange: ExchangeLifecycle, sessions: Sessions) -> bytes:
        """Return the packed states of the ranks and the exchange, for another client's next call."""
        return pack((exchange.connected, [tuple(state) for state in sessions.states]))
