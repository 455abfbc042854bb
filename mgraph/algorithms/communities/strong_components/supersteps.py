"""Strongly connected components by supersteps of the host, for devices that do not run the program.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
trim              that of two peelings of `core_number` at level 0          theirs
a round           3; three read-backs                                       two allreduces of two numbers; an allgather
                                                                            of 4 bytes a vertex
a frontier        1, 2 where it has hubs; 2 p - 2 where p > 1;              an alltoallv of 8 bytes a vertex of another
                  up to four read-backs                                     rank that changes; an allreduce
labels            1                                                         an alltoallv and an allgather of 4 bytes a
                                                                            vertex
================= ========================================================= ===========================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.density.core_number.program import removal_levels
from mgraph.algorithms.density.core_number.program import warm as warm_peeling
from mgraph.algorithms.primitives.replicated import all_gather, sum_to_owners
from mgraph.algorithms.primitives.transpose import CsrRows, sample_rows
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Device
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["run_by_supersteps", "warm_supersteps"]

FILE = "algorithms/communities/strong_components/supersteps.cuh"
NOBODY = constants(FILE, HUB_DEGREE=1024)["no_vertex"]


def _library(shard: Shard, edges: Structure | CsrRows) -> Library:
    return kernels(shard, FILE, edges.view())


class _Searches:
    """Colors and roots of a rank's vertices, and the frontiers of its searches.

    Takes 16 bytes a vertex of the whole graph, 8 bytes an owned vertex and 1 / 64 byte an arc, and 8 bytes for each
    vertex of another rank that changes in a round.

    Attributes
    ----------
    color, root : uint32[n_vertices]
        See the kernels. Right for own vertices; `color` for all of them once it was shared.
    """

    def __init__(self, shard: Shard, edges: list[Structure | CsrRows]) -> None:
        self.shard, self.device, self.rows = shard, shard.device, shard.hi - shard.lo
        self.ways = [(rows.view(), _library(shard, rows), task_room(rows)) for rows in edges]
        self.kernels = self.ways[0][1]
        device, n = self.device, shard.n_vertices
        self.color, self.root = device.zeros(n, np.uint32), device.full(n, NOBODY, np.uint32)
        self.stamps, self.lists = device.zeros(n, np.uint32), device.empty(n, np.uint32)
        self.frontier, self.next = device.empty(self.rows, np.uint32), device.empty(self.rows, np.uint32)
        self.tasks = device.empty(max(room for _, _, room in self.ways), np.uint64)
        self.starts = device.asarray(np.asarray(shard.partition.starts, np.int64))
        self.counts = device.zeros(2 + shard.size, np.int64)  # of `next`, of tasks, of each rank's list
        self.own = {"rows": self.rows, "first": shard.lo}
        self.round = 0

    def trim(self, edges: list[Structure | CsrRows]) -> None:
        """Make components of vertices that no cycle leads to, or that lead to no cycle."""
        out, back = edges
        for counted, taken in ((back, out), (out, back)):
            level, _ = removal_levels(self.shard, [taken, counted], last=0, apart=True)
            self.kernels.Trimmed(self.rows, level=level, root=self.root, **self.own)

    def busiest(self) -> tuple[int, int]:
        """Return an open vertex of most edges, and the number of open vertices of the graph."""
        degrees, device = self.shard.out_edges.degrees(), self.device
        most, open_ = device.zeros(1, np.uint64), device.zeros(1, np.int64)
        mine = self.root[self.shard.lo : self.shard.hi]
        self.kernels.Busiest(self.rows, root=mine, degrees=degrees, most=most, open=open_, **self.own)
        best = int(self.shard.exchange.allreduce(device.to_host(most), "max")[0])
        return best & (2**32 - 1), int(self.shard.exchange.allreduce(device.to_host(open_))[0])

    def open(self) -> int:
        """Return the number of vertices of the graph without a component."""
        mine = (self.root[self.shard.lo : self.shard.hi] == NOBODY).sum(dtype=np.int64)
        return int(self.shard.exchange.allreduce(Device.to_host(mine).reshape(1))[0])

    def find(self, pivot: int = -1) -> None:
        """Find the component of the pivot, or of every vertex that keeps its color."""
        # Search forward: from the pivot, or by spreading the largest colors.
        state = {**self.own, "color": self.color, "root": self.root, "count": self.counts}
        if self.shard.size > 1:
            self.device.fill(self.color, 0)
        self.kernels.Begin(self.rows, pivot=pivot, frontier=self.frontier, **state)
        self._spread(backward=0)
        if self.shard.size > 1:
            all_gather(self.shard, self.color[self.shard.lo : self.shard.hi], self.color)
        # Search backward from the roots, among the vertices of their colors.
        self.kernels.Roots(self.rows, frontier=self.frontier, **state)
        self._spread(backward=1)

    def _spread(self, backward: int) -> None:
        """Search from the frontier until no vertex of any rank changes."""
        new, several = self._read(), self.shard.size > 1
        while True:
            self.round += 1
            self._visit(new, backward)
            self.frontier, self.next = self.next, self.frontier
            if several:
                self._exchange(backward)
            new = self._read()
            if int(self.shard.exchange.allreduce(np.array([new]))[0]) == 0:
                return

    def _read(self) -> int:
        """Return the length of the frontier, and reset the counters."""
        new = int(Device.to_host(self.counts[:1])[0])
        self.device.fill(self.counts, 0)
        return new

    def _search(self, backward: int) -> dict[str, Any]:
        own = {**self.own, "backward": backward, "round": self.round, "color": self.color, "root": self.root}
        own |= {"stamps": self.stamps, "next": self.next, "count": self.counts, "lists": self.lists}
        return {**own, "lengths": self.counts[2:], "starts": self.starts, "owners": self.shard.size}

    def _visit(self, n: int, backward: int) -> None:
        view, library, room = self.ways[backward]
        step = {"graph": view, "search": self._search(backward), "tasks": self.tasks, "n_tasks": self.counts[1:]}
        library.Spread(-(-n // LANES), frontier=self.frontier, n=n, **step)
        if n and room:
            library.SpreadHubs(int(Device.to_host(self.counts[1:2])[0]), **step)

    def _exchange(self, backward: int) -> None:
        """Exchange the values of remote vertices; vertices that change join the frontier."""
        # Pack the changed values for each owner.
        parts, values = [], self.root if backward else self.color
        for rank, n in enumerate(Device.to_host(self.counts[2:]).tolist()):
            first, out = self.shard.partition.range(rank)[0], self.device.empty(n, np.uint64)
            self.kernels.Pack(n, list=self.lists[first : first + n], n=n, values=values, out=out)
            parts.append(out)
        # Apply the values for own vertices.
        search = {**self._search(backward), "next": self.frontier}
        for rank, part in enumerate(self.shard.exchange.alltoallv(parts)):
            if rank != self.shard.rank:
                self.kernels.Receive(len(part), part=part, n=len(part), search=search)


def warm_supersteps(shard: Shard) -> None:
    """Compile the kernels of `run_by_supersteps` for this shard."""
    warm_peeling(shard)
    for edges in (shard.out_edges, sample_rows(shard.device) if shard.in_edges is None else shard.in_edges):
        _library(shard, edges)


def run_by_supersteps(shard: Shard, edges: list[Structure | CsrRows]) -> Columns:
    """Return what `program.run` returns. `edges` are out-edges and in-edges."""
    # Find components: by trimming, from the pivot, then by colors.
    device, lo, hi = shard.device, shard.lo, shard.hi
    searches = _Searches(shard, edges)
    searches.trim(edges)
    pivot, left = searches.busiest()
    if left:
        searches.find(pivot)
    while searches.open():
        searches.find()
    # Label each root with the smallest id of its vertices.
    own, least = searches.root[lo:hi], device.full(shard.n_vertices, NOBODY, np.uint32)
    searches.kernels.LeastIds(hi - lo, root=own, ids=vertex_labels(shard)[lo:hi], rows=hi - lo, least=least)
    least = all_gather(shard, sum_to_owners(shard, least, least=True), least if shard.size > 1 else None)
    components = int(Device.to_host((own == device.arange(lo, hi, np.uint32)).sum(dtype=np.int64)))
    total = int(shard.exchange.allreduce(np.array([components]))[0])
    return {"component": device.astype(device.gather(least, own), np.int64)}, {"components": total}
