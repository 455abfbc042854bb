"""Recent changes on a rank, kept for maintained results."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext

import numpy as np

from mgraph.algorithms.algorithm import EdgeDelta
from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.kernels import load
from mgraph.structures import Plan, Structure
from mgraph.structures.plan import DELETED, INSERTED, UPDATED
from mgraph.structures.run import FEW

__all__ = ["ChangeLog"]

MOST = 1 << 22  #: maximum of arcs in a log
LEAST = 1 << 12  #: limit of arcs in a small graph; otherwise a quarter of the rank's arcs, as updates visit no more
UNWEIGHTED, WEIGHTED = 9, 17  #: bytes per arc
_NOTHING = nullcontext()


class ChangeLog:
    """Log of the arcs that a shard's batches changed after the epoch `first`.

    It is empty until `open`. Above a limit of arcs it drops the oldest batches.

    Attributes
    ----------
    first : int or None
        The log has all changes after this epoch; None while it is closed.
    moved : int
        Up to this epoch the arcs of a batch may be on other ranks than their rows, and not in order.
    changed : int
        The arcs that all batches changed, however many of them were decided together. An arc counts for each batch that
        inserted or deleted it, or set its weight.
    whole : bool
        True if the limit of arcs is `MOST` in small graphs too, so that no rank forgets what another knows.
    loops : (int64[1], int64[1])
        A mailbox for the number of self-loops among changes, made by `open`.
    sending : array or None
        Host memory with changes that may still be on their way to the device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.first: int | None = None
        self.moved, self.changed, self.whole = -1, 0, False
        self._held: deque[tuple[int, EdgeDelta]] = deque()
        self._arcs = self._arc_bytes = 0
        self.loops: tuple[np.ndarray, Array] = (np.empty(0, np.int64), None)
        self.sending: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of device memory. O(1), since each answer of a worker has them."""
        return self._arcs * self._arc_bytes

    def open(self, epoch: int) -> None:
        """Log the changes after `epoch`, unless the log is open."""
        if self.first is None:
            if not len(self.loops[0]):
                self.loops = self.device.mailbox(1)
            self.first = epoch

    def close(self) -> None:
        """Drop all changes and log none."""
        self._held.clear()
        self._arcs, self.first, self.moved, self.changed, self.whole = 0, None, -1, 0, False

    def changes_of(self, structure: Structure, plan: Plan, lo: int) -> EdgeDelta | None:
        """Return the out-edges that `plan` will change. Row 0 is the vertex `lo`.

        None if the log is closed, or if the changes exceed the log's limit or the memory: no batch is refused for that.
        At most one read-back.
        """
        if self.first is None or _changed(structure, plan) > self._most(structure):
            return None
        try:
            return _touched(self.device, structure, plan, lo)
        except (CapacityError, MemoryError):
            return None

    def keep(self, epoch: int, touched: EdgeDelta | None, structure: Structure, changed: int) -> None:
        """Log `touched`, the result of `changes_of`, as the changes of `epoch`. They add to `changed`.

        Batches that are decided together are logged as their last epoch.
        """
        if self.first is None:
            return
        self.changed += changed
        if touched is None:
            self.forget(epoch)
            return
        if len(touched):
            self._held.append((epoch, touched))
            self._arc_bytes = UNWEIGHTED if touched.old is None else WEIGHTED
        self._arcs += len(touched)
        while self._arcs > self._most(structure):
            self.forget(self._held[0][0])

    def since(self, epoch: int) -> list[tuple[int, EdgeDelta]]:
        """Return the changes after `epoch` (at least `first`): epochs and arcs, in order."""
        return [(at, touched) for at, touched in self._held if at > epoch and len(touched)]

    def note_move(self, epoch: int, ids: Array = None) -> None:
        """Note that rows moved to other ranks after `epoch`. With `ids`, the new id of each internal id, renumber."""
        self.moved = epoch
        for _, touched in self._held if ids is not None else []:
            n = len(touched)
            load(self.device, "kernels/arcs.cuh").Renumber(n, keys=touched.keys, n=n, ids=ids)

    def _most(self, structure: Structure) -> int:
        """Return the limit of arcs."""
        return MOST if self.whole else min(MOST, max(LEAST, structure.num_edges // 4))

    def forget(self, epoch: int) -> None:
        """Drop the changes up to `epoch`."""
        while self._held and self._held[0][0] <= epoch:
            self._arcs -= len(self._held.popleft()[1])
        if self.first is not None:
            self.first = max(self.first, epoch)


def _changed(structure: Structure, plan: Plan) -> int:
    """Return the number of arcs that a plan changes."""
    counts = plan.counts
    return counts.inserted + counts.deleted + (counts.updated if structure.weighted else 0)


def _touched(device: Device, structure: Structure, plan: Plan, lo: int) -> EdgeDelta:
    """Select the arcs of a plan that exist or differ in weight afterwards, or are deleted."""
    run, n, changed = plan.run, len(plan.run), _changed(structure, plan)
    with _NOTHING if n <= FEW else device.taking(32 * n, f"what a batch of {n} operations changes"):
        kinds, offset = plan.outcome[:n], np.uint64(lo << 32)
        if changed == 0:
            return EdgeDelta(run.keys[:0], kinds[:0], 0)
        if not structure.weighted and changed == n:
            return EdgeDelta(run.keys + offset, kinds.copy(), plan.counts.deleted)
        differs = (kinds == INSERTED) | (kinds == DELETED)
        weights = []
        if structure.weighted:
            weights = _weights(device, structure, run.weight, run.keys)
            differs |= (kinds == UPDATED) & (weights[0] != weights[1])
        places = device.xp.flatnonzero(differs)
        keys, kinds, *weights = (column[places] for column in (run.keys, kinds, *weights))
        keys += offset
    return EdgeDelta(keys, kinds, plan.counts.deleted, *weights)


def _weights(device: Device, structure: Structure, given: Array, keys: Array) -> list[Array]:
    """Return the weights of arcs before and after a batch, which has the weights `given`."""
    n, view = len(keys), structure.view()
    old = device.empty(n, np.float32)
    load(device, "structures/read.cuh", view).EdgeWeights(n, graph=view, keys=keys, n=n, weights=old)
    return [old, device.full(n, 1, np.float32) if given is None else given]
