"""Edge batches: a user's insertions and deletions, validated once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.tables.files.columnar import columns_in
from mgraph.tables.files.opening import blamed
from mgraph.tables.ids import KINDS, MAX_VERTICES, as_ids, as_keys, check_ids, chosen_kind
from mgraph.tables.kinds import is_table, table_of
from mgraph.tables.names import COLUMNS, Names, label, warn_unused
from mgraph.tables.times import as_times
from mgraph.tables.weights import as_ops, as_weights

__all__ = [
    "COLUMNS", "COUNTS", "MAX_VERTICES", "TOLD", "EdgeBatch", "as_batch", "as_ids", "check_ids",
    "columns_of", "copied", "part_of", "share_of",
]  # fmt: skip

COUNTS = ("inserted", "updated", "deleted", "missing")  #: counted outcomes of a batch's operations
TOLD = (*COUNTS, "late", "expired")  #: the counts in a batch's report, the last two of graphs with a window
NO_LABELS: Mapping[str, str] = MappingProxyType({})
ALL = Names(quiet=("weight",))  #: the default: all columns of a batch are read, for a graph that may be unweighted


@dataclass(frozen=True, init=False, eq=False)
class EdgeBatch:
    """Edges to insert and delete, in stream order.

    Parameters
    ----------
    src, dst : array-like of integers, shape (n,)
        Vertex ids, 0 or more: a NumPy or CuPy array, a sequence, a column of pandas, Polars, cuDF or Arrow, or any
        object with an array interface or DLPack. Stored as uint32. Arrays on a GPU stay there.
    weight : array-like of numbers, shape (n,), or one of them, optional
        Edge weights, stored as float32; a single weight is that of all edges. Inserting an edge that exists updates its
        weight. Those of deletions are ignored, but none may be missing.
    op : array-like of +1 and -1, shape (n,), or one of them, optional
        +1 inserts, -1 deletes. A single number is the operation of all edges; without `op` all are inserted. If an
        edge occurs more than once, its last operation counts. Stored as int8[n]; as -1 if a single -1 was given, and
        as None if all are inserted.
    keys : "int64" | "string", optional
        The kind of `src` and `dst` in a graph with keys: signed integers of 64 bits, or strings, including categorical
        and dictionary columns. Stored as int64, or as UTF-8: a sequence of str, indexed and compared as an array of
        them, which ``numpy.asarray`` makes of it.
    time : array-like of integers, datetime64, dates or strings, shape (n,), or one of them, optional
        The time of each edge, in a graph with `times`; a single time is that of all edges. Those of deletions are
        ignored, but none may be missing. If an edge occurs more than once, its last time counts. Stored as int64[n],
        or as datetime64[n] in the given unit.
    labels : mapping of str to str, optional
        The names of the columns in messages; by default those of these arguments.

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
    weight: Any = None
    op: Any = None
    time: Any = None
    keys: str | None = None
    unused: ClassVar[tuple[str, ...]] = ()  #: ignored columns of the table that have names of batch columns

    rounded: ClassVar[str] = ""  #: the first weight that float32 changed, in words

    def __init__(
        self,
        src: Any,
        dst: Any,
        weight: Any = None,
        op: Any = None,
        keys: str | None = None,
        time: Any = None,
        *,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> None:
        if not (keys is None or (isinstance(keys, str) and keys in KINDS)):
            raise InvalidOption(f'keys {keys!r} is none of "int64", "string" and None')
        # Convert each column to its stored dtype.
        names = (labels.get("src", "src"), labels.get("dst", "dst")) if labels else ("src", "dst")
        if keys is None:
            src, dst = as_ids(src, names[0]), as_ids(dst, names[1])
        else:
            src, dst = as_keys(src, keys, names[0]), as_keys(dst, keys, names[1])
        # The class is frozen, so set the fields by its dict, but for those that are None.
        columns = self.__dict__
        columns["src"], columns["dst"] = src, dst
        if keys is not None:
            columns["keys"] = keys
        if weight is not None:
            columns["weight"] = as_weights(weight, len(src), labels.get("weight", "weight"), notes := list[str]())
            if notes:
                columns["rounded"] = notes[0]
        if op is not None:
            columns["op"] = as_ops(op, labels.get("op", "op"))
        if time is not None:
            columns["time"] = as_times(time, len(src), labels.get("time", "time"))
        # All columns have the length of `src`.
        if len(dst) != len(src) or not (weight is time is None and (op is None or type(op) is int)):
            for name in COLUMNS[1:]:
                column = getattr(self, name)
                if not (column is None or type(column) is int or column.shape == src.shape):
                    raise InvalidBatch(
                        f"{labels.get(name, name)} has shape {column.shape} and {names[0]} has shape {src.shape}; "
                        "both need one entry for each edge"
                    )

    @classmethod
    def of(
        cls, columns: Mapping[str, Any], keys: str | None, labels: Mapping[str, str], unused: Sequence[str] = ()
    ) -> Self:
        """Return a batch of users' columns. Messages name them by `labels`.

        With "auto" as `keys`, the ends determine whether they are keys. `unused` lists ignored columns
        of the table.
        """
        src, dst, weight, op, time = (columns.get(name) for name in COLUMNS)
        if keys == "auto":
            names = labels.get("src", "src"), labels.get("dst", "dst")
            keys = None if getattr(src, "shape", None) == (0,) else chosen_kind(src, dst, names)
        batch = cls(src, dst, weight, op, keys, time, labels=labels)
        if unused:
            batch.__dict__["unused"] = tuple(unused)
        return batch

    def __len__(self) -> int:
        return len(self.src)

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in COLUMNS[2:] if getattr(self, name) is not None)
        return f"EdgeBatch({len(self)} edges{extra})"

    def __getitem__(self, part: slice) -> EdgeBatch:
        """Return the edges in the slice `part`, as views. O(1)."""
        if not isinstance(part, slice):
            raise TypeError(f"a batch takes slices, not {type(part).__name__}; for one edge, use batch[i : i + 1]")
        columns = {name: getattr(self, name) for name in COLUMNS}
        cut = {name: c if c is None or isinstance(c, int) else c[part] for name, c in columns.items()}
        return EdgeBatch.checked(**cut, keys=self.keys)

    @classmethod
    def checked(cls, src: Any, dst: Any, weight: Any, op: Any, time: Any, keys: str | None = None) -> EdgeBatch:
        """Return a batch of columns in their stored dtypes, without a check."""
        batch = object.__new__(cls)
        vars(batch).update(src=src, dst=dst, weight=weight, op=op, time=time, keys=keys)
        return batch


def share_of(columns: Mapping[str, Any], n: int, rank: int, size: int) -> dict[str, Any]:
    """Return the contiguous share of `rank` in columns of length `n`, so that rank order is stream order."""
    part = slice(n * rank // size, n * (rank + 1) // size)
    return {name: c if c is None or isinstance(c, int) else c[part] for name, c in columns.items()}


# ---- parts of a source -----------------------------------------------------------------------------------------------


def columns_of(part: Any, names: Names, keys: str | None = None) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return a part's columns, their names in messages, and unused columns.

    Parameters
    ----------
    part
        A table of any kind, the path of a file with a table, or a list or tuple of 2 to 5 arrays in the order of
        `COLUMNS`.
    names : Names
    keys : str or None
        The kind of the graph's keys, by which ends in text files are read.

    Raises
    ------
    InvalidBatch, ReadError
        `part` is none of these, lacks a column, or cannot be read.
    """
    # A table, arrays in the order of `COLUMNS`, or a file.
    if is_table(part):
        table = table_of(part)
        matches, unused = names.find(table.names, table.what)
        columns = table.select([*matches.values()])
        return (
            {c: columns[name] for c, name in matches.items()},
            {c: label(name) for c, name in matches.items()},
            unused,
        )
    if isinstance(part, list) and part and all(isinstance(pair, tuple) and len(pair) == 2 for pair in part):
        raise InvalidBatch(
            f"a part is a list of pairs, as {part[0]!r:.200}; a part has columns: tuple(map(list, zip(*pairs))) makes "
            "the columns src and dst of pairs"
        )
    if isinstance(part, tuple | list) and 2 <= len(part) <= len(COLUMNS):
        return dict(zip(COLUMNS, part, strict=False)), {}, []
    if isinstance(part, str | os.PathLike):
        return columns_in(part, names, keys)
    kind = type(part).__name__
    if kind == "Operations":
        raise InvalidBatch("a part has type Operations; ingest takes these without keys, and execute with keys, too")
    raise InvalidBatch(
        f"a part has type {kind}; it must be an EdgeBatch, a table with the columns source and target, "
        "or a tuple of 2 to 5 arrays: src, dst, weight, op, time"
    )


def part_of(part: Any, names: Names = ALL, keys: str | None = None, *, own: bool = False) -> EdgeBatch:
    """Convert a part of a source to a batch.

    With `own`, the batch has memory of its own, since a generator may fill the same arrays again while the batch is in
    flight. Without, an `EdgeBatch` is returned as it is.

    Raises
    ------
    InvalidBatch, ReadError
        As `columns_of` and `EdgeBatch`.
    """
    if isinstance(part, EdgeBatch):
        return copied(part) if own else part
    columns, labels, unused = columns_of(part, names, keys)
    if isinstance(part, str | os.PathLike):
        with blamed(os.fspath(part)):
            return EdgeBatch.of(columns, keys, labels, unused)
    batch = EdgeBatch.of(columns, keys, labels, unused)
    if own:
        batch.__dict__.update((name, _owned(getattr(batch, name), given)) for name, given in columns.items())
    return batch


def copied(part: Any) -> Any:
    """Return a batch, or operations, with copies of its arrays."""
    batch = copy(part)
    vars(batch).update((name, column.copy()) for name, column in vars(part).items() if hasattr(column, "flags"))
    return batch


def _owned(column: Any, given: Any) -> Any:
    """Return a batch's column, as a copy if it may share the memory of the user's column `given`."""
    if not hasattr(column, "flags"):  # a number for all edges, or strings
        return column
    # A list, or an array of another dtype, was converted. Of other types NumPy and CuPy may have taken the memory.
    dtype = getattr(given, "dtype", None)
    converted = isinstance(given, list | tuple) or (isinstance(dtype, np.dtype) and dtype != column.dtype)
    fresh = converted and column is not given and column.flags.owndata
    return column if fresh else column.copy()


def as_batch(part: Any, names: Names = ALL, keys: str | None = None, *, own: bool = False) -> EdgeBatch:
    """Return a part of a source as a batch, with memory of its `own` as in `part_of`. Warns of unused columns."""
    batch = part_of(part, names, keys, own=own)
    if batch.unused:
        warn_unused(batch.unused)
    return batch
