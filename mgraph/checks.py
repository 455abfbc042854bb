"""Checks of single arguments. Each returns a canonical value, or raises an error with its name."""

from __future__ import annotations

import operator
from collections.abc import Container
from numbers import Real
from typing import Any

import numpy as np

from mgraph.batch import MAX_VERTICES, as_ids, check_ids
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption, UnknownVertex
from mgraph.tables.arrays import shown, written

__all__ = [
    "advised",
    "check_count",
    "check_direction",
    "check_dtype",
    "check_flag",
    "check_growth",
    "check_number",
    "check_offset",
    "check_vertex",
    "check_vertices",
    "check_weight",
    "check_whole",
    "is_choice",
    "is_series",
]

MOST_BITS = 1024  #: of an integer; Python writes no more than 4,300 digits
#: A growing graph accepts ids up to SPARSE_IDS * n_vertices + FREE_IDS, or SPARSE_IDS per end of a batch.
SPARSE_IDS, FREE_IDS = 16, 1 << 20


def check_growth(largest: int, what: str, n_vertices: int, n_edges: int) -> int:
    """Return the number of vertices after a batch with the id `largest`.

    Raises
    ------
    InvalidBatch
        The id, named by `what`, is too large: all smaller ids would become vertices too.
    """
    # Sparse ids are probably a mistake, or keys.
    if largest > max(SPARSE_IDS * n_vertices + FREE_IDS, SPARSE_IDS * 2 * n_edges):
        raise InvalidBatch(
            f"{what} is {largest}, the graph has {n_vertices} vertices and the batch {n_edges} edges; vertices are "
            'numbered 0, 1 and so on: give sparse ids a graph with keys="int64", or give the graph n_vertices'
        )
    return max(largest + 1, n_vertices)


def check_whole(value: Any, name: str) -> int:
    """Return `value` as an int of 0 or more, or raise `InvalidOption`."""
    try:
        n = operator.index(value)
    except TypeError:
        raise InvalidOption(f"{name} is {value!r}; it must be a whole number") from None
    if isinstance(value, bool) or n < 0:
        raise InvalidOption(f"{name} is {shown(value)}; it must be a whole number of 0 or more")
    if n.bit_length() > MOST_BITS:
        raise InvalidOption(f"{name} is an integer of {n.bit_length()} bits; it must have at most {MOST_BITS}")
    return n


def is_choice(value: Any, choices: Container[str]) -> bool:
    """Return True if `value` is one of the names `choices`. Arrays and frames, which compare by entry, are none."""
    return isinstance(value, str) and value in choices


def is_series(values: Any) -> bool:
    """Return True if `values` has an index of vertices, like a Series."""
    return hasattr(values, "index") and hasattr(values, "to_numpy") and getattr(values, "ndim", 0) == 1


def check_flag(value: Any, name: str) -> bool:
    """Return `value` as a bool. Raises `InvalidOption` for anything but True, False, 1 and 0."""
    if isinstance(value, int | np.integer | np.bool_) and not isinstance(value, np.timedelta64) and value in (0, 1):
        return bool(value)
    raise InvalidOption(f"{name} is {written(value)}; it must be True or False")


def check_weight(value: Any, weighted: bool) -> bool:
    """Return the option `weight` of an algorithm as a bool. True needs a weighted graph; None is False."""
    if isinstance(value, str):
        raise InvalidOption(f"weight is {value!r}; it must be True or False, as an edge has one weight, without a name")
    by_weight = value is not None and check_flag(value, "weight")
    if by_weight and not weighted:
        raise InvalidOption("weight=True needs weights; create the graph with weighted=True")
    return by_weight


def check_offset(value: Any) -> tuple[str, int]:
    """Return `value` as a source's name and an offset of 0 or more."""
    if not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[0], str):
        raise InvalidOption(f"offset is {value!r}; it must be the name of a source and a number, as in ('topic', 42)")
    if (nbytes := len(value[0].encode(errors="surrogatepass"))) > 1000:
        raise InvalidOption(f"offset names a source with {nbytes} bytes; 1000 are the limit")
    if any("\ud800" <= letter <= "\udfff" for letter in value[0]):
        raise InvalidOption(f"offset names the source {value[0]!r}, which UTF-8 cannot have")
    # The record of an offset has 8 bytes.
    n = check_whole(value[1], "offset")
    if n >= 2**63:
        raise InvalidOption(f"offset is {n}; it must be less than 2**63")
    return value[0], n


def check_number(value: Any, name: str) -> float:
    """Return `value` as a float, or raise `InvalidOption`."""
    try:
        if isinstance(value, Real) and not isinstance(value, bool | np.timedelta64):  # NumPy's durations are integers
            return float(value)
    except OverflowError:  # an int of hundreds of digits
        pass
    raise InvalidOption(f"{name} is {written(value)}; it must be a number in the range of float64")


def check_dtype(value: Any) -> str:
    """Return the name of the option `dtype`, "float32" or "float64", or raise `InvalidOption`."""
    try:
        if value is not None and np.dtype(value) in (np.float32, np.float64):
            return np.dtype(value).name
    except (TypeError, ValueError, SyntaxError):
        pass
    raise InvalidOption(f"dtype is {value!r}; it must be float32 or float64")


def check_count(value: Any, name: str) -> int:
    """Return `value` as a number of vertices. Raises `CapacityError` above `MAX_VERTICES`."""
    n = check_whole(value, name)
    if n > MAX_VERTICES:
        raise CapacityError(f"{name} is {n}; 32-bit ids allow at most {MAX_VERTICES}")
    return n


def check_vertex(vertex: Any, n_vertices: int, name: str) -> int:
    """Return `vertex` as an int.

    Raises
    ------
    InvalidOption
        `vertex` is not a whole number.
    UnknownVertex
        `vertex` is outside ``0 .. n_vertices - 1``.
    """
    try:
        value = operator.index(vertex)
    except TypeError:
        value = None
    if value is None or isinstance(vertex, bool):
        raise InvalidOption(f"{name} is {vertex!r}; a vertex id is a whole number")
    if value.bit_length() > MOST_BITS:
        raise InvalidOption(f"{name} is an integer of {value.bit_length()} bits; a vertex id has 32")
    if not 0 <= value < n_vertices:
        raise UnknownVertex.past(name, value, n_vertices)
    return value


def check_vertices(vertices: Any, n_vertices: int, name: str) -> np.ndarray:
    """Return `vertices` as ids in host memory, uint32[k] with k >= 1.

    Raises
    ------
    InvalidOption
        `vertices` is no one-dimensional array of whole numbers, or is empty.
    UnknownVertex
        An id is outside ``0 .. n_vertices - 1``.
    """
    # As an option, a bad id raises another error than in a batch.
    try:
        ids = as_ids(vertices, name)
    except InvalidBatch as error:
        raise InvalidOption(str(advised(error, vertices, name))) from None
    check_ids(ids, n_vertices, name)
    if len(ids) == 0:
        raise InvalidOption(f"{name} is empty; at least one vertex is needed")
    return np.ascontiguousarray(Device.to_host(ids), np.uint32)


def advised(error: InvalidBatch, values: Any, name: str) -> InvalidBatch:
    """Return the error about `values`, or another with advice, for a mask and for pairs in place of vertices."""
    first = next(iter(values), None) if isinstance(values, list | tuple) else None
    if (str(getattr(values, "dtype", "")).lower() in ("bool", "boolean") and hasattr(values, "__len__")) or (
        isinstance(first, bool) and all(isinstance(value, bool) for value in values)
    ):
        return InvalidBatch(
            f"{name} is a mask of {len(values)} values; vertices()[mask] has the vertices that it marks"
        )
    if isinstance(first, tuple):
        return InvalidBatch(f"{name}[0] is {first!r}; it must be a vertex: of pairs as of top(), [v for v, _ in pairs]")
    return error


def check_direction(direction: Any, reverse: bool) -> str:
    """Return `direction`, "out" or "in". "in" needs a graph with in-edges."""
    if not is_choice(direction, ("out", "in")):
        raise InvalidOption(f'direction {direction!r} is neither "out" nor "in"')
    if direction == "in" and not reverse:
        raise InvalidOption('direction "in" needs in-edges; create the graph with reverse=True')
    return str(direction)
