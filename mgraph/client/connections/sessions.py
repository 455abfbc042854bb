"""All sessions of a graph: requests to the ranks, and their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, TypeVar

from mgraph.calls import CallSize
from mgraph.client.connections.local_memory import open_common
from mgraph.client.connections.opening import open_session
from mgraph.client.connections.session import Request, Session
from mgraph.errors import WorkerLost
from mgraph.protocol import Abort, Answer, Call, Done, Hello, ShardState, Share
from mgraph.shared import Common

__all__ = ["Asked", "Sessions"]

CLOSE_SECONDS = 5.0  #: time for the workers to free their shards in `close`
ALIKE_SECONDS = 0.1  #: time, after a first error, for the same error of other ranks

T = TypeVar("T")
_STATE, _EPOCH, _CHANGES = map(attrgetter, ("state", "epoch", "changes"))
_LOST, _CHANNEL, _MEMORY_DUE = map(attrgetter, ("lost", "channel", "memory_due"))

Asked = list[asyncio.Task[Answer]]


class Sessions:
    """The sessions with all ranks of a graph.

    Coroutines run on the client's event loop.

    Parameters
    ----------
    graph : str
        The graph's id.
    addresses : sequence of str
        The addresses of the workers, in rank order.
    patience : float
        Seconds without a message after which a worker counts as lost.

    Attributes
    ----------
    all : list of Session
        The sessions in rank order; empty until `open`.
    closed : bool
        True if the user closed the graph.
    states : list of ShardState
        The last state of each rank; replaced as a whole after each call.
    advice : str
        Added to the error of a lost rank.
    common_due : bool
        True if the next call should go by the comm, to open the `common` memory.
    epoch, changes : int
        The last epoch, and the number of changes of any kind, that every rank acknowledged.
    """

    def __init__(self, graph: str, addresses: Sequence[str], patience: float) -> None:
        self.graph, self.addresses, self.patience = graph, tuple(addresses), patience
        self.all: list[Session] = []
        self.closed, self.advice = False, ""
        self.common_due, self._common_tried = False, False
        self.states = [ShardState()] * len(self.addresses)
        self.epoch = self.changes = 0
        self._numbers = count()
        self._asked: set[asyncio.Task[Any]] = set()
        self._garbage: deque[str] = deque()

    # ---- open and close ----------------------------------------------------------------------------------------------

    async def open(self, connection_args: dict[str, Any], attach: bool = False) -> None:
        """Open all sessions or none.

        With `attach`, connect to the shards of a published graph.

        Raises
        ------
        WorkerLost
            A worker cannot be reached from this process.
        """
        hello = Hello(self.graph, 0, len(self.addresses), patience=self.patience, attach=attach)
        opening = [
            asyncio.create_task(open_session(hello._replace(rank=rank), address, connection_args))
            for rank, address in enumerate(self.addresses)
        ]

        # If one fails, close those that were opened.
        try:
            self.all.extend(await asyncio.gather(*opening))
        except BaseException:
            for task in opening:
                task.cancel()
            opened = await asyncio.gather(*opening, return_exceptions=True)
            await self._close(session for session in opened if isinstance(session, Session))
            raise

    async def close(self) -> None:
        """End all sessions. Running calls of other threads fail."""
        await self._close(self.all)
        if self._asked:
            await asyncio.wait(self._asked)  # no session waits for an answer any more

    async def _close(self, sessions: Iterable[Session]) -> None:
        await asyncio.gather(*(session.close(next(self._numbers), CLOSE_SECONDS) for session in sessions))

    @property
    def by_channel(self) -> bool:
        """True if a call may go to every rank by its channel now."""
        sessions = self.all
        if self.common_due or not sessions or any(map(_LOST, sessions)):
            return False
        return all(map(_CHANNEL, sessions)) and not any(map(_MEMORY_DUE, sessions))

    @property
    def common(self) -> Common | None:
        """The memory that all workers map, for arrays that go to all of them; None before it is open."""
        shared = self.all[0].shared if self.all else None
        return None if shared is None else shared.common

    @property
    def write_once(self) -> bool:
        """True if an array for all ranks is written once. The memory for it opens with the next call if it can."""
        if self.common is None and not self._common_tried:
            self.common_due = len(self.all) > 1 and all(session.shared for session in self.all)
        return self.common is not None

    async def open_common(self) -> None:
        """Open the `common` memory. Tried once."""
        self.common_due = False
        if self._common_tried:  # another thread asked for it meanwhile
            return
        self._common_tried = True

        async def ask(message: Share) -> list[Answer]:
            return await asyncio.gather(*(session.ask(message) for session in self.all))

        common = await open_common(f"graph {self.graph}", len(self.all), ask)
        for session in self.all:
            if session.shared is not None:  # otherwise it was dropped meanwhile
                session.shared.common = common

    @property
    def any_lost(self) -> bool:
        """True if a rank is lost."""
        return any(map(_LOST, self.all))

    @property
    def lost(self) -> WorkerLost | None:
        """The error of the first lost rank, or None. A new object each time, since each gets a traceback."""
        why = next((session.lost for session in self.all if session.lost is not None), None)
        return None if why is None else WorkerLost(f"{why} (epoch {self.epoch}){self.advice}")

    # ---- requests ----------------------------------------------------------------------------------------------------

    def calls(self, method: str, shares: Sequence[dict[str, Any]], attempt: int) -> list[Call]:
        """Return the messages of a call, one per rank, which also free the `garbage`."""
        free, seq = self.garbage(), next(self._numbers)
        return [Call(seq, attempt, method, share, free) for share in shares]

    def garbage(self) -> tuple[str, ...]:
        """Return the results given to `forget`, for a call to all ranks."""
        return tuple([self._garbage.popleft() for _ in range(len(self._garbage))]) if self._garbage else ()

    def aborts(self, attempt: int) -> list[Abort]:
        """Return the messages that release each rank from the exchange `attempt`."""
        return [Abort(next(self._numbers), attempt)] * len(self.all)

    def forget(self, result: str) -> None:
        """Free a result with the next call. Safe in a finalizer: it only records the key."""
        self._garbage.append(result)

    def next_number(self) -> int:
        """Return the number for a message to a rank."""
        return next(self._numbers)

    def send(self, messages: Sequence[Call | Abort], sizes: Sequence[CallSize] | None = None) -> Asked:
        """Send each rank its message without waiting.

        The results of the tasks are the answers. `sizes` are the sizes of the calls, if known.
        """
        nbytes = [None] * len(messages) if sizes is None else [size.nbytes for size in sizes]
        return [
            self._kept(asyncio.create_task(session.ask(message, n)))
            for session, message, n in zip(self.all, messages, nbytes, strict=True)
        ]

    def ask(self, rank: int, message: Request) -> asyncio.Task[Answer]:
        """Send a rank a message without waiting. The task's result is the answer."""
        return self._kept(asyncio.create_task(self.all[rank].ask(message)))

    def outcomes(self, seq: int, ranks: Sequence[int]) -> Asked:
        """Wait for the answers to a call that `ranks` got by channels. The results of the tasks are the answers."""
        return [self._kept(asyncio.create_task(self.all[rank].outcome(seq))) for rank in ranks]

    def tell(self, rank: int, message: Done) -> None:
        """Send a rank a message that has no answer, without waiting."""
        self._kept(asyncio.create_task(self.all[rank].tell(message)))

    def _kept(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        task.add_done_callback(_retrieve_error)
        return task

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def collect(self, asked: Asked) -> bool:
        """Wait until all ranks have answered, or any has failed.

        After a failure it waits `ALIKE_SECONDS` for the others. A rank may be lost after it has answered, while others
        still wait for it: that ends the wait, too.

        Returns
        -------
        bool
            True if all have answered without an error.
        """
        ended, left = asyncio.get_running_loop().create_future(), len(asked)

        def end(_: Any) -> None:
            if not ended.done():
                ended.set_result(None)

        def answered(task: asyncio.Task[Answer]) -> None:
            nonlocal left
            left -= 1
            if left == 0 or task.cancelled() or task.exception() is not None:
                end(task)

        # The wait ends with the last answer, the first error, or the first lost session.
        for task in asked:
            task.add_done_callback(answered)
        for session in self.all:
            session.reading.add_done_callback(end)
        try:
            await ended
        finally:
            for session in self.all:
                session.reading.remove_done_callback(end)

        # Other ranks may be about to fail with the same error.
        if pending := [task for task in asked if not task.done()]:
            await asyncio.wait(pending, timeout=ALIKE_SECONDS)
        return all(task.done() for task in asked) and not errors_of(asked)

    def note(self, answers: Iterable[Answer], ranks: Sequence[int] | None = None) -> None:
        """Store the states in the answers of `ranks`, by default of all, and the epoch that all acknowledge."""
        states = list(map(_STATE, answers))
        if ranks is not None and len(ranks) < len(self.all):
            # A read leaves most states as they are.
            known, news = self.states, states
            if news == [known[rank] for rank in ranks]:
                return
            states = known.copy()
            for rank, state in zip(ranks, news, strict=True):
                states[rank] = state
        self.know(states)

    def know(self, states: list[ShardState]) -> None:
        """Store the states of all ranks, as another client had them."""
        epoch, changes = states[0].epoch, states[0].changes
        if len(states) > 1:
            epoch, changes = min(map(_EPOCH, states)), min(map(_CHANGES, states))
        self.states, self.epoch, self.changes = states, epoch, changes


def _retrieve_error(future: asyncio.Future[Any]) -> None:
    """Retrieve the error, so that asyncio does not warn of it: a call may have several, and raises one."""
    if not future.cancelled():
        future.exception()


def errors_of(asked: Asked) -> list[BaseException]:
    """Return the errors so far, in rank order."""
    done = [task for task in asked if task.done()]
    return [error for error in (task.exception() for task in done) if error is not None]
