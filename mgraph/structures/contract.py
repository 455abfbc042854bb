"""The one contract of all local dynamic structures, and what they share: reads, which go through the View.

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
from mgraph.kernels import Library, Struct, View, load
from mgraph.structures.run import Run, check_batch, sort_batch, sort_run
from mgraph.structures.sort import make_keys

__all__ = ["KEPT", "Counts", "Csr", "Plan", "Structure"]

Array = Any
HUB_DEGREE = 1024  # rows of more edges are cut into tasks for several tiles
MOST = (1 << 31) - 1  # operations at once
KEPT = 1 << 20  #: operations up to which a structure keeps the scratch of a batch for the next one


@dataclass(frozen=True)
class Counts:
    """What a batch did, exactly. inserted + updated are its inserts, deleted + missing its deletes, repeats dropped."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    missing: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f) + getattr(other, f) for f in self.__dataclass_fields__))


@dataclass
class Plan:
    """A prepared batch: its counts, which of its edges were there, and every allocation that its commit needs.

    Valid for one `commit` or `discard` of the structure that made it, and until that structure changes otherwise.

    Attributes
    ----------
    run : Run
    counts : Counts
    outcome : uint8[n] on the device
        What becomes of each key of the run: 0 overridden by an equal key after it, 1 inserted, 2 updated, 3 deleted,
        4 missing.
    work : object
        The structure's own; None once the plan was used up.
    state : object
        The structure's state that it was made for.
    scratch : object
        Memory that the structure may keep for the next batch.
    """

    run: Run
    counts: Counts
    outcome: Array
    work: Any
    state: object
    scratch: Any = None


@dataclass(frozen=True)
class Csr:
    """Rows as offsets, int64[n_rows + 1], dst, uint32[m], and weight, float32[m] or None; on the structure's device."""

    offsets: Array
    dst: Array
    weight: Array = None


class Structure(ABC):
    """A local dynamic graph structure.

    Parameters
    ----------
    n_rows : int
        Rows 0 .. n_rows - 1.
    n_vertices : int
        Bound of dst.
    device : Device
        Becomes the calling thread's; another thread that uses the structure calls `Device.use` first.
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
        self._state = object()  # another one after every change: what a plan was made for
        self._kept: Any = None  # scratch of the last batch

    @property
    def checks_ids(self) -> bool:
        """Whether the next `_prepare` compares the ids of an unchecked run with their bounds: a read-back less."""
        return False

    # --- what each structure does its own way ---

    @abstractmethod
    def _prepare(self, run: Run) -> Plan:
        """`prepare` of a run that is not empty. One read-back on a GPU, or as the class says."""

    @abstractmethod
    def _commit(self, plan: Plan, work: Any) -> None:
        """`commit` of the work of a plan that is valid and whose run is not empty."""

    @abstractmethod
    def add_vertices(self, n: int, rows: int | None = None) -> None:
        """Raise n_vertices by `n` and n_rows by `rows`, by default as many; new rows are empty. O(n_rows)."""

    @abstractmethod
    def view(self) -> View:
        """What algorithms' kernels read; valid until the next commit or add_vertices."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of device memory that the structure holds."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Assert every invariant that the structure's module numbers. O(n), copies to the host; for tests."""

    # --- a batch in two steps ---

    def prepare(self, run: Run) -> Plan:
        """Find out what `run` does and take all memory that doing it needs; changes nothing.

        Costs one read-back on a GPU, or as the class says.

        Raises
        ------
        CapacityError
            Memory does not suffice, or the run has 2**31 operations or more.
        UnknownVertex
            An id of an unchecked run is not there.
        """
        if len(run) > MOST:
            raise CapacityError(f"a run of {len(run)} operations; at most {MOST} at once")
        if len(run) == 0:
            return Plan(run, Counts(), self.device.empty(0, np.uint8), (), self._state)
        if run.unchecked is not None and not self.checks_ids:
            check_batch(run.unchecked, self.n_rows, self.n_vertices)
        return self._prepare(run)

    def commit(self, plan: Plan) -> Counts:
        """Do what was prepared. Allocates nothing; asynchronous on a GPU.

        Raises `InvalidOption`, and changes nothing, where the plan was committed or discarded, or made for another
        state or structure. It cannot refuse a valid one.
        """
        if plan.work is None or plan.state is not self._state:
            raise InvalidOption("this plan was used up, made before the structure changed, or made by another one")
        work, plan.work, self._state = plan.work, None, object()
        if len(plan.run):
            self._commit(plan, work)
        return plan.counts

    def discard(self, plan: Plan) -> None:
        """Give up a plan; its memory is freed with it, or kept for the next batch."""
        if plan.work is not None and plan.state is self._state:
            self._keep(plan.scratch)
        plan.work = None

    def _take_scratch(self, run: Run) -> Any:
        """What was kept of the last batch where it suffices: its arrays need not be made and packed again."""
        n = len(run)
        if n > KEPT:
            return self._new_scratch(n, run)
        scratch, self._kept = self._kept, None
        if scratch is None or scratch.capacity < n:
            scratch = self._new_scratch(min(KEPT, max(1 << n.bit_length(), 1024)), run)
        return scratch

    def _new_scratch(self, capacity: int, run: Run) -> Any:
        """Memory for runs of up to `capacity` operations, with that attribute; for structures that take scratch."""
        raise NotImplementedError

    def _keep(self, scratch: Any) -> None:
        """Keep the scratch of a batch for the next one, unless it is large."""
        if scratch is not None and scratch.capacity <= KEPT:
            self._kept = scratch

    def _refuse(self, run: Run, unknown: int) -> None:
        """Raise for a run with ids that are not there; the first one is named where the batch is known."""
        if run.unchecked is not None:
            check_batch(run.unchecked, self.n_rows, self.n_vertices)
        raise UnknownVertex(f"{unknown} ids of a run are not below {self.n_rows} rows or {self.n_vertices} vertices")

    def _grown(self, n: int, rows: int | None) -> tuple[int, int]:
        """n_rows and n_vertices after `add_vertices`, checked."""
        n, rows = index(n), index(n if rows is None else rows)
        if n < 0 or rows < 0:
            raise InvalidOption(f"{min(n, rows)} vertices cannot be added; 0 or more can")
        if max(self.n_vertices + n, self.n_rows + rows) > MAX_VERTICES:
            raise CapacityError(f"{self.n_vertices} vertices and {n} more; 32-bit ids allow {MAX_VERTICES}")
        return self.n_rows + rows, self.n_vertices + n

    # --- batches ---

    def apply(self, batch: EdgeBatch) -> Counts:
        """Apply a batch of inserts and deletes; the last of repeats wins. All of it, or an error and nothing."""
        if batch.weight is not None and not self.weighted:
            raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
        check = not self.checks_ids
        return self.apply_run(sort_batch(self.device, batch, self.n_rows, self.n_vertices, check))

    def apply_run(self, run: Run) -> Counts:
        """`apply` of a sorted run, which is trusted."""
        return self.commit(self.prepare(run))

    def insert(self, batch: EdgeBatch) -> Counts:
        """Insert every edge of a batch, whatever its ops; edges that are there get the new weight."""
        return self.apply(EdgeBatch(batch.src, batch.dst, batch.weight))

    def delete(self, batch: EdgeBatch) -> Counts:
        """Delete every edge of a batch, whatever its ops; those that are not there count as missing."""
        return self.apply(EdgeBatch(batch.src, batch.dst, op=-1))

    def build(self, batch: EdgeBatch) -> Counts:
        """Fill an empty structure in one go with every edge of a batch, whatever its ops."""
        if self.num_edges:
            raise InvalidOption(f"build needs an empty structure; this one has {self.num_edges} edges")
        return self.insert(batch)

    def incident(self, vertices: Array, rows: Array | None = None) -> Run:
        """A run of deletions of every edge whose dst is among `vertices` or whose row is among `rows`.

        `rows` may be left out where n_rows == n_vertices: it is `vertices` then. O(n_rows + m): two scans, and what
        they find sorted; one read-back, and one for each column of ids that is given.
        """
        if rows is None and self.n_rows != self.n_vertices:
            raise InvalidOption("incident on one range of a graph needs `rows`, by their numbers there")
        vertices = self._ids(vertices, "vertices", self.n_vertices)
        return self._incident(vertices, vertices if rows is None else self._ids(rows, "rows", self.n_rows))

    def _incident(self, vertices: Array, rows: Array) -> Run:
        """`incident` of checked ids."""
        xp, empty, zeros = self.device.xp, self.device.empty, self.device.zeros
        view = self.view()
        kernels = load(self.device, "incident.cuh", view, HUB_DEGREE=HUB_DEGREE)
        dead, dead_rows = (zeros(bound // 32 + 2, np.uint32) for bound in (self.n_vertices, self.n_rows))
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
                xp.cumsum(offsets, out=offsets)
                keys = empty(int(offsets[-1]), np.uint64)
        keys.sort()
        return Run(keys, self.device.full(len(keys), -1, np.int8))

    def delete_vertices(self, ids: Any, symmetric: bool = False) -> Counts:
        """Delete every edge to and from `ids`; the ids stay, with degree 0. Needs n_rows == n_vertices.

        O(n_rows + m); O(d log d) where the graph is its own reverse (`symmetric`), d being the degrees of `ids` summed
        up: the edges to them are then known from their rows. Edges whose reverse is not there count as missing.
        """
        if self.n_rows != self.n_vertices:
            raise InvalidOption("delete_vertices on one range of a graph; apply_run(incident(vertices, rows)) does it")
        vertices = self._ids(ids, "ids", self.n_vertices)
        if len(vertices) == 0 or self.num_edges == 0:
            return Counts()
        return self.apply_run(self._both_ways(vertices)) if symmetric else self._delete_vertices(vertices)

    def _delete_vertices(self, vertices: Array) -> Counts:
        """`delete_vertices` of checked ids, whatever the graph: by default a batch of what `incident` finds."""
        return self.apply_run(self._incident(vertices, vertices))

    def _both_ways(self, vertices: Array) -> Run:
        """A run of deletions of every edge from `vertices`, and of its reverse."""
        xp, rows = self.device.xp, self.device.xp.unique(vertices)
        csr = self._gather(rows)
        row = rows[xp.searchsorted(csr.offsets, xp.arange(len(csr.dst)), side="right") - 1]
        pairs = ((row, csr.dst), (csr.dst, row))
        keys = xp.concatenate([make_keys(self.device, src, dst) for src, dst in pairs])
        return sort_run(self.device, keys, -1)

    # --- reads ---

    sorted_rows: ClassVar[bool]  #: whether neighbours come in ascending order

    def _reads(self) -> tuple[Library, View]:
        view = self.view()
        return load(self.device, "read.cuh", view), view

    def _ids(self, ids: Any, name: str, bound: int) -> Array:
        ids = as_ids(ids, name)
        check_ids(ids, bound, name)
        return self.device.asarray(ids)

    def has_edges(self, src: Any, dst: Any) -> Array:
        """Whether each edge is there: bool[n] on the device. O(log degree) each, or O(1) expected by hashing."""
        src, dst = self._ids(src, "src", self.n_rows), self._ids(dst, "dst", self.n_vertices)
        if src.shape != dst.shape:
            raise InvalidBatch(f"src has shape {src.shape} and dst {dst.shape}")
        return self._find(src, dst)

    def _find(self, src: Array, dst: Array) -> Array:
        """`has_edges` of checked ids: by default a lane a query, through the View."""
        kernels, view = self._reads()
        found = self.device.empty(len(src), np.uint8)
        kernels.HasEdges(len(src), graph=view, src=src, dst=dst, n=len(src), found=found)
        return found.view(bool)

    def degrees(self, vertices: Any = None) -> Array:
        """Out-degrees, uint32[n] on the device; of all rows where `vertices` is left out. O(1) each."""
        rows = (
            self.device.xp.arange(self.n_rows, dtype=np.uint32)
            if vertices is None
            else self._ids(vertices, "vertices", self.n_rows)
        )
        kernels, view = self._reads()
        degrees = self.device.empty(len(rows), np.uint32)
        kernels.Degrees(len(rows), graph=view, vertices=rows, n=len(rows), degrees=degrees)
        return degrees

    def neighbors(self, vertices: Any) -> Csr:
        """The rows of `vertices`, in their order, as offsets, dst and weight. O(sum of degrees); one read-back."""
        return self._gather(self._ids(vertices, "vertices", self.n_rows))

    def to_csr(self) -> Csr:
        """All rows as CSR. O(n + m)."""
        return self._gather(self.device.xp.arange(self.n_rows, dtype=np.uint32))

    def _gather(self, rows: Array) -> Csr:
        xp = self.device.xp
        kernels, view = self._reads()
        offsets = self.device.zeros(len(rows) + 1, np.int64)
        degrees = self.device.empty(len(rows), np.uint32)
        kernels.Degrees(len(rows), graph=view, vertices=rows, n=len(rows), degrees=degrees)
        xp.cumsum(degrees, dtype=np.int64, out=offsets[1:])
        total = int(offsets[-1])
        dst = self.device.empty(total, np.uint32)
        weight = self.device.empty(total, np.float32) if self.weighted else None
        kernels.Neighbors(len(rows), graph=view, vertices=rows, n=len(rows), offsets=offsets, dst=dst, weight=weight)
        return Csr(offsets, dst, weight)
