"""What all structures answer by their views: edges, weights, degrees, common neighbours, rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.batch import as_ids, check_ids
from mgraph.device import Device
from mgraph.errors import InvalidBatch
from mgraph.kernels import Library, View, load

__all__ = ["Csr", "Reads"]

Array = Any
_BOOL = np.dtype(bool)


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


class Reads(ABC):
    """The reads of a structure. Answers are on its device."""

    n_rows: int
    n_vertices: int
    device: Device
    weighted: bool
    sorted_rows: ClassVar[bool]  #: whether neighbours come in ascending order
    contiguous_rows: ClassVar[bool] = False  #: whether a row's edges lie side by side
    _readers: tuple[Any, Library] | None = None  # the kernels of reads, by the view's macros

    @abstractmethod
    def view(self) -> View:
        """What algorithms' kernels read; valid until the next commit of a batch or of vertices."""

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
