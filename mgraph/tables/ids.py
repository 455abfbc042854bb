"""Check the ends of edges: vertex ids as uint32, or keys as int64 or strings.

Errors name the row and the value.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np

from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex
from mgraph.tables.arrays import (
    NEED,
    Coded,
    as_column,
    cell,
    is_missing,
    library_of,
    not_a_list,
    plain,
    refuse_missing,
    shown,
    unpacked,
)
from mgraph.tables.texts import Texts, arrow

__all__ = ["EXACT", "GROW", "KINDS", "MAX_VERTICES", "as_ids", "as_keys", "check_ids", "check_kind", "chosen_kind"]

KINDS = ("int64", "string")  #: kinds of keys
MAX_VERTICES = 2**32 - 1  #: ids are uint32; the largest value means "no vertex"
EXACT = 2**53  #: smaller whole numbers are exact in float64
MOST_DECIMAL = 2**64  #: decimals are exact; larger ones are no id and no key, and may have a billion digits
ASCII = 127  #: largest byte that is a whole character of UTF-8
KEY = "every vertex needs a key"

GROW = "; add_vertices adds more, and so does insert into a graph made without n_vertices"  #: advice on a change

_ID = np.dtype(np.uint32)
_WHOLE = "vertex ids are whole numbers"
_RANGE = f'vertex ids run from 0 to {MAX_VERTICES - 1}; a graph with keys="int64" takes any integers of 64 bits'
#: why a value is no key: in a graph with that kind of keys, and in one whose first edges choose the kind
_STRINGS = "the graph's keys are strings, as keys= or its first edges say; astype(str) makes strings of a column"
_INTEGERS = 'the graph\'s keys are int64, as keys= or its first edges say; keys="string" takes strings'
_EITHER = "vertices are whole numbers or strings, all of one kind; astype(str) makes strings of a column"


# ---- ids -------------------------------------------------------------------------------------------------------------


def as_ids(values: Any, name: str) -> Any:
    """Return vertex ids as uint32[n].

    The array stays on the device of `values`.

    Parameters
    ----------
    values : array, sequence, or column of pandas, Polars, cuDF or Arrow
        Whole numbers of any dtype: floats too, and Python objects.
    name : str
        The name of the column in messages.

    Raises
    ------
    InvalidBatch
        `values` is not one-dimensional, or has an entry that is missing, no whole number, negative, or `MAX_VERTICES`
        or more.

    Notes
    -----
    O(n). Arrays of a signed or wider dtype are scanned once; for an array on a GPU, reading the largest number
    synchronises. Unsigned arrays of at most 32 bits are not scanned.
    """
    if type(values) is np.ndarray and values.dtype is _ID and values.ndim == 1:
        return values
    if type(values) is list and len(values) == 1 and type(values[0]) is int and 0 <= values[0] < MAX_VERTICES:
        return np.array(values, _ID)  # six times as fast, which matters for single edges
    # Make any other column an array, Python objects too.
    array = as_column(values, name)
    if array.ndim != 1:
        raise not_a_list(values, array.ndim, name, "ids")
    if array.size == 0:
        return array.astype(np.uint32)
    if array.dtype.kind in "OUT":
        array = _whole_objects(array, name, _WHOLE, (0, MAX_VERTICES - 1), _RANGE)
    # Check the range by the dtype: unsigned ids of at most 32 bits need no scan.
    if array.dtype.kind == "f":
        array = _wider(array)
        _check_whole(array, name, _WHOLE)
        bad = (array < 0) | (array >= MAX_VERTICES)
        if bad.any():
            raise InvalidBatch(f"{cell(name, _first(bad))} is {float(array[_first(bad)])}; {_RANGE}")
    elif array.dtype.kind not in "iu":
        value = f"{cell(name, 0)} is {shown(array[0])}"
        raise InvalidBatch(f"{value}; {_WHOLE}, and the column is {array.dtype}")
    elif array.dtype.kind == "i" or array.dtype.itemsize > 4:
        unsigned, limit = _unsigned(array.dtype)  # negative numbers become the largest
        if array.view(unsigned).max() >= limit:
            negative = array < 0
            at = _first(negative) if negative.any() else _first(array >= MAX_VERTICES)
            raise InvalidBatch(f"{cell(name, at)} is {int(array[at])}; {_RANGE}")
    return array.astype(np.uint32, copy=False)


def check_ids(ids: Any, n_vertices: int, name: str, advice: str = "") -> None:
    """Raise `UnknownVertex` unless every id is below `n_vertices`; `advice` ends the message.

    O(n). For ids on a GPU, a single synchronising read.
    """
    if ids.size and (ids.item() if ids.size == 1 else int(ids.max())) >= n_vertices:  # the largest of one takes no scan
        at = _first(ids >= n_vertices)
        raise UnknownVertex(f"{UnknownVertex.past(cell(name, at), int(ids[at]), n_vertices)}{advice}")


def _first(mask: Any) -> int:
    return int(mask.argmax())


def _wider(array: Any) -> Any:
    """Return floats of 16 bits, whose largest number is below the limits, as float32; others unchanged."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


@cache
def _unsigned(dtype: np.dtype) -> tuple[np.dtype, int]:
    """Return the unsigned dtype of the same size, and the least number in it that is no id.

    Negative numbers lie at or above that limit when they are viewed as unsigned.
    """
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    return np.dtype(dtype.str.replace("i", "u")), min(MAX_VERTICES, 1 << bits)


def _check_whole(array: Any, name: str, why: str, limit: float = np.inf) -> None:
    """Raise `InvalidBatch` for the first float that is NaN, fractional, or not below `limit`."""
    refuse_missing(array != array, name, NEED if why == _WHOLE else KEY)
    bad = (array != array.round()) | (abs(array) >= limit)
    if bad.any():
        raise InvalidBatch(f"{cell(name, _first(bad))} is {float(array[_first(bad)])!r}; {why}")


def _whole_objects(column: np.ndarray, name: str, why: str, limits: tuple[int, int], limit: str) -> np.ndarray:
    """Return whole numbers that are Python objects as int64.

    `InvalidBatch` for other values, fractions too: `why` is the reason in messages. `limits` are the least and largest
    number, `limit` says them in words.
    """
    # Convert what is not int, and name the first row that is no whole number.
    values: list[Any] = column.tolist()
    kinds = set(map(type, values))
    if any(not issubclass(kind, int) or kind is bool for kind in kinds):
        refuse_missing(np.fromiter(map(is_missing, values), bool, len(values)), name, NEED if why == _WHOLE else KEY)
        whole: list[Any] = [_whole(value) for value in values]
        bad = [row for row, value in enumerate(whole) if value is None]
        if bad:
            # of a column that was read as text, the row that made it so
            text = [r for r in bad if isinstance(values[r], str) and not values[r].strip("+- ").isdigit()]
            row, names = (text or bad)[0], ", ".join(sorted(kind.__name__ for kind in kinds))
            more = "" if why != _WHOLE else f", and the column has values of {names}"
            hint = (
                '; a graph with keys="string" takes strings' if isinstance(values[row], str) and why == _WHOLE else ""
            )
            hint += ", and astype(int) makes numbers of these" if hint and not text else ""
            raise InvalidBatch(f"{cell(name, row)} is {shown(values[row])}; {why}{more}{hint}")
        values = whole
    # Convert all at once; name the first number outside the limits.
    try:
        return np.array(values, np.int64)
    except OverflowError:
        row = next(row for row, value in enumerate(values) if not limits[0] <= value <= limits[1])
        raise InvalidBatch(f"{cell(name, row)} is {shown(values[row])}; {limit}") from None


def _whole(value: Any) -> int | None:
    """Return a whole number of any type as an int; None for anything else."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
        return int(value)
    if isinstance(value, float | np.floating | Decimal):
        limit = MOST_DECIMAL if isinstance(value, Decimal) else EXACT
        with suppress(ArithmeticError, ValueError):  # infinity and NaN
            if isinstance(value, Decimal) and abs(value) >= limit:
                return None
            whole = int(value)
            return whole if whole == value and abs(whole) < limit else None
    return None


# ---- keys ------------------------------------------------------------------------------------------------------------


def as_keys(values: Any, kind: str, name: str) -> Any:
    """Return a column of keys: int64[n] for the kind "int64", else `Texts`.

    Numbers stay on their device. Takes arrays, sequences, columns of pandas, Polars and cuDF, and Arrow arrays.
    Categorical and dictionary columns are not decoded. O(n).

    Raises
    ------
    InvalidBatch
        A value is missing, or is no key of that kind. The message names the row.
    """
    if isinstance(values, Texts):
        if kind == "int64" and len(values):
            raise InvalidBatch(f"{cell(name, 0)} is a string; {_INTEGERS}")
        return values if kind == "string" else np.zeros(0, np.int64)
    column = _keys(values, name)
    return _texts(column, name) if kind == "string" else _numbers(column, name)


def _keys(values: Any, name: str) -> Any:
    """Return a column by `plain`; `InvalidBatch` unless it is one-dimensional."""
    column = plain(values, name, KEY)
    if getattr(column, "ndim", 1) != 1:
        raise not_a_list(values, column.ndim, name, "keys")
    return column


def _is_text(column: Any) -> bool:
    """Return True if a column's first value is a string."""
    if isinstance(column, Texts):
        return True
    if isinstance(column, Coded):
        values, first = column.values, column.codes[:1]
        return _is_text(values[first] if len(first) and isinstance(values, np.ndarray) else values)
    if library_of(column) == "pyarrow":
        return "string" in str(column.type)
    return column.dtype.kind in "UT" or (column.dtype.kind == "O" and len(column) > 0 and isinstance(column[0], str))


def _texts(column: Any, name: str) -> Texts:
    """Return a column as strings."""
    if isinstance(column, Coded):
        values = column.values
        others = values.tolist() if isinstance(values, np.ndarray) else [] if _is_text(values) else values
        if not all(isinstance(value, str) for value in others):  # rows may not use these
            return _texts(column.decoded(name), name)
        strings = _texts(values, f"the dictionary of {name}")
        return Texts(strings.at, strings.text, column.codes)
    if library_of(column) == "pyarrow":
        strings = Texts.of(column)
        if len(strings) and strings.text[strings.at[0] : strings.at[-1]].max(initial=0) > ASCII:
            _check_utf8(column, name)
        return strings
    if len(column) == 0:
        return Texts(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    if column.dtype.kind not in "UTO":
        if column.dtype.kind == "f":
            refuse_missing(column != column, name, KEY)
        _refuse_kind(column[0], name, 0)
    return _of_objects(column.tolist(), name)


def _of_objects(objects: list[Any], name: str) -> Texts:
    """Return a list of strings as `Texts`; the error names the first other value."""
    # Arrow converts them at once. If it fails, look for the first bad value.
    try:
        if any(issubclass(kind, bytes | bytearray) for kind in set(map(type, objects))):  # Arrow would decode them
            raise TypeError
        array = arrow().array(objects, type=arrow().large_string(), from_pandas=True)
    except (arrow().ArrowException, TypeError, ValueError):  # some value is no string, or no UTF-8
        for row, value in enumerate(objects):
            if not isinstance(value, str):
                if is_missing(value):
                    raise InvalidBatch(f"{cell(name, row)} is missing; {KEY}") from None
                _refuse_kind(value, name, row)
            try:
                value.encode()
            except UnicodeEncodeError as error:
                why = f"which is no valid Unicode: {error.reason}"
                raise InvalidBatch(f"{cell(name, row)} is {value!r}, {why}") from None
        raise
    # None and NaN came through as nulls.
    if array.null_count:
        refuse_missing(array.is_null().to_numpy(zero_copy_only=False), name, KEY)
    return Texts.of(array)


def _check_utf8(column: Any, name: str) -> None:
    """Raise `InvalidBatch` for the first string of an Arrow array with invalid UTF-8.

    Arrow itself does not check strings from outside.
    """
    try:
        column.validate(full=True)
    except arrow().ArrowInvalid:
        for row, value in enumerate(column):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise InvalidBatch(f"{cell(name, row)} is {error.object!r}, which is no UTF-8") from None
        raise


def _refuse_kind(value: Any, name: str, row: int) -> None:
    raise InvalidBatch(f"{cell(name, row)} is {shown(value)}; {_STRINGS}")


def _numbers(column: Any, name: str, why: str = _INTEGERS) -> Any:
    """Return a column as int64[n]. `why` is the reason in messages about values of other types."""
    # Dictionaries and strings.
    if isinstance(column, Coded):
        if _is_text(column) and len(column.codes):
            raise InvalidBatch(f"{cell(name, 0)} is {shown(column.values[int(column.codes[0])])}; {why}")
        values = unpacked(column.values, name)
        if len(values) and values.dtype.kind in "iu" and np.can_cast(values.dtype, np.int64):
            return values.astype(np.int64)[column.codes]
        column = column.decoded(name)  # the used values, in the order of the rows
    if _is_text(column):
        if len(column) == 0:
            return np.zeros(0, np.int64)
        raise InvalidBatch(f"{cell(name, 0)} is {str(column[0])!r}; {why}")
    if library_of(column) == "pyarrow":  # a dictionary's values
        column = unpacked(column, name)
    if column.size == 0:
        return column.astype(np.int64)
    # Numbers: whole ones that int64 holds.
    limit = "keys run from -2**63 to 2**63 - 1"
    if column.dtype.kind == "O":
        column = _whole_objects(column, name, why, (-(2**63), 2**63 - 1), limit)
    if column.dtype.kind == "f":
        column = _wider(column)
        _check_whole(column, name, "keys are whole numbers, floats below 2**53", EXACT)
    elif column.dtype.kind not in "iu":
        value = f"{cell(name, 0)} is {shown(column[0])}, and the column is {column.dtype}"
        raise InvalidBatch(f"{value}; {why}")
    elif column.dtype.kind == "u" and column.dtype.itemsize == 8 and int(column.max()) >= 2**63:
        row = _first(column >= np.uint64(2**63))
        raise InvalidBatch(f"{cell(name, row)} is {int(column[row])}; {limit}")
    return column.astype(np.int64, copy=False)


# ---- which keys a graph gets -----------------------------------------------------------------------------------------


def chosen_kind(src: Any, dst: Any, names: tuple[str, str] = ("src", "dst")) -> str | None:
    """Choose the keys of a graph by its first edges: "string", "int64", or None for ids.

    Strings become keys. Integers become keys unless they lie in 0 .. 4 * (distinct ones) + 1024. O(n).
    """
    # Strings decide without a look at the values.
    columns = [_keys(values, name) for values, name in zip((src, dst), names, strict=True)]
    if any(_is_text(column) for column in columns):
        return "string"
    numbers = [_numbers(column, name, _EITHER) for column, name in zip(columns, names, strict=True)]
    numbers = [column for column in numbers if column.size]
    if not numbers:
        return None
    # The range decides, if it is small or larger than 4 times the number of ends.
    least, most = min(int(column.min()) for column in numbers), max(int(column.max()) for column in numbers)
    if least < 0 or most > 4 * sum(column.size for column in numbers) + 1024:
        return "int64"
    if most <= 1024 + 4:
        return None
    # Count the distinct numbers, by a mark per number.
    import sys

    seen = sys.modules[library_of(numbers[0])].zeros(most + 1, bool)
    for column in numbers:
        seen[column] = True
    return "int64" if most > 4 * int(seen.sum()) + 1024 else None


def check_kind(keys: Any) -> None:
    """Raise `InvalidOption` unless `keys` is a kind of keys, None, or "auto"."""
    if not (keys is None or (isinstance(keys, str) and keys in (*KINDS, "auto"))):
        raise InvalidOption(f'keys {keys!r} is none of "int64", "string", None and "auto"')
