"""graphvine: rows as lists of blocks, allocated from queues of free blocks.

::

    sentinels   row 0: degree 5, root -> block [ 7 2 9 4 3 . . . ]                      a row that fits in one block
    (8 bytes    row 1: degree 2, root -> quarter [ 5 1 ]                                or a quarter, or a half of one
     a row)     row 2: degree 19, root -> directory [ room | A | B | C ]    A [ 8 edges ]  B [ 8 edges ]  C [ 3 edges ]
    slots       [ 7 2 9 4 3 . . . | 5 1 | ..A.. | room A B C | ..B.. | ..C.. |  never used yet ...  ]
    rings       quarters [ 4 9 ]   halves [ ]   blocks [ 30 22 ]                        freed pieces

A row's edges are numbered 0 .. degree - 1 in no order, and edge i is in block i // block. An insert goes behind the
last edge. A deletion leaves a hole, which an insert of the same batch fills, or else the row's last edge (Krishnan,
Tavva, Nasre: GraphVine: A Data Structure to Optimize Dynamic Graph Processing on GPUs). prepare reads every touched row
once and looks its edges up among the row's keys in the batch; counts and prefix sums then give each edge and each block
its place. commit deletes in place, reserves the blocks of every touched row, and inserts. Beyond the paper:

- Duplicates, within a batch and against the graph, are detected, and counts are exact.
- `compact`: holes are filled, emptied blocks go back to their queue, and the pool's size follows the live edges.
  Without it, as in the paper, deleted edges keep their slots until their row is empty.
- `fine`: a row that fits in a half or a quarter of a block gets only that, and the block size follows the mean degree
  whenever the pool is rebuilt. Without it the first batch determines the size of all blocks permanently.
- `directory`: the complete binary tree of a row's blocks is an array in breadth-first order, so that a block is found
  in O(1). Without it blocks point to their children, and the bits of a block's number lead down to it.
- `split`: all rows get their blocks first, then one lane per edge inserts. Without it one lane per row inserts.

If the queues run dry, the pool grows in place: memory is mapped behind it, and no row moves. It is rebuilt if that
fails, if a quarter of it waits in the queues, or if blocks of another size have become better: all rows are copied, one
after another, into a new pool that is then 80% full (`spare`). This also frees memory, outgrown directories and pieces
of unused sizes. (`share` is the paper's way.)

Weaknesses: a batch reads every touched row completely, 4 bytes per edge, so it is slow with a few edges of each of many
hubs. A query for an edge is O(degree); queries for the same long row share a scan. To delete vertices, one thread block
per long row compacts it from its first edge to its last.

Invariants
----------
1. The sentinels are a power of two, at least n_rows; those past n_rows are 0; their degrees add up to num_edges.
2. Blocks and directories of rows, the pieces in the rings and the quanta never used do not overlap and lie in the
   pool.
3. A row of n positions has ceil(n / block) blocks; if `fine`, a row of one block has the smallest piece that holds it.
4. A directory has room for its row's blocks.
5. The live edges of a row differ and are below n_vertices; there are as many as its degree.
6. No position holds a dead edge if the structure is compact; no row without edges has positions.
7. The counts of rows with edges and of the blocks' quanta are exact.
8. There are as many weights as slots, and no weight of a live edge is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Library, Struct, View, constants, load
from mgraph.parallel_copy import cloned
from mgraph.structures.contract import KEPT, Structure
from mgraph.structures.graphvine.check import check_graphvine
from mgraph.structures.graphvine.inspect_batch import BatchInspection, GraphVineScratch, TouchedRows
from mgraph.structures.graphvine.pool import GraphVinePool, Needs, Queues, Rebuild, plan_rebuild, quanta_of
from mgraph.structures.graphvine.vertices import sever
from mgraph.structures.plan import Counts, Plan
from mgraph.structures.run import Run
from mgraph.structures.sort import sort_keys

__all__ = ["GraphVine"]

Array = Any
PIECE = constants("structures/graphvine/rebuild.cuh")["piece"]  # slots
PARTS = ("membership", "prepare", "reserve_blocks", "rebuild", "commit", "vertices")


@dataclass
class _Work:
    """Allocated memory of a commit."""

    inspection: BatchInspection
    pieces: Array = None  # memory for pieces of rows with very much work
    rebuild: Rebuild | None = None
    larger: GraphVinePool | None = None


class GraphVine(Structure):
    """Rows as lists of blocks from pre-allocated queues.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    block : int, optional
        Edges per block, a power of two from 4 to 128; by default the mean degree of the rows with edges, rounded up to
        a power of two.
    spare : float
        Spare room of a new pool, relative to the rows' needs: 0.25 makes it 80% full.
    share : float, optional
        The paper's way: the first batch takes this part of the device's free memory for the pool (0.5 in the paper).
        Once 80% is used the pool grows by a quarter, with every piece at its place; it never shrinks.
    fine, compact, directory, split : bool
        Improvements on the paper, described in the module. With all four False and a `share`, this is the paper's
        structure.

    Notes
    -----
    A batch of b operations costs O(b log b) plus the degrees of its rows, in 6 to 9 launches and one wait for the
    device. A rebuild of the pool takes a second wait and O(n_rows + m), amortised over the batches. Growth in place
    maps memory for a thirty-second of the pool. Memory: 4 bytes per slot (8 with weights), and 8 per row, with rows
    rounded up to a power of two. Neighbours are not sorted.
    """

    name: ClassVar[str] = "graphvine"
    sorted_rows: ClassVar[bool] = False
    checks_ids: ClassVar[bool] = True

    def __init__(
        self,
        n_rows: int,
        n_vertices: int,
        device: Device,
        weighted: bool,
        *,
        block: int | None = None,
        spare: float = 0.25,
        share: float | None = None,
        fine: bool = True,
        compact: bool = True,
        directory: bool = True,
        split: bool = True,
    ) -> None:
        super().__init__(n_rows, n_vertices, device, weighted)
        if block is not None and block not in (4, 8, 16, 32, 64, 128):
            raise InvalidOption(f"block of {block} edges; it must be 4, 8, 16, 32, 64 or 128")
        if not 0.01 <= spare <= 16:
            raise InvalidOption(f"spare of {spare}; it must be from 0.01 to 16")
        if share is not None and not 0 < share <= 0.9:
            raise InvalidOption(f"share of {share}; it must be more than 0 and at most 0.9")

        # Load the kernels for these options, and begin with an empty pool.
        self.block, self.spare, self.share = block, spare, share
        self.fine, self.compact, self.directory, self.split = fine, compact, directory, split
        self._defines = (("TREE", int(not directory)), ("LAZY", int(not compact)))
        self._load_kernels()
        self.sentinels = device.zeros(_power(n_rows), np.uint64)
        self.extents = None if compact else device.zeros(_power(n_rows), np.uint32)
        self.pool, self.queues = GraphVinePool.empty(device, 2, 0, weighted, not directory), Queues()
        self.filled = self.live = 0  # rows with edges; quanta of their blocks
        self._arrays_changed()

    def _load_kernels(self) -> None:
        self.kernels = {part: _load(self.device, part, dict(self._defines)) for part in PARTS}

    def _arrays_changed(self) -> None:
        """Pack the arrays for kernels, once for all launches until they change."""
        pool = self.pool
        columns = {
            "sentinels": self.sentinels, "extents": self.extents, "slots": pool.slots, "weights": pool.weights,
            "children": pool.children,
        }  # fmt: skip
        fields = {**columns, "shift": pool.shift, "fine": int(self.fine)}
        self._view = View("structures/graphvine/view.cuh", "VineView", fields, self._defines)
        self._pool_struct = Struct(**columns)
        self._kept = None

    # --- prepare ---

    def _prepare(self, run: Run) -> Plan:
        """Prepare in O(n + degrees of the rows), 4 or 5 launches; waits once, twice for a new pool."""
        n = len(run)
        scratch = self._take_scratch(run)
        # Inspect the batch.
        seen = scratch.inspect(run)
        if seen.unknown:
            self._keep(scratch)
            self._refuse(run, seen.unknown)
        counts, work = seen.counts, _Work(seen)
        plan = Plan(run, counts, scratch.outcome[:n], work, self.state, scratch)
        if not (counts.inserted or counts.deleted):
            return plan

        # Allocate pieces in the pool, grow it, or plan a new one.
        shift = self._choose_shift(counts, seen.needs.filled)
        work.larger = self._larger(seen.needs, shift)
        if self._fits(seen.needs, work.larger or self.pool):
            work.pieces = seen.room_for_pieces()
        else:
            work.larger, work.rebuild = None, plan_rebuild(self, shift, self._least_quanta(), seen.batch, n)
        return plan

    def _larger(self, needs: Needs, shift: int) -> GraphVinePool | None:
        """Return a larger pool with every piece at its place, if it is needed and possible.

        A pool is not grown if a quarter of it waits in the queues, or if the best block size, ``1 << shift``, is four
        times or a quarter of its own.
        """
        pool, end = self.pool, self.queues.end(needs)
        if self.share:
            return pool.enlarged(self.device, end) if pool.quanta and 5 * end > 4 * pool.quanta else None
        if end <= pool.quanta or abs(shift - pool.shift) > 1 or 4 * quanta_of(self.queues.waiting) > pool.quanta:
            return None
        return pool.longer(self.device, end)

    def _new_scratch(self, capacity: int, run: Run) -> GraphVineScratch:
        return GraphVineScratch(self, capacity, deletes=capacity <= KEPT or run.op is not None)

    def _fits(self, needs: Needs, pool: GraphVinePool) -> bool:
        """Return True if the pool suffices for a batch, and would not be mostly unused."""
        return self.queues.fit(needs, pool) and not self.too_large(self.live + needs.quanta)

    def too_large(self, live: int) -> bool:
        """Return True if most of the pool is unused with blocks of `live` quanta."""
        return not self.share and self.pool.quanta > max(2 * live * (1 + self.spare), self._least_quanta())

    def _least_quanta(self) -> int:
        return max(64, self.n_rows // 16)

    def _choose_shift(self, counts: Counts, filled: int) -> int:
        """Return log2 of the best block size: by default the mean degree, rounded up, from 4 to 128."""
        if self.block is not None:
            return self.block.bit_length() - 1
        if not self.fine and self.pool.quanta:
            return self.pool.shift
        edges, rows = self.num_edges + counts.inserted - counts.deleted, max(self.filled + filled, 1)
        return min(max((-(-edges // rows) - 1).bit_length(), 2), 7)

    # --- commit ---

    def _commit(self, plan: Plan, work: _Work) -> None:
        """Write the batch in up to five launches."""
        # Weights of existing edges, deletes, blocks, inserts.
        counts, run, n, batch, scratch = plan.counts, plan.run, len(plan.run), work.inspection.batch, plan.scratch
        if self.weighted and counts.updated:
            self.kernels["commit"].SetWeights(
                n, graph=self.view(), batch=batch, weight=run.weight, weights=self.pool.weights
            )
        if counts.inserted or counts.deleted:
            if counts.deleted:
                self._delete(n, batch, scratch)
            self._make_room(work)
            self.filled += work.inspection.needs.filled
            self.num_edges += counts.inserted - counts.deleted
            if counts.inserted:
                scratch.insert(batch, run.weight, moved=work.rebuild is not None)
        if not (work.rebuild or work.larger):
            self._keep(scratch)

    def _delete(self, n: int, batch: Struct, scratch: GraphVineScratch) -> None:
        if self.compact:
            scratch.move_tails(n, batch=batch)
        else:
            self.kernels["commit"].MarkTombstones(n, graph=self.view(), batch=batch, pool=self.pool_struct())

    def _make_room(self, work: _Work) -> None:
        """Replace the pool if planned, and reserve the blocks of every row."""
        # A rebuilt pool has room in every row; otherwise reserve blocks, in the pool or a larger one.
        seen, needs = work.inspection, work.inspection.needs
        if work.rebuild:
            self._rebuild(self.view(), work.rebuild)
        elif work.larger:
            self.queues, self.pool = work.larger.move(self.pool, self.queues), work.larger
            self._arrays_changed()
        if work.rebuild or work.larger:
            seen.scratch.bind(self)
        if not work.rebuild:
            seen.scratch.reserve_blocks(seen.batch, self.queues.struct(needs, self.pool), work.pieces)
            self.queues = self.queues.after(needs, self.pool.ring)
            self.live += needs.quanta

    def _rebuild(self, graph: View, new: Rebuild) -> None:
        """Copy all rows into the new pool, and adopt it."""
        pool = new.pool
        self.kernels["rebuild"].Rebuild(
            -(-(new.used << (pool.shift - 2)) // PIECE), graph=graph, places=new.places, grown=new.grown,
            rows=self.n_rows, shift_out=pool.shift, slots_out=pool.slots, weights_out=pool.weights,
            children_out=pool.children,
        )  # fmt: skip
        self.pool, self.sentinels, self.live = pool, new.sentinels, new.live
        self.queues = Queues(fresh=new.used)
        if self.extents is not None:
            self.extents = new.grown
        self._arrays_changed()

    def pool_struct(self) -> Struct:
        """Return the arrays that kernels write."""
        return self._pool_struct

    # --- the rest of the contract ---

    def _delete_vertices(self, vertices: Array) -> Counts:
        """Delete in place, without a batch: O(n_rows + m), one pass over the rows (``vertices.py``)."""
        deleted = sever(self, vertices)
        self.state = object()
        return Counts(deleted=deleted)

    def rebuild(self) -> None:
        """Move all rows into a new pool of the needed size; `CapacityError`, without a change, if it does not fit."""
        new = plan_rebuild(self, self._choose_shift(Counts(), 0), self._least_quanta())
        self._rebuild(self.view(), new)
        self.state = object()

    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        """Return the arrays; O(1), or O(n_rows) if the dictionary doubles."""
        # Rows up to the next power of two exist already, as zeros.
        rows = {"sentinels": self.sentinels, "extents": self.extents}
        if n_rows <= len(self.sentinels):
            return rows
        return {name: None if a is None else self._longer(a, _power(n_rows)) for name, a in rows.items()}

    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        self.sentinels, self.extents = arrays["sentinels"], arrays["extents"]
        self._arrays_changed()

    def _longer(self, array: Array, n: int) -> Array:
        out = self.device.empty(n, array.dtype)
        out[: len(array)] = array
        out[len(array) :] = 0
        return out

    def _find(self, src: Array, dst: Array, out: Array) -> Array:
        """Search short rows query by query, long rows by sorted queries."""
        # Short rows; the queries of long ones are listed.
        n, device, kernels = len(src), self.device, self.kernels["membership"]
        rest, n_rest = device.empty(n, np.uint32), device.zeros(1, np.int64)
        kernels.FindShort(n, graph=self.view(), src=src, dst=dst, n=n, found=out, rest=rest, n_rest=n_rest)

        # Long rows: sort the queries, and join them with their rows.
        long = rest[: int(n_rest[0])]
        if len(long):
            src, dst = device.gather(src, long), device.gather(dst, long)
            keys, places = sort_keys(device, src=src, dst=dst, with_places=True)
            rows = TouchedRows(self, len(long))
            rows.join(keys)
            hits = device.empty(len(long), np.uint8)
            kernels.Answer(len(long), keys=keys, position=rows.position, n=len(long), found=hits)
            device.scatter(out, device.gather(long, places), hits)
        return out.view(bool)

    def _own_arrays(self) -> None:
        self._load_kernels()
        self.sentinels, self.extents = (cloned(self.device, a) for a in (self.sentinels, self.extents))
        self.pool = self.pool.clone(self.device, self.queues.fresh)
        self._arrays_changed()

    def view(self) -> View:
        """Return the view for algorithms' kernels; valid until the next commit."""
        return self._view

    @property
    def nbytes(self) -> int:
        """Bytes of device memory, without the scratch kept for small batches."""
        return sum(int(a.nbytes) for a in (self.sentinels, self.extents) if a is not None) + self.pool.nbytes

    def check_invariants(self) -> None:
        """Assert the module's invariants. O(n_rows + m), on the host."""
        check_graphvine(self)


def _power(n: int) -> int:
    """Round `n` up to a power of two."""
    return 1 << max(n - 1, 0).bit_length()


def _load(device: Device, part: str, defines: Any) -> Library:
    return load(device, f"structures/graphvine/{part}.cuh", None, **defines)
