"""gpma+: all rows in one sorted array with gaps, kept within density bounds by rebalancing windows of leaves.

::

    leaf 0                leaf 1                leaf 2            (LEAF slots each; here 4)
    slots  [ 3  7  9  . | 1  4  .  .          | 2  5  6  8 ]      destinations only, packed to the left of each leaf
    counts [     3      |     2               |     4      ]
    start  [0, 4, 4, 8, 12]                                       row 0: 3 7 9, row 1: none, row 2: 1 4, row 3: 2 5 6 8

A batch is counted first and written once (Sha, Li, He, Tan: Accelerating Dynamic Graph Analytics on GPUs, PVLDB 11(1),
2017, section 5, climbs level by level instead). prepare finds each key's slot, sums up inserts and deletes, and gives
each changed leaf the smallest ancestor window whose new count is within bounds; commit rewrites those windows. Items
are merged by their ranks, not by keys, so a slot need not say to which row it belongs.

Invariants
----------
1. ``len(slots) == leaves * LEAF``, ``sum(counts) == num_edges == sum(degrees)``.
2. Slots past their leaf's count hold 2**32 - 1, which is no id. No leaf is empty, unless it is the only one; no count
   is above the bound of a leaf.
3. ``start[r]`` is the slot of the first live item of row r or of a later row, ``leaves * LEAF`` where there is none;
   start never falls, and ``start[n_rows] == leaves * LEAF``.
4. The live slots of ``[start[r], start[r + 1])`` are row r, strictly ascending, and ``degrees[r]`` of them.
5. ``groups[g]`` is the sum of the counts of leaves ``1024 g .. 1024 g + 1023``.
6. ``heads[l]`` is leaf l's first slot: what searches look at first, on few cache lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.kernels import Struct, View, constants, load
from mgraph.structures.contract import Counts, Plan, Structure
from mgraph.structures.gpma_plus.build import Build, commit_build, prepare_build
from mgraph.structures.gpma_plus.scratch import GROUP, PART_SLOTS, TASK_ROWS, TASK_SLOTS, Scratch
from mgraph.structures.run import Run

__all__ = ["GpmaPlus"]

Array = Any

PARTS = ("prepare", "commit", "build")
NOBODY = np.uint32(constants("structures/gpma_plus/view.cuh")["nobody"])  # in slots that hold no edge


@dataclass
class _Work:
    """What a commit needs: the located batch, the windows by width, and the memory that it will write."""

    batch: Struct
    leaves: Struct  # where windows are wide, with the sums before each task's leaves; valid until leaves are written
    num_edges: int
    leaf_windows: tuple[Array, int]  # by their first keys, with those that a wider window covers
    few_windows: tuple[Array, int]
    block_windows: tuple[Array, int]
    parts: tuple[Array, int]
    rows: tuple[Array, int]
    cuts: Array  # where the batch is cut for each part
    out: dict[str, Array] | None  # the copy of wide windows, or the new array
    out_leaves: int  # of the new array; 0 where the array stays
    bounds: tuple[Array, Array] | None


class GpmaPlus(Structure):
    """A packed memory array updated in batches, counts first.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    leaf : int
        Slots per leaf, a power of two from 8 to 128.
    leaf_density, root_density : (float, float)
        Least and most share of live slots in a leaf and in the whole array; levels between are interpolated.
    fill : float
        Density after the whole array was resized, between the two bounds of the root.

    Notes
    -----
    A batch of b operations is located in O(b log m), and the windows around its keys are rewritten. It takes 6 to 8
    launches, up to 14 where windows are wide, and one read-back, whatever the array's height. Memory: 4 bytes per slot
    (8 with weights), 5 per leaf, 12 per row. Neighbours are sorted.
    """

    name: ClassVar[str] = "gpma+"
    sorted_rows: ClassVar[bool] = True
    _tile: ClassVar[int] = 4  # lanes that merge one leaf; more for a wide one, to save shared memory

    def __init__(
        self,
        n_rows: int,
        n_vertices: int,
        device: Device,
        weighted: bool,
        *,
        leaf: int = 32,
        leaf_density: tuple[float, float] = (0.08, 1.0),
        root_density: tuple[float, float] = (0.30, 0.775),
        fill: float = 0.60,
    ) -> None:
        super().__init__(n_rows, n_vertices, device, weighted)
        if leaf not in (8, 16, 32, 64, 128):
            raise InvalidOption(f"leaf of {leaf} slots; it must be 8, 16, 32, 64 or 128")
        if not 0 < leaf_density[0] < root_density[0] < fill < root_density[1] < leaf_density[1] <= 1:
            raise InvalidOption(
                f"densities must rise from leaf {leaf_density[0]} to root {root_density[0]}, fill {fill}, "
                f"root {root_density[1]}, leaf {leaf_density[1]}, within 0 and 1"
            )
        self.leaf, self.leaf_density, self.root_density, self.fill = leaf, leaf_density, root_density, fill
        defines = {"LEAF": leaf, "WEIGHTED": int(weighted), "TILE": max(self._tile, leaf // 8)}
        self._defines = tuple(defines.items())
        self._kernels = {part: load(device, f"structures/gpma_plus/{part}.cuh", None, **defines) for part in PARTS}
        self.slots, self.weights, self.counts, self.groups, self.heads = self.new_array(1).values()
        device.fill(self.heads, NOBODY)
        self.counts.fill(0)
        self.groups.fill(0)
        self.start = device.full(n_rows + 1, leaf, np.int64)
        self._degrees = device.zeros(n_rows, np.uint32)
        self._levels = self.level_arrays(1)
        self._array_changed()

    def _array_changed(self) -> None:
        """Pack what kernels take of the arrays, once for all launches until an array is replaced."""
        self._kept = None
        self._leaves = Struct(counts=self.counts, groups=self.groups, before=None, within=None, leaves=self.leaves)
        columns = {"slots": self.slots, "weights": self.weights, "heads": self.heads}
        self._array = Struct(**columns, counts=self.counts, groups=self.groups)
        fields = {**columns, "start": self.start, "degrees": self._degrees}
        self._view = View("structures/gpma_plus/view.cuh", "GpmaView", fields, self._defines)
        kernels, merged = self._kernels["commit"], {"leaves": self._leaves, "array": self._array, "start": self.start}
        self._merge_leaves = kernels.MergeLeaves.bind(leaves=self._leaves, array=self._array)
        self._merges = [k.bind(**merged) for k in (kernels.MergeFew, kernels.MergeBlocks)]
        self._update_rows = kernels.UpdateRows.bind(
            leaves=self._leaves, start=self.start, degrees=self._degrees, rows=self.n_rows
        )

    def new_array(self, leaves: int, blank: bool = True) -> dict[str, Array]:
        """Memory for an array of so many leaves; its slots hold no edge if `blank`, else they are undefined."""
        empty, slots = self.device.empty, leaves * self.leaf
        return {
            "slots": self.device.full(slots, NOBODY, np.uint32) if blank else empty(slots, np.uint32),
            "weights": empty(slots, np.float32) if self.weighted else None,
            "counts": empty(leaves, np.uint8),
            "groups": empty(-(-leaves // GROUP), np.uint32),
            "heads": empty(leaves + 1, np.uint32),  # the search of an empty last row reads one more
        }

    # --- bounds ---

    @property
    def checks_ids(self) -> bool:
        """Whether the next `_prepare` checks ids: it does where it locates the keys, unlike a first batch."""
        return self.num_edges > 0

    @property
    def leaves(self) -> int:
        """How many leaves the array has."""
        return len(self.counts)

    def bounds(self, leaves: int | None = None) -> tuple[list[int], list[int]]:
        """Least and most items of a full window of ``1 << level`` leaves, by level, the root last."""
        leaves = self.leaves if leaves is None else leaves
        height = (leaves - 1).bit_length()
        (low_leaf, high_leaf), (low_root, high_root) = self.leaf_density, self.root_density
        least, most = [], []
        for level in range(height + 1):
            share, slots = level / max(height, 1), self.leaf << level
            most.append(int((high_leaf - (high_leaf - high_root) * share) * slots))
            least.append(max(1 << level, int((low_leaf + (low_root - low_leaf) * share) * slots)))
            if level:  # two full children always fit into their parent's bounds
                most[level] = min(most[level], 2 * most[level - 1])
                least[level] = max(least[level], 2 * least[level - 1])
        if leaves == 1:
            least[0] = 0
        return least, most

    def level_arrays(self, leaves: int) -> tuple[Array, Array]:
        """The bounds of an array of so many leaves, on the device."""
        least, most = self.bounds(leaves)
        return self.device.asarray(np.array(least, np.int64)), self.device.asarray(np.array(most, np.int64))

    def even_leaves(self, n: int) -> int:
        """How many leaves a resized array of n items has."""
        leaves = max(1, math.ceil(n / (self.leaf * self.fill)))
        if leaves >= 1 << 32:
            raise CapacityError(f"{n} edges need {leaves} leaves; 32-bit leaf numbers allow {(1 << 32) - 1}")
        return leaves

    # --- a batch ---

    def _prepare(self, run: Run) -> Plan:
        """Locate the keys, count, choose the windows; O(n log m), 3 to 6 launches, one read-back."""
        device, kernels = self.device, self._kernels["commit"]
        if not self.num_edges:
            return Plan(run, *prepare_build(self, self._kernels["build"], run), self._state)
        scratch = self._take_scratch(run)
        batch, found = scratch.count(run)
        if found["unknown"]:
            self._keep(scratch)
            self._refuse(run, found["unknown"])
        counts, leaves = _counts(found), self._leaves
        work = _Work(
            batch=batch, leaves=leaves,
            num_edges=self.num_edges + counts.inserted - counts.deleted,
            leaf_windows=(scratch.leaf_list, found["leaf_windows"]),
            few_windows=(scratch.few_list, found["few_windows"]),
            block_windows=(scratch.block_list, found["block_windows"]),
            parts=(scratch.wide_list, found["wide_parts"]),
            rows=(scratch.row_list, found["row_tasks"]), cuts=None, out=None, out_leaves=0, bounds=None,
        )  # fmt: skip
        if found["resize"] or found["scratch_leaves"]:  # wide windows count by the sums of their tasks
            tasks = -(-self.leaves * self.leaf // TASK_SLOTS)
            before, within = device.carve((tasks + 1, np.int64), (self.leaves, np.uint32))
            kernels.SumTasks(tasks, leaves=leaves, before=before, within=within)
            device.cumsum(before, out=before)
            work.leaves = Struct(**{**leaves.values, "before": before, "within": within})
        if found["resize"]:
            self._plan_resize(work)
        elif found["scratch_leaves"]:
            work.out = self.new_array(found["scratch_leaves"], blank=False)
        if work.out:
            windows, parts = work.parts
            work.cuts = device.empty(parts, np.uint32)
            kernels.CutParts(parts, batch=batch, windows=windows, n=parts, whole=work.out_leaves, cuts=work.cuts)
        return Plan(run, counts, scratch.outcome[: len(run)], work, self._state, scratch)

    def _new_scratch(self, capacity: int, run: Run) -> Scratch:
        scratch = Scratch(self.device, capacity, self.leaves, self.leaf, self.n_rows, self._levels)
        scratch.bind(self._kernels["prepare"], self._view, self._leaves, self.start, self.n_rows, self.n_vertices)
        return scratch

    def _plan_resize(self, work: _Work) -> None:
        """The root is out of bounds: plan to write the whole array, as one window, into a new one."""
        leaves = self.even_leaves(work.num_edges)
        work.out_leaves = leaves
        work.out = self.new_array(leaves, blank=work.num_edges == 0)
        work.bounds = self.level_arrays(leaves)
        n = work.batch.values["n"]
        whole = self.device.asarray(np.array([0, self.leaves, 0, n, 0, 0, 0, 0], np.uint32))
        work.parts = whole, -(-(self.leaves * self.leaf + n) // PART_SLOTS)
        work.rows = whole, -(-(self.n_rows + 1) // TASK_ROWS)
        work.leaf_windows = work.few_windows = work.block_windows = (whole, 0)

    def _commit(self, plan: Plan, work: _Work | Build) -> None:
        """Write every window once: up to 8 launches."""
        run, kernels, build = plan.run, self._kernels["commit"], self._kernels["build"]
        if isinstance(work, Build):
            commit_build(build, run, work, self.start, self._degrees)
            self._replace_array(work.array, work.levels)
            self.num_edges = work.num_edges
            return
        both = {"batch": work.batch, "leaves": work.leaves}
        array, weight = self._array, run.weight
        if self.weighted and plan.counts.updated:
            kernels.SetWeights(
                len(run), batch=work.batch, outcome=plan.outcome, weight=run.weight, weights=self.weights
            )
        windows, n = work.rows
        if n:  # before the merges: it counts in the old leaves
            kernels.MoveRows(
                n, **both, windows=windows, n=n, out_leaves=work.out_leaves, rows=self.n_rows + 1, start=self.start
            )
        if work.out:
            windows, n = work.parts
            kernels.Gather(
                n, **both, array=array, weight=weight, windows=windows, cuts=work.cuts, n=n,
                out=work.out, out_leaves=work.out_leaves,
            )  # fmt: skip
            if work.out_leaves:
                assert work.bounds is not None
                columns = {name: work.out[name] for name in ("slots", "counts", "groups", "heads")}
                build.EvenCounts(work.out_leaves, total=work.num_edges, leaves=work.out_leaves, **columns)
                self._replace_array(work.out, work.bounds)
            else:
                kernels.CopyBack(n, **both, array=array, windows=windows, n=n, copy=work.out)
        first_keys, single = work.leaf_windows
        listed = {"batch": work.batch, "levels": plan.scratch.levels, "first_keys": first_keys}
        if single:
            self._merge_leaves(single, **listed, weight=weight, n=single)
        for merge, (windows, n) in zip(self._merges, (work.few_windows, work.block_windows), strict=True):
            if n:
                merge(n, batch=work.batch, weight=weight, windows=windows, n=n)
        self._update_rows(single + len(run), **listed, windows=single)
        self.num_edges = work.num_edges
        if not work.out_leaves:
            self._keep(plan.scratch)

    def _replace_array(self, array: dict[str, Array], levels: tuple[Array, Array]) -> None:
        self.slots, self.weights, self.counts, self.groups, self.heads = array.values()
        self._levels = levels
        self._array_changed()

    # --- the rest of the contract ---

    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        start = self.device.full(n_rows + 1, self.leaves * self.leaf, np.int64)
        degrees = self.device.zeros(n_rows, np.uint32)
        start[: self.n_rows + 1], degrees[: self.n_rows] = self.start, self._degrees
        return {"start": start, "degrees": degrees}

    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        self.start, self._degrees = arrays["start"], arrays["degrees"]
        self._array_changed()

    def view(self) -> View:
        """The array, its row starts and degrees; valid until the next commit of a batch or of vertices."""
        return self._view

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the structure holds; not the scratch that it keeps for small batches."""
        arrays = (self.slots, self.weights, self.counts, self.groups, self.heads, self.start, self._degrees)
        return sum(int(a.nbytes) for a in arrays if a is not None)

    def check_invariants(self) -> None:
        """Assert the invariants that the module numbers. O(n_rows + slots), on the host; for tests."""
        host = self.device.to_host
        slots, counts, start, degrees = map(host, (self.slots, self.counts, self.start, self._degrees))
        leaf, leaves = self.leaf, self.leaves
        assert len(slots) == leaves * leaf, "1"
        assert counts.sum(dtype=np.int64) == self.num_edges == degrees.sum(dtype=np.int64), "1"
        groups = np.add.reduceat(counts, np.arange(0, leaves, GROUP), dtype=np.int64)
        assert (host(self.groups) == groups).all(), "5"
        assert (host(self.heads)[:leaves] == slots[::leaf]).all(), "6"
        assert leaves == 1 or counts.min() >= 1, "2"
        assert counts.max() <= self.bounds()[1][0], "2"
        assert start[0] >= 0, "3"
        assert start[-1] == leaves * leaf, "3"
        assert (np.diff(start) >= 0).all(), "3"
        live = (np.arange(leaf) < counts[:, None]).ravel()
        assert live[start[start < leaves * leaf]].all(), "3"
        before = np.concatenate([[0], np.cumsum(live)])
        assert (np.diff(before[start]) == degrees).all(), "4"
        assert (slots[~live] == NOBODY).all(), "2"
        items = slots[live].astype(np.int64)
        row = np.repeat(np.arange(self.n_rows), degrees)
        assert (np.diff(row << 32 | items) > 0).all(), "4"
        assert not len(items) or items.max() < self.n_vertices, "4"


def _counts(found: dict[str, int]) -> Counts:
    """Exact counts from the status."""
    moves = found["all_moves"]
    return Counts(moves >> 32, found["updates"], moves & 0xFFFFFFFF, found["misses"])
