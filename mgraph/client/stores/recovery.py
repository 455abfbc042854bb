"""A graph that is opened again from its store when a worker is lost, so that its user's program goes on.

An *incarnation* is one set of connections to the workers, with its exchange and its epochs. A lost worker ends it, and
recovery starts the next: it opens the graph again on the workers that are there. The store says what became of the call
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
from mgraph.client.calls.caller import Caller, Flight, GraphStatus, Value
from mgraph.client.inputs.source_parts import AsParts, Parts
from mgraph.client.options import Options
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, GraphLost, MgraphError, WorkerLost
from mgraph.failures import Recovered

__all__ = ["Incarnation", "Recovering", "Recovery", "Reopen"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_SECONDS = 5.0  #: for which `close` waits for a recovery of another thread


@dataclass(frozen=True)
class Recovery:
    """One loss, and how the graph came back.

    Attributes
    ----------
    why : str
        The error of the loss.
    epoch : int
        The epoch with which the graph came back.
    acknowledged : int
        The last epoch that was acknowledged before the loss. Epochs after it were under way, and are there whole.
    seconds : float
        From the error to the opened graph.
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
    """One set of connections to the workers of a graph, between two losses.

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
        The counts, in the order of `TOLD`, of the last k epochs before its beginning, which the incarnation before did
        not acknowledge.
    number : int
    ended : bool
        Whether it is known to be lost.
    isolated : bool
        Whether vertices without edges have yet to leave when it begins.
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
        """The counts of the epochs from `epoch` on until this incarnation began: int64[k, 6]."""
        return self.counts[max(0, len(self.counts) - (self.epoch + 1 - epoch)) :]


#: ``reopen(lost, generation)``: the graph of an incarnation that was lost and closed, opened again
Reopen = Callable[[Incarnation, int], Incarnation]


class Recovering:
    """A `Caller` whose graph comes back. Several threads may use it; one of them recovers, and the others wait for it.

    Parameters
    ----------
    first : Incarnation
    reopen : Reopen
    most : int
        How many recoveries may follow one another without a call that succeeds.

    Attributes
    ----------
    lock
        Nothing: the graph has no other clients.
    runner, client, groups
        As of the first caller: all are of one Dask client.
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
        """Have a directory follow; it refers to this object, and so is not referred to."""
        self._directory = weakref.ref(directory)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        args: Value | None = None,
        shares: Sequence[Value] | None = None,
    ) -> list[Value]:
        """As `Caller.call`.

        Raises
        ------
        Recovered
            A worker was lost, and the graph is back: the call is to be made again, by the new ranges.
        """
        current = self._current(shares)
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
        """Return the answer to a change that was to be `epoch` in an incarnation that was lost, as the store has it."""
        what = f"graph {self.status.graph} was opened again at epoch {self._incarnations[lost.number + 1].epoch}"
        answers = None if epoch is None else self.outcome(lost.number, epoch)
        if answers is None or epoch is None:
            raise Recovered(what)
        if after_loss is AfterLoss.LOOK_UP_UPDATES:
            raise WorkerLost(f"{what}; the stream's updates are committed, and its answers were lost with the worker")
        if after_loss is AfterLoss.CONTINUE:
            raise Recovered(what, self._incarnations[lost.number + 1].since(epoch))
        return answers

    def outcome(self, number: int, epoch: int) -> list[Value] | None:
        """Return the answer to a change that was to be `epoch` when incarnation `number` was lost.

        None if the store does not have it.
        """
        now = self._incarnations[number + 1]
        if epoch > now.epoch:
            return None
        return [{"epoch": epoch, **dict(zip(TOLD, now.since(epoch)[0].tolist(), strict=True))}]

    def as_parts(self, source: Any, steps: Any, columns: Any, seats: Sequence[int]) -> Parts:
        """As `AsParts`; Dask's tasks may be on a worker that is lost meanwhile, which raises `Recovered`."""
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
        """As `Caller.launch`; `sent` also gets the number of the incarnation. Raises `Recovered` as `call` does."""
        current = self._current(shares)

        def told(flight: Flight, epoch: int) -> None:
            sent(flight, epoch, current.number)

        try:
            current.caller.launch(name, shares, sizes, room, told)
        except MgraphError as error:
            self._recover(current, error)
            raise Recovered(f"graph {self.status.graph} was opened again") from None

    def post(self, small: SmallBatch) -> None:
        """As `Coordinator.post`. Its sender is told that the batch is lost if it cannot be sent."""
        current = self._current(small.shares)
        current.caller.post(replace(small, incarnation=current.number))

    def _current(self, shares: Sequence[Value] | None) -> Incarnation:
        """The current incarnation; `Recovered` if `shares` were made for another number of ranks."""
        current = self._incarnations[-1]
        if shares is not None and len(shares) != len(current.caller.status.addresses):
            raise Recovered(
                f"graph {self.status.graph} was opened again on {len(current.caller.status.addresses)} workers"
            )
        return current

    def read(self, read: Callable[[Numbering], T]) -> T:
        """As `Directory.read` of the graph's directory."""
        if (directory := self._directory()) is None:
            raise GraphClosed(f"graph {self.status.graph} is gone")
        return directory.read(read)

    # ---- recovering --------------------------------------------------------------------------------------------------

    def recover(self, number: int) -> None:
        """Return when the incarnation after `number` has begun; nothing if it has."""
        current = self._incarnations[number]
        self._recover(current, WorkerLost(f"graph {self.status.graph}: a worker was lost"))

    def _recover(self, lost: Incarnation, error: MgraphError) -> None:
        """Start the incarnation after `lost`, unless it has begun. Raises `error` if `lost` is not lost."""
        if not self._is_lost(lost):
            raise error
        with self._lock:
            if lost is not self._incarnations[-1]:
                return
            began = time.monotonic()
            if not lost.ended:
                lost.ended = True
                logger.warning("%s; the graph is opened again from its store", error)
            lost.caller.close()
            lost.caller.land()  # after which the last acknowledged epoch is known
            then = self._start_next(lost, error)
            if (directory := self._directory()) is not None:
                directory.renew(then.numbering, then.options)  # first: who sees the new incarnation sees its numbering
            self._incarnations.append(then)
            lost.numbering = then.numbering  # the one before may be large, and is of no use any more
            seconds, workers = time.monotonic() - began, then.caller.status.addresses
            self.recoveries.append(Recovery(str(error), then.epoch, lost.caller.status.epoch, seconds, workers))
            what = "graph %s is back as graph %s at epoch %d, on %d workers, after %.1f s"
            logger.warning(what, lost.caller.status.graph, then.caller.status.graph, then.epoch, len(workers), seconds)

    def _start_next(self, lost: Incarnation, error: MgraphError) -> Incarnation:
        """Start the incarnation after `lost` and return it. If that fails, every later call fails too."""
        self._in_a_row += 1
        if self._failed is None and self._in_a_row > self._most:
            self._failed = type(error)(
                f"{error}; the graph was opened again {self._most} times in a row: open the store"
            )
        if self._failed is not None:
            raise type(self._failed)(*self._failed.args)
        generation = 1 + max(lost.numbering.generation, *(state.generation for state in lost.caller.status.states))
        try:
            then = self._reopen(lost, generation)
        except MgraphError as problem:
            self._failed = type(error)(f"{error}; the graph could not be opened again: {problem}")
            raise self._failed from problem
        if self._closed:
            then.caller.close()
            raise GraphClosed(f"graph {self.status.graph} was closed while it was opened again")
        then.number = lost.number + 1
        return then

    def _is_lost(self, incarnation: Incarnation) -> bool:
        """Return True if an incarnation is over, and the user has not ended it."""
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
        """Raise if no call is possible any more. If a worker was lost, recover."""
        current = self._incarnations[-1]
        try:
            current.caller.check()
        except MgraphError as error:
            self._recover(current, error)

    # ---- the current incarnation -------------------------------------------------------------------------------------

    def land(self) -> None:
        """Wait until no batch is in flight."""
        self._incarnations[-1].caller.land()

    def recall(self) -> None:
        """Drop the batches in flight."""
        self._incarnations[-1].caller.recall()

    def forget(self, result: str) -> None:
        """Free a result with the next call."""
        self._incarnations[-1].caller.forget(result)

    def close(self) -> None:
        """End the graph."""
        self._closed = True
        self._incarnations[-1].caller.close()
        if self._lock.acquire(timeout=CLOSE_SECONDS):  # else the thread that recovers ends what it opened
            self._lock.release()
            self._incarnations[-1].caller.close()

    @property
    def status(self) -> GraphStatus:
        """The status of the current incarnation."""
        current = self._incarnations[-1]
        return current.caller.status._replace(incarnation=current.number, closed=self._closed)

    @property
    def reached(self) -> int:
        """As `Caller.reached`."""
        return self._incarnations[-1].caller.reached
