"""Breadth-first search: level-synchronous, top-down and, where in-edges are known, direction-optimising.

Top-down supersteps set a bit for every neighbour of the frontier; new vertices of other ranges travel to their owners
in one alltoallv. Bottom-up supersteps look from every unvisited vertex for a visited in-neighbour and stop at the
first. They need the visited vertices of all ranks, of which each rank tells the others in one allgather, and nothing
else: after a complete superstep every neighbour of an older level is visited, so "visited" and "in the frontier" find
the same vertices, and one bitmap serves both ways.

Predecessors are noted as vertices are found: top-down by an atomic minimum of level and predecessor for every edge to a
vertex not seen before, bottom-up at the owner. A rank does not know which vertices of other ranges were reached in
earlier supersteps, so the notes travel once, at the end, and the owner takes the least.

A superstep costs, in launches of kernels and read-backs of the counters, p being the number of ranks:

================== ========================================= ========== ================================================
superstep          launches                                  read-backs exchange
================== ========================================= ========== ================================================
top-down, p = 1    2, 3 where there may be hubs              1          allreduce that copies 48 bytes
top-down, p > 1    4, 5 where there may be hubs; up to p - 1 1          allreduce, alltoallv; nothing to send anywhere:
                   merges                                               no alltoallv and a launch less
bottom-up, p = 1   2, 3 where there may be hubs              1          allreduce that copies 48 bytes
bottom-up, p > 1   the same, up to p - 1 merges; 1 more      1          allreduce, allgather
                   where the one before was top-down
================== ========================================= ========== ================================================

References
----------
.. [1] S. Beamer, K. Asanović, D. Patterson, "Direction-optimizing breadth-first search", SC 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.algorithms.contract import LANES, Result, Shard, check_vertex, incoming, kernels, task_room
from mgraph.algorithms.frontier import COUNT, NEW_EDGES, SENT, TASKS, Frontier, words_of
from mgraph.device import Array
from mgraph.errors import InvalidOption
from mgraph.kernels import Library, View
from mgraph.structures import Structure

__all__ = ["bfs"]

ALPHA = 14  # bottom-up while the frontier grows and has more than 1 / ALPHA of the unvisited vertices' edges
BETA = 24  # top-down again once it shrinks and has fewer than 1 / BETA of the vertices; both from [1]_, section 5
NO_NOTE = 2**64 - 1  # above every note


@dataclass
class _Progress:
    """What every rank knows alike after a superstep; the loop and its direction follow from it.

    Attributes
    ----------
    new : int
        Vertices found in the superstep. In a top-down one on several ranks a vertex counts once for each rank that
        found it, also where its owner had settled it before.
    sent : int
        Those that their owners do not know yet.
    new_edges : int
        The edges of the new ones; for those in `sent`, the mean degree of the others stands in.
    reached, explored : int
        Vertices settled, and their edges.
    edges : int
        Edges of the graph.
    """

    new: int
    sent: int = 0
    new_edges: int = 0
    reached: int = 0
    explored: int = 0
    edges: int = 0

    @property
    def settled(self) -> int:
        """Vertices of the levels before that of the superstep."""
        return self.reached - (self.new - self.sent)

    def next_way(self, before: _Progress, pulled: bool, n_vertices: int) -> bool:
        """Whether the next superstep is better done bottom-up, after one that was (`pulled`) or was not."""
        if pulled:
            return self.new >= before.new or self.new * BETA >= n_vertices
        return self.new > before.new and self.new_edges * ALPHA > self.edges - self.explored


def search_kernels(shard: Shard, view: View, predecessors: bool) -> Library:
    """The kernels of a search over `view`."""
    return kernels(shard, "bfs.cuh", view, NOTES=int(predecessors))


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
        self.bound = self.frontier.n and 1  # the newest own level has at most so many vertices

    def superstep(self, level: int, pull: bool) -> _Progress:
        """Find level `level`. On several ranks the others do not know of the new vertices yet: see `hand_over`."""
        frontier = self.frontier
        (self._pull if pull else self._push)(level)
        frontier.absorb(level)
        if self.shard.size > 1 and not pull:
            frontier.pack(level)
        reached, explored, self.counts = frontier.read(level)
        own, edges, sent = int(self.counts[COUNT]), int(self.counts[NEW_EDGES]), int(self.counts[SENT:].sum())
        mean = edges / own if own else self.edges / max(frontier.n, 1)
        self.bound = own
        mine = np.array([own + sent, sent, edges + int(sent * mean), reached, explored, self.edges], np.int64)
        return _Progress(*(int(value) for value in self.shard.exchange.allreduce(mine)))

    def hand_over(self, level: int, progress: _Progress, pulled: bool, pull: bool) -> None:
        """Bring level `level` to where the next superstep needs it: to the owners, and for bottom-up to every rank."""
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

    def _marks(self, base: int) -> dict[str, Any]:
        return {"found": self.frontier.found, "seen": self.frontier.seen, "notes": self.notes, "base": base}

    def predecessors(self) -> Array:
        """Of the own vertices, int64. On several ranks one alltoallv of 8 bytes a vertex, a launch for each other."""
        shard, notes = self.shard, self.notes
        own = notes[shard.lo : shard.hi]
        if shard.size > 1:
            ranges = [shard.partition.range(r) if r != shard.rank else (0, 0) for r in range(shard.size)]
            for r, part in enumerate(shard.exchange.alltoallv([notes[first:end] for first, end in ranges])):
                if r != shard.rank:
                    self.push_kernels.MergeNotes(len(own), part=part, n=len(own), notes=own)
            own = own.copy()  # lets go of the notes on the other ranks' vertices
        self.push_kernels.Predecessors(len(own), notes=own, n=len(own))
        return own.view(np.int64)


def _edges(shard: Shard, direction: str) -> tuple[Structure, Structure | None]:
    if direction == "out":
        return shard.out_edges, shard.in_edges
    if direction == "in":
        return incoming(shard, 'direction "in"'), shard.out_edges
    raise InvalidOption(f'direction {direction!r} is neither "out" nor "in"')


def bfs(shard: Shard, source: int, direction: str = "out", predecessors: bool = False) -> Result:
    """Distances from `source` in edges, along them or against them.

    Parameters
    ----------
    shard : Shard
    source : int
        An internal id; the same on every rank.
    direction : "out" | "in"
        "in" follows edges backwards: distances to `source`. Needs in-edges.
    predecessors : bool
        Whether to find each vertex's predecessor too: the least internal id among the vertices of the level before from
        which an edge leads to it, whatever the structure, the ranks and the timing.

    Returns
    -------
    distance : int32[hi - lo] on the shard's device
        -1 where there is no path. With `predecessors` a dict of this and of "predecessors", int64[hi - lo]: internal
        ids, -1 for the source and where there is no path.
    info : dict
        ``levels``, the largest distance plus one; ``reached``, how many vertices have one; ``bottom_up``, how many of
        the supersteps were.

    Raises
    ------
    UnknownVertex, InvalidOption
        On every rank alike, before anything is exchanged.
    CapacityError
        The bitmaps and lists do not fit, see `Frontier`; hubs' tasks take 1 / 64 byte an edge more, predecessors 8
        bytes a vertex of the whole graph, and on several ranks 8 an owned one.

    Notes
    -----
    O(n + m) work, O(n / 32) a superstep beside the edges; the module says what is launched and exchanged. The distances
    are exact and do not depend on timing. Predecessors in a structure with unsorted rows make bottom-up supersteps read
    whole rows, where the others stop at the first hit.
    """
    source = check_vertex(source, shard.n_vertices, "source")
    search = _Search(shard, *_edges(shard, direction), predecessors)
    search.frontier.begin(source)
    before, pull, level, info = _Progress(new=1), False, 1, {"bottom_up": 0}
    while True:
        info["bottom_up"] += pull
        progress = search.superstep(level, pull)
        if progress.new == 0:
            levels = level if progress.reached > before.settled else level - 1  # the last one may have been old news
            found = search.frontier.distance
            values = {"distance": found, "predecessors": search.predecessors()} if predecessors else found
            return values, {"levels": levels, "reached": progress.reached, **info}
        pulled, pull = pull, search.backward is not None and progress.next_way(before, pull, shard.n_vertices)
        search.hand_over(level, progress, pulled, pull)
        before, level = progress, level + 1
