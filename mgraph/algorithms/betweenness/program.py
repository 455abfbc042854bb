"""Betweenness centrality on each rank: Brandes' algorithm, one source after another.

For each source: a breadth-first search finds levels, and every rank learns the levels of all vertices. Then, level by
level, each vertex counts its shortest paths as the sum over its in-neighbours in the level before. Backwards from the
last level, it sums its share of the paths that go on through its out-neighbours in the level after. Sums are float64
and are pulled, so that they do not depend on timing. Numbers of paths have an exponent of their own: on a grid of
4096 x 4096 there are about 2^8184 paths from corner to corner, and float64 ends at 2^1024.

If the graph is directed and does not store in-edges, they are made once for all sources, see `transposed`.

================ =================================== ========== ======================================================
step             launches                            read-backs exchange among p ranks
================ =================================== ========== ======================================================
search           see `mgraph.algorithms.bfs`                    the same
levels           a sort                              2          an allgather of 4 bytes a vertex
a level, forward 1, 4 where there may be hubs        0          an allgather of 16 bytes a vertex of the level
and backward     the same                            0          an allgather of 8 bytes a vertex of the level
================ =================================== ========== ======================================================

References
----------
.. [1] U. Brandes, "A faster algorithm for betweenness centrality", J. Mathematical Sociology 25(2), 2001.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms import bfs
from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.transpose import Rows, transposed
from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.kernels import Library, Struct
from mgraph.structures import Structure

__all__ = ["run", "warm"]


def _library(shard: Shard, rows: Structure | Rows) -> Library:
    return kernels(shard, "algorithms/betweenness/brandes.cuh", rows.view())


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    bfs.ALGORITHM.warm(shard)
    for rows in (shard.out_edges, shard.in_edges):
        if rows is not None:
            _library(shard, rows)


class _Side:
    """The edges of one direction, and the tasks of its hubs."""

    def __init__(self, shard: Shard, rows: Structure | Rows) -> None:
        self.kernels, self.view, self.device, self.room = (
            _library(shard, rows),
            rows.view(),
            shard.device,
            task_room(rows),
        )
        self.tasks, self.n_tasks = self.device.empty(self.room, np.uint64), self.device.zeros(1, np.int64)
        self.parts = {"parts": self.device.empty(self.room, np.float64)}
        self.parts["powers"] = self.device.empty(self.room, np.int64)

    def sum(self, counts: Struct, listed: Array) -> None:
        """Sum over the neighbours of the listed own vertices. 1 launch, 4 where there may be hubs."""
        common = {"graph": self.view, "counts": counts, "tasks": self.tasks, "n_tasks": self.n_tasks}
        if self.room:
            self.device.fill(self.n_tasks, 0)
        self.kernels.SumRows(-(-len(listed) // LANES), listed=listed, n=len(listed), **common)
        self.kernels.SumHubs(self.room, **common, **self.parts)
        self.kernels.JoinHubs(self.room, **common, **self.parts)


class _Levels:
    """The vertices of the graph by their level, from one source.

    Attributes
    ----------
    order : int64[reached]
        The internal ids of all vertices that the source reaches, by level, and ascending in each.
    """

    def __init__(self, shard: Shard, level: Array) -> None:
        self.shard, xp = shard, shard.device.xp
        self.order = xp.argsort(level, kind="stable")
        counts = self._counts(level)
        unreached, self.counts = int(counts[0]), counts[1:]
        self.order = self.order[unreached:]
        self.first = np.concatenate([[0], np.cumsum(self.counts)])
        below, own = (self._counts(part)[1:] for part in (level[: shard.lo], level[shard.lo : shard.hi]))
        n = len(self.counts)
        below, own = (np.concatenate([part, np.zeros(n - len(part), np.int64)]) for part in (below, own))
        self.own_first, self.own_end = self.first[:-1] + below, self.first[:-1] + below + own

    def _counts(self, level: Array) -> np.ndarray:
        return Device.to_host(self.shard.device.xp.bincount(level + 1, minlength=1)).astype(np.int64)

    def whole(self, level: int) -> Array:
        """The vertices of a level."""
        return self.order[self.first[level] : self.first[level + 1]]

    def own(self, level: int) -> Array:
        """Those of this rank."""
        return self.order[self.own_first[level] : self.own_end[level]]


class _Brandes:
    """What one rank keeps for all sources."""

    def __init__(self, shard: Shard) -> None:
        self.shard, self.device, n = shard, shard.device, shard.n_vertices
        incoming: Any = shard.in_edges if shard.in_edges is not None else transposed(shard)
        if incoming is None:
            raise CapacityError("there is too little memory to make in-edges; create the graph with reverse=True")
        self.out = _Side(shard, shard.out_edges)
        self.back = self.out if incoming is shard.out_edges else _Side(shard, incoming)
        self.total = self.device.zeros(shard.hi - shard.lo, np.float64)
        self.paths, self.dependency = (self.device.empty(n, np.float64) for _ in range(2))
        self.power = self.device.empty(n, np.int32)

    def add(self, source: int) -> None:
        """Add the dependencies of one source."""
        shard = self.shard
        found = bfs.ALGORITHM.run(shard, source=source)[0]["distance"]
        level = found if shard.size == 1 else self.device.concatenate(shard.exchange.allgather(found))
        levels = _Levels(shard, level)
        fields = {"level": level, "paths": self.paths, "power": self.power, "dependency": self.dependency}
        ways = [Struct(**fields, total=self.total, first=shard.lo, backward=way) for way in (0, 1)]
        self.paths[source : source + 1] = 1
        self.power[source : source + 1] = 0
        last = len(levels.counts) - 1
        for at in range(1, last + 1):
            self.back.sum(ways[0], levels.own(at))
            self._share(levels, at, self.paths, self.power)
        self.dependency[levels.whole(last)] = 0
        for at in range(last - 1, 0, -1):
            self.out.sum(ways[1], levels.own(at))
            self._share(levels, at, self.dependency)

    def _share(self, levels: _Levels, at: int, *arrays: Array) -> None:
        """Make the values of a level known to all ranks. One allgather."""
        if self.shard.size == 1:
            return
        own, everyone = levels.own(at), levels.whole(at)
        mine = self.device.concatenate([array[own].astype(np.float64) for array in arrays])
        parts = [part.reshape(len(arrays), -1) for part in self.shard.exchange.allgather(mine)]
        values = self.device.xp.concatenate(parts, axis=1)
        for array, row in zip(arrays, values, strict=True):
            array[everyone] = row.astype(array.dtype)


def run(shard: Shard, sources: np.ndarray | None, factor: float, source_factor: float) -> Columns:
    """The betweenness centrality of the own vertices.

    Parameters
    ----------
    shard : Shard
    sources : uint32[k] or None
        Internal ids of the sources, no repeats, the same on every rank; None for all vertices.
    factor, source_factor : float
        What the sums of vertices and of sources are multiplied by.

    Returns
    -------
    columns : dict
        "centrality", float64[hi - lo] on the shard's device.
    scalars : dict
        ``sources``, their number.

    Raises
    ------
    CapacityError
        There is too little memory for 44 bytes a vertex of the whole graph, 8 bytes an owned vertex, a search, 1 / 21
        byte an edge for hubs' tasks or, in directed graphs without in-edges, for what `transposed` says.

    Notes
    -----
    O(n + m) for each source, and a sort of n levels. The result does not depend on timing, bit for bit. Its last digits
    depend on the structure and the number of ranks.
    """
    brandes = _Brandes(shard) if shard.n_vertices else None
    some = range(shard.n_vertices) if sources is None else sources.tolist()
    for source in some:
        assert brandes is not None
        brandes.add(source)
    total = brandes.total if brandes is not None else shard.device.empty(0, np.float64)
    if sources is not None and source_factor != factor:
        own = sources[(sources >= shard.lo) & (sources < shard.hi)].astype(np.int64) - shard.lo
        own = shard.device.asarray(own)
        kept = total[own] * source_factor
        total *= factor
        total[own] = kept
    else:
        total *= factor
    return {"centrality": total}, {"sources": len(some)}
