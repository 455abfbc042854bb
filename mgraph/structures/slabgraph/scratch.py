"""Memory in which slabgraph prepares a batch, its counts, and the kernels bound to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Library, Struct, View, constants
from mgraph.structures.contract import KEPT
from mgraph.structures.plan import Counts
from mgraph.structures.run import Run
from mgraph.structures.slabgraph.pool import PIECE_BUCKETS, SlabPool

__all__ = ["ALL_WORDS", "LATE", "STATUS", "WARP", "WORDS", "BatchInspection", "SlabScratch"]

Array = Any
_TABLE, _PREPARE = constants("structures/slabgraph/table.cuh"), constants("structures/slabgraph/prepare.cuh")
WORDS = _TABLE.enums["Status"][:-1]  # names of the status's words; the last one is their number
ALL_WORDS = _TABLE["all_words"]  # including the taken and the listed holes of each class
PIECE_KEYS, CHAIN_UNIT = _TABLE["piece_keys"], _TABLE["chain_unit"]
TASK, LATE = _TABLE.size("Task") // 4, constants("structures/slabgraph/supply.cuh").size("Late") // 4  # words of each
WARP = 32  # lanes
CHOSEN = _PREPARE["Choose::lanes"] * WARP // 2  # keys of a block in Choose: half of its lanes have a word of marks


@dataclass
class BatchInspection:
    """Counts of prepare, by the names of Status in ``table.cuh``."""

    all_moves: int
    others: int
    chain_slabs: int
    unknown: int
    n_tasks: int
    n_pieces: int
    singles: int
    runs: int
    reused: int
    ones: int
    task_slabs: int
    task_edges: int
    task_inserts: int
    left: int
    free_slabs: int
    tail_slab: int
    hole_slabs: int
    freed: int
    unlisted: int
    n_late: int

    @property
    def counts(self) -> Counts:
        """Exact counts."""
        low = 0xFFFFFFFF
        return Counts(self.all_moves >> 32, self.others >> 32, self.all_moves & low, self.others & low)

    @property
    def chained(self) -> int:
        """Upper bound of the slabs that commit chains."""
        return self.chain_slabs // CHAIN_UNIT + self.task_slabs

    @property
    def needs(self) -> int:
        """Slabs that the pool must have."""
        return self.tail_slab + self.runs + max(0, self.singles + self.chained - self.free_slabs)

    @property
    def unused(self) -> int:
        """Slabs below the tail in no chain: free ones and holes."""
        return self.free_slabs + self.hole_slabs

    @property
    def holds(self) -> int:
        """Upper bound of the slabs in chains after the batch."""
        return self.tail_slab - self.unused + self.new_buckets + self.chained

    @property
    def new_buckets(self) -> int:
        """The number of buckets that all tables gain."""
        return self.singles + self.runs + self.reused - self.ones - self.left

    def compact(self) -> None:
        """Adapt the counts to a compaction: no slab is unused, and all new tables go to the tail."""
        self.tail_slab, self.free_slabs, self.hole_slabs = self.tail_slab - self.unused, 0, 0
        self.runs, self.reused = self.runs + self.reused, 0

    def chained_packed(self, buckets: int, slots: int) -> int:
        """Return `chained` for chains without gaps: a slab per slabful of inserts and per bucket."""
        inserts = min(self.all_moves >> 32, self.chain_slabs * slots // CHAIN_UNIT)  # into tables of several buckets
        return self.task_slabs + min(inserts, inserts // slots + buckets)

    def late_edges(self, packed: bool) -> int:
        """Return an upper bound of the edges that wait for a slab; `packed` if chains lose their gaps before."""
        return (self.all_moves >> 32) - self.task_inserts + self.task_edges if self.chained or packed else 0


STATUS = len(WORDS)


class SlabScratch:
    """Memory for a batch of `capacity` operations, some 88 bytes each.

    Parameters
    ----------
    device : Device
    capacity : int
        Operations.
    slabs, n_rows : int
        The pool's, and the graph's.
    """

    def __init__(self, device: Device, capacity: int, slabs: int, n_rows: int) -> None:
        self.device, self.capacity = device, capacity
        warps = self._warps(capacity)
        # Bounds of tasks and their pieces, of which the last of each may be small.
        tasks = min(capacity, n_rows)
        pieces = tasks + capacity // PIECE_KEYS + min(tasks, slabs) + slabs // PIECE_BUCKETS
        late = LATE * capacity if capacity <= KEPT else 0  # a large batch counts them first
        (
            self.status, moves, self.place, self.outcome, words, self.tasks, self.pieces, self.late,
        ) = device.carve(
            (ALL_WORDS, np.int64), (warps, np.uint64), (capacity, np.int64), (capacity, np.uint8),
            (4 * warps, np.uint32), (TASK * tasks, np.uint32), (pieces, np.uint64), (late, np.uint32),
        )  # fmt: skip
        device.fill(moves, 0)  # kernels reset it after use
        self.mail, self.mailbox = device.mailbox(STATUS)
        marks, tally, chains, self._hard = (words[i * warps : (i + 1) * warps] for i in range(4))
        self.listed = Struct(tasks=self.tasks, pieces=self.pieces)
        self._marked = Struct(
            place=self.place, outcome=self.outcome, moves=moves, marks=marks, tally=tally, chains=chains
        )

    def _warps(self, n: int) -> int:
        return n if self.device.kind == "cpu" else n // WARP + 1  # on a CPU they are as wide as a build has them

    def bind(self, kernels: Library, graph: View, pool: SlabPool, supply: Array, rows: int, vertices: int) -> None:
        """Bind prepare's kernels to this memory and to the structure."""
        status, marked = self.status, self._marked
        self._locate = kernels.Locate.bind(graph=graph, rows=rows, vertices=vertices, found=marked, status=status)
        self._choose = kernels.Choose.bind(
            graph=graph, found=marked, state=supply, holes=pool.holes, tasks=self.tasks, pieces=self.pieces,
            status=status,
        )  # fmt: skip
        self._report = kernels.Report.bind(status=status, n=STATUS, mailbox=self.mailbox)

    def bind_commit(self, kernels: Library, slabs: Struct, pool: SlabPool, state: Array) -> None:
        """Bind commit's kernels; again after a new pool, or more waiting edges."""
        tables = Struct(**{**slabs.values, "late": self.late})
        supply = pool.supply(state, self.status)
        self.change = kernels.Change.bind(slabs=tables)
        self.fill = kernels.Fill.bind(tasks=self.listed, slabs=tables, supply=supply)
        self.insert = kernels.Insert.bind(slabs=tables, hard=self._hard)
        self.insert_hard = kernels.InsertHard.bind(slabs=tables, supply=supply, hard=self._hard)
        self.finish = kernels.Finish.bind(slabs=tables, supply=supply)

    def count(self, run: Run) -> tuple[Struct, Array, BatchInspection]:
        """Look the keys up and choose rows for new tables. Returns keys, outcomes, and counts."""
        n = len(run)
        keys = Struct(keys=run.keys, weight=run.weight, n=n, outcome=self.outcome, place=self.place)
        self._locate(n, keys=run.keys, op=run.op, n=n)
        self._choose(n // CHOSEN + 1, keys=run.keys, n=n)
        self._report(STATUS)
        outcome = self.outcome[:n]
        self.device.synchronize()  # the only wait for it
        return keys, outcome, BatchInspection(**dict(zip(WORDS, self.mail.tolist(), strict=True)))
