"""Changes of a shard. A change is prepared, and then committed or discarded; `Ballot` votes in between.

`BatchChange` and `VerticesChange` change the graph's content. `Move`, in `mgraph.worker.vertices.rebalance`, changes
only the owners of rows or the internal ids of vertices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Array, Device
from mgraph.kernels import load
from mgraph.structures import Counts, Plan, Run, Structure
from mgraph.structures.combine import combined
from mgraph.worker.shard.change_log import Touched
from mgraph.worker.shard.edge_expiry import EdgeExpiry
from mgraph.worker.shard.shard import Shard
from mgraph.worker.shard.times import Times

__all__ = ["BatchChange", "Change", "Growth", "Record", "VerticesChange", "expire_before", "forward_counts"]


_NO_COUNTS = Counts()


@dataclass(frozen=True)
class Record:
    """One rank's share of a change of content, by users' ids, with which the change can be repeated.

    Parameters
    ----------
    kind : "batch" | "delete_vertices" | "add_vertices" | "remove_vertices" | "expire" | "drop_vertices"
    columns : mapping of str to array or int
        In host memory or on the GPU. They do not change until the record is logged.
        For a batch `src`, `dst` and optionally `weight`, `op` and `time`, in stream order; `offset`, its place in a
        source; and `n_vertices` if it brings vertices, the number of vertices then. For a deletion `ids`. For an
        addition `n_vertices`, the number of vertices afterwards. For an expiry `before`, a time.
    """

    kind: str
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, kind: str, columns: Mapping[str, Any]) -> Record:
        """The record of columns wherever they are: those on a GPU are copied to the host."""
        plain = (type(None), int, tuple)
        host = {k: c if isinstance(c, plain) else Device.staged(c) for k, c in columns.items()}
        return cls(kind, host)


class Change(ABC):
    """A change of one shard.

    Parameters
    ----------
    shard : Shard

    Attributes
    ----------
    content : bool
        Whether it changes vertices or edges, and so increments the epoch.
    brought : uint8[bytes] or None
        The keys of the vertices that it brings, on rank 0 where it is to know them; see `mgraph.keys.KeyArray.packed`.
    gone : uint32[k] or None
        The users' ids of the vertices that it removes, ascending.
    logged : bool
        Whether it is written to the log.
    exchanges : bool
        Whether `prepare` communicates with other ranks. If so, no vote can follow a failure, and the call ends.
    """

    content: bool = True
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
        """Allocate all memory that the change needs, and leave the shard as it is. If it raises, no rank changes."""

    @abstractmethod
    def commit(self) -> None:
        """Make the change, without communication, and without errors to expect. Asynchronous on a GPU."""

    @abstractmethod
    def discard(self) -> None:
        """Free what was prepared."""


class BatchChange(Change):
    """Insertions and deletions of edges.

    Parameters
    ----------
    shard : Shard
    runs : sequence of Run
        For each structure of the shard, in local rows.
    growth : Growth, optional
        The vertices that the batch brings; they stay if it is committed, and only then.
    expiry : EdgeExpiry, optional
        How far the batch moves the window; by default not at all.

    Attributes
    ----------
    counts : Counts
        What it did to this rank's edges, also those that it did not name.
    expired : int
        How many of the deleted edges it did not name: they left because they are too old.
    recombined : int
        How many of the updated edges it did not name: they lost insertions that are too old.
    late : int
        The insertions that came too late for the window.
    """

    def __init__(
        self, shard: Shard, runs: Sequence[Run], growth: Growth | None = None, expiry: EdgeExpiry | None = None
    ) -> None:
        self.shard, self._growth = shard, growth
        self.counts, self.expired, self.recombined, self.late = _NO_COUNTS, 0, 0, 0
        self._expiry = expiry
        if shard.clock is not None:
            self._expiry = expiry or shard.clock.now()
            self.late = self._expiry.late
        self._times: list[Times] = []
        self._runs: Sequence[Run] = runs
        self._plans: list[tuple[Structure, Plan]] = []
        self._touched: Touched | None = None

    def prepare(self) -> None:
        """Make a plan for each structure; if one raises, discard the others."""
        shard, runs, self._runs = self.shard, self._runs, ()
        how, log = shard.spec.combine, shard.change_log
        try:
            for number, (structure, run) in enumerate(zip(shard.structures, runs, strict=True)):
                if self._expiry is not None:
                    run = self._with_times(number, run, self._expiry)
                if how != "last":
                    run = combined(structure, run, how, shard.stuck_sums, -1 if shard.directed else shard.lo)
                self._plans.append((structure, structure.prepare(run)))
            first = self._plans[0][1]
            if log.first is not None:
                self._touched = log.look(shard.out_edges, first, shard.lo)
            self.counts = first.counts if shard.directed else forward_counts(shard, first, shard.lo)
        except BaseException:
            self.discard()
            raise

    @property
    def checks_ids(self) -> bool:
        """Whether `prepare` raises `UnknownVertex` for runs that nobody has checked, before anything reads by them."""
        plain = self._expiry is None and self.shard.spec.combine == "last"
        return plain and all(structure.checks_ids for structure in self.shard.structures)

    def _with_times(self, number: int, run: Run, expiry: EdgeExpiry) -> Run:
        """The run of a structure with what leaves because of the batch; its times are made ready."""
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
        shard.num_edges += inserted - deleted
        shard.operations += inserted + updated + deleted + missing
        if shard.change_log.first is not None:
            shard.change_log.keep(shard.epoch + 1, self._touched, shard.out_edges)

    @property
    def counted(self) -> dict[str, int]:
        """What the batch did, for its report, by the names in `COUNTS`, and `expired` and `late`."""
        inserted, updated, deleted, missing = self.counts
        return {
            "inserted": inserted, "updated": updated - self.recombined, "deleted": deleted - self.expired,
            "missing": missing, "expired": self.expired, "late": self.late,
        }  # fmt: skip

    @property
    def outcomes(self) -> list[tuple[Structure, Array]]:
        """Each structure, and what the prepared batch makes of each key of its run; see `Plan`."""
        return [(structure, plan.outcome) for structure, plan in self._plans]

    def discard(self) -> None:
        """Discard the plans."""
        plans, self._plans, self._times = self._plans, [], []
        for structure, plan in plans:
            structure.discard(plan)
        if self._growth is not None:
            self._growth.undo()


def expire_before(shard: Shard, before: int) -> BatchChange:
    """The deletion of every edge with an earlier time than `before`."""
    assert shard.clock is not None, "the client asks only where there are times"
    none = [Run(shard.device.empty(0, np.uint64)) for _ in shard.structures]
    return BatchChange(shard, none, expiry=replace(shard.clock.now(), before=before))


def _edges(shard: Shard, keys: Array) -> int:
    """The number of edges that this rank counts among arcs of its rows."""
    if shard.directed:
        return len(keys)
    return int(((keys >> np.uint64(32)) + np.uint64(shard.lo) <= keys & np.uint64(0xFFFFFFFF)).sum())


def forward_counts(shard: Shard, plan: Plan, lo: int) -> Counts:
    """The outcomes of a plan's undirected edges, each counted by its arc with ``src <= dst``; row 0 is vertex `lo`."""
    run, counts = plan.run, shard.device.zeros(5, np.int64)
    load(shard.device, "kernels/arcs.cuh").CountForward(
        len(run), keys=run.keys, outcome=plan.outcome, n=len(run), lo=lo, counts=counts
    )
    return Counts(*shard.device.to_host(counts)[1:].tolist())


class VerticesChange(Change):
    """More vertices, at the end of the last range.

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
        """Make a plan for each structure, and the longer order; if one raises, discard the others."""
        shard, n = self.shard, self.n_vertices
        partition = shard.partition.grown(n - shard.n_vertices)
        lo, hi = partition.range(shard.rank)
        try:
            for structure in shard.structures:
                more, rows = n - structure.n_vertices, hi - lo - structure.n_rows
                self._plans.append((structure, structure.prepare_vertices(more, rows)))
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
    """The vertices that a batch brings: there while the batch is prepared, and gone again if it is refused.

    Nobody sees a batch that is being prepared, so nobody sees them either. O(n_vertices).

    Parameters
    ----------
    shard : Shard
    n_vertices : int
        The number of vertices of the whole graph if the batch is committed.

    Raises
    ------
    CapacityError
        They do not fit into memory. Nothing was changed.
    """

    def __init__(self, shard: Shard, n_vertices: int) -> None:
        self._shard, self._before = shard, (shard.partition, shard.order)
        self._back = [(structure, structure.prepare_vertices(0, 0)) for structure in shard.structures]
        more = VerticesChange(shard, n_vertices)
        more.prepare()
        more.commit()

    def undo(self) -> None:
        """Take the vertices away. It may be called twice."""
        back, self._back = self._back, []
        for structure, plan in back:
            structure.undo_vertices(plan)
        if back:
            partition, self._shard.order = self._before
            self._shard.take_ranges(partition)
