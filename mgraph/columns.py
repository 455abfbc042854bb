"""Users' columns of keys: integers as int64, strings as UTF-8 in one buffer. Errors name the row and the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.errors import InvalidBatch, InvalidOption, MgraphError

__all__ = [
    "KINDS", "Texts", "arrow", "as_array", "as_keys", "as_objects", "check_kind", "chosen_kind", "not_a_list", "shown",
]  # fmt: skip

KINDS = ("int64", "string")  #: of keys
_TEXT = ("string", "large_string", "string_view")  #: types of Arrow
EXACT = 2**53  #: up to here each whole number is a float64 of its own
ASCII = 127  #: up to here a byte of UTF-8 is a character of its own


def arrow() -> Any:
    """The module pyarrow; `MgraphError` without it."""
    try:
        import pyarrow
    except ImportError:
        raise MgraphError("keys that are strings need pyarrow: pip install pyarrow") from None
    return pyarrow


def as_array(values: Any) -> Any:
    """`values` as a NumPy or CuPy array, without a copy if the protocol of `values` allows that.

    Accepts NumPy and CuPy arrays, sequences, and objects with ``__cuda_array_interface__``, ``__array_interface__``,
    ``__array__`` or DLPack (``__dlpack__``). Data on a GPU stays there. Raises `InvalidBatch` if `values` cannot be
    made an array, or is an array with masked entries.
    """
    on_gpu = hasattr(values, "__cuda_array_interface__")
    if not on_gpu and hasattr(values, "__dlpack_device__") and not isinstance(values, np.ndarray):
        with suppress(TypeError):  # of an Arrow array with missing values, in some releases
            on_gpu = int(values.__dlpack_device__()[0]) == 2  # kDLCUDA
        if not on_gpu and not hasattr(values, "__array__"):
            return _tried(np.from_dlpack, values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        at = np.flatnonzero(np.ma.getmaskarray(values))[0]
        raise InvalidBatch(f"entry {at} of a masked array is masked; every entry needs a value")
    if on_gpu:
        import cupy

        return cupy.asarray(values) if hasattr(values, "__cuda_array_interface__") else cupy.from_dlpack(values)
    return _tried(np.asarray, values)


def not_a_list(values: Any, ndim: int, name: str, what: str) -> InvalidBatch:
    """The error for what is one value, or has several dimensions, in place of a list of `what`."""
    if isinstance(values, str | int | float | np.generic):
        return InvalidBatch(f"{name} is {values!r}, one value; {what} come in a list or a 1-dimensional array")
    kind = type(values).__name__
    return InvalidBatch(f"{name} has type {kind} and {ndim} dimensions; {what} must be in a 1-dimensional array")


def _tried(make: Callable[[Any], np.ndarray], values: Any) -> np.ndarray:
    """An array of `values`, or `InvalidBatch`: rows of unequal lengths, say, or a sparse tensor."""
    try:
        return make(values)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise InvalidBatch(f"a {type(values).__name__} cannot be made an array: {error}") from None


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of strings in host memory: a sequence of them, and ``numpy.asarray`` makes an array of str objects.

    Parameters
    ----------
    at : int64[k + 1]
        String i is ``text[at[i] : at[i + 1]]``, in UTF-8.
    text : uint8[bytes]
    codes : int64[n], optional
        The string of each row, where strings are given once each, as in a categorical column. By default row i is
        string i.
    """

    at: np.ndarray
    text: np.ndarray
    codes: np.ndarray | None = None

    @classmethod
    def of(cls, array: Any) -> Texts:
        """The strings of an Arrow array without missing values; without a copy if its offsets have 64 bits."""
        array = array.cast(arrow().large_string())
        _, offsets, data = array.buffers()
        if len(array) == 0 or offsets is None:
            return cls(np.zeros(1, np.int64), np.zeros(0, np.uint8))
        at = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        return cls(at, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8))

    def to_arrow(self) -> Any:
        """The strings of the rows as a ``pyarrow.LargeStringArray``."""
        pa = arrow()
        at, text = np.ascontiguousarray(self.at), np.ascontiguousarray(self.text)
        strings = pa.LargeStringArray.from_buffers(len(at) - 1, pa.py_buffer(at), pa.py_buffer(text))
        return strings if self.codes is None else strings.take(pa.array(self.codes))

    def take(self, rows: np.ndarray) -> Texts:
        """Some rows."""
        if self.codes is not None:
            return Texts(self.at, self.text, self.codes[rows])
        return Texts.of(self.to_arrow().take(arrow().array(rows)))

    def __len__(self) -> int:
        return len(self.at) - 1 if self.codes is None else len(self.codes)

    @property
    def shape(self) -> tuple[int]:
        """The number of rows, as of an array."""
        return (len(self),)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.at.nbytes + self.text.nbytes + (0 if self.codes is None else self.codes.nbytes))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        """Return the strings of the rows, as an array's method of this name does."""
        strings: list[str] = self.to_arrow().to_pylist()
        return strings

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The strings of the rows as str objects."""
        if copy is False:
            raise ValueError("strings are stored in one buffer, so an array of them is always a copy; copy=False fails")
        found: np.ndarray = self.to_arrow().to_numpy(zero_copy_only=False).astype(dtype or object)
        return found

    def __getitem__(self, rows: Any) -> Any:
        """The rows of a slice, as a view, or of a mask; or the string of one row, a number."""
        if isinstance(rows, int | np.integer):
            return self.to_arrow()[int(rows)].as_py()
        if not isinstance(rows, slice):
            return self.take(np.flatnonzero(rows))
        first, end, step = rows.indices(len(self))
        if step != 1:
            return self.take(np.arange(first, end, step))
        if self.codes is not None:
            return Texts(self.at, self.text, self.codes[first:end])
        return Texts(self.at[first : max(first, end) + 1], self.text)


def cell(name: str, row: int) -> str:
    """What messages call a value: "src[3]", or "column 'from', row 3"."""
    return f"{name}, row {row}" if name.startswith("column ") else f"{name}[{row}]"


def shown(value: Any) -> str:
    """A value of a column as messages show it: without the type that NumPy, CuPy or Arrow gives it."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    plain = getattr(value, "as_py", getattr(value, "tolist", lambda: value))
    return repr(plain())


# ---- users' columns --------------------------------------------------------------------------------------------------


def as_keys(values: Any, kind: str, name: str) -> Any:
    """`values` as a column of keys: int64[n] for the kind "int64", on the device where they are, or `Texts`.

    Takes arrays, sequences, columns of pandas and Polars, and Arrow arrays. Categorical and dictionary columns are not
    decoded. O(n).

    Raises
    ------
    InvalidBatch
        A value is missing, or is no key of that kind. The message names the row.
    """
    if isinstance(values, Texts):
        if kind == "int64" and len(values):
            raise InvalidBatch(f"{cell(name, 0)} is a string; the graph's keys are int64")
        return values if kind == "string" else np.zeros(0, np.int64)
    plain = _plain(values, name)
    return _texts(plain, name) if kind == "string" else _numbers(plain, name)


@dataclass(frozen=True)
class _Coded:
    """A column whose row r is ``values[codes[r]]``; `values` is an array of NumPy or Arrow."""

    values: Any
    codes: np.ndarray


def _plain(values: Any, name: str) -> Any:
    """A column without missing values: an array of NumPy, CuPy or Arrow, or a `_Coded`."""
    if hasattr(values, "isna") and hasattr(values, "dtype"):  # pandas
        if getattr(values, "nlevels", 1) > 1:
            raise InvalidBatch(f"{name} is a {type(values).__name__} of {values.nlevels} levels; a key is one value")
        _refuse_missing(np.asarray(values.isna(), bool), name)
        inner = getattr(values, "cat", values)
        if hasattr(inner, "categories"):
            return _Coded(_plain(inner.categories, name), np.asarray(inner.codes, np.int64))
        if str(values.dtype).startswith(("str", "large_string")):
            return _joined(arrow().array(values, type=arrow().large_string()))
        return values.to_numpy(dtype=getattr(values.dtype, "numpy_dtype", None))
    if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "type"):  # of Polars, say
        values = arrow().chunked_array(values)
    elif hasattr(values, "__arrow_c_array__") and not hasattr(values, "type"):
        values = arrow().array(values)
    if type(values).__module__.startswith("pyarrow"):
        return _of_arrow(values, name)
    array = as_array(as_objects(values))
    if array.ndim != 1:
        raise not_a_list(values, array.ndim, name, "keys")
    return array


def as_objects(values: Any) -> Any:
    """`values`; as objects a list that NumPy would make something else of.

    Its strings lose a NUL at the end, and take numbers; integers past int64 become floats.
    """
    if isinstance(values, list | tuple):
        kinds = set(map(type, values))
        if any(issubclass(kind, str) for kind in kinds) or (kinds == {int} and max(values) >= 2**63):
            return np.fromiter(values, object, len(values))
    return values


def _joined(array: Any) -> Any:
    return array.combine_chunks() if hasattr(array, "combine_chunks") else array


def _of_arrow(values: Any, name: str) -> Any:
    pa, values = arrow(), _joined(values)
    if isinstance(values, pa.ChunkedArray):  # of no or of several chunks
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_run_end_encoded(values.type):
        from pyarrow.compute import run_end_decode

        values = run_end_decode(values)
    if values.null_count:
        _refuse_missing(values.is_null().to_numpy(zero_copy_only=False), name)
    if pa.types.is_dictionary(values.type):
        if values.dictionary.null_count:
            rows = values.dictionary.is_null().to_numpy(zero_copy_only=False)[values.indices.to_numpy()]
            _refuse_missing(rows, name)
        return _Coded(values.dictionary, values.indices.to_numpy(zero_copy_only=False).astype(np.int64))
    if str(values.type) in _TEXT:
        return values
    return values.to_numpy(zero_copy_only=False)


def _refuse_missing(missing: np.ndarray, name: str) -> None:
    if missing.any():
        raise InvalidBatch(f"{cell(name, int(missing.argmax()))} is missing; every vertex needs a key")


def _is_text(column: Any) -> bool:
    """Whether a column's first value says that it holds strings."""
    if isinstance(column, _Coded):
        column = column.values
    if type(column).__module__.startswith("pyarrow"):
        return str(column.type) in _TEXT
    return column.dtype.kind in "UT" or (column.dtype.kind == "O" and len(column) > 0 and isinstance(column[0], str))


def _texts(column: Any, name: str) -> Texts:
    if isinstance(column, _Coded):
        values = column.values
        if not _is_text(values) and len(values):
            _refuse_kind(values[int(column.codes[0])] if len(column.codes) else values[0], name, 0)
        there = _texts(values, f"the dictionary of {name}")
        return Texts(there.at, there.text, column.codes)
    if type(column).__module__.startswith("pyarrow"):
        found = Texts.of(column)
        if len(found) and found.text[found.at[0] : found.at[-1]].max(initial=0) > ASCII:
            _check_utf8(column, name)
        return found
    if len(column) == 0:
        return Texts(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    if column.dtype.kind not in "UTO":
        _refuse_kind(column[0], name, 0)
    objects = column.tolist()
    try:
        if any(issubclass(kind, bytes | bytearray) for kind in set(map(type, objects))):  # which Arrow would decode
            raise TypeError
        array = arrow().array(objects, type=arrow().large_string(), from_pandas=True)
    except (arrow().ArrowException, TypeError, ValueError):  # some value is no string, or no UTF-8
        for row, value in enumerate(objects):
            if not isinstance(value, str):
                if value is None or value != value:
                    raise InvalidBatch(f"{cell(name, row)} is missing; every vertex needs a key") from None
                _refuse_kind(value, name, row)
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise InvalidBatch(
                    f"{cell(name, row)} is {value!r}, which is no valid Unicode: {error.reason}"
                ) from None
        raise
    if array.null_count:
        _refuse_missing(array.is_null().to_numpy(zero_copy_only=False), name)
    return Texts.of(array)


def _check_utf8(column: Any, name: str) -> None:
    """Raise `InvalidBatch` for the first string of an Arrow array that is no UTF-8: Arrow takes them as they come."""
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
    raise InvalidBatch(f"{cell(name, row)} is {shown(value)}; the graph's keys are strings")


def _numbers(column: Any, name: str) -> Any:
    """A column as int64[n]."""
    if isinstance(column, _Coded):
        values = column.values
        if type(values).__module__.startswith("pyarrow") and not _is_text(values):
            values = values.to_numpy(zero_copy_only=False)
        if _is_text(values) and len(column.codes):
            value = values[int(column.codes[0])]
            raise InvalidBatch(f"{cell(name, 0)} is {str(value)!r}; the graph's keys are int64")
        return _numbers(values, name)[column.codes] if len(column.codes) else np.zeros(0, np.int64)
    if _is_text(column):
        if len(column) == 0:
            return np.zeros(0, np.int64)
        raise InvalidBatch(f"{cell(name, 0)} is {str(column[0])!r}; the graph's keys are int64")
    if column.size == 0:
        return column.astype(np.int64)
    if column.dtype.kind == "O":
        column = _whole_objects(column, name)
    if column.dtype == np.float16:  # whose largest number is below the limits
        column = column.astype(np.float32)
    if column.dtype.kind == "f":
        missing = column != column
        if missing.any():
            _refuse_missing(missing, name)
        bad = (column != column.round()) | (abs(column) > EXACT)
        if bad.any():
            row = int(bad.argmax())
            raise InvalidBatch(
                f"{cell(name, row)} is {float(column[row])!r}; keys are whole numbers, floats up to 2**53"
            )
    elif column.dtype.kind not in "iu":
        value = f"{cell(name, 0)} is {shown(column[0])}, and the column is {column.dtype}"
        raise InvalidBatch(f"{value}; the graph's keys are int64")
    elif column.dtype.kind == "u" and column.dtype.itemsize == 8 and int(column.max()) >= 2**63:
        row = int((column >= np.uint64(2**63)).argmax())
        raise InvalidBatch(f"{cell(name, row)} is {int(column[row])}; keys run from -2**63 to 2**63 - 1")
    return column.astype(np.int64, copy=False)


def _whole_objects(column: np.ndarray, name: str) -> np.ndarray:
    """The integers among Python objects."""
    kinds = set(map(type, column))
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return np.array(column.tolist(), np.int64)
        except OverflowError:
            row = next(row for row, value in enumerate(column) if not -(2**63) <= value < 2**63)
            raise InvalidBatch(f"{cell(name, row)} is {column[row]}; keys run from -2**63 to 2**63 - 1") from None
    for row, value in enumerate(column):
        if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType") or value != value:
            raise InvalidBatch(f"{cell(name, row)} is missing; every vertex needs a key")
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise InvalidBatch(f"{cell(name, row)} is {value!r}; the graph's keys are int64")
    raise AssertionError("no value is wrong")


# ---- which keys a graph gets -----------------------------------------------------------------------------------------


def chosen_kind(src: Any, dst: Any, names: tuple[str, str] = ("src", "dst")) -> str | None:
    """The keys of a graph whose first edges have these ends: "string", "int64", or None for ids 0, 1 and so on.

    Strings become keys. Integers become keys unless they lie in 0 .. 4 * (distinct ones) + 1024. O(n).
    """
    if isinstance(src, Texts) or isinstance(dst, Texts):
        return "string"
    columns = [_plain(values, name) for values, name in zip((src, dst), names, strict=True)]
    if any(_is_text(column) for column in columns):
        return "string"
    numbers = [_numbers(column, name) for column, name in zip(columns, names, strict=True)]
    numbers = [column for column in numbers if column.size]
    if not numbers:
        return None
    least, most = min(int(column.min()) for column in numbers), max(int(column.max()) for column in numbers)
    if least < 0 or most > 4 * sum(column.size for column in numbers) + 1024:
        return "int64"
    if most <= 1024 + 4:
        return None
    import sys

    there = sys.modules[type(numbers[0]).__module__.partition(".")[0]].zeros(most + 1, bool)
    for column in numbers:
        there[column] = True
    return "int64" if most > 4 * int(there.sum()) + 1024 else None


def check_kind(keys: Any) -> None:
    """Raise `InvalidOption` unless `keys` is a kind of keys, None, or "auto"."""
    if not (keys is None or (isinstance(keys, str) and keys in (*KINDS, "auto"))):
        raise InvalidOption(f'keys {keys!r} is none of "int64", "string", None and "auto"')
