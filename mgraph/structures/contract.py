"""Contract of all structures, with common checks and two-step batches.

A structure holds the rows 0 .. n_rows - 1 of a directed simple graph on one device: unique (row, dst), optional float32
weight. Rows are local sources; dst are ids below n_vertices, which exceeds n_rows if the structure is one range of a
larger graph. A structure is used by one thread at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from operator import index
from typing import Any, ClassVar, Self

import numpy as np

from mgraph.batch import MAX_VERTICES, EdgeBatch
from mgraph.device import Device
from mgraph.distinct import distinct
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption, UnknownVertex
from mgraph.kernels import Struct, constants, load
from mgraph.structures.plan import NO_COUNTS, Counts, Plan, VerticesPlan
from mgraph.structures.reads import Reads
from mgraph.structures.run import Run, check_batch, sort_batch, sort_few, sort_run
from mgraph.structures.sort import make_keys

__all__ = ["DELETED_BITS", "HUB_DEGREE", "KEPT", "Structure"]

Array = Any
HUB_DEGREE = 1024  #: a vertex with more edges is a hub: its row is cut into tasks of about this size, for any tile
MOST = (1 << 31) - 1  # maximum of operations in a run
DELETED_BITS = constants("structures/deleted_set.cuh")["deleted_bits"]  #: vertices per word of the deleted set
KEPT = 1 << 20  #: the largest batch, in operations, whose scratch a structure keeps for the next one


class Structure(Reads):
    """Local dynamic graph structure.

    Parameters
    ----------
    n_rows : int
        Rows 0 .. n_rows - 1.
    n_vertices : int
        Bound of dst.
    device : Device
        Made the calling thread's current device. Another thread that uses the structure calls `Device.use` first.
    weighted : bool
        True if edges have a float32 weight; inserts without one get 1.

    Attributes
    ----------
    state : object
        Token that every change of the structure replaces.
    """

    name: ClassVar[str]
    num_edges: int

    def __init__(self, n_rows: int, n_vertices: int, device: Device, weighted: bool) -> None:
        n_rows, n_vertices = index(n_rows), index(n_vertices)
        for n in (n_rows, n_vertices):
            if not 0 <= n <= MAX_VERTICES:
                raise CapacityError(f"{n} vertices; 32-bit ids allow 0 to {MAX_VERTICES}")
        self.n_rows, self.n_vertices, self.device, self.weighted = n_rows, n_vertices, device, weighted
        device.use()
        self.num_edges = 0
        self.state = object()  # replaced by every change, so that older plans can be refused
        self._kept: Any = None  # scratch of the last batch

    @property
    def checks_ids(self) -> bool:
        """True if the next `_prepare` checks the ids of an unchecked run, which saves a read-back."""
        return False

    # --- implemented by each structure ---

    @abstractmethod
    def _prepare(self, run: Run) -> Plan:
        """Prepare a run that is not empty. One read-back on a GPU unless the class says otherwise."""

    @abstractmethod
    def _commit(self, plan: Plan, work: Any) -> None:
        """Commit a valid, non-empty plan; `work` is the plan's."""

    @abstractmethod
    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        """Return the arrays with `n_rows` rows, by name; changes nothing."""

    @abstractmethod
    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        """Adopt the arrays of `_prepare_vertices`; n_rows and n_vertices are updated already."""

    @abstractmethod
    def _own_arrays(self) -> None:
        """Load the kernels for `device`, and replace all arrays by copies in its memory."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of device memory."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Assert every invariant of the structure's module. O(n), copies to the host; for tests."""

    def clone(self, device: Device | None = None) -> Self:
        """Return an independent copy with the same edges in the same places.

        O(`nbytes`): the arrays are copied as they are. Plans belong to the structure that made them. Asynchronous on a
        GPU, on the calling thread's stream.

        Parameters
        ----------
        device : Device, optional
            The device for the copy's kernels and memory: this structure's CPU or GPU, with other threads or another
            budget. By default this structure's.

        Raises
        ------
        CapacityError
            The memory does not suffice.
        """
        twin = copy(self)
        twin.device = self.device if device is None else device
        twin.state, twin._kept, twin._readers, twin.single = object(), None, None, None
        twin._own_arrays()
        return twin

    # --- a batch in two steps ---

    def prepare(self, run: Run) -> Plan:
        """Determine the outcome of a run and allocate all memory for its commit; changes nothing.

        One read-back on a GPU unless the class says otherwise.

        Raises
        ------
        CapacityError
            The memory does not suffice, or the run has 2**31 operations or more.
        UnknownVertex
            An id of an unchecked run is out of range.
        """
        if (n := len(run.keys)) > MOST:
            raise CapacityError(f"a run of {n} operations; at most {MOST} at once")
        if n == 0:
            return Plan(run, NO_COUNTS, self.device.empty(0, np.uint8), (), self.state)
        if run.unchecked is not None and not self.checks_ids:
            check_batch(run.unchecked, self.n_rows, self.n_vertices)
        return self._prepare(run)

    def commit(self, plan: Plan) -> Counts:
        """Apply a prepared batch. Allocates nothing; asynchronous on a GPU.

        Raises `InvalidOption`, and changes nothing, if the plan was committed or discarded, or made for another state
        or structure. A valid plan is never refused.
        """
        work, state = plan.work, plan.state
        if work is None or state is not self.state:
            self._check_plan(work is not None, state)
        plan.work, self.state = None, object()
        if len(plan.run.keys):
            self._commit(plan, work)
        return plan.counts

    def discard(self, plan: Plan) -> None:
        """Discard a plan. Its memory is freed or reused."""
        if plan.work is not None and plan.state is self.state:
            self._keep(plan.scratch)
        plan.work = None

    def _check_plan(self, unused: bool, state: object) -> None:
        """Raise `InvalidOption` for a used or outdated plan."""
        if not unused or state is not self.state:
            raise InvalidOption(
                "this plan was committed or discarded before, or the structure has changed since it was made, "
                "or another structure made it"
            )

    def _take_scratch(self, run: Run) -> Any:
        """Return the last batch's scratch if it is large enough, else allocate."""
        # Reuse saves allocating and packing; capacities are powers of two.
        n = len(run.keys)
        if n > KEPT:
            return self._new_scratch(n, run)
        scratch, self._kept = self._kept, None
        if scratch is None or scratch.capacity < n:
            scratch = self._new_scratch(min(KEPT, max(1 << n.bit_length(), 1024)), run)
        return scratch

    def _new_scratch(self, capacity: int, run: Run) -> Any:
        """Allocate scratch with an attribute `capacity`, the maximum of operations."""
        raise NotImplementedError

    def _keep(self, scratch: Any) -> None:
        """Keep a batch's scratch for the next batch, unless it is large."""
        if scratch is not None and scratch.capacity <= KEPT:
            self._kept = scratch

    def _refuse(self, run: Run, unknown: int) -> None:
        """Raise `UnknownVertex` for ids out of range, naming the first one if the batch is at hand."""
        if run.unchecked is not None:
            check_batch(run.unchecked, self.n_rows, self.n_vertices)
        raise UnknownVertex(
            f"{unknown} ids of a run are out of range: there are {self.n_rows} rows and {self.n_vertices} vertices"
        )

    # --- vertices in two steps ---

    def prepare_vertices(self, n: int, rows: int | None = None) -> VerticesPlan:
        """Allocate memory for `n` more vertices and `rows` more rows, by default `n`; changes nothing.

        O(n_rows) unless the class says otherwise; no read-back.

        Raises
        ------
        InvalidOption
            A number is negative.
        CapacityError
            The vertices exceed 32-bit ids, or the memory.
        """
        n, rows = index(n), index(n if rows is None else rows)
        if n < 0 or rows < 0:
            raise InvalidOption(f"{min(n, rows)} vertices cannot be added; 0 or more can")
        n_rows, n_vertices = self.n_rows + rows, self.n_vertices + n
        if max(n_rows, n_vertices) > MAX_VERTICES:
            raise CapacityError(f"{self.n_vertices} vertices and {n} more; 32-bit ids allow {MAX_VERTICES}")
        return VerticesPlan(n_rows, n_vertices, self._prepare_vertices(n_rows), self.state)

    def commit_vertices(self, plan: VerticesPlan) -> None:
        """Increase n_vertices and n_rows as prepared; the new rows are empty. O(1), allocates nothing.

        Raises `InvalidOption`, and changes nothing, in the cases of `commit`. A valid plan is never refused.
        """
        self._check_plan(bool(plan.work), plan.state)
        self._take_vertices(plan)

    def discard_vertices(self, plan: VerticesPlan) -> None:
        """Discard a plan and free its memory."""
        plan.work.clear()

    def undo_vertices(self, plan: VerticesPlan) -> None:
        """Undo `commit_vertices` by a plan of ``prepare_vertices(0, 0)`` that was made before it.

        No batch was committed since, so the removed vertices have no edges. O(1), allocates nothing.
        """
        self._take_vertices(plan)

    def _take_vertices(self, plan: VerticesPlan) -> None:
        arrays = dict(plan.work)
        plan.work.clear()
        self.n_rows, self.n_vertices, self.state = plan.n_rows, plan.n_vertices, object()
        self._commit_vertices(arrays)

    def add_vertices(self, n: int, rows: int | None = None) -> None:
        """Prepare and commit the addition of vertices."""
        self.commit_vertices(self.prepare_vertices(n, rows))

    # --- batches ---

    def apply(self, batch: EdgeBatch) -> Counts:
        """Apply a batch of inserts and deletes; the last of repeats counts. An error changes nothing."""
        if batch.weight is not None and not self.weighted:
            raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
        check = not self.checks_ids
        return self.apply_run(sort_batch(self.device, batch, self.n_rows, self.n_vertices, check))

    def apply_run(self, run: Run) -> Counts:
        """Apply a run, which must be sorted; this is not checked."""
        return self.apply_at_once(run).counts

    def apply_at_once(self, run: Run) -> Plan:
        """Apply a sorted run, and return its committed plan: counts, and outcomes until the next batch."""
        plan = self.prepare(run)
        self.commit(plan)
        return plan

    def apply_few(self, src: Any, dst: Any, op: Any = None, weight: Any = None) -> Counts:
        """Apply at most `FEW` operations of host memory in stream order, and wait. Their ids are not checked."""
        counts = self.apply_run(sort_few(self.device, src, dst, op, weight))
        if self.device.kind != "cpu":
            self.device.synchronize()
        return counts

    def insert(self, batch: EdgeBatch) -> Counts:
        """Insert every edge of a batch, ignoring ops. Existing edges get the new weight."""
        return self.apply(EdgeBatch(batch.src, batch.dst, batch.weight))

    def delete(self, batch: EdgeBatch) -> Counts:
        """Delete every edge of a batch, ignoring ops. Edges that do not exist count as missing."""
        return self.apply(EdgeBatch(batch.src, batch.dst, op=-1))

    def build(self, batch: EdgeBatch) -> Counts:
        """Fill an empty structure with every edge of a batch, ignoring ops."""
        if self.num_edges:
            raise InvalidOption(f"build needs an empty structure; this one has {self.num_edges} edges")
        return self.insert(batch)

    def incident(self, vertices: Array, rows: Array | None = None) -> Run:
        """Return a run that deletes every edge with a dst in `vertices` or a row in `rows`.

        Without `rows`, `vertices` are the rows too; that needs n_rows == n_vertices. O(n_rows + m): two scans, and a
        sort of their edges. One read-back, and one more to check each column of ids.
        """
        if rows is None and self.n_rows != self.n_vertices:
            raise InvalidOption("incident on one range of a graph needs `rows`, numbered within that range")
        vertices = self._ids(vertices, "vertices", self.n_vertices)
        return self._incident(vertices, vertices if rows is None else self._ids(rows, "rows", self.n_rows))

    def _incident(self, vertices: Array, rows: Array) -> Run:
        """Return the run of `incident` for checked ids."""
        # Mark the vertices and the rows in bitmaps.
        empty, zeros = self.device.empty, self.device.zeros
        view = self.view()
        kernels = load(self.device, "structures/incident.cuh", view, HUB_DEGREE=HUB_DEGREE)
        dead, dead_rows = (zeros(bound // DELETED_BITS + 2, np.uint32) for bound in (self.n_vertices, self.n_rows))
        kernels.MarkDeleted(len(vertices), vertices=vertices, n=len(vertices), dead=dead)
        kernels.MarkDeleted(len(rows), vertices=rows, n=len(rows), dead=dead_rows)

        # Count the edges per row, then list them at the prefix sums. Hubs are listed once, as tasks.
        tasks, n_tasks = empty(2 * self.num_edges // HUB_DEGREE, np.uint64), zeros(1, np.int64)
        offsets: Array = zeros(self.n_rows + 1, np.int64)
        keys: Array = None
        common = {"graph": view, "sought": Struct(dead=dead, dead_rows=dead_rows), "tasks": tasks, "next": offsets}
        for hubs, place in ((tasks, n_tasks), (None, None)):
            kernels.Incident(self.n_rows, **{**common, "tasks": hubs}, rows=self.n_rows, n_tasks=place, keys=keys)
            kernels.IncidentHubs(len(tasks), **common, n_tasks=n_tasks, keys=keys)
            if keys is None:
                self.device.cumsum(offsets, out=offsets)
                keys = empty(int(offsets[-1]), np.uint64)
        self.device.sort(keys)
        return Run(keys, self.device.full(len(keys), -1, np.int8))

    def delete_vertices(self, ids: Any, symmetric: bool = False) -> Counts:
        """Delete every edge to and from `ids`, which stay with degree 0. Needs n_rows == n_vertices.

        O(n_rows + m). With `symmetric`, for a graph that is its own reverse, O(d log d), where d is the sum of the
        degrees of `ids`: the edges to them are then the reverses of the edges from them. Reverses that do not exist
        count as missing.
        """
        if self.n_rows != self.n_vertices:
            raise InvalidOption("delete_vertices on one range of a graph; apply_run(incident(vertices, rows)) does it")
        vertices = self._ids(ids, "ids", self.n_vertices)
        if len(vertices) == 0 or self.num_edges == 0:
            return Counts()
        return self.apply_run(self._both_ways(vertices)) if symmetric else self._delete_vertices(vertices)

    def _delete_vertices(self, vertices: Array) -> Counts:
        """Delete the edges of checked ids, by default by `incident`."""
        return self.apply_run(self._incident(vertices, vertices))

    def _both_ways(self, vertices: Array) -> Run:
        """Return a run that deletes every edge from `vertices`, and its reverse."""
        xp = self.device.xp
        with self.device.taking(12 * len(vertices), f"{len(vertices)} vertices, each once"):
            rows = distinct(vertices)
        # The row of edge i is the last one whose offset is at most i.
        csr = self._gather(rows)
        with self.device.taking(24 * len(csr.dst), f"the rows of {len(csr.dst)} edges"):
            row = rows[xp.searchsorted(csr.offsets, xp.arange(len(csr.dst)), side="right") - 1]
        pairs = ((row, csr.dst), (csr.dst, row))
        keys = self.device.concatenate([make_keys(self.device, src, dst) for src, dst in pairs])
        return sort_run(self.device, keys, -1)
