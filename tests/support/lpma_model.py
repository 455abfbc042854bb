"""Executable model of lpma: gpma+'s model on places, whose array grows by an empty leaf after each leaf."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil

from pma_model import EMPTY, Bounds, Located, Operation, PmaModel


class LpmaModel(PmaModel):
    """`height` is how many levels were appended to level 0; `top_down` says how the next batch chooses its windows."""

    height, top_down = 0, False

    def apply(self, batch: Sequence[Operation]) -> list[int]:
        found = self._locate(batch)
        if not any(found.move):
            return []
        windows, n = self._windows(found) if sum(self.counts) else None, sum(self.counts) + found.net[-1]
        if windows is None and sum(self.counts) and self._whole(self.leaves)[1] < n <= self._whole(2 * self.leaves)[1]:
            self._append_level()
            found = self._locate(batch)
            windows = self._windows(found)
            assert windows is not None
        if windows is None:
            n = sum(self.counts) + found.net[-1]
            fits = not sum(self.counts) and n <= self._whole(1)[1]
            new = 1 if fits else max(1, ceil(n / (self.leaf * self.fill)))
            self._rewrite(found, [(0, self.leaves)], new)
            self.height = 0
            return [new]
        self._rewrite(found, windows, None)
        return [last - first for first, last in windows]

    def _whole(self, leaves: int) -> tuple[int, int]:
        """Least and most items of a whole array of so many leaves."""
        bounds = Bounds.of(leaves, self.leaf, self.leaf_density, self.root_density)
        full = 1 << (len(bounds.most) - 1)
        return -(-bounds.least[-1] * leaves // full), bounds.most[-1] * leaves // full

    def _append_level(self) -> None:
        leaf, slots, end = self.leaf, [], len(self.slots)
        for i in range(self.leaves):
            slots += [*self.slots[i * leaf : (i + 1) * leaf], *[EMPTY] * leaf]
        self.start = [2 * end if s == end else 2 * (s - s % leaf) + s % leaf for s in self.start]
        self.slots, self.counts = slots, [n for count in self.counts for n in (count, 0)]
        self.height += 1

    def _seek(self, row: int, dst: int) -> tuple[int, bool]:
        begin, end, leaf = self.start[row], self.start[row + 1], self.leaf
        if begin == end:
            return end, False
        at = begin // leaf
        for other in range(at + 1, (end - 1) // leaf + 1):
            if self.counts[other] and self.slots[other * leaf] <= dst:
                at = other
        high = min(end, at * leaf + self.counts[at])
        slot = bisect_left(self.slots, dst, max(begin, at * leaf), max(begin, at * leaf, high))
        if slot < high:
            return slot, self.slots[slot] == dst
        return min(end, (at + 1) * leaf), False

    def _windows(self, found: Located) -> list[tuple[int, int]] | None:
        if not self.top_down:
            return super()._windows(found)
        counts, changed = list(self.counts), set()
        for slot, move in zip(found.slot, found.move, strict=True):
            if move:
                leaf = min(slot // self.leaf, self.leaves - 1)
                counts[leaf] += move
                changed.add(leaf)
        return self._split(counts, changed, len(self.bounds().most) - 1, 0)

    def _split(self, counts: list[int], changed: set[int], level: int, first: int) -> list[tuple[int, int]] | None:
        """The windows in a range: itself where a half that changes does not fit, else those of its halves."""
        last = min(first + (1 << level), self.leaves)
        if not any(first <= leaf < last for leaf in changed):
            return []
        if not self.bounds().hold(level, last - first, sum(counts[first:last])):
            return None
        if level == 0:
            return [(first, last)]
        halves = [self._split(counts, changed, level - 1, at) for at in (first, first + (1 << level - 1)) if at < last]
        return [(first, last)] if None in halves else [w for half in halves for w in half or []]
