"""The sources that an ingest reads on a worker: Dask data, files, or a function. Each part becomes a checked batch."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.batch import COLUMNS, EdgeBatch, as_batch, default_columns, name_columns
from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError, ReadError
from mgraph.operations import Operations, as_part

__all__ = ["Reader", "Source", "joined", "open_source"]

Reader = Callable[[int], EdgeBatch | Operations | None]  #: returns the part of a step; None after the last one
Opened = tuple[int, Callable[[], dict[str, np.ndarray]]]  #: the bytes that a file's columns need, and their loader

LEAST = 16 << 20  #: bytes that a function's first part may take
#: a later part may take this many times the bytes of the largest before it, with what the function itself needs
TIMES = 4


@dataclass(frozen=True)
class Source:
    """The source of one rank.

    Parameters
    ----------
    read : Reader
    function : str or None
        The name of the user's function, if the source is one.
    left_out : set of str
        The columns of files that were skipped so far.
    """

    read: Reader
    function: str | None = None
    left_out: set[str] = field(default_factory=set)


def open_source(
    source: Mapping[str, Any],
    rank: int,
    size: int,
    device: Device,
    held: Callable[[str], Any],
    times: bool = False,
) -> Source:
    """The source of a rank.

    Parameters
    ----------
    source : mapping
        `kind` is "keys" or "files", with `parts`, this rank's keys of Dask data or its paths, one for each step; or
        "function", with the `function`, pickled where it comes from another process, and `steps`, the number of steps,
        or None if the function ends the source by returning None. `columns` maps src, dst, weight and op to the columns
        of files and of the function's parts, or is None.
    rank, size : int
    device : Device
        Passed to functions that have an argument `device`. Its budget decides whether there is memory for a part before
        it is read: the size of a file's columns is known, and that of a function's next part is estimated by the
        largest before it.
    held : callable
        Returns the Dask data of a key on this worker.
    times : bool
        Whether a column `time` of a file is read where `columns` is None, as in a graph with times.
    """
    columns, left_out = source["columns"], set[str]()
    if source["kind"] == "function":
        function = source["function"] if callable(source["function"]) else _unpickled(source["function"])
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return Source(_called(function, source["steps"], columns, rank, size, device), name)
    read = held
    if source["kind"] == "files":
        read = partial(_read_file, columns=columns, left_out=left_out, budget=device.budget, times=times)
    parts = list(source["parts"])
    return Source(lambda step: as_part(read(parts[step])) if step < len(parts) else None, left_out=left_out)


def joined(reads: Sequence[Reader], device: Device) -> Reader:
    """What several ranks would read, one after another; None after the last of all."""
    if len(reads) == 1:
        return reads[0]

    def read(step: int) -> EdgeBatch | Operations | None:
        parts = [part for one in reads if (part := one(step)) is not None]
        if len(parts) < 2:
            return next(iter(parts), None)
        batches = [part for part in parts if isinstance(part, EdgeBatch)]
        if len(batches) < len(parts):
            raise InvalidBatch("after a worker was lost, its parts cannot be read in its place if they are operations")
        return _one(batches, device)

    return read


def _one(parts: Sequence[EdgeBatch], device: Device) -> EdgeBatch:
    """Batches as one, in their order."""

    def column(name: str, dtype: Any, left_out: int | None) -> Any:
        given = [getattr(part, name) for part in parts]
        if all(one is None for one in given):
            return None
        filled = [
            device.full(len(part), left_out if one is None else one, dtype)
            if one is None or isinstance(one, int)
            else device.asarray(one)
            for part, one in zip(parts, given, strict=True)
        ]
        return device.concatenate(filled)

    ids = column("src", np.uint32, None), column("dst", np.uint32, None)
    weight, op, timed = (
        column("weight", np.float32, 1),
        column("op", np.int8, 1),
        all(p.time is not None for p in parts),
    )
    return EdgeBatch(*ids, weight, op, time=column("time", np.int64, None) if timed else None)


def _unpickled(data: bytes) -> Callable[..., Any]:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise InvalidOption(
            f"the source function cannot be unpickled on this worker: {type(error).__name__}: {error}; install the "
            "modules that it uses on every worker, or define what it uses beside it"
        ) from error


def _called(
    function: Callable[..., Any],
    steps: int | None,
    columns: Mapping[str, str] | None,
    rank: int,
    size: int,
    device: Device,
) -> Reader:
    more = {"device": device} if _takes_device(function) else {}
    ended, need = False, LEAST

    def read(step: int) -> EdgeBatch | Operations | None:
        nonlocal ended, need
        if ended or (steps is not None and step >= steps):
            return None
        with device.budget.reserve(need, f"part {step} of the source, by the part before it"):
            part = function(rank, size, step, **more)
            ended = part is None  # then the function is not called again, even if other ranks have more parts
            batch = None if part is None else as_part(part, columns)
        need = max(need, TIMES * _nbytes(batch))
        return batch

    return read


def _takes_device(function: Callable[..., Any]) -> bool:
    try:
        parameter = signature(function).parameters.get("device")
    except (TypeError, ValueError):  # a function without a signature
        return False
    return parameter is not None and parameter.kind is not Parameter.POSITIONAL_ONLY


def _nbytes(batch: EdgeBatch | Operations | None) -> int:
    """Bytes of host memory that a batch's columns take; those on a GPU take none."""
    columns = (getattr(batch, name, None) for name in COLUMNS)
    return sum(column.nbytes for column in columns if isinstance(column, np.ndarray))


def _read_file(
    path: str, columns: Mapping[str, str] | None, left_out: set[str], budget: Budget, times: bool
) -> EdgeBatch:
    opened = _npz if Path(path).suffix == ".npz" else _parquet
    try:
        with opened(path, columns, left_out, times) as (nbytes, load), budget.reserve(nbytes, path):
            return as_batch(load())
    except InvalidBatch as error:
        raise ReadError(f"{path}: {error}") from None
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, MgraphError):
            raise
        raise ReadError(f"{path}: {error} (process {os.getpid()})") from None


def _named(there: Iterable[str], columns: Mapping[str, str] | None, left_out: set[str], times: bool) -> dict[str, str]:
    """The columns of a file to read. By default those of `default_columns`; the others are added to `left_out`."""
    there = list(there)
    src, dst, *more = default_columns(there).values()
    known = [src, dst, *(more if times else more[:-1])]
    if columns is None and {src, dst} <= {*there}:  # else the error lists all columns
        left_out.update(name for name in there if name not in known)
        there = [name for name in there if name in known]
    return name_columns(there, columns, "the file")


@contextmanager
def _npz(path: str, columns: Mapping[str, str] | None, left_out: set[str], times: bool) -> Iterator[Opened]:
    archive = np.load(path, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise ReadError(f"{path}: the file has one array; an .npz archive with the arrays src and dst is needed")
    with archive:
        named = _named(archive.files, columns, left_out, times)
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
        nbytes = 2 * sum(sizes[column] for column in named.values())  # and as a batch keeps them
        yield nbytes, lambda: {name: archive[column] for name, column in named.items()}


@contextmanager
def _parquet(path: str, columns: Mapping[str, str] | None, left_out: set[str], times: bool) -> Iterator[Opened]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ReadError(f"{path}: reading Parquet needs pyarrow on every worker: pip install pyarrow") from None
    with parquet.ParquetFile(path) as file:
        named = _named(file.schema_arrow.names, columns, left_out, times)
        nbytes = 3 * 8 * file.metadata.num_rows * len(named)  # as Arrow has them, as NumPy, and as a batch keeps them

        def load() -> dict[str, np.ndarray]:
            table = file.read(columns=list(named.values()))
            return {name: table[column].to_numpy() for name, column in named.items()}

        yield nbytes, load
