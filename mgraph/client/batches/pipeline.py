"""Pipelines: batches in flight. The client splits and sends the next batches while the workers apply the first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from mgraph.batch import TOLD
from mgraph.calls import CALLS
from mgraph.checks import check_offset
from mgraph.client.batches.batch_results import BatchResults, MakeOutcome
from mgraph.client.batches.mixed import Answers
from mgraph.client.batches.pending import Pending, PendingAnswers, PendingReport
from mgraph.client.calls.batch_group import MOST, SMALL, BatchGroup, SmallBatch, committed_counts, layout
from mgraph.client.calls.caller import Caller, Flight, Value
from mgraph.client.reports.history import History
from mgraph.client.reports.report import UpdateReport, of_batch
from mgraph.client.stores.recovery import Recovering
from mgraph.errors import GraphClosed, GraphLost, InvalidOption, MgraphError, WorkerLost
from mgraph.failures import Recovered
from mgraph.operations import Operations

__all__ = ["Pipeline", "Shares"]

LOST_SECONDS = 30.0  #: time for all batches in flight to end after a loss


class Shares(NamedTuple):
    """Each rank's share of a batch, and the number of deletions left out because a key is unknown."""

    shares: list[Value]
    absent: int = 0


Sending = Callable[[Any, Value, Callable[[], None]], AbstractContextManager[Shares | UpdateReport]]
#: the shares of a batch; or the call's name, each rank's share, and the function that makes the outcome; or the outcome
Prepared = Shares | tuple[str, list[Value], MakeOutcome[Any]] | UpdateReport | Answers


@dataclass(eq=False, slots=True)
class _InFlight:
    """A batch that is not known to be committed, kept to be sent again after a loss.

    Attributes
    ----------
    deal : callable
        Returns a context manager that prepares the batch, which is sent inside it.
    epoch : int or None
        The epoch that it was sent as; None if it was not sent yet.
    incarnation : int
        The incarnation in which it was handed over.
    lost : bool
        True if that incarnation ended before the answer.
    method : str
        The call's name.
    """

    deal: Callable[[], AbstractContextManager[Prepared]]
    pending: Pending[Any]
    make: MakeOutcome[Any] = of_batch
    epoch: int | None = None
    incarnation: int = 0
    lost: bool = False
    method: str = "update"


class Pipeline:
    """Sends batches without waiting for earlier ones, and commits them in call order, one epoch each.

    `DynamicGraph.pipeline` makes it. One thread uses it, as a context manager.

    Notes
    -----
    The first batch that fails ends the pipeline, and batches after it are not applied. The next call, or the end of the
    ``with`` block, raises its error, which names its epoch. All epochs before that one are committed.

    In a published graph the block is one turn: calls of other clients wait until it is left.

    While results are maintained with ``eager=True``, batches do not overlap: `update` and `execute` return when their
    batch is committed and those results are up to date with it, and raise its error themselves.

    Leaving the block waits until all batches are committed, even if an exception leaves it. Ctrl-C drops the batches
    that the workers have not voted on. If the vote on a batch was interrupted, its report says that it is committed,
    without counts; or dropped; or, while workers do not answer or after a loss, that this is not known. A block that
    catches Ctrl-C goes on. The batch of an `update` that it interrupted is committed or not, and after a loss it is not
    sent again.

    Small batches share calls (`mgraph.client.calls.batch_group`), but each has its own epoch and report. Up to 256 of
    them wait beside the batches in flight. In the user's process up to 63 wait for others, for about 10 ms at most, or
    until a report is requested or another call is made.

    With ``recover="auto"``, batches in flight survive a loss: those in the store are reported, and the others are sent
    again. Until then the pipeline refers to their arrays.
    """

    def __init__(
        self,
        coordinator: Caller,
        sending: Sending,
        max_bytes: int,
        stream: Callable[[Operations, Callable[[], None]], AbstractContextManager[Prepared]] | None = None,
        landed: Callable[[], None] = lambda: None,
        history: History | None = None,
    ) -> None:
        """Make the pipeline of a graph.

        Parameters
        ----------
        coordinator : Caller
        sending : callable
            ``sending(batch, args, land)`` checks a batch and returns a context manager that yields its `Shares`, each
            with `args`. A batch that cannot overlap is applied there, after ``land()`` has waited for those in flight;
            its report is yielded.
        stream : callable
            ``stream(operations, land)`` does the same for a stream of updates and queries, and yields its `Prepared`.
        max_bytes : int
            Bytes of batches that may be in flight. A batch of more bytes is sent alone.
        landed : callable
            Called after the block, when all batches are committed.
        history : History, optional
            Records each batch that is committed.
        """
        self._coordinator, self._sending, self._max_bytes, self._stream = coordinator, sending, max_bytes, stream
        self._done, self._outcomes = landed, BatchResults(coordinator, history)
        self._open = self._changed = False
        self._bytes = 0
        self._landed = asyncio.Event()
        self._sent: list[_InFlight] = []
        self._lost = 0  # batches among them that were lost
        # Ctrl-C may come within a Condition's own `__enter__` and `__exit__`, so they would leave the lock held.
        self._mending, self._lock = threading.Lock(), threading.RLock()
        self._ends = threading.Condition(self._lock)

    # ---- from the user's thread --------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # type checkers must see unknown names

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"a pipeline has no {name!r}; update sends batches, such as EdgeBatch(src, dst) with op=-1 for "
                "deletions, and execute sends operations"
            )

    def update(self, batch: Any, offset: tuple[str, int] | None = None) -> PendingReport:
        """Send a batch and return its pending report.

        Waits while there are `max_bytes` in flight. Do not change the batch's arrays until its report is done.

        Parameters
        ----------
        batch : EdgeBatch
        offset : (str, int), optional
            The name of a source and the batch's place in it, as in `DynamicGraph.update`.

        Returns
        -------
        PendingReport
            ``.result()`` waits for the `UpdateReport`.

        Raises
        ------
        Exception
            As `DynamicGraph.update` for this batch; or the error of an earlier batch, and this one is not sent.
        """
        args = {} if offset is None else {"offset": check_offset(offset)}
        pending = PendingReport(self._coordinator, self._mend)
        self._send(_InFlight(partial(self._sending, batch, args, self._land_all), pending))
        self._changed = True
        return pending

    def execute(self, operations: Operations) -> PendingAnswers:
        """Send a stream of updates and queries and return its pending answers.

        Waits as `update` does. A stream without updates has no epoch, and so no place among the batches in flight: the
        call waits until they are committed, and until the stream is answered. So does a stream with new keys. In a
        graph without keys, new vertices are unknown, even if the graph grows.

        Parameters
        ----------
        operations : Operations

        Returns
        -------
        PendingAnswers
            ``.result()`` waits for the `Answers`.

        Raises
        ------
        Exception
            As `DynamicGraph.execute` for these operations; or the error of an earlier batch, and these are not sent.
        """
        assert self._stream is not None
        pending = PendingAnswers(self._coordinator, self._mend)
        self._send(_InFlight(partial(self._stream, operations, self._land_all), pending))
        self._changed = self._changed or operations.n_updates > 0
        return pending

    def _ready(self) -> None:
        """Raise an error unless a batch may be sent."""
        if not self._open:
            raise InvalidOption('a pipeline takes batches inside its with block only: "with graph.pipeline() as p"')
        self._mend()
        self._outcomes.check()

    def _send(self, batch: _InFlight) -> None:
        self._ready()
        while True:
            try:
                return self._launch(batch)
            except Recovered:
                pass
            self._mend()
            self._outcomes.check()

    def _launch(self, batch: _InFlight) -> None:
        with batch.deal() as prepared:
            # The batch could not overlap, and was applied already.
            if isinstance(prepared, UpdateReport):
                batch.pending.set_result(prepared)
                return
            if isinstance(prepared, Answers):
                self._outcomes.done("execute", [(batch.pending, prepared)])
                return

            # Small batches share messages; others are sent alone.
            if isinstance(prepared, Shares):
                method, shares = "update", prepared.shares
                batch.make = partial(of_batch, absent=prepared.absent) if prepared.absent else of_batch
            else:
                method, shares, batch.make = prepared
            batch.method, batch.epoch = method, None
            first, call = shares[0], CALLS[method]
            size = call.size(first)
            sizes = [size if share is first else call.size(share) for share in shares]
            n, caller = sum([size.nbytes for size in sizes]), self._coordinator
            small = caller.groups and method == "update" and n <= min(SMALL, self._max_bytes // MOST)
            if small and (shared_layout := layout(shares)) is not None:
                self._post(batch, SmallBatch(self, shares, sizes, shared_layout, batch))
                return
            caller.launch(method, shares, sizes, self.room(n), self._landing(batch, n))

    def _post(self, batch: _InFlight, small: SmallBatch) -> None:
        """Queue a small batch, to be sent with others in one message."""
        try:
            with self._lock:
                self._sent.append(batch)
            self._coordinator.post(small)
        except BaseException:
            # After Ctrl-C it may be in the queue or not: nobody waits for its end.
            with self._lock:
                if batch in self._sent:
                    self._sent.remove(batch)
                    self._lost -= batch.lost
                self._ends.notify_all()
            raise

    def _land_all(self) -> None:
        """Wait until nothing is in flight.

        Raises
        ------
        Recovered
            Batches were lost with a worker, and come first.
        MgraphError
            A batch failed.
        """
        self._coordinator.land()
        self._outcomes.check()
        if self._lost:
            raise Recovered("a worker was lost")

    def __enter__(self) -> Pipeline:
        self._turn = self._coordinator.lock
        self._turn.__enter__()
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._open = False
        try:
            self._leave(error)
        finally:
            self._turn.__exit__(None, None, None)

    def _leave(self, error: BaseException | None) -> None:
        """Wait for all batches in flight; `error` is the block's exception."""
        if error is not None and not isinstance(error, Exception):  # Ctrl-C
            self._recall()
            return
        try:
            self._coordinator.land()
            while self._mend():
                self._coordinator.land()
        except KeyboardInterrupt:
            self._recall()
            raise

        # Raise the error that ended the pipeline, or add it to the exception that left the block.
        first = self._outcomes.error
        if error is None:
            self._outcomes.check()
        elif first is not None and str(first) != str(error):
            error.add_note(f"a batch in flight failed, too: {type(first).__name__}: {first}")

        # The batches are committed, also if an exception of the user left the block.
        if self._changed and first is None:
            try:
                self._done()
            except MgraphError as failed:
                if error is None:
                    raise
                error.add_note(f"after the batches in flight: {type(failed).__name__}: {failed}")

    def _recall(self) -> None:
        self._outcomes.end(self._outcomes.dropped())  # so batches in the queue are refused
        alone = False
        try:
            alone = self._coordinator.recall()
        finally:  # even after a second Ctrl-C
            # Nobody resends what was lost with a worker, nor ends what Ctrl-C left behind while it was sent.
            self._drop(None, [], everything=alone)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pipeline cannot be pickled: it belongs to the process that made it")

    # ---- after a loss ------------------------------------------------------------------------------------------------

    def _mend(self) -> bool:
        """Finish the batches that were lost with a worker, once the graph is back. Return True if any were.

        Batches in the store are reported; the rest is sent again, in the same order.
        """
        if not self._lost:
            return False
        queue: list[_InFlight] = []

        # A single thread resends; others wait for it and find nothing left.
        with self._mending:
            try:
                if self._lost:
                    queue = self._take_lost()
                    self._resend(queue)
            except MgraphError as error:
                # The graph does not come back, or has no room for a batch.
                self._drop(error, queue)
            except BaseException:
                self._drop(None, queue)
                raise
        return True

    def _resend(self, queue: list[_InFlight]) -> None:
        """Report or resend each batch of the queue, until it is empty."""
        caller = self._coordinator
        assert isinstance(caller, Recovering), "no other caller loses batches and goes on"
        while queue:
            batch = queue[0]

            # The batch is done if the store has its epoch.
            if batch.lost:
                caller.recover(batch.incarnation)
                answers = None if batch.epoch is None else caller.outcome(batch.incarnation, batch.epoch)
                if answers is not None and batch.epoch is not None:
                    self._outcomes.restore(batch.pending, batch.make, batch.epoch, answers)
                    del queue[0]
                    continue
                batch.lost = False

            # Send it again.
            try:
                self._launch(batch)
                del queue[0]
            except Recovered:
                # Another loss: batches sent before this one come first.
                queue[:0] = self._take_lost()

    def _take_lost(self) -> list[_InFlight]:
        """Return all batches in flight, once all are lost."""
        with self._lock:
            if not self._ends.wait_for(lambda: self._lost == len(self._sent), LOST_SECONDS):
                raise MgraphError(
                    f"graph {self._coordinator.status.graph}: batches in flight did not end within {LOST_SECONDS} s"
                )
            taken, self._sent, self._lost = self._sent, [], 0
            return taken

    def _drop(self, error: MgraphError | None, queue: list[_InFlight], everything: bool = False) -> None:
        """End the pipeline, its lost batches, or `everything` that was sent, and the queue; None is for Ctrl-C."""
        with self._lock:
            self._outcomes.end(error or self._outcomes.dropped())
            queue = [*queue, *(batch for batch in self._sent if batch.lost or everything)]
            self._sent, self._lost = [batch for batch in self._sent if not (batch.lost or everything)], 0
        for batch in queue:
            batch.pending.fail(error or self._outcomes.dropped(batch.epoch if batch.lost else None))

    # ---- on the event loop -------------------------------------------------------------------------------------------

    def room(self, n: int) -> Callable[[], Any]:
        """Return a coroutine function that waits for room for `n` more bytes in flight.

        It raises an error if an earlier batch has failed.
        """

        async def wait() -> None:
            while True:
                if self._lost:
                    raise Recovered("a worker was lost")
                self._outcomes.check()
                if not self._bytes or self._bytes + n <= self._max_bytes:
                    return
                self._landed.clear()
                await self._landed.wait()

        return wait

    def _landing(self, batch: _InFlight, n: int) -> Callable[..., None]:
        """Return a callback for the task and epoch of a sent batch."""

        def sent(flight: Flight, epoch: int, incarnation: int = 0) -> None:
            self._bytes += n
            batch.epoch, batch.incarnation = epoch, incarnation
            with self._lock:
                self._sent.append(batch)
            flight.add_done_callback(partial(self._land, batch, n, time.perf_counter()))

        return sent

    def _land(self, batch: _InFlight, n: int, began: float, flight: Flight) -> None:
        """Resolve a batch whose flight has ended, unless it was lost."""
        self._bytes -= n
        self._landed.set()
        if not self._leaves([batch], None if flight.cancelled() else flight.exception()):
            self._end(batch, began, flight)

    def _leaves(self, batches: list[_InFlight], error: BaseException | None) -> bool:
        """Remove batches that ended with `error` from those in flight. Return True if they were lost, and stay."""
        with self._lock:
            lost = self._is_lost(error)
            for batch in batches:
                if batch in self._sent:
                    batch.lost = lost
                    if lost:
                        self._lost += 1
                    else:
                        self._sent.remove(batch)
            self._ends.notify_all()
        return lost

    def group_sent(self, group: BatchGroup, flight: Flight, epoch: int) -> None:
        """Note the epochs of a group's batches; the group was sent."""
        self._bytes += group.nbytes
        for i, item in enumerate(group.items):
            item.batch.epoch, item.batch.incarnation = epoch + i, item.incarnation
        flight.add_done_callback(partial(self._land_group, group, epoch, time.perf_counter()))

    def group_refused(self, group: BatchGroup, error: BaseException) -> None:
        """End the pipeline with the error that kept a group from being sent, unless the graph recovers.

        In the user's process also with a Ctrl-C while the group was noted as sent, or while its reports were made.
        """
        for item in group.items:
            item.batch.incarnation = item.incarnation
        batches = [item.batch for item in group.items]
        if self._leaves(batches, error):
            return
        known = error if isinstance(error, Exception) else None
        error = known or self._outcomes.dropped()
        for batch in [batch for batch in batches if not batch.pending.done()]:
            # A batch that was sent may be in the graph.
            if batch.epoch is not None:
                self._outcomes.fail(batch.pending, "update", batch.make, batch.epoch, known)
            self._outcomes.end(error)
            batch.pending.fail(error)

    def _land_group(self, group: BatchGroup, epoch: int, began: float, flight: Flight) -> None:
        """Resolve each batch of a group with its report or its error."""
        self._bytes -= group.nbytes
        self._landed.set()
        error, batches = None if flight.cancelled() else flight.exception(), [item.batch for item in group.items]
        if self._leaves(batches, error):
            return

        # If the group failed, its first batches may be committed all the same.
        failed = flight.cancelled() or error is not None
        counts = group.done if failed else committed_counts(flight.result())

        # Each batch is an epoch of its own.
        seconds, rows = time.perf_counter() - began, counts.tolist()
        committed = batches[: len(rows)] if failed else batches
        answers = [{"epoch": epoch + i, **dict(zip(TOLD, rows[i], strict=True))} for i in range(len(committed))]
        landed = [(batch.pending, batch.make, [answer]) for batch, answer in zip(committed, answers, strict=True)]
        self._outcomes.land("update", landed, seconds)
        for i, batch in enumerate(batches[len(committed) :], len(committed)):
            self._outcomes.fail(batch.pending, "update", batch.make, epoch + i, error)

    def _is_lost(self, error: BaseException | None) -> bool:
        """Return True if a batch failed with a worker, in a graph that recovers, before any other error."""
        caller, ends = self._coordinator, (WorkerLost, GraphLost, GraphClosed, Recovered)
        recovers = isinstance(caller, Recovering) and not caller.status.closed
        return recovers and self._outcomes.error is None and isinstance(error, ends)

    def _end(self, batch: _InFlight, began: float, flight: Flight) -> None:
        error = None if flight.cancelled() else flight.exception()
        if flight.cancelled() or error is not None:
            assert batch.epoch is not None, "it was sent"
            self._outcomes.fail(batch.pending, batch.method, batch.make, batch.epoch, error)
        else:
            landed = [(batch.pending, batch.make, flight.result())]
            self._outcomes.land(batch.method, landed, time.perf_counter() - began)
