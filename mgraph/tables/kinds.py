"""Tables of every kind: frames of pandas, Polars and cuDF, Arrow tables, mappings, and open files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from mgraph.errors import InvalidBatch
from mgraph.facade import needed, type_name
from mgraph.tables.arrays import as_array, as_objects, library_of, of_capsule, of_cudf
from mgraph.tables.names import label

__all__ = ["Table", "is_dasks", "is_table", "table_of"]


@dataclass(frozen=True)
class Table:
    """Table of any kind.

    Parameters
    ----------
    what : str
        Its name in messages.
    names : list
        The names of its columns.
    select : callable
        ``select(names)`` returns the columns by name, as the table has them. A lazy table is computed then.
    """

    what: str
    names: list[Any]
    select: Callable[[Sequence[Any]], dict[Any, Any]]


def is_dasks(value: Any) -> bool:
    """Return True if a value, or any of its columns or parts, is from Dask."""
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(
        hasattr(part, "__dask_graph__") or type(part).__module__.startswith("distributed.") for part in (value, *inside)
    )


def is_table(value: Any) -> bool:
    """Return True if `table_of` takes the value."""
    return (
        isinstance(value, Mapping | Table)
        or hasattr(value, "collect_schema")  # a lazy frame would compute its columns
        or hasattr(value, "columns")
        or hasattr(value, "__arrow_c_stream__")
        or hasattr(value, "__arrow_c_array__")
    )


def table_of(value: Any) -> Table:
    """Return a table of any kind as a `Table`.

    Columns on a GPU stay there, and a lazy frame is not computed yet.

    Raises
    ------
    TypeError
        It is no table.
    InvalidBatch
        It is Dask's, or Arrow cannot read it.
    """
    # Refuse Dask's collections before their attributes look like a frame's.
    if isinstance(value, Table):
        return value
    if hasattr(value, "__dask_graph__"):
        raise InvalidBatch(f"a {type(value).__name__} is Dask's; DynamicGraph.from_dask and ingest take it")
    # Frames and mappings select columns by name.
    if library_of(value) == "cudf":
        return Table("the frame", list(value.columns), lambda names: {name: of_cudf(value[name]) for name in names})
    if isinstance(value, Mapping):
        return Table("the mapping", list(value), lambda names: _alike({name: _loose(value, name) for name in names}))
    if library_of(value) == "polars" and hasattr(value, "collect_schema"):
        return Table("the frame", value.collect_schema().names(), lambda names: _of_polars(value, names))
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return Table("the frame", list(value.columns), lambda names: {name: value[name] for name in names})
    # Any other table comes through Arrow's PyCapsule interface.
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        table = _arrow_table(value)
        return Table("the table", table.column_names, lambda names: {name: table.column(name) for name in names})
    raise TypeError(
        "edges are arrays src and dst, pairs, a frame, a table with Arrow's interface, or a mapping of arrays, "
        f"got {type_name(value)}"
        + ("; read, stream and ingest take files" if isinstance(value, str | PathLike) else "")
    )


def _of_polars(frame: Any, names: Sequence[Any]) -> dict[Any, Any]:
    chosen = frame.select(list(names))
    chosen = chosen.collect() if hasattr(chosen, "collect") else chosen
    return {name: chosen[name] for name in names}


def _arrow_table(value: Any) -> Any:
    pa = needed("pyarrow", f"the {type(value).__name__}, an Arrow table,")
    if isinstance(value, pa.Table):
        return value
    try:
        return pa.table(value)
    except pa.ArrowException as error:
        raise InvalidBatch(f"the {type(value).__name__} cannot be made an Arrow table: {error}") from None


def _loose(columns: Mapping[Any, Any], name: Any) -> Any:
    """Return a column of a mapping: a library's column unchanged, anything else as an array."""
    values = columns[name]
    is_column = hasattr(values, "shape") and hasattr(values, "dtype")
    if is_column or hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return values if hasattr(values, "__len__") else of_capsule(values, label(name))
    return as_array(as_objects(values), label(name))


def _alike(columns: dict[Any, Any]) -> dict[Any, Any]:
    """Check that all columns are one-dimensional and equally long; return them."""
    first = next(iter(columns), None)
    rows = None
    for name, values in columns.items():
        shape = tuple(values.shape) if hasattr(values, "shape") else (len(values),)  # Arrow has no shape
        if len(shape) != 1:
            raise InvalidBatch(f"{label(name)} has shape {shape}; it must have 1 dimension, an entry an edge")
        rows = shape[0] if rows is None else rows
        if shape[0] != rows:
            raise InvalidBatch(f"{label(name)} has {shape[0]} rows and {label(first)} has {rows}")
    return columns
