"""Edge batches: what a user hands to a graph. A batch is checked once, here, and trusted everywhere inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.errors import InvalidBatch, UnknownVertex

__all__ = ["MAX_VERTICES", "EdgeBatch", "as_array", "as_ids", "check_ids"]

MAX_VERTICES = 2**32 - 1  #: ids are uint32; the last value stands for "no vertex"


def as_array(values: Any) -> Any:
    """`values` as a NumPy or CuPy array, without a copy where its protocol allows.

    Takes NumPy and CuPy arrays, sequences, and whatever has ``__cuda_array_interface__``, ``__array_interface__``,
    ``__array__`` or DLPack (``__dlpack__``). What lies on a GPU stays there. `InvalidBatch` for what is no array, or is
    masked.
    """
    on_gpu = hasattr(values, "__cuda_array_interface__")
    if not on_gpu and hasattr(values, "__dlpack_device__") and not isinstance(values, np.ndarray):
        on_gpu = int(values.__dlpack_device__()[0]) == 2  # kDLCUDA
        if not on_gpu and not hasattr(values, "__array__"):
            return np.from_dlpack(values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        at = np.flatnonzero(np.ma.getmaskarray(values))[0]
        raise InvalidBatch(f"entry {at} of a masked array is masked; every entry needs a value")
    if on_gpu:
        import cupy

        return cupy.asarray(values) if hasattr(values, "__cuda_array_interface__") else cupy.from_dlpack(values)
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of unequal lengths
        raise InvalidBatch(f"{type(values).__name__} is no array: {error}") from None


def _first(mask: Any) -> int:
    return int(mask.argmax())


def as_ids(values: Any, name: str) -> Any:
    """`values` as a one-dimensional uint32 array of vertex ids.

    Raises
    ------
    InvalidBatch
        Not one-dimensional, not integers (NaN and fractions are named), negative, or past `MAX_VERTICES`. Arrays of a
        wider or signed dtype are scanned for it, which on a GPU reads two numbers back.
    """
    array = as_array(values)
    if array.ndim != 1:
        raise InvalidBatch(f"{name} is {type(values).__name__} of {array.ndim} dimensions; ids come in an array of one")
    if array.size == 0:
        return array.astype(np.uint32)
    if array.dtype.kind == "f":
        bad = array != array.round()  # NaN differs from itself
        if bad.any():
            at = _first(bad)
            raise InvalidBatch(f"{name}[{at}] is {float(array[at])}; vertex ids are whole numbers")
    if array.dtype.kind not in "iu":
        raise InvalidBatch(f"{name} has dtype {array.dtype}; vertex ids are integers up to {MAX_VERTICES - 1}")
    if array.dtype.kind == "i" or array.dtype.itemsize > 4:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= MAX_VERTICES:
            at = _first(array < 0) if low < 0 else _first(array >= MAX_VERTICES)
            raise InvalidBatch(f"{name}[{at}] is {int(array[at])}; vertex ids run from 0 to {MAX_VERTICES - 1}")
    return array.astype(np.uint32, copy=False)


def check_ids(ids: Any, n_vertices: int, name: str) -> None:
    """Raise `UnknownVertex` unless every one of `ids` is below `n_vertices`; one read-back for ids on a GPU."""
    if ids.size and int(ids.max()) >= n_vertices:
        at = _first(ids >= n_vertices)
        raise UnknownVertex(
            f"{name}[{at}] is {int(ids[at])}; the graph has {n_vertices} vertices, 0 to {n_vertices - 1}"
        )


def _as_weights(values: Any) -> Any:
    array = as_array(values)
    if array.dtype.kind not in "fiu":
        raise InvalidBatch(f"weight has dtype {array.dtype}; weights are numbers, kept as float32")
    with np.errstate(over="ignore"):
        kept = array.astype(np.float32, copy=False)
    bad = kept != kept
    if bad.any():
        raise InvalidBatch(f"weight[{_first(bad)}] is NaN; every edge needs a number")
    if kept is not array:
        bad = np.isinf(kept) & ~np.isinf(array)
        if bad.any():
            at, most = _first(bad), np.finfo(np.float32).max
            raise InvalidBatch(f"weight[{at}] is {float(array[at])}; weights are kept as float32, up to {most:.8g}")
    return kept


def _as_ops(values: Any) -> Any:
    array = as_array(values)
    if array.ndim == 0:
        if array.dtype.kind not in "iu" or int(array) not in (1, -1):
            raise InvalidBatch(f"op is {values!r}; ops are +1 (insert) and -1 (delete)")
        return None if int(array) == 1 else -1
    if array.size and array.dtype.kind not in "iu":
        raise InvalidBatch(f"op has dtype {array.dtype}; ops are the integers +1 (insert) and -1 (delete)")
    bad = (array != 1) & (array != -1)
    if bad.any():
        at = _first(bad)
        raise InvalidBatch(f"op[{at}] is {int(array[at])}; ops are +1 (insert) and -1 (delete)")
    return array.astype(np.int8, copy=False)


@dataclass(frozen=True, init=False, eq=False)
class EdgeBatch:
    """Edges to insert and delete, in stream order.

    Parameters
    ----------
    src, dst : array-like of integers, shape (n,)
        Ids from 0; NumPy, CuPy, sequences, or anything with an array interface or DLPack. Kept as uint32, where they
        are.
    weight : array-like of numbers, shape (n,), optional
        Kept as float32; ignored for deletions. Inserting an edge that is there updates its weight.
    op : array-like of +1 and -1, shape (n,), optional
        +1 inserts, -1 deletes, or one of them for all; all inserts where it is left out. Of repeats, the last in
        stream order wins. Kept as int8, or as -1 where all are deletes.

    Raises
    ------
    InvalidBatch
        Naming the first bad value and the limit it breaks.

    Notes
    -----
    O(n). Arrays of the kept dtypes are not copied: do not change them afterwards.

    Examples
    --------
    >>> EdgeBatch([0, 1], [1, 2])
    EdgeBatch(2 edges)
    """

    src: Any
    dst: Any
    weight: Any
    op: Any

    def __init__(self, src: Any, dst: Any, weight: Any = None, op: Any = None) -> None:
        columns = {"src": as_ids(src, "src"), "dst": as_ids(dst, "dst"), "weight": None, "op": None}
        if weight is not None:
            columns["weight"] = _as_weights(weight)
        if op is not None:
            columns["op"] = _as_ops(op)
        n = len(columns["src"])
        for name, column in columns.items():
            if not (column is None or isinstance(column, int)) and column.shape != (n,):
                raise InvalidBatch(f"{name} has shape {column.shape} and src {(n,)}; a batch has one entry an edge")
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in ("weight", "op") if getattr(self, name) is not None)
        return f"EdgeBatch({len(self)} edges{extra})"

    def __getitem__(self, part: slice) -> EdgeBatch:
        """A part, without a copy and without a second check; a batch is cut by slices only."""
        if not isinstance(part, slice):
            raise TypeError(f"a batch is cut by slices, not by {type(part).__name__}; one edge is batch[i : i + 1]")
        batch = object.__new__(EdgeBatch)
        for name in ("src", "dst", "weight", "op"):
            column = getattr(self, name)
            object.__setattr__(batch, name, column if column is None or isinstance(column, int) else column[part])
        return batch
