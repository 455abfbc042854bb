"""Core numbers by peeling: at each level, vertices with no more edges left than that are removed with their edges.

Removal goes on from frontier to frontier until every vertex that is left has more edges than the level. The next level
is the least number of edges that one of them has left. It is found while the vertices that are left are listed anew, so
that a vertex is read once for each level up to its core number, and all levels together read O(n + m).

On CPUs levels and frontiers are phases of one program that all ranks run together (`cores.cuh`,
`mgraph.exchange.world`). An edge to a vertex of another rank is a message of 4 bytes. On GPUs the host still goes
superstep by superstep, as follows, since the program has not been measured there; strong components do so everywhere.

Most levels remove few vertices. A rank that is alone does hundreds of levels in one kernel, whose blocks meet after
each frontier; on a CPU, where that is one thread, it does so when few vertices are left.

Within a launch, a lane that removes a vertex goes on with it, up to 32 times, which saves launches on long paths. Each
rank peels its own vertices until it finds none, and counts the edges that they take from vertices of other ranks. Then
the ranks exchange these counts, and go on if that has removed vertices.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
start             1, 2 where there may be hubs; twice as many for           none
                  directed graphs
a level           2; two read-backs                                         an allreduce of one number
a frontier        1, 2 where it has hubs, with another read-back; twice as  none
                  many launches for directed graphs; one read-back
up to 256 levels  1, and 1 read-back, on a rank that is alone               none
a superstep       up to p - 1 twice; on several ranks only; 2 read-backs    an alltoallv of 8 bytes a vertex that has
                                                                            lost edges; an allreduce of one number
================= ========================================================= ===========================================

References
----------
.. [1] H. Kabir, K. Madduri, "Parallel k-core decomposition on multicore platforms", IPDPSW 2017. Source of peeling by
   frontiers, where the edge that brings a vertex down to the level appends it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.primitives.replicated import sides
from mgraph.algorithms.primitives.transpose import CsrRows, sample_rows
from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["Peeling", "removal_levels", "run", "warm"]

RESIDENT_ON_GPU = False  #: whether GPUs run the program of all ranks; it has run on CPUs only
PROGRAM = "algorithms/density/core_number/cores.cuh"
#: messages that a rank may send to another in a round: at most, and at least, as a row that is no task has fewer
MOST_ROOM, LEAST_ROOM = 1 << 20, 4096

FILE = "algorithms/density/core_number/peel.cuh"
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
REMOVED, CHASE, NEVER = (_CONSTANTS[name] for name in ("removed", "chase", "never"))
STATE = {name: _CONSTANTS[name] for name in _CONSTANTS.enums["PeelState"]}
LISTS = 3  #: counters before those of other ranks' lists
MOST_LEVELS = 256  #: in one kernel, which nobody can interrupt
#: vertices up to which one kernel goes on from level to level; on a CPU it is one thread
FEW = {"cuda": 2**32, "cpu": 4096}
TILES = 2048  #: at work in it: with more, meeting takes longer than they save


def _library(shard: Shard, edges: Structure | CsrRows | None = None) -> Library:
    return kernels(shard, FILE, (edges or shard.out_edges).view())


class Peeling:
    """One rank's vertices while they are removed level by level.

    Takes 20 bytes an owned vertex, 1 / 64 byte an arc for hubs' tasks and, on several ranks, 8 bytes a vertex of the
    whole graph and 8 more for each that loses edges in a superstep.

    Parameters
    ----------
    shard : Shard
    counted : list of edges
        The edges that vertices have left: `sides` of the shard for all of them.
    taken : list of edges, optional
        The rows from which a removed vertex takes its edges away, where they are others.

    Attributes
    ----------
    left : uint32[hi - lo]
        The edges that each own vertex has left; `REMOVED` and more once it was removed.
    core : uint32[hi - lo]
        The level at which each removed vertex was removed.
    """

    def __init__(
        self, shard: Shard, counted: list[Structure | CsrRows], taken: list[Structure | CsrRows] | None = None
    ) -> None:
        self.shard, self.device, self.rows = shard, shard.device, shard.hi - shard.lo
        edges = taken or counted
        self.views = [(one.view(), _library(shard, one)) for one in edges]
        self.kernels = self.views[0][1]
        new = self.device.empty
        self.tasks = [new(task_room(one), np.uint64) for one in edges]  # of the hubs in each view
        self.left, self.core = self.device.zeros(self.rows, np.uint32), self.device.zeros(self.rows, np.uint32)
        self.frontier, self.next, self.alive = (new(self.rows, np.uint32) for _ in range(3))
        self.n_alive = -1  # all of them, not listed
        others = shard.n_vertices if shard.size > 1 else 0
        self.less, self.lists = self.device.zeros(others, np.uint32), new(others, np.uint32)
        self.starts = self.device.asarray(np.asarray(shard.partition.starts, np.int64))
        # of `next`, of the tasks in up to two views, and of each rank's list
        self.counts = self.device.zeros(LISTS + shard.size, np.int64)
        self._count(counted)

    def _count(self, counted: list[Structure | CsrRows]) -> None:
        for edges in counted:
            view, library, room = edges.view(), _library(self.shard, edges), task_room(edges)
            hubs = {"tasks": self.device.empty(room, np.uint64), "n_tasks": self.counts}
            hubs |= {"left": self.left, "first": self.shard.lo}
            library.CountEdges(-(-self.rows // LANES), graph=view, rows=self.rows, **hubs)
            library.CountHubs(room, graph=view, **hubs)
            self.device.fill(self.counts, 0)

    def least(self) -> int:
        """The least number of edges that a vertex of the graph has left; `NEVER` if none is left.

        One launch, one read-back, one allreduce.
        """
        state = self.device.asarray(np.array([0, NEVER], np.int64))
        n, listed = (self.rows, None) if self.n_alive < 0 else (self.n_alive, self.alive)
        kept = self.next  # which holds nothing between levels
        self.kernels.Keep(n, alive=listed, n=n, left=self.left, kept=kept, state=state)
        self.alive, self.next = kept, self.alive
        self.n_alive, least = Device.to_host(state).tolist()
        return int(self.shard.exchange.allreduce(np.array([least]), "min")[0])

    def peel(self, level: int) -> None:
        """Remove vertices until each that is left has more than `level` edges left; call `least` before."""
        self.kernels.Choose(
            self.n_alive, alive=self.alive, n=self.n_alive, left=self.left, level=level, core=self.core,
            frontier=self.frontier, count=self.counts,
        )  # fmt: skip
        new = self._read()
        while True:
            while new:
                new = self._remove(new, level)
            if self.shard.size == 1:
                return
            new = self._exchange(level)
            if int(self.shard.exchange.allreduce(np.array([new]))[0]) == 0:
                return

    def peel_on(self, level: int) -> int:
        """As `peel` for one level after another, as many as one kernel does; the last of them.

        One kernel and one read-back, if this rank is alone, its edges are in one view, and few vertices are left.
        """
        if self.shard.size > 1 or len(self.views) > 1 or self.n_alive > FEW[self.device.kind]:
            self.peel(level)
            return level
        words = np.zeros(STATE["s_words"], np.int64)
        words[STATE["s_kept"] + 1 : STATE["s_lengths"] : 2] = NEVER
        state = self.device.asarray(words)
        self.kernels.PeelOn(
            min(self.n_alive, TILES), graph=self.views[0][0], peeled=self._peeled(level), alive=self.alive,
            n=self.n_alive, spare=self.next, frontier=self.frontier, tasks=self.tasks[0], most=MOST_LEVELS, state=state,
        )  # fmt: skip
        found = Device.to_host(state)
        self.n_alive = int(found[STATE["s_rest"]])
        if found[STATE["s_levels"]] % 2 == 0:
            self.alive, self.next = self.next, self.alive
        return int(found[STATE["s_level"]])

    def _peeled(self, level: int) -> dict[str, Any]:
        several = self.shard.size > 1
        own = {"first": self.shard.lo, "rows": self.rows, "level": level, "left": self.left, "core": self.core}
        own |= {"next": self.next, "count": self.counts, "less": self.less if several else None, "lists": self.lists}
        return {**own, "lengths": self.counts[LISTS:], "starts": self.starts, "owners": self.shard.size}

    def _remove(self, n: int, level: int) -> int:
        """Take the edges of a frontier of `n` vertices away; the length of the next one."""
        peeled, steps = self._peeled(level), CHASE if len(self.views) == 1 else 1
        for at, (view, library) in enumerate(self.views):
            hubs = {"peeled": peeled, "tasks": self.tasks[at], "n_tasks": self.counts[1 + at :]}
            library.Peel(-(-n // LANES), graph=view, frontier=self.frontier, n=n, steps=steps, **hubs)
        new, *tasks = Device.to_host(self.counts[:LISTS]).tolist()
        for at, (view, library) in enumerate(self.views):
            hubs = {"peeled": peeled, "tasks": self.tasks[at], "n_tasks": self.counts[1 + at :]}
            library.PeelHubs(tasks[at], graph=view, **hubs)
        self.frontier, self.next = self.next, self.frontier
        if any(tasks):
            return self._read()
        self.device.fill(self.counts[:1], 0)
        return int(new)

    def _read(self) -> int:
        """The length of the next frontier, which begins anew, as do the tasks. One read-back."""
        new = int(Device.to_host(self.counts[:1])[0])
        self.device.fill(self.counts[:LISTS], 0)
        return new

    def _exchange(self, level: int) -> int:
        """Send what own vertices took from others', and receive; the length of the frontier that comes of it."""
        parts = []
        for rank, n in enumerate(Device.to_host(self.counts[LISTS:]).tolist()):
            first = self.shard.partition.range(rank)[0]
            out = self.device.empty(n, np.uint64)
            self.kernels.Pack(n, list=self.lists[first : first + n], n=n, less=self.less, out=out)
            parts.append(out)
        self.device.fill(self.counts, 0)
        peeled = {**self._peeled(level), "next": self.frontier}
        for rank, part in enumerate(self.shard.exchange.alltoallv(parts)):
            if rank != self.shard.rank:
                self.kernels.Lose(len(part), part=part, n=len(part), peeled=peeled)
        return self._read()


def removal_levels(
    shard: Shard, edges: list[Structure | CsrRows], first: int = 0, last: int = NEVER
) -> tuple[Array, dict[str, int]]:
    """Return the level at which each own vertex is removed, and the last state of the program.

    Parameters
    ----------
    shard : Shard
    edges : list of edges
        Those of each vertex, in one view or two: `sides` of the shard.
    first, last : int
        The levels to go through. Vertices that are left after the last one have -1.

    Raises
    ------
    CapacityError
        There is too little memory for 28 bytes an owned vertex, 1 / 32 byte an arc for tasks and, on several ranks,
        inboxes of up to 8 MiB for each rank; or of a hash structure's rows a unit has more edges than an inbox holds.
    """
    # the inboxes
    device, rows = shard.device, shard.hi - shard.lo
    world = shard.exchange.world(device)
    widest = max(end - start for start, end in pairwise(shard.partition.starts))
    room = 0 if shard.size == 1 else max(LEAST_ROOM, min(MOST_ROOM, 4 * widest))
    layout = world.layout(shard.partition, room)
    # the edges, in one kind of rows
    views, searched = [one.view() for one in edges], 1
    if views[0].type != views[-1].type:  # in-edges that were made for the call
        csr = shard.out_edges.to_csr()
        views[0], searched = CsrRows(csr.offsets, csr.dst).view(), int(shard.out_edges.sorted_rows)
    # the vertices' state
    room = max(task_room(one) for one in edges)
    core, least, tasks, left, lists, alive = device.carve(
        (rows, np.int64), (2, np.int64), (2 * room * len(edges), np.uint64), (rows, np.uint32),
        (2 * rows, np.uint32), (2 * rows, np.uint32),
    )  # fmt: skip
    library = kernels(shard, PROGRAM, views[0], VIEWS=len(edges))
    state = world.run(
        library, "Cores", layout, 1 + sum(rows + one.num_edges for one in edges) // 256, graph=views[0],
        back=views[-1], searched=searched, first_level=first, last_level=last, left=left, core=core, lists=lists,
        alive=alive, least=least, tasks=tasks, task_room=room,
    )  # fmt: skip
    if state["too_long"]:
        raise CapacityError(f"a unit of a row has more edges than the {layout.room} messages that an inbox holds")
    return core, state


def resident(shard: Shard) -> bool:
    """Return True if the ranks run the program together, False if the host runs superstep after superstep."""
    return RESIDENT_ON_GPU or shard.device.kind == "cpu"


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    made = sample_rows(shard.device) if shard.in_edges is None else None
    if resident(shard):
        kernels(shard, PROGRAM, (made or shard.out_edges).view(), VIEWS=1 + (shard.in_edges is not shard.out_edges))
        return
    _library(shard)
    if made is not None:
        _library(shard, made)


def run(shard: Shard) -> Columns:
    """The core number of each own vertex; self-loops are ignored, and arcs of a directed graph count both ways.

    Returns
    -------
    columns : dict
        "core", int64[hi - lo] on the shard's device.
    scalars : dict
        ``largest``, the largest core number of the graph.

    Raises
    ------
    CapacityError
        There is too little memory for what `removal_levels` or `Peeling` takes, or for the in-edges of a directed graph
        that does not store them.

    Notes
    -----
    O(n + m) work; the module docstring lists launches and exchanges. The result is exact, and does not depend on
    timing, order, structure or the number of ranks.
    """
    edges = sides(shard, "core_number")
    if resident(shard):
        core, state = removal_levels(shard, edges)
        return {"core": core}, {"largest": state["largest"]}
    peeling, level = Peeling(shard, edges), 0
    while (least := peeling.least()) < NEVER:
        level = peeling.peel_on(least)
    return {"core": shard.device.astype(peeling.core, np.int64)}, {"largest": level}
