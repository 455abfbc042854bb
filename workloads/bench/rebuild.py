"""Baseline without a dynamic structure: keep the edge list, append the batch, sort, drop repeats, rebuild."""

from __future__ import annotations

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.device import Array, Device
from mgraph.distinct import distinct
from mgraph.structures import Counts, Csr, Run
from mgraph.structures.sort import make_keys

__all__ = ["Rebuild"]


class Rebuild:
    """CSR rebuilt from the list of all edges by every batch, with the array library alone: ``sort``, ``bincount``.

    It has the methods of `mgraph.structures.Structure` that the benchmark of updates calls.

    Parameters
    ----------
    n_vertices : int
    device : Device
        NumPy on the CPU, CuPy on a GPU.
    """

    def __init__(self, n_vertices: int, device: Device) -> None:
        self.n_rows = self.n_vertices = n_vertices
        self.device = device
        self.keys: Array = device.empty(0, np.uint64)
        self.csr = Csr(device.zeros(n_vertices + 1, np.int64), device.empty(0, np.uint32))

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of the edge list and of the CSR."""
        return int(self.keys.nbytes + self.csr.offsets.nbytes + self.csr.dst.nbytes)

    def apply(self, batch: EdgeBatch) -> Counts:
        """Insert or delete a batch, and rebuild. O((m + n) log(m + n))."""
        deletes = isinstance(batch.op, int)
        return self._rebuild(make_keys(self.device, batch.src, batch.dst), deletes)

    build = apply

    def apply_run(self, run: Run) -> Counts:
        """Apply keys that are sorted and unique."""
        return self._rebuild(run.keys, run.op is not None)

    def _rebuild(self, keys: Array, deletes: bool) -> Counts:
        # Merge the keys into the sorted list, or remove them.
        xp, before = self.device.xp, self.num_edges
        keys = distinct(keys)
        if deletes:
            place = xp.minimum(xp.searchsorted(self.keys, keys), before - 1)
            keep = xp.ones(before, bool)
            keep[place[self.keys[place] == keys] if before else place[:0]] = False
            self.keys = self.keys[keep]
            counts = Counts(deleted=before - self.num_edges, missing=len(keys) - before + self.num_edges)
        else:
            self.keys = distinct(xp.concatenate([self.keys, keys]))
            counts = Counts(inserted=self.num_edges - before, updated=len(keys) - self.num_edges + before)

        # Rebuild the CSR.
        degrees = xp.bincount((self.keys >> np.uint64(32)).astype(np.int64), minlength=self.n_rows)
        offsets = self.device.zeros(self.n_rows + 1, np.int64)
        xp.cumsum(degrees, out=offsets[1:])
        self.csr = Csr(offsets, self.keys.astype(np.uint32))
        return counts

    def degrees(self, rows: Array = None) -> Array:
        """Return the lengths of `rows`, or of all rows."""
        lengths = self.device.xp.diff(self.csr.offsets)
        return lengths if rows is None else lengths[rows]

    def neighbors(self, rows: Array) -> Csr:
        """Return the contiguous rows `rows`, as `Structure.neighbors` does."""
        first, end = int(rows[0]), int(rows[-1]) + 1
        offsets = self.csr.offsets[first : end + 1]
        return Csr(offsets - offsets[0], self.csr.dst[int(offsets[0]) : int(offsets[-1])])
