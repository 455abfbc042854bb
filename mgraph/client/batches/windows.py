"""Graphs whose edges have times: options, and calls by time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from mgraph.checks import check_flag, check_whole
from mgraph.client.reports.report import UpdateReport
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import CapacityError, InvalidOption, StoreError
from mgraph.facade import warn
from mgraph.failures import Recovered
from mgraph.tables.times import as_instant, as_span, check_times

__all__ = ["drop_isolated", "expire", "leave_isolated", "remove_isolated", "window_of"]


def window_of(times: Any, window: Any, window_edges: Any, drop_isolated: Any) -> dict[str, Any]:
    """Return the options `times`, `window`, `window_edges` and `drop_isolated`, checked and normalised for `Options`.

    Raises
    ------
    InvalidOption
        An option is invalid, or contradicts another, or the graph cannot have it.
    """
    kind, span = check_times(times), None

    # A window of time implies times, of the window's kind.
    if window is not None:
        if times is not None and kind is None:
            raise InvalidOption(f"window is {window!r} and times is {times!r}; a window is one of times")
        span, kind = as_span(window, kind)

    # A window of a number of edges implies times too.
    if window_edges is not None:
        if window is not None:
            raise InvalidOption(f"window is {window!r} and window_edges is {window_edges!r}; a graph has one window")
        if not 1 <= check_whole(window_edges, "window_edges") < 2**63:
            raise InvalidOption(f"window_edges is {window_edges}; it must be from 1 to 2**63 - 1")
        if times is not None and kind is None:
            raise InvalidOption(f"window_edges is {window_edges!r} and times is {times!r}; a window is one of times")
        kind, window_edges = kind or check_times(True), int(window_edges)
    return {
        "times": kind,
        "window": span,
        "window_edges": window_edges,
        "drop_isolated": check_flag(drop_isolated, "drop_isolated"),
    }


def expire(self: Any, before: Any) -> UpdateReport:
    """Delete every edge with an earlier time than `before`, as one epoch.

    The report counts them as `expired`. `before` is an integer, or a date in a graph of datetime64 times. Edges of such
    times may be inserted again later, if the graph's `window` includes them. In a graph with a `window` and
    `combine`, an edge keeps the insertions from `before` on, and their combined weight.

    O(k log m) for k edges that leave, on each worker; the first time, each worker sorts its edges by time.

    Raises
    ------
    InvalidOption
        The graph has no `times`, or `before` is no time of their dtype.
    CapacityError
        A worker has too little memory. Nothing was changed.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    times = self._options.times
    if times is None:
        raise InvalidOption("expire needs times of the edges; create the graph with times=True")
    done: UpdateReport = self._updates.expire(as_instant(before, times))
    return done


def drop_isolated(self: Any) -> int:
    """Remove all vertices without edges as one epoch, and return their number.

    Without any, no epoch is made. Only a graph with keys can remove vertices: they are in no later result and no count,
    and their keys may come again. A graph made with ``drop_isolated=True`` does so after each batch.

    O(n_vertices + m): each worker rebuilds its part of the graph, and needs memory for the new part beside the old one.

    Raises
    ------
    InvalidOption
        The vertices have no keys.
    CapacityError
        A worker has too little memory. Nothing was changed.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    if not self._directory.has_keys:
        raise InvalidOption(
            "drop_isolated removes vertices, and without keys these are numbers that stay; create the graph with "
            'keys="int64" or keys="string"'
        )
    removed: int = self._updates.drop_isolated()
    return removed


def remove_isolated(directory: Directory) -> int:
    """Remove isolated vertices as an epoch, and return their number."""
    return _without_isolated(directory, "remove_vertices")


def leave_isolated(directory: Directory, after: str) -> None:
    """Remove all vertices without edges, as a part of the epoch before.

    If that fails they stay until the next batch, and a warning names the change that they came `after`.
    """
    try:
        _without_isolated(directory, "drop_vertices")
    except (CapacityError, StoreError) as error:
        warn(f"{after}; vertices without edges could not be removed: {error}")


def _without_isolated(directory: Directory, method: str) -> int:
    caller = directory.coordinator

    def isolated(now: Numbering) -> np.ndarray:
        answers = caller.call("isolated")
        return np.concatenate([answer["ids"] for answer in answers]).astype(np.uint32)

    # After a loss the vertices are chosen again, by the recovered graph.
    while True:
        with suppress(Recovered), directory.removing(isolated) as ids:  # after a loss, the rest
            if len(ids):
                args = {"ids": ids, "isolated": True} if method == "remove_vertices" else {"ids": ids}
                caller.call(method, args)
            return len(ids)
