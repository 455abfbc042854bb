"""Sums of own vertices' edges by label, in hash tables, and the choice of a label.

Rows of up to 8 edges are added up by a lane, rows of up to `TABLED` in a tile's shared memory, or on a CPU rows of up
to `TABLED_BY_THREAD` in a table of the thread. Wider rows have tables of two slots per edge in memory. The rows are
grouped so that a group's tables fit into `ROOM` slots; a larger row is a group of its own, so all tiles work on a hub
of a million edges.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.kernels import Library, View, constants
from mgraph.kernels.host import simulates_lanes

__all__ = ["LabelCounts"]

_CONSTANTS = constants("algorithms/primitives/label_counts.cuh", HUB_DEGREE=1024)
TABLED, TABLED_BY_THREAD, CHUNK_SLOTS, DEAL_CHUNK, GROUP_WORDS = (
    _CONSTANTS[name] for name in ("most_tabled", "most_by_thread", "chunk_slots", "deal_chunk", "group_words")
)
ROOM = 1 << 24  #: slots of the tables of a group of wide rows: 12 bytes each


class LabelCounts:
    """Rows of a rank that vote in turns, and the tables of the wide ones.

    Takes 5 bytes per row, 44 bytes per wide row, or 60 with in-edges, and 12 bytes for each of `ROOM` slots or for
    twice the edges of the largest row.

    Parameters
    ----------
    device : Device
    kernels : Library
        A library for the view's type that includes `label_counts.cuh`.
    views : list of View
        The edges of the rows; or out-edges and in-edges, of one type.
    rows : int

    Attributes
    ----------
    by_thread : bool
        True on a CPU, where threads have tables.
    list : uint32[k]
        The rows of all turns that are not wide, by turn.
    marks : int64[turns + 1]
        Where each turn begins in them.
    groups : list of int
        The number of groups of wide rows in each turn.
    edges : int
        The number of edges of all dealt rows.
    """

    def __init__(self, device: Device, kernels: Library, views: list[View], rows: int) -> None:
        self.device, self.kernels, self.views, self.rows = device, kernels, views, rows
        self.by_thread = device.kind == "cpu" and not simulates_lanes()
        self.tabled = TABLED_BY_THREAD if self.by_thread else TABLED
        self.keys, self.sums = device.empty(0, np.uint32), device.empty(0, np.uint64)
        self.scores, self.labels = device.empty(0, np.uint64), device.empty(0, np.uint32)

    def sides(self) -> dict[str, Any]:
        """Return the views as fields of a kernel."""
        return {"graph": self.views[0], "back": self.views[-1], "both": len(self.views) - 1}

    def deal(
        self, turns: int, count: Callable[[int, dict[str, Any]], None] | None = None, listed: Array = None
    ) -> None:
        """Deal rows to turns, at most 127; without `count` all rows to one.

        ``count(chunks, deal)`` launches the kernel that chooses the turn of each row in chunks, with the fields of the
        kernels' `Dealing`. `listed`, uint32[k], are the rows to deal, instead of all. Rows without edges do not vote.
        One read-back.
        """
        # Count the rows and the wide rows of each turn, in chunks.
        device, n, classes = self.device, self.rows if listed is None else len(listed), 2 * turns
        chunks = -(-n // DEAL_CHUNK)
        counts, before = device.empty(classes * chunks, np.int64), device.zeros(classes * chunks + 1, np.int64)
        found = device.zeros(classes + turns + 3, np.int64)
        marks, slots, edges = found[: classes + 1], found[classes + 1 : -2], found[-2:]
        deal = {"list": listed, "n": n, "turns": turns, "tabled": self.tabled, "classes": device.empty(n, np.uint8)}
        deal |= {"counts": counts, "slots": slots, "edges": edges}
        if count is None:
            self.kernels.CountOneTurn(chunks, **self.sides(), deal=deal)
        else:
            count(chunks, deal)

        # Place them.
        device.cumsum(counts, out=before[1:])
        dealt = device.empty(n, np.uint32)
        self.kernels.DealRows(chunks, deal=deal, before=before, dealt=dealt, marks=marks)
        found = device.to_host(found)
        self.marks, begins, slots = found[: turns + 1], found[turns : classes + 1], found[classes + 1 : -2]
        self.list, self.wide = dealt[: begins[0]], dealt[begins[0] : begins[-1]]
        self.edges = int(found[-2])
        self._group(slots, int(found[-1]))

    def _group(self, slots: np.ndarray, most: int) -> None:
        """Divide each turn's wide rows into groups whose tables fit into memory.

        `slots` are those of each turn's tables, and `most` those of the largest one.
        """
        # Groups begin where a turn does, and where the tables are full.
        device, n = self.device, len(self.wide)
        ends = [0, *np.cumsum(slots).tolist()]
        begins = [
            [first, *range((first // ROOM + 1) * ROOM, end, ROOM)] if first < end else []
            for first, end in pairwise(ends)
        ]
        self.groups = [len(of_turn) for of_turn in begins]
        self.described = device.empty(GROUP_WORDS * sum(self.groups), np.int64)
        if n == 0:
            return
        # Measure the rows, and describe the groups.
        sizes = device.empty((1 + len(self.views)) * n, np.int64)
        self.sizes = device.zeros(len(sizes) + 1, np.int64)
        self.kernels.MeasureWide(n, **self.sides(), wide=self.wide, n=n, sizes=sizes)
        device.cumsum(sizes, out=self.sizes[1:])
        cuts = np.array([*chain(*begins), ends[-1]], np.int64)
        self.kernels.CutGroups(
            len(cuts) - 1, places=self.sizes, wide=n, both=len(self.views) - 1, begins=device.asarray(cuts),
            n=len(cuts) - 1, groups=self.described,
        )  # fmt: skip

        # Allocate the tables of a group.
        room = min(ends[-1], ROOM + most)
        if room > len(self.keys):
            self.keys, self.sums = device.empty(room, np.uint32), device.empty(room, np.uint64)
        pieces = -(-room // CHUNK_SLOTS) + n
        if pieces > len(self.scores):
            self.scores, self.labels = device.empty(pieces, np.uint64), device.empty(pieces, np.uint32)

    def fields(self) -> dict[str, Any]:
        """Return the wide rows and their tables as fields of a program. Groups are in the order of their turns."""
        n, wide = len(self.wide), len(self.wide) > 0
        return {
            **self.sides(), "wide": self.wide, "places": self.sizes if wide else None,
            "tasks": self.sizes[n:] if wide else None,
            "back_tasks": self.sizes[len(self.views) * n :] if wide else None,
            "n_groups": max(self.groups), "groups": self.described, "keys": self.keys, "sums": self.sums,
            "scores": self.scores, "best": self.labels,
        }  # fmt: skip
