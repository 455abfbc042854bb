"""Results of a pipeline's batches, and the error that ends it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from mgraph.client.batches.pending import Pending, PendingReport
from mgraph.client.calls.caller import Caller, Value, unknown_counts
from mgraph.client.calls.loop_runner import STOPPED
from mgraph.client.reports.history import History
from mgraph.errors import GraphClosed, MgraphError, WorkerLost
from mgraph.failures import with_place

__all__ = ["BatchResults", "MakeOutcome"]

T = TypeVar("T")
MakeOutcome = Callable[[list[Value], float], T]  #: makes a batch's outcome from the ranks' answers and the seconds


class BatchResults:
    """Gives each batch its report or its error.

    The first batch that fails ends the pipeline.

    Parameters
    ----------
    caller : Caller
    history : History, optional
        Records each batch that is committed.

    Attributes
    ----------
    error : BaseException or None
        The error that ended the pipeline.
    """

    def __init__(self, caller: Caller, history: History | None) -> None:
        self._caller, self._history = caller, history
        self.error: BaseException | None = None

    def check(self) -> None:
        """Raise the error that ended the pipeline, if any."""
        if self.error is not None:
            raise self.error.with_traceback(None)

    def end(self, error: BaseException) -> None:
        """End the pipeline, unless an earlier error has."""
        self.error = self.error or error

    def dropped(self, lost: int | None = None) -> GraphClosed:
        """Return the error of a batch that Ctrl-C dropped; or that was `lost` with a worker, as this epoch."""
        why = _interruption()
        what = f"the batch was dropped because of {why}"
        if lost is not None:
            what = f"the batch of epoch {lost} may be in the store: {why} came while the graph was opened again"
        return GraphClosed(f"graph {self._caller.status.graph}: {what}")

    def done(self, method: str, outcomes: list[tuple[Pending[Any], Any]]) -> None:
        """Resolve batches with their reports or answers, and record them."""
        if self._history is not None:
            self._history.batches(method, self._caller, *(outcome for _, outcome in outcomes))
        for pending, outcome in outcomes:
            pending.set_result(outcome)

    def land(
        self, method: str, landed: list[tuple[Pending[Any], MakeOutcome[Any], list[Value]]], seconds: float
    ) -> None:
        """Make the outcome of each batch of the ranks' answers to it, and resolve the batch with it."""
        try:
            self.done(method, [(pending, make(answers, seconds)) for pending, make, answers in landed])
        except Exception as problem:
            # A bug in mgraph must not leave a wait for a report without an end.
            for pending, *_ in landed:
                if not pending.done():
                    pending.set_exception(problem)

    def restore(self, pending: Pending[Any], make: MakeOutcome[Any], epoch: int, answers: list[Value]) -> None:
        """Resolve a lost batch that the store has.

        The store has the counts of a batch, but no answers to queries: these raise `WorkerLost`.
        """
        if isinstance(pending, PendingReport):
            self.done("update", [(pending, make(answers, math.nan))])
        else:
            message = f"graph {self._caller.status.graph}: {_answers_lost(epoch)} with a worker"
            pending.set_exception(WorkerLost(message))

    def fail(
        self, pending: Pending[Any], method: str, make: MakeOutcome[Any], epoch: int, error: BaseException | None
    ) -> None:
        """Resolve a batch that ended with `error`, None for Ctrl-C.

        Its vote may have been decided all the same. The first batch that is not known to be committed ends the
        pipeline.
        """
        caller = self._caller
        settled, graph = not caller.status.unsettled, f"graph {caller.status.graph}"

        # The vote was interrupted, and the batch was committed afterwards.
        if settled and caller.epoch >= epoch:
            if method == "update":
                self.land(method, [(pending, make, unknown_counts(epoch))], math.nan)
            else:
                pending.set_exception(GraphClosed(f"{graph}: {_answers_lost(epoch)} because of {_interruption()}"))
            return

        # The batch was dropped, is in doubt, or was refused after an earlier failure.
        if error is None:
            what = (
                "was dropped" if settled else "may be committed, which the next call asks the workers for, or dropped"
            )
            why = f"the batch of epoch {epoch} {what} because of {_interruption()}"
            outcome: BaseException = GraphClosed(f"{graph}: {why}")
        elif not settled:
            what = f"it is not known whether the batch of epoch {epoch} in a pipeline is committed"
            annotated = isinstance(error, MgraphError) or self.error is None  # another error gets one note only
            outcome = with_place(error, what) if annotated else MgraphError(f"{graph}: {what}: {error}")
        elif self.error is None:
            outcome = with_place(error, f"the batch of epoch {epoch} in a pipeline; those before it are committed")
        elif epoch <= getattr(error, "undecided", 0):  # its record was written with those of the batches before it
            outcome = with_place(error, f"the batch of epoch {epoch} in a pipeline")
        else:
            outcome = MgraphError(f"{graph}: epoch {epoch} was not applied: a batch before it failed")
        # Its frames would keep the coordinator alive as long as the report.
        outcome.with_traceback(None)
        self.end(outcome)
        pending.set_exception(outcome)


def _answers_lost(epoch: int) -> str:
    return f"the updates of the stream of epoch {epoch} are committed, and its answers were lost"


def _interruption() -> str:
    """Return what interrupts this thread's calls, for messages."""
    return "Ctrl-C" if STOPPED.get() is None else "the cancellation of a coroutine"
