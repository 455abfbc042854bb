"""Running an algorithm on all ranks: its arguments as the ranks take them, and the handle to its result."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Vertex, VertexData, Vertices
from mgraph.checks import is_series
from mgraph.client.calls.caller import Caller
from mgraph.client.results.handles import VertexIds, VertexRows, VertexValues, column_of
from mgraph.client.results.held import Held
from mgraph.client.stores.recovery import Recovering
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError
from mgraph.keys import NONE
from mgraph.partition import Partition
from mgraph.tables.arrays import as_array, shown
from mgraph.tables.ids import as_keys

__all__ = ["run_algorithm"]


def run_algorithm(
    coordinator: Caller,
    name: str,
    checked: Callable[[Numbering], Mapping[str, Any]],
    numbering: Numbering,
    live: str | None = None,
    shown: bool = True,
) -> Any:
    """The result of an algorithm, run on all ranks with arguments that its `check` returns for this numbering.

    With `live`, the maintained result that has this id, brought up to date. What the workers hold, if not `shown`.
    """
    arguments = checked(numbering)
    data = {k: _own_values(k, v, coordinator, numbering) for k, v in arguments.items() if isinstance(v, VertexData)}
    args = {k: _inside(v, numbering) for k, v in arguments.items() if k not in data}
    shares = [{"data": {k: parts[rank] for k, parts in data.items()}} for rank in range(numbering.partition.size)]
    key = uuid.uuid4().hex
    try:
        common = {"name": name, "result": key, "generation": numbering.generation, "args": args}
        common |= {} if live is None else {"live": live}
        common |= {"by_key": numbering.by_key()} if "label" in ALGORITHMS[name].columns.values() else {}
        answers = coordinator.call("run" if live is None else "maintain", common, shares, connect=True)
    except BaseException as error:
        coordinator.forget(key)  # some ranks may have finished
        if numbering.keys is not None and isinstance(error, MgraphError) and error.vertices:
            raise error.named(numbering.names) from None
        raise
    ranges = Partition((*(answer["lo"] for answer in answers), answers[-1]["hi"]))
    first, then = answers[0], numbering.moved(ranges)  # the ranges when it ran; they may have moved since
    took, kinds = first.get("took", {}), ALGORITHMS[name].columns
    held = Held(coordinator, then, name, key, first["epoch"], first["dtypes"], first["info"], kinds, took)
    if not shown:
        return held
    if isinstance(coordinator, Recovering):
        again = partial(run_algorithm, coordinator, name, checked, live=live, shown=False)
        held._again = lambda: coordinator.read(again)
    return column_of(held, next(iter(held.dtypes))) if ALGORITHMS[name].result is None else _gathered(held)


def _gathered(held: Held) -> Any:
    """What an algorithm makes of its columns in this process; they are freed on the workers."""
    algorithm = ALGORITHMS[held.name]
    assert algorithm.result is not None
    try:
        parts = held.read(lambda: {column: held.parts(column) for column in held.dtypes})
    finally:
        held.close()
    for column in parts:
        if algorithm.columns[column] == "vertex":
            parts[column] = [held.numbering.outside(part) for part in parts[column]]
    return algorithm.result(parts, dict(held.info), held.numbering.names)


def _inside(value: Any, numbering: Numbering) -> Any:
    """An argument as the program takes it: vertices by their internal ids, anything else unchanged."""
    if isinstance(value, Vertices):
        return numbering.inside(value.ids)
    return int(numbering.inside(np.array([value.id], np.uint32))[0]) if isinstance(value, Vertex) else value


def _by_vertex(values: Any, numbering: Numbering) -> Any:
    """Values in the order of the vertices, where they are a Series of pandas, or a result with other vertices.

    Vertices that they do not have get the mean.
    """
    keys, n = numbering.keys, numbering.n_vertices
    if is_series(values):
        if keys is None:
            ids = numbering.ids(values.index, "its index")
        else:
            ids = Device.to_host(keys.find(as_keys(values.index, keys.kind, "its index"), n))
        if not values.index.is_unique:
            raise InvalidBatch(f"its index has {shown(values.index[values.index.duplicated()][0])} more than once")
    else:
        then = values._held.numbering if isinstance(values, VertexValues) else numbering
        if keys is None or then.keys is None or then.keys is keys or isinstance(values, VertexRows):
            return values
        ids = Device.to_host(keys.find(then.keys.names.column(0, then.n_vertices), n))
    found = values.to_numpy()
    if found.ndim != 1 or found.dtype.kind not in "biuf":
        raise InvalidBatch(f"it has shape {found.shape} and dtype {found.dtype}; one column of numbers is needed")
    array = np.full(n, found.mean() if len(found) else 1.0)
    array[ids[ids != NONE]] = found[ids != NONE]
    return array


def _own_values(name: str, given: VertexData, coordinator: Caller, numbering: Numbering) -> list[dict[str, Any]]:
    """Each rank's share of an argument that has a number for each vertex.

    An earlier result of the same graph and order is on the ranks already, so its key is sent. Of an array by users'
    ids, each rank gets its part in internal order; vertices past the array's end get the mean of the array.

    Raises
    ------
    InvalidOption
        The array is not one-dimensional, not numeric, or longer than the number of vertices; unless it has rows, which
        an algorithm's check made of several arrays.
    GraphClosed
        The result was closed.
    """
    starts, values = list(numbering.partition.starts), given.values
    if isinstance(values, VertexValues) and not isinstance(values, VertexRows | VertexIds):
        held = values._held
        held.check()
        if held.coordinator is coordinator and held.numbering.generation == numbering.generation:
            moved = held.numbering.partition.starts[:-1] != numbering.partition.starts[:-1]
            there = {"starts": starts, "result": held.key, "column": values._column, "moved": moved}
            return [there] * numbering.partition.size
    try:
        array = Device.to_host(as_array(_by_vertex(values, numbering)))
    except InvalidBatch as error:
        raise InvalidOption(f"{name}: {error}") from None
    if given.rows:
        inside = np.empty_like(array)
        inside[:, numbering.inside(np.arange(array.shape[1]))] = array
        return [{"starts": starts, "values": inside[:, first:end]} for first, end in pairwise(starts)]
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) > numbering.n_vertices:
        raise InvalidOption(
            f"{name} has shape {array.shape} and dtype {array.dtype}; "
            f"it must be a one-dimensional array of at most {numbering.n_vertices} numbers, one for each vertex"
        )
    with np.errstate(over="ignore"):  # the program rejects values that are not finite
        inside = np.full(numbering.n_vertices, array.mean() if len(array) else 1, np.float64)
        inside[numbering.inside(np.arange(len(array)))] = array
    return [{"starts": starts, "values": inside[first:end]} for first, end in pairwise(starts)]
