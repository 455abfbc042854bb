"""Adding up each own vertex's edges by label in hash tables, and choosing a label, as the kernels' `Votes` says.

Rows of up to 8 edges are added up by a lane, rows of up to `TABLED` in a tile's shared memory. Wider rows have tables
of two slots an edge in memory. As many rows as fit into `ROOM` slots have theirs at a time, or one larger row, so a hub
of a million edges is worked on by as many tiles as there are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels
from mgraph.device import Array
from mgraph.kernels import Library, Struct, View, constants

__all__ = ["Tally", "tally_kernels"]

FILE = "algorithms/primitives/label_counts.cuh"
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
TABLED, CHUNK_SLOTS = _CONSTANTS["most_tabled"], _CONSTANTS["chunk_slots"]
ROOM = 1 << 24  #: slots of the tables of wide rows at a time: 12 bytes each


def tally_kernels(shard: Shard, view: View) -> Library:
    """The kernels for one of the shard's structures."""
    return kernels(shard, FILE, view)


class Tally:
    """The rows of one rank, and the tables of those that are wide.

    Takes 45 bytes a wide row, and 12 bytes for each of `ROOM` slots or for twice the edges of the largest row.

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
        self.kernels = tally_kernels(shard, views[0])
        device, xp = self.device, self.device.xp
        self.wide = device.astype(xp.flatnonzero(degrees > TABLED), np.uint32)
        self.slots = device.astype(device.gather(degrees, self.wide), np.int64)
        self.slots *= 2
        n = len(self.wide)
        self.total, most = (int(self.slots.sum()), int(self.slots.max())) if n else (0, 0)
        room = min(self.total, ROOM + most)
        self.keys, self.sums = device.empty(room, np.uint32), device.empty(room, np.uint64)
        pieces = -(-room // CHUNK_SLOTS) + n
        self.scores, self.labels = device.empty(pieces, np.uint64), device.empty(pieces, np.uint32)
        self._arrange(np.array([0, n]))

    def deal(self, votes: dict[str, Any]) -> None:
        """Put the wide rows in the order of the turns in which they choose, before the turns of a sweep.

        `votes` has the number of turns, up to 255, as "classes". A sort of a byte a wide row, and three read-backs.
        """
        device, n = self.device, len(self.wide)
        if n == 0:
            self._arrange(np.zeros(votes["classes"] + 1, np.int64))
            return
        turns = device.empty(n, np.uint8)
        self.kernels.Turns(n, votes=votes, wide=self.wide, n=n, turns=turns)
        order = device.xp.argsort(turns, kind="stable")
        self.wide, self.slots, turns = (device.gather(one, order) for one in (self.wide, self.slots, turns))
        marks = device.arange(0, votes["classes"] + 1, np.uint8)
        self._arrange(device.to_host(device.xp.searchsorted(turns, marks)))

    def _arrange(self, turns: np.ndarray) -> None:
        """Divide the wide rows of each turn into groups whose tables there is room for at a time.

        Turn k's rows begin at ``turns[k]``.
        """
        device, xp, n = self.device, self.device.xp, len(self.wide)
        self.groups: list[list[tuple[int, int, int, list[int]]]] = [[] for _ in turns[1:]]
        if n == 0:
            return
        self.places = device.zeros(n + 1, np.int64)
        device.cumsum(self.slots, out=self.places[1:])
        self.tasks = [self._tasks(view) for view in self.views]
        marks = device.asarray(np.arange(1, -(-self.total // ROOM), dtype=np.int64) * ROOM)
        inner = device.to_host(xp.searchsorted(self.places, marks))
        cuts = np.unique(np.concatenate([inner, turns]).astype(np.int64))
        at = device.asarray(cuts)
        bounds = device.to_host(device.concatenate([device.gather(one, at) for one in (self.places, *self.tasks)]))
        sizes = np.diff(bounds.reshape(-1, len(cuts))).T.tolist()
        for (begin, end), (slots, *tasks) in zip(pairwise(cuts.tolist()), sizes, strict=True):
            turn = int(np.searchsorted(turns, begin, side="right")) - 1
            self.groups[turn].append((begin, end, slots, tasks))

    def _tasks(self, view: View) -> Array:
        """The first task of each wide row in a view: int64[wide + 1]."""
        n = len(self.wide)
        first, counts = self.device.zeros(n + 1, np.int64), self.device.empty(n, np.int64)
        self.kernels.CountTasks(n, graph=view, wide=self.wide, n=n, counts=counts)
        self.device.cumsum(counts, out=first[1:])
        return first

    def vote(self, votes: dict[str, Any]) -> None:
        """Have each row of a turn choose; where there are several turns, `deal` comes first.

        One launch, and for each group of wide rows 3, 4 with two views; no read-back.
        """
        rows, turn, given = -(-self.rows // LANES), votes["turn"], Struct(**votes)
        both = {"graph": self.views[0], "back": self.views[-1], "both": len(self.views) - 1}
        self.kernels.Vote(rows, **both, rows=self.rows, votes=given)
        for begin, end, slots, tasks in self.groups[turn]:
            self.device.fill(self.keys[:slots], 2**32 - 1)
            self.device.fill(self.sums[:slots], 0)
            group = {"votes": given, "wide": self.wide, "places": self.places, "begin": begin}
            tables = {**group, "end": end, "keys": self.keys, "sums": self.sums}
            for view, first, n in zip(self.views, self.tasks, tasks, strict=True):
                self.kernels.CastWide(n, graph=view, task_of=first, tasks=n, **tables)
            best = {"scores": self.scores, "labels": self.labels}
            self.kernels.RankWide(-(-slots // CHUNK_SLOTS), **tables, **best)
            self.kernels.SettleWide(end - begin, n=end - begin, **group, **best)
