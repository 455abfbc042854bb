"""Elementwise operations on columns of results, on the workers that store them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.checks import is_series
from mgraph.client.results.column import VERTICES, Column
from mgraph.client.results.remote_columns import RemoteColumns
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.distinct import distinct
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.keys import NONE
from mgraph.tables.arrays import as_array, as_numbers, is_missing, is_one, shown, written
from mgraph.tables.ids import as_keys

__all__ = ["VALUE", "check_whole", "combine", "compare"]

VALUE = "value"  #: the name of the result column of `combine` and `compare`
NO_VERTEX, UNKNOWN = -1, -2  #: ids in an operand: no vertex, and a key of no vertex

Operand = list[dict[str, Any]]  #: each rank's part


def combine(operation: str, inputs: Sequence[Any]) -> RemoteColumns:
    """Apply an elementwise operation, on the workers that store the first column.

    Parameters
    ----------
    operation : str
        The name of a universal function of NumPy, or "where".
    inputs : sequence
        Numbers, arrays with a number for each vertex, and at least one column of numbers.

    Returns
    -------
    RemoteColumns
        With the column `VALUE`.

    Raises
    ------
    InvalidOption
        An input is a column of vertices, or fits neither the column nor the operation.
    """
    columns = [value for value in inputs if isinstance(value, Column)]
    for column in columns:
        if column._kind in VERTICES:
            raise column._refusal(operation)
    remote = columns[0]._remote
    kind = "rows" if any(column._kind == "rows" for column in columns) else "value"
    return _call(operation, remote, [_operand(value, remote) for value in inputs], kind)


def compare(operation: str, inputs: Sequence[Any]) -> RemoteColumns:
    """Compare a column of vertices with vertices in users' names, by "equal" or "not_equal".

    Parameters
    ----------
    operation : "equal" | "not_equal"
    inputs : sequence
        A column of vertices; and a vertex, None for no vertex, another column of vertices, or an array or Series with
        a vertex for each vertex.

    Returns
    -------
    RemoteColumns
        With the column `VALUE` of dtype bool.
    """
    column, other = inputs
    if not (isinstance(column, Column) and column._kind in VERTICES):
        column, other = other, column
    return _call(operation, column._remote, [_reference(column), _vertices(other, column)], "value")


def check_whole(axis: Any, out: Any, dtype: Any = None) -> None:
    """Raise `InvalidOption` unless a reduction is to a single number."""
    if axis is not None or out is not None or dtype is not None:
        raise InvalidOption(
            f"axis is {axis!r}, out {out!r} and dtype {dtype!r}; a result is reduced whole, to a number"
        )


def _call(operation: str, remote: RemoteColumns, operands: Sequence[Operand], kind: str) -> RemoteColumns:
    """Make the call on all ranks. If it fails, the new column is freed."""
    key, size = secrets.token_hex(16), remote.numbering.partition.size
    shares = [{"operands": [parts[rank] for parts in operands]} for rank in range(size)]
    try:
        answers = remote.coordinator.call(
            "combine", {"result": key, "operation": operation, "like": remote.key}, shares
        )
    except BaseException:
        remote.coordinator.forget(key)
        raise
    dtypes = {VALUE: answers[0]["dtype"]}
    return RemoteColumns(remote.coordinator, remote.numbering, operation, key, remote.epoch, dtypes, {}, {VALUE: kind})


# ---- operands --------------------------------------------------------------------------------------------------------


def _reference(column: Column) -> Operand:
    """Return a column of the workers as an operand, by its key."""
    column._remote.check()
    return [{"result": column._remote.key, "column": column._column}] * column._remote.numbering.partition.size


def _shares_layout(column: Column, remote: RemoteColumns) -> bool:
    """Return True if a column is on the same workers as `remote`, in the same ranges and order."""
    other, here = column._remote.numbering, remote.numbering
    same_layout = other.generation == here.generation and other.partition == here.partition
    return same_layout and column._remote.coordinator is remote.coordinator


def _operand(value: Any, remote: RemoteColumns) -> Operand:
    """Return each rank's part of an operand of numbers."""
    here, size = remote.numbering, remote.numbering.partition.size

    # A column in the same layout is on the ranks already.
    if isinstance(value, Column):
        value._remote.check()
        if _shares_layout(value, remote):
            return _reference(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise InvalidOption(f"an operand is {written(value)}; whole numbers have 64 bits")
    if isinstance(value, int | float | np.integer | np.floating | np.bool_) and not isinstance(value, np.timedelta64):
        return [_number(value)] * size

    # Everything else goes as an array, split by the ranks' ranges.
    value = _by_vertex(value, here)
    array = Device.to_host(value.to_numpy() if isinstance(value, Column) else as_numbers(value, "an operand"))
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    # NumPy wraps a number on the left of a comparison.
    if array.ndim == 0 and array.dtype.kind in "biuf":
        return [_number(array[()])] * size
    _check_shape(array, here, "number")
    return _parts(array, here)


def _number(value: Any) -> dict[str, Any]:
    """Return a number as an operand. One of NumPy keeps its dtype, which messages do not have; 64 bits are the most."""
    if not isinstance(value, np.generic):
        return {"number": value}
    dtype = np.dtype(np.float64) if isinstance(value, np.longdouble) else value.dtype
    return {"number": value.astype(dtype).item(), "dtype": dtype.name}


def _vertices(value: Any, column: Column) -> Operand:
    """Return each rank's part of an operand of vertices, in the form in which `column` stores them."""
    remote, here = column._remote, column._remote.numbering
    if isinstance(value, Column) and value._kind in VERTICES:
        value._remote.check()
        if value._kind == column._kind and _shares_layout(value, remote):
            return _reference(value)
    internal = column._kind == "vertex"

    # A single vertex is sent as a number.
    if is_one(value) and not isinstance(value, Column):
        vertex = _stored(np.array([_vertex(value, here)], np.int64), here, internal)
        return [{"number": int(vertex[0])}] * here.partition.size
    ids = _ids(_by_vertex(value, here), here)
    _check_shape(ids, here, "vertex")
    return _parts(_stored(ids, here, internal), here)


def _by_vertex(value: Any, here: Numbering) -> Any:
    """Return an operand in the order of the vertices: a Series of pandas is aligned by its index."""
    if isinstance(value, Column):
        if value._remote.numbering.keys is here.keys:  # or neither graph has keys
            return value
        raise InvalidOption(
            f"an operand is a result of {value.name} at epoch {value.epoch}, of another graph or of other vertices; "
            "its to_series() is aligned by keys"
        )
    if not is_series(value):
        return value

    # Align the series: row `rows[i]` has the value of vertex i.
    ids = here.ids(value.index, "the index of an operand")
    if len(ids) != here.n_vertices or len(distinct(ids)) != len(ids):
        raise InvalidOption(
            f"the index of an operand has {len(ids)} rows; it must name each of {here.n_vertices} vertices once"
        )
    rows = np.empty(len(ids), np.int64)
    rows[ids] = np.arange(len(ids))
    return value.iloc[rows]


def _check_shape(array: np.ndarray, here: Numbering, noun: str) -> None:
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) != here.n_vertices:
        raise InvalidOption(
            f"an operand has shape {array.shape} and dtype {array.dtype}; it must be a {noun}, or have one for each of "
            f"{here.n_vertices} vertices"
        )


def _parts(array: np.ndarray, here: Numbering) -> Operand:
    """Split an array by vertex into the ranks' ranges."""
    inside = np.empty_like(array)
    inside[here.inside(np.arange(len(array)))] = array
    return [{"values": inside[first:end]} for first, end in pairwise(here.partition.starts)]


# ---- vertices as users name them -------------------------------------------------------------------------------------


def _vertex(value: Any, here: Numbering) -> int:
    """Return the id of a vertex; `NO_VERTEX` for None, `UNKNOWN` for a key of no vertex."""
    if value is None:
        return NO_VERTEX
    if here.keys is None:
        value = np.asarray(value)
        if value.dtype.kind not in "biuf":
            raise InvalidOption(f"a column of vertices is compared with {shown(value[()])}, which is no vertex")
        return int(_whole(value.reshape(1))[0])
    return int(_ids([value], here)[0])


def _ids(values: Any, here: Numbering) -> np.ndarray:
    """Return the ids of vertices in users' names: int64[n], `NO_VERTEX` if missing, `UNKNOWN` for unknown keys."""
    if isinstance(values, Column):
        if here.keys is not None and values._kind not in VERTICES:
            raise InvalidOption(
                f"a column of vertices is compared with numbers of {values.name}; in a graph with keys, compare "
                "positions: to_numpy() of both"
            )
        return _whole(values.to_numpy())
    # Missing vertices come from pandas as NaN or NA, from lists and objects as None.
    if is_series(values):
        missing = values.isna().to_numpy()
        present = values[~missing]
    else:
        present = _plain(values)
        missing = np.zeros(len(present), bool)
        if isinstance(present, list):
            missing = np.array([is_missing(vertex) for vertex in present], bool)
            present = [vertex for vertex, absent in zip(present, missing, strict=True) if not absent]

    # Look the present vertices up.
    ids = np.full(len(missing), NO_VERTEX, np.int64)
    try:
        if here.keys is None:
            array = Device.to_host(as_array(present))
            if array.ndim != 1:
                raise InvalidBatch(f"an operand has shape {array.shape}; it must be one-dimensional")
            ids[~missing] = _whole(as_array(array.tolist()) if array.dtype == object else array)
        elif not missing.all():
            keys = Device.to_host(here.keys.find(as_keys(present, here.keys.kind, "an operand"), here.n_vertices))
            ids[~missing] = np.where(keys == NONE, UNKNOWN, keys.astype(np.int64))
    except InvalidBatch as error:
        raise InvalidOption(f"a column of vertices is compared with what names no vertex: {error}") from None
    return ids


def _plain(values: Any) -> Any:
    """Return an array of numbers or strings in host memory, or a list of objects and None."""
    for method in ("to_pylist", "to_list"):  # Arrow, Polars
        if hasattr(values, method):
            return list(getattr(values, method)())
    array = Device.to_host(values) if hasattr(values, "__cuda_array_interface__") else values
    return array if isinstance(array, np.ndarray) and array.dtype != object else list(array)


def _whole(values: np.ndarray) -> np.ndarray:
    """Return whole numbers as int64 ids, other numbers as `UNKNOWN`."""
    if values.dtype.kind not in "biuf":
        raise InvalidBatch(f"an operand has dtype {values.dtype}; vertices are whole numbers")
    if values.dtype.kind == "f":
        whole = (values == np.trunc(values)) & (np.abs(values) < 2.0**62)
    else:
        whole = values == values if values.dtype != np.uint64 else values < 2**62
    return np.where(whole, np.where(whole, values, 0).astype(np.int64), UNKNOWN)


def _stored(ids: np.ndarray, here: Numbering, internal: bool) -> np.ndarray:
    """Return users' ids in the form that the workers store: unchanged, or as internal ids."""
    if not internal:
        return ids
    stored, valid = ids.copy(), (ids >= 0) & (ids < here.n_vertices)
    stored[valid] = here.inside(ids[valid])
    stored[ids >= here.n_vertices] = UNKNOWN
    return stored
