"""Changes of a shard. A change is prepared, and then committed or discarded; `Ballot` votes in between.

`BatchChange` and `VerticesChange` change the graph's content. `Move`, in `mgraph.worker.vertices.rebalance`, changes
only the owners of rows or the internal ids of vertices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mgraph.algorithms.algorithm import EdgeDelta
from mgraph.device import Array, Device
from mgraph.kernels import load
from mgraph.structures import Counts, Plan, Run, Structure
from mgraph.structures.combine import combined
from mgraph.structures.plan import NO_COUNTS
from mgraph.worker.shard.edge_expiry import EdgeExpiry
from mgraph.worker.shard.shard import Shard
from mgraph.worker.shard.times import Times

__all__ = [
    "BatchChange", "Change", "GroupChange", "Growth", "Record", "VerticesChange", "expire_before", "forward_counts",
]  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A rank's part of a change of content, by users' ids, to log and repeat it.

    Parameters
    ----------
    kind : "batch" | "delete_vertices" | "add_vertices" | "remove_vertices" | "expire" | "drop_vertices"
    columns : mapping of str to array or int
        In host memory or on the GPU. They do not change until the record is logged.
        For a batch `src`, `dst` and optionally `weight`, `op` and `time`, in stream order; `offset`, its position in a
        source; and `n_vertices`, the number of vertices afterwards if it adds some. For a deletion `ids`. For an
        addition `n_vertices`, the number of vertices afterwards. For an expiry `before`, a time.
    """

    kind: str
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, kind: str, columns: Mapping[str, Any]) -> Record:
        """Return a record of columns, copied from the GPU if they are there."""
        plain = (type(None), int, tuple)
        host = {k: c if isinstance(c, plain) else Device.staged(c) for k, c in columns.items()}
        return cls(kind, host)


class Change(ABC):
    """Change of a shard.

    Parameters
    ----------
    shard : Shard

    Attributes
    ----------
    epochs : int
        By how many it increases the epoch: the number of its batches; 0 if it changes neither vertices nor edges.
    brought : uint8[bytes] or None
        The keys of new vertices as `KeyArray.packed` encodes them, on rank 0 if it keeps them.
    gone : uint32[k] or None
        The users' ids of removed vertices, ascending.
    logged : bool
        True if it is written to the log.
    exchanges : bool
        True if `prepare` communicates with other ranks. Then no vote can follow a failure, and the call ends.
    """

    epochs: int = 1
    logged: ClassVar[bool] = True
    exchanges: ClassVar[bool] = False
    brought: np.ndarray | None = None
    gone: Any = None

    def __init__(self, shard: Shard) -> None:
        self.shard = shard

    def __str__(self) -> str:
        return str(self.shard)

    @abstractmethod
    def prepare(self) -> None:
        """Allocate all memory that the change needs, without changing the shard. An error refuses it on all ranks."""

    @abstractmethod
    def commit(self) -> None:
        """Make the change, without communication or expected errors. Asynchronous on a GPU."""

    @abstractmethod
    def discard(self) -> None:
        """Free the prepared memory."""


class BatchChange(Change):
    """Insertions and deletions of edges.

    Parameters
    ----------
    shard : Shard
    runs : sequence of Run
        For each structure of the shard, in local rows.
    growth : Growth, optional
        The vertices that the batch adds; they stay only if it is committed.
    expiry : EdgeExpiry, optional
        The batch's move of the window; by default none.

    Attributes
    ----------
    counts : Counts
        The outcomes on this rank's edges, also on expired ones.
    expired : int
        The number of deleted edges that left the window and are not in the batch.
    recombined : int
        The number of updated edges that lost insertions outside the window and are not in the batch.
    late : int
        The number of insertions that came too late for the window.
    """

    def __init__(
        self, shard: Shard, runs: Sequence[Run], growth: Growth | None = None, expiry: EdgeExpiry | None = None
    ) -> None:
        self.shard, self._growth = shard, growth
        self.counts, self.expired, self.recombined, self.late = NO_COUNTS, 0, 0, 0
        self._expiry = expiry
        if shard.clock is not None:
            self._expiry = expiry or shard.clock.now()
            self.late = self._expiry.late
        self._times: list[Times] = []
        self._runs: Sequence[Run] = runs
        self._plans: list[tuple[Structure, Plan]] = []
        self._touched: EdgeDelta | None = None

    def prepare(self) -> None:
        """Plan the batch for each structure; on an error, discard all plans."""
        shard, runs, self._runs = self.shard, self._runs, ()
        log, as_it_is = shard.change_log, self._expiry is None and shard.spec.combine == "last"
        try:
            for number, structure in enumerate(shard.structures):
                run = runs[number] if as_it_is else self._run_of(number, structure, runs[number])
                self._plans.append((structure, structure.prepare(run)))
            # The first structure has the out-edges: log their changes, and count the outcomes.
            first = self._plans[0][1]
            if log.first is not None:
                self._touched = log.changes_of(shard.out_edges, first, shard.lo)
            self.counts = self._count(first)
        except BaseException:
            self.discard()
            raise

    def _count(self, plan: Plan) -> Counts:
        """Count the outcomes of the out-edges' plan."""
        return plan.counts if self.shard.directed else forward_counts(self.shard, plan, self.shard.lo)

    def apply(self, loops: int) -> None:
        """Prepare and commit the batch on a graph's only rank, in one launch if possible, and wait for it.

        An error before the first write changes nothing. `loops` is the number of the batch's self-loops, 0 if directed.
        """
        shard, log = self.shard, self.shard.change_log
        # Weights before the batch, and several loops or expired edges of an undirected graph, need a plan.
        if (log.first is not None and shard.spec.weighted) or loops > 1 or not (shard.directed or self._expiry is None):
            self.prepare()
        else:
            plan = self._apply_out_edges()
            # Without expired edges, two arcs are an edge, and one is a loop.
            counts = plan.counts
            self.counts = counts if shard.directed else Counts(*[(arcs + 1) // 2 for arcs in counts])
            if log.first is not None:
                self._touched = log.changes_of(shard.out_edges, plan, shard.lo)
        self.commit()
        if shard.device.kind != "cpu":
            shard.device.synchronize()

    def _apply_out_edges(self) -> Plan:
        """Plan the in-edges, if there are any, then apply the out-edges."""
        structures = self.shard.structures
        runs = [self._run_of(number, structure, self._runs[number]) for number, structure in enumerate(structures)]
        try:
            for structure, run in zip(structures[1:], runs[1:], strict=True):
                self._plans.append((structure, structure.prepare(run)))
            return structures[0].apply_at_once(runs[0])
        except BaseException:
            self.discard()
            raise

    @property
    def checks_ids(self) -> bool:
        """True if `prepare` checks unchecked ids before any use, and raises `UnknownVertex`."""
        plain = self._expiry is None and self.shard.spec.combine == "last"
        return plain and all(structure.checks_ids for structure in self.shard.structures)

    def _run_of(self, number: int, structure: Structure, run: Run) -> Run:
        """Return a structure's run with the edges that expire and with combined weights."""
        shard, how = self.shard, self.shard.spec.combine
        if self._expiry is not None:
            run = self._with_times(number, run, self._expiry)
        if how != "last":
            run = combined(structure, run, how, shard.stuck_sums, -1 if shard.directed else shard.lo)
        return run

    def _with_times(self, number: int, run: Run, expiry: EdgeExpiry) -> Run:
        """Add the edges that leave the window to a structure's run, and prepare its times."""
        clock, shard = self.shard.clock, self.shard
        assert clock is not None
        run, times, gone, changed = clock.prepared(number, run, expiry)
        self._times.append(times)
        if number == 0:
            self.expired, self.recombined = expiry.expired + _edges(shard, gone), _edges(shard, changed)
        return run

    def commit(self) -> None:
        """Commit the plans."""
        for structure, plan in self._plans:
            structure.commit(plan)
        shard, (inserted, updated, deleted, missing) = self.shard, self.counts
        if self._expiry is not None:
            assert shard.clock is not None
            shard.clock.times, shard.clock.latest = self._times, self._expiry.latest
        # Totals, and the change log for maintained results.
        shard.num_edges += inserted - deleted
        shard.operations += inserted + updated + deleted + missing
        if shard.change_log.first is not None:
            changed = inserted + deleted + (updated if shard.spec.weighted else 0)
            arcs = changed if shard.directed else 2 * changed
            shard.change_log.keep(shard.epoch + self.epochs, self._touched, shard.out_edges, arcs)

    @property
    def counted(self) -> dict[str, int]:
        """Counts of the batch for its report: `COUNTS`, `expired` and `late`."""
        inserted, updated, deleted, missing = self.counts
        return {
            "inserted": inserted, "updated": updated - self.recombined, "deleted": deleted - self.expired,
            "missing": missing, "expired": self.expired, "late": self.late,
        }  # fmt: skip

    @property
    def outcomes(self) -> list[tuple[Structure, Array]]:
        """Each structure with its plan's outcome of each key."""
        return [(structure, plan.outcome) for structure, plan in self._plans]

    def discard(self) -> None:
        """Discard the plans."""
        plans, self._plans, self._times = self._plans, [], []
        for structure, plan in plans:
            structure.discard(plan)
        if self._growth is not None:
            self._growth.undo()


def expire_before(shard: Shard, before: int) -> BatchChange:
    """Return the deletion of every edge with a time before `before`."""
    assert shard.clock is not None, "the client asks only where there are times"
    none = [Run(shard.device.empty(0, np.uint64)) for _ in shard.structures]
    return BatchChange(shard, none, expiry=replace(shard.clock.now(), before=before))


def _edges(shard: Shard, keys: Array) -> int:
    """Count the edges among arcs of this rank's rows: of an undirected edge the arc with ``src <= dst``."""
    if shard.directed:
        return len(keys)
    return shard.device.total((keys >> np.uint64(32)) + np.uint64(shard.lo) <= keys & np.uint64(0xFFFFFFFF))


def forward_counts(shard: Shard, plan: Plan, lo: int) -> Counts:
    """Count the outcomes of an undirected plan by its arcs with ``src <= dst``; row 0 is vertex `lo`."""
    run, counts = plan.run, shard.device.zeros(5, np.int64)
    load(shard.device, "structures/counts.cuh").CountForward(
        len(run), keys=run.keys, outcome=plan.outcome, n=len(run), lo=lo, counts=counts
    )
    return Counts(*shard.device.to_host(counts)[1:].tolist())


def batch_counts(shard: Shard, plan: Plan, batches: int) -> np.ndarray:
    """Count the outcomes of each batch of a plan, int64[batches, 4]; undirected edges by `forward_counts`."""
    run, counts = plan.run, shard.device.zeros(5 * batches, np.int64)
    load(shard.device, "structures/counts.cuh").CountBatches(
        len(run), keys=run.keys, op=run.op, batch=run.batch, outcome=plan.outcome, n=len(run),
        lo=-1 if shard.directed else shard.lo, counts=counts,
    )  # fmt: skip
    return shard.device.to_host(counts).reshape(batches, 5)[:, 1:]


class GroupChange(BatchChange):
    """Several batches of one call, decided together: an epoch each, and counts as if they came one after another.

    The graph has no window. The change log gets the net changes of all batches: no result is read between two of them.

    Parameters
    ----------
    shard : Shard
    batches : int
        The number of batches.
    sort : callable
        Returns the runs of all batches together, for each structure of the shard. `prepare` calls it, so that its error
        is voted on.

    Attributes
    ----------
    by_batch : int64[batches, 4]
        The counts of each batch, in the order of `COUNTS`, once the change is prepared.
    """

    by_batch: np.ndarray

    def __init__(self, shard: Shard, batches: int, sort: Callable[[], Sequence[Run]]) -> None:
        super().__init__(shard, ())
        self.epochs, self._sort = batches, sort

    def prepare(self) -> None:
        """Sort the batches, plan them as one, and count the outcomes of each."""
        self._runs = self._sort()
        super().prepare()

    def _count(self, plan: Plan) -> Counts:
        self.by_batch = batch_counts(self.shard, plan, self.epochs)
        return Counts(*self.by_batch.sum(axis=0).tolist())


class VerticesChange(Change):
    """Addition of vertices at the end of the last range.

    Parameters
    ----------
    shard : Shard
    n_vertices : int
        The number of vertices of the whole graph afterwards.
    """

    def __init__(self, shard: Shard, n_vertices: int) -> None:
        super().__init__(shard)
        self.n_vertices = n_vertices
        self._plans: list[tuple[Structure, Any]] = []
        self._order: Array = None

    def prepare(self) -> None:
        """Plan the growth of each structure and of the order; on an error, discard all plans."""
        shard, n = self.shard, self.n_vertices
        partition = shard.partition.grown(n - shard.n_vertices)
        lo, hi = partition.range(shard.rank)
        try:
            # Each structure gets more vertices, and the last rank's also rows.
            for structure in shard.structures:
                more, rows = n - structure.n_vertices, hi - lo - structure.n_rows
                self._plans.append((structure, structure.prepare_vertices(more, rows)))
            # New users' ids keep their numbers.
            if shard.order is not None:
                self._order = shard.device.empty(n, np.uint32)
                self._order[: shard.n_vertices] = shard.order
                shard.device.count(self._order[shard.n_vertices :], shard.n_vertices)
        except BaseException:
            self.discard()
            raise
        self._partition = partition

    def commit(self) -> None:
        """Commit the plans, the longer order and the new ranges."""
        shard = self.shard
        for structure, plan in self._plans:
            structure.commit_vertices(plan)
        if self._order is not None:
            shard.order = self._order
        shard.take_ranges(self._partition)

    def discard(self) -> None:
        """Discard the plans."""
        plans, self._plans, self._order = self._plans, [], None
        for structure, plan in plans:
            structure.discard_vertices(plan)


class Growth:
    """Vertices that a batch adds: present while it is prepared, and removed again if it is refused.

    A batch is invisible until its commit, and so are its vertices. O(n_vertices).

    Parameters
    ----------
    shard : Shard
    n_vertices : int
        The number of vertices of the whole graph if the batch is committed.

    Raises
    ------
    CapacityError
        The vertices do not fit into memory. Nothing was changed.
    """

    def __init__(self, shard: Shard, n_vertices: int) -> None:
        self._shard, self._before = shard, (shard.partition, shard.order)
        # Plans without new vertices are what `undo_vertices` takes.
        self._back = [(structure, structure.prepare_vertices(0, 0)) for structure in shard.structures]
        more = VerticesChange(shard, n_vertices)
        more.prepare()
        more.commit()

    def undo(self) -> None:
        """Remove the vertices. Idempotent."""
        back, self._back = self._back, []
        for structure, plan in back:
            structure.undo_vertices(plan)
        if back:
            partition, self._shard.order = self._before
            self._shard.take_ranges(partition)
