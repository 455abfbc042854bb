"""The memory in which slabgraph prepares a batch, what it counts there, and the kernels bound to it."""

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
ALL_WORDS = _TABLE["all_words"]  # with the holes of each class that were taken and are listed
PIECE_KEYS, CHAIN_UNIT = _TABLE["piece_keys"], _TABLE["chain_unit"]
TASK, LATE = _TABLE.size("Task") // 4, constants("structures/slabgraph/supply.cuh").size("Late") // 4  # words of each
WARP = 32  # lanes
CHOSEN = _PREPARE["Choose::lanes"] * WARP // 2  # keys of a block in Choose: half of its lanes have a word of marks


@dataclass
class BatchInspection:
    """What prepare counted, by the names of Status in ``table.cuh``."""

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
        """The most slabs that commit will chain."""
        return self.chain_slabs // CHAIN_UNIT + self.task_slabs

    @property
    def needs(self) -> int:
        """Slabs that the pool must have."""
        return self.tail_slab + self.runs + max(0, self.singles + self.chained - self.free_slabs)

    @property
    def unused(self) -> int:
        """Slabs below the tail that are in no chain: free ones and holes."""
        return self.free_slabs + self.hole_slabs

    @property
    def holds(self) -> int:
        """The most slabs that will be in chains after the batch."""
        return self.tail_slab - self.unused + self.new_buckets + self.chained

    @property
    def new_buckets(self) -> int:
        """How many more buckets all tables will have."""
        return self.singles + self.runs + self.reused - self.ones - self.left

    def compact(self) -> None:
        """Count as after a compaction: no slab is unused, and all new tables go to the tail."""
        self.tail_slab, self.free_slabs, self.hole_slabs = self.tail_slab - self.unused, 0, 0
        self.runs, self.reused = self.runs + self.reused, 0

    def chained_packed(self, buckets: int, slots: int) -> int:
        """`chained` if chains have no gaps, so that their last slabs may be full: a slab per slabful and per bucket."""
        inserts = min(self.all_moves >> 32, self.chain_slabs * slots // CHAIN_UNIT)  # into tables of several buckets
        return self.task_slabs + min(inserts, inserts // slots + buckets)

    def late_edges(self, packed: bool) -> int:
        """The most edges that will wait for a slab; `packed` if chains lose their gaps, and so free slots, before."""
        return (self.all_moves >> 32) - self.task_inserts + self.task_edges if self.chained or packed else 0


STATUS = len(WORDS)


class SlabScratch:
    """Memory for a batch of up to `capacity` operations, one allocation of some 88 bytes per operation.

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
        tasks = min(capacity, n_rows)  # and their pieces: the last one of each may be a small one
        pieces = tasks + capacity // PIECE_KEYS + min(tasks, slabs) + slabs // PIECE_BUCKETS
        late = LATE * capacity if capacity <= KEPT else 0  # of a large batch their number is known before
        (
            self.status, moves, self.place, self.outcome, words, self.tasks, self.pieces, self.late,
        ) = device.carve(
            (ALL_WORDS, np.int64), (warps, np.uint64), (capacity, np.int64), (capacity, np.uint8),
            (4 * warps, np.uint32), (TASK * tasks, np.uint32), (pieces, np.uint64), (late, np.uint32),
        )  # fmt: skip
        device.fill(moves, 0)  # kernels that read them reset them
        self.mail, self.mailbox = device.mailbox(STATUS)
        marks, tally, chains, self._hard = (words[i * warps : (i + 1) * warps] for i in range(4))
        self.listed = Struct(tasks=self.tasks, pieces=self.pieces)
        self._found = Struct(
            place=self.place, outcome=self.outcome, moves=moves, marks=marks, tally=tally, chains=chains
        )

    def _warps(self, n: int) -> int:
        return n if self.device.kind == "cpu" else n // WARP + 1  # on a CPU they are as wide as a build has them

    def bind(self, kernels: Library, graph: View, pool: SlabPool, supply: Array, rows: int, vertices: int) -> None:
        """Pack what prepare's kernels take of this memory and of the structure, once for many batches."""
        status, found = self.status, self._found
        self._locate = kernels.Locate.bind(graph=graph, rows=rows, vertices=vertices, found=found, status=status)
        self._choose = kernels.Choose.bind(
            graph=graph, found=found, state=supply, holes=pool.holes, tasks=self.tasks, pieces=self.pieces,
            status=status,
        )  # fmt: skip
        self._report = kernels.Report.bind(status=status, n=STATUS, mailbox=self.mailbox)

    def bind_commit(self, kernels: Library, slabs: Struct, pool: SlabPool, state: Array) -> None:
        """`bind` for commit's kernels; repeated where the pool is replaced, or more edges may wait."""
        tables = Struct(**{**slabs.values, "late": self.late})
        supply = pool.supply(state, self.status)
        self.change = kernels.Change.bind(slabs=tables)
        self.fill = kernels.Fill.bind(tasks=self.listed, slabs=tables, supply=supply)
        self.insert = kernels.Insert.bind(slabs=tables, hard=self._hard)
        self.insert_hard = kernels.InsertHard.bind(slabs=tables, supply=supply, hard=self._hard)
        self.finish = kernels.Finish.bind(slabs=tables, supply=supply)

    def count(self, run: Run) -> tuple[Struct, Array, BatchInspection]:
        """Look a run's keys up and choose the rows that get another table; the keys' places, outcomes, all counts."""
        n = len(run)
        keys = Struct(keys=run.keys, weight=run.weight, n=n, outcome=self.outcome, place=self.place)
        self._locate(n, keys=run.keys, op=run.op, n=n)
        self._choose(n // CHOSEN + 1, keys=run.keys, n=n)
        self._report(STATUS)
        outcome = self.outcome[:n]
        self.device.synchronize()  # the one wait for it
        return keys, outcome, BatchInspection(**dict(zip(WORDS, self.mail.tolist(), strict=True)))
