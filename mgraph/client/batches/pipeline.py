"""Batches in flight: the client splits and sends the next batches while the workers apply the first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mgraph.batch import TOLD
from mgraph.calls import CALLS
from mgraph.checks import check_offset
from mgraph.client.batches.batch_results import BatchResults, Made
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

LOST_SECONDS = 30.0  #: for which it is waited, after a loss, until all batches in flight have ended


@dataclass(frozen=True)
class Shares:
    """The ranks' shares of a batch, and how many edges to delete are not among them since they cannot be there."""

    shares: list[Value]
    absent: int = 0


Sending = Callable[[Any, Value, Callable[[], None]], AbstractContextManager[Shares | UpdateReport]]
#: the call's name, each rank's share, and what makes the outcome of the answers; or the outcome, where it was made
Dealt = tuple[str, list[Value], Made[Any]] | UpdateReport | Answers


@dataclass
class _InFlight:
    """A batch that is not known to be committed, in a graph that comes back after a loss.

    Attributes
    ----------
    deal : callable
        A context manager that gives the `Dealt` of the batch, which is sent inside it.
    epoch : int or None
        The epoch that it was to be; None if it was not sent yet.
    incarnation : int
        The incarnation in which it was handed over to be sent.
    lost : bool
        Whether that incarnation was lost before its answer came.
    method : str
        The call's name.
    """

    deal: Callable[[], AbstractContextManager[Dealt]]
    pending: Pending[Any]
    made: Made[Any] = of_batch
    epoch: int | None = None
    incarnation: int = 0
    lost: bool = False
    method: str = "update"


class Pipeline:
    """Sends batches without waiting for earlier ones; they are committed in the order of the calls, an epoch each.

    Made by `DynamicGraph.pipeline`. One thread uses it, as a context manager.

    Parameters
    ----------
    coordinator : Caller
    sending : callable
        ``sending(batch, args, land)`` checks a batch and is a context manager that gives its `Shares`. A batch that has
        to be applied at once is applied, after ``land()`` has waited for those in flight, and gives its report.
    stream : callable
        ``stream(operations, land)`` is the same for a stream of updates and queries; it gives the `Dealt` of it.
    max_bytes : int
        Bytes of batches that may be in flight. A batch of more bytes is sent alone.
    landed : callable
        Called when the block was left and all batches are committed.
    history : History, optional
        Is told of each batch that is committed.

    Notes
    -----
    The first batch that fails ends the pipeline, and batches after it are not applied. The next call, or the end of the
    ``with`` block, raises its error, which names its epoch. All epochs before that one are committed.

    In a published graph the block is one turn: calls of other clients wait until it is left.

    While results are maintained with ``eager=True``, batches do not overlap: `update` and `execute` return when their
    batch is committed and those results are up to date with it, and raise its error themselves.

    Leaving the block waits until all batches are committed, even if an exception leaves it. Ctrl-C drops the batches
    that the workers have not voted on. Of a batch whose vote was interrupted the report says what is known: it is
    committed, without counts; or dropped; or, while workers do not answer or after a loss, that nobody knows.

    Small batches wait in a queue, up to 256 of them beside those in flight, and share messages: see
    `mgraph.client.calls.batch_group`. Each has an epoch and a report of its own all the same.

    If the graph comes back after a loss, with ``recover="auto"``, so do the batches in flight: those that the store has
    are reported, and the others are sent again. Until then the pipeline refers to their arrays.
    """

    def __init__(
        self,
        coordinator: Caller,
        sending: Sending,
        max_bytes: int,
        stream: Callable[[Operations, Callable[[], None]], AbstractContextManager[Dealt]] | None = None,
        landed: Callable[[], None] = lambda: None,
        history: History | None = None,
    ) -> None:
        self._coordinator, self._sending, self._max_bytes, self._stream = coordinator, sending, max_bytes, stream
        self._done, self._outcomes = landed, BatchResults(coordinator, history)
        self._open = False
        self._bytes = 0
        self._landed = asyncio.Event()
        self._sent: list[_InFlight] = []
        self._mending, self._told = threading.Lock(), threading.Condition()

    # ---- from the user's thread --------------------------------------------------------------------------------------

    def update(self, batch: Any, offset: tuple[str, int] | None = None) -> PendingReport:
        """Send a batch and return its pending report. Waits while there are `max_bytes` in flight.

        Do not change the batch's arrays until its report is done.

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
        pending = PendingReport(self._coordinator.runner, self._mend)
        self._send(_InFlight(partial(self._dealt, batch, args), pending))
        return pending

    def execute(self, operations: Operations) -> PendingAnswers:
        """Send a stream of updates and queries and return its pending answers. Waits as `update` does.

        A stream without updates has no epoch, and so no place among the batches in flight: it waits until they are
        committed, and until it is answered. So does one that brings keys. Vertices that are not there yet are unknown
        in a graph without keys, if it grows too.

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
        pending = PendingAnswers(self._coordinator.runner, self._mend)
        self._send(_InFlight(partial(self._stream, operations, self._land_all), pending))
        return pending

    def _ready(self) -> None:
        """Raise unless a batch may be sent."""
        if not self._open:
            raise InvalidOption('a pipeline takes batches inside its with block only: "with graph.pipeline() as p"')
        self._mend()
        self._outcomes.check()

    def _send(self, one: _InFlight) -> None:
        self._ready()
        while True:
            with suppress(Recovered):
                self._launch(one)
                return
            self._mend()
            self._outcomes.check()

    def _launch(self, one: _InFlight) -> None:
        with one.deal() as dealt:
            if isinstance(dealt, UpdateReport):
                one.pending.set_result(dealt)
                return
            if isinstance(dealt, Answers):
                self._outcomes.done(one.pending, "execute", dealt)
                return
            method, shares, one.made = dealt
            one.method, one.epoch = method, None
            sizes = [CALLS[method].size(share) for share in shares]
            n, caller = sum(size.nbytes for size in sizes), self._coordinator
            if caller.groups and method == "update" and n <= min(SMALL, self._max_bytes // MOST) and layout(shares):
                self._post(one, SmallBatch(self, shares, sizes, one))
                return
            caller.launch(method, shares, sizes, self.room(n), self._landing(one, n))

    def _post(self, one: _InFlight, small: SmallBatch) -> None:
        """Hand a small batch over, to be sent with others."""
        with self._told:
            self._sent.append(one)
        try:
            self._coordinator.post(small)
        except Exception:
            with self._told:
                self._sent.remove(one)
            raise

    @contextmanager
    def _dealt(self, batch: Any, args: Value) -> Iterator[Dealt]:
        with self._sending(batch, args, self._land_all) as sent:
            if isinstance(sent, UpdateReport):
                yield sent
            else:
                shares = [{**share, **args} for share in sent.shares]
                yield "update", shares, partial(of_batch, absent=sent.absent)

    def _land_all(self) -> None:
        """Wait until nothing is in flight.

        Raises
        ------
        Recovered
            Some were lost with a worker: those come first.
        MgraphError
            A batch failed.
        """
        self._coordinator.land()
        self._outcomes.check()
        if self._some_lost():
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
        """Wait until nothing is in flight any more; `error` is what left the block."""
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
        first = self._outcomes.error
        if error is None:
            self._outcomes.check()
            self._done()
        elif first is not None and str(first) != str(error):
            error.add_note(f"a batch in flight failed, too: {type(first).__name__}: {first}")

    def _recall(self) -> None:
        self._outcomes.end(self._outcomes.dropped())  # which refuses what waits to be sent
        self._coordinator.recall()
        self._drop(self._outcomes.dropped(), [])

    # ---- after a loss ------------------------------------------------------------------------------------------------

    def _mend(self) -> bool:
        """If batches in flight were lost with a worker, finish them when the graph is back; whether there were some.

        What the store has is reported, and the rest is sent again, in the same order.
        """
        if not self._some_lost():
            return False
        queue: list[_InFlight] = []
        with self._mending:
            try:
                if self._some_lost():
                    queue = self._taken()
                    self._resend(queue)
            except MgraphError as error:  # the graph does not come back, or has no room for a batch
                self._drop(error, queue)
            except BaseException:
                self._drop(self._outcomes.dropped(), queue)
                raise
        return True

    def _resend(self, queue: list[_InFlight]) -> None:
        """Report or send again what is in the queue, which is empty then."""
        caller = self._coordinator
        assert isinstance(caller, Recovering), "no other caller loses batches and goes on"
        while queue:
            one = queue[0]
            if one.lost:
                caller.recover(one.incarnation)
                answers = None if one.epoch is None else caller.outcome(one.incarnation, one.epoch)
                if answers is not None and one.epoch is not None:
                    self._outcomes.restore(one.pending, one.made, one.epoch, answers)
                    del queue[0]
                    continue
                one.lost = False
            try:
                self._launch(one)
                del queue[0]
            except Recovered:  # a worker was lost again: those that were sent before this one come first
                queue[:0] = self._taken()

    def _some_lost(self) -> bool:
        with self._told:
            return any(one.lost for one in self._sent)

    def _taken(self) -> list[_InFlight]:
        """All that were sent and did not land, when it is known of each that it is lost."""
        with self._told:
            if not self._told.wait_for(lambda: all(one.lost for one in self._sent), LOST_SECONDS):
                raise MgraphError(
                    f"graph {self._coordinator.status.graph}: batches in flight did not end within {LOST_SECONDS} s"
                )
            taken, self._sent = self._sent, []
            return taken

    def _drop(self, error: MgraphError, queue: list[_InFlight]) -> None:
        """End the pipeline with an error, which also the lost batches get, and those of the queue."""
        with self._told:
            self._outcomes.end(error)
            queue = [*queue, *(one for one in self._sent if one.lost)]
            self._sent = [one for one in self._sent if not one.lost]
        for one in queue:
            one.pending.set_exception(error)

    # ---- on the event loop -------------------------------------------------------------------------------------------

    def room(self, n: int) -> Callable[[], Any]:
        """A function that waits until `n` more bytes may be in flight, and raises if an earlier batch has failed."""

        async def wait() -> None:
            while self._bytes and self._bytes + n > self._max_bytes:
                self._landed.clear()
                await self._landed.wait()
            if self._some_lost():
                raise Recovered("a worker was lost")
            self._outcomes.check()

        return wait

    def _landing(self, one: _InFlight, n: int) -> Callable[..., None]:
        """The function that is called with a batch's task, its epoch and its incarnation when it is sent."""

        def sent(flight: Flight, epoch: int, incarnation: int = 0) -> None:
            self._bytes += n
            one.epoch, one.incarnation = epoch, incarnation
            with self._told:
                self._sent.append(one)
            flight.add_done_callback(partial(self._land, one, n, time.perf_counter()))

        return sent

    def _land(self, one: _InFlight, n: int, began: float, flight: Flight) -> None:
        """Give a batch its outcome, or say that it was lost."""
        self._bytes -= n
        self._landed.set()
        if not self._leaves([one], None if flight.cancelled() else flight.exception()):
            self._end(one, began, flight)

    def _leaves(self, batches: list[_InFlight], error: BaseException | None) -> bool:
        """Take batches that have ended with `error` out of those in flight; True if they were lost, which stay."""
        with self._told:
            lost = self._is_lost(error)
            for one in batches:
                if lost:
                    one.lost = True
                else:
                    self._sent.remove(one)
            self._told.notify_all()
        return lost

    def group_sent(self, group: BatchGroup, flight: Flight, epoch: int) -> None:
        """See `Sender`."""
        self._bytes += group.nbytes
        for i, item in enumerate(group.items):
            item.batch.epoch, item.batch.incarnation = epoch + i, item.incarnation
        flight.add_done_callback(partial(self._land_group, group, epoch, time.perf_counter()))

    def group_refused(self, group: BatchGroup, error: BaseException) -> None:
        """See `Sender`. The pipeline ends with the error, unless the graph comes back."""
        for item in group.items:
            item.batch.incarnation = item.incarnation
        if self._leaves([item.batch for item in group.items], error):
            return
        error = error if isinstance(error, Exception) else self._outcomes.dropped()
        self._outcomes.end(error)
        for item in group.items:
            item.batch.pending.set_exception(error)

    def _land_group(self, group: BatchGroup, epoch: int, began: float, flight: Flight) -> None:
        """Give each batch of a group its report or its error."""
        self._bytes -= group.nbytes
        self._landed.set()
        error, batches = None if flight.cancelled() else flight.exception(), [item.batch for item in group.items]
        if self._leaves(batches, error):
            return
        failed = flight.cancelled() or error is not None
        counts = group.done if failed else committed_counts(flight.result())
        seconds = time.perf_counter() - began
        for i, one in enumerate(batches):
            if i < len(counts) or not failed:
                answer = {"epoch": epoch + i, **dict(zip(TOLD, counts[i].tolist(), strict=True))}
                self._outcomes.land(one.pending, "update", one.made, [answer], seconds)
            else:
                self._outcomes.fail(one.pending, "update", one.made, epoch + i, error)

    def _is_lost(self, error: BaseException | None) -> bool:
        """Whether a batch failed with a worker, in a graph that comes back, and not after another error."""
        caller, ends = self._coordinator, (WorkerLost, GraphLost, GraphClosed, Recovered)
        comes_back = isinstance(caller, Recovering) and not caller.status.closed
        return comes_back and self._outcomes.error is None and isinstance(error, ends)

    def _end(self, one: _InFlight, began: float, flight: Flight) -> None:
        error = None if flight.cancelled() else flight.exception()
        if flight.cancelled() or error is not None:
            assert one.epoch is not None, "it was sent"
            self._outcomes.fail(one.pending, one.method, one.made, one.epoch, error)
        else:
            self._outcomes.land(one.pending, one.method, one.made, flight.result(), time.perf_counter() - began)
