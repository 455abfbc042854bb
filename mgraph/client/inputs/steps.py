"""What a graph with keys ingests: this process reads the parts one after another, since it numbers the keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from typing import Any

import numpy as np

from mgraph.batch import as_columns, check_columns, name_columns
from mgraph.client.inputs.parts import AsParts, function_or_files, is_dasks
from mgraph.errors import InvalidBatch, InvalidOption, ReadError

__all__ = ["read_parts"]

Columns = Mapping[str, str] | None


def read_parts(source: Any, steps: int | None, columns: Columns, as_parts: AsParts) -> Iterator[dict[str, Any]]:
    """The columns src, dst and maybe weight and op of each part of a source; see `DynamicGraph.ingest`.

    `as_parts` has Dask compute what is Dask's.

    Raises
    ------
    InvalidOption
        `source` is none that `ingest` takes; or `steps` or `columns` does not fit it.
    InvalidBatch, ReadError
        A part cannot be read.
    """
    columns = check_columns(columns)
    parts = function_or_files(source, 1, steps, columns, lambda function: function)
    if parts is None and is_dasks(source):
        return (as_columns(part, columns) for part in as_parts(source, None, columns, ()).fetched())
    if parts is None:
        return _of_memory(source, columns)
    share = parts.shares[0]
    if share["kind"] == "function":
        return _of_function(share["function"], share["steps"], columns)
    return (_of_file(path, columns) for path in share["parts"])


def _of_memory(source: Any, columns: Columns) -> Iterator[dict[str, Any]]:
    return (as_columns(part, columns) for part in (source if isinstance(source, list) else [source]))


def _of_function(function: Callable[..., Any], steps: int | None, columns: Columns) -> Iterator[dict[str, Any]]:
    try:
        takes_device = "device" in signature(function).parameters
    except (TypeError, ValueError):  # a function without a signature
        takes_device = False
    if takes_device:
        raise InvalidOption("a graph with keys calls the function in this process, without a device")
    step = 0
    while (steps is None or step < steps) and (part := function(0, 1, step)) is not None:
        yield as_columns(part, columns)
        step += 1


def _of_file(path: str, columns: Columns) -> dict[str, Any]:
    try:
        return (_npz if path.endswith(".npz") else _parquet)(path, columns)
    except (InvalidBatch, OSError, EOFError, ValueError) as error:
        raise error if isinstance(error, ReadError) else ReadError(f"{path}: {error}") from None


def _npz(path: str, columns: Columns) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        named = name_columns(archive.files, columns, "the file")
        return {name: archive[column] for name, column in named.items()}


def _parquet(path: str, columns: Columns) -> dict[str, Any]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ReadError(f"{path}: reading Parquet needs pyarrow: pip install pyarrow") from None
    with parquet.ParquetFile(os.fspath(path)) as file:
        named = name_columns(file.schema_arrow.names, columns, "the file")
        table = file.read(columns=list(named.values()))
    return {name: table[column] for name, column in named.items()}
