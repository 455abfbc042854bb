"""gpma: gpma+'s array, updated edge by edge under locks: the paper's baseline.

Algorithm 1 of Sha, Li, He, Tan: Accelerating Dynamic Graph Analytics on GPUs, PVLDB 11(1), 2017. A batch is a number of
attempts. In each, every pending edge is searched and tries to lock its leaf. A loser waits for the next attempt. A
winner checks whether the leaf has room, or after a deletion enough items. If not, it locks the range of two leaves,
then of four, and so on, and aborts at a range locked by another edge. The range with room is rewritten evenly, with the
edge added or removed. At least one edge succeeds in each attempt, so a batch ends; but edges of the same leaf go
through one after another.

The paper doubles the array when the root has no room. Here `prepare` counts like gpma+'s whether the batch fits. If it
does not, the array is rewritten by gpma+'s kernels. Row starts are moved with their window by the edge that holds its
lock, instead of by the paper's guards.

The memory and the invariants are gpma+'s (`structures/gpma_plus`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.kernels import Struct
from mgraph.structures.contract import Structure
from mgraph.structures.gpma_plus import GpmaPlus
from mgraph.structures.plan import Counts, Plan
from mgraph.structures.pma.frame import Work
from mgraph.structures.run import Run

__all__ = ["Gpma"]

Array = Any


@dataclass
class _Attempts:
    """Memory of a commit under locks: the located batch, lists of keys, locks, and a copy for windows."""

    located: Work
    order: tuple[int, int]  # 1 inserts, -1 deletes
    pending: Array
    again: Array
    active: Array
    climbing: Array
    slots: Array
    words: Array
    status: Array
    before: Array
    copy: Struct


class Gpma(GpmaPlus):
    """Packed memory array updated under locks, a baseline for `GpmaPlus`.

    Its parameters and its memory are those of `GpmaPlus`.

    Notes
    -----
    A batch of b operations takes as many attempts as changes conflict in one window, at most b. An attempt takes a
    launch and a read-back per level to which an edge climbs, so `commit` waits for the device. Memory of a plan: that
    of gpma+, a copy of the array, and 24 bytes per operation. Neighbours are sorted.
    """

    name: ClassVar[str] = "gpma"
    _files: ClassVar[dict[str, str]] = {**GpmaPlus._files, "attempt": "structures/gpma/attempt.cuh"}

    apply_at_once, apply_few = Structure.apply_at_once, Structure.apply_few

    def _prepare(self, run: Run) -> Plan:
        """Prepare like gpma+, with memory for the attempts if the array keeps its bounds throughout."""
        plan = super()._prepare(run)
        order = self._order(plan.counts) if isinstance(plan.work, Work) and plan.work.after is None else None
        if order is None:
            return plan
        # One allocation for lists, locks and counters.
        n, height = len(run), (self.leaves - 1).bit_length()
        pending, again, active, climbing, slots, words, status, before = self.device.carve(
            *[(n, np.uint32)] * 4, (n, np.int64), ((2 << height) // 32 + 1, np.uint32), (height + 3, np.int64),
            (self.leaves, np.uint32),
        )  # fmt: skip
        copy = Struct(**self.flat(self.leaves, blank=False))
        plan.work = _Attempts(plan.work, order, pending, again, active, climbing, slots, words, status, before, copy)
        return plan

    def _order(self, counts: Counts) -> tuple[int, int] | None:
        """Return the order of inserts and deletes that keeps the whole array within bounds, or None."""
        (least, most), n = self.root_bounds(self.leaves), self.num_edges
        if n + counts.inserted <= most and n >= least:
            return 1, -1
        return (-1, 1) if n - counts.deleted >= least and n <= most else None

    def _commit(self, plan: Plan, work: Any) -> None:
        """Run attempts until all edges are done, with a wait after each."""
        if not isinstance(work, _Attempts):
            super()._commit(plan, work)
            return

        # Weights of existing edges need no locks.
        run, frame, kernels = plan.run, self._frame, self._kernels["attempt"]
        if self.weighted and plan.counts.updated:
            self._kernels["commit"].SetWeights(
                len(run), batch=work.located.batch, outcome=plan.outcome, weight=run.weight, array=frame.array
            )

        # Attempts: first all inserts or all deletes, then the others.
        for by in work.order:
            self.device.fill(work.status, 0)
            listed = {"outcome": plan.outcome, "n": len(run), "by": by}
            kernels.ListPending(len(run), **listed, pending=work.pending, status=work.status)
            many = int(self.device.to_host(work.status[:1])[0])
            while many:
                many = self._attempt(work, run, by, many)
                work.pending, work.again = work.again, work.pending
        kernels.AddDegrees(len(run), keys=run.keys, outcome=plan.outcome, n=len(run), degrees=self._degrees)
        self.num_edges = work.located.num_edges
        self._keep(plan.scratch)

    def _attempt(self, work: _Attempts, run: Run, by: int, many: int) -> int:
        """Run an attempt of `many` pending keys, level by level. Returns how many aborted."""
        frame, kernels, (least, most) = self._frame, self._kernels["attempt"], self._frame.bounds
        self.device.fill(work.words, 0)
        self.device.fill(work.status, 0)
        locks = Struct(words=work.words, height=len(least) - 1, leaves=self.leaves, least=least, most=most)
        shared = {"keys": run.keys, "slots": work.slots, "locks": locks, "status": work.status, "again": work.again}
        kernels.LockLeaves(many, pending=work.pending, n=many, active=work.active, graph=frame.view, **shared)

        # Each level locks windows of twice the size.
        active, climbing, level, climbers = work.active, work.climbing, 0, many
        while climbers:
            kernels.TryLevel(
                climbers, level=level, by=by, weight=run.weight, active=active, climbing=climbing,
                array=frame.array, start=frame.starts, rows=self.n_rows, copy=work.copy, before=work.before, **shared,
            )  # fmt: skip
            status = self.device.to_host(work.status)
            active, climbing, level, climbers = climbing, active, level + 1, int(status[2 + level])
        return int(status[0])
