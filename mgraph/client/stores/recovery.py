"""A graph that is opened again from its store when a worker is lost, so that its user's program goes on.

A *life* is the time between two losses: its sessions, its exchange, its epochs. The calls of a graph go to the caller
of the current life. When that is lost, the graph is opened again on the workers that are there, and the store says what
became of the call under way. `Recovered` asks the code that made the call to make it again, by the new ranges.
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
from mgraph.client.calls.caller import Caller, Flight, GraphStatus, Value
from mgraph.client.calls.group import Small
from mgraph.client.inputs.parts import AsParts, Parts
from mgraph.client.options import Options
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, GraphLost, MgraphError, WorkerLost
from mgraph.failures import Recovered

__all__ = ["Life", "Recovering", "Recovery", "Reopen"]

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
class Life:
    """A graph between two losses.

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
        The counts, in the order of `TOLD`, of the last k epochs before its beginning: those that the life before did
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
        """The counts of the epochs from `epoch` on until this life began: int64[k, 6]."""
        return self.counts[max(0, len(self.counts) - (self.epoch + 1 - epoch)) :]


#: ``reopen(lost, generation)``: the graph of a life that was lost and closed, opened again
Reopen = Callable[[Life, int], Life]


class Recovering:
    """A `Caller` whose graph comes back. Several threads may use it; one of them recovers, and the others wait for it.

    Parameters
    ----------
    first : Life
    reopen : Reopen
    most : int
        How many recoveries may follow one another without a call that succeeds.

    Attributes
    ----------
    lock
        Nothing: the graph has no other clients.
    bridge, client, groups
        As of the first caller: all are of one Dask client.
    recoveries : list of Recovery
    """

    lock: AbstractContextManager[None] = nullcontext()

    def __init__(self, first: Life, reopen: Reopen, most: int) -> None:
        self._lives, self._reopen, self._most, self._in_a_row = [first], reopen, most, 0
        self._lock, self._closed = threading.RLock(), False
        self._failed: MgraphError | None = None
        self._directory: Callable[[], Directory | None] = lambda: None
        self.recoveries: list[Recovery] = []
        self.bridge, self.client, self.groups = first.caller.bridge, first.caller.client, first.caller.groups

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
        life = self._living(shares)
        try:
            answers = life.caller.call(name, args, shares)
        except MgraphError as error:
            self._recover(life, error)
            if CALLS[name].after_loss is AfterLoss.REPEAT:
                return self.call(name, args, shares)
            return self._known(life, CALLS[name].after_loss, error.during)
        self._in_a_row = 0
        return answers

    def _known(self, lost: Life, after_loss: AfterLoss, epoch: int | None) -> list[Value]:
        """Return the answer to a change that was to be `epoch` in a life that was lost, as the store has it."""
        what = f"graph {self.status.graph} was opened again at epoch {self._lives[lost.number + 1].epoch}"
        answers = None if epoch is None else self.outcome(lost.number, epoch)
        if answers is None or epoch is None:
            raise Recovered(what)
        if after_loss is AfterLoss.LOOK_UP_UPDATES:
            raise WorkerLost(f"{what}; the stream's updates are committed, and its answers were lost with the worker")
        if after_loss is AfterLoss.CONTINUE:
            raise Recovered(what, self._lives[lost.number + 1].since(epoch))
        return answers

    def outcome(self, number: int, epoch: int) -> list[Value] | None:
        """What the ranks would have answered to a change that was under way as `epoch` when life `number` was lost.

        None if the store does not have it.
        """
        now = self._lives[number + 1]
        if epoch > now.epoch:
            return None
        return [{"epoch": epoch, **dict(zip(TOLD, now.since(epoch)[0].tolist(), strict=True))}]

    def as_parts(self, source: Any, steps: Any, columns: Any, seats: Sequence[int]) -> Parts:
        """As `AsParts`; Dask's tasks may be on a worker that is lost meanwhile, which raises `Recovered`."""
        life = self._living(None)
        try:
            return life.parts(source, steps, columns, seats)
        except MgraphError as error:
            self._recover(life, error)
            raise Recovered(f"graph {self.status.graph} was opened again") from None

    def launch(
        self,
        name: str,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[..., None],
    ) -> None:
        """As `Caller.launch`; `sent` also gets the number of the life. Raises `Recovered` as `call` does."""
        life = self._living(shares)

        def told(flight: Flight, epoch: int) -> None:
            sent(flight, epoch, life.number)

        try:
            life.caller.launch(name, shares, sizes, room, told)
        except MgraphError as error:
            self._recover(life, error)
            raise Recovered(f"graph {self.status.graph} was opened again") from None

    def post(self, small: Small) -> None:
        """As `Coordinator.post`. Its sender is told that the batch is lost if it cannot be sent."""
        life = self._living(small.shares)
        life.caller.post(replace(small, incarnation=life.number))

    def _living(self, shares: Sequence[Value] | None) -> Life:
        """The life of now; `Recovered` if `shares` were made for another number of ranks."""
        life = self._lives[-1]
        if shares is not None and len(shares) != len(life.caller.status.addresses):
            raise Recovered(
                f"graph {self.status.graph} was opened again on {len(life.caller.status.addresses)} workers"
            )
        return life

    def read(self, read: Callable[[Numbering], T]) -> T:
        """As `Directory.read` of the graph's directory."""
        if (directory := self._directory()) is None:
            raise GraphClosed(f"graph {self.status.graph} is gone")
        return directory.read(read)

    # ---- recovering --------------------------------------------------------------------------------------------------

    def recover(self, number: int) -> None:
        """Return when the life after `number` has begun; nothing if it has."""
        life = self._lives[number]
        self._recover(life, WorkerLost(f"graph {self.status.graph}: a worker was lost"))

    def _recover(self, life: Life, error: MgraphError) -> None:
        """Begin another life after `life`, unless it has begun. Raises `error` if `life` is not lost."""
        if not self._is_lost(life):
            raise error
        with self._lock:
            if life is not self._lives[-1]:
                return
            began = time.monotonic()
            if not life.ended:
                life.ended = True
                logger.warning("%s; the graph is opened again from its store", error)
            life.caller.close()
            life.caller.land()  # after which the last acknowledged epoch is known
            then = self._begun(life, error)
            if (directory := self._directory()) is not None:
                directory.renew(then.numbering, then.options)  # first: who sees the new life sees its numbering
            self._lives.append(then)
            life.numbering = then.numbering  # the one before may be large, and is of no use any more
            seconds, workers = time.monotonic() - began, then.caller.status.addresses
            self.recoveries.append(Recovery(str(error), then.epoch, life.caller.status.epoch, seconds, workers))
            what = "graph %s is back as graph %s at epoch %d, on %d workers, after %.1f s"
            logger.warning(what, life.caller.status.graph, then.caller.status.graph, then.epoch, len(workers), seconds)

    def _begun(self, life: Life, error: MgraphError) -> Life:
        """The life after `life`. If that fails, every later call fails too."""
        self._in_a_row += 1
        if self._failed is None and self._in_a_row > self._most:
            self._failed = type(error)(
                f"{error}; the graph was opened again {self._most} times in a row: open the store"
            )
        if self._failed is not None:
            raise type(self._failed)(*self._failed.args)
        generation = 1 + max(life.numbering.generation, *(state.generation for state in life.caller.status.states))
        try:
            then = self._reopen(life, generation)
        except MgraphError as problem:
            self._failed = type(error)(f"{error}; the graph could not be opened again: {problem}")
            raise self._failed from problem
        if self._closed:
            then.caller.close()
            raise GraphClosed(f"graph {self.status.graph} was closed while it was opened again")
        then.number = life.number + 1
        return then

    def _is_lost(self, life: Life) -> bool:
        """Whether a life is over, and the user has not ended it."""
        if self._closed or not life.caller.bridge.alive:
            return False
        if life.ended or life is not self._lives[-1]:
            return True
        try:
            life.caller.check()
        except (WorkerLost, GraphLost):
            return True
        except MgraphError:
            pass
        return False

    def check(self) -> None:
        """Raise if no call is possible any more. If a worker was lost, recover."""
        life = self._lives[-1]
        try:
            life.caller.check()
        except MgraphError as error:
            self._recover(life, error)

    # ---- the life of now ---------------------------------------------------------------------------------------------

    def land(self) -> None:
        """Wait until no batch is in flight."""
        self._lives[-1].caller.land()

    def recall(self) -> None:
        """Drop the batches in flight."""
        self._lives[-1].caller.recall()

    def forget(self, result: str) -> None:
        """Free a result with the next call."""
        self._lives[-1].caller.forget(result)

    def close(self) -> None:
        """End the graph."""
        self._closed = True
        self._lives[-1].caller.close()
        if self._lock.acquire(timeout=CLOSE_SECONDS):  # else the thread that recovers ends what it opened
            self._lock.release()
            self._lives[-1].caller.close()

    @property
    def status(self) -> GraphStatus:
        """The status of the life of now."""
        life = self._lives[-1]
        return life.caller.status._replace(incarnation=life.number, closed=self._closed)

    @property
    def reached(self) -> int:
        """As `Caller.reached`."""
        return self._lives[-1].caller.reached
