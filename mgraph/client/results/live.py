"""Results that follow the graph; `DynamicGraph.maintain` makes them."""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mgraph.algorithms import ALGORITHMS
from mgraph.client.options import Options
from mgraph.client.results.handles import VertexValues
from mgraph.client.results.running import run_algorithm
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, InvalidOption

__all__ = ["Live", "LiveReport", "maintain"]


@dataclass(frozen=True)
class LiveReport:
    """What it took to bring a maintained result up to date.

    Attributes
    ----------
    how : "unchanged" | "incremental" | "again"
        Whether nothing had changed that matters for the result, it went on from the last one, or it was computed again.
    touched : int
        The edges that differ from when the result was last brought up to date: inserted, deleted, or with another
        weight. 0 where that is not known any more, which means "again". An undirected edge counts once.
    edges : int
        The edges that were visited, each time and in each direction; 0 with "again", which visits all of them.
    ms : float
        The duration of the call in milliseconds.
    """

    how: str
    touched: int
    edges: int
    ms: float


class Live:
    """A result that follows the graph. Made by `DynamicGraph.maintain`.

    Reading it brings it up to date. Use it as a context manager, or call `close`, to free what the workers keep for it;
    that also ends with the last reference to it, and with the graph. Several threads may use it.
    """

    def __init__(self, directory: Directory, options: Options, name: str, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self._directory, self._options, self._arguments = directory, options, dict(arguments)
        self._key, self._lock = uuid.uuid4().hex, threading.RLock()
        self._result: VertexValues | None = None
        self._changes, self._report = -1, LiveReport("again", 0, 0, 0.0)
        self._free = weakref.finalize(self, directory.coordinator.forget, self._key)
        self._free.atexit = False

    def result(self) -> VertexValues:
        """The result for the graph as it is now, as the method of the same name returns it.

        Later changes of the graph do not change what was returned.

        Raises
        ------
        GraphClosed
            This or the graph was closed.
        Exception
            What the method of the same name raises for the graph as it is now. A later call tries again.
        """
        with self._directory.coordinator.turn(), self._lock:
            return self._read()

    def _read(self) -> VertexValues:
        if self.closed:
            raise GraphClosed(f"this maintained result of {self.name} was closed")
        directory, began = self._directory, time.perf_counter()
        directory.check()
        if self._result is not None and self._changes == directory.coordinator.changes:
            self._report = LiveReport("unchanged", 0, 0, 1000 * (time.perf_counter() - began))
            return self._result
        changes = directory.coordinator.changes
        ask = partial(run_algorithm, directory.coordinator, self.name, self._checked, live=self._key)
        self._result = result = directory.read(ask)
        # a change that another thread makes meanwhile may be in the result, or not
        self._changes = changes if directory.coordinator.changes == changes else -1
        for first in ("start", "nstart"):  # with which a computation begins: the next one begins with the last result
            self._arguments.pop(first, None)
        self._report = LiveReport(**result._held.took, ms=1000 * (time.perf_counter() - began))
        return result

    def _checked(self, now: Numbering) -> dict[str, Any]:
        return ALGORITHMS[self.name].arguments(self._options.facts(now), self._arguments)

    @property
    def epoch(self) -> int:
        """The graph's epoch when the result was last brought up to date; makes no call."""
        assert self._result is not None
        return self._result.epoch

    @property
    def report(self) -> LiveReport:
        """What it took to bring the result up to date the last time it was read."""
        return self._report

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._free.alive

    def close(self) -> None:
        """Free what the workers keep for the result, with the graph's next call. It may be called twice.

        What `result` has returned stays.
        """
        self._free()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<live {self.name}: epoch {self.epoch}, last read: {self._report.how}{state}>"


def maintain(self: Any, name: str, eager: bool = False, **arguments: Any) -> Live:
    """A result that follows the graph: it is computed now, and brought up to date when it is read.

    Parameters
    ----------
    name : "bfs" | "connected_components" | "pagerank" | "sssp" | "triangles"
        The name of a method of the graph.
    eager : bool
        Whether to bring the result up to date after each call that changes the graph, too, so that reading it takes no
        time. `ingest` and a pipeline count as one call. A failure there is logged, and raised by the next read.
    **arguments
        Those of the method.

    Returns
    -------
    Live
        With ``result()``, what the method returns for the graph as it is now; ``report``, what it took; ``close()``.

    Raises
    ------
    InvalidOption
        Results of this name cannot be maintained.
    Exception
        As the method.

    Notes
    -----
    Batches keep on the workers what they changed, up to a quarter of the arcs and at most 4,194,304 a worker: 9 bytes
    an arc, 17 with weights. A result goes on from there, or is computed again where that takes less time, where more
    was changed, and where vertices have moved or got new internal ids. It equals that of the method; PageRank's is
    within its bound. Several results may be maintained at once. `nbytes` counts what they need.

    Examples
    --------
    >>> with g.maintain("connected_components") as live:  # doctest: +SKIP
    ...     g.insert([0, 3], [1, 4])
    ...     live.result().to_numpy(), live.report.how
    (array([0, 0, 2, 3, 3]), 'incremental')
    """
    known = sorted(one for one, algorithm in ALGORITHMS.items() if algorithm.maintain is not None)
    if name not in known:
        raise InvalidOption(f"results of {name!r} cannot be maintained, but those of {', '.join(map(repr, known))}")
    live = Live(self._directory, self._options, name, arguments)
    live.result()
    if eager:
        self._updates.follow(live)
    return live
