"""The sources that an ingest reads on a worker: Dask data, files, or a function. Each part becomes a checked batch."""

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

__all__ = ["Reader", "Source", "joined", "open_source"]

Reader = Callable[[int], EdgeBatch | Operations | None]  #: returns the part of a step; None after the last one

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
        The columns of parts that were not used so far.
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
) -> Source:
    """The source of a rank.

    Parameters
    ----------
    source : mapping
        `kind` is "keys" or "files", with `parts`, this rank's keys of Dask data or its paths, one for each step; or
        "function", with the `function`, pickled where it comes from another process, and `steps`, the number of steps,
        or None if the function ends the source by returning None. `names` are the arguments of `Names`, by which files
        and the function's parts are read.
    rank, size : int
    device : Device
        Passed to functions that have an argument `device`. Its budget decides whether there is memory for a part before
        it is read: the size of a file's columns is known, and that of a function's next part is estimated by the
        largest before it.
    held : callable
        Returns the Dask data of a key on this worker.
    """
    names, left_out = Names(**source["names"]), set[str]()
    if source["kind"] == "function":
        function = source["function"] if callable(source["function"]) else _unpickled(source["function"])
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return Source(_called(function, source["steps"], names, left_out, rank, size, device), name, left_out)
    read = partial(_read_file, names=names, budget=device.budget) if source["kind"] == "files" else held
    parts = list(source["parts"])

    def read_part(step: int) -> EdgeBatch | Operations | None:
        if step >= len(parts):
            return None
        batch = as_part(read(parts[step]))
        left_out.update(getattr(batch, "unused", ()))
        return batch

    return Source(read_part, left_out=left_out)


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
    names: Names,
    left_out: set[str],
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
            batch = None if part is None else as_part(part, names)
        left_out.update(getattr(batch, "unused", ()))
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


def _read_file(path: str, names: Names, budget: Budget) -> EdgeBatch:
    """Return the batch in a file."""
    with open_table(path) as table:
        found, unused = names.find(table.names, "the file")
        columns = [*found.values()]
        with budget.reserve(table.nbytes(columns), path):
            read = table.read(columns, None)
            given = {column: read[name] for column, name in found.items()}
            return EdgeBatch.of(given, None, {column: label(name) for column, name in found.items()}, unused)
