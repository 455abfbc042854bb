"""CSR: sort, merge, rebuild. Baseline and oracle of the benchmarks.

::

    offsets  0     2  2        5            int64[n_rows + 1]
             |     |  |        |
    dst      3  7  |  0  4  9  |  (room)    uint32[room], the first num_edges in use
    weights  1. .5    2. 1. 1.              float32[room], where weighted

A batch locates its keys by binary search, computes prefix sums of their inserts and deletes, and merges old slots and
keys into new arrays by rank: the edge at slot q moves to q plus the inserts minus the deletes before it. Every slot
moves, so a batch that changes an edge costs O(n_rows + m) however small it is.

Invariants, asserted by `CsrStructure.check_invariants`:

1. offsets has n_rows + 1 entries, starts at 0, never falls and ends at num_edges.
2. Every row's dst strictly ascend.
3. Every dst is below n_vertices.
4. dst, and weights where there are weights, have room for num_edges.
5. No weight is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Struct, View, load
from mgraph.parallel_copy import cloned
from mgraph.structures.contract import Structure
from mgraph.structures.first_batch import number_first_batch
from mgraph.structures.plan import Counts, Plan
from mgraph.structures.run import Run

__all__ = ["CsrStructure"]

Array = Any
PIECE = 2048  # slots and keys per tile: 64 steps of 32 lanes, which repay the two searches


def _room(n: int) -> int:
    """Round `n` up by at most 1/16, so that a growing array reuses sizes of the memory pool."""
    step = 1 << max(n.bit_length() - 5, 0)
    return -(-n // step) * step


@dataclass
class _Work:
    """Memory of a commit: the keys' places and shifts, or numbers; new arrays if edges are inserted or deleted."""

    place: Array = None
    shift: Array = None
    numbers: Struct | None = None  # only for the first batch
    offsets: Array = None
    dst: Array = None
    weights: Array = None


class CsrStructure(Structure):
    """Compressed sparse rows, rebuilt by every batch that changes an edge.

    Parameters are those of `Structure`. Rows are sorted. Memory: 4 bytes per edge (8 with weights) and up to 1/16 more
    as room to grow, 8 bytes per row. During a batch, the old and the new arrays exist side by side.
    """

    name = "csr"
    sorted_rows = True
    contiguous_rows = True

    def __init__(self, n_rows: int, n_vertices: int, device: Device, weighted: bool) -> None:
        super().__init__(n_rows, n_vertices, device, weighted)
        self._load_kernels()
        self._offsets = device.zeros(n_rows + 1, np.int64)
        self._dst = device.empty(0, np.uint32)
        self._weights = device.empty(0, np.float32) if weighted else None

    def _load_kernels(self) -> None:
        self._kernels = load(self.device, "structures/csr/update.cuh")

    def _prepare(self, run: Run) -> Plan:
        n, device = len(run), self.device
        # A first batch needs no search.
        if not self.num_edges:
            counted, outcome, numbers = number_first_batch(device, self._kernels, run)
            return Plan(run, counted, outcome, self._new_arrays(_Work(numbers=numbers), counted.inserted), self.state)

        # Locate the keys, and sum up their shifts.
        place, outcome = device.empty(n, np.int64), device.empty(n, np.uint8)
        shift, counts = device.empty(n + 1, np.int64), device.zeros(4, np.int64)
        shift[:1] = 0
        self._kernels.CsrLocate(
            n, offsets=self._offsets, dst=self._dst, keys=run.keys, op=run.op, n=n,
            place=place, outcome=outcome, shift=shift, counts=counts,
        )  # fmt: skip
        device.cumsum(shift[1:], out=shift[1:])
        counted = Counts(*(int(c) for c in Device.to_host(counts)))
        work = _Work(place, shift)
        if counted.inserted or counted.deleted:
            self._new_arrays(work, self.num_edges + counted.inserted - counted.deleted)
        return Plan(run, counted, outcome, work, self.state)

    def _new_arrays(self, work: _Work, edges: int) -> _Work:
        room = _room(edges)
        work.offsets = self.device.empty(self.n_rows + 1, np.int64)
        work.dst = self.device.empty(room, np.uint32)
        work.weights = self.device.empty(room, np.float32) if self.weighted else None
        return work

    def _commit(self, plan: Plan, work: _Work) -> None:
        # New arrays if edges come or go; then weights, and the destinations of inserted edges.
        run, n = plan.run, len(plan.run)
        if work.offsets is not None:
            self._fill(run, work) if work.numbers else self._merge(run, work)
            self._offsets, self._dst, self._weights = work.offsets, work.dst, work.weights
            self.num_edges += plan.counts.inserted - plan.counts.deleted
        if work.numbers or (work.offsets is None and not self.weighted):
            return
        self._kernels.CsrPlace(
            n, keys=run.keys, outcome=plan.outcome, weight=run.weight, place=work.place, shift=work.shift, n=n,
            dst_out=self._dst, weights_out=self._weights,
        )  # fmt: skip

    def _fill(self, run: Run, work: _Work) -> None:
        """Write the first batch: slots by the keys' numbers, offsets by binary search."""
        entries = self.n_rows + 1
        self._kernels.CsrFill(
            len(run), numbers=work.numbers, keys=run.keys, weight=run.weight, dst_out=work.dst, weights_out=work.weights
        )
        self._kernels.CsrFillOffsets(
            -(-entries // PIECE),
            numbers=work.numbers,
            keys=run.keys,
            entries=entries,
            piece=PIECE,
            offsets_out=work.offsets,
        )

    def _merge(self, run: Run, work: _Work) -> None:
        n, edges, entries = len(run), self.num_edges, self.n_rows + 1
        self._kernels.CsrMove(
            -(-(edges + n) // PIECE) if edges else 0, place=work.place, shift=work.shift, n=n, edges=edges, piece=PIECE,
            dst=self._dst, weights=self._weights, dst_out=work.dst, weights_out=work.weights,
        )  # fmt: skip
        self._kernels.CsrOffsets(
            -(-(entries + n) // PIECE), keys=run.keys, shift=work.shift, n=n, entries=entries, piece=PIECE,
            offsets=self._offsets, offsets_out=work.offsets,
        )  # fmt: skip

    def _prepare_vertices(self, n_rows: int) -> dict[str, Array]:
        offsets = self.device.empty(n_rows + 1, np.int64)
        offsets[: self.n_rows + 1] = self._offsets
        offsets[self.n_rows + 1 :] = self.num_edges
        return {"offsets": offsets}

    def _commit_vertices(self, arrays: dict[str, Array]) -> None:
        self._offsets = arrays["offsets"]

    def _own_arrays(self) -> None:
        self._load_kernels()
        self._offsets, self._dst, self._weights = (
            cloned(self.device, array) for array in (self._offsets, self._dst, self._weights)
        )

    def view(self) -> View:
        """Return the view for algorithms' kernels; valid until the next commit."""
        fields = {"offsets": self._offsets, "dst": self._dst, "weights": self._weights}
        return View("structures/csr/view.cuh", "CsrView", fields)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(a.nbytes for a in (self._offsets, self._dst, self._weights) if a is not None)

    def check_invariants(self) -> None:
        """Assert the module's invariants. O(n_rows + m), on the host."""
        offsets = Device.to_host(self._offsets)
        assert len(offsets) == self.n_rows + 1, "1: length of offsets"
        assert offsets[0] == 0, "1: first offset"
        assert (np.diff(offsets) >= 0).all(), "1: offsets fall"
        assert offsets[-1] == self.num_edges <= len(self._dst), "1 or 4: last offset, edges, room"
        dst = Device.to_host(self._dst[: self.num_edges])
        falls = np.flatnonzero(dst[1:] <= dst[:-1]) + 1
        assert np.isin(falls, offsets).all(), "2: a row does not ascend"
        assert not len(dst) or dst.max() < self.n_vertices, "3: dst out of range"
        assert self.weighted == (self._weights is not None), "4: weights"
        if self._weights is not None:
            assert len(self._weights) == len(self._dst), "4: room for weights"
            assert not np.isnan(Device.to_host(self._weights[: self.num_edges])).any(), "5: a weight is NaN"
