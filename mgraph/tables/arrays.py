"""Convert columns of pandas, Polars, cuDF, Arrow, DLPack and lists to arrays without missing values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.tables.texts import Texts, arrow

__all__ = [
    "NEED", "Coded", "as_array", "as_column", "as_numbers", "as_objects", "cell", "is_missing", "is_one", "library_of",
    "not_a_list", "of_capsule", "of_cudf", "plain", "refuse_missing", "shown", "unpacked", "written",
]  # fmt: skip

NEED = "every edge needs a value"
_TEXT = ("string", "large_string", "string_view")  #: Arrow's types of strings
_BUFFERS = (str, bytes, bytearray, memoryview, range)  #: sequences whose entries have a common type


# ---- messages --------------------------------------------------------------------------------------------------------


def cell(name: str, row: int) -> str:
    """Return the name of a value in messages: "src[3]", or "column 'from', row 3"."""
    return f"{name}, row {row}" if name.startswith("column ") else f"{name}[{row}]"


def shown(value: Any) -> str:
    """Format a value of a column for a message, without its type in NumPy, CuPy or Arrow."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, type):  # the methods of a class need a value
        return repr(value)
    plain = getattr(value, "as_py", getattr(value, "tolist", lambda: value))
    try:
        return repr(plain())
    except (ValueError, OverflowError):
        if isinstance(value, int):  # Python writes 4,300 digits
            return f"an integer of {value.bit_length()} bits"
        # A time or a duration of Arrow that Python does not have.
        return f"a value of the type {value.type}"


def written(value: Any) -> str:
    """Return the `repr` of an argument for a message; of an integer with too many digits for Python, its bits."""
    return shown(value) if isinstance(value, int) else repr(value)


def not_a_list(values: Any, ndim: int, name: str, what: str) -> InvalidBatch:
    """Return the error for a scalar or a multi-dimensional array in place of a list of `what`."""
    if isinstance(values, str | int | float | np.generic):
        one = values if not isinstance(values, np.generic) else values.item()
        form = f"a list, as [{shown(one)}], or a 1-dimensional array"
        return InvalidBatch(f"{name} is {shown(one)}, one value; {what} come in {form}")
    kind = type(values).__name__
    return InvalidBatch(f"{name} has type {kind} and {ndim} dimensions; {what} must be in a 1-dimensional array")


def refuse_missing(missing: Any, name: str, need: str = NEED) -> None:
    """Raise `InvalidBatch` for the first row of a mask, if any."""
    if missing.any():
        raise InvalidBatch(f"{cell(name, int(missing.argmax()))} is missing; {need}")


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, NaT, pandas' NA and NumPy's masked."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):  # signalling NaNs cannot be compared
        return value.is_nan()
    try:
        differs = value != value  # an array's answer is an array
    except (TypeError, ValueError):  # objects that cannot be compared
        return False
    return isinstance(differs, bool | np.bool_) and bool(differs)


def is_one(value: Any) -> bool:
    """Return True for a single value, False for a sequence or an array, also of rows of unequal lengths."""
    if isinstance(shape := getattr(value, "shape", None), tuple):
        return not shape
    if any(hasattr(value, name) for name in ("__arrow_c_array__", "__arrow_c_stream__", "__dlpack__")):
        return False
    try:
        return np.ndim(value) == 0
    except ValueError:
        return False


# ---- arrays ----------------------------------------------------------------------------------------------------------


def library_of(value: Any) -> str:
    """Return the name of the package that a value's type comes from."""
    return type(value).__module__.partition(".")[0]


def as_array(values: Any, name: str = "") -> Any:
    """Return `values` as a NumPy or CuPy array. Messages about a masked entry call it `name`.

    Without a copy if the protocol of `values` allows that.

    Accepts NumPy and CuPy arrays, sequences, and objects with ``__cuda_array_interface__``, ``__array_interface__``,
    ``__array__`` or DLPack (``__dlpack__``). Data on a GPU stays there. Raises `InvalidBatch` if `values` cannot be
    made an array, or is an array with masked entries.
    """
    # DLPack: from the CPU at once, from a GPU below by CuPy.
    on_gpu = hasattr(values, "__cuda_array_interface__")
    if not on_gpu and hasattr(values, "__dlpack_device__") and not isinstance(values, np.ndarray):
        with suppress(TypeError):  # some releases of Arrow refuse missing values
            on_gpu = int(values.__dlpack_device__()[0]) == 2  # kDLCUDA
        if not on_gpu and not hasattr(values, "__array__"):
            return _tried(np.from_dlpack, values)
    # Everything else has an interface of NumPy or CuPy.
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        at = int(np.flatnonzero(np.ma.getmaskarray(values))[0])
        entry = f"entry {at} of a masked array" if not name or values.ndim != 1 else cell(name, at)
        raise InvalidBatch(f"{entry} is masked; every entry needs a value")
    if on_gpu:
        import cupy

        return cupy.asarray(values) if hasattr(values, "__cuda_array_interface__") else cupy.from_dlpack(values)
    return _tried(np.asarray, values)


def _tried(make: Callable[[Any], np.ndarray], values: Any) -> np.ndarray:
    """Call `make`; `InvalidBatch` if it fails, as for rows of unequal lengths or a sparse tensor."""
    try:
        return make(values)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise InvalidBatch(f"a {type(values).__name__} cannot be made an array: {error}") from None


def as_objects(values: Any) -> Any:
    """Return `values`, as an array of objects if NumPy would change the entries of a sequence.

    NumPy cuts a NUL at the end of a string, makes strings and numbers of the numbers and bools beside them, floats of
    integers past int64, and wraps dates that do not fit the finest unit among them.
    """
    if isinstance(values, list | tuple) or (isinstance(values, Sequence) and not isinstance(values, _BUFFERS)):
        kinds = set(map(type, values))
        mixed = len(kinds) > 1 and not kinds.isdisjoint((bool, np.bool_))
        if mixed or any(issubclass(kind, str) for kind in kinds) or (kinds == {int} and max(values) >= 2**63):
            return np.fromiter(values, object, len(values))
        if (len(kinds) > 1 and _become_floats(values, kinds)) or (kinds == {np.datetime64} and _of_units(values)):
            return np.fromiter(values, object, len(values))
    return values


def _become_floats(values: Sequence[Any], kinds: set[type]) -> bool:
    """Return True for integers of which NumPy makes floats, such as an int64 and a uint64."""
    return all(issubclass(kind, int | np.integer) for kind in kinds) and np.asarray(values).dtype.kind == "f"


def _of_units(values: Sequence[Any]) -> bool:
    """Return True for dates of several units."""
    return len({value.dtype for value in values}) > 1


# ---- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coded:
    """A dictionary or categorical column: row r is ``values[codes[r]]``.

    `values` is an array of NumPy or Arrow.
    """

    values: Any
    codes: np.ndarray

    def decoded(self, name: str) -> np.ndarray:
        """Return the values of the rows."""
        return unpacked(self.values, name)[self.codes]


def as_column(values: Any, name: str) -> Any:
    """Return a column of numbers, dates or objects as a NumPy or CuPy array.

    Raises
    ------
    InvalidBatch
        A value is missing. NaN and None in arrays of NumPy are left to the caller.
    """
    if type(values) is np.ndarray or type(values) is list:
        return as_array(as_objects(values))
    column = plain(values, name)
    return column.decoded(name) if isinstance(column, Coded) else unpacked(column, name)


def as_numbers(values: Any, name: str, advice: str = "") -> Any:
    """Return numbers from users as an array of NumPy or CuPy, of any shape; arrays of bools stay such.

    Raises `InvalidOption` with the `advice` for the first value that is missing or no number, such as a string, a date,
    or a bool among numbers. NaN in arrays of NumPy is left to the caller.
    """
    if isinstance(values, type):  # such as a dtype in the place of another argument
        raise InvalidOption(f"{name} is {values!r}; numbers are needed{advice}")
    try:
        table = getattr(values, "ndim", 1) > 1  # several columns
        column = as_array(values, name) if table else plain(values, name, "every entry needs a value")
        array = column.decoded(name) if isinstance(column, Coded) else unpacked(column, name)
    except InvalidBatch as error:
        raise InvalidOption(str(error) if str(error).startswith(name) else f"{name}: {error}") from None
    if array.dtype.kind in "biuf":
        return array

    # Python objects may all be numbers, such as decimals.
    for place, value in np.ndenumerate(array):
        if array.dtype.kind != "O" or not _is_number(value):
            if not place:
                raise InvalidOption(f"{name} is {shown(value)}; numbers are needed{advice}")
            at = shown(values.index[place[0]]) if hasattr(values, "iloc") else ", ".join(map(str, place))
            raise InvalidOption(f"{name}[{at}] is {shown(value)}; it must be a number in the range of float64{advice}")
    return array.astype(np.float64)


def _is_number(value: Any) -> bool:
    kinds = (bool, np.bool_, np.timedelta64)  # NumPy counts durations among integers
    if not isinstance(value, Real | Decimal) or isinstance(value, kinds) or is_missing(value):
        return False
    try:
        float(value)
    except OverflowError:  # an integer or a fraction of hundreds of digits
        return False
    return True


def unpacked(column: Any, name: str) -> Any:
    """Return Arrow's arrays and `Texts` as NumPy arrays; other arrays unchanged."""
    if isinstance(column, Texts):
        return np.asarray(column)
    if library_of(column) != "pyarrow":
        return column
    try:
        return column.to_numpy(zero_copy_only=False)
    except (arrow().ArrowException, ValueError, OverflowError) as error:
        raise InvalidBatch(f"{name}, of the type {column.type}, cannot be read: {error}") from None


def plain(values: Any, name: str, need: str = NEED) -> Any:
    """Return a column without missing values.

    The result is an array of NumPy, CuPy or Arrow (strings), `Texts` or `Coded`. Numbers of cuDF stay on the GPU. Dates
    with a time zone become UTC.
    """
    # Frames' columns, by their library.
    if isinstance(values, Texts):
        return values
    if hasattr(values, "collect_schema") or hasattr(values, "columns"):  # a lazy frame computes its columns
        kind = type(values).__name__
        if hasattr(values, "__dask_graph__"):  # Dask's Series have columns, too
            raise InvalidBatch(f"{name} is a {kind} of Dask; ingest takes it, and compute() reads it")
        raise InvalidBatch(f"{name} is a {kind}, a table; one of its columns is needed, as table['id']")
    if library_of(values) == "cudf":
        values = of_cudf(values)
    if hasattr(values, "isna") and hasattr(values, "dtype"):
        return _of_pandas(values, name, need)
    if library_of(values) == "polars" and getattr(values.dtype, "is_object", bool)():
        raise InvalidBatch(f"{name} has the type Object, which Arrow does not have; cast it")
    # Columns with Arrow's PyCapsule interface; anything else is an array or a sequence.
    values = of_capsule(values, name)
    if library_of(values) == "pyarrow":
        return _of_arrow(values, name, need)
    return as_array(as_objects(values), name)


def of_capsule(values: Any, name: str) -> Any:
    """Return a column with Arrow's PyCapsule interface as an array of Arrow; other values unchanged."""
    if hasattr(values, "type"):
        return values
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return arrow().chunked_array(values)
        return arrow().array(values) if hasattr(values, "__arrow_c_array__") else values
    except (arrow().ArrowException, OverflowError) as error:  # Arrow lacks the type or the value
        raise InvalidBatch(f"{name} cannot be read by Arrow: {error}") from None


def of_cudf(column: Any) -> Any:
    """Return numbers of cuDF as a CuPy array; other types, and columns with missing values, as an Arrow array."""
    return column.values if column.dtype.kind in "iuf" and not column.isna().any() else column.to_arrow()


def _of_pandas(values: Any, name: str, need: str) -> Any:
    if getattr(values, "nlevels", 1) > 1:
        raise InvalidBatch(f"{name} is a {type(values).__name__} of {values.nlevels} levels; a key is one value")
    refuse_missing(np.asarray(values.isna(), bool), name, need)
    inner = getattr(values, "cat", values)
    if hasattr(inner, "categories"):
        return Coded(plain(inner.categories, name, need), np.asarray(inner.codes, np.int64))
    if str(values.dtype).startswith(("str", "large_string")):
        return _joined(arrow().array(values, type=arrow().large_string()))
    if getattr(values.dtype, "tz", None) is not None:
        values = getattr(values, "dt", values).tz_convert(None)
    if hasattr(values.dtype, "pyarrow_dtype"):
        return _of_arrow(arrow().chunked_array(arrow().array(values)), name, need)
    return values.to_numpy(dtype=getattr(values.dtype, "numpy_dtype", None))


def _joined(array: Any) -> Any:
    """Return a chunked array of Arrow as one array.

    Arrow cannot join strings of 2 GiB, unless their offsets have 64 bits, nor some empty chunks of other libraries.
    """
    if not hasattr(array, "chunks"):
        return array
    pa, chunks = arrow(), [chunk for chunk in array.chunks if len(chunk)]
    if len(chunks) < 2:
        return chunks[0] if chunks else pa.array([], array.type)
    if pa.types.is_string(array.type):
        chunks = [chunk.cast(pa.large_string()) for chunk in chunks]
    return pa.concat_arrays(chunks)


def _of_arrow(values: Any, name: str, need: str) -> Any:
    if not hasattr(values, "null_count"):  # a scalar
        return as_array(values.as_py() if hasattr(values, "as_py") else values, name)
    # Find the value of each row in a dictionary, in runs, or in one of the two within the other.
    pa, values, codes = arrow(), _joined(values), None
    while True:
        if values.null_count:
            missing = values.is_null().to_numpy(zero_copy_only=False)
            refuse_missing(missing if codes is None else missing[codes], name, need)
            assert codes is not None, "values that no row has"
            values, codes = _present(values), (np.cumsum(~missing) - 1)[codes]
        if pa.types.is_dictionary(values.type):
            places, values = values.indices.to_numpy(zero_copy_only=False).astype(np.int64), values.dictionary
        elif pa.types.is_run_end_encoded(values.type):
            rows = np.arange(values.offset, values.offset + len(values))
            places, values = np.searchsorted(values.run_ends.to_numpy(), rows, "right"), values.values
        else:
            break
        codes = places if codes is None else places[codes]
    if codes is not None:
        return Coded(values, codes)
    # Strings stay in Arrow; other types become NumPy's.
    if str(values.type) in _TEXT:
        return values
    try:
        return values.to_numpy(zero_copy_only=False)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidBatch(f"{name}, of the type {values.type}, cannot be read: {error}") from None


def _present(array: Any) -> Any:
    """Return the values of an Arrow array that are not missing, which NumPy would make floats of integers."""
    pa = arrow()
    return (array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array).drop_null()
