"""Several batches from the client in flight: the next are dealt while the workers apply the first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from mgraph.errors import GraphClosed, InvalidOption
from mgraph.runtime.coordinator import Coordinator
from mgraph.runtime.protocol import retold
from mgraph.runtime.report import UpdateReport, of_batch
from mgraph.runtime.shares import nbytes

__all__ = ["PendingReport", "Pipeline"]

T = TypeVar("T")

Answer = dict[str, Any]

POLL_SECONDS = 0.5


class PendingReport(Future[UpdateReport]):
    """The report of a batch in flight, a `concurrent.futures.Future`; it cannot be cancelled.

    Its waits end with `GraphClosed` where the Dask client is closed meanwhile.
    """

    def __init__(self, alive: Callable[[], bool]) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self._alive = alive

    def result(self, timeout: float | None = None) -> UpdateReport:
        """The report, or what the batch raised; `TimeoutError` after `timeout` seconds."""
        return self._polled(super().result, timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the batch raised, or None; `TimeoutError` after `timeout` seconds."""
        return self._polled(super().exception, timeout)

    def _polled(self, wait: Callable[[float], T], timeout: float | None) -> T:
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return wait(max(0.0, min(POLL_SECONDS, end - time.monotonic())))
            except TimeoutError:
                if self.done():  # just now, or the batch's own error
                    return wait(0)
                if time.monotonic() >= end:
                    raise
                if not self._alive():
                    raise GraphClosed("the Dask client of this graph was closed while a batch was in flight") from None


class Pipeline:
    """Batches that are committed in the order of the calls, as epochs, while later ones are on their way.

    Made by `DynamicGraph.pipeline`, used as a context manager by one thread.

    Parameters
    ----------
    coordinator : Coordinator
    deal : callable
        Checks a batch and makes the ranks' shares of it.
    max_bytes : int
        Bytes that may be in flight; a batch larger than that goes alone.

    Notes
    -----
    The first batch that fails ends the pipeline: those after it are not applied, and the next call, or the end of the
    ``with`` block, raises its error, which names its epoch; all epochs before that one are committed.

    Leaving the block waits until all batches are committed, also where it is left by an exception. Ctrl-C drops what is
    not yet voted on.
    """

    def __init__(self, coordinator: Coordinator, deal: Callable[[Any], list[Answer]], max_bytes: int) -> None:
        self._coordinator, self._deal, self._max_bytes = coordinator, deal, max_bytes
        self._open = False
        self._error: BaseException | None = None
        self._bytes = 0
        self._landed = asyncio.Event()

    # ---- from the user's thread --------------------------------------------------------------------------------------

    def update(self, batch: Any) -> PendingReport:
        """Send a batch; returns as soon as it is on its way, which waits while `max_bytes` are in flight.

        Do not change its arrays until its report is there.

        Parameters
        ----------
        batch : EdgeBatch

        Returns
        -------
        PendingReport
            ``.result()`` waits for the `UpdateReport`.

        Raises
        ------
        Exception
            As `DynamicGraph.update` for this batch; or the error of an earlier one, after which this one is not sent.
        """
        if not self._open:
            raise InvalidOption('a pipeline takes batches inside its block: "with graph.pipeline() as p"')
        self._check()
        shares = self._deal(batch)
        pending = PendingReport(lambda: self._coordinator.bridge.alive)
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
            error.add_note(f"a batch in flight failed besides: {type(self._error).__name__}: {self._error}")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)

    # ---- on the event loop -------------------------------------------------------------------------------------------

    def room(self, n: int) -> Callable[[], Any]:
        """What waits until `n` more bytes may be in flight, and raises where an earlier batch failed."""

        async def wait() -> None:
            while self._bytes and self._bytes + n > self._max_bytes:
                self._landed.clear()
                await self._landed.wait()
            self._check()

        return wait

    def _landing(self, pending: PendingReport, n: int) -> Callable[[asyncio.Task[list[Answer]], int], None]:
        """What is called with a batch's task and epoch when it is sent."""

        def sent(task: asyncio.Task[list[Answer]], epoch: int) -> None:
            began = time.perf_counter()
            self._bytes += n

            def landed(task: asyncio.Task[list[Answer]]) -> None:
                self._bytes -= n
                self._landed.set()
                if task.cancelled():
                    pending.set_exception(GraphClosed(f"the batch of epoch {epoch} was dropped: Ctrl-C"))
                elif (error := task.exception()) is not None:
                    told = retold(error, f"the batch of epoch {epoch} in a pipeline; those before it are committed")
                    self._error = self._error or told
                    pending.set_exception(told)
                else:
                    pending.set_result(of_batch(task.result(), time.perf_counter() - began))

            task.add_done_callback(landed)

        return sent
