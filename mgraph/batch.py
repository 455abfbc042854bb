"""Edge batches: the arrays of a user's insertions and deletions, checked once, here, and nowhere else in mgraph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mgraph.columns import KINDS, as_array, as_keys, not_a_list
from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex
from mgraph.times import as_times

__all__ = [
    "COLUMNS",
    "COUNTS",
    "FILES",
    "MAX_VERTICES",
    "TOLD",
    "EdgeBatch",
    "as_array",
    "as_batch",
    "as_columns",
    "as_ids",
    "as_weights",
    "check_columns",
    "check_ids",
    "collected",
    "default_columns",
    "is_lazy",
    "name_columns",
]

MAX_VERTICES = 2**32 - 1  #: ids are uint32; the largest value means "no vertex"
COLUMNS = ("src", "dst", "weight", "op", "time")  #: the columns of a batch, in order
ENDS = ("source", "target")  #: what the first two may be called, too, as in the tables of `insert` and `to_pandas`
COUNTS = ("inserted", "updated", "deleted", "missing")  #: the outcomes of a batch's operations, each counted
TOLD = (*COUNTS, "late", "expired")  #: the counts in a batch's report, the last two of graphs with a window
FILES = (".npz", ".parquet", ".pq")  #: extensions of the files that workers read


_ID = np.dtype(np.uint32)


def _first(mask: Any) -> int:
    return int(mask.argmax())


@cache
def _unsigned(dtype: np.dtype) -> tuple[np.dtype, int]:
    """An integer dtype as an unsigned one, and the least number that is no id there: too large, or negative before."""
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    return np.dtype(dtype.str.replace("i", "u")), min(MAX_VERTICES, 1 << bits)


def as_ids(values: Any, name: str) -> Any:
    """`values` as a one-dimensional uint32 array of vertex ids.

    Raises
    ------
    InvalidBatch
        `values` is not one-dimensional, or has an entry that is not an integer (fractions, NaN), is negative, or is
        `MAX_VERTICES` or more.

    Notes
    -----
    O(n). Arrays of a signed or wider dtype are scanned once; for an array on a GPU, reading the largest number
    synchronises. Unsigned arrays of at most 32 bits are not scanned.
    """
    if type(values) is np.ndarray and values.dtype is _ID and values.ndim == 1:
        return values
    if type(values) is list and len(values) == 1 and type(values[0]) is int and 0 <= values[0] < MAX_VERTICES:
        return np.array(values, _ID)  # in a sixth of the time, which counts for one edge
    array = as_array(values)
    if array.ndim != 1:
        raise not_a_list(values, array.ndim, name, "ids")
    if array.size == 0:
        return array.astype(np.uint32)
    if array.dtype.kind == "f":
        bad = array != array.round()  # NaN differs from itself
        if bad.any():
            at = _first(bad)
            raise InvalidBatch(f"{name}[{at}] is {float(array[at])}; vertex ids are whole numbers")
    if array.dtype.kind not in "iu":
        hint = '; a graph with keys="string" takes strings' if array.dtype.kind in "OUT" else ""
        for at, value in enumerate(array if array.dtype.kind == "O" else []):
            if isinstance(value, int) and not 0 <= value < MAX_VERTICES:  # of more bits than an integer dtype has
                raise InvalidBatch(f"{name}[{at}] is {value}; vertex ids run from 0 to {MAX_VERTICES - 1}")
            if value is None:
                raise InvalidBatch(f"{name}[{at}] is None; vertex ids are whole numbers")
        raise InvalidBatch(f"{name} has dtype {array.dtype}; vertex ids are integers up to {MAX_VERTICES - 1}{hint}")
    if array.dtype.kind == "i" or array.dtype.itemsize > 4:
        unsigned, limit = _unsigned(array.dtype)  # as which negative numbers are the largest
        if array.view(unsigned).max() >= limit:
            negative = array < 0
            at = _first(negative) if negative.any() else _first(array >= MAX_VERTICES)
            raise InvalidBatch(f"{name}[{at}] is {int(array[at])}; vertex ids run from 0 to {MAX_VERTICES - 1}")
    return array.astype(np.uint32, copy=False)


def check_ids(ids: Any, n_vertices: int, name: str) -> None:
    """Raise `UnknownVertex` unless every id is below `n_vertices`. O(n); for ids on a GPU, one synchronising read."""
    if ids.size and (ids.item() if ids.size == 1 else int(ids.max())) >= n_vertices:  # the largest of one takes no scan
        at = _first(ids >= n_vertices)
        raise UnknownVertex.past(f"{name}[{at}]", int(ids[at]), n_vertices)


def as_weights(values: Any) -> Any:
    """`values` as float32 weights; `InvalidBatch` for what is no number, or too large for float32."""
    array = as_array(values)
    if array.dtype.kind not in "fiu":
        missing = [at for at, value in enumerate(array) if value is None] if array.dtype.kind == "O" else []
        if missing and array.ndim == 1:
            raise InvalidBatch(f"weight[{missing[0]}] is None; weights are numbers, stored as float32")
        raise InvalidBatch(f"weight has dtype {array.dtype}; weights are numbers, stored as float32")
    with np.errstate(over="ignore"):
        kept = array.astype(np.float32, copy=False)
    bad = kept != kept
    if bad.any():
        raise InvalidBatch(f"weight[{_first(bad)}] is NaN; every edge needs a number")
    if kept is not array:
        bad = np.isinf(kept) & ~np.isinf(array)
        if bad.any():
            at, most = _first(bad), np.finfo(np.float32).max
            raise InvalidBatch(f"weight[{at}] is {float(array[at])}; weights are stored as float32, up to {most:.8g}")
    return kept


def _as_ops(values: Any) -> Any:
    if type(values) is int and values in (1, -1):
        return None if values == 1 else -1
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
        Vertex ids, 0 or more: a NumPy or CuPy array, a sequence, or any object with an array interface or DLPack.
        Stored as uint32. Arrays on a GPU stay there.
    weight : array-like of numbers, shape (n,), optional
        Edge weights, stored as float32. Ignored for deletions. Inserting an edge that exists updates its weight.
    op : array-like of +1 and -1, shape (n,), or one of them, optional
        +1 inserts, -1 deletes. A single number is the operation of all edges; without `op` all are inserted. If an
        edge occurs more than once, its last operation counts. Stored as int8[n]; as -1 if a single -1 was given, and
        as None if all are inserted.
    keys : "int64" | "string", optional
        What `src` and `dst` are in a graph with keys: integers of 64 bits, also negative ones, or strings. Then they
        may also be columns of pandas, Polars or Arrow, categorical and dictionary columns among them. They are stored
        as int64, or as UTF-8.
    time : array-like of integers or datetime64, shape (n,), or one of them, optional
        When each edge was made, in a graph with `times`; one time is that of all edges. Ignored for deletions. If an
        edge occurs more than once, its last time counts. Stored as int64[n], or as datetime64[n] in the unit given.

    Raises
    ------
    InvalidBatch
        A value is invalid, or the arrays differ in length. The message names the first bad value and the limit.

    Notes
    -----
    O(n). Arrays that already have the stored dtype are not copied: do not change them afterwards.

    Examples
    --------
    >>> EdgeBatch([0, 1], [1, 2])
    EdgeBatch(2 edges)
    """

    src: Any
    dst: Any
    weight: Any
    op: Any
    time: Any
    keys: str | None

    def __init__(
        self, src: Any, dst: Any, weight: Any = None, op: Any = None, keys: str | None = None, time: Any = None
    ) -> None:
        if keys is not None and keys not in KINDS:
            raise InvalidOption(f'keys {keys!r} is none of "int64", "string" and None')
        if keys is None:
            src, dst = as_ids(src, "src"), as_ids(dst, "dst")
        else:
            src, dst = as_keys(src, keys, "src"), as_keys(dst, keys, "dst")
        if weight is not None:
            weight = as_weights(weight)
        if op is not None:
            op = _as_ops(op)
        if time is not None:
            time = as_times(time, len(src))
        shape = src.shape
        for name, column in ("dst", dst), ("weight", weight), ("op", op), ("time", time):
            if not (column is None or type(column) is int) and column.shape != shape:
                raise InvalidBatch(
                    f"{name} has shape {column.shape} and src has shape {shape}; both need one entry for each edge"
                )
        columns = self.__dict__
        columns["src"], columns["dst"], columns["weight"] = src, dst, weight
        columns["op"], columns["time"], columns["keys"] = op, time, keys

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in COLUMNS[2:] if getattr(self, name) is not None)
        return f"EdgeBatch({len(self)} edges{extra})"

    def __getitem__(self, part: slice) -> EdgeBatch:
        """A batch of the edges in the slice `part`, as views and without checking them again. O(1)."""
        if not isinstance(part, slice):
            raise TypeError(f"a batch takes slices, not {type(part).__name__}; for one edge, use batch[i : i + 1]")
        columns = {name: getattr(self, name) for name in COLUMNS}
        cut = {name: c if c is None or isinstance(c, int) else c[part] for name, c in columns.items()}
        return EdgeBatch.checked(**cut, keys=self.keys)

    @classmethod
    def checked(cls, src: Any, dst: Any, weight: Any, op: Any, time: Any, keys: str | None = None) -> EdgeBatch:
        """A batch of columns that are as they are stored."""
        batch = object.__new__(cls)
        vars(batch).update(src=src, dst=dst, weight=weight, op=op, time=time, keys=keys)
        return batch


def check_columns(columns: Any) -> dict[str, str] | None:
    """`columns` in the order of `COLUMNS`, or None; `InvalidOption` unless it maps src and dst and nothing unknown."""
    if columns is None:
        return None
    if not isinstance(columns, Mapping) or not {"src", "dst"} <= set(columns) <= set(COLUMNS):
        raise InvalidOption(
            f"columns is {columns!r}; it maps src and dst, and optionally weight, op and time, to names of columns"
        )
    return {name: columns[name] for name in COLUMNS if name in columns}


def default_columns(there: Iterable[Any]) -> dict[str, str]:
    """The names of the columns src, dst, weight, op and time among these, where the user gives none.

    The ends are src and dst, or source and target where there is neither of the first two.
    """
    there = list(there)
    tables = "src" not in there and "dst" not in there and any(name in there for name in ENDS)
    return dict(zip(COLUMNS, (*(ENDS if tables else COLUMNS[:2]), *COLUMNS[2:]), strict=True))


def name_columns(there: Iterable[Any], columns: Mapping[str, str] | None, what: str) -> dict[str, Any]:
    """The names of the columns that hold src, dst, weight, op and time, by these keys.

    Parameters
    ----------
    there : iterable of str
        The columns that exist.
    columns : mapping of str to str, optional
        The names as the user gave them; without it columns have the names of `default_columns`.
    what : str
        What has the columns, for the message.

    Raises
    ------
    InvalidBatch
        A column is missing; or `columns` is None and there are others than these five.
    """
    there = list(there)
    names = default_columns(there) if columns is None else dict(columns)
    named = {name: column for name, column in names.items() if columns is not None or column in there}
    missing = [column for column in named.values() if column not in there]
    missing += [names.get(name, name) for name in COLUMNS[:2] if name not in named]
    unknown = [] if columns is not None else [column for column in there if column not in names.values()]
    if missing or unknown:
        found = (missing, "missing"), (unknown, "unknown")
        wrong = [f"{', '.join(map(repr, of))} {'is' if len(of) == 1 else 'are'} {how}" for of, how in found if of]
        raise InvalidBatch(
            f"{what} has the columns {', '.join(map(repr, there))}: {' and '.join(wrong)}; a batch has src and dst, or "
            'source and target, and optionally weight, op and time; name other columns with columns={"src": ..., '
            '"dst": ...}'
        )
    return named


def is_lazy(part: Any) -> bool:
    """Whether a part of a source is a lazy frame of Polars, whose attributes would be computed."""
    return hasattr(type(part), "collect_schema") and hasattr(type(part), "collect")


def collected(part: Any, columns: Mapping[str, str] | None) -> Any:
    """A part of a source; of a lazy frame its named columns, computed. Raises as `name_columns`."""
    if not is_lazy(part):
        return part
    named = name_columns(part.collect_schema().names(), columns, "a part, a LazyFrame,")
    return part.select(list(named.values())).collect()


def as_batch(part: Any, columns: Mapping[str, str] | None = None) -> EdgeBatch:
    """A part of a source as an `EdgeBatch`.

    Parameters
    ----------
    part
        An `EdgeBatch`; a mapping or data frame with columns, a lazy one of Polars too; or a list or tuple of 2 to 5
        arrays in the order of `COLUMNS`.
    columns : mapping of str to str, optional
        The names of the columns that hold src, dst, weight, op and time in a mapping or data frame; without it those of
        `default_columns`.

    Raises
    ------
    InvalidBatch
        `part` is none of these, has no src or dst, has unknown columns, or `EdgeBatch` rejects its columns.
    """
    if isinstance(part, EdgeBatch):
        if part.keys is not None:
            raise InvalidBatch(f"a part has {part.keys} keys, which only a graph with keys takes, from this process")
        return part
    return EdgeBatch(**{name: _values(column) for name, column in as_columns(part, columns).items()})


def as_columns(part: Any, columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The columns of a part of a source by `COLUMNS`, as the part has them; takes and raises what `as_batch` does."""
    part = collected(part, columns)
    if isinstance(part, EdgeBatch):
        return {name: getattr(part, name) for name in COLUMNS}
    if isinstance(part, Mapping) or hasattr(part, "columns"):
        there = part if isinstance(part, Mapping) else getattr(part, "column_names", part.columns)  # of Arrow
        named = name_columns(there, columns, f"a part, a {type(part).__name__},")
        return {name: part[column] for name, column in named.items()}
    if isinstance(part, tuple | list) and 2 <= len(part) <= len(COLUMNS):
        return dict(zip(COLUMNS, part, strict=False))
    raise InvalidBatch(
        f"a part has type {type(part).__name__}; it must be an EdgeBatch, a data frame or mapping with columns src and "
        "dst, or a tuple of 2 to 5 arrays: src, dst, weight, op, time"
    )


def _values(column: Any) -> Any:
    """The array of a data frame's column, on the device where it is."""
    return getattr(column, "values", column)
