"""The window of one rank: which insertions come too late, and what leaves with a batch.

Every rank learns the largest time of a batch, so that all have the same window. Each structure of a rank has times of
its own arcs, so what leaves is found where it is stored: the two arcs of an undirected edge, and an edge's out-arc and
in-arc, have the same time, and leave in the same batch without being sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgraph.device import Array, Device
from mgraph.structures import Run
from mgraph.worker.shard.merge import merge_in_order
from mgraph.worker.shard.times import NEVER, Times, completed, is_in

__all__ = ["Clock", "EdgeExpiry"]


@dataclass(frozen=True)
class EdgeExpiry:
    """How far a batch moves the window; the same on every rank but for `late` and `expired`.

    Attributes
    ----------
    latest : int
        The largest time seen, the batch's among them.
    floor : int
        Edges of this time or an earlier one are outside the window afterwards.
    before : int or None
        Edges before this time are deleted, by `expire`.
    late : int
        Insertions of this rank's share that were outside the window, and left out.
    expired : int
        The edges of this rank that leave the window by their number; see `mgraph.worker.commit.expiry_by_count`.
    """

    latest: int = NEVER
    floor: int = NEVER
    before: int | None = None
    late: int = 0
    expired: int = 0


class Clock:
    """The times of a shard's arcs, one `Times` a structure, and the largest time seen.

    Parameters
    ----------
    device : Device
    number : int
        The number of structures.
    directed : bool
    window : int or None
        How much earlier than the largest time an edge may be, in the unit of times.
    repeats : bool
        Whether each insertion inside the window is kept, since the weights of all are combined.
    window_edges : int or None
        How many edges there may be.

    Attributes
    ----------
    by_key : bool
        Whether the oldest edges of one time go by their vertices' keys, in a graph that has keys. By the vertices' ids,
        the order in which keys came, in stores of formats before `mgraph.log.manifest.BY_KEY`.
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
        """Whether edges leave by themselves."""
        return self.window is not None or self.window_edges is not None

    def begin(self, latest: int) -> None:
        """Go on from a window that ends at this time, which all arcs are inside of."""
        self.latest = latest
        if self.window is not None and latest > NEVER:
            self.times = [replace(times, floor=max(latest - self.window, NEVER)) for times in self.times]

    def now(self) -> EdgeExpiry:
        """The window as it is."""
        return EdgeExpiry(self.latest, self.times[0].floor)

    def largest(self, run: Run) -> int:
        """The largest time seen, by this rank's part of a batch too."""
        return max(self.latest, _largest(run))

    def admit(self, runs: Sequence[Run], latest: int) -> tuple[list[Run], EdgeExpiry]:
        """The runs of this rank's share of a batch without what is late, and the window that the batch makes.

        `latest` is the largest time seen on any rank.
        """
        floor = self.times[0].floor
        if self.window is not None and latest > NEVER:
            floor = max(floor, latest - self.window)
        kept = [_within(run, floor) for run in runs]
        late = (len(runs[0]) - len(kept[0])) // (1 if self.directed else 2)
        return kept, EdgeExpiry(latest, floor, late=late)

    def prepared(self, number: int, run: Run, expiry: EdgeExpiry) -> tuple[Run, Times, Array, Array]:
        """What a batch makes of a structure with its times.

        Parameters
        ----------
        number : int
            The number of the structure.
        run : Run
            The batch for it, in local rows.
        expiry : EdgeExpiry

        Returns
        -------
        run : Run
            With the deletions of what leaves, in front.
        times : Times
            Afterwards.
        gone, changed : uint64[k]
            The keys of arcs that the batch does not name: those that leave, and those that lose a part of their weight.
        """
        before = self.times[number]
        device = before.device
        leaving = before.leaving(max(expiry.floor, NEVER if expiry.before is None else expiry.before - 1))
        if leaving is None:
            none = device.empty(0, np.uint64)
            return run, before.noted(run, expiry.floor), none, none
        weighted = leaving.weight is not None or run.weight is not None
        whole = merge_in_order(device, [completed(device, one, weighted, ops=True) for one in (leaving, run)])
        times = before.noted(run if expiry.before is None else whole, expiry.floor)
        kept = leaving.keys[leaving.op > 0]
        unnamed = leaving.keys[(leaving.op < 0) & ~is_in(device, leaving.keys, run.keys)]
        stays = is_in(device, unnamed, kept)
        return whole, times, unnamed[~stays], unnamed[stays]


def _largest(run: Run) -> int:
    """The largest time of the insertions of a run; `NEVER` without any. One read-back."""
    if run.time is None or not len(run):
        return NEVER
    times = run.time if run.op is None else run.time[run.op > 0]
    return int(times.max()) if len(times) else NEVER


def _within(run: Run, floor: int) -> Run:
    """A run without the insertions up to `floor`."""
    if run.time is None:
        return run
    late = run.time <= floor
    if run.op is not None:
        late &= run.op > 0
    return run.take(~late) if bool(late.any()) else run
