"""Graphs from pandas, Arrow, Polars and cuDF, and back."""

from __future__ import annotations

from typing import Any, Unpack

from mgraph.client.options import GraphOptions
from mgraph.client.reports.progress import building
from mgraph.convert.build import UNITS, from_table, named_edges, names_of
from mgraph.errors import InvalidBatch
from mgraph.facade import needed, type_name
from mgraph.tables.arrays import library_of

__all__ = ["from_arrow", "from_cudf", "from_pandas", "from_polars", "to_arrow", "to_pandas", "to_polars"]


@building
def from_pandas(
    cls: Any,
    frame: Any,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from a pandas DataFrame: a row per edge. Ignores other columns.

    Parameters
    ----------
    frame : pandas.DataFrame
    source, target : str, optional
        The columns with each edge's ends: whole numbers of any dtype, or strings; also nullable, categorical or object.
        By default "source" and "target", or "src" and "dst".
    weight : str, optional
        The column with the weights. With it the graph is weighted. Without it, ``weighted=True`` reads a column
        "weight"; otherwise a warning says that the column is not used.
    time : str, optional
        The column with the edges' times: integers, dates, or strings that pandas understands. With it the graph has
        `times` of its dtype. Without it, `times` or a window reads a column "time".
    client : distributed.Client, optional
        The cluster for the graph; by default the graph is in this process.
    n_vertices : int, optional
        The number of vertices, whose ids are the ends. By default the graph has keys if the ends are strings or sparse
        numbers, by the rule of `DynamicGraph`; else one vertex more than the largest id, and later batches may bring
        more.
    **options
        `directed`, `keys` and the other options of `DynamicGraph`.

    Returns
    -------
    DynamicGraph
        Of rows with the same ends the last one counts.

    Raises
    ------
    InvalidBatch
        A column is missing, or comes twice; a value is missing, no whole number or negative; or the frame has no rows
        and `n_vertices` is not given. The message names column, row and value. No graph was created.
    UnknownVertex
        An id is `n_vertices` or more. No graph was created.

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
        more = "; reset_index() makes one of it" if type_name(frame) == "pandas.Series" else ""
        raise InvalidBatch(f"from_pandas takes a pandas DataFrame, got {type_name(frame)}{more}")
    return from_table(cls, frame, names_of(options, source, target, weight, time), client, n_vertices, options)


@building
def from_arrow(
    cls: Any,
    table: Any,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from an Arrow table: a row per edge. Needs pyarrow.

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
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise InvalidBatch(f"from_arrow takes a table with Arrow's interface, got {type_name(table)}")
    return from_table(cls, table, names_of(options, source, target, weight, time), client, n_vertices, options)


@building
def from_polars(
    cls: Any,
    frame: Any,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from a Polars DataFrame or LazyFrame: a row per edge. Needs Polars and pyarrow.

    Parameters
    ----------
    frame : polars.DataFrame or polars.LazyFrame
        A lazy frame is collected: the named columns only.
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
    if library_of(frame) != "polars" or not hasattr(frame, "lazy"):
        raise InvalidBatch(f"from_polars takes a polars DataFrame, got {type_name(frame)}")
    return from_table(cls, frame, names_of(options, source, target, weight, time), client, n_vertices, options)


@building
def from_cudf(
    cls: Any,
    frame: Any,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from a cuDF DataFrame: a row per edge. Needs cuDF and CuPy.

    Columns of numbers stay on the GPU, where they are checked. A graph in this process on that GPU takes them there;
    otherwise they travel like CuPy arrays in an `insert`. Strings go through host memory.

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
    if library_of(frame) != "cudf" or not hasattr(frame, "columns"):
        raise InvalidBatch(f"from_cudf takes a cudf DataFrame, got {type_name(frame)}")
    return from_table(cls, frame, names_of(options, source, target, weight, time), client, n_vertices, options)


# ---- back ------------------------------------------------------------------------------------------------------------


def to_pandas(
    graph: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    time: str | None = "time",
) -> Any:
    """Return the edges as a pandas DataFrame, a row per edge.

    Ends are int64 ids or keys, weights float32.

    Rows of one source are together. An undirected edge comes once, with the smaller id as its source, or with the key
    that was added first. Times, in a graph that has them, are int64 or datetime64. O(n + m).

    Parameters
    ----------
    source, target, weight, time : str
        The names of the columns. None leaves out the weights, or the times.

    Raises
    ------
    InvalidOption
        Two columns have the same name, or a name is no name.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    pd = needed("pandas", "to_pandas()")
    return pd.DataFrame(named_edges(graph, source, target, weight, time))


def to_arrow(
    graph: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    time: str | None = "time",
) -> Any:
    """Return the edges as a ``pyarrow.Table``, with the columns and errors of `to_pandas`.

    O(n + m).
    """
    pa = needed("pyarrow", "to_arrow()")
    columns = named_edges(graph, source, target, weight, time, ("D", *UNITS), texts=True)
    return pa.table({name: pa.array(c, pa.string()) if c.dtype == object else c for name, c in columns.items()})


def to_polars(
    graph: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    time: str | None = "time",
) -> Any:
    """Return the edges as a ``polars.DataFrame``, with the columns and errors of `to_pandas`.

    O(n + m).
    """
    pl = needed("polars", "to_polars()")
    columns = named_edges(graph, source, target, weight, time, ("D", *UNITS[1:]), texts=True)
    return pl.DataFrame(columns, schema_overrides={name: pl.String for name, c in columns.items() if c.dtype == object})
