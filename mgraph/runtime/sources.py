"""What an ingest reads on a worker: parts that lie there, files, or a function; each part as a checked batch."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np
from distributed.protocol.pickle import loads

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError, ReadError

__all__ = ["COLUMNS", "FILES", "Reader", "as_batch", "open_source"]

COLUMNS = ("src", "dst", "weight", "op")
FILES = (".npz", ".parquet", ".pq")

Reader = Callable[[int], EdgeBatch | None]  #: the batch of a step; None after the last


def open_source(source: Mapping[str, Any], rank: int, size: int, device: Device, held: Callable[[str], Any]) -> Reader:
    """The reader of a rank's parts.

    Parameters
    ----------
    source : mapping
        `kind` "keys" or "files" with `parts`, this rank's keys of Dask data or its paths, one a step; or "function"
        with `function`, pickled, and `steps`, or None where the function's None ends it.
    rank, size : int
    device : Device
        Given to functions that take a `device`.
    held : callable
        The Dask data of a key on this worker.
    """
    if source["kind"] == "function":
        return _called(_unpickled(source["function"]), source["steps"], rank, size, device)
    read = _read_file if source["kind"] == "files" else held
    parts = list(source["parts"])
    return lambda step: as_batch(read(parts[step])) if step < len(parts) else None


def _unpickled(data: bytes) -> Callable[..., Any]:
    try:
        return loads(data)
    except Exception as error:
        raise InvalidOption(
            f"the source function cannot be read on this worker: {type(error).__name__}: {error}; what it uses must be "
            "installed there, or defined where it is"
        ) from error


def _called(function: Callable[..., Any], steps: int | None, rank: int, size: int, device: Device) -> Reader:
    more = {"device": device} if _takes_device(function) else {}
    ended = False

    def read(step: int) -> EdgeBatch | None:
        nonlocal ended
        ended = ended or (steps is not None and step >= steps)
        part = None if ended else function(rank, size, step, **more)
        ended = part is None  # other ranks may have more: it is not asked again
        return None if part is None else as_batch(part)

    return read


def _takes_device(function: Callable[..., Any]) -> bool:
    try:
        parameter = signature(function).parameters.get("device")
    except (TypeError, ValueError):  # a function without a signature
        return False
    return parameter is not None and parameter.kind is not Parameter.POSITIONAL_ONLY


def as_batch(part: Any) -> EdgeBatch:
    """A part as a batch: an `EdgeBatch`, a mapping or data frame with columns, or 2 to 4 arrays in their order.

    Raises
    ------
    InvalidBatch
        It is none of these, has no src or dst, or `EdgeBatch` refuses its columns.
    """
    if isinstance(part, EdgeBatch):
        return part
    if isinstance(part, Mapping) or hasattr(part, "columns"):
        there = set(part if isinstance(part, Mapping) else part.columns)
        if not {"src", "dst"} <= there:
            raise InvalidBatch(f"a part has the columns {sorted(map(str, there))}; src and dst are needed")
        return EdgeBatch(**{name: _values(part[name]) for name in COLUMNS if name in there})
    if isinstance(part, tuple | list) and 2 <= len(part) <= 4:
        return EdgeBatch(*part)
    raise InvalidBatch(
        f"a part is a {type(part).__name__}; parts are EdgeBatches, data frames or mappings with src and dst, or 2 to "
        "4 arrays: src, dst, weight, op"
    )


def _values(column: Any) -> Any:
    """The array of a data frame's column; a GPU's stays there."""
    return getattr(column, "values", column)


def _read_file(path: str) -> EdgeBatch:
    try:
        columns = _npz(path) if Path(path).suffix == ".npz" else _parquet(path)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, MgraphError):
            raise
        raise ReadError(f"{path}: {error} (process {os.getpid()})") from None
    try:
        return as_batch(columns)
    except InvalidBatch as error:
        raise ReadError(f"{path}: {error}") from None


def _npz(path: str) -> dict[str, np.ndarray]:
    archive = np.load(path, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise ReadError(f"{path}: one array, not an archive of src and dst")
    with archive:
        return {name: archive[name] for name in COLUMNS if name in archive}


def _parquet(path: str) -> dict[str, np.ndarray]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ReadError(f"{path}: reading Parquet needs pyarrow on every worker: pip install pyarrow") from None
    there = [name for name in parquet.read_schema(path).names if name in COLUMNS]
    table = parquet.read_table(path, columns=there)
    return {name: table[name].to_numpy() for name in there}
