"""Batches in flight: the client splits and sends the next batches while the workers apply the first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from mgraph.checks import check_offset
from mgraph.client.caller import Alive, Caller, Flight, Value
from mgraph.client.report import UpdateReport, of_batch
from mgraph.client.shares import nbytes
from mgraph.errors import GraphClosed, InvalidOption
from mgraph.protocol import retold

__all__ = ["PendingReport", "Pipeline"]

T = TypeVar("T")

POLL_SECONDS = 0.5  #: between two checks of a wait whether the client still runs


class PendingReport(Future[UpdateReport]):
    """The report of a batch in flight: a `concurrent.futures.Future` that cannot be cancelled.

    Waiting for it raises `GraphClosed` if the Dask client is closed meanwhile.
    """

    def __init__(self, bridge: Alive) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self._bridge = bridge

    def result(self, timeout: float | None = None) -> UpdateReport:
        """The report, or raises the batch's error; `TimeoutError` after `timeout` seconds."""
        return self._polled(super().result, timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The batch's error, or None; raises `TimeoutError` after `timeout` seconds."""
        return self._polled(super().exception, timeout)

    def _polled(self, wait: Callable[[float], T], timeout: float | None) -> T:
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return wait(max(0.0, min(POLL_SECONDS, end - time.monotonic())))
            except TimeoutError:
                if self.done():  # it has finished just now, or the TimeoutError is the batch's own error
                    return wait(0)
                if time.monotonic() >= end:
                    raise
                if not self._bridge.alive:
                    raise GraphClosed("the Dask client of this graph was closed while a batch was in flight") from None


class Pipeline:
    """Sends batches without waiting for earlier ones; they are committed in the order of the calls, an epoch each.

    Made by `DynamicGraph.pipeline`. One thread uses it, as a context manager.

    Parameters
    ----------
    coordinator : Caller
    deal : callable
        Checks a batch and splits it into the ranks' shares.
    max_bytes : int
        Bytes of batches that may be in flight. A batch of more bytes is sent alone.

    Notes
    -----
    The first batch that fails ends the pipeline, and batches after it are not applied. The next call, or the end of the
    ``with`` block, raises its error, which names its epoch. All epochs before that one are committed.

    Leaving the block waits until all batches are committed, even if an exception leaves it. Ctrl-C drops the batches
    that the workers have not voted on.
    """

    def __init__(self, coordinator: Caller, deal: Callable[[Any], list[Value]], max_bytes: int) -> None:
        self._coordinator, self._deal, self._max_bytes = coordinator, deal, max_bytes
        self._open = False
        self._error: BaseException | None = None
        self._bytes = 0
        self._landed = asyncio.Event()

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
        if not self._open:
            raise InvalidOption('a pipeline takes batches inside its with block only: "with graph.pipeline() as p"')
        self._check()
        shares = self._deal(batch)
        if offset is not None:
            place = check_offset(offset)
            shares = [{**share, "offset": place} for share in shares]
        pending = PendingReport(self._coordinator.bridge)
        self._coordinator.launch("update", shares, self.room(nbytes(shares)), self._landing(pending, nbytes(shares)))
        return pending

    def __enter__(self) -> Pipeline:
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._open = False
        if error is not None and not isinstance(error, Exception):  # Ctrl-C
            self._coordinator.recall()
            return
        try:
            self._coordinator.land()
        except KeyboardInterrupt:
            self._coordinator.recall()
            raise
        if error is None:
            self._check()
        elif self._error is not None and str(self._error) != str(error):
            error.add_note(f"a batch in flight failed, too: {type(self._error).__name__}: {self._error}")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)

    # ---- on the event loop -------------------------------------------------------------------------------------------

    def room(self, n: int) -> Callable[[], Any]:
        """A function that waits until `n` more bytes may be in flight, and raises if an earlier batch has failed."""

        async def wait() -> None:
            while self._bytes and self._bytes + n > self._max_bytes:
                self._landed.clear()
                await self._landed.wait()
            self._check()

        return wait

    def _landing(self, pending: PendingReport, n: int) -> Callable[[Flight, int], None]:
        """The function that is called with a batch's task and epoch when it is sent."""

        def sent(flight: Flight, epoch: int) -> None:
            self._bytes += n
            flight.add_done_callback(partial(self._land, pending, n, epoch, time.perf_counter()))

        return sent

    def _land(self, pending: PendingReport, n: int, epoch: int, began: float, flight: Flight) -> None:
        """Give `pending` the outcome of a batch."""
        self._bytes -= n
        self._landed.set()
        if flight.cancelled():
            what = f"graph {self._coordinator.graph}: the batch of epoch {epoch} was dropped because of Ctrl-C"
            pending.set_exception(GraphClosed(what))
        elif (error := flight.exception()) is not None:
            told = retold(error, f"the batch of epoch {epoch} in a pipeline; those before it are committed")
            told.with_traceback(None)  # its frames would keep the coordinator alive as long as the report
            self._error = self._error or told
            pending.set_exception(told)
        else:
            try:
                pending.set_result(of_batch(flight.result(), time.perf_counter() - began))
            except Exception as problem:  # a bug in mgraph must not leave a wait for the report without an end
                pending.set_exception(problem)
