"""Reads of all structures by their views: edges, weights, degrees, rows."""

from __future__ import annotations

import weakref
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


@dataclass(frozen=True, init=False)
class Csr:
    """Rows of a graph in compressed form (CSR): row i is ``dst[offsets[i] : offsets[i + 1]]``.

    The arrays of a graph are in host memory, those of a structure on its device.

    Attributes
    ----------
    offsets : int64[n + 1]
    dst : uint32[m]
        The other end of each edge; in a graph with keys int64[m] or str objects.
    weight : float32[m] or None
        None in an unweighted graph.
    hop : int32[m] or None
        The distance from the source, in a result of `k_hop`.
    time : int64[m], datetime64[m] or None
        The time of each edge, in a graph with times.
    """

    offsets: Array
    dst: Array
    weight: Array = None
    hop: Array = None
    time: Array = None

    def __init__(
        self, offsets: Array, dst: Array, weight: Array = None, hop: Array = None, time: Array = None
    ) -> None:  # as in `UpdateReport`
        self.__dict__.update(offsets=offsets, dst=dst, weight=weight, hop=hop, time=time)


class SingleRead:
    """Search of one edge: the kernel is packed once per view, with mapped memory for two ids and the answer."""

    def __init__(self, device: Device, kernels: Library, view: View) -> None:
        words, mapped = device.mailbox(2)
        self.device, self.view = device, view
        self._ids, self._exists = words[:1].view(np.uint32), words[1:].view(_BOOL)[:1]
        ids, exists = mapped[:1].view(np.uint32), mapped[1:].view(np.uint8)[:1]
        self._launch = kernels.HasEdges.bind(graph=view, src=ids[:1], dst=ids[1:], n=1, found=exists)

    def find(self, row: int, dst: int) -> np.ndarray:
        """Return True if the edge exists: bool[1]. Valid until the structure has another view."""
        self._ids[0], self._ids[1] = row, dst
        self._launch(1)
        if self.device.kind != "cpu":
            self.device.synchronize()
        return self._exists.copy()


class Reads(ABC):
    """Reads of a structure. Answers are on its device.

    Attributes
    ----------
    single : SingleRead or None
        The search of one edge in a view that was searched before.
    """

    n_rows: int
    n_vertices: int
    device: Device
    weighted: bool
    sorted_rows: ClassVar[bool]  #: True if neighbours ascend
    contiguous_rows: ClassVar[bool] = False  #: True if a row's edges are contiguous
    _readers: tuple[Any, Library] | None = None  # the kernels of reads, by the view's macros
    single: SingleRead | None = None
    _searched: weakref.ref[View] | None = None  # the view of the last search of one edge

    @abstractmethod
    def view(self) -> View:
        """Return the view for algorithms' kernels; valid until the next commit."""

    def _reads(self) -> tuple[Library, View]:
        """Return the kernels of reads, cached by macros, and the view."""
        view, readers = self.view(), self._readers
        if readers is None or readers[0] != view.defines:
            readers = self._readers = view.defines, load(self.device, "structures/read.cuh", view)
        return readers[1], view

    def _ids(self, ids: Any, name: str, bound: int) -> Array:
        """Return checked ids on the device."""
        ids = as_ids(ids, name)
        check_ids(ids, bound, name)
        return self.device.asarray(ids)

    def has_edges(self, src: Any, dst: Any, *, checked: bool = False, out: Array = None) -> Array:
        """Return True for each edge that exists: bool[n] on the device.

        O(log degree) each, or O(1) expected by hashing. `checked` ids are uint32[n] on the device, valid rows and
        vertices. The answers go to `out`, uint8[n] on the device, if it is given.
        """
        if not checked:
            src, dst = self._pairs(src, dst)
        return self._find(src, dst, self.device.empty(len(src), np.uint8) if out is None else out)

    def _pairs(self, src: Any, dst: Any) -> tuple[Array, Array]:
        src, dst = self._ids(src, "src", self.n_rows), self._ids(dst, "dst", self.n_vertices)
        if src.shape != dst.shape:
            raise InvalidBatch(f"src has shape {src.shape} and dst {dst.shape}")
        return src, dst

    def _find(self, src: Array, dst: Array, out: Array) -> Array:
        """Find edges of checked ids: by default with one lane per query."""
        kernels, view = self._reads()
        n = len(src)
        kernels.HasEdges(n, graph=view, src=src, dst=dst, n=n, found=out)
        if n == 1:
            again = self._searched is not None and self._searched() is view  # csr makes a view per search
            self.single, self._searched = SingleRead(self.device, kernels, view) if again else None, weakref.ref(view)
        return out.view(_BOOL)

    def find_weights(self, src: Any, dst: Any, *, checked: bool = False, out: Array = None) -> Array:
        """Return the weight of each edge: float32[n] on the device, NaN for missing edges, 1 without weights.

        O(log degree) each, or O(1) expected by hashing. `checked` and `out`, float32[n], as in `has_edges`.
        """
        if not checked:
            src, dst = self._pairs(src, dst)
        kernels, view = self._reads()
        weights = self.device.empty(len(src), np.float32) if out is None else out
        kernels.Weights(len(src), graph=view, src=src, dst=dst, n=len(src), weights=weights)
        return weights

    def degrees(self, vertices: Any = None, *, checked: bool = False, out: Array = None) -> Array:
        """Return the out-degrees, uint32[n] on the device, of `vertices` or of all rows. O(1) each.

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
        """Count the common neighbours of the rows ``u[i]`` and ``v[i]``: int64[n] on the device.

        Both rows are in this structure. A self-loop counts like any edge, and a row has its degree of neighbours in
        common with itself. Each edge of the shorter row is searched in the longer one: O(d log D) per pair with sorted
        rows, O(d) expected by hashing, O(d D) otherwise. Asynchronous on a GPU.

        Raises
        ------
        UnknownVertex
            An id is not below n_rows.
        InvalidBatch
            The two have different shapes, or an entry is no id.
        """
        u, v = self._ids(u, "u", self.n_rows), self._ids(v, "v", self.n_rows)
        if u.shape != v.shape:
            raise InvalidBatch(f"u has shape {u.shape} and v {v.shape}")
        kernels, view = self._reads()
        counts = self.device.empty(len(u), np.int64)
        kernels.CommonNeighbors(len(u), graph=view, u=u, v=v, n=len(u), counts=counts)
        return counts

    def neighbors(self, vertices: Any, *, checked: bool = False) -> Csr:
        """Return the rows of `vertices`, in their order. O(sum of degrees); one read-back.

        `checked` as in `has_edges`.
        """
        return self._gather(vertices if checked else self._ids(vertices, "vertices", self.n_rows))

    def to_csr(self) -> Csr:
        """Return all rows as CSR. O(n + m)."""
        return self._gather(self.device.arange(0, self.n_rows, np.uint32))

    def _gather(self, rows: Array) -> Csr:
        """Copy rows to the prefix sums of their degrees."""
        (kernels, view), device, n = self._reads(), self.device, len(rows)
        offsets, degrees = device.empty(n + 1, np.int64), device.empty(n, np.uint32)
        kernels.Degrees(n, graph=view, vertices=rows, n=n, degrees=degrees)
        device.fill(offsets[:1], 0)
        device.cumsum(degrees, out=offsets[1:])
        total = int(offsets[-1])
        dst = device.empty(total, np.uint32)
        weight = device.empty(total, np.float32) if self.weighted else None
        if total:
            self.copy_rows(rows, offsets, dst, weight)
        return Csr(offsets, dst, weight)

    def copy_rows(self, rows: Array, offsets: Array, dst: Array, weight: Array = None) -> None:
        """Copy rows to `dst`, and to `weight` if it is given. All are on the device; `offsets` are the right ones."""
        kernels, view = self._reads()
        n = len(rows)
        kernels.Neighbors(n, graph=view, vertices=rows, n=n, offsets=offsets, dst=dst, weight=weight)
