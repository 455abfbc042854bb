"""Graphs from pandas, Arrow, Polars and cuDF, and back; and the edges in any such table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from mgraph.client.options import GraphOptions, keys_of
from mgraph.client.reports.progress import building
from mgraph.columns import as_array, as_objects
from mgraph.convert.build import Edges, build, columns_of
from mgraph.convert.columns import Column, check_alike, choose
from mgraph.errors import InvalidBatch

__all__ = [
    "arrow_edges",
    "columns_in",
    "from_arrow",
    "from_cudf",
    "from_pandas",
    "from_polars",
    "to_arrow",
    "to_pandas",
    "to_polars",
]

Names = Sequence[str | None]
Columns = list[tuple[str, Any]]


@building
def from_pandas(
    cls: Any,
    frame: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """A new graph of the rows of a pandas DataFrame, an edge a row; other columns are not read.

    Parameters
    ----------
    frame : pandas.DataFrame
    source, target : str
        The columns with each edge's ends: whole numbers of any integer dtype, or strings; also nullable, categorical or
        object.
    weight : str, optional
        The column with the weights. With it the graph is weighted.
    time : str, optional
        The column with the edges' times, integers or datetime64. With it the graph has `times` of its dtype.
    client : distributed.Client, optional
        The cluster that holds the graph; without it the graph is in this process.
    n_vertices : int, optional
        The number of vertices, whose ids are the ends. By default the graph has keys if the ends are strings or sparse
        numbers, as `DynamicGraph` says; else one vertex more than the largest id, and later batches may bring more.
    **options
        `directed`, `keys` and the other options of `DynamicGraph`.

    Returns
    -------
    DynamicGraph
        Of rows with the same ends the last one counts.

    Raises
    ------
    InvalidBatch
        A column is not there, or is there twice; a value is missing, no whole number or negative; or there are no rows
        and no `n_vertices`. The message names column, row and value. No graph was made.
    UnknownVertex
        An id is `n_vertices` or more. No graph was made.

    Examples
    --------
    >>> import pandas as pd
    >>> from mgraph import DynamicGraph
    >>> follows = pd.DataFrame({"from": [0, 1, 2], "to": [1, 2, 0]})
    >>> g = DynamicGraph.from_pandas(follows, source="from", target="to")
    >>> g.num_vertices, g.num_edges
    (3, 3)
    """
    if not hasattr(frame, "columns") or not hasattr(frame, "iloc"):
        raise InvalidBatch(f"from_pandas takes a pandas DataFrame, got {type(frame).__name__}")
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    edges = Edges.read(_frame_columns(frame, (source, target, weight, time)), keys, _pandas_column, time)
    return build(cls, edges, client, n_vertices, options)


def _frame_columns(frame: Any, wanted: Names) -> Columns:
    if hasattr(frame, "__dask_graph__"):
        raise InvalidBatch(f"a {type(frame).__name__} is Dask's; DynamicGraph.from_dask and ingest take it")
    return [(name, frame[name]) for name in choose(frame.columns, wanted, "the frame")]


def _pandas_column(name: str, column: Any) -> Column:
    missing = column.isna().to_numpy(dtype=bool)
    if missing.any():
        return Column(name, column.to_numpy(dtype=object), missing)
    if hasattr(column, "cat"):
        column = column.astype(column.cat.categories.dtype)
    return Column(name, column.to_numpy(dtype=getattr(column.dtype, "numpy_dtype", None)))


@building
def from_arrow(
    cls: Any,
    table: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """A new graph of the rows of an Arrow table, an edge a row; needs pyarrow.

    Parameters
    ----------
    table : pyarrow.Table, pyarrow.RecordBatch, or an object with Arrow's PyCapsule interface
        Such as a frame of Polars, or a result of DuckDB.
    source, target, weight, time, client, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    InvalidBatch, UnknownVertex
        As in `from_pandas`.
    """
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    return build(cls, arrow_edges(table, source, target, weight, keys, time), client, n_vertices, options)


def arrow_edges(
    table: Any, source: str, target: str, weight: str | None, keys: str | None, time: str | None = None
) -> Edges:
    """The edges in a table, or in anything with Arrow's PyCapsule interface; `keys` as in `Edges.read`."""
    return Edges.read(_arrow_columns(table, (source, target, weight, time)), keys, _arrow_column, time)


def _arrow_columns(table: Any, wanted: Names) -> Columns:
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
            raise InvalidBatch(f"from_arrow takes a table with Arrow's interface, got {type(table).__name__}")
        try:
            table = pa.table(table)
        except pa.ArrowException as error:
            raise InvalidBatch(f"the {type(table).__name__} cannot be made an Arrow table: {error}") from None
    return [(name, table.column(name)) for name in choose(table.column_names, wanted, "the table")]


def _arrow_column(name: str, column: Any) -> Column:
    import pyarrow as pa

    if pa.types.is_run_end_encoded(column.type):
        column = pa.chunked_array([pa.compute.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)
    if column.null_count:
        return Column(name, np.empty(len(column), object), column.is_null().to_numpy())
    if pa.types.is_dictionary(column.type):
        if column.type.value_type == pa.string_view():  # of Polars; Arrow cannot decode it, and no caller takes strings
            return Column(name, np.array(column.to_pylist(), object))
        column = column.cast(column.type.value_type)
    try:
        return Column(name, column.to_numpy())
    except pa.ArrowException as error:  # strings that are no UTF-8
        raise InvalidBatch(f"column {name!r}, of the type {column.type}, cannot be read: {error}") from None


@building
def from_polars(
    cls: Any,
    frame: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """A new graph of the rows of a Polars DataFrame or LazyFrame, an edge a row; needs Polars and pyarrow.

    Parameters
    ----------
    frame : polars.DataFrame or polars.LazyFrame
        A lazy frame is collected, only the named columns of it.
    source, target, weight, time, client, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    InvalidBatch, UnknownVertex
        As in `from_pandas`.
    """
    if not _is_of(frame, "polars") or not hasattr(frame, "lazy"):
        raise InvalidBatch(f"from_polars takes a polars DataFrame, got {type(frame).__name__}")
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    edges = Edges.read(_polars_columns(frame, (source, target, weight, time)), keys, _arrow_column, time)
    return build(cls, edges, client, n_vertices, options)


def _polars_columns(frame: Any, wanted: Names) -> Columns:
    there = frame.collect_schema()
    names = choose(there.names(), wanted, "the frame")
    for name in names:
        if there[name].is_object():
            raise InvalidBatch(f"column {name!r} has the type Object, which Arrow does not have; cast it")
    frame = frame.select(names)
    return _arrow_columns(frame.collect() if hasattr(frame, "collect") else frame, names)


@building
def from_cudf(
    cls: Any,
    frame: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """A new graph of the rows of a cuDF DataFrame, an edge a row; needs cuDF and CuPy.

    Columns of numbers stay on the GPU, where they are checked. A graph in this process on that GPU takes them there;
    otherwise they travel as an `insert` of CuPy arrays does. Strings go through host memory.

    Parameters
    ----------
    frame : cudf.DataFrame
    source, target, weight, time, client, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    InvalidBatch, UnknownVertex
        As in `from_pandas`.
    """
    if not _is_of(frame, "cudf") or not hasattr(frame, "columns"):
        raise InvalidBatch(f"from_cudf takes a cudf DataFrame, got {type(frame).__name__}")
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    edges = Edges.read(_cudf_columns(frame, (source, target, weight, time)), keys, _device_column, time)
    return build(cls, edges, client, n_vertices, options)


def _cudf_columns(frame: Any, wanted: Names) -> Columns:
    """Columns of numbers as CuPy arrays, others and those with missing values as Arrow's."""
    found = _frame_columns(frame, wanted)
    plain = {name: column.dtype.kind in "iuf" and not column.isna().any() for name, column in found}
    return [(name, column.values if plain[name] else column.to_arrow()) for name, column in found]


def _device_column(name: str, column: Any) -> Column:
    return Column(name, column) if hasattr(column, "__array_ufunc__") else _arrow_column(name, column)


# ---- any table -------------------------------------------------------------------------------------------------------


def columns_in(table: Any, wanted: Names) -> tuple[Columns, Callable[[str, Any], Column]]:
    """Columns of a frame of pandas, Polars or cuDF, of what has Arrow's interface, or of a mapping of arrays.

    Returns them with what reads ids and weights, as `Edges.read` takes both.

    Raises
    ------
    TypeError
        It is no table.
    InvalidBatch
        It has not exactly one column of each wanted name.
    """
    if _is_of(table, "cudf"):
        return _cudf_columns(table, wanted), _device_column
    if _is_of(table, "polars"):
        return _polars_columns(table, wanted), _arrow_column
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return _frame_columns(table, wanted), _pandas_column
    if isinstance(table, Mapping):
        columns = [(name, _loose(table[name])) for name in choose(table, wanted, "the mapping")]
        check_alike(columns)
        return columns, _loose_column
    if hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        return _arrow_columns(table, wanted), _arrow_column
    raise TypeError(
        "edges are arrays src and dst, a frame, a table with Arrow's interface, a mapping of arrays or an EdgeBatch, "
        f"got {type(table).__name__}"
    )


def _loose(values: Any) -> Any:
    """A column of a mapping: a series of pandas, an Arrow array, or any other array."""
    if _is_of(values, "pandas") and values.ndim == 1:
        import pandas as pd

        return pd.Series(values)
    if _is_of(values, "pyarrow") or _is_of(values, "polars"):
        import pyarrow as pa

        return pa.chunked_array(values) if not isinstance(values, pa.Array) else pa.chunked_array([values])
    return as_array(as_objects(values))


def _loose_column(name: str, column: Any) -> Column:
    read = _pandas_column if _is_of(column, "pandas") else _arrow_column if _is_of(column, "pyarrow") else Column
    return read(name, column)


def _is_of(value: Any, library: str) -> bool:
    return type(value).__module__.partition(".")[0] == library


# ---- back ------------------------------------------------------------------------------------------------------------


def to_pandas(
    graph: Any, source: str = "source", target: str = "target", weight: str = "weight", time: str = "time"
) -> Any:
    """The edges as a pandas DataFrame, a row an edge: int64 ids or keys, float32 weights and times if any.

    Rows of one source are together. An undirected edge comes once, with the smaller id as its source, or the key that
    came first. Times, in a graph that has them, are int64 or datetime64. O(n + m).

    Parameters
    ----------
    source, target, weight, time : str
        The names of the columns.

    Raises
    ------
    InvalidOption
        Two columns have the same name.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    import pandas as pd

    return pd.DataFrame(columns_of(graph, source, target, weight, time))


def to_arrow(
    graph: Any, source: str = "source", target: str = "target", weight: str = "weight", time: str = "time"
) -> Any:
    """The edges as a ``pyarrow.Table``, with the columns and the errors of `to_pandas`; needs pyarrow. O(n + m)."""
    import pyarrow as pa

    columns = columns_of(graph, source, target, weight, time)
    return pa.table({name: pa.array(c, pa.string()) if c.dtype == object else c for name, c in columns.items()})


def to_polars(
    graph: Any, source: str = "source", target: str = "target", weight: str = "weight", time: str = "time"
) -> Any:
    """The edges as a ``polars.DataFrame``, with the columns and the errors of `to_pandas`; needs Polars. O(n + m)."""
    import polars as pl

    columns = columns_of(graph, source, target, weight, time)
    return pl.DataFrame(columns, schema_overrides={name: pl.String for name, c in columns.items() if c.dtype == object})
