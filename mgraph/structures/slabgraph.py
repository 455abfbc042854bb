"""slabgraph: a hash table for every row, of slabs of 64 bytes that are chained where a bucket overflows.

::

    rows     0: 2 buckets from slab 4, degree 23     1: none     2: 1 bucket from slab 9, degree 2   (12 bytes each)
    slab 4   [next 7 | - | 17  3  5 .. 21]    first slab of row 0's bucket 0; full, so slab 7 is chained to it
    slab 5   [next - | - |  8  .  2 ..  .]    first slab of row 0's bucket 1; holes are where edges were deleted
    slab 7   [next - | - | 44  9 12 ..  .]
    free     [2 6 1], tail 10                       slabs given back; none from the tail on was ever used

A row of more than one bucket has each edge in the bucket that a hash of its dst names, so that a query reads one slab
as a rule. A batch is counted before it is written (Awad, Ashkiani, Porumbescu, Owens: Dynamic Graphs on the GPU, IPDPS
2020, inserts edge by edge): prepare looks every key up, finds a free slot for each new edge, and the first key of each
row decides whether the row gets another table: its first one, a larger one past the threshold, a smaller one or none.
commit deletes in place, fills the new tables and inserts into the others. Where this differs from the paper:

- Lookup and insertion are two steps, so that deleted slots are plain empty ones: no tombstones, no duplicates.
- Weights are an array beside the slabs, so that a slab has 14 slots with weights and without.
- Rehashing is part of a batch. Its threshold is the mean load of a row's buckets, which is their mean chain length
  before rounding; `SlabGraph.chains` tells how long they are.
- The pool grows before a batch that might need more of it, or raises `CapacityError`: nothing spins. It is compacted,
  its chains too, where much of it is free.
- Slabs are half as large, and a lane looks up a key alone (docs/structures.md has why); the lanes of a tile share
  tables that are filled, moved or cut.

What it is bad at: every row with an edge takes a slab, so that rows of 2.5 edges, as road networks have, cost 33 bytes
an edge (20 with ``slab=32``, 59 with the paper's 128 bytes). Chains get as long as whoever chooses the dst likes: the
hash is no secret.

Invariants
----------
1. The degrees' sum is num_edges; no row has more edges than its table's threshold, or any without a table.
2. Every slab below the tail is in one chain or on the free list, once, and no other slab is.
3. The edges of a row differ, are below n_vertices and in the bucket of their hash; there are as many as its degree.
4. The second word of every slab is all ones: no edge waits for a slot, and no slab was chained just now.
5. Free slabs, and those from the tail on, are all ones.
6. There are as many weights as words, and no weight of an edge is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Struct, View, load
from mgraph.structures.contract import KEPT, Counts, Plan, Structure
from mgraph.structures.run import Run
from mgraph.structures.slabgraph_check import HEADER, check_slabgraph
from mgraph.structures.slabgraph_pool import PIECE_BUCKETS, Move, Pool
from mgraph.structures.slabgraph_scratch import LATE, STATUS, Found, Scratch

__all__ = ["Chains", "SlabGraph"]

Array = Any
FEW_LANES = 1 << 17  # for edges whose number the host does not know, as a rule few: a launch of more takes longer
ROW = 3  # words of a row
SUPPLY = slice(12, 14)  # of the status: the supply's state


@dataclass(frozen=True)
class Chains:
    """How long the chains of a `SlabGraph` are.

    Attributes
    ----------
    lengths : tuple of 8 ints
        Buckets whose chains are of 1, 2 ... slabs; the last counts all from 8 on.
    load : float
        Edges a slot of the first slabs.
    slabs, free : int
        Slabs in chains, and given back.
    """

    lengths: tuple[int, ...]
    load: float
    slabs: int
    free: int


@dataclass
class _Work:
    """What a commit needs, all of it allocated."""

    keys: Struct
    found: Found
    late_edges: int  # at most
    before: Move | None  # to another pool before the batch is written, and after
    after: Move | None
    looked: bool  # whether the pool was looked over for what could be given back


class SlabGraph(Structure):
    """A hash table of chained slabs for every row.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    slab : int
        Bytes of a slab: 64, 32, or 128 as in the paper; 8 of them are its header.
    load_factor : float
        Share of live slots in the first slabs of a new table of more than one bucket. The paper's choice is 0.7.
    limit : float
        The share past which a row gets a larger table, give or take 0.08 from row to row.

    Notes
    -----
    O(1) expected an operation, O(1) amortised for rehashing and for moves of the pool. Three launches prepare, one to
    four commit; one wait for the counts, and a second one where the chains of new tables might take more than 1 / 32 of
    the pool, as in a build: they are counted then before memory is taken. `slab` bytes a slab, twice as many with
    weights, 4 more to list it when it is free; 12 bytes a row. The pool has up to an eighth more slabs than it needs,
    up to half more before it has seen half as many deletions. Beside it, 4 bytes a slab and 80 an operation are kept
    for the next batch of up to a million. Neighbours are not sorted.
    """

    name: ClassVar[str] = "slabgraph"
    sorted_rows: ClassVar[bool] = False
    checks_ids: ClassVar[bool] = True

    def __init__(
        self,
        n_rows: int,
        n_vertices: int,
        device: Device,
        weighted: bool,
        *,
        slab: int = 64,
        load_factor: float = 0.7,
        limit: float = 1.0,
    ) -> None:
        super().__init__(n_rows, n_vertices, device, weighted)
        if slab not in (32, 64, 128):
            raise InvalidOption(f"slab of {slab} bytes; 32, 64 or 128")
        if not (load_factor >= 0.1 and load_factor + 0.1 <= limit <= 4):
            raise InvalidOption(f"load_factor {load_factor} and limit {limit}; at least 0.1, and 0.1 more up to 4")
        self.words = slab // 4
        self.slots = self.words - HEADER
        self.load_factor, self.limit = round(load_factor * 100), round(limit * 100)  # in hundredths, as kernels compute
        defines: dict[str, int] = {
            "SLAB": self.words,
            "TILE": self.words // 4,
            "LOAD": self.load_factor,
            "LIMIT": self.limit,
        }
        self._defines = tuple(defines.items())
        self._kernels = load(device, "slabgraph.cuh", None, WEIGHTED=int(weighted), **defines)
        self.rows = device.zeros(ROW * n_rows, np.uint32)  # first slab, buckets, degree
        self.supply = device.zeros(2, np.int64)  # free slabs, tail
        self.pool = Pool.empty(device, 0, self.words, weighted)
        self.buckets = 0  # of all tables
        self._deleted = 0  # edges, since the pool was looked over for what could be given back
        self._arrays_changed()

    def _arrays_changed(self) -> None:
        """Other arrays: what kernels take of them is packed once."""
        self._kept = None
        rows, words, weights = self.rows, self.pool.words, self.pool.weights
        fields = {"rows": rows, "slabs": words, "weights": weights}
        self._view = View("slabgraph_view.cuh", "SlabView", fields, self._defines)
        self._slabs = Struct(rows=rows, words=words, weights=weights, late=None)

    # --- prepare ---

    def _prepare(self, run: Run) -> Plan:
        """Look the keys up, choose new tables, take memory. O(n); see the class for launches and read-backs.

        Raises `CapacityError` also where the pool would have to outgrow the 32-bit numbers of slabs.
        """
        scratch = self._take_scratch(run)
        keys, outcome, found = scratch.count(run)
        if found.unknown:  # what is in scratch is of no more use
            self._refuse(run, found.unknown)
        if found.task_slabs > (found.tail + found.singles + found.runs) // 32:
            self._count_chains(found, keys, scratch.listed)
        before, after, looked = self._plan_moves(found)
        late_edges = found.late_edges(packed=before is not None and before.rows is not None)
        if LATE * late_edges > len(scratch.late):
            scratch.late = self.device.empty(LATE * late_edges, np.uint32)
            self._bind_commit(scratch)
        work = _Work(keys, found, late_edges, before, after, looked)
        return Plan(run, found.counts, outcome, work, self._state, scratch)

    def _new_scratch(self, capacity: int, run: Run) -> Scratch:
        scratch = Scratch(self.device, capacity, self.pool.slabs, self.n_rows)
        scratch.bind(self._kernels, self._view, self.supply, self.n_rows, self.n_vertices)
        self._bind_commit(scratch)
        return scratch

    def _bind_commit(self, scratch: Scratch) -> None:
        scratch.bind_commit(self._kernels, self._slabs, self.pool.free, self.supply)

    def _keep(self, scratch: Scratch | None) -> None:
        if scratch is not None and len(scratch.late) <= 4 * LATE * KEPT:
            super()._keep(scratch)

    def _count_chains(self, found: Found, keys: Struct, tasks: Struct) -> None:
        """Count what new tables chain, instead of the most that they could; a read-back."""
        kernels, n = self._kernels, found.runs
        counts, sums = self.device.zeros(n, np.uint32), self.device.zeros(2, np.int64)
        kernels.CountBuckets(found.pieces, graph=self._view, tasks=tasks, n=found.pieces, keys=keys, counts=counts)
        kernels.SumChains(n, counts=counts, n=n, sums=sums)
        found.task_slabs, found.task_edges = self.device.to_host(sums).tolist()

    def _plan_moves(self, found: Found) -> tuple[Move | None, Move | None, bool]:
        """A larger pool where the batch may need it, a smaller one where it leaves much of the pool unused.

        Compaction costs about what as many deletions do as there are slabs. After half as many an eighth of waste is
        reason enough; before that half is.
        """
        pool, device, words = self.pool, self.device, self.words
        before, slabs, looks = None, pool.slabs, False
        if found.needs > slabs:
            if found.free > found.tail // 8:
                found.tail, found.free = found.tail - found.free, 0  # as it will be
                before = Move.compact(pool, device, found.needs, found.needs // 8, words, self.rows, self.buckets)
            else:
                before = Move.grow(pool, device, found.needs, words, found.tail, found.free)
            slabs = before.pool.slabs
        buckets = self.buckets + found.new_buckets
        keeps, spare = found.holds, 3 * found.holds // 2 + 64
        if slabs <= spare and 2 * self._deleted >= slabs and 8 * slabs > 9 * (buckets + found.chained):
            looks, keeps = True, min(keeps, buckets + self._count_packed() + found.chained_packed(buckets, self.slots))
            spare = 9 * keeps // 8
        after = Move.compact(pool, device, keeps, keeps // 32, words, self.rows, buckets) if slabs > spare else None
        return before, after, looks

    def _count_packed(self) -> int:
        """Slabs after the first that chains without gaps would have. O(n_rows + slabs), a read-back."""
        total = self.device.zeros(1, np.int64)
        self._kernels.CountPacked(self.n_rows, graph=self._view, n=self.n_rows, sum=total)
        return int(total[0])

    # --- commit ---

    def _commit(self, plan: Plan, work: _Work) -> None:
        """Write what was prepared; O(n) and the pool's move, where it moves."""
        n, scratch, found, keys, counts = len(plan.run), plan.scratch, work.found, work.keys, plan.counts
        if counts.deleted or (counts.updated and self.weighted):
            scratch.change(n, keys=keys)
        moved = work.before is not None and work.before.rows is not None  # to other places
        if work.before:
            self._move(work.before)
            if moved:
                scratch.status[SUPPLY] = self.supply
                self._kernels.Retarget(found.tasks, rows=self.rows, tasks=scratch.tasks, n=found.tasks)
            self._bind_commit(scratch)
        if found.pieces:
            scratch.fill(found.pieces, keys=keys, n=found.pieces)
        if counts.inserted:
            changed = 2 if moved else int(counts.deleted > 0)
            scratch.insert(n, keys=keys, changed=changed)
            scratch.insert_hard(n // 16 + 32, keys=keys, changed=changed)  # half of the lanes have words of marks
        if found.tasks or found.chained:
            gap = min(found.free, found.singles + found.chained)
            scratch.finish(max(1 + gap, min(work.late_edges, FEW_LANES)))
        if work.after:
            self._move(work.after)
        if not (work.before or work.after):
            self._keep(scratch)
        self.num_edges += counts.inserted - counts.deleted
        self.buckets += found.new_buckets
        self._deleted = counts.deleted + (0 if work.before or work.after or work.looked else self._deleted)

    def _move(self, move: Move) -> None:
        move.run(self._kernels, self.pool, self.rows, self.words)
        self.pool = move.pool
        if move.rows is not None:
            self.rows = move.rows
            self.supply[:] = move.state[:2]
        self._arrays_changed()

    # --- the rest of the contract ---

    def add_vertices(self, n: int, rows: int | None = None) -> None:
        """Raise n_vertices by `n` and n_rows by `rows`, by default as many; new rows are empty. O(n_rows)."""
        n_rows, n_vertices = self._grown(n, rows)
        more = self.device.zeros(ROW * n_rows, np.uint32)
        more[: len(self.rows)] = self.rows
        self.rows, self._state = more, object()
        self.n_rows, self.n_vertices = n_rows, n_vertices
        self._arrays_changed()

    def _delete_vertices(self, vertices: Array) -> Counts:
        """In place, with no batch: O(n_rows + slabs) for one pass over the slabs.

        Takes n_vertices / 8 bytes beside lists of the larger tables; one read-back.
        """
        n, device, kernels = len(vertices), self.device, self._kernels
        dead, status = device.zeros(self.n_vertices // 32 + 2, np.uint32), device.zeros(STATUS + 3, np.int64)
        pieces = device.empty(2 * self.pool.slabs // PIECE_BUCKETS, np.uint64)  # of tables of more than one piece
        counts, supply = status[STATUS:], Struct(free=self.pool.free, status=status)
        sever = {"slabs": self._slabs, "supply": supply, "dead": dead, "pieces": pieces, "counts": counts}
        status[SUPPLY] = self.supply
        kernels.MarkDead(n, vertices=vertices, n=n, dead=dead)
        kernels.SeverRows(self.n_rows, n=self.n_rows, **sever)
        kernels.SeverPieces(len(pieces), **sever)
        kernels.DropTables(n, vertices=vertices, n=n, rows=self.rows)
        kernels.Finish(1, slabs=self._slabs, supply=supply, state=self.supply)
        _, deleted, buckets = device.to_host(counts).tolist()
        self.num_edges, self.buckets, self._deleted = (
            self.num_edges - deleted, self.buckets - buckets, self._deleted + deleted
        )  # fmt: skip
        self._state = object()
        return Counts(deleted=deleted)

    def view(self) -> View:
        """Rows, slabs and weights; valid until the next commit, add_vertices or delete_vertices."""
        return self._view

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the structure holds."""
        return int(self.rows.nbytes) + self.pool.nbytes

    def chains(self) -> Chains:
        """How long chains are, and how full. O(n_rows + slabs), two read-backs."""
        counts = self.device.zeros(8, np.int64)
        self._kernels.CountChains(self.n_rows, graph=self.view(), n=self.n_rows, counts=counts)
        lengths, (free, tail) = self.device.to_host(counts).tolist(), self.device.to_host(self.supply).tolist()
        return Chains(tuple(lengths), self.num_edges / max(sum(lengths) * self.slots, 1), tail - free, free)

    def check_invariants(self) -> None:
        """Assert the invariants that the module numbers. O(n_rows + slabs), on the host; for tests."""
        check_slabgraph(self)
