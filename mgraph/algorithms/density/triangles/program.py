"""Triangles at each vertex: every edge is kept at its lower end, and rows of kept edges are intersected.

The lower end of an edge is the vertex of smaller degree, so that a vertex keeps at most sqrt(2 m) edges, hubs included
[1]_. A triangle with u below v below w is found once, at its edge from u to v: w is in both their rows. All ranks send
their rows to all others. If these are few enough, the rank that owns u intersects its row with those of all v.
Otherwise they come in pieces, and the rank that owns v intersects its row with those of all u. Directed graphs are
taken as undirected ones whose edges have arcs one way or both ways.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
keep edges        1 and then 2, 4 where there may be hubs; twice as many    allgathers of 4 bytes per vertex
                  for directed graphs, and 2 more; 4 read-backs; a sort,
                  unless rows are sorted and have no hubs
triangles         2 if each rank has a single piece, else 2 for each        2 allgathers per piece, 3 if directed:
                  piece of each rank                                        4 bytes per kept edge and 8 per vertex
counts            1                                                         alltoallvs of 8 bytes per vertex; an
                                                                            allreduce of two numbers
================= ========================================================= ===========================================

References
----------
.. [1] N. Chiba, T. Nishizeki, "Arboricity and subgraph listing algorithms", SIAM J. Comput. 14, 1985. Source of the
   bound O(m sqrt(m)) for intersections of rows that are oriented by degree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.primitives.replicated import all_gather, sides, sum_to_owners, total
from mgraph.algorithms.primitives.transpose import CsrRows, sample_rows
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = [
    "COUNTING",
    "Corners",
    "Keeper",
    "Kept",
    "corners",
    "cuts_of",
    "exchanged",
    "fields_of",
    "load_kernels",
    "run",
    "warm",
]

FILE = "algorithms/density/triangles/triangles.cuh"
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
COUNTING = {name: _CONSTANTS[name] for name in _CONSTANTS.enums["Counting"]}  #: amounts that triangles add
PIECE = 1 << 22  #: kept edges and rows per piece, plus a last row, at least: about 16 MiB from each rank
ALONE = 1 << 30  #: the same on a single rank, and at most
ITEM_BYTES, SHARE = 16, 4  #: pieces of all ranks, so many bytes per edge or row, take 1 / SHARE of the free memory


@dataclass(frozen=True)
class Kept:
    """Edges that a rank keeps, as rows of its own vertices.

    Attributes
    ----------
    offsets : int64[hi - lo + 1]
    ids : uint32[k]
        The higher ends of the edges, ascending in each row.
    twice : uint8[k] or None
        1 for an edge of a directed graph with arcs both ways.
    """

    offsets: Array
    ids: Array
    twice: Array = None


@dataclass(frozen=True)
class Corners:
    """Amounts that triangles added to each own vertex, and facts of the vertices.

    Attributes
    ----------
    counts : int64[hi - lo]
    degrees : uint32[hi - lo]
        Arcs from and to each vertex; in an undirected graph the degree.
    loops : uint8[hi - lo]
        1 for a self-loop; it counts 1 in `degrees`, in a directed graph 2.
    both : uint32[hi - lo] or None
        Neighbours with arcs both ways, in a directed graph.
    """

    counts: Array
    degrees: Array
    loops: Array
    both: Array


def load_kernels(shard: Shard, edges: Structure | CsrRows | None = None) -> Library:
    """Return the kernels for the shard's out-edges, or for other edges of it."""
    return kernels(shard, FILE, (edges or shard.out_edges).view())


class Keeper:
    """Keeper of edges, each at its lower end."""

    def __init__(self, shard: Shard, edges: list[Structure | CsrRows]) -> None:
        self.shard, self.device, self.edges, self.rows = shard, shard.device, edges, shard.hi - shard.lo
        self.views = [(rows.view(), load_kernels(shard, rows)) for rows in edges]
        self.own_degrees = self.device.zeros(self.rows, np.uint32)
        for view, library in self.views:
            library.AddDegrees(self.rows, graph=view, rows=self.rows, degrees=self.own_degrees)
        self.degrees = all_gather(shard, self.own_degrees)
        self.counts, self.loops = self.device.zeros(self.rows, np.uint32), self.device.zeros(self.rows, np.uint8)

    def keep(self) -> tuple[Kept, Array]:
        """Return the kept edges; of a directed graph also each vertex's number of edges with arcs both ways."""
        # Count the kept edges of each row.
        device, offsets = self.device, self.device.zeros(self.rows + 1, np.int64)
        hubs = self._visit()
        device.cumsum(self.counts, out=offsets[1:])
        n, tasks = device.to_host(device.concatenate([offsets[-1:], hubs])).tolist()
        device.fill(self.counts, 0)

        # Write them in place if rows ascend and none is a hub; else write keys and sort.
        if len(self.edges) == 1 and self.edges[0].sorted_rows and not tasks:
            ids = device.empty(n, np.uint32)
            self._visit(offsets, ids=ids)
            return Kept(offsets, ids), None
        keys = device.empty(n, np.uint64)
        self._visit(offsets, keys)
        device.sort(keys)
        if len(self.edges) == 1:
            return Kept(offsets, device.astype(keys, np.uint32)), None
        return self._once(offsets, keys)

    def _visit(self, offsets: Array = None, keys: Array = None, ids: Array = None) -> Array:
        """Count the edges that rows keep, or write them.

        Returns the number of hub tasks of the last structure.
        """
        kept = {"degrees": self.degrees, "first": self.shard.lo, "counts": self.counts, "loops": self.loops}
        kept |= {"offsets": offsets, "keys": keys, "ids": ids}
        for edges, (view, library) in zip(self.edges, self.views, strict=True):
            room, n_tasks = task_room(edges), self.device.zeros(1, np.int64)
            hubs = {"tasks": self.device.empty(room, np.uint64), "n_tasks": n_tasks}
            library.KeepRows(-(-self.rows // LANES), graph=view, rows=self.rows, kept=kept, **hubs)
            library.KeepHubs(room, graph=view, kept=kept, **hubs)
        return n_tasks

    def _once(self, offsets: Array, keys: Array) -> tuple[Kept, Array]:
        """Merge edges that were kept for both their arcs."""
        n, library = len(keys), self.views[0][1]
        firsts, upto = self.device.empty(n, np.uint8), self.device.zeros(n + 1, np.int64)
        library.MarkFirst(n, keys=keys, n=n, firsts=firsts)
        self.device.cumsum(firsts, out=upto[1:])
        del firsts
        ids, twice = (self.device.empty(int(upto[-1]), dtype) for dtype in (np.uint32, np.uint8))
        both = self.device.zeros(self.shard.n_vertices, np.uint32)
        library.KeepOnce(n, keys=keys, upto=upto[1:], n=n, first=self.shard.lo, ids=ids, twice=twice, both=both)
        return Kept(self.device.gather(upto, offsets), ids, twice), both


def cuts_of(shard: Shard, kept: Kept) -> list[np.ndarray]:
    """Return the rows at which each rank cuts its kept edges, as many cuts per rank: int64[pieces + 1]."""
    # Size of the rows up to each, in edges and rows.
    device = shard.device
    size = device.arange(0, len(kept.offsets), np.int64)
    size += kept.offsets
    total = int(size[-1])

    # All ranks cut into as many pieces. These are large, since after each the ranks wait for the slowest one. All ranks
    # on CPUs may share the memory of one host.
    piece = ALONE
    if shard.size > 1:
        sharing = shard.size if device.kind == "cpu" else 1
        piece = min(max(PIECE, device.memory_free // (SHARE * ITEM_BYTES * shard.size * sharing)), ALONE)
    longest, room = shard.exchange.allreduce(np.array([total, -piece], np.int64), "max").tolist()
    most = -(-longest // -room)
    marks = device.asarray(np.arange(most + 1, dtype=np.int64) * -(-total // max(most, 1)))
    cuts = device.xp.minimum(device.xp.searchsorted(size, marks), len(size) - 1).astype(np.int64)
    return [device.to_host(part) for part in shard.exchange.allgather(cuts)]


def corners(shard: Shard, counting: int = 0) -> Corners:
    """Count the triangles at each own vertex, by an amount of `COUNTING`.

    O(m sqrt(m)) at most. The module docstring lists launches and exchanges. Memory, for k kept edges, about m / p of
    them on a rank of p: 16 bytes per kept edge while they are sorted and 4 afterwards (5 in a directed graph); 12 bytes
    per vertex of the whole graph (16); 9 bytes per owned vertex, and 8 more while pieces are cut; and a quarter of
    the free memory at most, of all ranks together on CPUs, but 40 MiB per rank at least.
    """
    # Keep each edge at its lower end.
    device, keeper = shard.device, Keeper(shard, sides(shard, "a count of triangles"))
    kept, both = keeper.keep()
    library = keeper.views[0][1]
    counts = device.zeros(shard.n_vertices, np.int64)

    # Intersect rows of u with rows of v.
    for lower, upper in _ends(shard, kept):
        n = len(lower["ids"])
        support = device.zeros(n, np.uint32)
        library.Close(
            -(-n // LANES), lower=lower, upper=upper, edges=n, counting=counting, support=support, counts=counts
        )
        library.AddSupport(n, ids=lower["ids"], support=support, n=n, counts=counts)
        del lower, upper, support

    # Send counts to their owners.
    mine = None if both is None else sum_to_owners(shard, both)
    return Corners(sum_to_owners(shard, counts), keeper.own_degrees, keeper.loops, mine)


def _ends(shard: Shard, kept: Kept) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the rows of u and those of v to intersect on this rank, as the fields of a `Part`."""
    # Cut the rows into pieces, and exchange them one after another.
    device, own = shard.device, fields_of(kept, shard.lo)
    cuts = cuts_of(shard, kept)
    bounds = device.to_host(device.gather(kept.offsets, device.asarray(cuts[shard.rank])))
    pieces = list(zip(*(pairwise(cut.tolist()) for cut in cuts), strict=True))
    for ends, (a, b) in zip(pieces, pairwise(bounds.tolist()), strict=True):
        received = exchanged(shard, kept, ends[shard.rank], a, b)
        if len(pieces) == 1:  # the rows of the whole graph, so that each row of u is read on one rank
            before, whole = sum(len(piece.ids) for piece in received[: shard.rank]), _joined(device, received)
            del received
            mine = slice(before, before + len(kept.ids))  # of the same array, which caches hold once
            twice = None if whole.twice is None else whole.twice[mine]
            yield fields_of(Kept(kept.offsets, whole.ids[mine], twice), shard.lo), fields_of(whole, 0)
            return
        for rank, piece in enumerate(received):
            yield fields_of(piece, shard.partition.range(rank)[0] + ends[rank][0]), own


def _joined(device: Device, parts: list[Kept]) -> Kept:
    """Join the rows of all ranks."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0] + [len(part.ids) for part in parts]).tolist()
    ends = [part.offsets[1:] + first for part, first in zip(parts, before, strict=False)]
    twice = None if parts[0].twice is None else device.concatenate([part.twice for part in parts])
    offsets = device.concatenate([parts[0].offsets[:1], *ends])
    return Kept(offsets, device.concatenate([part.ids for part in parts]), twice)


def fields_of(kept: Kept, first: int) -> dict[str, Any]:
    """Return the fields of `Part` for rows of kept edges from the vertex `first` on."""
    columns = {"offsets": kept.offsets, "ids": kept.ids, "twice": kept.twice}
    return {**columns, "first": first, "rows": len(kept.offsets) - 1}


def exchanged(shard: Shard, kept: Kept, rows: tuple[int, int], a: int, b: int) -> list[Kept]:
    """Return every rank's piece.

    This rank's has `rows`, first and end, with the edges from `a` up to `b`.
    """
    offsets = kept.offsets[rows[0] : rows[1] + 1] - a
    columns = [offsets, kept.ids[a:b], *([] if kept.twice is None else [kept.twice[a:b]])]
    gathered = zip(*(shard.exchange.allgather(column) for column in columns), strict=True)
    return [Kept(*piece) for piece in gathered]


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    load_kernels(shard)
    if shard.in_edges is None:
        load_kernels(shard, sample_rows(shard.device))


def run(shard: Shard) -> Columns:
    """Return the triangles at each own vertex of an undirected graph.

    Self-loops are ignored.

    Returns
    -------
    columns : dict
        "triangles", int64[hi - lo] on the shard's device.
    scalars : dict
        ``total``, the triangles of the graph; ``pairs``, the sum over vertices of the pairs of their neighbours.

    Notes
    -----
    Costs are those of `corners`. The result is exact, and does not depend on timing, order, structure or the number of
    ranks.
    """
    facts, sums, rows = corners(shard), shard.device.zeros(2, np.int64), shard.hi - shard.lo
    load_kernels(shard).Paths(rows, counts=facts.counts, degrees=facts.degrees, loops=facts.loops, n=rows, sums=sums)
    three, pairs = total(shard, sums).tolist()
    # Copy: a view would keep the array of the whole graph alive.
    counts = facts.counts if shard.size == 1 else facts.counts.copy()
    return {"triangles": counts}, {"total": three // 3, "pairs": pairs}
