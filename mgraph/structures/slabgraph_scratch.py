"""The memory that slabgraph prepares a batch in, what it counts there, and its kernels with both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Library, Struct, View
from mgraph.structures.contract import KEPT, Counts
from mgraph.structures.run import Run
from mgraph.structures.slabgraph_pool import PIECE_BUCKETS

__all__ = ["LATE", "STATUS", "Found", "Scratch"]

Array = Any
TASK, LATE, WARP, CHOSEN = 8, 4, 32, 4096  # words of a task and of a late edge; lanes; keys of a block in Choose
PIECE_KEYS, CHAIN_UNIT = 256, 1 << 20  # as slabgraph_table.cuh has them


@dataclass
class Found:
    """What prepare counted: slabgraph_table.cuh's Status, in its order."""

    moves: int
    others: int
    chain_slabs: int
    unknown: int
    tasks: int
    pieces: int
    singles: int
    runs: int
    released: int
    task_slabs: int
    task_edges: int
    task_inserts: int
    free: int
    tail: int
    freed: int
    late: int

    @property
    def counts(self) -> Counts:
        """Exact counts."""
        low = 0xFFFFFFFF
        return Counts(self.moves >> 32, self.others >> 32, self.moves & low, self.others & low)

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

    @property
    def new_buckets(self) -> int:
        """How many more buckets all tables will have."""
        return self.singles + self.runs - self.released

    def chained_packed(self, buckets: int, slots: int) -> int:
        """`chained` to chains without gaps, whose last slabs may be full: one a slabful of inserts and a bucket."""
        inserts = min(self.moves >> 32, self.chain_slabs * slots // CHAIN_UNIT)  # into tables of several buckets
        return self.task_slabs + min(inserts, inserts // slots + buckets)

    def late_edges(self, packed: bool) -> int:
        """The most edges that will wait for a slab; `packed` where chains lose their gaps, and so slots, before."""
        return (self.moves >> 32) - self.task_inserts + self.task_edges if self.chained or packed else 0


STATUS = len(Found.__dataclass_fields__)


class Scratch:
    """Memory for a batch of up to `capacity` operations, some 80 bytes each: one allocation.

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
            (STATUS, np.int64), (warps, np.uint64), (capacity, np.int64), (capacity, np.uint8), (4 * warps, np.uint32),
            (TASK * tasks, np.uint32), (pieces, np.uint64), (late, np.uint32),
        )  # fmt: skip
        device.fill(moves, 0)  # whoever reads them sets them back
        self.mail, self.mailbox = device.mailbox(STATUS)
        marks, tally, chains, self._hard = (words[i * warps : (i + 1) * warps] for i in range(4))
        self.listed = Struct(tasks=self.tasks, pieces=self.pieces)
        self._found = Struct(
            place=self.place, outcome=self.outcome, moves=moves, marks=marks, tally=tally, chains=chains
        )

    def _warps(self, n: int) -> int:
        return n if self.device.kind == "cpu" else n // WARP + 1  # on a CPU they are as wide as a build has them

    def bind(self, kernels: Library, graph: View, supply: Array, rows: int, vertices: int) -> None:
        """Pack what prepare's kernels take of this memory and of the structure, once for many batches."""
        status, found = self.status, self._found
        self._locate = kernels.Locate.bind(graph=graph, rows=rows, vertices=vertices, found=found, status=status)
        self._choose = kernels.Choose.bind(
            graph=graph, found=found, state=supply, tasks=self.tasks, pieces=self.pieces, status=status
        )
        self._report = kernels.Report.bind(status=status, n=STATUS, mailbox=self.mailbox)

    def bind_commit(self, kernels: Library, slabs: Struct, free: Array, state: Array) -> None:
        """The same for commit's kernels: again where the pool is another one, or more edges may wait."""
        tables = Struct(**{**slabs.values, "late": self.late})
        supply = Struct(free=free, status=self.status)
        self.change = kernels.Change.bind(slabs=tables)
        self.fill = kernels.Fill.bind(tasks=self.listed, slabs=tables, supply=supply)
        self.insert = kernels.Insert.bind(slabs=tables, hard=self._hard)
        self.insert_hard = kernels.InsertHard.bind(slabs=tables, supply=supply, hard=self._hard)
        self.finish = kernels.Finish.bind(slabs=tables, supply=supply, state=state)

    def count(self, run: Run) -> tuple[Struct, Array, Found]:
        """Look a run's keys up and choose rows for other tables: the keys and their places, outcomes, all counts."""
        n = len(run)
        keys = Struct(keys=run.keys, weight=run.weight, n=n, outcome=self.outcome, place=self.place)
        self._locate(n, keys=run.keys, op=run.op, n=n)
        self._choose(n // CHOSEN + 1, keys=run.keys, n=n)
        self._report(STATUS)
        outcome = self.outcome[:n]
        self.device.synchronize()  # the one wait for it
        return keys, outcome, Found(*self.mail.tolist())
