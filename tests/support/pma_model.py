"""Executable model of gpma+: one step at a time, sequential, as the algorithm reads. Slots hold destinations only.

A batch is counted first: each key's slot, what it moves, new counts by leaf. Every changed leaf asks for its smallest
ancestor window within bounds; windows nest or are disjoint, so those under another are dropped. Then each window is
written once, by ranks: an old item keeps its rank, plus the inserts less the deletes before it in the window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

EMPTY = -1
Operation = tuple[int, int, int]  # row, dst, +1 | -1


@dataclass(frozen=True)
class Bounds:
    """Least and most items of a full window of ``1 << level`` leaves, the root last."""

    least: list[int]
    most: list[int]

    @classmethod
    def of(cls, leaves: int, leaf: int, leaf_density: tuple[float, float], root_density: tuple[float, float]) -> Bounds:
        """Interpolated from leaf to root; two full children fit their parent, and no leaf of a window is empty."""
        height = (leaves - 1).bit_length()
        least, most = [], []
        for level in range(height + 1):
            share, slots = level / max(height, 1), leaf << level
            top = int((leaf_density[1] - (leaf_density[1] - root_density[1]) * share) * slots)
            low = max(1 << level, int((leaf_density[0] + (root_density[0] - leaf_density[0]) * share) * slots))
            most.append(min(top, 2 * most[-1]) if level else top)
            least.append(max(low, 2 * least[-1]) if level else low)
        return cls(least if leaves > 1 else [0], most)

    def hold(self, level: int, leaves: int, n: int) -> bool:
        """Whether n items in a window of `leaves`, at most ``1 << level`` of them, are within the level's bounds."""
        full = 1 << level
        return -(-self.least[level] * leaves // full) <= n <= self.most[level] * leaves // full


@dataclass(frozen=True)
class Located:
    """A batch against the old array: each key's slot, what it moves, and net[k], the sum of the moves before key k."""

    batch: Sequence[Operation]
    slot: list[int]
    move: list[int]
    net: list[int]


class PmaModel:
    """Rows in one array of leaves; ``start[r]`` is the slot of the first live item of row r or of a later row."""

    def __init__(
        self,
        n_rows: int,
        leaf: int,
        leaf_density: tuple[float, float],
        root_density: tuple[float, float],
        fill: float,
    ) -> None:
        self.n_rows, self.leaf, self.fill = n_rows, leaf, fill
        self.leaf_density, self.root_density = leaf_density, root_density
        self.slots, self.counts, self.start = [EMPTY] * leaf, [0], [leaf] * (n_rows + 1)

    @property
    def leaves(self) -> int:
        return len(self.counts)

    def bounds(self) -> Bounds:
        return Bounds.of(self.leaves, self.leaf, self.leaf_density, self.root_density)

    def apply(self, batch: Sequence[Operation]) -> list[int]:
        """Apply a sorted batch of unique keys; returns how many leaves each written window has."""
        found = self._locate(batch)
        if not any(found.move):
            return []
        windows = self._windows(found)
        if windows is None:  # the root is out of bounds: all of it, into a new array
            new = max(1, ceil((sum(self.counts) + found.net[-1]) / (self.leaf * self.fill)))
            self._rewrite(found, [(0, self.leaves)], new)
            return [new]
        self._rewrite(found, windows, None)
        return [last - first for first, last in windows]

    # --- where the keys are ---

    def _locate(self, batch: Sequence[Operation]) -> Located:
        slot, move = [], []
        for row, dst, op in batch:
            at, hit = self._seek(row, dst)
            slot.append(at)
            move.append(int(not hit) if op > 0 else -int(hit))
        assert slot == sorted(slot)
        return Located(batch, slot, move, [0, *accumulate(move)])

    def _seek(self, row: int, dst: int) -> tuple[int, bool]:
        """The slot of the first live item of the row that is not below dst, or of what follows the row."""
        begin, end, leaf = self.start[row], self.start[row + 1], self.leaf
        if begin == end:
            return end, False
        last = (end - 1) // leaf
        at = begin // leaf
        while at < last and self.slots[(at + 1) * leaf] <= dst:  # the last leaf whose first item is not above dst
            at += 1
        high = min(end, at * leaf + self.counts[at])
        slot = bisect_left(self.slots, dst, max(begin, at * leaf), high)
        if slot < high:
            return slot, self.slots[slot] == dst
        return (end if at == last else (at + 1) * leaf), False

    # --- which windows are written ---

    def _windows(self, found: Located) -> list[tuple[int, int]] | None:
        counts, touched = list(self.counts), set()
        for slot, move in zip(found.slot, found.move, strict=True):
            if move:
                leaf = min(slot // self.leaf, self.leaves - 1)
                counts[leaf] += move
                touched.add(leaf)
        # a leaf whose inserts and deletes cancel out is written too
        asked: dict[int, int] = {}
        bounds = self.bounds()
        for leaf in touched:
            window = self._smallest(leaf, counts, bounds)
            if window is None:
                return None
            asked[window[0]] = max(window[1], asked.get(window[0], 0))
        windows, end = [], 0
        for first, last in sorted(asked.items()):
            if first >= end:
                windows.append((first, last))
                end = last
        return windows

    def _smallest(self, leaf: int, counts: list[int], bounds: Bounds) -> tuple[int, int] | None:
        for level in range(len(bounds.most)):
            first = leaf >> level << level
            last = min(first + (1 << level), self.leaves)
            if bounds.hold(level, last - first, sum(counts[first:last])):
                return first, last
        return None

    # --- writing them, by ranks ---

    def _rewrite(self, found: Located, windows: Iterable[tuple[int, int]], resized: int | None) -> None:
        old = PmaModel(self.n_rows, self.leaf, self.leaf_density, self.root_density, self.fill)
        old.slots, old.counts, old.start = list(self.slots), list(self.counts), list(self.start)
        if resized is not None:
            self.slots, self.counts = [EMPTY] * (resized * self.leaf), [0] * resized
        before = [0, *accumulate(old.counts)]
        for first, last in windows:
            self._rewrite_window(found, old, before, first, last, last - first if resized is None else resized)

    def _rewrite_window(
        self, found: Located, old: PmaModel, before: list[int], first: int, last: int, width: int
    ) -> None:
        leaf, at_end = self.leaf, last == old.leaves
        k0 = bisect_left(found.slot, first * leaf)
        k1 = len(found.slot) if at_end else bisect_left(found.slot, last * leaf)
        base = before[first] + found.net[k0]
        n = before[last] + found.net[k1] - base

        def rank(slot: int) -> int:
            return before[-1] if slot >= len(old.slots) else before[slot // leaf] + slot % leaf

        def place(i: int) -> int:
            """The slot of the i-th of n items, even over the leaves, the longer leaves first; past them, the end."""
            short, longer = divmod(n, width)
            if i >= n:
                return (first + width) * leaf
            if i < longer * (short + 1):
                return (first + i // (short + 1)) * leaf + i % (short + 1)
            rest = i - longer * (short + 1)
            return (first + longer + rest // short) * leaf + rest % short

        self.slots[first * leaf : (first + width) * leaf] = [EMPTY] * (width * leaf)
        self.counts[first : first + width] = [n // width + (j < n % width) for j in range(width)]
        for q in (l * leaf + i for l in range(first, last) for i in range(old.counts[l])):
            k = bisect_right(found.slot, q)
            if not (k and found.slot[k - 1] == q and found.move[k - 1] < 0):
                self.slots[place(rank(q) + found.net[k] - base)] = old.slots[q]
        for k in range(k0, k1):
            if found.move[k] > 0:
                self.slots[place(rank(found.slot[k]) + found.net[k] - base)] = found.batch[k][1]
        r0 = bisect_left(old.start, first * leaf)
        r1 = self.n_rows + 1 if at_end else bisect_left(old.start, last * leaf)
        for r in range(r0, r1):
            k = bisect_left(found.batch, (r,))
            self.start[r] = place(rank(old.start[r]) + found.net[k] - base)
