"""Plot of a graph's last minutes, from its history."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mgraph.calls import CHANGES
from mgraph.checks import check_number
from mgraph.client.reports.history import Event
from mgraph.errors import InvalidOption
from mgraph.plotting.canvas import for_plots, shown_once

__all__ = ["plot"]

BINS = 120  #: maximum number of bins for rates, each at least one second long


def plot(self: Any, minutes: float = 10.0) -> Any:
    """Plot edges, changed edges per second, and durations of the last minutes.

    Read from `history`, without a call to the workers. Needs Matplotlib (the extra ``plot``).

    Parameters
    ----------
    minutes : float
        Length of the plot, more than 0. The history keeps 16,384 events, so it may begin later.

    Returns
    -------
    matplotlib.figure.Figure
        With three axes, one above the other. A notebook shows it as the value of a cell; elsewhere call
        ``matplotlib.pyplot.show()`` or its ``savefig``.

    Raises
    ------
    InvalidOption
        `minutes` is not a positive number.
    MgraphError
        Matplotlib is not installed.
    """
    if not check_number(minutes, "minutes") > 0:
        raise InvalidOption(f"minutes is {minutes}; it must be more than 0")
    # Select the events.
    pyplot, now = for_plots("matplotlib.pyplot"), time.time()
    events = [event for event in self.history() if event.time >= now - 60 * minutes]

    # Draw the three axes over one time axis, in seconds before now.
    figure, (edges, rate, seconds) = pyplot.subplots(3, 1, figsize=(8, 6), sharex=True, layout="constrained")
    changes = [event for event in events if event.kind in CHANGES]
    _edges(edges, changes, now)
    _rates(rate, [event for event in changes if event.kind != "add_vertices"], now)
    _seconds(seconds, events, now)
    edges.set_title(f"graph {self.id}: epoch {self.epoch}, {self.num_edges:,} edges", fontsize=10)
    seconds.set_xlabel("seconds before now")
    shown_once(figure)
    return figure


def _edges(axes: Any, changes: list[Event], now: float) -> None:
    axes.step([event.time - now for event in changes], [event.edges for event in changes], where="post")
    axes.set_ylabel("edges")
    axes.set_ylim(bottom=0)


def rates(times: np.ndarray, operations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bins of a second or more, and operations per second in each."""
    first, last = float(times.min()), float(times.max())
    n = int(np.clip(np.ceil(last - first), 1, BINS))
    ends = np.linspace(first, max(last, first + 1.0), n + 1)
    summed, ends = np.histogram(times, ends, weights=operations)
    return ends, summed / np.diff(ends)


def _rates(axes: Any, batches: list[Event], now: float) -> None:
    if batches:
        times = np.array([event.time for event in batches]) - now
        ends, heights = rates(times, np.array([event.operations for event in batches], float))
        axes.stairs(heights, ends, fill=True, alpha=0.6)
    axes.set_ylabel("edges changed / s")
    axes.set_ylim(bottom=0)


def _seconds(axes: Any, events: list[Event], now: float) -> None:
    for kind in dict.fromkeys(event.kind for event in events):
        mine = [event for event in events if event.kind == kind]
        times, values = [event.time - now for event in mine], [1e3 * event.seconds for event in mine]
        axes.plot(times, values, ".", markersize=4, label=kind)
    if events:
        axes.set_yscale("log")
        axes.legend(fontsize=8, ncols=4, loc="upper left")
    axes.set_ylabel("ms")
