"""The parts of an ingest of a graph with keys: this process reads them in turn, since it numbers the keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

from mgraph.batch import EdgeBatch, as_batch
from mgraph.client.inputs.source_parts import AsParts, function_or_files
from mgraph.errors import InvalidOption
from mgraph.tables.kinds import is_dasks
from mgraph.tables.names import Names

__all__ = ["read_parts"]


def read_parts(
    source: Any, steps: int | None, names: Names, as_parts: AsParts, keys: Callable[[], str | None]
) -> Iterator[EdgeBatch]:
    """Return the parts of a source as batches, each read on demand.

    Parameters
    ----------
    source, steps
        As `DynamicGraph.ingest` takes them.
    names : Names
    as_parts : AsParts
        Computes Dask collections.
    keys : callable
        Returns the kind of the graph's keys, which its first part may decide.

    Raises
    ------
    InvalidOption
        `source` is none that `ingest` takes; or `steps` does not fit it.
    InvalidBatch, ReadError
        A part cannot be read.
    """
    # Find the parts of a function, of files, of a Dask collection, or of a list.
    parts = function_or_files(source, 1, steps, names, lambda function: function)
    items: Iterator[Any]
    if parts is None and is_dasks(source):
        items = as_parts(source, None, names, ()).fetched()
    elif parts is None:
        items = iter(source if isinstance(source, list) else [source])
    elif parts.shares[0]["kind"] == "function":
        items = _of_function(parts.shares[0]["function"], parts.shares[0]["steps"])
    else:
        items = iter(parts.shares[0]["parts"])
    return (as_batch(part, names, keys()) for part in items)


def _of_function(function: Callable[..., Any], steps: int | None) -> Iterator[Any]:
    try:
        takes_device = "device" in signature(function).parameters
    except (TypeError, ValueError):  # a function without a signature
        takes_device = False
    if takes_device:
        raise InvalidOption("a graph with keys calls the function in this process, without a device")

    # The function is called as for a single rank.
    step = 0
    while (steps is None or step < steps) and (part := function(0, 1, step)) is not None:
        yield part
        step += 1
