"""slabgraph: a hash table per row, of slabs of 64 bytes that are chained if a bucket overflows.

::

    rows     0: 2 buckets from slab 4, degree 23     1: none     2: 1 bucket from slab 9, degree 2   (12 bytes each)
    slab 4   [next 7 | - | 17  3  5 .. 21]    first slab of row 0's bucket 0; full, so slab 7 is chained to it
    slab 5   [next - | - |  8  .  2 ..  .]    first slab of row 0's bucket 1, with slots of deleted edges
    slab 7   [next - | - | 44  9 12 ..  .]
    free     [6 1], tail 13                         freed slabs; none from the tail on was ever used
    holes    2 slabs: [2]   4 to 7: [10]            contiguous slabs of outgrown tables

In a row of several buckets a hash of dst determines an edge's bucket, so that a query usually reads one slab. A batch
is counted before it is written, where the paper inserts edge by edge (Awad, Ashkiani, Porumbescu, Owens: Dynamic Graphs
on the GPU, IPDPS 2020). prepare looks every key up and finds a free slot for each new edge. It also decides for each
row whether it gets another table: its first one, a larger one past the threshold, a smaller one, or none if it is left
without edges. commit deletes in place, fills the new tables and inserts into the others. Differences from the paper:

- Lookup and insertion are two steps, so that deleted slots are plain empty ones: no tombstones, no duplicates.
- Weights are an array beside the slabs, so that a slab has 14 slots with weights and without.
- Rehashing is part of a batch. Its threshold is the mean load of a row's buckets, which is their mean chain length
  before rounding; `SlabGraph.chains` reports the lengths.
- The pool grows before a batch that might need more slabs, or the batch raises `CapacityError`; no lane waits for a
  slab. If much of the pool is free it is compacted, and its chains with it.
- Tables have different sizes. An outgrown table leaves a hole, which a smaller table of another row fills, so a growing
  graph needs no compaction. prepare takes holes from the first class, by powers of two, with only large enough holes,
  or from the next ones. The remainder of a hole is listed as a hole.
- Slabs are half as large, and one lane looks up a key, for reasons in docs/notebook/structures.md. The lanes of a tile
  cooperate on tables that are filled, moved or cut.

Weaknesses: every row with an edge takes a slab, so that rows of 2.5 edges, as in road networks, cost 33 bytes per edge
(20 with ``slab=32``, 59 with the paper's 128 bytes). The hash is no secret: an adversary who chooses the dst can make
chains arbitrarily long.

Invariants
----------
1. The degrees' sum is num_edges; no row has more edges than its table's threshold, or any without a table.
2. Every slab below the tail, and no other, is exactly once in a chain, on the free list or in a hole. Holes have the
   sizes of their classes.
3. The edges of a row differ, are below n_vertices and in the bucket of their hash; their number is the row's degree.
4. The second word of every slab is all ones: no edge waits for a slot, and no slab was chained just now.
5. Free slabs, slabs of holes, and slabs from the tail on are all ones.
6. There are as many weights as words, and no weight of an edge is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Struct, View, load
from mgraph.parallel_copy import cloned
from mgraph.structures.contract import DELETED_BITS, KEPT, Structure
from mgraph.structures.plan import Counts, Plan
from mgraph.structures.run import Run
from mgraph.structures.slabgraph.check import HEADER, check_slabgraph
from mgraph.structures.slabgraph.pool import HOLE_CLASSES, PIECE_BUCKETS, ROW, STATE, Move, SlabPool
from mgraph.structures.slabgraph.scratch import ALL_WORDS, LATE, WARP, WORDS, BatchInspection, SlabScratch

__all__ = ["Chains", "SlabGraph"]

Array = Any
FEW_LANES = 1 << 17  # maximum for edges whose number the host does not know: mostly few, and more lanes take longer
SUPPLY = slice(WORDS.index("free_slabs"), WORDS.index("hole_slabs") + 1)  # words of the status with the supply's state


@dataclass(frozen=True)
class Chains:
    """Lengths of the chains of a `SlabGraph`.

    Attributes
    ----------
    lengths : tuple of 8 ints
        The number of buckets with chains of 1, 2 ... 7 slabs, and of 8 or more.
    load : float
        Edges per slot of the buckets' first slabs.
    slabs, free : int
        Slabs in chains, and freed slabs, including those of holes.
    """

    lengths: tuple[int, ...]
    load: float
    slabs: int
    free: int


@dataclass
class _Work:
    """Allocated memory of a commit."""

    keys: Struct
    seen: BatchInspection
    late_edges: int  # upper bound
    before: Move | None  # move to another pool before the batch is written
    after: Move | None  # move after it
    looked: bool  # True if prepare counted the slabs that a compaction would free


class SlabGraph(Structure):
    """Hash table of chained slabs per row.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    slab : int
        Bytes of a slab: 64, 32, or 128 as in the paper; 8 of them are its header.
    load_factor : float
        Load factor of the first slabs of a new table of more than one bucket. The paper's choice is 0.7.
    limit : float
        The load factor past which a row gets a larger table; up to 0.08 more or less from row to row, so that they do
        not all grow at once.

    Notes
    -----
    An operation takes O(1) expected; rehashing and moves of the pool take O(1) amortised. prepare takes three launches
    and one wait for the counts, commit one to four launches. If the chains of new tables might take more than 1 / 32 of
    the pool, as in a build, prepare counts them before it allocates, and waits once more.

    Memory: `slab` bytes per slab (twice as many with weights) and 4.25 to list it when it is free or in a hole, 12
    bytes per row. The pool has up to an eighth more slabs than it needs, and up to half more until half as many edges
    as slabs were deleted. Scratch of 4 bytes per slab and 88 per operation is kept for the next batch, up to a million
    operations. Neighbours are not sorted.
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
            raise InvalidOption(f"slab of {slab} bytes; it must be 32, 64 or 128")
        if not (load_factor >= 0.1 and load_factor + 0.1 <= limit <= 4):
            raise InvalidOption(
                f"load_factor is {load_factor} and limit {limit}; "
                "load_factor must be at least 0.1, and limit at least 0.1 more and at most 4"
            )

        # Load the kernels for this slab size and these load factors.
        self.words = slab // 4
        self.slots = self.words - HEADER
        self.load_factor, self.limit = round(load_factor * 100), round(limit * 100)  # hundredths, as in kernels
        defines: dict[str, int] = {
            "SLAB": self.words,
            "TILE": self.words // 4,
            "LOAD": self.load_factor,
            "LIMIT": self.limit,
        }
        self._defines = tuple(defines.items())
        self._load_kernels()

        # Begin without slabs.
        self.rows = device.zeros(ROW * n_rows, np.uint32)  # first slab, buckets, degree
        self.supply = device.zeros(STATE, np.int64)  # free slabs, tail, slabs in holes, holes of each class
        self.pool = SlabPool.empty(device, 0, self.words, weighted)
        self.buckets = 0  # buckets of all tables
        self._deleted = 0  # deleted edges since the last count of the slabs that a compaction would free
        self._arrays_changed()

    def _load_kernels(self) -> None:
        defines = {"WEIGHTED": int(self.weighted), **dict(self._defines)}
        self._kernels = load(self.device, "structures/slabgraph/slabgraph.cuh", None, **defines)

    def _arrays_changed(self) -> None:
        """Pack the arrays for kernels, once until any is replaced."""
        self._kept = None
        rows, words, weights = self.rows, self.pool.words, self.pool.weights
        fields = {"rows": rows, "slabs": words, "weights": weights}
        self.single = None
        self._view = View("structures/slabgraph/view.cuh", "SlabView", fields, self._defines)
        self._slabs = Struct(rows=rows, words=words, weights=weights, late=None)

    # --- prepare ---

    def _prepare(self, run: Run) -> Plan:
        """Look the keys up, choose new tables, and allocate. O(n), launches and read-backs as in the class.

        Also raises `CapacityError` if the pool would exceed the 32-bit numbers of slabs.
        """
        scratch = self._take_scratch(run)
        keys, outcome, seen = scratch.count(run)
        if seen.unknown:  # the scratch is in no defined state
            self._refuse(run, seen.unknown)
        if seen.task_slabs > (seen.tail_slab + seen.singles + seen.runs) // 32:
            self._count_chains(seen, keys, scratch.listed)

        # Plan moves of the pool, and allocate the list of waiting edges.
        before, after, looked = self._plan_moves(seen)
        late_edges = seen.late_edges(packed=before is not None and before.rows is not None)
        if LATE * late_edges > len(scratch.late):
            scratch.late = self.device.empty(LATE * late_edges, np.uint32)
            self._bind_commit(scratch)
        work = _Work(keys, seen, late_edges, before, after, looked)
        return Plan(run, seen.counts, outcome, work, self.state, scratch)

    def _new_scratch(self, capacity: int, run: Run) -> SlabScratch:
        scratch = SlabScratch(self.device, capacity, self.pool.slabs, self.n_rows)
        scratch.bind(self._kernels, self._view, self.pool, self.supply, self.n_rows, self.n_vertices)
        self._bind_commit(scratch)
        return scratch

    def _bind_commit(self, scratch: SlabScratch) -> None:
        scratch.bind_commit(self._kernels, self._slabs, self.pool, self.supply)

    def _keep(self, scratch: SlabScratch | None) -> None:
        if scratch is not None and len(scratch.late) <= 4 * LATE * KEPT:
            super()._keep(scratch)

    def _count_chains(self, seen: BatchInspection, keys: Struct, tasks: Struct) -> None:
        """Count the slabs that new tables chain, instead of their upper bound; a read-back."""
        kernels, n = self._kernels, seen.runs + seen.reused
        counts, sums = self.device.zeros(n, np.uint32), self.device.zeros(2, np.int64)
        kernels.CountBuckets(
            seen.n_pieces, graph=self._view, tasks=tasks, n=seen.n_pieces, at_tail=seen.runs, keys=keys,
            counts=counts,
        )  # fmt: skip
        kernels.SumChains(n, counts=counts, n=n, sums=sums)
        seen.task_slabs, seen.task_edges = self.device.to_host(sums).tolist()

    def _plan_moves(self, seen: BatchInspection) -> tuple[Move | None, Move | None, bool]:
        """Plan a larger pool if the batch may need it, and a smaller one if it leaves much unused.

        The pool grows in place, without moving a slab, while less than a quarter of it is unused. A compaction costs
        about as much as one deletion per slab. After half as many deletions as slabs, the pool is compacted if an
        eighth of it is wasted; before that, if half of it is.
        """
        # Before the batch: grow in place, compact, or copy.
        pool, device, words = self.pool, self.device, self.words
        before, slabs, looks = None, pool.slabs, False
        if seen.needs > slabs:
            longer = pool.longer(seen.needs, words) if 4 * seen.unused < seen.tail_slab else None
            if longer is not None:
                before = Move(longer, 0, 0, slabs)
            elif seen.unused > seen.tail_slab // 8:
                seen.compact()
                before = Move.compact(pool, device, seen.needs, seen.needs // 8, words, self.rows, self.buckets)
            else:
                before = Move.grow(pool, device, seen.needs, words, seen.tail_slab, seen.free_slabs)
            slabs = before.pool.slabs

        # After the batch: compact if too much is unused, by an exact count once enough edges were deleted.
        buckets = self.buckets + seen.new_buckets
        keeps, spare = seen.holds, 3 * seen.holds // 2 + 64
        if slabs <= spare and 2 * self._deleted >= slabs and 8 * slabs > 9 * (buckets + seen.chained):
            looks, keeps = True, min(keeps, buckets + self._count_packed() + seen.chained_packed(buckets, self.slots))
            spare = 9 * keeps // 8
        after = Move.compact(pool, device, keeps, keeps // 32, words, self.rows, buckets) if slabs > spare else None
        return before, after, looks

    def _count_packed(self) -> int:
        """Count the slabs of chains without gaps, after their first. O(n_rows + slabs), a read-back."""
        total = self.device.zeros(1, np.int64)
        self._kernels.CountPacked(self.n_rows, graph=self._view, n=self.n_rows, sum=total)
        return int(total[0])

    # --- commit ---

    def _commit(self, plan: Plan, work: _Work) -> None:
        """Write the prepared batch. O(n), and the move of the pool if planned."""
        # Deletes and weights, in place.
        n, scratch, seen, keys, counts = len(plan.run), plan.scratch, work.seen, work.keys, plan.counts
        if counts.deleted or (counts.updated and self.weighted):
            scratch.change(n, keys=keys)

        # Move the pool. A compaction changes the places of slabs, so tasks need the new rows.
        moved = work.before is not None and work.before.rows is not None
        if work.before:
            self._move(work.before)
            if moved:
                scratch.status[SUPPLY] = self.supply[: SUPPLY.stop - SUPPLY.start]
                self._kernels.Retarget(
                    seen.n_tasks, rows=self.rows, tasks=scratch.tasks, n=seen.n_tasks, status=scratch.status
                )
            self._bind_commit(scratch)

        # Fill new tables, insert into the others, and give waiting edges their slabs.
        if seen.n_pieces:
            warps = seen.n_tasks // WARP + 2  # warps that collect the slabs left by tasks
            scratch.fill(seen.n_pieces + warps * 4 * WARP // self.words, keys=keys, n=seen.n_pieces)
        if counts.inserted:
            changed = 2 if moved else int(counts.deleted > 0)
            scratch.insert(n, keys=keys, changed=changed)
            scratch.insert_hard(n // 16 + 32, keys=keys, changed=changed)  # half of the lanes have words of marks
        if seen.n_tasks or seen.chained:
            gap = min(seen.free_slabs, seen.singles + seen.chained)
            scratch.finish(max(2 * HOLE_CLASSES, 1 + gap, min(work.late_edges, FEW_LANES)))

        # Compact afterwards, and update the totals.
        if work.after:
            self._move(work.after)
        if not (work.before or work.after):
            self._keep(scratch)
        self.num_edges += counts.inserted - counts.deleted
        self.buckets += seen.new_buckets
        self._deleted = counts.deleted + (0 if work.before or work.after or work.looked else self._deleted)

    def _move(self, move: Move) -> None:
        """Move to another pool, and adopt it."""
        move.run(self._kernels, self.pool, self.rows, self.words)
        self.pool = move.pool
        if move.rows is not None:
            self.rows = move.rows
            self.supply[:2], self.supply[2:] = move.state[:2], 0
        self._arrays_changed()

    # --- the rest of the contract ---

    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        rows = self.device.zeros(ROW * n_rows, np.uint32)
        rows[: len(self.rows)] = self.rows
        return {"rows": rows}

    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        self.rows = arrays["rows"]
        self._arrays_changed()

    def _delete_vertices(self, vertices: Array) -> Counts:
        """Delete in place, without a batch, in one pass over the slabs: O(n_rows + slabs).

        Takes n_vertices / 8 bytes beside lists of the larger tables; one read-back.
        """
        # A bitmap of the vertices, and lists of the pieces of larger tables.
        n, device, kernels = len(vertices), self.device, self._kernels
        dead, status = (
            device.zeros(self.n_vertices // DELETED_BITS + 2, np.uint32),
            device.zeros(ALL_WORDS + 3, np.int64),
        )
        pieces = device.empty(2 * self.pool.slabs // PIECE_BUCKETS, np.uint64)  # only tables of more than one piece
        counts, supply = status[ALL_WORDS:], self.pool.supply(self.supply, status)
        sever = {"slabs": self._slabs, "supply": supply, "dead": dead, "pieces": pieces, "counts": counts}

        # Sever all rows, then drop the vertices' own tables.
        status[SUPPLY] = self.supply[: SUPPLY.stop - SUPPLY.start]
        kernels.MarkDeleted(n, vertices=vertices, n=n, dead=dead)
        kernels.SeverRows(self.n_rows, n=self.n_rows, **sever)
        kernels.SeverPieces(len(pieces), **sever)
        kernels.DropTables(n, vertices=vertices, n=n, rows=self.rows)
        kernels.Finish(2 * HOLE_CLASSES, slabs=self._slabs, supply=supply)
        _, deleted, buckets = device.to_host(counts).tolist()
        self.num_edges, self.buckets, self._deleted = (
            self.num_edges - deleted, self.buckets - buckets, self._deleted + deleted
        )  # fmt: skip
        self.state = object()
        return Counts(deleted=deleted)

    def _own_arrays(self) -> None:
        self._load_kernels()
        self.rows, self.supply = cloned(self.device, self.rows), cloned(self.device, self.supply)
        self.pool = self.pool.clone(self.device, self.words)
        self._arrays_changed()

    def view(self) -> View:
        """Return rows, slabs and weights; valid until the next change."""
        return self._view

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self.rows.nbytes) + self.pool.nbytes

    def chains(self) -> Chains:
        """Return the lengths of chains and their load. O(n_rows + slabs), two read-backs."""
        counts = self.device.zeros(8, np.int64)
        self._kernels.CountChains(self.n_rows, graph=self.view(), n=self.n_rows, counts=counts)
        lengths, (free, tail, holes, *_) = (
            self.device.to_host(counts).tolist(),
            self.device.to_host(self.supply).tolist(),
        )
        unused = free + holes
        return Chains(tuple(lengths), self.num_edges / max(sum(lengths) * self.slots, 1), tail - unused, unused)

    def check_invariants(self) -> None:
        """Assert the module's invariants. O(n_rows + slabs), on the host."""
        check_slabgraph(self)
