"""Communities that are no longer connected, divided into their components."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, EdgeDelta
from mgraph.algorithms.communities.dynamic.level_kernels import FILE, count_edges, level_kernels
from mgraph.algorithms.communities.dynamic.live_level import FATES, LiveLevel
from mgraph.algorithms.communities.multilevel import Level
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants

__all__ = ["FILE", "divide", "divide_changed"]

_CONSTANTS = constants("algorithms/communities/dynamic/search.cuh", HUB_DEGREE=1024)
IN_DOUBT = _CONSTANTS["in_doubt"]  #: a community that may be disconnected
PASSES = _CONSTANTS["Search::passes"]
STEPWISE = ("cuda",)  #: devices that search step by step; on others one thread does
MOST, ROUNDS = 1 << 16, 8  #: a search step by step that has reached more vertices takes no more rounds


def divide(level: Level) -> None:
    """Divide all communities of `level` that are not connected, and name all by their least members. O(n + m)."""
    device, n = level.device, level.n
    touched, listed = device.full(2 * n, IN_DOUBT, np.uint8), device.arange(0, n, np.uint32)
    _name_by_least(level, listed, touched, None, None, components=True)


def divide_changed(level: LiveLevel, changes: EdgeDelta | None = None) -> bool:
    """Divide the communities of `level` that are not connected any more, and name all by their least members.

    They were connected, and had such names, before `changes` and before vertices moved.

    Marks the vertices that are not in the component of the least member of their community. Returns True if there are
    any.

    On one rank usually a few rows; else the rows of all communities that lost or won a member, or lost an edge. O(n) to
    list the members of communities that were divided or have another least member.
    """
    # Find the communities that may be disconnected, or have another least member.
    device, library, memory, moved = level.device, level_kernels(level), level.scratch, level.noted()
    changes = changes or EdgeDelta(device.empty(0, np.uint64), device.empty(0, np.uint8), 0)
    lanes = len(moved) + len(changes)
    if lanes == 0:
        return False
    search, ends = _Search(level, library, moved, changes), device.empty(2 * lanes, np.uint32)
    marks = {"touched": memory.touched, "renamed": memory.renamed}
    library.Touch(
        lanes, search=search.fields, changes=changes.fields(), names=level.names, renamed=memory.renamed, ends=ends
    )
    if level.shard.size == 1:
        search.run()
    library.FindFates(len(ends), ends=ends, n=len(ends), **marks, totals=level.totals)
    fates, divided = level.take_totals()[FATES], False

    # Divide and name these. `fates` are bits of `FindFates`.
    if fates:
        pairs, count = device.empty(level.n, np.uint64), device.zeros(1, np.int64)
        library.ListMembers(level.n, labels=level.labels, n=level.n, **marks, pairs=pairs, count=count)
        pairs = pairs[: int(Device.to_host(count)[0])]
        listed = device.astype(pairs >> np.uint64(32), np.uint32)
        _name_by_least(level, listed, memory.touched, level.marks if fates > 1 else None, search, components=fates >= 4)
        level.settle(pairs)
        divided = level.n_apart > 0
    library.ClearTouched(len(ends), ends=ends, n=len(ends), **marks)
    search.clear()
    level.catch_up()
    return divided


def _name_by_least(
    level: Level, listed: Array, touched: Array, apart: Array, search: _Search | None, components: bool
) -> None:
    """Name the communities of the listed members by the least ones, and the components of divided ones alike.

    `touched` has the `Fate` of each label. The components of communities in doubt are found by their rows, if there are
    some.
    """
    device, n, library = level.device, level.n, level_kernels(level)
    search = search or _Search(level, library, device.empty(0, np.uint32), None)
    members = {"list": listed, "n": len(listed), "labels": level.labels, "touched": touched, "parent": None}
    members |= {"first": level.first, "rows": level.rows}
    if components:
        members["parent"] = _components(level, library, members)
    groups = {"names": level.names, "n": n, "least": device.empty(3 * n, np.uint32), "whole": None}
    if apart is not None:
        groups["whole"] = device.empty(2 * n, np.uint32)
    fields = {"groups": groups, "members": members, "search": search.fields}
    library.BeginGroups(len(listed), **fields)
    library.LeastMembers(len(listed), **fields)
    totals = None if apart is None else level.totals  # type: ignore[attr-defined]
    library.NameByLeast(len(listed), **fields, moving=level.moving(), apart=apart, totals=totals)


class _Search:
    """A search from the ends of lost edges and the neighbours of lost members, on the only rank.

    `fields` are those of the kernels' `Search`.
    """

    def __init__(self, level: Level, library: Library, moved: Array, changes: EdgeDelta | None) -> None:
        self.level, self.kernels, self.changes, self.reached = level, library, changes, 0
        self.count = level.device.zeros(3, np.int64)
        self.fields: dict[str, Any] = {"unit": level.weights[0].unit, "labels": level.labels, "count": self.count}
        self.fields |= {"moved": moved, "n_moved": len(moved)}
        if changes is None:
            self.fields |= dict.fromkeys(("before", "touched", "set", "queue", "parent", "pending", "open"))
        else:
            memory = vars(level.scratch)  # type: ignore[attr-defined]
            self.fields |= {"before": level.before}  # type: ignore[attr-defined]
            self.fields |= {name: memory[name] for name in memory if name != "renamed"}

    def run(self) -> None:
        """Write to `touched` what became of the communities, as far as the search shows it."""
        level, device, views = self.level, self.level.device, self.level.tally.views
        assert self.changes is not None
        step = {"search": self.fields, "changes": self.changes.fields()}
        if level.tally.by_thread and device.kind not in STEPWISE:
            self.kernels.SearchByThread(1, graph=views[0], back=views[-1], both=len(views) - 1, **step)
            self.reached, edges, _ = Device.to_host(self.count).tolist()
            level.visited += edges
        else:
            self._run_stepwise(step, max(self.fields["n_moved"], len(self.changes)))

    def _run_stepwise(self, step: dict[str, Any], most: int) -> None:
        library, search, level = self.kernels, self.fields, self.level
        # Find the witnesses.
        library.FindWitnesses(most, **step)
        for _ in range(PASSES):
            self._read_rows(search["moved"], 0)
        library.Arrive(search["n_moved"], search=search)
        witnesses = end = int(self.count[0])

        # Search in rounds.
        start, number, undecided, edges = 0, 1, 1, 0
        while undecided and start < end and (end <= MOST or number <= ROUNDS):
            level.device.fill(self.count[2:], 0)
            self._read_rows(search["queue"][start:end], number)
            library.CarrySets(witnesses, search=search, witnesses=witnesses, round=number)
            library.ExhaustSets(witnesses, search=search, witnesses=witnesses, round=number)
            start, number = end, number + 1
            end, edges, undecided = Device.to_host(self.count).tolist()
        library.Decide(most, **step)
        library.DecideWitnesses(witnesses, search=search, witnesses=witnesses)
        library.CloseSearch(max(witnesses, search["n_moved"]), search=search, witnesses=witnesses)
        self.reached = end
        level.visited += edges

    def _read_rows(self, rows: Array, number: int) -> None:
        level, n, search = self.level, len(rows), self.fields
        if n == 0:
            return
        listed = {"list": rows, **{name: search[name] for name in ("labels", "before")}}
        listed["open"] = search["open"] if number else None
        views = [side.view for side in level.weights]
        self.kernels.CountRows(
            n, graph=views[0], back=views[-1], both=len(views) - 1, rows=listed, n=n, sum=self.count[1:2]
        )
        for side in level.weights:
            hubs, step = side.hubs(), {"graph": side.view, "search": search, "round": number}
            self.kernels.SearchStep(-(-n // LANES), **step, rows=listed, n=n, **hubs)
            self.kernels.SearchHubs(side.room, **step, **hubs)

    def clear(self) -> None:
        """Set the memory to 0 again where it was used."""
        n = self.reached
        self.kernels.ForgetSets(n, queue=self.fields["queue"], n=n, set=self.fields["set"])


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
    level.visited += count_edges(level, listed[own] - np.uint32(level.first))
    return parent
