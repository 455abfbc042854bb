"""Graphs from Parquet and CSV files, read in this process."""

from __future__ import annotations

import os
from typing import Any, Unpack

from mgraph.client.options import GraphOptions, keys_of
from mgraph.client.reports.progress import building, stage
from mgraph.convert.build import from_columns, names_of
from mgraph.tables.files.columnar import open_table
from mgraph.tables.files.opening import blamed, check_path
from mgraph.tables.names import Names, label, warn_unused

__all__ = ["from_csv", "from_parquet", "from_table_file"]


@building
def from_parquet(
    cls: Any,
    path: str | os.PathLike[str],
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from a Parquet file: a row per edge. Needs pyarrow.

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
        The file cannot be read, or has bad values. The message names file, column, row and value. No graph was created.
    UnknownVertex
        An id is `n_vertices` or more. No graph was created.
    """
    names = names_of(options, source, target, weight, time)
    return from_table_file(cls, path, "parquet", None, names, client, n_vertices, options)


@building
def from_csv(
    cls: Any,
    path: str | os.PathLike[str],
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    *,
    time: str | None = None,
    delimiter: str = ",",
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from a CSV file: a row per edge. Needs pyarrow.

    Parameters
    ----------
    path : path
        Its first line names the columns. Files in gzip, bzip2, xz, Zstandard and LZ4 are decompressed.
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
    names = names_of(options, source, target, weight, time)
    return from_table_file(cls, path, "csv", delimiter, names, client, n_vertices, options)


def from_table_file(
    cls: Any,
    path: Any,
    kind: str,
    delimiter: str | None,
    names: Names,
    client: Any,
    n_vertices: int | None,
    options: Any,
) -> Any:
    """Create a graph from a table file of the format `kind`."""
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    # Read the named columns only.
    file_path = check_path(path)
    stage(f"reading {os.path.basename(file_path)}")
    with open_table(path, kind, delimiter) as file:
        sources, unused = names.find(file.names, "the file")
        read = file.read([*sources.values()], keys)
        columns = {column: read[name] for column, name in sources.items()}
    # Errors name the columns of the file.
    warn_unused(unused, "the file")
    labels = {column: label(name) for column, name in sources.items()}
    with blamed(file_path):  # bad values are the file's
        return from_columns(cls, columns, labels, client, n_vertices, options)
