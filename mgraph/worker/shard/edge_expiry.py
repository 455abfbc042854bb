"""Time window of a rank: late insertions, and edges that expire with a batch.

Every rank learns the largest time of a batch, so that all have the same window. Each structure of a rank has the times
of its own arcs. So the two arcs of an undirected edge, and an edge's out-arc and in-arc, expire in the same batch
without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgraph.device import Array, Device
from mgraph.structures import Run
from mgraph.structures.merge import merge_in_order
from mgraph.worker.shard.times import NEVER, Times, completed, is_in

__all__ = ["Clock", "EdgeExpiry"]


@dataclass(frozen=True)
class EdgeExpiry:
    """A batch's move of the window; the same on every rank except `late` and `expired`.

    Attributes
    ----------
    latest : int
        The largest time seen, including the batch.
    floor : int
        Edges of this time or an earlier one are outside the window afterwards.
    before : int or None
        Edges before this time are deleted, by `expire`.
    late : int
        The number of this rank's insertions outside the window, which were left out.
    expired : int
        The number of this rank's edges that exceed `window_edges`, found by `expiry_by_count`.
    """

    latest: int = NEVER
    floor: int = NEVER
    before: int | None = None
    late: int = 0
    expired: int = 0


class Clock:
    """Times of a shard's arcs, per structure, and the largest time seen.

    Parameters
    ----------
    device : Device
    number : int
        The number of structures.
    directed : bool
    window : int or None
        The length of the window before the largest time, in the unit of times.
    repeats : bool
        True if each insertion inside the window is kept, to combine their weights.
    window_edges : int or None
        The maximum number of edges.

    Attributes
    ----------
    by_key : bool
        True if the keys of the vertices order edges of one time, in a graph with keys. In stores of formats before
        `mgraph.log.manifest.BY_KEY` the vertices' ids order them.
    """

    def __init__(
        self,
        device: Device,
        number: int,
        directed: bool,
        window: int | None,
        repeats: bool,
        window_edges: int | None = None,
    ) -> None:
        self.directed, self.window, self.window_edges, self.latest = directed, window, window_edges, NEVER
        self.times = [Times(device, repeats and window is not None) for _ in range(number)]
        self.by_key = True

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(times.nbytes for times in self.times)

    @property
    def moves(self) -> bool:
        """True if edges expire."""
        return self.window is not None or self.window_edges is not None

    def begin(self, latest: int) -> None:
        """Continue with a window that ends at `latest` and contains all arcs."""
        self.latest = latest
        if self.window is not None and latest > NEVER:
            self.times = [replace(times, floor=max(latest - self.window, NEVER)) for times in self.times]

    def now(self) -> EdgeExpiry:
        """Return the current window."""
        return EdgeExpiry(self.latest, self.times[0].floor)

    def largest(self, run: Run) -> int:
        """Return the largest time seen, including this rank's part of a batch."""
        return max(self.latest, _largest(run))

    def admit(self, runs: Sequence[Run], latest: int) -> tuple[list[Run], EdgeExpiry]:
        """Remove the late insertions of a batch's part, and return the new window.

        `latest` is the largest time seen on any rank.
        """
        floor = self.times[0].floor
        if self.window is not None and latest > NEVER:
            floor = max(floor, latest - self.window)
        kept = [_within(self.times[0].device, run, floor) for run in runs]
        late = (len(runs[0]) - len(kept[0])) // (1 if self.directed else 2)
        return kept, EdgeExpiry(latest, floor, late=late)

    def prepared(self, number: int, run: Run, expiry: EdgeExpiry) -> tuple[Run, Times, Array, Array]:
        """Prepare a batch for a structure and its times, with the arcs that expire.

        Parameters
        ----------
        number : int
            The number of the structure.
        run : Run
            The structure's batch, in local rows.
        expiry : EdgeExpiry

        Returns
        -------
        run : Run
            The batch, preceded by the deletions of expired arcs.
        times : Times
            The times afterwards.
        gone, changed : uint64[k]
            The keys of arcs outside the batch: deleted ones, and ones that lose a part of their weight.
        """
        # Find what leaves the window.
        before = self.times[number]
        device = before.device
        leaving = before.leaving(max(expiry.floor, NEVER if expiry.before is None else expiry.before - 1))
        if leaving is None:
            none = device.empty(0, np.uint64)
            return run, before.noted(run, expiry.floor), none, none

        # Put it before the batch, and split its keys outside the batch: a kept insertion means that the arc stays.
        weighted = leaving.weight is not None or run.weight is not None
        whole = merge_in_order(device, [completed(device, part, weighted, ops=True) for part in (leaving, run)])
        times = before.noted(run if expiry.before is None else whole, expiry.floor)
        kept = leaving.keys[leaving.op > 0]
        unnamed = leaving.keys[(leaving.op < 0) & ~is_in(device, leaving.keys, run.keys)]
        stays = is_in(device, unnamed, kept)
        return whole, times, unnamed[~stays], unnamed[stays]


def _largest(run: Run) -> int:
    """Return the largest time of a run's insertions, or `NEVER`. One read-back."""
    if run.time is None or not len(run):
        return NEVER
    times = run.time if run.op is None else run.time[run.op > 0]
    return int(times.max()) if len(times) else NEVER


def _within(device: Device, run: Run, floor: int) -> Run:
    """Remove the insertions up to `floor` from a run."""
    if run.time is None:
        return run
    late = run.time <= floor
    if run.op is not None:
        late &= run.op > 0
    return run.take(~late) if device.total(late) else run
