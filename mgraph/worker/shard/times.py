"""Times of one rank's arcs, beside the structures, and the window over them.

A structure holds keys and weights. `Times` holds the times of its arcs, as a log-structured merge tree: sorted runs of
the batches' operations, the oldest first, each more than twice as long as the next. A batch adds a run, and runs of
similar length are merged, so that each entry is merged O(log m) times. Nothing is changed in place: a batch makes new
`Times`, which its commit adopts. So a refused batch leaves everything unchanged.

Invariants of `Times`:

1. Keys ascend in each level. Without `repeats` they differ; with `repeats` equal ones are in stream order.
2. The newest entry of a key decides: an arc exists if that is an insertion inside the window. With `repeats` an arc
   exists if it has an insertion inside the window after the newest deletion of its key.
3. A deletion, or an entry outside the window, may hide older ones. The oldest level has none to hide, so it drops such
   entries when it is merged.
4. Entries whose time is `floor` or less are outside the window.

Entries that leave the window are found in each level's order by time, between the old floor and the new one; it is
sorted when its first entry leaves. Their keys are then looked up in all levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from mgraph.device import Array, Device
from mgraph.distinct import distinct
from mgraph.parallel_copy import cloned
from mgraph.structures import Run
from mgraph.structures.merge import merge_in_order
from mgraph.tables.times import LEAST, MOST

__all__ = ["NEVER", "Level", "Times", "completed", "deletions", "is_in", "last_of_keys"]

NEVER = LEAST - 1  #: earlier than every time; as datetime64 it is NaT
_ALL = np.ones(1, bool)
BYTES = 64  #: upper bound of the bytes per entry during searches and merges


class Level:
    """Sorted run of entries, and their order by time.

    Attributes
    ----------
    dead : int
        The number of oldest entries, which no longer count.
    """

    def __init__(self, device: Device, run: Run) -> None:
        self.device, self.run, self.dead = device, run, 0

    def __len__(self) -> int:
        return len(self.run)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        run, order = self.run, self.__dict__.get("order")
        arrays = (run.keys, run.op, run.weight, run.time, order)
        return sum(int(array.nbytes) for array in arrays if array is not None)

    @cached_property
    def earliest(self) -> int:
        """The least time. A read-back on first use."""
        return int(self.run.time.min())

    @cached_property
    def order(self) -> Array:
        """Indices of the entries by time, int64[n]. O(n log n)."""
        with self.device.taking(BYTES * len(self), f"the order of {len(self)} times"):
            return self.device.xp.argsort(self.run.time)

    def until(self, times: Sequence[int]) -> list[int]:
        """Return, for each of `times`, the number of entries up to it. O(log n) on the CPU."""
        if self.earliest > max(times):
            return [0] * len(times)
        xp = self.device.xp
        at = xp.searchsorted(self.run.time, xp.asarray(times, np.int64), side="right", sorter=self.order)
        return [int(count) for count in self.device.to_host(at)]

    def between(self, low: int, high: int) -> Array:
        """Return the keys of insertions with ``low < time <= high``, unordered."""
        # Two binary searches in the order by time.
        first, end = self.until([low, high])
        if first == end:
            return self.run.keys[:0]
        places = self.order[first:end]
        keys = self.run.keys[places]
        return keys if self.run.op is None else keys[self.run.op[places] > 0]

    def discard(self, end: int, current: Run) -> None:
        """Advance `dead` to the first entry, of the first `end` by time, that is in `current`."""
        places, xp = self.order[self.dead : end], self.device.xp
        keys = self.run.keys[places]
        alive = is_in(self.device, keys, current.keys)
        if len(current):
            at = xp.minimum(xp.searchsorted(current.keys, keys), len(current) - 1)
            alive &= current.time[at] == self.run.time[places]
        self.dead += int(alive.argmax()) if self.device.total(alive) else len(places)


@dataclass(frozen=True)
class Times:
    """Times of the arcs of one structure.

    Parameters
    ----------
    device : Device
    repeats : bool
        True if each insertion of an arc is kept, with its weight; otherwise only the last one.
    levels : tuple of Level
        The oldest first.
    floor : int
        Entries of this time or an earlier one are outside the window.
    """

    device: Device
    repeats: bool = False
    levels: tuple[Level, ...] = ()
    floor: int = NEVER

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(level.nbytes for level in self.levels)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def find(self, keys: Array) -> Array:
        """Return the times of arcs, unordered and repeated: int64[n]; `NEVER` for missing ones."""
        if not len(keys) or not self.levels:
            return self.device.full(len(keys), NEVER, np.int64)
        xp = self.device.xp
        with self.device.taking(2 * BYTES * len(keys), f"the times of {len(keys)} arcs"):
            unique = distinct(keys)
            return self._at(self.latest(unique), unique)[xp.searchsorted(unique, keys)]

    def latest(self, keys: Array = None) -> Run:
        """Return the last insertion of each existing arc, of sorted distinct `keys`, or of all."""
        entries = self.current(keys)
        return entries.take(last_of_keys(self.device, entries.keys)) if self.repeats else entries

    def _at(self, entries: Run, keys: Array) -> Array:
        """Return the times in `entries` of ascending keys."""
        xp = self.device.xp
        times = xp.full(len(keys), NEVER, np.int64)
        places = xp.searchsorted(keys, entries.keys)
        times[places] = entries.time
        return times

    def current(self, keys: Array = None) -> Run:
        """Return the valid insertions of sorted distinct `keys`, or of all, in stream order."""
        run = self._entries(keys)
        keep = self._standing(run) & (run.time > self.floor)
        if run.op is not None:
            keep &= run.op > 0
        return replace(run.take(keep), op=None)

    def _entries(self, keys: Array = None) -> Run:
        """Return all entries of sorted distinct `keys`, or of all; equal ones in stream order."""
        if not self.levels:
            return completed(self.device, Run(self.device.empty(0, np.uint64)), self.repeats)
        runs = [level.run if keys is None else self._of(level.run, keys) for level in self.levels]
        return merge_in_order(self.device, _alike(self.device, runs))

    def _of(self, run: Run, keys: Array) -> Run:
        """Return the entries of a run with one of `keys`."""
        xp = self.device.xp
        first = xp.searchsorted(run.keys, keys)
        if not self.repeats:
            first = xp.minimum(first, len(run) - 1)
            return run.take(first[run.keys[first] == keys])
        # With repeats, a key may have a range of entries.
        lengths = xp.searchsorted(run.keys, keys, side="right") - first
        ends = xp.cumsum(lengths)
        total = int(ends[-1]) if len(keys) else 0
        which = xp.searchsorted(ends, xp.arange(total), side="right")
        return run.take(xp.arange(total) + (first - (ends - lengths))[which])

    def _standing(self, run: Run) -> Array:
        """Return True for each entry that no later one of the run invalidates: bool[n]."""
        last = last_of_keys(self.device, run.keys)
        if not self.repeats or run.op is None:
            return last if not self.repeats else self.device.xp.ones(len(run), bool)
        # With repeats, an entry stands if no deletion of its key follows: the counts of deletions are equal.
        xp = self.device.xp
        deletions, ends = xp.cumsum((run.op < 0).astype(np.int64)), xp.flatnonzero(last)
        which = xp.cumsum(last.astype(np.int64)) - last  # the number of the key
        return deletions == deletions[ends[which]]

    # ---- expiry ------------------------------------------------------------------------------------------------------

    def leaving(self, floor: int) -> Run | None:
        """Return the operations that remove the insertions up to `floor` from a structure, or None.

        Each arc that loses an insertion is deleted, and then its remaining insertions are repeated.
        """
        # Collect the keys of entries between the old floor and the new one.
        if floor <= self.floor:
            return None
        due = [keys for keys in (level.between(self.floor, floor) for level in self.levels) if len(keys)]
        if not due:
            return None

        # Delete the arcs whose insertions among them are still valid.
        n = sum(map(len, due))
        with self.device.taking(2 * BYTES * n, f"{n} edges that leave a window"):
            entries = self.current(distinct(self.device.concatenate(due)))
            gone = entries.keys[entries.time <= floor]
            if not len(gone):
                return None
            gone = distinct(gone)
            deleted = completed(self.device, deletions(self.device, gone), entries.weight is not None)
            if not self.repeats:
                return deleted

            # Insert what stays of them again.
            stays = entries.take((entries.time > floor) & is_in(self.device, entries.keys, gone))
            return merge_in_order(self.device, [deleted, completed(self.device, stays, True, ops=True)])

    def up_to(self, time: int) -> Run:
        """Return the existing arcs with times up to `time`, sorted and distinct."""
        none = self.device.empty(0, np.uint64)
        ends = [level.until([time])[0] for level in self.levels]
        keys = [level.run.keys[level.order[level.dead : end]] for level, end in zip(self.levels, ends, strict=True)]
        arcs = self.latest(distinct(self.device.concatenate([none, *keys])))
        return arcs.take(arcs.time <= time)

    def oldest(self, n: int, counted: Callable[[Array], Array]) -> Run:
        """Return at least the `n` oldest existing arcs with `counted` keys, or all.

        Arcs of equal time are returned together. O(k log m) if the first k entries by time are such arcs, or have
        become invalid since the last call.
        """
        none, want = self.device.empty(0, np.uint64), n
        while True:
            # Take the first entries by time of each level, up to a time that all levels have reached.
            ends = [min(level.dead + want, len(level)) for level in self.levels]
            cut = [(level, end) for level, end in zip(self.levels, ends, strict=True) if end < len(level)]
            bound = min((int(level.run.time[level.order[end]]) for level, end in cut), default=MOST)
            if cut:
                ends = [min(end, level.until([bound - 1])[0]) for level, end in zip(self.levels, ends, strict=True)]
            keys = [level.run.keys[level.order[level.dead : end]] for level, end in zip(self.levels, ends, strict=True)]

            # Keep the existing arcs among them, and skip invalid entries from now on.
            arcs = self.latest(distinct(self.device.concatenate([none, *keys])))
            for level, end in zip(self.levels, ends, strict=True):
                level.discard(end, arcs)
            arcs = arcs.take(counted(arcs.keys))
            if not cut:
                return arcs
            arcs = arcs.take(arcs.time < bound)
            if len(arcs) >= n:
                return arcs
            want *= 4

    # ---- changes -----------------------------------------------------------------------------------------------------

    def noted(self, run: Run, floor: int) -> Times:
        """Return new times after a run of operations in stream order, with the new `floor`."""
        # Add the run as the newest level.
        device, levels = self.device, list(self.levels)
        with device.taking(BYTES * len(run), f"the times of {len(run)} operations"):
            fresh = self._kept(completed(device, run, self.repeats), floor, oldest=not levels)
        if len(fresh):
            levels.append(Level(device, fresh))

        # Merge levels until each is more than twice as long as the next.
        while len(levels) > 1 and len(levels[-2]) <= 2 * len(levels[-1]):
            n = len(levels[-2]) + len(levels[-1])
            with device.taking(BYTES * n, f"the merge of {n} times"):
                merged = merge_in_order(device, _alike(device, [level.run for level in levels[-2:]]))
                merged = self._kept(merged, floor, oldest=len(levels) == 2)
            levels[-2:] = [Level(device, merged)] if len(merged) else []

        # Compact the oldest level when half of it has left the window.
        if levels and 2 * levels[0].until([floor])[0] > len(levels[0]):
            with device.taking(BYTES * len(levels[0]), f"the choice among {len(levels[0])} times"):
                kept = self._kept(levels[0].run, floor, oldest=True)
            levels[:1] = [Level(device, kept)] if len(kept) else []
        return Times(device, self.repeats, tuple(levels), floor)

    def _kept(self, run: Run, floor: int, oldest: bool) -> Run:
        """Copy the entries to keep of a run in stream order."""
        if len(run) == 1 and run.op is None and type(run.time) is np.ndarray and run.time[0] > floor:
            return run.take(_ALL)
        keep = self._standing(run)
        if oldest or self.repeats:
            inside = run.time > floor  # True for deletions, which have the largest time
            keep &= inside
        if oldest and run.op is not None:
            return replace(run.take(keep & (run.op > 0)), op=None)
        return run.take(keep)

    def rebuilt(self, run: Run) -> Times:
        """Return the times of a structure with other rows, from a run of insertions in stream order."""
        return replace(self, levels=(Level(self.device, run),) if len(run) else ())

    def clone(self, device: Device) -> Times:
        """Return a copy without a window: only the last time of each arc counts. O(m)."""
        if self.repeats or self.floor > NEVER:
            last = replace(self.latest(), weight=None)
            return Times(device, levels=(Level(device, last),) if len(last) else ())
        runs = [level.run for level in self.levels]
        columns = [{name: cloned(device, getattr(run, name)) for name in ("keys", "op", "time")} for run in runs]
        return replace(self, device=device, levels=tuple(Level(device, Run(**column)) for column in columns))

    def check_invariants(self) -> None:
        """Assert the first invariant of the module's list. O(m); for tests."""
        for level in self.levels:
            keys = self.device.to_host(level.run.keys)
            assert len(keys), "an empty level"
            assert (keys[1:] >= keys[:-1]).all() if self.repeats else (keys[1:] > keys[:-1]).all()
        sizes = [len(level) for level in self.levels]
        assert all(a > 2 * b for a, b in pairwise(sizes[1:])), sizes


def last_of_keys(device: Device, keys: Array) -> Array:
    """Return True for each ascending key that is the last of its equals: bool[n]."""
    last = device.xp.ones(len(keys), bool)
    last[:-1] = keys[1:] != keys[:-1]
    return last


def is_in(device: Device, keys: Array, among: Array) -> Array:
    """Return True for each key that is among other, ascending ones: bool[n]."""
    if not len(among):
        return device.xp.zeros(len(keys), bool)
    places = device.xp.searchsorted(among, keys)
    return among[device.xp.minimum(places, len(among) - 1)] == keys


def deletions(device: Device, keys: Array) -> Run:
    """Return a run that deletes these ascending keys."""
    return Run(keys, device.full(len(keys), -1, np.int8))


def completed(device: Device, run: Run, weights: bool, ops: bool = False) -> Run:
    """Return a run with times, and weights and ops if wanted; deletions have the largest time."""
    n, time, weight = len(run), run.time, run.weight
    op = device.full(n, 1, np.int8) if ops and run.op is None else run.op
    if time is None:
        time = device.full(n, MOST, np.int64)
    elif op is not None:
        time = device.xp.where(op > 0, time, np.int64(MOST))
    if not weights:
        weight = None
    elif weight is None:
        weight = device.full(n, 1, np.float32)
    return Run(run.keys, op, weight, time=time)


def _alike(device: Device, runs: Sequence[Run]) -> list[Run]:
    """Give all runs with times an op column if any has it."""
    ops = any(run.op is not None for run in runs)
    return [replace(run, op=device.full(len(run), 1, np.int8)) if ops and run.op is None else run for run in runs]
