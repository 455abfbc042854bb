"""Betweenness centrality on each rank: Brandes' algorithm, source by source.

For each source: a breadth-first search finds levels, and an allgather brings the levels of all vertices to every rank.
Then, level by level, each vertex counts its shortest paths as the sum over its in-neighbours in the level before.
Backwards from the last level, it sums its share of the paths through its out-neighbours in the level after. Sums are
float64 and pulled, so that they do not depend on timing. Numbers of paths have an exponent of their own: a grid of 4096
x 4096 has about 2^8184 paths from corner to corner, and float64 ends at 2^1024.

If the graph is directed and does not store in-edges, `transposed` makes them once for all sources. On a GPU
`compact_rows` copies rows with gaps once for all sources.

================ =================================== ========== ======================================================
step             launches                            read-backs exchange among p ranks
================ =================================== ========== ======================================================
search           see `paths.bfs`                     the same
levels           a sort by a byte, or by more bytes  1          an allgather of 4 bytes per vertex
                 where there are more levels
a level, forward 2, 5 where there may be hubs        0          an allgather of 16 bytes per vertex of the level
and backward     the same                            0          an allgather of 8 bytes per vertex of the level
================ =================================== ========== ======================================================

References
----------
.. [1] U. Brandes, "A faster algorithm for betweenness centrality", J. Mathematical Sociology 25(2), 2001.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.paths import bfs
from mgraph.algorithms.primitives.bitmaps import words_of
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.transpose import CsrRows, transposed
from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.kernels import Library, Struct
from mgraph.structures import Structure

__all__ = ["run", "warm"]


def _library(shard: Shard, rows: Structure | CsrRows) -> Library:
    return kernels(shard, "algorithms/centrality/betweenness/brandes.cuh", rows.view())


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    bfs.ALGORITHM.warm(shard)
    for rows in (shard.out_edges, shard.in_edges):
        if rows is not None:
            _library(shard, compact_rows_sample(shard, rows))


class _Side:
    """Out-edges or in-edges, and the tasks of their hubs."""

    def __init__(self, shard: Shard, rows: Structure | CsrRows) -> None:
        self.kernels, self.view, self.device = _library(shard, rows), rows.view(), shard.device
        self.room = task_room(rows)
        self.tasks, self.n_tasks = self.device.empty(self.room, np.uint64), self.device.zeros(1, np.int64)
        self.parts = {"parts": self.device.empty(self.room, np.float64)}
        self.parts["powers"] = self.device.empty(self.room, np.int64)

    def sum(self, counts: Struct, listed: Array) -> None:
        """Sum over the neighbours of the listed own vertices. 1 launch, 4 if there may be hubs."""
        common = {"graph": self.view, "counts": counts, "tasks": self.tasks, "n_tasks": self.n_tasks}
        if self.room:
            self.device.fill(self.n_tasks, 0)
        self.kernels.SumRows(-(-len(listed) // LANES), listed=listed, n=len(listed), **common)
        self.kernels.SumHubs(self.room, **common, **self.parts)
        self.kernels.JoinHubs(self.room, **common, **self.parts)


class _Levels:
    """Vertices of the graph by their level, from a source.

    Parameters
    ----------
    shard : Shard
    level : int32[n_vertices]
        The level of each vertex; -1 without a path from the source.
    count : int
        The number of levels.

    Attributes
    ----------
    order : int64[n_vertices]
        The internal ids of all vertices by level, ascending in each; unreached vertices at the end.
    """

    def __init__(self, shard: Shard, level: Array, count: int) -> None:
        # Sort the vertices by level, with the smallest dtype: few bits sort faster.
        device, xp = shard.device, shard.device.xp
        with device.taking(20 * len(level), "the order of the vertices by level"):
            narrow = level.astype(np.min_scalar_type(count))  # -1 becomes the largest number
            self.order = xp.argsort(narrow, kind="stable")
            keys = narrow[self.order].astype(np.int64)
            keys <<= 32
            keys |= self.order

        # Find where each level, and this rank's part of it, begins and ends.
        starts = np.arange(count + 1, dtype=np.int64) << 32
        marks = device.asarray(np.concatenate([starts, starts + shard.lo, starts + shard.hi]))
        self.count, places = count, Device.to_host(xp.searchsorted(keys, marks))
        self.first, self.own_first, self.own_end = np.split(places, 3)

    def whole(self, level: int) -> Array:
        """Return the vertices of a level."""
        return self.order[self.first[level] : self.first[level + 1]]

    def own(self, level: int) -> Array:
        """Return this rank's vertices of a level."""
        return self.order[self.own_first[level] : self.own_end[level]]


class _Brandes:
    """A rank's state for all sources."""

    def __init__(self, shard: Shard) -> None:
        # In-edges sum forward, out-edges backward.
        self.shard, self.device, n = shard, shard.device, shard.n_vertices
        self.out = self.back = _Side(shard, compact_rows(shard, shard.out_edges))
        if shard.in_edges is not shard.out_edges:
            incoming = transposed(shard) if shard.in_edges is None else compact_rows(shard, shard.in_edges)
            if incoming is None:
                raise CapacityError("there is too little memory to make in-edges; create the graph with reverse=True")
            self.back = _Side(shard, incoming)

        # Allocate the sums, and the bitmaps of two levels in turn.
        self.total = self.device.zeros(shard.hi - shard.lo, np.float64)
        self.paths, self.credit = (self.device.empty(n, np.float64) for _ in range(2))
        self.power, self.raised = self.device.empty(n, np.int32), self.device.zeros(1, np.int64)
        self.near = [self.device.empty(words_of(n), np.uint32) for _ in range(2)]  # of two levels in turn
        fields = {"paths": self.paths, "power": self.power, "raised": self.raised, "credit": self.credit}
        fields |= {"total": self.total, "first": shard.lo}
        self.counts = [[Struct(near=near, backward=way, **fields) for near in self.near] for way in (0, 1)]

    def add(self, source: int) -> None:
        """Add the dependencies of a source."""
        # Find the levels.
        shard = self.shard
        columns, info = bfs.ALGORITHM.run(shard, source=source)
        own = columns.pop("distance")
        level = own if shard.size == 1 else self.device.concatenate(shard.exchange.allgather(own))
        levels = _Levels(shard, level, info["levels"])
        del own, level

        # Start at the source.
        self.paths[source : source + 1] = 1
        self.power[source : source + 1] = 0
        for array in (self.raised, *self.near):
            self.device.fill(array, 0)
        self.turn, self.marked = 0, levels.order[:0]

        # Forward: count the paths of each level.
        last = levels.count - 1
        for at in range(1, last + 1):
            self._sum(levels, at, backward=0)
            self._share(levels, at, self.paths, self.power)

        # Backward: sum the dependencies of each level.
        self.credit[levels.whole(last)] = 1 / self.paths[levels.whole(last)]
        for at in range(last - 1, 0, -1):
            self._sum(levels, at, backward=1)
            self._share(levels, at, self.credit)

    def _sum(self, levels: _Levels, at: int, backward: int) -> None:
        """Sum over the neighbours of a level's own vertices in the level before, or after it."""
        # Mark the other level in the bitmap, and clear the mark before.
        side, old = self.out if backward else self.back, self.marked
        listed = levels.whole(at + 1 if backward else at - 1)
        self.turn, self.marked = 1 - self.turn, listed
        side.kernels.MarkLevel(
            max(len(listed), len(old)), listed=listed, n=len(listed), near=self.near[self.turn],
            old=old, n_old=len(old), before=self.near[1 - self.turn],
        )  # fmt: skip
        side.sum(self.counts[backward][self.turn], levels.own(at))

    def _share(self, levels: _Levels, at: int, *arrays: Array) -> None:
        """Send the values of a level to all ranks. One allgather."""
        if self.shard.size == 1:
            return
        own, everyone = levels.own(at), levels.whole(at)
        mine = self.device.concatenate([array[own].astype(np.float64) for array in arrays])
        parts = [part.reshape(len(arrays), -1) for part in self.shard.exchange.allgather(mine)]
        values = self.device.xp.concatenate(parts, axis=1)
        for array, row in zip(arrays, values, strict=True):
            array[everyone] = row.astype(array.dtype)
            if array is self.power:
                self.raised |= (row > 0).any()


def run(shard: Shard, sources: np.ndarray | None, factor: float, source_factor: float) -> Columns:
    """Return the betweenness centrality of the own vertices.

    Parameters
    ----------
    shard : Shard
    sources : uint32[k] or None
        Internal ids of the sources, no repeats, the same on every rank; None for all vertices.
    factor, source_factor : float
        Factors of the sums of vertices and of sources.

    Returns
    -------
    columns : dict
        "centrality", float64[hi - lo] on the shard's device.
    scalars : dict
        ``sources``, their number.

    Raises
    ------
    CapacityError
        Too little memory: 44 bytes per vertex of the whole graph, 8 bytes per owned vertex, a search, 1 / 21 byte per
        edge for hubs' tasks and, in directed graphs without in-edges, the memory of `transposed`.

    Notes
    -----
    O(n + m) per source, and a sort of n levels. The result does not depend on timing, bit for bit. Its last digits
    depend on the structure and the number of ranks.
    """
    # Add up the sources.
    brandes = _Brandes(shard) if shard.n_vertices else None
    chosen = range(shard.n_vertices) if sources is None else sources.tolist()
    for source in chosen:
        assert brandes is not None
        brandes.add(source)
    total = brandes.total if brandes is not None else shard.device.empty(0, np.float64)

    # Scale the sums; sources have a factor of their own.
    if sources is not None and source_factor != factor:
        own = sources[(sources >= shard.lo) & (sources < shard.hi)].astype(np.int64) - shard.lo
        own = shard.device.asarray(own)
        kept = total[own] * source_factor
        total *= factor
        total[own] = kept
    else:
        total *= factor
    return {"centrality": total}, {"sources": len(chosen)}
