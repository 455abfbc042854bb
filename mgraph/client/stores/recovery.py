"""Recovery: after the loss of a worker, open the graph again from its store, so that the user's program goes on.

An *incarnation* is one set of connections to the workers, with its exchange and its epochs. A lost worker ends it, and
recovery starts the next: it opens the graph again on the workers that are left. The store has the outcome of the call
under way. `Recovered` asks the code that made the call to make it again, by the new ranges.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from mgraph.batch import TOLD
from mgraph.calls import CALLS, AfterLoss, CallSize
from mgraph.client.calls.batch_group import SmallBatch
from mgraph.client.calls.caller import UNKNOWN, Caller, Flight, GraphStatus, Value
from mgraph.client.inputs.source_parts import AsParts, Parts
from mgraph.client.options import Options
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, GraphLost, MgraphError, WorkerLost
from mgraph.failures import Recovered, Stale
from mgraph.protocol import ShardState

__all__ = ["Incarnation", "Recovering", "Recovery", "Reopen"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_SECONDS = 5.0  #: time for a recovery of another thread to end in `close`


@dataclass(frozen=True)
class Recovery:
    """A loss, and the recovery after it.

    Attributes
    ----------
    why : str
        The error of the loss.
    epoch : int
        The epoch of the recovered graph.
    acknowledged : int
        The last epoch that was acknowledged before the loss. Later epochs were under way, and are complete.
    seconds : float
        The time from the error to the opened graph.
    workers : tuple of str
        The workers that hold the graph now.
    """

    why: str
    epoch: int
    acknowledged: int
    seconds: float
    workers: tuple[str, ...]


@dataclass
class Incarnation:
    """A graph's connections to its workers between two losses.

    Attributes
    ----------
    caller : Caller
    parts : AsParts
    numbering : Numbering
        The numbering at its beginning.
    options : Options
    epoch : int
        The epoch at its beginning.
    counts : int64[k, 6]
        The counts, in the order of `TOLD`, of the last k epochs before its beginning that the previous incarnation did
        not acknowledge, if the store's logs have them.
    number : int
    ended : bool
        True if it is known to be lost.
    isolated : bool
        True if vertices without edges have yet to be dropped when it begins.
    """

    caller: Caller
    parts: AsParts
    numbering: Numbering
    options: Options
    epoch: int = 0
    counts: np.ndarray = field(default_factory=lambda: np.empty((0, len(TOLD)), np.int64))
    number: int = 0
    ended: bool = False
    isolated: bool = False

    def since(self, epoch: int) -> np.ndarray:
        """Return the counts of the epochs from `epoch` to the beginning of this incarnation: int64[k, 6].

        They are `UNKNOWN` for epochs that only a snapshot has, and for committed epochs whose answers were lost before.
        """
        epochs = max(0, self.epoch + 1 - epoch)
        known = self.counts[max(0, len(self.counts) - epochs) :]
        return np.concatenate([np.full((epochs - len(known), len(TOLD)), UNKNOWN), known])


#: ``reopen(lost, generation)``: opens the graph of a lost, closed incarnation again
Reopen = Callable[[Incarnation, int], Incarnation]


class Recovering:
    """A `Caller` whose graph is recovered after losses.

    Several threads may use it; one of them recovers, and the others wait for it.

    Parameters
    ----------
    first : Incarnation
    reopen : Reopen
    most : int
        The most recoveries in a row without a successful call in between.

    Attributes
    ----------
    lock
        A no-op: the graph has no other clients.
    runner, client, groups
        Those of the first caller: all callers have the same Dask client.
    recoveries : list of Recovery
    """

    lock: AbstractContextManager[None] = nullcontext()

    def __init__(self, first: Incarnation, reopen: Reopen, most: int) -> None:
        self._incarnations, self._reopen, self._most, self._in_a_row = [first], reopen, most, 0
        self._lock, self._closed = threading.RLock(), False
        self._failed: MgraphError | None = None
        self._directory: Callable[[], Directory | None] = lambda: None
        self.recoveries: list[Recovery] = []
        self.runner, self.client, self.groups = first.caller.runner, first.caller.client, first.caller.groups

    def bind(self, directory: Directory) -> None:
        """Register the directory to update, by a weak reference: it refers to this object."""
        self._directory = weakref.ref(directory)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        args: Value | None = None,
        shares: Sequence[Value] | None = None,
    ) -> list[Value]:
        """Make a call on all ranks, as `Caller.call`.

        Raises
        ------
        Recovered
            A worker was lost, and the graph is back: make the call again, by the new ranges.
        """
        current = self._current(shares)

        # After a loss, repeat reads; of a change, look its outcome up in the store.
        try:
            answers = current.caller.call(name, args, shares)
        except MgraphError as error:
            self._recover(current, error)
            if CALLS[name].after_loss is AfterLoss.REPEAT:
                return self.call(name, args, shares)
            return self._stored_outcome(current, CALLS[name].after_loss, error.during)
        self._in_a_row = 0
        return answers

    def _stored_outcome(self, lost: Incarnation, after_loss: AfterLoss, epoch: int | None) -> list[Value]:
        """Return the store's answer to a change that was sent as `epoch` to a lost incarnation."""
        problem = f"graph {self.status.graph} was opened again at epoch {self._incarnations[lost.number + 1].epoch}"
        answers = None if epoch is None else self.outcome(lost.number, epoch)
        if answers is None or epoch is None:
            raise Recovered(problem)

        # The change is committed; its further answers may be lost.
        if after_loss is AfterLoss.LOOK_UP_UPDATES:
            raise WorkerLost(
                f"{problem}; the stream's updates are committed, and its answers were lost with the worker"
            )
        if after_loss is AfterLoss.CONTINUE:
            raise Recovered(problem, self._incarnations[lost.number + 1].since(epoch))
        return answers

    def outcome(self, number: int, epoch: int) -> list[Value] | None:
        """Return the store's answer to a change that was sent as `epoch` to incarnation `number`, which was lost.

        None if the store does not have it.
        """
        now = self._incarnations[number + 1]
        if epoch > now.epoch:
            return None
        return [{"epoch": epoch, **dict(zip(TOLD, now.since(epoch)[0].tolist(), strict=True))}]

    def as_parts(self, source: Any, steps: Any, columns: Any, seats: Sequence[int]) -> Parts:
        """Return the parts of a source, as `AsParts`; `Recovered` if a worker with Dask's tasks is lost."""
        current = self._current(None)
        try:
            return current.parts(source, steps, columns, seats)
        except MgraphError as error:
            self._recover(current, error)
            raise Recovered(f"graph {self.status.graph} was opened again") from None

    def launch(
        self,
        name: str,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[..., None],
    ) -> None:
        """Send a batch, as `Caller.launch`; `sent` also gets the incarnation's number. `Recovered` after a loss."""
        current = self._current(shares)

        def on_sent(flight: Flight, epoch: int) -> None:
            sent(flight, epoch, current.number)

        try:
            current.caller.launch(name, shares, sizes, room, on_sent)
        except MgraphError as error:
            self._recover(current, error)
            raise Recovered(f"graph {self.status.graph} was opened again") from None

    def post(self, small: SmallBatch) -> None:
        """Queue a small batch, as `Coordinator.post`. If it cannot be sent, its sender learns that it is lost."""
        current = self._current(small.shares)
        current.caller.post(replace(small, incarnation=current.number))

    def _current(self, shares: Sequence[Value] | None) -> Incarnation:
        """Return the current incarnation, if it has this many ranks.

        Raises `Recovered` if `shares` are for another number of ranks.
        """
        current = self._incarnations[-1]
        if shares is not None and len(shares) != len(current.caller.status.addresses):
            raise Recovered(
                f"graph {self.status.graph} was opened again on {len(current.caller.status.addresses)} workers"
            )
        return current

    def read(self, read: Callable[[Numbering], T]) -> T:
        """Call `read` with the current numbering, as `Directory.read`."""
        if (directory := self._directory()) is None:
            raise GraphClosed(f"graph {self.status.graph} is gone")
        return directory.read(read)

    # ---- recovering --------------------------------------------------------------------------------------------------

    def recover(self, number: int) -> None:
        """Wait until the incarnation after `number` has begun."""
        current = self._incarnations[number]
        self._recover(current, WorkerLost(f"graph {self.status.graph}: a worker was lost"))

    def _recover(self, lost: Incarnation, error: MgraphError) -> None:
        """Start the incarnation after `lost`, unless it has begun. Raise `error` if `lost` is not lost."""
        if not self._is_lost(lost):
            raise error
        with self._lock:
            if lost is not self._incarnations[-1]:
                return

            # Close the lost incarnation. Once its batches have landed, its last acknowledged epoch is final.
            began = time.monotonic()
            if not lost.ended:
                lost.ended = True
                logger.warning("%s; the graph is opened again from its store", error)
            lost.caller.close()
            lost.caller.land()

            # Open the next one. The directory comes first: who sees the new incarnation sees its numbering.
            successor = self._start_next(lost, error)
            if (directory := self._directory()) is not None:
                directory.renew(successor.numbering, successor.options)
            self._incarnations.append(successor)
            lost.numbering = successor.numbering  # the old one may be large, and has no use
            seconds, workers = time.monotonic() - began, successor.caller.status.addresses
            self.recoveries.append(Recovery(str(error), successor.epoch, lost.caller.epoch, seconds, workers))
            message = "graph %s is back as graph %s at epoch %d, on %d workers, after %.1f s"
            logger.warning(
                message, lost.caller.status.graph, successor.caller.status.graph, successor.epoch, len(workers), seconds
            )

    def _start_next(self, lost: Incarnation, error: MgraphError) -> Incarnation:
        """Start the incarnation after `lost` and return it. After a failure, every later call fails too."""
        if isinstance(error, Stale):  # a batch that waited for room; to raise that would have it tried again
            error = WorkerLost(str(error))

        # Give up after too many recoveries in a row.
        if self._failed is None and self._in_a_row >= self._most:
            self._failed = type(error)(
                f"{error}; the graph was opened again {self._most} times in a row: open the store"
            )
        if self._failed is not None:
            raise type(self._failed)(*self._failed.args)

        # A new generation invalidates all ids that were routed before.
        generation = 1 + max(lost.numbering.generation, *(state.generation for state in lost.caller.states))
        try:
            successor = self._reopen(lost, generation)
        except MgraphError as problem:
            self._failed = type(error)(f"{error}; the graph could not be opened again: {problem}")
            raise self._failed from problem
        self._in_a_row += 1  # only now: Ctrl-C may have ended a recovery before
        if self._closed:
            successor.caller.close()
            raise GraphClosed(f"graph {self.status.graph} was closed while it was opened again")
        # A machine that stops loses changes that were not on its disk: only the user can know what to do.
        if successor.epoch < (acknowledged := lost.caller.epoch):
            successor.caller.close()
            self._failed = type(error)(
                f"{error}; the store has epoch {successor.epoch}, and epoch {acknowledged} was acknowledged: its last "
                "changes were not on the disk; open the store to go on without them"
            )
            raise self._failed
        successor.number = lost.number + 1
        return successor

    def _is_lost(self, incarnation: Incarnation) -> bool:
        """Return True if an incarnation was lost, not closed."""
        if self._closed or not incarnation.caller.runner.alive:
            return False
        if incarnation.ended or incarnation is not self._incarnations[-1]:
            return True
        try:
            incarnation.caller.check()
        except (WorkerLost, GraphLost):
            return True
        except MgraphError:
            pass
        return False

    def check(self) -> None:
        """Raise an error if no call is possible any more. If a worker was lost, recover."""
        current = self._incarnations[-1]
        try:
            current.caller.check()
        except MgraphError as error:
            self._recover(current, error)

    # ---- the current incarnation -------------------------------------------------------------------------------------

    def flush(self, wait: bool = True) -> None:
        """Do nothing: the event loop sends small batches by itself."""

    def land(self) -> None:
        """Wait until no batch is in flight."""
        self._incarnations[-1].caller.land()

    def recall(self) -> bool:
        """Drop the batches in flight."""
        return self._incarnations[-1].caller.recall()

    def forget(self, result: str) -> None:
        """Free a result with the next call."""
        self._incarnations[-1].caller.forget(result)

    def close(self) -> None:
        """Close the graph."""
        self._closed = True
        self._incarnations[-1].caller.close()
        # Otherwise the recovering thread closes what it opened.
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            self._lock.release()
            self._incarnations[-1].caller.close()

    @property
    def status(self) -> GraphStatus:
        """The status of the current incarnation."""
        current = self._incarnations[-1]
        return current.caller.status._replace(incarnation=current.number, closed=self._closed)

    @property
    def settled(self) -> bool:
        """True if the current incarnation's status is usable and not unsettled."""
        return self._incarnations[-1].caller.settled

    @property
    def one_process(self) -> bool:
        """True if all workers of the current incarnation are in this process."""
        return self._incarnations[-1].caller.one_process

    @property
    def epoch(self) -> int:
        """The last epoch that every rank of the current incarnation acknowledged."""
        return self._incarnations[-1].caller.epoch

    @property
    def states(self) -> Sequence[ShardState]:
        """The last state of each rank of the current incarnation."""
        return self._incarnations[-1].caller.states

    @property
    def write_once(self) -> bool:
        """True if the current incarnation writes an array for all ranks once."""
        return self._incarnations[-1].caller.write_once

    @property
    def reached(self) -> int:
        """The epoch that all ranks are known to have reached, as `Caller.reached`."""
        return self._incarnations[-1].caller.reached

    @property
    def queued(self) -> int:
        """The number of batches of the current incarnation that wait or are in flight."""
        return self._incarnations[-1].caller.queued
