"""Communities that are no longer connected, divided into their components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, EdgeDelta, kernels
from mgraph.algorithms.communities.multilevel import Level
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants

__all__ = ["FILE", "Scratch", "divide", "level_kernels"]

FILE = "algorithms/communities/dynamic/dynamic.cuh"

_CONSTANTS = constants("algorithms/communities/dynamic/search.cuh", HUB_DEGREE=1024)
CONNECTED, IN_DOUBT = _CONSTANTS["connected"], _CONSTANTS["in_doubt"]  #: what became of a community
PASSES = _CONSTANTS["Search::passes"]
STEPWISE = ("cuda",)  #: devices that search step by step; on others one thread does
MOST, SHARE = 1 << 16, 1 / 16  #: a search step by step reaches no more vertices, or no larger share of all


@dataclass(frozen=True)
class Scratch:
    """Memory of a search by a thread: `set` and `open` are 0 before and after."""

    set: Array
    queue: Array
    parent: Array
    pending: Array
    open: Array

    @classmethod
    def of(cls, device: Device, n: int) -> Scratch:
        """Make the memory for `n` vertices: 24 bytes per vertex."""
        empty, zeros = device.empty, device.zeros
        queue, parent, pending = (empty(n, np.uint32) for _ in range(3))
        return cls(zeros(n, np.uint32), queue, parent, pending, zeros(2 * n, np.uint32))

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(int(array.nbytes) for array in vars(self).values())


def level_kernels(level: Level) -> Library:
    """Return the kernels of `FILE` for the rows of a level: those of the structure, or a copy of them."""
    return kernels(level.shard, FILE, level.weights[0].view)


def divide(
    level: Level, before: Array, cut: Array = None, changes: EdgeDelta | None = None, scratch: Scratch | None = None
) -> Array:
    """Divide the communities of `level` that are not connected any more, and name all by their least members.

    The communities `before`, of the same vertices, were connected before `changes` and had such names, and `cut` marks
    the ends of edges that these lost inside of them. `before` None divides all that are not connected.

    Returns the vertices that are not in the component of the least member of their community: uint8[n]; None if no
    community was divided.

    O(n) to compare labels. On one rank usually a few rows, and the labels of communities that were divided or have
    another least member; else the rows of all communities that lost or won a member, or lost an edge.
    """
    # Find the communities that may be disconnected, or have another least member.
    device, xp, n, labels, library = level.device, level.device.xp, level.n, level.labels, level_kernels(level)
    touched, search = device.full(2 * n, IN_DOUBT if before is None else CONNECTED, np.uint8), _Search(level, library)
    if before is None:
        listed = device.arange(0, n, np.uint32)
    else:
        moved, renamed = device.astype(xp.flatnonzero(labels != before), np.uint32), device.zeros(2 * n, np.uint8)
        library.TouchMoved(
            len(moved), moved=moved, n=len(moved), before=before, labels=labels, names=level.names, touched=touched,
            renamed=renamed,
        )  # fmt: skip
        if cut is not None:
            library.TouchCut(n, cut=cut, n=n, labels=labels, touched=touched)
        if level.shard.size == 1 and bool(touched.any()):
            search.run(scratch, moved, before, touched, changes)
        listed = device.astype(xp.flatnonzero(device.gather(touched | renamed, labels)), np.uint32)

    if len(listed) == 0:
        search.clear()
        return None

    # Find the components of those in doubt.
    members = {"list": listed, "n": len(listed), "labels": labels, "touched": touched, "parent": None}
    members |= {"first": level.first, "rows": level.rows}
    apart: Array = None
    divided = bool(touched.any())
    if divided and bool(xp.any(touched == IN_DOUBT)):
        members["parent"] = _components(level, library, members)

    # Name all by their least members.
    groups = {"names": level.names, "n": n, "least": device.empty(3 * n, np.uint32), "whole": None}
    if divided:
        groups["whole"], apart = device.empty(2 * n, np.uint32), device.zeros(n, np.uint8)
    fields = {"groups": groups, "members": members, "search": search.fields}
    library.BeginGroups(len(listed), **fields)
    library.LeastMembers(len(listed), **fields)
    library.NameByLeast(len(listed), **fields, moving=level.moving(), apart=apart)
    search.clear()
    return apart if divided and bool(apart.any()) else None


class _Search:
    """A search from the ends of lost edges and the neighbours of lost members, on the only rank.

    `fields` are those of the kernels' `Search`.
    """

    def __init__(self, level: Level, library: Library) -> None:
        self.level, self.kernels = level, library
        self.used: Scratch | None = None
        self.fields: dict[str, Any] = {"unit": level.weights[0].unit, "n_moved": 0}
        names = ("moved", "before", "labels", "touched", "set", "queue", "count", "parent", "pending", "open")
        self.fields |= dict.fromkeys(names)

    def run(
        self, scratch: Scratch | None, moved: Array, before: Array, touched: Array, changes: EdgeDelta | None
    ) -> None:
        """Write to `touched` what became of the communities, as far as the search shows it."""
        level, device, views = self.level, self.level.device, self.level.tally.views
        by_thread, self.count = level.tally.by_thread and device.kind not in STEPWISE, device.zeros(2, np.int64)
        memory = scratch if by_thread and scratch is not None else Scratch.of(device, level.n)
        self.fields |= {"moved": moved, "n_moved": len(moved), "before": before, "labels": level.labels}
        self.fields |= {"touched": touched, "count": self.count, **vars(memory)}
        changes = changes or EdgeDelta(device.empty(0, np.uint64), device.empty(0, np.uint8), 0)
        step = {"search": self.fields, "changes": changes.fields()}
        if by_thread:
            self.used = memory
            self.kernels.SearchByThread(1, graph=views[0], back=views[-1], both=len(views) - 1, **step)
            level.visited += int(self.count[1])
        else:
            self._run_stepwise(step, max(len(moved), len(changes)))

    def _run_stepwise(self, step: dict[str, Any], most: int) -> None:
        library, search, level, device = self.kernels, self.fields, self.level, self.level.device
        # Find the witnesses.
        library.FindWitnesses(most, **step)
        for _ in range(PASSES):
            self._read_rows(search["moved"], 0)
        library.Arrive(search["n_moved"], search=search)
        witnesses = end = int(self.count[0])

        # Search in rounds.
        start, number = 0, 1
        while start < end <= max(MOST, SHARE * level.n):
            self._read_rows(search["queue"][start:end], number)
            library.CarrySets(witnesses, search=search, witnesses=witnesses, round=number)
            library.ExhaustSets(witnesses, search=search, witnesses=witnesses, round=number)
            start, end, number = end, int(self.count[0]), number + 1
        library.Decide(most, **step)
        library.DecideWitnesses(witnesses, search=search, witnesses=witnesses)
        rows = search["queue"][:start]
        level.visited += int(Device.to_host(device.gather(level.degrees, rows).sum(dtype=np.int64)))

    def _read_rows(self, rows: Array, number: int) -> None:
        level, n, search = self.level, len(rows), self.fields
        listed = {"list": rows, "labels": search["labels"], "open": search["open"] if number else None}
        for side in level.weights:
            hubs, step = side.hubs(), {"graph": side.view, "search": search, "round": number}
            self.kernels.SearchStep(-(-n // LANES), **step, rows=listed, n=n, **hubs)
            self.kernels.SearchHubs(side.room, **step, **hubs)

    def clear(self) -> None:
        """Set the memory to 0 again where it was used."""
        if self.used is not None:
            self.used.set[self.used.queue[: int(self.count[0])]] = 0


def _components(level: Level, library: Library, members: dict[str, Any]) -> Array:
    """Return the root of each member's component in its community, if that is in doubt: uint32[n]."""
    # Join the neighbours in each own row.
    device, shard, listed = level.device, level.shard, members["list"]
    parent = members["parent"] = device.empty(level.n, np.uint32)
    library.BeginMembers(len(listed), members=members)
    side = level.weights[0]
    joins, hubs = {"graph": side.view, "members": members, "unit": side.unit}, side.hubs()
    library.JoinMembers(-(-len(listed) // LANES), **joins, **hubs)
    library.JoinHubMembers(side.room, **joins, **hubs)

    # Tell the other ranks.
    library.Compress(len(listed), members=members)
    if shard.size > 1:
        roots = device.gather(parent, listed)
        joined = roots != listed
        pairs = listed[joined].astype(np.uint64) << np.uint64(32) | roots[joined]
        for rank, part in enumerate(shard.exchange.allgather(pairs)):
            if rank != shard.rank:
                library.LinkPairs(len(part), pairs=part, n=len(part), parent=parent)
        library.Compress(len(listed), members=members)

    # Count the edges of the rows.
    own = (listed >= level.first) & (listed < level.first + level.rows)
    own &= device.gather(members["touched"], device.gather(level.labels, listed)) == IN_DOUBT
    rows = listed[own] - np.uint32(level.first)
    level.visited += int(Device.to_host(device.gather(level.degrees, rows).sum(dtype=np.int64)))
    return parent
