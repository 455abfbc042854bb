"""Results of a pipeline's batches: one report or error each, and the first error, which ends the pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from mgraph.batch import TOLD
from mgraph.client.batches.pending import Pending, PendingReport
from mgraph.client.calls.caller import Caller, Value
from mgraph.client.reports.history import History
from mgraph.errors import GraphClosed, MgraphError, WorkerLost
from mgraph.failures import with_place

__all__ = ["BatchResults", "Made"]

T = TypeVar("T")
Made = Callable[[list[Value], float], T]  #: what a batch came to, of the ranks' answers and the seconds

UNKNOWN = -1  #: as each count of a batch that is committed, and of which no answer came


class BatchResults:
    """Gives each batch its report or its error. The first batch that fails ends the pipeline.

    Parameters
    ----------
    caller : Caller
    history : History, optional
        Is told of each batch that is committed.

    Attributes
    ----------
    error : BaseException or None
        What has ended the pipeline.
    """

    def __init__(self, caller: Caller, history: History | None) -> None:
        self._caller, self._history = caller, history
        self.error: BaseException | None = None

    def check(self) -> None:
        """Raise the error that has ended the pipeline."""
        if self.error is not None:
            raise self.error.with_traceback(None)

    def end(self, error: BaseException) -> None:
        """End the pipeline, unless an earlier error has."""
        self.error = self.error or error

    def dropped(self) -> GraphClosed:
        """The error of a batch that is not applied because of Ctrl-C."""
        return GraphClosed(f"graph {self._caller.status.graph}: the batch was dropped because of Ctrl-C")

    def done(self, pending: Pending[Any], method: str, outcome: Any) -> None:
        """Give a batch its report or its answers."""
        if self._history is not None:
            self._history.batch(method, self._caller, outcome)
        pending.set_result(outcome)

    def land(self, pending: Pending[Any], method: str, made: Made[Any], answers: list[Value], seconds: float) -> None:
        """Give a batch what the ranks have answered."""
        try:
            self.done(pending, method, made(answers, seconds))
        except Exception as problem:  # a bug in mgraph must not leave a wait for the report without an end
            pending.set_exception(problem)

    def restore(self, pending: Pending[Any], made: Made[Any], epoch: int, answers: list[Value]) -> None:
        """Give a batch that was lost with a worker what the store has of it: answers to queries are not there."""
        if isinstance(pending, PendingReport):
            self.done(pending, "update", made(answers, math.nan))
        else:
            what = f"graph {self._caller.status.graph}: {_answers_lost(epoch)} with a worker"
            pending.set_exception(WorkerLost(what))

    def fail(
        self, pending: Pending[Any], method: str, made: Made[Any], epoch: int, error: BaseException | None
    ) -> None:
        """Say of a batch without an answer what is known: `error` ended its flight, or Ctrl-C if there is none.

        The first one that is not known to be committed ends the pipeline.
        """
        caller = self._caller
        known, graph = not caller.status.unsettled, f"graph {caller.status.graph}"
        if known and caller.status.epoch >= epoch:  # its vote was interrupted, and decided afterwards
            if method == "update":
                answer = {"epoch": epoch, **dict.fromkeys(TOLD, UNKNOWN)}
                self.land(pending, method, made, [answer], math.nan)
            else:
                pending.set_exception(GraphClosed(f"{graph}: {_answers_lost(epoch)} because of Ctrl-C"))
            return
        if error is None:
            what = "was dropped" if known else "may be committed, which the next call asks the workers for, or dropped"
            told: BaseException = GraphClosed(f"{graph}: the batch of epoch {epoch} {what} because of Ctrl-C")
        elif not known:
            what = f"it is not known whether the batch of epoch {epoch} in a pipeline is committed"
            again = isinstance(error, MgraphError) or self.error is None  # another error gets one note only
            told = with_place(error, what) if again else MgraphError(f"{graph}: {what}: {error}")
        elif self.error is not None:
            told = MgraphError(f"{graph}: epoch {epoch} was not applied: a batch before it failed")
        else:
            told = with_place(error, f"the batch of epoch {epoch} in a pipeline; those before it are committed")
        told.with_traceback(None)  # its frames would keep the coordinator alive as long as the report
        if error is not None:
            self.end(told)
        pending.set_exception(told)


def _answers_lost(epoch: int) -> str:
    return f"the updates of the stream of epoch {epoch} are committed, and its answers were lost"
