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
from mgraph.kernels import Library, View, constants

__all__ = ["Tally", "tally_kernels"]

FILE = "algorithms/tally/tally.cuh"
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
TABLED, CHUNK_SLOTS = _CONSTANTS["most_tabled"], _CONSTANTS["chunk_slots"]
ROOM = 1 << 24  #: slots of the tables of wide rows at a time: 12 bytes each


def tally_kernels(shard: Shard, view: View) -> Library:
    """The kernels for one of the shard's structures."""
    return kernels(shard, FILE, view)


class Tally:
    """The rows of one rank, and the tables of those that are wide.

    Takes 28 bytes a wide row, and 12 bytes for each of `ROOM` slots or for twice the edges of the largest row.

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
        self.places = device.zeros(len(self.wide) + 1, np.int64)
        slots = device.astype(device.gather(degrees, self.wide), np.int64)
        slots *= 2
        device.cumsum(slots, out=self.places[1:])
        self.tasks = [self._tasks(view, slots) for view in views]
        self._cut()

    def _tasks(self, view: View, spare: Array) -> Array:
        """The first task of each wide row in a view: int64[wide + 1]."""
        first = self.device.zeros(len(self.wide) + 1, np.int64)
        self.kernels.CountTasks(len(self.wide), graph=view, wide=self.wide, n=len(self.wide), counts=spare)
        self.device.cumsum(spare, out=first[1:])
        return first

    def _cut(self) -> None:
        """Divide the wide rows into groups whose tables there is room for at a time. One read-back."""
        device, xp = self.device, self.device.xp
        n = len(self.wide)
        if n == 0:
            self.groups: list[tuple[int, int]] = []
            return
        groups = -(-int(self.places[-1]) // ROOM)
        marks = device.asarray(np.arange(1, groups, dtype=np.int64) * ROOM)
        cuts = np.unique(np.concatenate([[0], device.to_host(xp.searchsorted(self.places, marks)), [n]])).clip(0, n)
        at = device.asarray(cuts.astype(np.int64))
        self.bounds = [device.to_host(device.gather(one, at)) for one in (self.places, *self.tasks)]
        self.groups = list(pairwise(cuts.tolist()))
        most = int(np.diff(self.bounds[0]).max())
        self.keys, self.sums = device.empty(most, np.uint32), device.empty(most, np.uint64)
        rows = max(end - begin for begin, end in self.groups)
        self.scores, self.names = device.empty(rows, np.uint64), device.empty(rows, np.uint32)

    def vote(self, votes: dict[str, Any]) -> None:
        """Have each row choose. One launch, and for each group of wide rows 4, 5 with two views; no read-back."""
        rows = -(-self.rows // LANES)
        both = {"graph": self.views[0], "back": self.views[-1], "both": len(self.views) - 1}
        self.kernels.Vote(rows, **both, rows=self.rows, votes=votes)
        for number, (begin, end) in enumerate(self.groups):
            slots, *tasks = (int(bound[number + 1] - bound[number]) for bound in self.bounds)
            self.device.fill(self.keys[:slots], 2**32 - 1)
            self.device.fill(self.sums[:slots], 0)
            self.device.fill(self.scores, 0)
            self.device.fill(self.names, 2**32 - 1)
            group = {"votes": votes, "wide": self.wide, "begin": begin}
            tables = {**group, "places": self.places, "end": end, "keys": self.keys, "sums": self.sums}
            for view, first, n in zip(self.views, self.tasks, tasks, strict=True):
                self.kernels.CastWide(n, graph=view, task_of=first, tasks=n, **tables)
            best = {"scores": self.scores, "names": self.names}
            for naming in (0, 1):
                self.kernels.RankWide(-(-slots // CHUNK_SLOTS), naming=naming, **tables, **best)
            self.kernels.SettleWide(end - begin, n=end - begin, **group, **best)
