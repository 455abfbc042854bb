"""The contract of all local dynamic structures, and what they share: checks, batches in two steps, reads by the View.

A structure holds the rows 0 .. n_rows - 1 of a directed simple graph on one device: unique (row, dst), optional float32
weight. Rows are local sources; dst are ids below n_vertices, which may be more than n_rows where a structure is one
range of a larger graph. A structure is used by one thread at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar

import numpy as np

from mgraph.batch import MAX_VERTICES, EdgeBatch, as_ids, check_ids
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption, UnknownVertex
from mgraph.kernels import Library, Struct, View, constants, load
from mgraph.structures.plan import Counts, Plan, VerticesPlan
from mgraph.structures.run import Run, check_batch, sort_batch, sort_run
from mgraph.structures.sort import make_keys

__all__ = ["DEAD_BITS", "KEPT", "Counts", "Csr", "Plan", "Structure", "VerticesPlan"]

Array = Any
HUB_DEGREE = 1024  # rows of more edges are cut into tasks for several tiles
MOST = (1 << 31) - 1  # operations in one run
DEAD_BITS = constants("structures/dead.cuh")["dead_bits"]  #: vertices per word, in the bitmap of deleted vertices
_BOOL = np.dtype(bool)
KEPT = 1 << 20  #: the largest batch, in operations, whose scratch a structure keeps for the next one


@dataclass(frozen=True)
class Csr:
    """Rows as offsets, int64[n_rows + 1], dst, uint32[m], and weight, float32[m] or None; on the structure's device.

    What `k_hop` returns has `hop`, int32[m], besides. Rows that a graph with times gives may have `time`, int64[m], or
    datetime64[m].
    """

    offsets: Array
    dst: Array
    weight: Array = None
    hop: Array = None
    time: Array = None


class Structure(ABC):
    """A local dynamic graph structure.

    Parameters
    ----------
    n_rows : int
        Rows 0 .. n_rows - 1.
    n_vertices : int
        Bound of dst.
    device : Device
        Made the calling thread's current device. Another thread that uses the structure calls `Device.use` first.
    weighted : bool
        Whether edges have a float32 weight; inserts without one get 1.
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
        self._state = object()  # replaced by every change, so that older plans can be refused
        self._kept: Any = None  # scratch of the last batch
        self._readers: tuple[Any, Library] | None = None  # the kernels of reads, by the view's macros

    @property
    def checks_ids(self) -> bool:
        """Whether the next `_prepare` itself checks the ids of an unchecked run, which saves a read-back."""
        return False

    # --- what each structure does its own way ---

    @abstractmethod
    def _prepare(self, run: Run) -> Plan:
        """`prepare` for a run that is not empty. One read-back on a GPU unless the class says otherwise."""

    @abstractmethod
    def _commit(self, plan: Plan, work: Any) -> None:
        """`commit` for a valid plan whose run is not empty; `work` is the plan's."""

    @abstractmethod
    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        """By name, the arrays that the structure has once it holds `n_rows` rows; changes nothing."""

    @abstractmethod
    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        """Take over what `_prepare_vertices` made; n_rows and n_vertices are the new ones already."""

    @abstractmethod
    def view(self) -> View:
        """What algorithms' kernels read; valid until the next commit of a batch or of vertices."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of device memory that the structure holds."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Assert every invariant that the structure's module numbers. O(n), copies to the host; for tests."""

    # --- a batch in two steps ---

    def prepare(self, run: Run) -> Plan:
        """Find out what `run` would do and allocate all memory that its commit needs; changes nothing.

        One read-back on a GPU unless the class says otherwise.

        Raises
        ------
        CapacityError
            Memory does not suffice, or the run has 2**31 operations or more.
        UnknownVertex
            An id of an unchecked run is out of range.
        """
        if (n := len(run.keys)) > MOST:
            raise CapacityError(f"a run of {n} operations; at most {MOST} at once")
        if n == 0:
            return Plan(run, Counts(), self.device.empty(0, np.uint8), (), self._state)
        if run.unchecked is not None and not self.checks_ids:
            check_batch(run.unchecked, self.n_rows, self.n_vertices)
        return self._prepare(run)

    def commit(self, plan: Plan) -> Counts:
        """Apply a prepared batch. Allocates nothing; asynchronous on a GPU.

        Raises `InvalidOption`, and changes nothing, where the plan was committed or discarded, or made for another
        state or structure. It cannot refuse a valid one.
        """
        work, state = plan.work, plan.state
        if work is None or state is not self._state:
            self._check_plan(work is not None, state)
        plan.work, self._state = None, object()
        if len(plan.run.keys):
            self._commit(plan, work)
        return plan.counts

    def discard(self, plan: Plan) -> None:
        """Give up a plan. Its memory is freed, or kept for the next batch."""
        if plan.work is not None and plan.state is self._state:
            self._keep(plan.scratch)
        plan.work = None

    def _check_plan(self, unused: bool, state: object) -> None:
        if not unused or state is not self._state:
            raise InvalidOption(
                "this plan was committed or discarded before, or the structure has changed since it was made, "
                "or another structure made it"
            )

    def _take_scratch(self, run: Run) -> Any:
        """Scratch for a run: the last batch's if it is large enough, which saves allocating and packing it."""
        n = len(run.keys)
        if n > KEPT:
            return self._new_scratch(n, run)
        scratch, self._kept = self._kept, None
        if scratch is None or scratch.capacity < n:
            scratch = self._new_scratch(min(KEPT, max(1 << n.bit_length(), 1024)), run)
        return scratch

    def _new_scratch(self, capacity: int, run: Run) -> Any:
        """New scratch with an attribute `capacity`, the most operations; for structures that use scratch."""
        raise NotImplementedError

    def _keep(self, scratch: Any) -> None:
        """Keep a batch's scratch for the next one, unless it is large."""
        if scratch is not None and scratch.capacity <= KEPT:
            self._kept = scratch

    def _refuse(self, run: Run, unknown: int) -> None:
        """Raise `UnknownVertex` for a run with ids out of range; names the first one where the batch is known."""
        if run.unchecked is not None:
            check_batch(run.unchecked, self.n_rows, self.n_vertices)
        raise UnknownVertex(
            f"{unknown} ids of a run are out of range: there are {self.n_rows} rows and {self.n_vertices} vertices"
        )

    # --- vertices in two steps ---

    def prepare_vertices(self, n: int, rows: int | None = None) -> VerticesPlan:
        """Allocate all memory that `n` more vertices and `rows` more rows, by default `n`, need; changes nothing.

        O(n_rows) unless the class says otherwise; no read-back.

        Raises
        ------
        InvalidOption
            A negative number.
        CapacityError
            More vertices than 32-bit ids allow, or than memory.
        """
        n, rows = index(n), index(n if rows is None else rows)
        if n < 0 or rows < 0:
            raise InvalidOption(f"{min(n, rows)} vertices cannot be added; 0 or more can")
        n_rows, n_vertices = self.n_rows + rows, self.n_vertices + n
        if max(n_rows, n_vertices) > MAX_VERTICES:
            raise CapacityError(f"{self.n_vertices} vertices and {n} more; 32-bit ids allow {MAX_VERTICES}")
        return VerticesPlan(n_rows, n_vertices, self._prepare_vertices(n_rows), self._state)

    def commit_vertices(self, plan: VerticesPlan) -> None:
        """Raise n_vertices and n_rows as prepared; the new rows are empty. O(1), allocates nothing.

        Raises `InvalidOption`, and changes nothing, where `commit` would. It cannot refuse a valid plan.
        """
        self._check_plan(bool(plan.work), plan.state)
        self._take_vertices(plan)

    def discard_vertices(self, plan: VerticesPlan) -> None:
        """Give up a plan and free its memory."""
        plan.work.clear()

    def undo_vertices(self, plan: VerticesPlan) -> None:
        """Go back to before `commit_vertices`, by a plan of ``prepare_vertices(0, 0)`` that was made before it.

        No batch was committed since, so the vertices that go have no edges. O(1), allocates nothing.
        """
        self._take_vertices(plan)

    def _take_vertices(self, plan: VerticesPlan) -> None:
        arrays = dict(plan.work)
        plan.work.clear()
        self.n_rows, self.n_vertices, self._state = plan.n_rows, plan.n_vertices, object()
        self._commit_vertices(arrays)

    def add_vertices(self, n: int, rows: int | None = None) -> None:
        """`prepare_vertices` and `commit_vertices` in one."""
        self.commit_vertices(self.prepare_vertices(n, rows))

    # --- batches ---

    def apply(self, batch: EdgeBatch) -> Counts:
        """Apply a batch of inserts and deletes; of repeats the last one counts. An error changes nothing."""
        if batch.weight is not None and not self.weighted:
            raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
        check = not self.checks_ids
        return self.apply_run(sort_batch(self.device, batch, self.n_rows, self.n_vertices, check))

    def apply_run(self, run: Run) -> Counts:
        """`apply` for a run; that it is sorted is not checked."""
        return self.commit(self.prepare(run))

    def insert(self, batch: EdgeBatch) -> Counts:
        """Insert every edge of a batch and ignore its ops. An edge that exists gets the new weight."""
        return self.apply(EdgeBatch(batch.src, batch.dst, batch.weight))

    def delete(self, batch: EdgeBatch) -> Counts:
        """Delete every edge of a batch and ignore its ops. An edge that does not exist counts as missing."""
        return self.apply(EdgeBatch(batch.src, batch.dst, op=-1))

    def build(self, batch: EdgeBatch) -> Counts:
        """Fill an empty structure with every edge of a batch and ignore its ops."""
        if self.num_edges:
            raise InvalidOption(f"build needs an empty structure; this one has {self.num_edges} edges")
        return self.insert(batch)

    def incident(self, vertices: Array, rows: Array | None = None) -> Run:
        """A run that deletes every edge whose dst is among `vertices` or whose row is among `rows`.

        Without `rows`, `vertices` are the rows too; that needs n_rows == n_vertices. O(n_rows + m): two scans and a
        sort of what they find. One read-back, and one more to check each column of ids.
        """
        if rows is None and self.n_rows != self.n_vertices:
            raise InvalidOption("incident on one range of a graph needs `rows`, numbered within that range")
        vertices = self._ids(vertices, "vertices", self.n_vertices)
        return self._incident(vertices, vertices if rows is None else self._ids(rows, "rows", self.n_rows))

    def _incident(self, vertices: Array, rows: Array) -> Run:
        """`incident` for ids that are checked."""
        empty, zeros = self.device.empty, self.device.zeros
        view = self.view()
        kernels = load(self.device, "structures/incident.cuh", view, HUB_DEGREE=HUB_DEGREE)
        dead, dead_rows = (zeros(bound // DEAD_BITS + 2, np.uint32) for bound in (self.n_vertices, self.n_rows))
        kernels.MarkDead(len(vertices), vertices=vertices, n=len(vertices), dead=dead)
        kernels.MarkDead(len(rows), vertices=rows, n=len(rows), dead=dead_rows)
        tasks, n_tasks = empty(2 * self.num_edges // HUB_DEGREE, np.uint64), zeros(1, np.int64)
        offsets: Array = zeros(self.n_rows + 1, np.int64)
        keys: Array = None
        found = {"graph": view, "sought": Struct(dead=dead, dead_rows=dead_rows), "tasks": tasks, "next": offsets}
        for hubs, place in ((tasks, n_tasks), (None, None)):  # the hubs are listed once
            kernels.Incident(self.n_rows, **{**found, "tasks": hubs}, rows=self.n_rows, n_tasks=place, keys=keys)
            kernels.IncidentHubs(len(tasks), **found, n_tasks=n_tasks, keys=keys)
            if keys is None:
                self.device.cumsum(offsets, out=offsets)
                keys = empty(int(offsets[-1]), np.uint64)
        self.device.sort(keys)
        return Run(keys, self.device.full(len(keys), -1, np.int8))

    def delete_vertices(self, ids: Any, symmetric: bool = False) -> Counts:
        """Delete every edge to and from `ids`; the ids stay, with degree 0. Needs n_rows == n_vertices.

        O(n_rows + m). With `symmetric`, for a graph that is its own reverse, O(d log d), where d is the sum of the
        degrees of `ids`: the edges to them are then the reverses of the edges from them. A reverse that does not exist
        counts as missing.
        """
        if self.n_rows != self.n_vertices:
            raise InvalidOption("delete_vertices on one range of a graph; apply_run(incident(vertices, rows)) does it")
        vertices = self._ids(ids, "ids", self.n_vertices)
        if len(vertices) == 0 or self.num_edges == 0:
            return Counts()
        return self.apply_run(self._both_ways(vertices)) if symmetric else self._delete_vertices(vertices)

    def _delete_vertices(self, vertices: Array) -> Counts:
        """`delete_vertices` for checked ids of any graph: by default a batch of what `incident` finds."""
        return self.apply_run(self._incident(vertices, vertices))

    def _both_ways(self, vertices: Array) -> Run:
        """A run that deletes every edge from `vertices`, and its reverse."""
        xp = self.device.xp
        with self.device.taking(12 * len(vertices), f"{len(vertices)} vertices, each once"):
            rows = xp.unique(vertices)
        csr = self._gather(rows)
        with self.device.taking(24 * len(csr.dst), f"the rows of {len(csr.dst)} edges"):
            row = rows[xp.searchsorted(csr.offsets, xp.arange(len(csr.dst)), side="right") - 1]
        pairs = ((row, csr.dst), (csr.dst, row))
        keys = self.device.concatenate([make_keys(self.device, src, dst) for src, dst in pairs])
        return sort_run(self.device, keys, -1)

    # --- reads ---

    sorted_rows: ClassVar[bool]  #: whether neighbours come in ascending order

    def _reads(self) -> tuple[Library, View]:
        view, known = self.view(), self._readers
        if known is None or known[0] != view.defines:
            known = self._readers = view.defines, load(self.device, "structures/read.cuh", view)
        return known[1], view

    def _ids(self, ids: Any, name: str, bound: int) -> Array:
        ids = as_ids(ids, name)
        check_ids(ids, bound, name)
        return self.device.asarray(ids)

    def has_edges(self, src: Any, dst: Any, *, checked: bool = False, out: Array = None) -> Array:
        """Whether each edge exists: bool[n] on the device. O(log degree) each, or O(1) expected by hashing.

        Ids that are `checked` are uint32[n] on the device, and known to be rows and vertices. The answers go to `out`,
        uint8[n] on the device, if it is given.
        """
        if not checked:
            src, dst = self._pairs(src, dst)
        return self._find(src, dst, self.device.empty(len(src), np.uint8) if out is None else out)

    def _pairs(self, src: Any, dst: Any) -> tuple[Array, Array]:
        src, dst = self._ids(src, "src", self.n_rows), self._ids(dst, "dst", self.n_vertices)
        if src.shape != dst.shape:
            raise InvalidBatch(f"src has shape {src.shape} and dst {dst.shape}")
        return src, dst

    def _find(self, src: Array, dst: Array, found: Array) -> Array:
        """`has_edges` for checked ids: by default one lane per query, through the View."""
        kernels, view = self._reads()
        n = len(src)
        kernels.HasEdges(n, graph=view, src=src, dst=dst, n=n, found=found)
        return found.view(_BOOL)

    def find_weights(self, src: Any, dst: Any, *, checked: bool = False, out: Array = None) -> Array:
        """The weight of each edge: float32[n] on the device, NaN where there is no edge; 1 without weights.

        O(log degree) each, or O(1) expected by hashing. `checked` and `out`, float32[n], as in `has_edges`.
        """
        if not checked:
            src, dst = self._pairs(src, dst)
        kernels, view = self._reads()
        weights = self.device.empty(len(src), np.float32) if out is None else out
        kernels.Weights(len(src), graph=view, src=src, dst=dst, n=len(src), weights=weights)
        return weights

    def degrees(self, vertices: Any = None, *, checked: bool = False, out: Array = None) -> Array:
        """Out-degrees, uint32[n] on the device, of `vertices` or else of all rows. O(1) each.

        `checked` and `out`, uint32[n], as in `has_edges`.
        """
        if vertices is None:
            rows = self.device.arange(0, self.n_rows, np.uint32)
        else:
            rows = vertices if checked else self._ids(vertices, "vertices", self.n_rows)
        kernels, view = self._reads()
        n = len(rows)
        degrees = self.device.empty(n, np.uint32) if out is None else out
        kernels.Degrees(n, graph=view, vertices=rows, n=n, degrees=degrees)
        return degrees

    def common_neighbors(self, u: Any, v: Any) -> Array:
        """How many neighbours the rows ``u[i]`` and ``v[i]`` have in common: int64[n] on the device.

        Both rows are in this structure. A self-loop counts as any edge does, and the common neighbours of a row with
        itself are its degree. Each edge of the shorter row is sought in the longer one: O(d log D) a pair where rows
        are sorted, O(d) expected by hashing, O(d D) otherwise. Asynchronous on a GPU.

        Raises
        ------
        UnknownVertex
            An id is not below n_rows.
        InvalidBatch
            The two have different shapes, or hold what is no id.
        """
        u, v = self._ids(u, "u", self.n_rows), self._ids(v, "v", self.n_rows)
        if u.shape != v.shape:
            raise InvalidBatch(f"u has shape {u.shape} and v {v.shape}")
        kernels, view = self._reads()
        counts = self.device.empty(len(u), np.int64)
        kernels.CommonNeighbors(len(u), graph=view, u=u, v=v, n=len(u), counts=counts)
        return counts

    def neighbors(self, vertices: Any, *, checked: bool = False) -> Csr:
        """The rows of `vertices`, in their order, as offsets, dst and weight. O(sum of degrees); one read-back.

        `checked` as in `has_edges`.
        """
        return self._gather(vertices if checked else self._ids(vertices, "vertices", self.n_rows))

    def to_csr(self) -> Csr:
        """All rows as CSR. O(n + m)."""
        return self._gather(self.device.arange(0, self.n_rows, np.uint32))

    def _gather(self, rows: Array) -> Csr:
        kernels, view = self._reads()
        offsets = self.device.zeros(len(rows) + 1, np.int64)
        degrees = self.device.empty(len(rows), np.uint32)
        kernels.Degrees(len(rows), graph=view, vertices=rows, n=len(rows), degrees=degrees)
        self.device.cumsum(degrees, out=offsets[1:])
        total = int(offsets[-1])
        dst = self.device.empty(total, np.uint32)
        weight = self.device.empty(total, np.float32) if self.weighted else None
        kernels.Neighbors(len(rows), graph=view, vertices=rows, n=len(rows), offsets=offsets, dst=dst, weight=weight)
        return Csr(offsets, dst, weight)
