"""Outcomes of batches in flight, as futures."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from threading import RLock, current_thread, main_thread
from typing import Any, TypeVar

from mgraph.client.batches.mixed import Answers
from mgraph.client.calls.caller import Caller
from mgraph.client.reports.report import UpdateReport
from mgraph.errors import GraphClosed

__all__ = ["Pending", "PendingAnswers", "PendingReport"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

POLL_SECONDS = 0.5  #: time between two checks that the client still runs
_WAITED = ("_condition", "_waiters", "_done_callbacks")  # attributes of `Future`
_LOCK = RLock()  # shared by all futures for which nobody waits


def _renew_lock() -> None:
    """Replace the lock in a forked child: a thread that the child does not have may hold it."""
    global _LOCK
    _LOCK = RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Pending(Future[T]):
    """The outcome of a batch in flight: a `concurrent.futures.Future` that cannot be cancelled.

    Waiting for it raises `GraphClosed` if the Dask client is closed meanwhile.
    """

    def __init__(self, caller: Caller, mend: Callable[[], object]) -> None:
        # What others wait with is made when the first of them waits: six objects, which the garbage collector follows.
        self._state, self._result, self._exception = "RUNNING", None, None
        self._waited = False
        self._caller: Caller | None = caller
        self._mend = mend

    def __getattr__(self, name: str) -> Any:
        if name not in _WAITED:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        with _LOCK:
            if not self._waited:
                made = Future[T]()
                vars(self).update({name: getattr(made, name) for name in _WAITED})
                self._waited = True
        return vars(self)[name]

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn` with this future once it is done, in any thread. Its errors are logged, even SystemExit.

        If this future is done already, `fn` is called at once, and may end the calling thread.
        """
        super().add_done_callback(fn if self.done() else partial(_call, fn))

    def cancel(self) -> bool:
        """Return False: the batch may be on its way."""
        return False

    def done(self) -> bool:
        """Return True if the batch is committed, or has failed."""
        return self._state == "FINISHED"

    def set_result(self, result: T) -> None:
        """Set the outcome."""
        with _LOCK:
            alone = not self._waited and not self.done()
            if alone:
                self._result, self._state = result, "FINISHED"
        if not alone:
            super().set_result(result)
        self._end()

    def set_exception(self, exception: BaseException | None) -> None:
        """Set the batch's error."""
        super().set_exception(exception)
        self._end()

    def fail(self, exception: BaseException) -> None:
        """Set the batch's error unless it has an outcome, which another thread may set now."""
        with suppress(InvalidStateError):
            self.set_exception(exception)

    def _end(self) -> None:
        # So that a report does not keep the graph alive.
        self._caller, self._mend = None, _nothing

    def hurry(self, wait: bool = True) -> None:
        """Have the batch applied now if it waits for others in this process.

        Without `wait`, only if no call of the graph runs; otherwise it is applied after that call.
        """
        if (caller := self._caller) is not None:
            caller.flush(wait)

    def result(self, timeout: float | None = None) -> T:
        """Return the outcome, or raise the batch's error; `TimeoutError` after `timeout` seconds.

        If a worker was lost in a graph that recovers, the batch is sent again first, which may take longer.
        """
        if self.done() and self._exception is None:
            return self._result  # type: ignore[return-value]
        return self._polled(super().result, timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the batch's error, or None; raise `TimeoutError` after `timeout` seconds."""
        return self._exception if self.done() else self._polled(super().exception, timeout)

    def _polled(self, wait: Callable[[float], U], timeout: float | None) -> U:
        end, caller = float("inf") if timeout is None else time.monotonic() + timeout, self._caller
        self.hurry(wait=timeout is None)
        while True:
            # Wait in short intervals, to resend batches after a loss and to notice a closed client.
            try:
                return wait(max(0.0, min(POLL_SECONDS, end - time.monotonic())))
            except TimeoutError:
                # It has finished just now, or the TimeoutError is the batch's own error.
                if self.done():
                    return wait(0)
                if time.monotonic() >= end:
                    raise
                self._mend()
                if caller is not None and not caller.runner.alive:
                    raise GraphClosed("the Dask client of this graph was closed while a batch was in flight") from None


def _call(fn: Callable[[Any], object], pending: Any) -> None:
    """Call a callback. Only Ctrl-C passes: other errors would end the thread, or the loop, that resolves batches."""
    try:
        fn(pending)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
            raise
        logger.exception("a callback of a batch has raised %s", type(error).__name__)


def _nothing() -> None: ...


class PendingReport(Pending[UpdateReport]):
    """The report of a batch in flight: a `concurrent.futures.Future` that cannot be cancelled.

    Waiting for it raises `GraphClosed` if the Dask client is closed meanwhile.
    """


class PendingAnswers(Pending[Answers]):
    """The answers to a stream in flight: a `concurrent.futures.Future` that cannot be cancelled."""
