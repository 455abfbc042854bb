"""Graphs from pandas and Arrow, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.client.options import keys_of
from mgraph.convert.build import Edges, build, columns_of
from mgraph.convert.columns import Column, choose
from mgraph.errors import InvalidBatch

__all__ = ["arrow_edges", "from_arrow", "from_pandas", "to_arrow", "to_pandas"]


def from_pandas(
    cls: Any,
    frame: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Any,
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
    names = choose(frame.columns, (source, target, weight), "the frame")
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    edges = Edges.read([(name, frame[name]) for name in names], keys, _pandas_column)
    return build(cls, edges, client, n_vertices, options)


def _pandas_column(name: str, column: Any) -> Column:
    missing = column.isna().to_numpy(dtype=bool)
    if missing.any():
        return Column(name, column.to_numpy(dtype=object), missing)
    if hasattr(column, "cat"):
        column = column.astype(column.cat.categories.dtype)
    return Column(name, column.to_numpy(dtype=getattr(column.dtype, "numpy_dtype", None)))


def from_arrow(
    cls: Any,
    table: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Any,
) -> Any:
    """A new graph of the rows of an Arrow table, an edge a row; needs pyarrow.

    Parameters
    ----------
    table : pyarrow.Table, pyarrow.RecordBatch, or an object with Arrow's PyCapsule interface
        Such as a frame of Polars, or a result of DuckDB.
    source, target, weight, client, n_vertices, **options
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
    return build(cls, arrow_edges(table, source, target, weight, keys), client, n_vertices, options)


def arrow_edges(table: Any, source: str, target: str, weight: str | None, keys: str | None) -> Edges:
    """The edges in a table, or in anything with Arrow's PyCapsule interface; `keys` as in `Edges.read`."""
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
            raise InvalidBatch(f"from_arrow takes a table with Arrow's interface, got {type(table).__name__}")
        table = pa.table(table)
    names = choose(table.column_names, (source, target, weight), "the table")
    return Edges.read([(name, table.column(name)) for name in names], keys, _arrow_column)


def _arrow_column(name: str, column: Any) -> Column:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        return Column(name, np.empty(len(column), object), column.is_null().to_numpy())
    return Column(name, column.to_numpy())


def to_pandas(graph: Any, source: str = "source", target: str = "target", weight: str = "weight") -> Any:
    """The edges as a pandas DataFrame, a row an edge: int64 ids or keys, and float32 weights in a weighted graph.

    Rows of one source are together. An undirected edge comes once, with the smaller id as its source, or the key that
    came first. O(n + m).

    Parameters
    ----------
    source, target, weight : str
        The names of the columns.
    """
    import pandas as pd

    return pd.DataFrame(columns_of(graph, source, target, weight))


def to_arrow(graph: Any, source: str = "source", target: str = "target", weight: str = "weight") -> Any:
    """The edges as a ``pyarrow.Table``, with the columns of `to_pandas`. O(n + m)."""
    import pyarrow as pa

    return pa.table(columns_of(graph, source, target, weight))
