"""Sums of own vertices' edges by label, in hash tables, and the choice of a label.

Rows of up to 8 edges are added up by a lane, rows of up to `TABLED` in a tile's shared memory, or on a CPU rows of up
to `TABLED_BY_THREAD` in a table of the thread. Wider rows have tables of two slots per edge in memory. The rows are
grouped so that a group's tables fit into `ROOM` slots; a larger row is a group of its own, so all tiles work on a hub
of a million edges.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Shard, kernels
from mgraph.device import Array
from mgraph.kernels import Library, View, constants
from mgraph.kernels.host import host_platform

__all__ = ["LabelCounts", "label_count_kernels"]

FILE = "algorithms/primitives/label_counts.cuh"
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
TABLED, TABLED_BY_THREAD, CHUNK_SLOTS = (_CONSTANTS[name] for name in ("most_tabled", "most_by_thread", "chunk_slots"))
ROOM = 1 << 24  #: slots of the tables of a group of wide rows: 12 bytes each


def label_count_kernels(shard: Shard, view: View) -> Library:
    """Return the kernels for a structure of the shard."""
    return kernels(shard, FILE, view)


class LabelCounts:
    """Rows of a rank, and the tables of the wide ones.

    `by_thread` is True on a CPU, where threads have tables.

    Takes 45 bytes per wide row, and 12 bytes for each of `ROOM` slots or for twice the edges of the largest row.

    Parameters
    ----------
    shard : Shard
    views : list of View
        The edges of the rows; or out-edges and in-edges, of one type.
    degrees : uint32[rows] or int64[rows]
        The edges of each row in all views.
    """

    def __init__(self, shard: Shard, views: list[View], degrees: Array) -> None:
        self.device, self.views, self.rows = shard.device, views, len(degrees)
        self.kernels = label_count_kernels(shard, views[0])
        # Find the wide rows.
        device = self.device
        self.by_thread = device.kind == "cpu" and host_platform() == "kernels/platform/host.h"
        self.tabled = TABLED_BY_THREAD if self.by_thread else TABLED
        wide = device.astype(device.xp.flatnonzero(degrees > self.tabled), np.uint32)
        slots = device.astype(device.gather(degrees, wide), np.int64)
        slots *= 2
        self._hold(wide, slots)
        self._arrange(np.array([0, len(wide)]))
        self.active: Array = None  # the rows that vote, by turn; None for all
        self.marks = np.array([0, self.rows])  # where each turn begins in them

    def _hold(self, wide: Array, slots: Array) -> None:
        """Take up the wide rows and the slots of their tables, and allocate the tables of a group."""
        device, n = self.device, len(wide)
        self.wide, self.slots = wide, slots
        self.total, most = (int(slots.sum()), int(slots.max())) if n else (0, 0)
        room = min(self.total, ROOM + most)
        self.keys, self.sums = device.empty(room, np.uint32), device.empty(room, np.uint64)
        pieces = -(-room // CHUNK_SLOTS) + n
        self.scores, self.labels = device.empty(pieces, np.uint64), device.empty(pieces, np.uint32)

    def deal(self, active: Array, turns: int, turns_of: Callable[[Array], Array]) -> None:
        """Sort the active rows, those with 1 in `active`, by turn. At most 254 turns.

        ``turns_of(rows)`` returns the turn of each of these rows, uint8, and `turns` for rows that are not active. A
        sort of a byte per active row, another per wide row, and up to five read-backs.
        """
        # List the rows of each turn.
        device = self.device
        rows = device.astype(device.xp.flatnonzero(active), np.uint32)
        order, marks = self._by_turn(turns_of(rows), turns)
        self.active, self.marks = device.gather(rows, order), marks

        # Arrange the wide rows alike; inactive ones come last.
        first = np.zeros_like(marks)
        if len(self.wide):
            order, first = self._by_turn(turns_of(self.wide), turns)
            self.wide, self.slots = (device.gather(column, order) for column in (self.wide, self.slots))
        self._arrange(first)

    def _by_turn(self, turn_of_row: Array, turns: int) -> tuple[Array, np.ndarray]:
        """Return the order of rows by turn, and where each turn begins."""
        device = self.device
        order = device.xp.argsort(turn_of_row, kind="stable")
        marks = device.arange(0, turns + 1, np.uint8)
        return order, device.to_host(device.xp.searchsorted(device.gather(turn_of_row, order), marks))

    def _arrange(self, turns: np.ndarray) -> None:
        """Divide each turn's wide rows into groups whose tables fit into memory.

        Turn k's rows begin at ``turns[k]``; rows from ``turns[-1]`` on do not vote.
        """
        device, xp, n = self.device, self.device.xp, len(self.wide)
        self.groups: list[list[tuple[int, int, int, list[int]]]] = [[] for _ in turns[1:]]
        if turns[-1] == 0:
            return
        # Place the tables, and list the tasks.
        self.places = device.zeros(n + 1, np.int64)
        device.cumsum(self.slots, out=self.places[1:])
        self.tasks = [self._tasks(view) for view in self.views]

        # Cut where a group's tables are full, and where a turn ends.
        marks = device.asarray(np.arange(1, -(-self.total // ROOM), dtype=np.int64) * ROOM)
        inner = device.to_host(xp.searchsorted(self.places, marks))
        cuts = np.unique(np.concatenate([inner, turns]).astype(np.int64))
        cuts = cuts[cuts <= turns[-1]]
        at = device.asarray(cuts)
        bounds = device.to_host(
            device.concatenate([device.gather(column, at) for column in (self.places, *self.tasks)])
        )
        sizes = np.diff(bounds.reshape(-1, len(cuts))).T.tolist()
        for (begin, end), (slots, *tasks) in zip(pairwise(cuts.tolist()), sizes, strict=True):
            turn = int(np.searchsorted(turns, begin, side="right")) - 1
            self.groups[turn].append((begin, end, slots, tasks))

    def _tasks(self, view: View) -> Array:
        """Return each wide row's first task in a view: int64[wide + 1]."""
        n = len(self.wide)
        first, counts = self.device.zeros(n + 1, np.int64), self.device.empty(n, np.int64)
        self.kernels.CountTasks(n, graph=view, wide=self.wide, n=n, counts=counts)
        self.device.cumsum(counts, out=first[1:])
        return first

    def fields(self) -> dict[str, Any]:
        """Return the rows and tables as fields of a program. Groups are in the order of their turns."""
        groups = [
            (begin, end, slots, *tasks, *[0] * (2 - len(tasks)))
            for groups_of_turn in self.groups
            for begin, end, slots, tasks in groups_of_turn
        ]
        wide = len(groups) > 0
        return {
            "graph": self.views[0], "back": self.views[-1], "both": len(self.views) - 1, "wide": self.wide,
            "places": self.places if wide else None, "tasks": self.tasks[0] if wide else None,
            "back_tasks": self.tasks[-1] if wide else None, "n_groups": len(groups),
            "groups": self.device.asarray(np.array(groups, np.int64).reshape(-1)), "keys": self.keys, "sums": self.sums,
            "scores": self.scores, "best": self.labels,
        }  # fmt: skip
