"""Communities that are no longer connected, divided into their components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mgraph.algorithms.algorithm import LANES, EdgeDelta, kernels
from mgraph.algorithms.communities.multilevel import Level
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct

__all__ = ["FILE", "Parting", "Scratch", "divide", "split_kernels"]

FILE = "algorithms/communities/dynamic/dynamic.cuh"


class Parting(NamedTuple):
    """Communities named by their least members: `labels`, uint32[n].

    `apart` marks the vertices that a division took out of their communities, uint8[n]; None if none was divided.
    """

    labels: Array
    apart: Array


@dataclass(frozen=True)
class Scratch:
    """Memory of a search on a CPU: `set` and `open` are 0 before and after."""

    set: Array
    queue: Array
    parent: Array
    open: Array

    @classmethod
    def of(cls, device: Device, n: int) -> Scratch:
        """Make the memory for `n` vertices: 20 bytes per vertex."""
        empty, zeros = device.empty, device.zeros
        return cls(zeros(n, np.uint32), empty(n, np.uint32), empty(n + 1, np.uint32), zeros(2 * n, np.uint32))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(int(array.nbytes) for array in vars(self).values())


def split_kernels(level: Level) -> Library:
    """Return the kernels of `divide`."""
    return kernels(level.shard, FILE, level.weights[0].view)


def divide(
    level: Level, library: Library, before: Array, cut: Array = None, changes: EdgeDelta | None = None,
    scratch: Scratch | None = None,
) -> Parting:  # fmt: skip
    """Divide the communities of `level` that are not connected any more, and name all by their least members.

    The communities `before`, of the same vertices, were connected before `changes`, and `cut` marks the ends of edges
    that these lost inside of them. `before` None divides all that are not connected. O(n), and on one rank of a CPU
    usually a few rows; else the rows of all communities that lost or won a member, or lost an edge.
    """
    # Find the communities that may be disconnected.
    device, n = level.device, level.n
    touched = device.full(2 * n, int(before is None), np.uint8)
    if before is not None:
        moved = device.astype(device.xp.flatnonzero(level.labels != before), np.uint32)
        library.TouchMoved(len(moved), moved=moved, n=len(moved), before=before, labels=level.labels, touched=touched)
        if cut is not None:
            library.TouchCut(n, cut=cut, n=n, labels=level.labels, touched=touched)
        if level.shard.size == 1 and level.tally.by_thread and bool(touched.any()):
            _find_doubts(level, library, before, moved, changes, touched, scratch)
        if len(moved) == 0 and not bool(touched.any()):
            return Parting(before, None)

    # Find their components.
    parent = _components(level, library, touched) if bool(touched.any()) else None

    # Name all by their least members.
    groups = Struct(labels=level.labels, touched=touched, parent=parent, names=level.names, n=n)
    least, named = device.full(3 * n, 2**32 - 1, np.uint32), device.empty(n, np.uint32)
    whole, apart = None, None
    if parent is not None:
        whole, apart = device.full(2 * n, 2**32 - 1, np.uint32), device.empty(n, np.uint8)
    library.LeastMembers(n, groups=groups, n=n, least=least, whole=whole)
    library.NameByLeast(n, groups=groups, n=n, least=least, whole=whole, named=named, apart=apart)
    return Parting(named, apart if apart is not None and bool(apart.any()) else None)


def _find_doubts(
    level: Level, library: Library, before: Array, moved: Array, changes: EdgeDelta | None, touched: Array,
    scratch: Scratch | None,
) -> None:  # fmt: skip
    """Leave in `touched` the communities that a search from a few vertices does not show to be connected."""
    device, n, views = level.device, level.n, level.tally.views
    changes = changes or EdgeDelta(device.empty(0, np.uint64), device.empty(0, np.uint8), 0)
    visited = device.zeros(1, np.int64)
    library.FindDoubts(
        1, graph=views[0], back=views[-1], both=len(views) - 1, unit=level.weights[0].unit, changes=changes.fields(),
        moved=moved, n_moved=len(moved), before=before, labels=level.labels, touched=touched,
        **vars(scratch or Scratch.of(device, n)), visited=visited,
    )  # fmt: skip
    level.visited += int(visited[0])


def _components(level: Level, library: Library, touched: Array) -> Array:
    """Return the root of each vertex's component in its community: uint32[n], itself in communities not touched."""
    # Join the neighbours in each own row.
    device, shard, n = level.device, level.shard, level.n
    parent = device.arange(0, n, np.uint32)
    rows = Struct(labels=level.labels, touched=touched, first=level.first)
    side = level.weights[0]
    hubs = side.hubs()
    joins = {"graph": side.view, "rows": rows, "unit": side.unit, "parent": parent}
    library.JoinMembers(-(-level.rows // LANES), n=level.rows, **joins, **hubs)
    library.JoinHubMembers(side.room, **joins, **hubs)

    # Tell the other ranks.
    if shard.size > 1:
        library.Compress(n, n=n, parent=parent)
        joined = device.xp.flatnonzero(parent != device.arange(0, n, np.uint32)).astype(np.uint64)
        pairs = joined << np.uint64(32) | device.gather(parent, joined)
        for rank, part in enumerate(shard.exchange.allgather(pairs)):
            if rank != shard.rank:
                library.LinkPairs(len(part), pairs=part, n=len(part), parent=parent)
    library.Compress(n, n=n, parent=parent)

    # Count the edges of the rows.
    own = device.gather(touched, level.labels[level.first : level.first + level.rows]).astype(bool)
    level.visited += int(Device.to_host(level.degrees[own].sum(dtype=np.int64)))
    return parent
