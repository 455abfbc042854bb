"""Packed memory array of gpma, gpma+ and lpma: rows in leaves of slots, within density bounds.

A batch is counted first and written once. prepare finds each key's slot, sums up inserts and deletes, and gives each
changed leaf a window whose new count is within bounds; commit rewrites those windows. Items are merged by rank, not by
key, so a slot need not store its row. Slots are numbered in reading order; each structure maps them to memory in its
view.cuh, with fields from `Pma._pack`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.kernels import Struct, View, constants, load
from mgraph.parallel_copy import cloned
from mgraph.structures.contract import KEPT, Structure
from mgraph.structures.plan import Counts, Plan
from mgraph.structures.pma.build import Build, commit_build, prepare_build
from mgraph.structures.pma.frame import Frame, Work
from mgraph.structures.pma.scratch import GROUP, PART_SLOTS, TASK_ROWS, TASK_SLOTS, PmaScratch
from mgraph.structures.run import Run
from mgraph.structures.sums import running_sums

__all__ = ["NOBODY", "Pma"]

Array = Any

NOBODY = np.uint32(constants("structures/pma/layout.cuh")["nobody"])  # value of slots without an edge


def _counts(status: Any) -> Counts:
    """Return the outcomes of a located run."""
    moves = status.all_moves
    counts: Counts = tuple.__new__(Counts, (moves >> 32, status.updates, moves & 0xFFFFFFFF, status.misses))
    return counts


class Pma(Structure):
    """Packed memory array updated in batches: base of gpma, gpma+ and lpma.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    leaf : int
        Slots per leaf, a power of two from 8 to 128.
    leaf_density, root_density : (float, float)
        Minimum and maximum density of a leaf and of the whole array; levels between are interpolated.
    fill : float
        Density after a resize of the whole array, between the two bounds of the root.
    """

    sorted_rows: ClassVar[bool] = True
    _top_down: bool = False  # True if the next batch chooses its windows top down
    _tile: ClassVar[int] = 4  # lanes per leaf in a merge; more for a wide leaf, to save shared memory
    _files: ClassVar[dict[str, str]]  # the kernels of prepare, commit and build, and the view
    _frame: Frame
    counts: Array
    groups: Array
    heads: Array

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
        if fill * leaf < 1:
            raise InvalidOption(
                f"fill {fill} with leaves of {leaf} slots leaves some empty; at least {1 / leaf} is needed"
            )

        # Load the kernels for this leaf size.
        self.leaf, self.leaf_density, self.root_density, self.fill = leaf, leaf_density, root_density, fill
        self._lanes = max(self._tile, leaf // 8)
        self._defines = (("LEAF", leaf), ("TILE", self._lanes), ("WEIGHTED", int(weighted)))
        self._load_kernels()

        # Begin with an empty leaf.
        array = self.new_array(1)
        device.fill(array["heads"], NOBODY)
        array["counts"].fill(0)
        array["groups"].fill(0)
        start, degrees = device.full(n_rows + 1, self._end_of(1), np.int64), device.zeros(n_rows, np.uint32)
        self._take(self.frame(self._spread(array), start, degrees))

    def _load_kernels(self) -> None:
        device = self.device
        self._kernels = {
            part: load(device, self._files[part], self._view_of()) for part in self._files if part != "view"
        }
        if device.kind == "cuda":  # the first wide window would wait for it
            load(device, "structures/sums.cuh")

    # --- implemented by each structure ---

    @abstractmethod
    def _end_of(self, leaves: int) -> int:
        """Return the start of a row without items behind it, in an array of `leaves`."""

    @abstractmethod
    def _spread(self, array: dict[str, Array]) -> dict[str, Any]:
        """Return the structure's arrays by attribute name, for all leaves in a single `new_array`."""

    @abstractmethod
    def _pack(self, arrays: dict[str, Any], start: Array, degrees: Array) -> tuple[Struct, Struct, View]:
        """Pack Array, Starts and PmaView of the structure's view.cuh."""

    def _grown(self, n: int) -> tuple[Frame, PmaScratch | None] | None:
        """Grow for `n` items without moving any; None if the whole array must be rewritten.

        Also returns the scratch for it, if that was made ahead.
        """
        return None

    def _prepare_growth(self, n: int, operations: int, capacity: int) -> None:
        """Prepare a later batch's growth, after a batch of `operations` that leaves `n` items.

        Its scratch has this `capacity`, or 0 if it is too large to be kept.
        """

    # --- the array ---

    def flat(self, leaves: int, blank: bool = True) -> dict[str, Array]:
        """Allocate `leaves` leaves, with empty slots if `blank`, else uninitialized."""
        empty, slots = self.device.empty, leaves * self.leaf
        return {
            "slots": self.device.full(slots, NOBODY, np.uint32) if blank else empty(slots, np.uint32),
            "weights": empty(slots, np.float32) if self.weighted else None,
        }

    def directory(self, leaves: int) -> dict[str, Array]:
        """Allocate the leaves' counts, groups and heads, in reading order."""
        return {
            "counts": self.device.empty(leaves, np.uint8),
            "groups": self.device.empty(-(-leaves // GROUP), np.uint32),
            "heads": self.device.empty(leaves + 1, np.uint32),  # the search of an empty last row reads one more
        }

    def new_array(self, leaves: int, blank: bool = True) -> dict[str, Array]:
        """Allocate leaves with their directory."""
        return {**self.flat(leaves, blank), **self.directory(leaves)}

    def frame(
        self, arrays: dict[str, Any], start: Array, degrees: Array, bounds: tuple[Array, Array] | None = None
    ) -> Frame:
        """Pack these arrays for kernels; allocates nothing if the bounds are given."""
        bounds = self.level_arrays(len(arrays["counts"])) if bounds is None else bounds
        return Frame(arrays, start, degrees, bounds, *self._pack(arrays, start, degrees), self._kernels)

    def _take(self, frame: Frame) -> None:
        """Adopt a frame's arrays."""
        vars(self).update(frame.arrays)
        self._frame, self._kept, self.single = frame, None, None
        self._nbytes = sum(int(a.nbytes) for a in (*self._columns(), frame.start, frame.degrees) if a is not None)
        self.start, self._degrees = frame.start, frame.degrees

    def _view_of(self, **fields: Any) -> View:
        return View(self._files["view"], "PmaView", fields, self._defines)

    # --- bounds ---

    @property
    def checks_ids(self) -> bool:
        """True if the next `_prepare` checks ids: when it locates keys, unlike for a first batch."""
        return self.num_edges > 0

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return len(self.counts)

    def bounds(self, leaves: int | None = None) -> tuple[list[int], list[int]]:
        """Return the minimum and maximum items of a full window of ``1 << level`` leaves, by level."""
        leaves = self.leaves if leaves is None else leaves
        height = (leaves - 1).bit_length()
        (low_leaf, high_leaf), (low_root, high_root) = self.leaf_density, self.root_density
        # Linear interpolation between leaf and root.
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

    def root_bounds(self, leaves: int) -> tuple[int, int]:
        """Return the minimum and maximum items of a whole array."""
        least, most = self.bounds(leaves)
        full = 1 << (len(most) - 1)
        return -(-least[-1] * leaves // full), most[-1] * leaves // full

    def level_arrays(self, leaves: int) -> tuple[Array, Array]:
        """Return the bounds of an array of `leaves` leaves, on the device."""
        both = self.device.asarray(np.array(self.bounds(leaves), np.int64).ravel())
        return both[: len(both) // 2], both[len(both) // 2 :]

    def even_leaves(self, n: int) -> int:
        """Return the number of leaves of a resized array of `n` items."""
        leaves = max(1, math.ceil(n / (self.leaf * self.fill)))
        if leaves >= 1 << 32:
            raise CapacityError(f"{n} edges need {leaves} leaves; 32-bit leaf numbers allow {(1 << 32) - 1}")
        return leaves

    # --- a batch ---

    def _prepare(self, run: Run) -> Plan:
        """Locate the keys, count, and choose the windows. O(n log m), one read-back, two to grow.

        One launch for a small batch, 5 for another; up to 3 more for wide windows.
        """
        if not self.num_edges:
            return Plan(run, *prepare_build(self, self._kernels["build"], run), self.state)

        return self._plan(run, self._take_scratch(run))  # the only reference, so that `_plan` may free the scratch

    def apply_at_once(self, run: Run) -> Plan:
        """Apply a sorted run. A small one takes one launch if its changed leaves stay within bounds."""
        n, scratch = len(run.keys), self._kept
        if scratch is None or not 0 < n <= scratch.at_once or self._top_down:
            return super().apply_at_once(run)
        if n == 1 and run.weight is None and type(run.keys) is np.ndarray:
            scratch.key[0], scratch.op[0] = run.keys[0], 1 if run.op is None else run.op[0]
            status = scratch.apply(None)
        else:
            status = scratch.apply(run)
        if status.crowded_leaves or status.unknown or (self.weighted and status.updates):
            self._kept = None
            plan = self._plan(run, scratch, status)
            self.commit(plan)
            return plan
        return Plan(run, self._written(status, n, scratch), scratch.outcome[:n], None, self.state)

    def apply_few(self, src: Any, dst: Any, op: Any = None, weight: Any = None) -> Counts:
        """Apply a few operations; one edge without a run, unless it needs a plan."""
        scratch = self._kept
        if len(src) == 1 and scratch is not None and not self._top_down and weight is None:
            scratch.key[0] = src.item() << 32 | dst.item()
            scratch.op[0] = 1 if op is None else op if type(op) is int else op.item()
            status = scratch.apply(None)
            if not (status.crowded_leaves or status.unknown or (self.weighted and status.updates)):
                return self._written(status, 1, scratch)
        return super().apply_few(src, dst, op, weight)

    def _written(self, status: Any, n: int, scratch: PmaScratch) -> Counts:
        """Take note that a kernel has written a batch of `n` operations; return its outcomes."""
        counts = _counts(status)
        self.state, self.num_edges = object(), self.num_edges + counts[0] - counts[2]
        self._prepare_growth(self.num_edges, n, scratch.capacity)
        return counts

    def _plan(self, run: Run, kept: Any, status: Any = None) -> Plan:
        """Return the plan of a run in the scratch `kept`; `status` if it was located already."""
        frame, top_down, n = self._frame, self._top_down, len(run.keys)
        scratch: PmaScratch = kept
        if status is None:
            status = scratch.locate(run, top_down)
        if status.unknown:
            self._keep(scratch)
            self._refuse(run, status.unknown)
        counts = _counts(status)
        num_edges = self.num_edges + counts.inserted - counts.deleted

        # If the root is too full, grow and locate again; otherwise prepare a later growth.
        grown = self._grown(num_edges) if status.resize else None
        if grown:
            (frame, ready), kept = grown, kept if kept.capacity <= KEPT else None
            del scratch  # a large one is freed here
            scratch = ready if ready is not None and ready.capacity >= n else self.new_scratch(n, frame)
            status = scratch.locate(run, top_down)
        elif not status.resize:
            self._prepare_growth(num_edges, n, scratch.capacity if scratch.capacity <= KEPT else 0)

        # Allocate the copies of wide windows, or a new array.
        work = Work(frame, scratch, run, num_edges, status.leaf_windows)
        if status.crowded_leaves or top_down:
            work.widen(status)
            if status.resize or status.scratch_leaves:
                self._plan_wide(work, 0 if status.resize else status.scratch_leaves)
        return Plan(run, counts, scratch.outcome[:n], work, self.state, kept)

    def _new_scratch(self, capacity: int, run: Run) -> PmaScratch:
        return self.new_scratch(capacity, self._frame)

    def new_scratch(self, capacity: int, frame: Frame) -> PmaScratch:
        """Allocate memory for a batch of `capacity` operations on a frame's arrays."""
        leaves = len(frame.arrays["counts"])
        scratch = PmaScratch(self.device, capacity, leaves, self.leaf, self.n_rows, frame.bounds)
        scratch.bind(self._kernels["prepare"], frame, self.n_rows, self.n_vertices)
        return scratch

    def _keep(self, scratch: Any) -> None:
        """Keep scratch bound to the present arrays, unless it is large."""
        if scratch is not None and scratch.frame is self._frame and scratch.capacity <= KEPT:
            self._kept = scratch

    def _plan_wide(self, work: Work, scratch_leaves: int) -> None:
        """Allocate the copies of wide windows, or a new array if `scratch_leaves` is 0."""
        # Wide windows count by the prefix sums of their tasks.
        device, kernels, leaves = self.device, self._kernels["commit"], work.frame.leaves
        n_leaves = len(work.frame.arrays["counts"])
        tasks = -(-n_leaves * self.leaf // TASK_SLOTS)
        before, within = device.carve((tasks + 1, np.int64), (n_leaves, np.uint32))
        kernels.SumTasks(tasks, leaves=leaves, before=before, within=within)
        running_sums(device, before)
        work.leaves = Struct(**{**leaves.values, "before": before, "within": within})
        if scratch_leaves:
            work.out = self.flat(scratch_leaves, blank=False)
        else:
            self._plan_resize(work)

        # Cut the batch at the parts of the windows.
        windows, parts = work.parts
        work.cuts = device.empty(parts, np.uint32)
        kernels.CutParts(parts, batch=work.batch, windows=windows, n=parts, whole=work.out_leaves, cuts=work.cuts)

    def _plan_resize(self, work: Work) -> None:
        """Plan to write the whole array, as a single window, anew."""
        array = self.new_array(self.even_leaves(work.num_edges), blank=work.num_edges == 0)
        work.out, work.after = array, self.frame(self._spread(array), self.start, self._degrees)
        n = work.batch.values["n"]
        whole = self.device.asarray(np.array([0, self.leaves, 0, n, 0, 0, 0, 0], np.uint32))
        work.parts = whole, -(-(self.leaves * self.leaf + n) // PART_SLOTS)
        work.rows = whole, -(-(self.n_rows + 1) // TASK_ROWS)
        work.leaf_windows, work.few_windows, work.block_windows = 0, (whole, 0), (whole, 0)

    def _commit(self, plan: Plan, work: Work | Build) -> None:
        """Write every window once: in 1 launch for most small batches, at most 8."""
        run, build = plan.run, self._kernels["build"]
        self.num_edges = work.num_edges
        if isinstance(work, Build):
            commit_build(build, run, work)
            self._take(work.after)
            return

        # Weights, windows of several leaves, then windows of one leaf with all degrees.
        frame = work.frame
        if frame is not self._frame:
            self._take(frame)
        if self.weighted and plan.counts.updated:
            self._kernels["commit"].SetWeights(
                len(run), batch=work.batch, outcome=plan.outcome, weight=run.weight, array=frame.array
            )
        if work.wider:
            self._write_windows(work, frame, run.weight)
        self._write_leaves(run, frame, work)
        self._keep(work.scratch)

    def _write_windows(self, work: Work, frame: Frame, weight: Array) -> None:
        """Write the windows of several leaves."""
        # Row starts first, then wide windows, then those of few leaves and of a block.
        kernels, both, (windows, n) = self._kernels["commit"], {"batch": work.batch, "leaves": work.leaves}, work.rows
        if n:  # before the merges, since it counts in the old leaves
            after = frame if work.after is None else work.after
            kernels.MoveRows(
                n, **both, windows=windows, n=n, out_leaves=work.out_leaves, rows=self.n_rows + 1,
                start=frame.starts, moved=after.starts,
            )  # fmt: skip
        if work.out:
            self._write_wide(work, both, weight)
        for merge, (windows, n) in zip(frame.merges, (work.few_windows, work.block_windows), strict=True):
            if n:
                merge(n, batch=work.batch, weight=weight, windows=windows, n=n)

    def _write_leaves(self, run: Run, frame: Frame, work: Work) -> None:
        """Write the windows of single leaves, row starts, and all degrees."""
        windows, n, scratch = work.leaf_windows, len(run.keys), work.scratch
        if n <= scratch.most_small:
            lanes = max(windows * self._lanes, windows + n)
            scratch.write_leaves(-(-lanes // 256), keys=run.keys, n=n, weight=run.weight, windows=windows)
            return
        common = {"batch": work.batch, "levels": scratch.levels, "first_keys": scratch.leaf_list}
        if windows:
            frame.merge_leaves(windows, **common, weight=run.weight, n=windows)
        frame.update_rows(windows + n, **common, windows=windows)

    def _write_wide(self, work: Work, both: dict[str, Struct], weight: Array) -> None:
        """Write wide windows, or the whole array, by way of copies."""
        kernels, (windows, n), out = self._kernels["commit"], work.parts, work.out
        assert out is not None
        flat = Struct(slots=out["slots"], weights=out["weights"])
        kernels.Gather(
            n, **both, array=work.frame.array, weight=weight, windows=windows, cuts=work.cuts, n=n,
            out=flat, out_leaves=work.out_leaves,
        )  # fmt: skip

        # Copy windows back; a new array gets its directory.
        if work.after is None:
            kernels.CopyBack(n, **both, array=work.frame.array, windows=windows, n=n, copy=flat)
            return
        columns = {name: out[name] for name in ("slots", "counts", "groups", "heads")}
        self._kernels["build"].EvenCounts(work.out_leaves, total=work.num_edges, leaves=work.out_leaves, **columns)
        self._take(work.after)

    # --- the rest of the contract ---

    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        start = self.device.full(n_rows + 1, self._end_of(self.leaves), np.int64)
        degrees = self.device.zeros(n_rows, np.uint32)
        start[: self.n_rows + 1], degrees[: self.n_rows] = self.start, self._degrees
        return {"start": start, "degrees": degrees}

    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        self._take(self.frame(self._frame.arrays, arrays["start"], arrays["degrees"], self._frame.bounds))

    def _own_arrays(self) -> None:
        self._load_kernels()
        arrays, start, degrees = self._cloned(self._frame.arrays), self._frame.start, self._frame.degrees
        self._take(self.frame(arrays, cloned(self.device, start), cloned(self.device, degrees)))

    def _cloned(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Return copies of a frame's arrays."""
        return {name: cloned(self.device, array) for name, array in arrays.items()}

    def view(self) -> View:
        """Return array, row starts and degrees; valid until the next commit."""
        return self._frame.view

    @property
    def nbytes(self) -> int:
        """Bytes of device memory, without the scratch kept for small batches."""
        return self._nbytes

    def _columns(self) -> list[Array]:
        """Return the arrays of leaves and of their directory."""
        return list(self._frame.arrays.values())

    # --- invariants, for tests: on the host ---

    def _check_directory(self, slots: np.ndarray) -> None:
        """Assert invariants 1, 2, 5 and 6, given the slots in reading order."""
        counts, degrees, groups, heads = map(self.device.to_host, (self.counts, self._degrees, self.groups, self.heads))
        assert counts.sum(dtype=np.int64) == self.num_edges == degrees.sum(dtype=np.int64), "1"
        assert (groups == np.add.reduceat(counts, np.arange(0, self.leaves, GROUP), dtype=np.int64)).all(), "5"
        assert (heads[: self.leaves] == slots[:: self.leaf]).all(), "6"
        assert counts.max() <= self.bounds()[1][0], "2"
        live = (np.arange(self.leaf) < counts[:, None]).ravel()
        assert ((slots != NOBODY) == live).all(), "2"

    def _check_rows(self, slots: np.ndarray, start: np.ndarray) -> None:
        """Assert invariants 3 and 4, given slots and row starts in reading order."""
        degrees, live = self.device.to_host(self._degrees), slots != NOBODY
        assert start[0] >= 0, "3"
        assert (np.diff(start) >= 0).all(), "3"
        before = np.concatenate([[0], np.cumsum(live)])
        assert (np.diff(before[start]) == degrees).all(), "4"
        items = slots[live].astype(np.int64)
        row = np.repeat(np.arange(self.n_rows), degrees)
        assert (np.diff(row << 32 | items) > 0).all(), "4"
        assert not len(items) or items.max() < self.n_vertices, "4"
