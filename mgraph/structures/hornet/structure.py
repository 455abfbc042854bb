"""hornet: every row is one block of a power of two of slots, sorted; blocks of one size lie in block arrays.

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
its row by binary search; from there on counts say everything. prepare adds up, class by class, how many blocks the
batch takes and gives back, and what the arrays have; commit opens bare arrays where a class has too few free blocks,
takes all blocks at once, and merges every row that changes with its keys, which gives its old block back. An array
whose last block is freed is bare again, at once.

What differs from the paper:

- Rows are sorted, so that a key is found in O(log degree) and two rows are intersected as in csr. A changed row is
  merged where it lies, or on its way into its new block.
- The paper keeps the arrays of one size in a B+ tree by free blocks and looks up one array for one block. Here one pass
  over the arrays' counts ranks all free blocks, so that each array knows which of the batch's requests it answers. It
  costs a look at each array, some 4,000, however many blocks are asked for; a tree costs a search per block, and every
  block taken or given back would move its array in it. Arrays are used up from the first one on, and so the last ones
  drain.
- A row's block follows its degree also when it shrinks: the block is halved as soon as half is empty.
- Arrays lie in one pool, so that a row is 8 bytes and is read without a look at a table. A pool that has too few bare
  arrays grows where it is: memory is mapped behind it, and no row moves. One that cannot, or has four times as many
  arrays as a new one, or is mostly unused, is replaced: all rows are copied into a new one, with `spare` bare arrays.
- Duplicates, within a batch and against the graph, are found, and counts are exact.

What it is bad at: a change of one edge of a row moves the row's edges behind it.

Invariants
----------
1. There is a word per row, 0 where the row has no edges. Degrees add up to num_edges.
2. A row's block has the class of its degree, and lies in an array of that class, at a multiple of its size; a block
   that is larger than an array begins with one, and those that follow are marked as its rest.
3. No two rows share a block, and a leaf bit is 0 where a row has the block, else 1; past an array's blocks it is 0.
4. A node bit is 1 where its leaf word has a 1; frees counts an array's leaf bits.
5. No array is without rows unless it is bare, and the rows' blocks have as many slots as counted.
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
LEAST_SLOTS = 4096  #: a pool of up to so many is not too large


@dataclass
class _Work:
    """What a commit needs, all of it allocated."""

    look: BatchInspection | None = None
    rebuild: Rebuild | None = None
    larger: HornetPool | None = None  # the pool where it is, with more arrays
    huge: dict[str, Array] | None = None  # room for copies and pieces of huge rows


class Hornet(Structure):
    """Rows as sorted blocks of a power of two.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    spare : float
        How many bare arrays a new pool has, as a share of those in use.
    array : int, optional
        Slots per block array, a power of two from 32 to 2**26; by default such that a new pool has some 4,000 arrays.

    Notes
    -----
    A batch of b operations costs O(b log d) for its searches, where d is the degree, and per row that changes the
    edges behind the first change; 3 to 6 launches and one wait for the device. Where the pool is replaced it waits
    twice; that costs O(n_rows + m), amortised over the batches. Memory: 4 bytes and a bit per slot (8 with weights) and
    8 bytes per row. Neighbours are sorted.
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
        self.kernels = {part: _load(device, part) for part in PARTS}
        self.rows = device.zeros(n_rows, np.uint64)
        self.pool = HornetPool.empty(device, LEAST_BITS, 0, 0, weighted)
        self.used = 0  # slots of the rows' blocks
        self._changed()

    def _changed(self) -> None:
        """Pack what kernels take of the arrays, once for all launches until they are replaced."""
        pool = self.pool
        fields = {"rows": self.rows, "slots": pool.slots, "weights": pool.weights, "unit": pool.unit}
        self._view = View("structures/hornet/view.cuh", "HornetView", fields)
        self._arrays = pool.struct()

    @property
    def checks_ids(self) -> bool:
        """Whether the next `_prepare` itself checks the ids of an unchecked run: not where it is the first."""
        return self.num_edges > 0

    # --- prepare ---

    def _prepare(self, run: Run) -> Plan:
        """O(n log d) in 2 launches; waits once on a GPU, twice for a new pool."""
        if not self.num_edges:
            found, outcome, numbers = number_first_batch(self.device, self.kernels["layout"], run)
            new = plan_build(self, run, numbers) if found.inserted else None
            return Plan(run, found, outcome, _Work(rebuild=new), self._state)
        scratch = self._take_scratch(run)
        look = scratch.look(
            self.kernels["prepare"], run, self._view, self._arrays, self.pool.arrays, self.n_rows, self.n_vertices
        )
        if look.unknown:
            self._keep(scratch)
            self._refuse(run, look.unknown)
        plan = Plan(run, look.counts, scratch.outcome[: len(run)], _Work(look), self._state, scratch)
        if look.counts.inserted or look.counts.deleted:
            lack = look.needs.lack(self.pool)
            plan.work.larger = self.pool.longer(self.device, lack) if lack else None
            plan.work.rebuild = None if plan.work.larger else self._new_pool(look, lack, run, scratch)
            plan.work.huge = self._room_for_huge(look, copies=plan.work.rebuild is None) if look.pieces else None
        return plan

    def _new_scratch(self, capacity: int, run: Run) -> HornetScratch:
        return HornetScratch(self.device, capacity, self.pool.arrays)

    def _new_pool(self, look: BatchInspection, lack: int, run: Run, scratch: HornetScratch) -> Rebuild | None:
        """A new pool, where a batch needs one; or where this one would be mostly unused and memory has the room."""
        if lack:
            return plan_rebuild(self, self._view, scratch.batch(run))
        if self._too_large(self.used + look.needs.slots):
            with suppress(CapacityError):
                return plan_rebuild(self, self._view, scratch.batch(run))
        return None

    def _room_for_huge(self, look: BatchInspection, copies: bool) -> dict[str, Array]:
        n, empty = look.saved if copies else 0, self.device.empty
        return {
            "spots": empty(look.rows[-1], np.int64), "tasks": empty(look.pieces, np.uint64), "ids": empty(n, np.uint32),
            "weights": empty(n, np.float32) if self.weighted else None,
        }  # fmt: skip

    def _too_large(self, used: int) -> bool:
        return len(self.pool.slots) > max(2 * used * (1 + self.spare), LEAST_SLOTS)

    # --- commit ---

    def _commit(self, plan: Plan, work: _Work) -> None:
        counts, run, scratch = plan.counts, plan.run, plan.scratch
        if work.rebuild and work.rebuild.numbers:
            self._fill(run, work.rebuild)
        elif work.look:
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
        self.kernels["layout"].FillRows(
            len(run), numbers=new.numbers, keys=run.keys, weight=run.weight, starts=new.starts, to=new.target()
        )
        self._take_over(new)

    def _take_over(self, new: Rebuild) -> None:
        self.pool, self.rows, self.used = new.pool, new.rows, new.used
        self._changed()

    def _change(self, run: Run, work: _Work, batch: Struct, scratch: HornetScratch) -> None:
        assert work.look is not None
        old, needs = self.pool, work.look.needs
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
        """Copy the rows that a batch leaves as they are into a new pool."""
        kernels, given = self.kernels["layout"], {"graph": self._view, "to": new.target(), "tasks": new.tasks}
        kernels.CopyRows(self.n_rows, **given, rows=self.n_rows, changed=new.changed, n_tasks=new.n_tasks)
        kernels.CopyHubs(len(new.tasks), **given, n_tasks=new.n_tasks)

    def _merge(self, work: _Work, batch: Struct, run: Run, scratch: HornetScratch, old: HornetPool) -> None:
        """Merge the rows that change with their keys, from where they lay to where they now lie."""
        assert work.look is not None
        kernels, new = self.kernels["merge"], self.pool
        slots = Struct(
            ids=old.slots, weights=old.weights, unit=old.unit, ids_out=new.slots, weights_out=new.weights,
            unit_out=new.unit,
        )  # fmt: skip
        words = Struct(rows=self.rows, blocks=None if work.rebuild else scratch.blocks)
        given = {"batch": batch, "slots": slots, "words": words, "arrays": self._arrays, "at": scratch.words}
        few, some, many, huge = work.look.rows
        pieces, copies, saved = work.look.pieces, 0, _NOTHING_SAVED
        if work.huge:
            saved = Struct(list=scratch.many[scratch.capacity - 1 :], **work.huge)
            copies = 0 if work.rebuild or not work.look.saved else pieces
            kernels.ListPieces(huge, **given, n=huge, saved_rows=saved)
        blocks = copies + many + pieces + -(-some // BY_WARPS) + -(-few // BY_FEW_LANES)
        kernels.Merge(
            blocks, **given, weight=run.weight, lists=scratch.lists, few=few, some=some, many=many, pieces=pieces,
            copies=copies, saved_rows=saved,
        )  # fmt: skip

    # --- the rest of the contract ---

    def rebuild(self) -> None:
        """Move all rows into a new pool as large as they need; `CapacityError` and no change where it does not fit."""
        new = plan_rebuild(self, self._view)
        self._copy(new)
        self._take_over(new)
        self._state = object()

    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        rows = self.device.empty(n_rows, np.uint64)
        rows[: self.n_rows] = self.rows
        rows[self.n_rows :] = 0
        return {"rows": rows}

    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        self.rows = arrays["rows"]
        self._changed()

    def view(self) -> View:
        """What algorithms' kernels read; valid until the next commit of a batch or of vertices."""
        return self._view

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the structure holds."""
        return int(self.rows.nbytes) + self.pool.nbytes

    def fill(self) -> Fill:
        """How full the blocks, the arrays and the pool are, as the paper reports it. O(arrays), a read-back."""
        return measure_fill(self)

    def check_invariants(self) -> None:
        """Assert the invariants that the module's docstring numbers. O(n_rows + m), on the host."""
        check_hornet(self)


def _load(device: Device, part: str) -> Any:
    defines: dict[str, Any] = {"HUB_DEGREE": HUB_DEGREE} if part == "layout" else SIZES if part in SIZED else {}
    return load(device, f"structures/hornet/{part}.cuh", **defines)
