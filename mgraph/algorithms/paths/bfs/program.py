"""Breadth-first search on each rank: level-synchronous, and direction-optimising if the graph has in-edges.

A top-down superstep sets a bit for every neighbour of the frontier. New vertices of other ranges are sent to their
owners in one alltoallv. A bottom-up superstep searches the in-edges of every unvisited vertex for a visited neighbour
and stops at the first one. For this each rank needs the visited vertices of all ranks, which they exchange in one
allgather. Because all neighbours of older levels have been visited by then, a visited neighbour of an unvisited vertex
is always in the frontier; so one bitmap of visited vertices serves both kinds of supersteps.

Predecessors are recorded in notes when vertices are found. A top-down superstep takes, for every edge to a vertex not
seen before, an atomic minimum of level and predecessor. A bottom-up superstep writes the note at the owner. A rank does
not know which vertices of other ranges were reached in earlier supersteps, so notes are sent once, at the end, and the
owner takes the minimum.

Along a road the frontier stays short for thousands of levels, and launches and read-backs would take longer than the
work. So after `CALM` supersteps with a short frontier, a rank that is alone runs the next ones in one kernel, whose
blocks meet after each of them.

The cost of a superstep on p ranks, in kernel launches, read-backs of the counters and collectives:

================== ========================================= ========== ================================================
superstep          launches                                  read-backs exchange
================== ========================================= ========== ================================================
top-down, p = 1    2, 3 where there may be hubs              1          allreduce that copies 48 bytes
top-down, p > 1    4, 5 where there may be hubs; up to p - 1 1          allreduce, alltoallv; if no rank has anything to
                   merges                                               send: no alltoallv and a launch less
bottom-up, p = 1   2, 3 where there may be hubs              1          allreduce that copies 48 bytes
bottom-up, p > 1   the same, up to p - 1 merges; 1 more      1          allreduce, allgather
                   where the one before was top-down
up to `MOST_STEPS` 3 for all of them                         2 for all  allreduce that copies 48 bytes, for all
with short
frontiers, p = 1
================== ========================================= ========== ================================================

References
----------
.. [1] S. Beamer, K. Asanović, D. Patterson, "Direction-optimizing breadth-first search", SC 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, incoming, kernels, task_room
from mgraph.algorithms.primitives.frontier import COUNT, HUBS, NEW_EDGES, SENT, TASKS, Frontier, words_of
from mgraph.device import Array
from mgraph.kernels import Library, View
from mgraph.structures import Structure

__all__ = ["run", "warm"]

ALPHA = 14  # go bottom-up while the frontier grows and has more than 1 / ALPHA of the unvisited vertices' edges
BETA = 24  # go top-down again once it shrinks and has fewer than 1 / BETA of the vertices; both from [1]_, section 5
NO_NOTE = 2**64 - 1  # larger than every note
CALM = 3  # supersteps with a short frontier, after which the next ones run in one kernel
MOST_STEPS = 512  # supersteps in one kernel, which nobody can interrupt
SHORT = {"cuda": 1 << 15, "cpu": 1 << 11}  # vertices of a short frontier; on a CPU one thread takes them
SHORT_ROWS = 16  # edges of a short frontier, for each vertex that it may have


@dataclass
class _Progress:
    """The counts after a superstep, summed over all ranks; they decide whether to go on, and in which direction.

    Attributes
    ----------
    new : int
        The vertices found in the superstep. In a top-down superstep on several ranks, a vertex counts once for each
        rank that found it, even if its owner settled it earlier.
    sent : int
        Those of them that are to be sent to their owners.
    new_edges : int
        The edges of the new vertices. Those of the vertices in `sent` are estimated by the mean degree of the others.
    reached, explored : int
        The vertices settled so far, and their edges.
    edges : int
        The edges of the graph.
    """

    new: int
    sent: int = 0
    new_edges: int = 0
    reached: int = 0
    explored: int = 0
    edges: int = 0

    @property
    def settled(self) -> int:
        """The number of vertices in the levels before that of the superstep."""
        return self.reached - (self.new - self.sent)

    def next_way(self, before: _Progress, pulled: bool, n_vertices: int) -> bool:
        """Whether the next superstep should run bottom-up; `pulled` is whether this one did."""
        if pulled:
            return self.new >= before.new or self.new * BETA >= n_vertices
        return self.new > before.new and self.new_edges * ALPHA > self.edges - self.explored


def search_kernels(shard: Shard, view: View, predecessors: bool) -> Library:
    """The kernels of a search over `view`."""
    return kernels(shard, "algorithms/paths/bfs/search.cuh", view, NOTES=int(predecessors))


class _Search:
    """One rank's part of one search."""

    def __init__(self, shard: Shard, forward: Structure, backward: Structure | None, predecessors: bool) -> None:
        self.shard, self.edges = shard, forward.num_edges
        self.notes: Array = shard.device.full(shard.n_vertices, NO_NOTE, np.uint64) if predecessors else None
        self.forward, self.backward = forward.view(), None if backward is None else backward.view()
        self.push_kernels = search_kernels(shard, self.forward, predecessors)
        self.pull_kernels = search_kernels(shard, self.backward or self.forward, predecessors)
        self.room = max(task_room(s) for s in (forward, backward) if s is not None)
        self.tasks = shard.device.empty(self.room, np.uint64)
        self.frontier = Frontier(shard, self.push_kernels, self.forward)
        self.bound = self.frontier.n and 1  # an upper bound of the number of own vertices in the newest level
        self.calm, self.short = 0, SHORT[shard.device.kind]
        self.lists: Array = None
        self.steps: Array = None

    def superstep(self, level: int, pull: bool) -> tuple[int, _Progress]:
        """Find the vertices of `level`, or of it and the next ones; returns the last level and its counts.

        On several ranks, their owners learn of them in `hand_over`.
        """
        frontier = self.frontier
        if self.calm >= CALM and not pull:
            level = self._walk(level)
        else:
            (self._pull if pull else self._push)(level)
        frontier.absorb(level)
        if self.shard.size > 1 and not pull:
            frontier.pack(level)
        reached, explored, self.counts = frontier.read(level)
        own, edges, sent = int(self.counts[COUNT]), int(self.counts[NEW_EDGES]), int(self.counts[SENT:].sum())
        mean = edges / own if own else self.edges / max(frontier.n, 1)
        self.bound = own
        short = own <= self.short and edges <= self.short * SHORT_ROWS and not self.counts[HUBS]
        self.calm = self.calm + 1 if short and self.shard.size == 1 else 0
        mine = np.array([own + sent, sent, edges + int(sent * mean), reached, explored, self.edges], np.int64)
        return level, _Progress(*(int(value) for value in self.shard.exchange.allreduce(mine)))

    def hand_over(self, level: int, progress: _Progress, pulled: bool, pull: bool) -> None:
        """Send the vertices of `level` to their owners and, if the next superstep is bottom-up, to every rank."""
        if self.shard.size == 1:
            return
        if progress.sent:
            self.bound += self.frontier.deliver(self.counts[SENT:])
            self.frontier.absorb(level)
        if pull:
            self.frontier.share_new(self.bound) if pulled else self.frontier.share_all()

    def _push(self, level: int) -> None:
        frontier, tasks = self.frontier, self.frontier.row(level, TASKS)
        common = {"graph": self.forward, "marks": self._marks(level << 32 | self.shard.lo)}
        self.push_kernels.Expand(
            -(-self.bound // LANES), frontier=frontier.vertices, count=frontier.row(level - 1), tasks=self.tasks,
            n_tasks=tasks, **common,
        )  # fmt: skip
        self.push_kernels.ExpandHubs(self.room, tasks=self.tasks, n_tasks=tasks, **common)

    def _pull(self, level: int) -> None:
        frontier, tasks = self.frontier, self.frontier.row(level, TASKS)
        common = {"graph": self.backward, "first": self.shard.lo, "marks": self._marks(level << 32)}
        self.pull_kernels.Pull(words_of(frontier.n), n=frontier.n, tasks=self.tasks, n_tasks=tasks, **common)
        self.pull_kernels.PullHubs(self.room, tasks=self.tasks, n_tasks=tasks, **common)

    def _walk(self, level: int) -> int:
        """Run supersteps from `level` on in one kernel; returns the last one's level, which is not absorbed yet."""
        frontier, device = self.frontier, self.shard.device
        if self.steps is None:
            self.lists, self.steps = device.empty(2 * self.short, np.uint32), device.empty(8, np.int64)
        device.fill(self.steps, 0)
        self.push_kernels.Walk(
            -(-self.short // LANES), graph=self.forward, frontier=frontier.vertices, count=frontier.row(level - 1),
            found=frontier.found, seen=frontier.seen, notes=self.notes, distance=frontier.distance, level=level,
            most=MOST_STEPS, lists=self.lists, room=self.short, state=self.steps, totals=frontier.state,
            spent=frontier.state[2:], counters=frontier.counters,
        )  # fmt: skip
        return level + int(device.to_host(self.steps)[1]) - 1

    def _marks(self, base: int) -> dict[str, Any]:
        return {"found": self.frontier.found, "seen": self.frontier.seen, "notes": self.notes, "base": base}

    def predecessors(self) -> Array:
        """The predecessors of the own vertices as internal ids, int64[hi - lo]; -1 for none.

        On several ranks: one alltoallv of 8 bytes a vertex, and a launch for each other rank.
        """
        shard, notes = self.shard, self.notes
        own = notes[shard.lo : shard.hi]
        if shard.size > 1:
            ranges = [shard.partition.range(r) if r != shard.rank else (0, 0) for r in range(shard.size)]
            for r, part in enumerate(shard.exchange.alltoallv([notes[first:end] for first, end in ranges])):
                if r != shard.rank:
                    self.push_kernels.MergeNotes(len(own), part=part, n=len(own), notes=own)
            own = shard.device.concatenate([own])  # a copy, so that the notes on other ranks' vertices are freed
        self.push_kernels.Predecessors(len(own), notes=own, n=len(own))
        return own.view(np.int64)


def _edges(shard: Shard, direction: str) -> tuple[Structure, Structure | None]:
    if direction == "out":
        return shard.out_edges, shard.in_edges
    return incoming(shard, 'direction "in"'), shard.out_edges


def warm(shard: Shard) -> None:
    """Compile what a search runs on this shard, except for predecessors, which few searches ask for."""
    out, back = shard.out_edges.view(), shard.in_edges
    for view in (out, out if back is None else back.view()):
        search_kernels(shard, view, predecessors=False)


def run(shard: Shard, source: int, direction: str = "out", predecessors: bool = False) -> Columns:
    """The distances of the own vertices from `source`, or to it, in edges.

    Parameters
    ----------
    shard : Shard
    source : int
        An internal id; the same on every rank.
    direction : "out" | "in"
        "in" follows edges backwards, which gives distances to `source`, and needs in-edges.
    predecessors : bool
        Whether to find each vertex's predecessor too: the smallest internal id among the vertices of the previous level
        that have an edge to it. It does not depend on the structure, the number of ranks or timing.

    Returns
    -------
    columns : dict
        "distance", int32[hi - lo] on the shard's device, -1 if there is no path; with `predecessors` also
        "predecessors", int64[hi - lo]: internal ids, -1 for the source and if there is no path.
    scalars : dict
        ``levels``, the largest distance plus one; ``reached``, the number of vertices reached; ``bottom_up``, the
        number of supersteps that ran bottom-up.

    Raises
    ------
    InvalidOption
        `direction` is "in" and the graph has no in-edges.
    CapacityError
        There is too little memory for the bitmaps and lists of `Frontier`, 1 / 64 byte an edge for hubs' tasks and,
        with predecessors, 8 bytes a vertex of the whole graph and, on several ranks, 8 bytes an owned vertex.

    Notes
    -----
    O(n + m) work, and O(n / 32) a superstep besides; the module docstring lists launches and exchanges. The distances
    are exact and do not depend on timing. With predecessors and a structure whose rows are not sorted, bottom-up
    supersteps read whole rows instead of stopping at the first visited neighbour.
    """
    search = _Search(shard, *_edges(shard, direction), predecessors)
    search.frontier.begin(source)
    before, pull, level, info = _Progress(new=1), False, 1, {"bottom_up": 0}
    while True:
        info["bottom_up"] += pull
        level, progress = search.superstep(level, pull)
        if progress.new == 0:
            # the last level is empty if ranks had only sent vertices in it that their owners had settled before
            levels = level if progress.reached > before.settled else level - 1
            columns = {"distance": search.frontier.distance}
            if predecessors:
                columns["predecessors"] = search.predecessors()
            return columns, {"levels": levels, "reached": progress.reached, **info}
        pulled, pull = pull, search.backward is not None and progress.next_way(before, pull, shard.n_vertices)
        search.hand_over(level, progress, pulled, pull)
        before, level = progress, level + 1
