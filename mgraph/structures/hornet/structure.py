"""hornet: each row is a sorted block of a power of two of slots, in an array of such blocks.

::

    rows      row 0: 3 edges -> [ 2 5 9 . ]      row 1: 1 edge -> [ 7 ]      row 2: 9 edges -> [ 0 1 4 ... ]
    (8 bytes
     a row)   pool, cut into arrays of equal size; an array has blocks of one class, or is bare
    slots     | class 0: [7] [3] [.] [1] | class 2: [2 5 9 .] [. . . .] | class 4: [0 1 4 ... ] | bare |  ...
    leaves    | 0 0 1 0                  | 0 1                          | 0                     |         1: free
    nodes     | 1                        | 1                            | 0                     |         1: leaf word
    frees     | 1                        | 1                            | 0                     |         has a 1

A row of n edges has a block of the least power of two that holds them, as in Busato, Green, Bombieri, Bader: Hornet: An
Efficient Data Structure for Dynamic Sparse Graphs and Matrices on GPUs (HPEC 2018). A batch finds every key's place in
its row by binary search; everything else follows from counts. prepare adds up, per class, the blocks that the batch
allocates and frees, and the arrays' free blocks; commit opens bare arrays where a class has too few free blocks,
allocates all blocks at once, and merges every changed row with its keys, which frees its old block. An array whose last
block is freed is bare again at once.

Differences from the paper:

- Rows are sorted, so that a key is found in O(log degree) and two rows are intersected as in csr. A changed row is
  merged in place, or on its way into its new block.
- The paper keeps the arrays of one size in a B+ tree by free blocks, and searches an array per block. Here one pass
  over the arrays' counts ranks all free blocks, so that each array knows which of the batch's requests it serves. This
  reads about 4,000 counts, however many blocks are requested; a tree costs a search per block, and each allocation or
  deallocation would move an array in it. Arrays are used up from the first one on, and so the last ones drain.
- A row's block also shrinks with its degree: the block is halved as soon as half is empty.
- Arrays lie in one pool, so that a row is 8 bytes and is read without a table. A pool with too few bare arrays grows in
  place: memory is mapped behind it, and no row moves. A pool that cannot grow, or has four times as many arrays as a
  new one, or is mostly unused, is replaced: all rows are copied into a new one, with `spare` bare arrays.
- Duplicates, within a batch and against the graph, are detected, and counts are exact.

Weakness: a change of one edge of a row moves the row's edges behind it.

Invariants
----------
1. Each row has a word, 0 if the row has no edges. Degrees add up to num_edges.
2. A row's block has the class of its degree, and lies in an array of that class, at a multiple of its size; a block
   larger than an array begins at an array, and the arrays that follow are marked as its rest.
3. No two rows share a block. A leaf bit is 0 for a row's block, 1 for a free one, and 0 past an array's blocks.
4. A node bit is 1 if its leaf word has a 1; frees counts an array's leaf bits.
5. No array is without rows unless it is bare, and the count of the rows' slots is exact.
6. Every row's dst strictly ascend and are below n_vertices.
7. There are as many weights as slots, and no weight of an edge is NaN.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.kernels import Struct, View, load
from mgraph.parallel_copy import cloned
from mgraph.structures.contract import HUB_DEGREE, Structure
from mgraph.structures.first_batch import number_first_batch
from mgraph.structures.hornet.check import Fill, check_hornet, measure_fill
from mgraph.structures.hornet.pool import LEAST_BITS, MOST_BITS, HornetPool, Rebuild, plan_build, plan_rebuild
from mgraph.structures.hornet.scratch import BY_FEW_LANES, BY_WARPS, BatchInspection, HornetScratch
from mgraph.structures.plan import Plan
from mgraph.structures.run import Run

__all__ = ["Hornet"]

Array = Any
PARTS = ("prepare", "allocate", "merge", "layout")
SIZED = ("prepare", "merge")
SIZES: dict[str, int] = {}  #: macros for these parts, by which tests make small rows huge
_NOTHING_SAVED = Struct(list=None, spots=None, tasks=None, ids=None, weights=None)
LEAST_SLOTS = 4096  #: a pool of up to this size is never too large


@dataclass
class _Work:
    """Allocated memory of a commit."""

    inspection: BatchInspection | None = None
    rebuild: Rebuild | None = None
    larger: HornetPool | None = None  # the pool grown in place
    huge: dict[str, Array] | None = None  # memory for copies and pieces of huge rows


class Hornet(Structure):
    """Rows as sorted blocks of a power of two.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    spare : float
        Bare arrays of a new pool, relative to those in use.
    array : int, optional
        Slots per block array, a power of two from 32 to 2**26; by default such that a new pool has some 4,000 arrays.

    Notes
    -----
    A batch of b operations costs O(b log d) for its searches, where d is the degree, and per changed row the edges
    behind the first change; 3 to 6 launches and one wait for the device. A new pool takes a second wait and O(n_rows +
    m), amortised over the batches. Memory: 4 bytes and a bit per slot (8 with weights) and 8 bytes per row. Neighbours
    are sorted.
    """

    name: ClassVar[str] = "hornet"
    sorted_rows: ClassVar[bool] = True
    contiguous_rows: ClassVar[bool] = True

    def __init__(
        self,
        n_rows: int,
        n_vertices: int,
        device: Device,
        weighted: bool,
        *,
        spare: float = 0.2,
        array: int | None = None,
    ) -> None:
        super().__init__(n_rows, n_vertices, device, weighted)
        if not 0.01 <= spare <= 16:
            raise InvalidOption(f"spare of {spare}; it must be from 0.01 to 16")
        if array is not None and (array & (array - 1) or not 1 << LEAST_BITS <= array <= 1 << MOST_BITS):
            raise InvalidOption(f"array of {array} slots; it must be a power of two from 32 to {1 << MOST_BITS}")
        self.spare, self.array = spare, array
        self._load_kernels()
        self.rows = device.zeros(n_rows, np.uint64)
        self.pool = HornetPool.empty(device, LEAST_BITS, 0, 0, weighted)
        self.used = 0  # slots of the rows' blocks
        self._changed()

    def _load_kernels(self) -> None:
        self.kernels = {part: _load(self.device, part) for part in PARTS}

    def _changed(self) -> None:
        """Pack the arrays for kernels, once until they are replaced."""
        pool = self.pool
        fields = {"rows": self.rows, "slots": pool.slots, "weights": pool.weights, "unit": pool.unit}
        self.single = None
        self._view = View("structures/hornet/view.cuh", "HornetView", fields)
        self._arrays = pool.struct()

    @property
    def checks_ids(self) -> bool:
        """True if the next `_prepare` checks the ids of an unchecked run: not for a first batch."""
        return self.num_edges > 0

    # --- prepare ---

    def _prepare(self, run: Run) -> Plan:
        """Prepare in O(n log d) and 2 launches; waits once on a GPU, twice for a new pool."""
        # A first batch needs no search.
        if not self.num_edges:
            counts, outcome, numbers = number_first_batch(self.device, self.kernels["layout"], run)
            new = plan_build(self, run, numbers) if counts.inserted else None
            return Plan(run, counts, outcome, _Work(rebuild=new), self.state)

        # Inspect the batch.
        scratch = self._take_scratch(run)
        seen = scratch.inspect(
            self.kernels["prepare"], run, self._view, self._arrays, self.pool.arrays, self.n_rows, self.n_vertices
        )
        if seen.unknown:
            self._keep(scratch)
            self._refuse(run, seen.unknown)

        # Grow the pool in place, or plan a new one; allocate pieces of huge rows.
        plan = Plan(run, seen.counts, scratch.outcome[: len(run)], _Work(seen), self.state, scratch)
        if seen.counts.inserted or seen.counts.deleted:
            lack = seen.needs.lack(self.pool)
            plan.work.larger = self.pool.longer(self.device, lack) if lack else None
            plan.work.rebuild = None if plan.work.larger else self._new_pool(seen, lack, run, scratch)
            plan.work.huge = self._room_for_huge(seen, copies=plan.work.rebuild is None) if seen.pieces else None
        return plan

    def _new_scratch(self, capacity: int, run: Run) -> HornetScratch:
        return HornetScratch(self.device, capacity, self.pool.arrays)

    def _new_pool(self, seen: BatchInspection, lack: int, run: Run, scratch: HornetScratch) -> Rebuild | None:
        """Plan a new pool if a batch needs it, or if this one would be mostly unused."""
        if lack:
            return plan_rebuild(self, self._view, scratch.batch(run))
        if self._too_large(self.used + seen.needs.slots):
            with suppress(CapacityError):
                return plan_rebuild(self, self._view, scratch.batch(run))
        return None

    def _room_for_huge(self, seen: BatchInspection, copies: bool) -> dict[str, Array]:
        """Allocate memory for copies and pieces of huge rows."""
        n, empty = seen.saved if copies else 0, self.device.empty
        return {
            "spots": empty(seen.rows[-1], np.int64), "tasks": empty(seen.pieces, np.uint64), "ids": empty(n, np.uint32),
            "weights": empty(n, np.float32) if self.weighted else None,
        }  # fmt: skip

    def _too_large(self, used: int) -> bool:
        return len(self.pool.slots) > max(2 * used * (1 + self.spare), LEAST_SLOTS)

    # --- commit ---

    def _commit(self, plan: Plan, work: _Work) -> None:
        counts, run, scratch = plan.counts, plan.run, plan.scratch
        if work.rebuild and work.rebuild.numbers:
            self._fill(run, work.rebuild)
        elif work.inspection:
            batch = scratch.batch(run)
            if self.weighted and counts.updated:
                self.kernels["merge"].SetWeights(
                    len(run), batch=batch, graph=self._view, weight=run.weight, weights=self.pool.weights
                )
            if counts.inserted or counts.deleted:
                self._change(run, work, batch, scratch)
            self._keep(scratch)
        self.num_edges += counts.inserted - counts.deleted

    def _fill(self, run: Run, new: Rebuild) -> None:
        """Write the first batch into its pool."""
        self.kernels["layout"].FillRows(
            len(run), numbers=new.numbers, keys=run.keys, weight=run.weight, starts=new.starts, to=new.target()
        )
        self._take_over(new)

    def _take_over(self, new: Rebuild) -> None:
        self.pool, self.rows, self.used = new.pool, new.rows, new.used
        self._changed()

    def _change(self, run: Run, work: _Work, batch: Struct, scratch: HornetScratch) -> None:
        """Replace or grow the pool, allocate blocks, and merge the changed rows."""
        assert work.inspection is not None
        # Rows are merged from the old pool into the new one, or within the pool.
        old, needs = self.pool, work.inspection.needs
        if work.rebuild:
            self._copy(work.rebuild)
            self._take_over(work.rebuild)
        else:
            if work.larger:
                self.pool = work.larger
                self._changed()
            if needs.taken:
                self.kernels["allocate"].AllocateBlocks(
                    self.pool.arrays, arrays=self._arrays, ranks=scratch.ranks, at=scratch.words, list=scratch.blocks
                )
            self.used += needs.slots
        self._merge(work, batch, run, scratch, old)

    def _copy(self, new: Rebuild) -> None:
        """Copy the unchanged rows into a new pool."""
        kernels, common = self.kernels["layout"], {"graph": self._view, "to": new.target(), "tasks": new.tasks}
        kernels.CopyRows(self.n_rows, **common, rows=self.n_rows, changed=new.changed, n_tasks=new.n_tasks)
        kernels.CopyHubs(len(new.tasks), **common, n_tasks=new.n_tasks)

    def _merge(self, work: _Work, batch: Struct, run: Run, scratch: HornetScratch, old: HornetPool) -> None:
        """Merge the changed rows with their keys, from their old to their new blocks."""
        assert work.inspection is not None
        kernels, new = self.kernels["merge"], self.pool
        slots = Struct(
            ids=old.slots, weights=old.weights, unit=old.unit, ids_out=new.slots, weights_out=new.weights,
            unit_out=new.unit,
        )  # fmt: skip
        words = Struct(rows=self.rows, blocks=None if work.rebuild else scratch.blocks)
        common = {"batch": batch, "slots": slots, "words": words, "arrays": self._arrays, "at": scratch.words}

        # Save the edges of huge rows that are merged in place, since several blocks write them.
        few, some, many, huge = work.inspection.rows
        pieces, copies, saved = work.inspection.pieces, 0, _NOTHING_SAVED
        if work.huge:
            saved = Struct(list=scratch.many[scratch.capacity - 1 :], **work.huge)
            copies = 0 if work.rebuild or not work.inspection.saved else pieces
            kernels.ListPieces(huge, **common, n=huge, saved_rows=saved)

        # One launch for all sizes: copies, rows by blocks, pieces, rows by warps and by few lanes.
        blocks = copies + many + pieces + -(-some // BY_WARPS) + -(-few // BY_FEW_LANES)
        kernels.Merge(
            blocks, **common, weight=run.weight, lists=scratch.lists, few=few, some=some, many=many, pieces=pieces,
            copies=copies, saved_rows=saved,
        )  # fmt: skip

    # --- the rest of the contract ---

    def rebuild(self) -> None:
        """Move all rows into a new pool of the needed size; `CapacityError`, without a change, if it does not fit."""
        new = plan_rebuild(self, self._view)
        self._copy(new)
        self._take_over(new)
        self.state = object()

    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        rows = self.device.empty(n_rows, np.uint64)
        rows[: self.n_rows] = self.rows
        rows[self.n_rows :] = 0
        return {"rows": rows}

    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        self.rows = arrays["rows"]
        self._changed()

    def _own_arrays(self) -> None:
        self._load_kernels()
        self.rows, self.pool = cloned(self.device, self.rows), self.pool.clone(self.device)
        self._changed()

    def view(self) -> View:
        """Return the view for algorithms' kernels; valid until the next commit."""
        return self._view

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self.rows.nbytes) + self.pool.nbytes

    def fill(self) -> Fill:
        """Return the fill of blocks, arrays and pool, as in the paper. O(arrays), a read-back."""
        return measure_fill(self)

    def check_invariants(self) -> None:
        """Assert the module's invariants. O(n_rows + m), on the host."""
        check_hornet(self)


def _load(device: Device, part: str) -> Any:
    defines: dict[str, Any] = {"HUB_DEGREE": HUB_DEGREE} if part == "layout" else SIZES if part in SIZED else {}
    return load(device, f"structures/hornet/{part}.cuh", **defines)
