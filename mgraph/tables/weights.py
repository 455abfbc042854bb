"""Weights as float32, and operations as +1 and -1."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from mgraph.errors import InvalidBatch
from mgraph.facade import warn
from mgraph.tables.arrays import as_column, cell, is_missing, not_a_list, refuse_missing, shown
from mgraph.tables.ids import EXACT

__all__ = ["as_ops", "as_weights"]

MOST, LEAST = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
_STORED = f"weights are stored as float32, up to {MOST:.8g}"
WHOLE = 2**24  #: whole numbers up to here are exact in float32
_DIGITS = "weights have about 7 digits, whole numbers are exact up to 16,777,216"
_OPS = "operations are +1 (insert) and -1 (delete)"


def as_weights(values: Any, n: int, name: str = "weight", notes: list[str] | None = None) -> Any:
    """Return the weights of `n` edges: float32[n], on the device where they are. O(n).

    `values` has a weight for each edge, or is a single weight for all. A warning names a whole number that float32
    changes, or a number that becomes 0; `notes` gets a line about the first value of any kind.

    Raises
    ------
    InvalidBatch
        A value is missing, no number, or too large for float32; or `values` has more than one dimension.
    """
    array = as_column(values, name)
    if array.ndim != 1:
        if array.ndim:
            raise not_a_list(values, array.ndim, name, "weights")
        array = array.reshape(1).repeat(n)  # a single weight of all edges
    if array.dtype.kind in "OUT":
        array = _of_objects(array, name)
    elif array.dtype.kind not in "fiu" and array.size:
        value = f"{cell(name, 0)} is {shown(array[0])}; weights are numbers"
        raise InvalidBatch(f"{value}, and the column is {array.dtype}")
    # Convert; only an array that was float32 already cannot change.
    with np.errstate(over="ignore"):
        kept = array.astype(np.float32, copy=False)
    if kept is array:
        refuse_missing(kept != kept, name)
        return kept
    # Refuse overflow, and tell of the values that float32 rounds.
    changed = _changed(array, kept)
    if changed.any():
        refuse_missing(kept != kept, name)
        bad = np.isinf(kept) & ~np.isinf(array)
        if bad.any():
            at = int(bad.argmax())
            raise InvalidBatch(f"{cell(name, at)} is {float(array[at])}; {_STORED}")
        if notes is not None:
            at = int(changed.argmax())
            notes.append(f"{cell(name, at)} is {shown(array[at])}, and float32 keeps {float(kept[at])!r}")
        _warn_changed(array, kept, changed, name)
    return kept


def _changed(array: Any, kept: Any) -> Any:
    """Return the mask of numbers that float32 changes."""
    changed = kept != array  # compared as float64, which does not have all integers of 64 bits
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        # From 2**53 on, a float32 is a multiple of 2**30, and rounding to float64 drops 11 bits at most.
        large = abs(kept) >= EXACT
        changed = changed | (large & ((array & 2047) != 0)) if large.any() else changed
    return changed


def _warn_changed(array: Any, kept: Any, changed: Any, name: str) -> None:
    """Warn of the first number that becomes 0, and of the first whole number that float32 changes.

    Fractions are expected to keep seven digits.
    """
    gone = changed & (kept == 0)
    if gone.any():
        at = int(gone.argmax())
        warn(f"{cell(name, at)} is {shown(array[at])}, and float32 keeps 0: the least weight above 0 is {LEAST:.2g}")
    if max(float(kept.max()), -float(kept.min())) < WHOLE:
        return
    if array.dtype.kind == "f":
        changed = changed & (abs(array) > WHOLE) & (abs(array) < EXACT) & (array == array.round())
        if not changed.any():
            return
    at = int(changed.argmax())
    _warn_whole(cell(name, at), shown(array[at]), float(kept[at]))


def _warn_whole(where: str, number: Any, kept: float) -> None:
    warn(f"{where} is {number}, and float32 keeps {kept:.0f}: {_DIGITS}")


def _of_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Return the numbers among Python objects, Decimals too, as float64."""
    values = array.tolist()
    refuse_missing(np.fromiter(map(is_missing, values), bool, len(values)), name)
    bad = [row for row, value in enumerate(values) if not _is_number(value)]
    if bad:  # of a column that was read as text, the row that made it so
        text = [row for row in bad if isinstance(values[row], str) and not _is_float(values[row])]
        row = (text or bad)[0]
        more = ": pandas.to_numeric or astype(float) makes numbers of text" if isinstance(values[row], str) else ""
        raise InvalidBatch(f"{cell(name, row)} is {shown(values[row])}; weights are numbers{more}")
    for row, value in enumerate(values):
        if isinstance(value, int) and abs(value) > int(MOST):
            raise InvalidBatch(f"{cell(name, row)} is {shown(value)}; {_STORED}")
    numbers = np.array([float(value) for value in values], np.float64)
    for at in np.flatnonzero(np.isinf(numbers)).tolist():  # decimals and long doubles past float64
        if abs(values[at]) != np.inf:
            raise InvalidBatch(f"{cell(name, at)} is {values[at]!s}; {_STORED}")
    # Whole numbers of 2**53 and more, which float64 may have changed.
    for at in np.flatnonzero(abs(numbers) >= EXACT).tolist():
        if isinstance(values[at], int | np.integer) and int(values[at]) != (kept := float(np.float32(numbers[at]))):
            _warn_whole(cell(name, at), values[at], kept)
            break
    return numbers


def _is_number(value: Any) -> bool:
    numbers = int | float | np.integer | np.floating | Decimal  # NumPy counts a timedelta64 among its integers
    return isinstance(value, numbers) and not isinstance(value, bool | np.timedelta64)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_ops(values: Any, name: str = "op") -> Any:
    """Return operations as int8[n]; a common operation as -1, or as None for +1.

    Raises
    ------
    InvalidBatch
        A value is neither +1 nor -1, or is missing.
    """
    # A single operation for all edges.
    if type(values) is int and values in (1, -1):
        return None if values == 1 else -1
    array = as_column(values, name)
    if array.ndim == 0:
        if array.dtype.kind not in "iu" or int(array) not in (1, -1):
            raise InvalidBatch(f"{name} is {shown(values)}; ops are +1 (insert) and -1 (delete)")
        return None if int(array) == 1 else -1
    # An operation per edge: none missing, all of them +1 or -1.
    if array.dtype.kind == "O":
        refuse_missing(np.fromiter(map(is_missing, array.tolist()), bool, len(array)), name)
    elif array.dtype.kind == "f":
        refuse_missing(array != array, name)
    if array.dtype.kind == "O":  # True and a timedelta64 of 1 equal 1, and an array equals nothing
        right = (_is_number(value) and value in (1, -1) for value in array.tolist())
        bad = ~np.fromiter(right, bool, len(array))
    else:
        wrong = array.size and array.dtype.kind not in "iuf"
        bad = np.ones(len(array), bool) if wrong else (array != 1) & (array != -1)
    if bad.any():
        at = int(bad.argmax())
        raise InvalidBatch(f"{cell(name, at)} is {shown(array[at])}; {_OPS}")
    return array.astype(np.int8, copy=False)
