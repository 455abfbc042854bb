"""Columns of users' tables as vertex ids and weights, checked value by value: errors name column, row and value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.batch import MAX_VERTICES
from mgraph.columns import shown
from mgraph.errors import InvalidBatch
from mgraph.times import as_times

__all__ = ["Column", "check_alike", "choose", "operations", "times", "vertex_ids", "weights"]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Parameters
    ----------
    name : str
        What messages call it.
    values : array, shape (n,)
        Numbers, of NumPy or CuPy; or objects, where the table has them.
    missing : bool[n], optional
        Where a value is missing; None if none is.
    """

    name: str
    values: np.ndarray
    missing: np.ndarray | None = None

    def refuse(self, bad: np.ndarray, why: str) -> None:
        """Raise `InvalidBatch` for the first row of `bad`, a mask, if there is one."""
        if bad.any():
            row = int(bad.argmax())
            raise InvalidBatch(f"column {self.name!r}, row {row} is {shown(self.values[row])}; {why}")

    def check_there(self) -> None:
        """Raise `InvalidBatch` for the first missing value; NaN is one."""
        missing = self.missing
        if missing is None and self.values.dtype.kind == "f":
            missing = np.isnan(self.values)
        if missing is not None and missing.any():
            row = int(missing.argmax())
            raise InvalidBatch(f"column {self.name!r}, row {row} is missing; every edge needs a value")


def choose(there: Iterable[Any], wanted: Sequence[str | None], what: str) -> list[str]:
    """The names in `wanted` that are not None, each of which `there` has exactly once.

    Raises
    ------
    InvalidBatch
        A column is missing, or there are two of its name; the message lists the columns. Or one is wanted twice; or one
        of the first two of `wanted`, the ends of the edges, is None.
    """
    if None in wanted[:2]:
        raise InvalidBatch(f"source and target each need the name of a column, got {wanted[0]!r} and {wanted[1]!r}")
    there, names = list(there), [name for name in wanted if name is not None]
    for name in names:
        if there.count(name) != 1:
            count = "no column" if name not in there else f"{there.count(name)} columns"
            advice = "; source= and target= name others" if name in ("source", "target") else ""
            listed = ", ".join(map(repr, there)) or "none"
            raise InvalidBatch(f"{what} has {count} {name!r}; its columns are {listed}{advice}")
        if names.count(name) > 1:
            raise InvalidBatch(
                f"column {name!r} is wanted twice; source, target, weight, op and time are columns of their own"
            )
    return names


def check_alike(columns: Sequence[tuple[str, Any]]) -> None:
    """Raise `InvalidBatch` unless all arrays, given with their names, have one dimension and are equally long."""
    for name, values in columns:
        shape = values.shape if hasattr(values, "shape") else (len(values),)  # of Arrow
        if len(shape) != 1:
            raise InvalidBatch(f"column {name!r} has shape {shape}; it must have 1 dimension, an entry an edge")
        if len(values) != len(columns[0][1]):
            raise InvalidBatch(
                f"column {name!r} has {len(values)} rows and column {columns[0][0]!r} has {len(columns[0][1])}"
            )


def vertex_ids(column: Column) -> np.ndarray:
    """The ids in a column: uint32[n]. O(n).

    Raises
    ------
    InvalidBatch
        A value is missing, no whole number, negative, or past the largest id.
    """
    column.check_there()
    if column.values.dtype == object:
        column = Column(column.name, _whole_objects(column))
    if column.values.dtype == np.float16:  # whose largest number is below the limit
        column = Column(column.name, column.values.astype(np.float32))
    values = column.values
    if values.dtype.kind == "f":
        column.refuse(values != np.floor(values), "vertex ids are whole numbers")
    elif values.dtype.kind not in "iu":
        column.refuse(np.ones(len(values), bool), f"vertex ids are whole numbers, and the column is {values.dtype}")
    if len(values) and (values.min() < 0 or values.max() >= MAX_VERTICES):
        limit = f"vertex ids run from 0 to {MAX_VERTICES - 1}"
        column.refuse((values < 0) | (values >= MAX_VERTICES), limit)
    return values.astype(np.uint32)


def _whole_objects(column: Column) -> np.ndarray:
    """The integers in a column of Python objects."""
    values = column.values
    kinds = set(map(type, values))
    other = {kind for kind in kinds if not issubclass(kind, int | np.integer) or kind is bool}
    if other:
        bad = np.fromiter((type(value) in other for value in values), bool, len(values))
        text = np.fromiter((isinstance(v, str) and not v.strip("+- ").isdigit() for v in values), bool, len(values))
        bad = text if text.any() else bad  # of a column that was read as text, the row that is why
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        column.refuse(bad, f"vertex ids are whole numbers, and the column has values of {names}")
    try:
        return np.array(values.tolist(), np.int64)
    except OverflowError:
        large = np.fromiter((not 0 <= value < MAX_VERTICES for value in values), bool, len(values))
        column.refuse(large, f"vertex ids run from 0 to {MAX_VERTICES - 1}")
        raise


def weights(column: Column) -> np.ndarray:
    """The weights in a column: float32[n]. O(n).

    Raises
    ------
    InvalidBatch
        A value is missing, no number, or too large for float32.
    """
    most = np.finfo(np.float32).max
    limit = f"weights are stored as float32, up to {most:.8g}"
    column.check_there()
    values = column.values
    if values.dtype == object:
        kinds = (int | float | np.number, bool | np.complexfloating)
        numbers = np.fromiter((isinstance(v, kinds[0]) and not isinstance(v, kinds[1]) for v in values), bool)
        text = np.fromiter((isinstance(v, str) and not _is_float(v) for v in values), bool, len(values))
        column.refuse(text, "weights are numbers")  # of a column that was read as text, the row that is why
        column.refuse(~numbers, "weights are numbers")
        column.refuse(np.fromiter((isinstance(v, int) and abs(v) > int(most) for v in values), bool), limit)
        values = values.astype(np.float64)
        Column(column.name, values).check_there()
    elif values.dtype.kind not in "iuf":
        column.refuse(np.ones(len(values), bool), f"weights are numbers, and the column is {values.dtype}")
    with np.errstate(over="ignore"):
        kept = values.astype(np.float32)
    column.refuse(np.isinf(kept) & ~np.isinf(values), limit)
    return kept


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def operations(column: Column) -> np.ndarray:
    """The operations in a column, +1 and -1: int8[n]; `InvalidBatch` for any other value. O(n)."""
    column.check_there()
    values = column.values
    bad = np.ones(len(values), bool) if values.dtype.kind not in "iufO" else (values != 1) & (values != -1)
    column.refuse(bad, "operations are +1 (insert) and -1 (delete)")
    return values.astype(np.int8)


def times(column: Column) -> np.ndarray:
    """The times in a column: int64[n], or datetime64[n] with its unit. O(n).

    Raises
    ------
    InvalidBatch
        A value is missing, no integer and no date, or has a time zone.
    """
    column.check_there()
    values = column.values
    if values.dtype.kind == "M":
        column.refuse(np.isnat(values), "every edge needs a value")
    try:
        found: np.ndarray = as_times(values, len(values))
    except InvalidBatch as error:
        raise InvalidBatch(f"column {column.name!r}: {error}") from None
    return found
