"""Lifecycle of the ranks' exchange: connect, abort after a failed call, resolve an interrupted vote."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from mgraph.calls import AfterLoss, RemoteCall
from mgraph.client.calls.caller import Value, unknown_counts
from mgraph.client.connections.sessions import Asked, Sessions, errors_of
from mgraph.errors import Aborted, GraphClosed, GraphLost, MgraphError
from mgraph.protocol import ABORT_SECONDS, ShardState

__all__ = ["ExchangeLifecycle"]


class ExchangeLifecycle:
    """The exchanges of one graph, one at a time, each with a number. Coroutines run on the client's event loop.

    A call that fails on any rank is aborted on the others, so that no rank waits for one that has stopped. Their
    exchange is then destroyed. The next call that needs one makes a new exchange, with the next number.

    Parameters
    ----------
    sessions : Sessions
        The sessions with all ranks.

    Attributes
    ----------
    number : int
        The number of the current exchange.
    connected : bool
        True if the current exchange is connected.
    shared : bool
        True if other clients make calls, too. If this client has lost a rank, another may still reach it, and decides
        about an interrupted vote.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.number, self.connected, self.shared = 0, False, False
        self._sessions = sessions
        self._acks: Asked = []
        self._judging = asyncio.Lock()
        self._fatal: MgraphError | None = None

    @property
    def aborting(self) -> bool:
        """True if ranks were released, and some have not acknowledged it yet."""
        return bool(self._acks)

    @property
    def blocked(self) -> bool:
        """True if it is `aborting`, or a loss was noted after which only `close` works.

        A session may be lost before that.
        """
        return bool(self._acks) or self._fatal is not None

    @property
    def lost(self) -> bool:
        """True if a rank was lost, or ranks may hold different states."""
        return self._fatal is not None or self._sessions.any_lost

    def check(self) -> None:
        """Raise `GraphClosed`, `GraphLost` or `WorkerLost` if no call is possible any more. Makes no call."""
        sessions = self._sessions
        if sessions.closed:
            raise GraphClosed(f"graph {sessions.graph} is closed (epoch {sessions.epoch})")
        if self._fatal is None:
            self._fatal = sessions.lost
        if self._fatal is not None:
            raise type(self._fatal)(*self._fatal.args)

    def resume(self, number: int, connected: bool) -> None:
        """Continue with the exchange of another client of the graph."""
        self.number, self.connected = number, connected

    # ---- a call ------------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Open a new exchange on every rank, and connect its parts."""
        size = len(self._sessions.all)
        opened = await self._call("open_exchange", [{}] * size)
        addresses = [answer["address"] for answer in opened]
        await self._call("connect_exchange", [{"addresses": addresses}] * size)
        self.connected = True

    async def _call(self, method: str, shares: list[Value]) -> list[Value]:
        calls = self._sessions.calls(method, shares, self.number)
        return await self.finish(self._sessions.send(calls), together=True)

    async def finish(self, asked: Asked, together: bool, ranks: Sequence[int] | None = None) -> list[Value]:
        """Return the ranks' answers, in rank order.

        If a rank fails, release all ranks and raise its error.

        Parameters
        ----------
        asked : list of asyncio.Task
            The requests to `ranks`.
        together : bool
            True if the ranks communicate in this call. An error may then leave the exchange between two steps, and a
            change half done, so ranks are released even if all of them failed with the same error.
        ranks : sequence of int, optional
            By default all.
        """
        try:
            if await self._sessions.collect(asked):
                answers = [task.result() for task in asked]
                self._sessions.note(answers, ranks)
                return [answer.value for answer in answers]

            # If the same error met all ranks before any communication, none waits for another.
            if together or self._sessions.lost or not _alike(asked):
                await self.abort(told=True)
            raise self._cause(errors_of(asked))
        except asyncio.CancelledError:  # Ctrl-C
            await self.abort()
            raise
        finally:
            # An error's traceback refers to this frame; a reference back to the error would keep the graph.
            del asked

    async def finish_call(
        self, call: RemoteCall, asked: Asked, epoch: int | None, ranks: Sequence[int] | None = None
    ) -> list[Value]:
        """Return the ranks' answers to a call that commits `epoch`, as `finish`.

        The connection between two ranks may end after one of them has learned that all agree. If all ranks have made
        the change since, the call has not failed, and its counts are unknown.
        """
        try:
            return await self.finish(asked, call.exchange, ranks)
        except MgraphError as error:
            error.during = epoch
            committed = epoch is not None and epoch <= self._sessions.epoch and not (self.lost or self.aborting)
            if epoch is None or not committed or call.after_loss is AfterLoss.CONTINUE:
                raise
            if call.after_loss is AfterLoss.LOOK_UP:
                return unknown_counts(epoch)
            what = f"the updates of epoch {epoch} are committed, and its answers were lost"
            raise MgraphError(f"graph {self._sessions.graph}: {what}: {error}") from error
        finally:
            del asked  # see `finish`

    def _cause(self, errors: list[BaseException]) -> BaseException:
        """Return the error to raise for a failed call: the first that is no consequence of another rank's error."""
        sessions = self._sessions
        where = f"graph {sessions.graph}"
        if sessions.closed:
            return GraphClosed(f"{where} was closed while a call was running (epoch {sessions.epoch})")
        if lost := sessions.lost:
            return lost
        causes = (error for error in errors if not isinstance(error, Aborted))
        failure = MgraphError(f"{where}, epoch {sessions.epoch}: the exchange failed: {errors[0]}")
        return next(causes, failure)

    # ---- after a failure ---------------------------------------------------------------------------------------------

    async def abort(self, told: bool = False) -> None:
        """Abort the current exchange on every rank; wait at most `ABORT_SECONDS` for acknowledgements.

        `told` is True if the caller raises the ranks' error, which also says what the store may have.
        """
        self.tell_abort()
        await self.finish_abort(told)

    def tell_abort(self) -> None:
        """Abort the current exchange on every rank, without waiting. Called on the event loop."""
        number, self.number, self.connected = self.number, self.number + 1, False
        self._acks = self._sessions.send(self._sessions.aborts(number))

    async def finish_abort(self, told: bool = False) -> None:
        """Wait at most `ABORT_SECONDS` for acknowledgements of `tell_abort`."""
        if self._acks:  # none if another wait has judged meanwhile
            await asyncio.wait(self._acks, timeout=ABORT_SECONDS)
        if all(ack.done() for ack in self._acks):
            await self._judge(told)

    async def wait_for_aborts(self) -> None:
        """Wait until all ranks have acknowledged the last abort. If one never does, the graph becomes unusable."""
        if not self._acks:
            return
        _, late = await asyncio.wait(self._acks, timeout=self._sessions.patience)
        if late:
            self._fatal = self._not_back([rank for rank, ack in enumerate(self._acks) if ack in late])
        else:
            # Ctrl-C must not leave a batch between commit and discard.
            await asyncio.shield(self._judge())
        self.check()

    async def _judge(self, told: bool = False) -> None:
        """Finish or undo a change whose vote was interrupted, after every rank has acknowledged or was lost.

        A rank that had voted for a change and was released before it learned the outcome still has the prepared change.
        If any rank has made the change, all have voted for it, so the others make it too; else none does. Ranks count
        their changes, so the largest count shows whether a rank has made it.
        """
        async with self._judging:
            acks = self._acks
            if acks:  # otherwise another wait has judged, for example after a second Ctrl-C
                await self._judge_acks(acks, told)
            if self._acks is acks:
                self._acks = []

    async def _judge_acks(self, acks: Asked, told: bool) -> None:
        answers = [ack.result() for ack in acks if ack.exception() is None]
        lost = self._sessions.lost

        # The graph is lost if a rank that is gone may have made the change.
        changes = max((answer.state.changes for answer in answers), default=0)
        broken = next((answer.state.broken for answer in answers if answer.state.broken), None)
        if broken or (lost and changes > self._sessions.changes):
            self._fatal = self._lost_after_vote(broken or str(lost))

        # So it is if a change could not be taken back and nobody was told, as after Ctrl-C: the store may have it.
        elif not told and _undecided(answer.state for answer in answers) > _undecided(self._sessions.states):
            self._fatal = self._undecided_change()

        # Otherwise tell ranks in doubt the outcome.
        if any(answer.state.in_doubt for answer in answers) and not (self.shared and lost):
            await self._resolve(changes)
        elif self._fatal is None and not lost:
            self._sessions.note(answers)

    async def _resolve(self, changes: int) -> None:
        """Send every rank the vote's outcome, its number of changes.

        `changes` is the largest number of changes that any rank has made.
        """
        calls = self._sessions.calls("resolve", [{"changes": changes}] * len(self._sessions.all), self.number)
        asked = self._sessions.send(calls)
        _, late = await asyncio.wait(asked, timeout=ABORT_SECONDS)
        errors = errors_of(asked)
        if not late and not errors:
            self._sessions.note(task.result() for task in asked)
        elif changes > self._sessions.changes and self._fatal is None:
            self._fatal = self._lost_after_vote(str(errors[0]) if errors else "a rank does not answer")
        elif any(getattr(error, "undecided", 0) for error in errors) and self._fatal is None:
            self._fatal = self._undecided_change()

    # ---- errors after which only close() works -----------------------------------------------------------------------

    def _lost_after_vote(self, why: str) -> GraphLost:
        return GraphLost(
            f"graph {self._sessions.graph} was lost after the vote on a batch ({why}); the last epoch acknowledged by "
            f"all is {self._sessions.epoch}; only close() works"
        )

    def _undecided_change(self) -> GraphLost:
        return GraphLost(
            f"graph {self._sessions.graph} was lost: a change was interrupted, and its log cannot be written; whether "
            f"the store has it is known when it is opened again; the last epoch acknowledged by all is "
            f"{self._sessions.epoch}; only close() works"
        )

    def _not_back(self, ranks: list[int]) -> GraphLost:
        where = ", ".join(self._sessions.addresses[rank] for rank in ranks)
        return GraphLost(
            f"graph {self._sessions.graph}: ranks {ranks}, the workers at {where}, have not returned from an aborted "
            f"call within {self._sessions.patience:g} s; the last acknowledged epoch is {self._sessions.epoch}; close "
            "the graph"
        )


def _undecided(states: Iterable[ShardState]) -> int:
    """Return the last epoch that a rank could not refuse; 0 if none."""
    return max((state.undecided for state in states), default=0)


def _alike(asked: Asked) -> bool:
    """Return True if all ranks failed with the same error."""
    errors = errors_of(asked)
    return len(errors) == len(asked) and len({(type(error), str(error)) for error in errors}) == 1
