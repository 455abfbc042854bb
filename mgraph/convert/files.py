"""Graphs from Parquet and CSV files, read in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from mgraph.client.options import GraphOptions, keys_of
from mgraph.client.reports.progress import building, stage
from mgraph.convert.build import build
from mgraph.convert.columns import choose
from mgraph.convert.frames import arrow_edges
from mgraph.convert.text import columns_in_text
from mgraph.errors import InvalidBatch, MgraphError, ReadError

__all__ = ["from_csv", "from_parquet", "reading"]


@building
def from_parquet(
    cls: Any,
    path: str | os.PathLike[str],
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """A new graph of the rows of a Parquet file, an edge a row, read in this process; needs pyarrow.

    Only the named columns are read. `DynamicGraph.ingest` has the workers read files.

    Parameters
    ----------
    path : path
    source, target, weight, time, client, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    ReadError
        The file cannot be read, or has bad values. The message names file, column, row and value. No graph was made.
    UnknownVertex
        An id is `n_vertices` or more. No graph was made.
    """
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    with reading(path) as file:
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(file) as opened:
            names = choose(opened.schema_arrow.names, (source, target, weight, time), "the file")
            edges = arrow_edges(opened.read(columns=names), source, target, weight, keys, time)
        return build(cls, edges, client, n_vertices, options)


@building
def from_csv(
    cls: Any,
    path: str | os.PathLike[str],
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    time: str | None = None,
    delimiter: str = ",",
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """A new graph of the rows of a CSV file, an edge a row, read in this process; needs pyarrow.

    Parameters
    ----------
    path : path
        Its first line names the columns. Files that end in .gz, .bz2, .zst or .lz4 are decompressed.
    delimiter : str
        The character between columns.
    source, target, weight, time, client, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    ReadError, UnknownVertex
        As in `from_parquet`.
    """
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    with reading(path) as file:
        table = columns_in_text(file, (source, target, weight, time), keys, delimiter)
        edges = arrow_edges(table, source, target, weight, keys, time)
        return build(cls, edges, client, n_vertices, options)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[str]:
    """The path as text, with ``~`` expanded; errors of reading and of values as `ReadError`, which names the file."""
    file = os.path.expanduser(os.fsdecode(path))
    stage(f"reading {os.path.basename(file)}")
    if os.path.isdir(file):
        raise ReadError(f"{file}: it is a folder; DynamicGraph.open and load take those of stores and of save")
    if not os.path.exists(file):
        raise ReadError(f"{file}: there is no such file on this machine")
    try:
        yield file
    except ImportError as error:
        raise ReadError(f"{file}: reading it needs {error.name}: pip install {error.name}") from None
    except (InvalidBatch, OSError, ReadError, ValueError) as error:  # pyarrow's errors are of the second and the last
        if isinstance(error, MgraphError) and not isinstance(error, InvalidBatch | ReadError):
            raise
        if isinstance(error, ReadError) and str(error).startswith(f"{file}: "):
            raise
        raise ReadError(f"{file}: {error}") from None
