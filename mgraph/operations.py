"""`Operations`: updates and queries in one stream, validated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.batch import ALL, EdgeBatch, copied, part_of
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption
from mgraph.kernels import constants
from mgraph.tables.arrays import as_array, as_column, as_objects, not_a_list, shown
from mgraph.tables.ids import EXACT, GROW, as_ids, as_keys, check_ids
from mgraph.tables.ids import KINDS as KEYS
from mgraph.tables.names import Names
from mgraph.tables.weights import as_weights

__all__ = ["COLUMNS", "KINDS", "Operations", "as_part", "check_kinds", "check_vertices", "updates_of"]

_CODES = constants("kernels/operation_kinds.cuh")
KINDS = {  #: codes of the kinds, by name
    "insert": _CODES["op_insert"],
    "delete": _CODES["op_delete"],
    "has_edge": _CODES["ask_edge"],
    "weight": _CODES["ask_weight"],
    "degree": _CODES["ask_degree"],
    "neighbors": _CODES["ask_neighbors"],
    "predecessors": _CODES["ask_predecessors"],
}
MOST = 1 << 31  #: limit of operations in a stream: places are 32-bit numbers, two per undirected edge
COLUMNS = ("kind", "src", "dst", "weight")


@dataclass(frozen=True, init=False, eq=False)
class Operations:
    """Updates and queries of a graph, in stream order.

    Parameters
    ----------
    kind : array-like of strings or of codes, shape (n,)
        "insert", "delete", "has_edge", "weight", "degree", "neighbors" or "predecessors"; or `Operations.INSERT` and so
        on, whole numbers from 0 to 6 in this order. Stored as int8.
    src, dst : array-like of integers, shape (n,)
        Vertex ids as in `EdgeBatch`. "has_edge" and "weight" ask about the edge (src, dst). "degree", "neighbors" and
        "predecessors" ask about the vertex in `src`; their `dst` is ignored and not checked, and stored as 0.
    weight : array-like of numbers, shape (n,), or one of them, optional
        The weights of inserted edges, or a single one of all, stored as float32. Those of other operations are
        ignored, not checked, and stored as 0.
    keys : "int64" | "string", optional
        The kind of `src` and `dst` in a graph with keys, as in `EdgeBatch`. An ignored `dst` is stored as 0 or as an
        empty string.

    Raises
    ------
    InvalidOption
        `keys` is no kind of keys.
    InvalidBatch
        A kind does not exist, a value is invalid, or the arrays differ in length. The message names the place in the
        stream and the value.

    Notes
    -----
    O(n). Arrays on a GPU stay there. Arrays of the stored dtype without ignored entries are not copied: do not change
    them afterwards.

    Examples
    --------
    >>> Operations(["insert", "degree"], [0, 0], [1, 0])
    Operations(2 operations, 1 update)
    """

    INSERT: ClassVar[int] = KINDS["insert"]
    DELETE: ClassVar[int] = KINDS["delete"]
    HAS_EDGE: ClassVar[int] = KINDS["has_edge"]
    WEIGHT: ClassVar[int] = KINDS["weight"]
    DEGREE: ClassVar[int] = KINDS["degree"]
    NEIGHBORS: ClassVar[int] = KINDS["neighbors"]
    PREDECESSORS: ClassVar[int] = KINDS["predecessors"]

    kind: Any
    src: Any
    dst: Any
    weight: Any
    keys: str | None
    counts: dict[str, int]  #: the number of operations of each kind

    def __init__(self, kind: Any, src: Any, dst: Any, weight: Any = None, *, keys: str | None = None) -> None:
        if not (keys is None or (isinstance(keys, str) and keys in KEYS)):
            raise InvalidOption(f'keys {keys!r} is none of "int64", "string" and None')
        # Count the operations of each kind.
        columns = {"kind": _as_kinds(kind)}
        kinds = columns["kind"]
        counts = {name: int((kinds == code).sum()) for name, code in KINDS.items()}
        rows = counts["degree"] + counts["neighbors"] + counts["predecessors"]

        # Check ends and weights, except where the kind ignores them.
        columns["src"] = _as_ends(src, "src", keys, kinds, None)
        columns["dst"] = _as_ends(dst, "dst", keys, kinds, kinds < self.DEGREE if rows else None)
        columns["weight"] = None
        if weight is not None:
            column_values, ignored = _column(weight, "weight"), counts["insert"] < len(kinds)
            if column_values.ndim == 0:  # a single weight of all insertions
                column_values = column_values.reshape(1).repeat(len(kinds))
            used = kinds == self.INSERT if ignored else None
            columns["weight"] = as_weights(_masked(_alike(column_values, "weight", kinds), used), len(kinds))

        # The class is frozen, so set its fields by `object`.
        for name, column in {**columns, "keys": keys, "counts": counts}.items():
            object.__setattr__(self, name, column)

    @classmethod
    def checked(cls, kind: Any, src: Any, dst: Any, weight: Any, counts: dict[str, int]) -> Operations:
        """Return operations by ids, from columns in their stored dtypes, without a check."""
        operations = object.__new__(cls)
        columns = {"kind": kind, "src": src, "dst": dst, "weight": weight, "keys": None, "counts": counts}
        for name, column in columns.items():
            object.__setattr__(operations, name, column)
        return operations

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        n = self.n_updates
        extra = ", weight" if self.weight is not None else ""
        return f"Operations({len(self)} operations, {n} update{'' if n == 1 else 's'}{extra})"

    @property
    def n_updates(self) -> int:
        """The number of insertions and deletions."""
        return self.counts["insert"] + self.counts["delete"]

    @property
    def n_rows(self) -> int:
        """The number of queries for rows."""
        return self.counts["neighbors"] + self.counts["predecessors"]

    def first(self, *kinds: str) -> int:
        """Return the position of the first operation of any of these kinds."""
        places = (int((self.kind == KINDS[name]).argmax()) for name in kinds if self.counts[name])
        return min(places)

    def updates(self) -> EdgeBatch:
        """Return only the insertions and deletions, in stream order."""
        return updates_of(self.kind, self.src, self.dst, self.weight, keys=self.keys)


def updates_of(kind: Any, src: Any, dst: Any, weight: Any = None, *, keys: str | None = None) -> EdgeBatch:
    """Return the insertions and deletions among the columns of checked operations."""
    mine = kind <= KINDS["delete"]
    # Kinds insert 0 and delete 1 are the ops +1 and -1.
    op = 1 - 2 * kind[mine]
    return EdgeBatch(src[mine], dst[mine], None if weight is None else weight[mine], op.astype(np.int8), keys)


def as_part(part: Any, names: Names = ALL, *, own: bool = False) -> EdgeBatch | Operations:
    """Convert a part of a source to a batch, or return operations. With `own` the columns have memory of their own."""
    if isinstance(part, Operations):
        batch: EdgeBatch | Operations = copied(part) if own else part
    else:
        batch = part_of(part, names, own=own)
    if batch.keys is not None:
        raise InvalidBatch(f"a part has {batch.keys} keys, which only a graph with keys takes, from this process")
    return batch


def check_kinds(
    operations: Operations, weighted: bool, reverse: bool, combine: str = "last", times: str | None = None
) -> None:
    """Raise `InvalidBatch` or `InvalidOption` unless a graph with these options supports all operations.

    Raises `CapacityError` for too many operations. The message names the first position and the value.
    """
    counts = operations.counts
    if len(operations) >= MOST:
        raise CapacityError(f"{len(operations)} operations; a stream has fewer than {MOST}")
    # Insertions: weights need a weighted graph, and times cannot be given.
    if operations.weight is not None and not weighted:
        at = operations.first("insert") if counts["insert"] else 0
        what = f"weight[{at}] is {float(operations.weight[at])}" if counts["insert"] else "there are weights"
        raise InvalidBatch(f"{what} and the graph is unweighted; create it with weighted=True")
    if counts["insert"] and times is not None:
        at = operations.first("insert")
        raise InvalidOption(f'kind[{at}] is "insert", operations have no times, and the graph has times; use update()')

    # Queries: weights, in-edges, and the weights of a stream that changes them.
    if counts["weight"] and not weighted:
        at = operations.first("weight")
        raise InvalidBatch(f'kind[{at}] is "weight" and the graph is unweighted; create it with weighted=True')
    if counts["predecessors"] and not reverse:
        at = operations.first("predecessors")
        raise InvalidOption(f'kind[{at}] is "predecessors", which needs in-edges; create the graph with reverse=True')
    asked = [name for name in ("weight", "neighbors", "predecessors") if counts[name]]
    if combine != "last" and asked and operations.n_updates:
        at = operations.first(*asked)
        raise InvalidOption(
            f"kind[{at}] asks for weights in a stream with updates, and the graph combines weights by {combine!r}; "
            "send the updates first and then the queries"
        )


def check_vertices(operations: Operations, n_vertices: int) -> None:
    """Raise `UnknownVertex` unless the graph has all vertices of the operations."""
    check_ids(operations.src, n_vertices, "src", GROW)
    check_ids(operations.dst, n_vertices, "dst", GROW)


def _column(values: Any, name: str) -> Any:
    """Return a column as an array: of Python objects if values are missing, since floats do not have all integers."""
    several = hasattr(values, "__dask_graph__") or getattr(values, "nlevels", 1) > 1  # refused by `as_column`
    if hasattr(values, "isna") and hasattr(values, "dtype") and not several:
        if np.asarray(values.isna()).any():
            return np.asarray(values if getattr(values.dtype, "kind", "") == "f" else values.astype(object))
    elif (count := getattr(values, "null_count", 0)) and (count() if callable(count) else count):  # Polars, Arrow
        return as_array(as_objects(values.to_list() if hasattr(values, "to_list") else values.to_pylist()), name)
    return as_column(values, name)


def _as_kinds(values: Any) -> Any:
    """Convert names or codes of kinds to int8[n]."""
    array = _column(values, "kind")
    if array.ndim != 1:
        raise not_a_list(values, array.ndim, "kind", "kinds")
    if array.size == 0:
        return array.astype(np.int8)
    # Codes, names, or objects with missing values among them.
    if array.dtype.kind in "iu":
        bad = (array < 0) | (array >= len(KINDS))
        codes = array
    elif array.dtype.kind in "UT":
        codes = np.full(len(array), -1, np.int8)
        for name, code in KINDS.items():
            codes[array == name] = code
        bad = codes < 0
    elif array.dtype.kind == "O":  # each alone, since missing values cannot be compared
        codes = np.array([_code(value) for value in array.tolist()], np.int8)
        bad = codes < 0
    else:
        raise InvalidBatch(f"kind has dtype {array.dtype}; kinds are names or codes of Operations")
    # Name the first bad value.
    if bad.any():
        at = int(bad.argmax())
        raise InvalidBatch(
            f"kind[{at}] is {shown(array[at])}; it is one of {', '.join(map(repr, KINDS))}, or their codes 0 to "
            f"{len(KINDS) - 1}"
        )
    return codes.astype(np.int8, copy=False)


def _code(value: Any) -> int:
    """Return the code of a kind's name or code; -1 for anything else."""
    if isinstance(value, str):
        return KINDS.get(value, -1)
    is_code = isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= value < len(KINDS)
    return int(value) if is_code else -1


def _alike(column: Any, name: str, kinds: Any) -> Any:
    """Return `column` after a check of its length against `kinds`."""
    if column.shape != kinds.shape:
        raise InvalidBatch(
            f"{name} has shape {column.shape} and kind has shape {kinds.shape}; both need one entry for each operation"
        )
    return column


def _as_ends(values: Any, name: str, keys: str | None, kinds: Any, used: Any) -> Any:
    """Convert vertices to ids or keys; unused ones are not checked."""
    # Ignored entries get a neutral value before the check.
    if keys == "string" and used is not None:  # NumPy's strings lose a NUL at the end
        ends = _alike(_column(values, name), name, kinds).astype(object)
        ends[~Device.to_host(used)] = ""
    elif keys == "string" or (keys is not None and used is None):
        return _alike(as_keys(values, keys, name), name, kinds)
    else:
        ends = _without_holes(_alike(_column(values, name), name, kinds), used)
    return as_ids(ends, name) if keys is None else as_keys(ends, keys, name)


def _without_holes(array: Any, used: Any) -> Any:
    """Zero unused vertices, and turn floats back into integers."""
    # A column of integers with missing values, as of a frame, has floats and NaN.
    masked = _masked(array, used)
    if used is None or array.dtype.kind != "f" or not bool(np.isnan(array[~used]).any()):
        return masked
    whole = bool(((masked == masked.round()) & (abs(masked) < EXACT)).all())
    return masked.astype(np.int64) if whole else masked


def _masked(array: Any, used: Any) -> Any:
    """Copy `array` with zeros where it is not `used`."""
    if used is None:
        return array
    # Of the zero other dtypes would make '0', a date or False.
    other = isinstance(array, np.ndarray) and array.dtype.kind not in "iuf"
    array = np.fromiter(array, object, len(array)) if other else array.copy()
    array[~used] = 0
    return as_array(as_objects(array.tolist())) if array.dtype.kind == "O" else array  # for missing values
