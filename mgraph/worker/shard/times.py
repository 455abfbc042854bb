"""The times of one rank's arcs, beside the structures, and the window that a graph keeps of them.

A structure holds keys and weights. `Times` holds the times of its arcs, as a log-structured merge tree: sorted runs of
what batches did, the oldest first, each more than twice as long as the next. A batch adds a run, and runs of similar
length are merged, so that each entry is merged O(log m) times. Nothing is changed in place: a batch makes new `Times`,
which its commit takes over. So a batch that is refused leaves everything as it was.

Invariants of `Times`:

1. Keys ascend in each level. Without `repeats` they differ; with `repeats` equal ones are in stream order.
2. The newest entry of a key decides: an arc is there if that is an insertion inside the window. With `repeats` an arc
   is there if there is an insertion inside the window behind the newest deletion of its key.
3. An entry that is a deletion, or is outside the window, may hide older ones. The oldest level has none to hide, so it
   drops them when it is merged.
4. Entries whose time is `floor` or less are outside the window.

What falls out of a window is found in each level's order by time, which is sorted when its first entry falls out: the
entries between the old floor and the new one. Their keys are then looked up in all levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from mgraph.device import Array, Device
from mgraph.structures import Run
from mgraph.tables.times import LEAST, MOST
from mgraph.worker.shard.merge import merge_in_order

__all__ = ["NEVER", "Level", "Times", "completed", "deletions", "is_in", "last_of_keys"]

NEVER = LEAST - 1  #: before every time; as datetime64 it is NaT
BYTES = 64  #: that an entry takes at most while levels are searched or merged


class Level:
    """One sorted run of entries, and their order by time.

    Attributes
    ----------
    dead : int
        How many entries, the first ones by time, do not count any more, and never will again.
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
        """The least time. One read-back."""
        return int(self.run.time.min())

    @cached_property
    def order(self) -> Array:
        """The places of the entries by time, int64[n]. O(n log n)."""
        with self.device.taking(BYTES * len(self), f"the order of {len(self)} times"):
            return self.device.xp.argsort(self.run.time)

    def until(self, times: Sequence[int]) -> list[int]:
        """For each of `times` the number of entries that have this time or an earlier one. O(log n) on the CPU."""
        if self.earliest > max(times):
            return [0] * len(times)
        xp = self.device.xp
        at = xp.searchsorted(self.run.time, xp.asarray(times, np.int64), side="right", sorter=self.order)
        return [int(one) for one in self.device.to_host(at)]

    def between(self, low: int, high: int) -> Array:
        """The keys of the insertions with ``low < time <= high``, in no order."""
        first, end = self.until([low, high])
        if first == end:
            return self.run.keys[:0]
        places = self.order[first:end]
        keys = self.run.keys[places]
        return keys if self.run.op is None else keys[self.run.op[places] > 0]

    def discard(self, end: int, found: Run) -> None:
        """Move `dead` on up to the first entry, among the first `end` by time, that is in `found`: arcs that count."""
        places, xp = self.order[self.dead : end], self.device.xp
        keys = self.run.keys[places]
        alive = is_in(self.device, keys, found.keys)
        if len(found):
            at = xp.minimum(xp.searchsorted(found.keys, keys), len(found) - 1)
            alive &= found.time[at] == self.run.time[places]
        self.dead += int(alive.argmax()) if bool(alive.any()) else len(places)


@dataclass(frozen=True)
class Times:
    """The times of the arcs of one structure.

    Parameters
    ----------
    device : Device
    repeats : bool
        Whether each insertion of an arc is kept, with its weight, and not the last one alone.
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
        """The times of arcs, in any order and also repeated: int64[n]; `NEVER` for one that is not there."""
        if not len(keys) or not self.levels:
            return self.device.full(len(keys), NEVER, np.int64)
        xp = self.device.xp
        with self.device.taking(2 * BYTES * len(keys), f"the times of {len(keys)} arcs"):
            unique = distinct(self.device, keys)
            return self._at(self.latest(unique), unique)[xp.searchsorted(unique, keys)]

    def latest(self, keys: Array = None) -> Run:
        """The arcs that are there with their times: those of `keys`, ascending and different, or all. Keys differ."""
        found = self.current(keys)
        return found.take(last_of_keys(self.device, found.keys)) if self.repeats else found

    def _at(self, found: Run, keys: Array) -> Array:
        """The times in `found` of keys that ascend."""
        xp = self.device.xp
        times = xp.full(len(keys), NEVER, np.int64)
        places = xp.searchsorted(keys, found.keys)
        times[places] = found.time
        return times

    def current(self, keys: Array = None) -> Run:
        """The insertions that count, of `keys`, ascending and different, or of all arcs; in stream order."""
        run = self._entries(keys)
        keep = self._standing(run) & (run.time > self.floor)
        if run.op is not None:
            keep &= run.op > 0
        return replace(run.take(keep), op=None)

    def _entries(self, keys: Array = None) -> Run:
        """All entries of `keys`, ascending and different, or of all; equal ones in stream order."""
        if not self.levels:
            return completed(self.device, Run(self.device.empty(0, np.uint64)), self.repeats)
        runs = [level.run if keys is None else self._of(level.run, keys) for level in self.levels]
        return merge_in_order(self.device, _alike(self.device, runs))

    def _of(self, run: Run, keys: Array) -> Run:
        """The entries of a run that have one of `keys`."""
        xp = self.device.xp
        first = xp.searchsorted(run.keys, keys)
        if not self.repeats:
            first = xp.minimum(first, len(run) - 1)
            return run.take(first[run.keys[first] == keys])
        lengths = xp.searchsorted(run.keys, keys, side="right") - first
        ends = xp.cumsum(lengths)
        total = int(ends[-1]) if len(keys) else 0
        which = xp.searchsorted(ends, xp.arange(total), side="right")
        return run.take(xp.arange(total) + (first - (ends - lengths))[which])

    def _standing(self, run: Run) -> Array:
        """Whether nothing behind an entry of a run in stream order makes it void: bool[n]."""
        last = last_of_keys(self.device, run.keys)
        if not self.repeats or run.op is None:
            return last if not self.repeats else self.device.xp.ones(len(run), bool)
        xp = self.device.xp
        deletions, ends = xp.cumsum((run.op < 0).astype(np.int64)), xp.flatnonzero(last)
        which = xp.cumsum(last.astype(np.int64)) - last  # the number of the key
        return deletions == deletions[ends[which]]

    # ---- what falls out ----------------------------------------------------------------------------------------------

    def leaving(self, floor: int) -> Run | None:
        """What makes a structure forget the insertions up to `floor`; None if there are none.

        Each arc that loses an insertion is deleted, and those of its insertions that stay come again behind that.
        """
        if floor <= self.floor:
            return None
        due = [keys for keys in (level.between(self.floor, floor) for level in self.levels) if len(keys)]
        if not due:
            return None
        n = sum(map(len, due))
        with self.device.taking(2 * BYTES * n, f"{n} edges that leave a window"):
            found = self.current(distinct(self.device, self.device.concatenate(due)))
            gone = found.keys[found.time <= floor]
            if not len(gone):
                return None
            gone = distinct(self.device, gone)
            deleted = completed(self.device, deletions(self.device, gone), found.weight is not None)
            if not self.repeats:
                return deleted
            stays = found.take((found.time > floor) & is_in(self.device, found.keys, gone))
            return merge_in_order(self.device, [deleted, completed(self.device, stays, True, ops=True)])

    def up_to(self, time: int) -> Run:
        """The arcs that are there with this time or an earlier one. Keys ascend and differ."""
        none = self.device.empty(0, np.uint64)
        ends = [level.until([time])[0] for level in self.levels]
        keys = [level.run.keys[level.order[level.dead : end]] for level, end in zip(self.levels, ends, strict=True)]
        found = self.latest(distinct(self.device, self.device.concatenate([none, *keys])))
        return found.take(found.time <= time)

    def oldest(self, n: int, counted: Callable[[Array], Array]) -> Run:
        """At least the `n` oldest arcs that are there, among those whose keys are `counted`, or all of them.

        There are no older ones than those returned, and none of the same time as one of them is left out.
        O(k log m) where the first k entries by time are such arcs, or have ceased to count since the last call.
        """
        none, want = self.device.empty(0, np.uint64), n
        while True:
            ends = [min(level.dead + want, len(level)) for level in self.levels]
            cut = [(level, end) for level, end in zip(self.levels, ends, strict=True) if end < len(level)]
            bound = min((int(level.run.time[level.order[end]]) for level, end in cut), default=MOST)
            if cut:  # no later entry is of use
                ends = [min(end, level.until([bound - 1])[0]) for level, end in zip(self.levels, ends, strict=True)]
            keys = [level.run.keys[level.order[level.dead : end]] for level, end in zip(self.levels, ends, strict=True)]
            found = self.latest(distinct(self.device, self.device.concatenate([none, *keys])))
            for level, end in zip(self.levels, ends, strict=True):
                level.discard(end, found)
            found = found.take(counted(found.keys))
            if not cut:
                return found
            found = found.take(found.time < bound)
            if len(found) >= n:
                return found
            want *= 4

    # ---- changing ----------------------------------------------------------------------------------------------------

    def noted(self, run: Run, floor: int) -> Times:
        """The times after a run of operations in stream order, with the window from `floor` on; changes nothing."""
        device, levels = self.device, list(self.levels)
        with device.taking(BYTES * len(run), f"the times of {len(run)} operations"):
            fresh = self._kept(completed(device, run, self.repeats), floor, oldest=not levels)
        if len(fresh):
            levels.append(Level(device, fresh))
        while len(levels) > 1 and len(levels[-2]) <= 2 * len(levels[-1]):
            n = len(levels[-2]) + len(levels[-1])
            with device.taking(BYTES * n, f"the merge of {n} times"):
                merged = merge_in_order(device, _alike(device, [level.run for level in levels[-2:]]))
                merged = self._kept(merged, floor, oldest=len(levels) == 2)
            levels[-2:] = [Level(device, merged)] if len(merged) else []
        if levels and 2 * levels[0].until([floor])[0] > len(levels[0]):
            with device.taking(BYTES * len(levels[0]), f"the choice among {len(levels[0])} times"):
                kept = self._kept(levels[0].run, floor, oldest=True)
            levels[:1] = [Level(device, kept)] if len(kept) else []
        return replace(self, levels=tuple(levels), floor=floor)

    def _kept(self, run: Run, floor: int, oldest: bool) -> Run:
        """What is to be kept of a run in stream order; always a copy."""
        keep = self._standing(run)
        if oldest or self.repeats:
            inside = run.time > floor  # of deletions too, whose time is the largest
            keep &= inside
        if oldest and run.op is not None:
            return replace(run.take(keep & (run.op > 0)), op=None)
        return run.take(keep)

    def rebuilt(self, run: Run) -> Times:
        """The times of a structure that has other rows: those of a run of insertions in stream order."""
        return replace(self, levels=(Level(self.device, run),) if len(run) else ())

    def check_invariants(self) -> None:
        """Assert the first invariant that the module numbers. O(m); for tests."""
        for level in self.levels:
            keys = self.device.to_host(level.run.keys)
            assert len(keys), "an empty level"
            assert (keys[1:] >= keys[:-1]).all() if self.repeats else (keys[1:] > keys[:-1]).all()
        sizes = [len(level) for level in self.levels]
        assert all(a > 2 * b for a, b in pairwise(sizes[1:])), sizes


def last_of_keys(device: Device, keys: Array) -> Array:
    """Whether each of some ascending keys is the last of its equals: bool[n]."""
    last = device.xp.ones(len(keys), bool)
    last[:-1] = keys[1:] != keys[:-1]
    return last


def distinct(device: Device, keys: Array) -> Array:
    """The different ones of some keys, ascending, as a new array; `numpy.unique` hashes, and takes ten times longer."""
    ordered = device.xp.sort(keys)
    return ordered[last_of_keys(device, ordered)]


def is_in(device: Device, keys: Array, among: Array) -> Array:
    """Whether each key is among other ones, which ascend: bool[n]."""
    if not len(among):
        return device.xp.zeros(len(keys), bool)
    places = device.xp.searchsorted(among, keys)
    return among[device.xp.minimum(places, len(among) - 1)] == keys


def deletions(device: Device, keys: Array) -> Run:
    """A run that deletes these keys, which ascend."""
    return Run(keys, device.full(len(keys), -1, np.int8))


def completed(device: Device, run: Run, weights: bool, ops: bool = False) -> Run:
    """A run with times, and with `weights` and `ops` where they are wanted; deletions have the largest time."""
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
    """Runs with times that all have ops if one has."""
    ops = any(run.op is not None for run in runs)
    return [replace(run, op=device.full(len(run), 1, np.int8)) if ops and run.op is None else run for run in runs]
