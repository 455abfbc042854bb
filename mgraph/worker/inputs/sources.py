"""Sources of an ingest on a worker: Dask data, files, or a function, read as checked batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, signature
from typing import Any

import numpy as np

from mgraph.batch import COLUMNS, EdgeBatch
from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.operations import Operations, as_part
from mgraph.tables.files.columnar import open_table
from mgraph.tables.names import Names, label
from mgraph.tables.times import INTEGERS, MOST, as_shown, as_stamps

__all__ = ["Reader", "Source", "joined", "open_source"]

Reader = Callable[[int], EdgeBatch | Operations | None]  #: returns the part of a step; None after the last one

LEAST = 16 << 20  #: bytes reserved for a function's first part
#: a later part is assumed to need this many times the largest part so far, with the function's own memory
TIMES = 4


@dataclass(frozen=True)
class Source:
    """Source of a rank.

    Parameters
    ----------
    read : Reader
    function : str or None
        The name of the user's function, if the source is one.
    left_out : set of str
        The unused columns of the parts so far.
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
    own: bool = False,
) -> Source:
    """Return the source of a rank.

    Parameters
    ----------
    source : mapping
        `kind` is "keys" or "files", with `parts`, this rank's keys of Dask data or its paths, one per step; or
        "function", with the `function`, pickled if it comes from another process, and `steps`, the number of steps, or
        None if the function ends the source by returning None. `names` are the arguments of `Names`, by which files and
        the function's parts are read.
    rank, size : int
    device : Device
        Passed to functions with an argument `device`. Its budget must grant the memory of a part before it is read: the
        size of a file's columns is known, and that of a function's next part is estimated from the largest so far.
    held : callable
        Returns the Dask data of a key on this worker.
    own : bool
        Whether a part is needed after the function's next call, which may fill the same arrays again.
    """
    names, left_out = Names(**source["names"]), set[str]()
    # The user's function, wrapped.
    if source["kind"] == "function":
        function = source["function"] if callable(source["function"]) else _unpickled(source["function"])
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return Source(_called(function, source["steps"], names, left_out, rank, size, device, own), name, left_out)

    # Files or Dask data, part by part.
    read = partial(_read_file, names=names, budget=device.budget) if source["kind"] == "files" else held
    parts = list(source["parts"])

    def read_part(step: int) -> EdgeBatch | Operations | None:
        if step >= len(parts):
            return None
        batch = as_part(read(parts[step]))
        left_out.update(getattr(batch, "unused", ()))
        return batch

    return Source(read_part, left_out=left_out)


def joined(reads: Sequence[Reader], device: Device, times: str | None) -> Reader:
    """Concatenate the parts of several ranks' readers; None after the last of all. `times` is the graph's option."""
    if len(reads) == 1:
        return reads[0]

    def read(step: int) -> EdgeBatch | Operations | None:
        parts = [part for reader in reads if (part := reader(step)) is not None]
        if len(parts) < 2:
            return next(iter(parts), None)
        batches = [part for part in parts if isinstance(part, EdgeBatch)]
        if len(batches) < len(parts):
            raise InvalidBatch("after a worker was lost, its parts cannot be read in its place if they are operations")
        return _concatenated(batches, device, times)

    return read


def _concatenated(parts: Sequence[EdgeBatch], device: Device, times: str | None) -> EdgeBatch:
    """Concatenate batches in their order, after the checks of their times that each would get alone."""

    # A column that only some batches have gets its default in the others.
    def column(values: Sequence[Any], dtype: Any, left_out: int | None) -> Any:
        if all(value is None for value in values):
            return None
        filled = [
            device.full(len(part), left_out if value is None else value, dtype)
            if value is None or isinstance(value, int)
            else device.asarray(value)
            for part, value in zip(parts, values, strict=True)
        ]
        return device.concatenate(filled)

    columns = {"src": (np.uint32, None), "dst": (np.uint32, None), "weight": (np.float32, 1), "op": (np.int8, 1)}
    joint = {name: column([getattr(part, name) for part in parts], *how) for name, how in columns.items()}
    # Batches without times have only deletions, whose times are not used.
    stamps = column([as_stamps(part, times) for part in parts], np.int64, MOST)
    dates = stamps is not None and times != INTEGERS  # of NumPy only
    return EdgeBatch(**joint, time=as_shown(Device.to_host(stamps), times) if dates else stamps)


def _unpickled(data: bytes) -> Callable[..., Any]:
    """Unpickle a source function; `InvalidOption` if that fails."""
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
    names: Names,
    left_out: set[str],
    rank: int,
    size: int,
    device: Device,
    own: bool,
) -> Reader:
    """Return a reader that calls the user's function, with memory reserved for its part.

    A function may fill the same arrays for each part. So columns that are read after its next call are copied: those of
    operations, and with `own` those of batches.
    """
    more = {"device": device} if _takes_device(function) else {}
    ended, need = False, LEAST

    def read(step: int) -> EdgeBatch | Operations | None:
        nonlocal ended, need
        if ended or (steps is not None and step >= steps):
            return None
        # Reserve memory by the largest part so far.
        with device.budget.reserve(need, f"part {step} of the source, by the part before it"):
            part = function(rank, size, step, **more)
            ended = part is None  # do not call it again, even if other ranks have more parts
            keep = own or isinstance(part, Operations)  # operations are read later, unsorted
            batch = None if part is None else as_part(part, names, own=keep)
        left_out.update(getattr(batch, "unused", ()))
        need = max(need, TIMES * _nbytes(batch))
        return batch

    return read


def _takes_device(function: Callable[..., Any]) -> bool:
    """Return True if a function has an argument `device`."""
    try:
        parameter = signature(function).parameters.get("device")
    except (TypeError, ValueError):  # a function without a signature
        return False
    return parameter is not None and parameter.kind is not Parameter.POSITIONAL_ONLY


def _nbytes(batch: EdgeBatch | Operations | None) -> int:
    """Return the bytes of a batch's columns in host memory."""
    columns = (getattr(batch, name, None) for name in COLUMNS)
    return sum(column.nbytes for column in columns if isinstance(column, np.ndarray))


def _read_file(path: str, names: Names, budget: Budget) -> EdgeBatch:
    """Read the batch in a file, with memory reserved for its columns."""
    with open_table(path) as table:
        matches, unused = names.find(table.names, "the file")
        columns = [*matches.values()]
        with budget.reserve(table.nbytes(columns), path):
            read = table.read(columns, None)
            values = {column: read[name] for column, name in matches.items()}
            return EdgeBatch.of(values, None, {column: label(name) for column, name in matches.items()}, unused)
