"""Core numbers by peeling, level by level.

At each level, vertices with no more edges left than the level are removed with their edges. Removal goes on from
frontier to frontier until every vertex that is left has more edges than the level. The next level is the least number
of edges that one of them has left. It is found while the vertices that are left are listed anew, so that a vertex is
read once for each level up to its core number, and all levels together read O(n + m).

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

RESIDENT_ON_GPU = True  #: whether GPUs run the program of all ranks; it has run on CPUs only
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
    """Vertices of a rank during peeling.

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
        # The edges, with their kernels.
        edges = taken or counted
        self.views = [(rows.view(), _library(shard, rows)) for rows in edges]
        self.kernels = self.views[0][1]
        new = self.device.empty
        self.tasks = [new(task_room(rows), np.uint64) for rows in edges]  # of the hubs in each view
        # The state of own vertices, and the lists of those to visit.
        self.left, self.core = self.device.zeros(self.rows, np.uint32), self.device.zeros(self.rows, np.uint32)
        self.frontier, self.next, self.alive = (new(self.rows, np.uint32) for _ in range(3))
        self.n_alive = -1  # all of them, not listed
        # The counts for vertices of other ranks.
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
        """Return the smallest number of edges left at a vertex; `NEVER` if no vertex is left.

        A launch, a read-back and an allreduce.
        """
        # Compact the list of remaining vertices, and reduce their edges.
        state = self.device.asarray(np.array([0, NEVER], np.int64))
        n, listed = (self.rows, None) if self.n_alive < 0 else (self.n_alive, self.alive)
        kept = self.next  # which holds nothing between levels
        self.kernels.Keep(n, alive=listed, n=n, left=self.left, kept=kept, state=state)
        self.alive, self.next = kept, self.alive
        self.n_alive, least = Device.to_host(state).tolist()
        return int(self.shard.exchange.allreduce(np.array([least]), "min")[0])

    def peel(self, level: int) -> None:
        """Remove all vertices of a level. Call `least` before.

        Each remaining vertex has more than `level` edges left.
        """
        # The first frontier: remaining vertices with at most `level` edges.
        self.kernels.Choose(
            self.n_alive, alive=self.alive, n=self.n_alive, left=self.left, level=level, core=self.core,
            frontier=self.frontier, count=self.counts,
        )  # fmt: skip
        # Go on until no rank has a frontier.
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
        """Remove the vertices of `level` and, in the same kernel, of the levels after it. Return the last level.

        A single kernel and read-back, if this rank is alone, its edges are in one view, and few vertices are left.
        Else only `level` is done.
        """
        if self.shard.size > 1 or len(self.views) > 1 or self.n_alive > FEW[self.device.kind]:
            self.peel(level)
            return level
        # Run up to `MOST_LEVELS` levels.
        words = np.zeros(STATE["s_words"], np.int64)
        words[STATE["s_kept"] + 1 : STATE["s_lengths"] : 2] = NEVER
        state = self.device.asarray(words)
        self.kernels.PeelOn(
            min(self.n_alive, TILES), graph=self.views[0][0], peeled=self._peeled(level), alive=self.alive,
            n=self.n_alive, spare=self.next, frontier=self.frontier, tasks=self.tasks[0], most=MOST_LEVELS, state=state,
        )  # fmt: skip
        # The list of remaining vertices changes its buffer at each level.
        answer = Device.to_host(state)
        self.n_alive = int(answer[STATE["s_rest"]])
        if answer[STATE["s_levels"]] % 2 == 0:
            self.alive, self.next = self.next, self.alive
        return int(answer[STATE["s_level"]])

    def _peeled(self, level: int) -> dict[str, Any]:
        several = self.shard.size > 1
        own = {"first": self.shard.lo, "rows": self.rows, "level": level, "left": self.left, "core": self.core}
        own |= {"next": self.next, "count": self.counts, "less": self.less if several else None, "lists": self.lists}
        return {**own, "lengths": self.counts[LISTS:], "starts": self.starts, "owners": self.shard.size}

    def _remove(self, n: int, level: int) -> int:
        """Remove the edges of a frontier of `n` vertices; return the length of the next frontier."""
        # Rows, and then the hubs that these listed as tasks.
        peeled, steps = self._peeled(level), CHASE if len(self.views) == 1 else 1
        for at, (view, library) in enumerate(self.views):
            hubs = {"peeled": peeled, "tasks": self.tasks[at], "n_tasks": self.counts[1 + at :]}
            library.Peel(-(-n // LANES), graph=view, frontier=self.frontier, n=n, steps=steps, **hubs)
        new, *tasks = Device.to_host(self.counts[:LISTS]).tolist()
        for at, (view, library) in enumerate(self.views):
            hubs = {"peeled": peeled, "tasks": self.tasks[at], "n_tasks": self.counts[1 + at :]}
            library.PeelHubs(tasks[at], graph=view, **hubs)
        # Without hubs the length is known already.
        self.frontier, self.next = self.next, self.frontier
        if any(tasks):
            return self._read()
        self.device.fill(self.counts[:1], 0)
        return int(new)

    def _read(self) -> int:
        """Return the length of the next frontier, and reset its counter and the tasks'. Reads back once."""
        new = int(Device.to_host(self.counts[:1])[0])
        self.device.fill(self.counts[:LISTS], 0)
        return new

    def _exchange(self, level: int) -> int:
        """Exchange the numbers of edges removed from remote vertices; return the next frontier's length."""
        # Pack the numbers for each owner.
        parts = []
        for rank, n in enumerate(Device.to_host(self.counts[LISTS:]).tolist()):
            first = self.shard.partition.range(rank)[0]
            out = self.device.empty(n, np.uint64)
            self.kernels.Pack(n, list=self.lists[first : first + n], n=n, less=self.less, out=out)
            parts.append(out)
        # Subtract the numbers of own vertices.
        self.device.fill(self.counts, 0)
        peeled = {**self._peeled(level), "next": self.frontier}
        for rank, part in enumerate(self.shard.exchange.alltoallv(parts)):
            if rank != self.shard.rank:
                self.kernels.Lose(len(part), part=part, n=len(part), peeled=peeled)
        return self._read()


def removal_levels(
    shard: Shard, edges: list[Structure | CsrRows], first: int = 0, last: int = NEVER
) -> tuple[Array, dict[str, int]]:
    """Return the level that removes each own vertex, and the last state of the program.

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
    # The inboxes.
    device, rows = shard.device, shard.hi - shard.lo
    world = shard.exchange.world(device)
    widest = max(end - start for start, end in pairwise(shard.partition.starts))
    room = 0 if shard.size == 1 else max(LEAST_ROOM, min(MOST_ROOM, 4 * widest))
    layout = world.layout(shard.partition, room)
    # The edges, in the same kind of rows.
    views, searched = [side.view() for side in edges], 1
    if views[0].type != views[-1].type:  # in-edges that were made for the call
        csr = shard.out_edges.to_csr()
        views[0], searched = CsrRows(csr.offsets, csr.dst).view(), int(shard.out_edges.sorted_rows)
    # The vertices' state.
    room = max(task_room(side) for side in edges)
    core, least, tasks, left, lists, alive = device.carve(
        (rows, np.int64), (2, np.int64), (2 * room * len(edges), np.uint64), (rows, np.uint32),
        (2 * rows, np.uint32), (2 * rows, np.uint32),
    )  # fmt: skip
    library = kernels(shard, PROGRAM, views[0], VIEWS=len(edges))
    state = world.run(
        library, "Cores", layout, 1 + sum(rows + side.num_edges for side in edges) // 256, graph=views[0],
        back=views[-1], searched=searched, first_level=first, last_level=last, left=left, core=core, lists=lists,
        alive=alive, least=least, tasks=tasks, task_room=room,
    )  # fmt: skip
    if state["too_long"]:
        raise CapacityError(f"a unit of a row has more edges than the {layout.room} messages that an inbox holds")
    return core, state


def resident(shard: Shard) -> bool:
    """Return True if the ranks run the program together.

    Else the host runs superstep after superstep.
    """
    return RESIDENT_ON_GPU or shard.device.kind == "cpu"


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    sample = sample_rows(shard.device) if shard.in_edges is None else None
    if resident(shard):
        kernels(shard, PROGRAM, (sample or shard.out_edges).view(), VIEWS=1 + (shard.in_edges is not shard.out_edges))
        return
    _library(shard)
    if sample is not None:
        _library(shard, sample)


def run(shard: Shard) -> Columns:
    """Return the core number of each own vertex.

    Self-loops are ignored, and arcs of a directed graph count both ways.

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
