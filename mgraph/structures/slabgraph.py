"""slabgraph: a hash table for every row, of slabs of 128 bytes that are chained where a bucket overflows.

::

    table    row 0: 2 buckets from slab 4     row 1: none     row 2: 1 bucket from slab 9      (8 bytes a row)
    slab 4   [next 7 | - | 17  3  5 .. 21]    first slab of row 0's bucket 0; full, so slab 7 is chained to it
    slab 5   [next - | - |  8  .  2 ..  .]    first slab of row 0's bucket 1; holes are where edges were deleted
    slab 7   [next - | - | 44  9 12 ..  .]
    free     [2 6 1], tail 10                       slabs given back; none from the tail on was ever used

A row of more than one bucket has each edge in the bucket that a hash of its dst names, so that a query reads one slab
as a rule. A batch is counted before it is written (Awad, Ashkiani, Porumbescu, Owens: Dynamic Graphs on the GPU, IPDPS
2020, inserts edge by edge): prepare looks every key up, each tile loading the slabs of all its keys at once, and the
first key of each row decides whether the row gets another table: its first one, a larger one past the threshold, a
smaller one or none. commit deletes in place, fills the new tables and inserts into the others. Where this differs from
the paper:

- Lookup and insertion are two steps, so that deleted slots are plain empty ones: no tombstones, no duplicates.
- Weights are an array beside the slabs, so that a slab has 30 slots with weights and without.
- Rehashing is part of a batch. Its threshold is the mean load of a row's buckets, which is their mean chain length
  before rounding; `SlabGraph.chains` tells how long they are.
- The pool grows before a batch that might need more of it, or raises `CapacityError`: nothing spins.

What it is bad at: every row with an edge takes a slab, so that rows of 2.5 edges, as road networks have, cost 59 bytes
an edge (33 with ``slab=64``, 20 with ``slab=32``). Chains get as long as whoever chooses the dst likes: the hash
is no secret.

Invariants
----------
1. ``sum(row_degrees) == num_edges``; no row has more edges than its table's threshold, or any without a table.
2. Every slab below the tail is in one chain or on the free list, once, and no other slab is.
3. The edges of a row differ, are below n_vertices and in the bucket of their hash; there are ``row_degrees[row]``.
4. The second word of every slab is all ones: no edge waits for a slot, and no slab was chained just now.
5. Free slabs, and those from the tail on, are all ones.
6. There are as many weights as words, and no weight of an edge is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.kernels import Struct, View, load
from mgraph.structures.contract import Counts, Plan, Structure
from mgraph.structures.run import Run
from mgraph.structures.slabgraph_check import HEADER, check_slabgraph
from mgraph.structures.slabgraph_pool import PIECE_BUCKETS, Move, Pool

__all__ = ["Chains", "SlabGraph"]

Array = Any
TASK, LATE, BLOCK = 8, 4, 256  # words of a task and of a late edge; threads of a block
PIECE_KEYS, CHAIN_UNIT = 256, 1 << 20  # as slabgraph_table.cuh has them


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
class _Found:
    """What prepare counted: slabgraph_table.cuh's Status, in its order."""

    moves: int
    updated: int
    missing: int
    chain_slabs: int
    tasks: int
    pieces: int
    singles: int
    runs: int
    task_slabs: int
    task_edges: int
    task_inserts: int
    released: int
    free: int
    tail: int
    unknown: int
    freed: int
    late: int

    @property
    def counts(self) -> Counts:
        return Counts(self.moves >> 32, self.updated, self.moves & 0xFFFFFFFF, self.missing)

    @property
    def chained(self) -> int:
        """The most slabs that commit will chain."""
        return self.chain_slabs // CHAIN_UNIT + self.task_slabs

    @property
    def needs(self) -> int:
        """Slabs that the pool must have."""
        return self.tail + self.runs + max(0, self.singles + self.chained - self.free)

    @property
    def holds(self) -> int:
        """The most slabs that will be in chains after the batch."""
        return self.tail - self.free + self.singles + self.runs + self.chained - self.released


STATUS = len(_Found.__dataclass_fields__)


@dataclass
class _Work:
    """What a commit needs, all of it allocated."""

    keys: Struct
    tasks: Struct
    status: Array
    found: _Found
    late: Array
    before: Move | None  # to another pool before the batch is written, and after
    after: Move | None


class SlabGraph(Structure):
    """A hash table of chained slabs for every row.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    slab : int
        Bytes of a slab: 128, 64 or 32; 8 of them are its header.
    load_factor : float
        Share of live slots in the first slabs of a new table of more than one bucket. The paper's choice is 0.7.
    limit : float
        The share past which a row gets a larger table, give or take 0.08 from row to row.

    Notes
    -----
    O(1) expected an operation, O(1) amortised for rehashing. Two launches prepare, one to six commit; one
    read-back, and a second one where the chains of new tables might take more than 1 / 32 of the pool, as in a build:
    they are counted then before memory is taken. `slab` bytes a slab, twice as many with weights, 4 more to list it
    when it is free; 12 bytes a row. Neighbours are not sorted.
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
        slab: int = 128,
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
        self._kernels = load(device, "slabgraph.cuh", None, WEIGHTED=int(weighted), LOOK=self.words // 8, **defines)
        self.table, self.row_degrees = device.zeros(n_rows, np.uint64), device.zeros(n_rows, np.uint32)
        self.supply, self._next_supply = (
            device.zeros(3, np.int64),
            device.zeros(3, np.int64),
        )  # free slabs, tail, unused
        self.pool = Pool.empty(device, 0, self.words, weighted)

    # --- prepare ---

    def prepare(self, run: Run) -> Plan:
        """Look the keys up, choose new tables, take memory. O(n); see the class for launches and read-backs.

        Raises `CapacityError` where the pool would have to outgrow memory or the 32-bit numbers of slabs, and
        `UnknownVertex` where an id is not there.
        """
        n, device = len(run), self.device
        if n >= 1 << 31:
            raise CapacityError(f"a run of {n} operations; at most {(1 << 31) - 1} at once")
        if n == 0:
            return Plan(run, Counts(), device.empty(0, np.uint8), (), self._state)
        place, outcome, moves = device.empty(n, np.int64), device.empty(n, np.uint8), device.zeros(n, np.uint64)
        status, view, kernels = device.zeros(STATUS, np.int64), self.view(), self._kernels
        kernels.Locate(
            n, graph=view, keys=run.keys, op=run.op, n=n, rows=self.n_rows, vertices=self.n_vertices, place=place,
            outcome=outcome, moves=moves, status=status,
        )  # fmt: skip
        tasks, pieces = self._task_room(n)
        kernels.Choose(
            -(-n // BLOCK), graph=view, keys=run.keys, moves=moves, n=n, rows=self.n_rows, state=self.supply,
            tasks=tasks, pieces=pieces, status=status,
        )  # fmt: skip
        found = _Found(*device.to_host(status).tolist())  # the one read-back of most batches
        if found.unknown:
            self._refuse(run, found.unknown)
        counts = found.counts
        keys = Struct(keys=run.keys, weight=run.weight, outcome=outcome, moves=moves, place=place, n=n)
        listed = Struct(tasks=tasks, pieces=pieces, n=found.pieces)
        if found.task_slabs > (found.tail + found.singles + found.runs) // 32:
            self._count_chains(found, view, keys, listed)
        late = device.empty(LATE * (counts.inserted - found.task_inserts + found.task_edges), np.uint32)
        return Plan(
            run, counts, outcome, _Work(keys, listed, status, found, late, *self._plan_moves(found)), self._state
        )

    def _task_room(self, n: int) -> tuple[Array, Array]:
        """Room for all tasks, and their pieces, that n keys may lead to: the last piece of each may be a small one."""
        tasks, slabs = min(n, self.n_rows), self.pool.slabs
        pieces = tasks + n // PIECE_KEYS + min(tasks, slabs) + slabs // PIECE_BUCKETS
        return self.device.empty(TASK * tasks, np.uint32), self.device.empty(pieces, np.uint64)

    def _count_chains(self, found: _Found, view: View, keys: Struct, tasks: Struct) -> None:
        """Count what new tables chain, instead of the most that they could; a read-back."""
        kernels, n = self._kernels, found.runs
        counts, sums = self.device.zeros(n, np.uint32), self.device.zeros(2, np.int64)
        kernels.CountBuckets(found.pieces, graph=view, tasks=tasks, keys=keys, counts=counts)
        kernels.SumChains(n, counts=counts, n=n, sums=sums)
        found.task_slabs, found.task_edges = self.device.to_host(sums).tolist()

    def _plan_moves(self, found: _Found) -> tuple[Move | None, Move | None]:
        """A larger pool where the batch may need it, a smaller one where it leaves a third of the pool unused."""
        before = after = None
        slabs = self.pool.slabs
        if found.needs > slabs:
            compact = found.free > found.tail // 8
            if compact:
                found.tail, found.free = found.tail - found.free, 0  # as it will be
            table = self.table if compact else None
            before = Move.plan(self.pool, self.device, found.needs, self.words, table, found.tail, found.free)
            slabs = before.pool.slabs
        if 2 * slabs > 3 * found.holds + 128:
            after = Move.plan(self.pool, self.device, found.holds, self.words, self.table)
        return before, after

    # --- commit ---

    def commit(self, plan: Plan) -> Counts:
        """Write what was prepared; O(n) and the pool's move, where it moves. Asynchronous on a GPU."""
        work: _Work | None = self._use(plan) or None
        if work is None:  # an empty run
            return plan.counts
        n, found, counts, kernels = len(plan.run), work.found, plan.counts, self._kernels
        if counts.deleted or (counts.updated and self.weighted):
            kernels.Change(n, slabs=self._slabs(work.late), keys=work.keys)
        moved = work.before is not None and work.before.table is not None  # to other places
        if work.before:
            self._move(work.before)
            if moved:
                tasks = work.tasks.values["tasks"]
                self._kernels.Retarget(found.tasks, table=self.table, tasks=tasks, n=found.tasks)
        slabs, supply = self._slabs(work.late), self._supply(work.status, found.runs)
        if found.pieces:
            kernels.Fill(found.pieces, slabs=slabs, keys=work.keys, tasks=work.tasks, supply=supply)
        if counts.inserted:
            kernels.Insert(n, slabs=slabs, keys=work.keys, supply=supply, moved=int(moved))
        if len(work.late):
            kernels.InsertLate(len(work.late) // LATE, slabs=slabs, status=work.status)
        if found.tasks or found.chained:
            self._settle(supply, min(found.free, found.singles + found.chained))
        if work.after:
            self._move(work.after)
        self.num_edges += counts.inserted - counts.deleted
        return counts

    def _slabs(self, late: Array) -> Struct:
        pool = self.pool
        return Struct(table=self.table, degrees=self.row_degrees, words=pool.words, weights=pool.weights, late=late)

    def _supply(self, status: Array, runs: int) -> Struct:
        return Struct(free=self.pool.free, state=self.supply, status=status, run_slabs=runs)

    def _settle(self, supply: Struct, gap: int) -> None:
        self._kernels.Settle(1 + gap, supply=supply, state_out=self._next_supply)
        self.supply, self._next_supply = self._next_supply, self.supply

    def _move(self, move: Move) -> None:
        move.run(self._kernels, self.pool, self.table, self.words)
        self.pool = move.pool
        if move.table is not None:
            self.table, self.supply = move.table, move.state

    # --- the rest of the contract ---

    def add_vertices(self, n: int, rows: int | None = None) -> None:
        """Raise n_vertices by `n` and n_rows by `rows`, by default as many; new rows are empty. O(n_rows)."""
        n_rows, n_vertices = self._grown(n, rows)
        table, degrees = self.device.zeros(n_rows, np.uint64), self.device.zeros(n_rows, np.uint32)
        table[: self.n_rows], degrees[: self.n_rows] = self.table, self.row_degrees
        self.table, self.row_degrees, self._state = table, degrees, object()
        self.n_rows, self.n_vertices = n_rows, n_vertices

    def _delete_vertices(self, vertices: Array) -> Counts:
        """In place, with no batch: O(n_rows + slabs) for one pass over the slabs.

        Takes n_vertices / 8 bytes beside lists of the larger tables; one read-back.
        """
        n, device, kernels = len(vertices), self.device, self._kernels
        dead, status = device.zeros(self.n_vertices // 32 + 2, np.uint32), device.zeros(STATUS + 2, np.int64)
        pieces = device.empty(2 * self.pool.slabs // PIECE_BUCKETS, np.uint64)  # of tables of more than one piece
        counts, supply = status[STATUS:], self._supply(status, 0)
        sever = {"slabs": self._slabs(None), "supply": supply, "dead": dead, "pieces": pieces, "counts": counts}
        kernels.MarkDead(n, vertices=vertices, n=n, dead=dead)
        kernels.SeverRows(self.n_rows, n=self.n_rows, **sever)
        kernels.SeverPieces(len(pieces), **sever)
        kernels.DropTables(n, vertices=vertices, n=n, table=self.table)
        self._settle(supply, 0)
        deleted = int(counts[1])
        self.num_edges -= deleted
        self._state = object()
        return Counts(deleted=deleted)

    def view(self) -> View:
        """Tables, degrees, slabs and weights; valid until the next commit, add_vertices or delete_vertices."""
        pool = self.pool
        fields = {"table": self.table, "degrees": self.row_degrees, "slabs": pool.words, "weights": pool.weights}
        return View("slabgraph_view.cuh", "SlabView", fields, self._defines)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the structure holds."""
        return int(self.table.nbytes) + int(self.row_degrees.nbytes) + self.pool.nbytes

    def chains(self) -> Chains:
        """How long chains are, and how full. O(n_rows + slabs), two read-backs."""
        counts = self.device.zeros(8, np.int64)
        self._kernels.CountChains(self.n_rows, graph=self.view(), n=self.n_rows, counts=counts)
        lengths, (free, tail, _) = self.device.to_host(counts).tolist(), self.device.to_host(self.supply).tolist()
        return Chains(tuple(lengths), self.num_edges / max(sum(lengths) * self.slots, 1), tail - free, free)

    def check_invariants(self) -> None:
        """Assert the invariants that the module numbers. O(n_rows + slabs), on the host; for tests."""
        check_slabgraph(self)
