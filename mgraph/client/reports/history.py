"""The history of a graph: a bounded record of its changes and algorithms, kept in this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

from mgraph.client.calls.caller import Caller
from mgraph.client.reports.report import UpdateReport

__all__ = ["KEPT", "Event", "History", "history", "note_of_stop"]

_EDGES = attrgetter("edges")
KEPT = 1 << 14  #: most events of a history; about 4 MiB


class Event(NamedTuple):
    """A change of a graph, or an algorithm that ran on it.

    Attributes
    ----------
    time : float
        The end of the event, in seconds since 1970 by this process's clock. For a step of an ingest, computed from the
        end of the ingest.
    kind : str
        "update" for a batch, "ingest" for one step of it, "execute", "expire", "delete_vertices", "add_vertices"; or
        the name of an algorithm.
    epoch : int
        The epoch of the change, or of the algorithm's result.
    operations : int
        The number of different edges in the batch, and of expired edges; or of added vertices; else 0.
    edges : int
        The graph's number of edges at that time; with batches in flight it may count later ones already.
    seconds : float
        As `UpdateReport.seconds`, or the seconds of the call; NaN if unknown.
    """

    time: float
    kind: str
    epoch: int
    operations: int
    edges: int
    seconds: float


class History:
    """The last events of a graph, at most `KEPT`. Thread-safe. O(1) per event."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)

    def add(self, kind: str, caller: Caller, epoch: int, operations: int, seconds: float) -> None:
        """Add an event that has just ended."""
        states = caller.states
        edges = states[0].edges if len(states) == 1 else sum(map(_EDGES, states))
        # `Event`'s own constructor takes twice as long.
        self._events.append(tuple.__new__(Event, (time.time(), kind, epoch, operations, edges, seconds)))

    def batches(self, kind: str, caller: Caller, *done: Any, in_turn: bool = False) -> None:
        """Add batches that have just ended, in order: their reports, or their `Answers`.

        They ended together, or `in_turn`, each after its seconds.
        """
        at, edges, events = time.time(), sum(map(_EDGES, caller.states)), []

        # Compute times and edge counts backwards, from the last batch to the first.
        for outcome in reversed(done):
            report = outcome if type(outcome) is UpdateReport else outcome.report
            inserted, deleted, expired, seconds = report.inserted, report.deleted, report.expired, report.seconds
            operations = inserted + report.updated + deleted + report.missing + expired
            # The counts are -1 if they are unknown. `Event`'s own constructor takes twice as long.
            events.append(tuple.__new__(Event, (at, kind, report.epoch, max(0, operations), edges, seconds)))
            if in_turn and seconds == seconds:
                at -= seconds
            edges -= inserted - deleted - expired
        self._events.extend(reversed(events))

    def all(self) -> list[Event]:
        """Return the events, the oldest first."""
        return list(self._events)


@contextmanager
def note_of_stop(caller: Caller, call: str, done: str) -> Iterator[None]:
    """Add a note to a Ctrl-C in this block: the epoch, and the part that is `done` all the same."""
    try:
        yield
    except KeyboardInterrupt as error:
        later = " or a later one, which the next call asks the workers for" if caller.status.unsettled else ""
        error.add_note(f"graph {caller.status.graph}: {call} was stopped at epoch {caller.epoch}{later}; {done}")
        raise


def history(self: Any) -> list[Event]:
    """Return the last changes of the graph and runs of algorithms, at most 16,384, the oldest first.

    This process records its own changes and runs; no call is made. Reads are not recorded.

    Returns
    -------
    list of Event
        Named tuples ``(time, kind, epoch, operations, edges, seconds)``; see `mgraph.client.reports.history.Event`.
        ``pandas.DataFrame(g.history())`` is a frame of them.
    """
    return self._updates.history.all()
