"""Run an algorithm on all ranks, and return its result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Vertex, VertexData, Vertices
from mgraph.checks import is_series
from mgraph.client.calls.caller import Caller
from mgraph.client.results.remote_columns import RemoteColumns
from mgraph.client.results.results import VertexIds, VertexRows, VertexValues, column_of
from mgraph.client.stores.recovery import Recovering
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError, UnknownVertex
from mgraph.keys import NONE
from mgraph.partition import Partition
from mgraph.tables.arrays import as_numbers, shown
from mgraph.tables.ids import as_keys
from mgraph.tables.texts import Texts

__all__ = ["run_algorithm"]

EACH = ("values", "labels", "beta")  #: arguments that need a value for each vertex
ADVICE = {"labels": "; pandas.factorize numbers other labels"}  #: hint for arguments that are no numbers, by name


def run_algorithm(
    coordinator: Caller,
    name: str,
    checked: Callable[[Numbering], Mapping[str, Any]],
    numbering: Numbering,
    live: str | None = None,
    handle: bool = True,
    first_name: int = 0,
) -> Any:
    """Run an algorithm on all ranks and return its result.

    Parameters
    ----------
    coordinator : Caller
    name : str
    checked : callable
        Returns the checked arguments for a numbering.
    numbering : Numbering
    live : str, optional
        The id of a maintained result to bring up to date.
    first_name : int
        For communities of a maintained result: new names are this number and larger ones, which none has had yet.
    handle : bool
        Return a handle to the main column, or the algorithm's own result. If False, return the `RemoteColumns`.
    """
    # Translate users' vertices and values to those of the ranks.
    arguments = checked(numbering)
    values = {k: v for k, v in arguments.items() if isinstance(v, VertexData)}
    data = {k: _values_by_rank(v.name or k, v, coordinator, numbering) for k, v in values.items()}
    args = {k: _inside(v, numbering) for k, v in arguments.items() if k not in data}
    shares = [{"data": {k: parts[rank] for k, parts in data.items()}} for rank in range(numbering.partition.size)]
    # Make the call. Columns that stay on the workers get a new key; after an error it is freed, since some ranks may
    # have finished.
    key, kinds = secrets.token_hex(16), ALGORITHMS[name].columns
    try:
        common = {"name": name, "generation": numbering.generation, "args": args}
        common |= {"result": key} if ALGORITHMS[name].result is None else {}
        common |= {} if live is None else {"live": live}
        common |= {"first_name": first_name} if first_name else {}
        if numbering.keys is not None and "label" in kinds.values():
            common |= {"by_key": numbering.by_key(), "named": numbering.n_vertices}
        answers = coordinator.call("run" if live is None else "maintain", common, shares)
    except BaseException as error:
        coordinator.forget(key)
        if numbering.keys is not None and isinstance(error, MgraphError) and error.vertices:
            raise error.named(numbering.names) from None
        raise
    if ALGORITHMS[name].result is not None:
        return _joined(name, answers, numbering)
    # The result keeps the ranges of the ranks at its run; they may have moved since.
    first, layout, starts = answers[0], numbering, (*(answer["lo"] for answer in answers), answers[-1]["hi"])
    if starts != numbering.partition.starts:
        layout = numbering.moved(Partition(starts))
    took = first.get("took", {})
    remote = RemoteColumns(coordinator, layout, name, key, first["epoch"], first["dtypes"], first["info"], kinds, took)
    remote.passed = first.get("passed")
    if not handle:
        return remote
    if isinstance(coordinator, Recovering):
        again = partial(run_algorithm, coordinator, name, checked, live=live, handle=False, first_name=first_name)
        remote.again = lambda: coordinator.read(again)
    return column_of(remote, next(iter(remote.dtypes)))


def _joined(name: str, answers: list[dict[str, Any]], numbering: Numbering) -> Any:
    """Return an algorithm's own result, from the columns in the ranks' answers."""
    algorithm = ALGORITHMS[name]
    assert algorithm.result is not None
    parts = {column: [answer[column] for answer in answers] for column in algorithm.columns if column in answers[0]}
    for column in parts:
        if algorithm.columns[column] == "vertex":
            parts[column] = [numbering.outside(part) for part in parts[column]]
    return algorithm.result(parts, answers[0]["info"], numbering.names)


# ---- arguments -------------------------------------------------------------------------------------------------------


def _inside(value: Any, numbering: Numbering) -> Any:
    """Return an argument with vertices as internal ids; others unchanged."""
    if isinstance(value, Vertices):
        return numbering.inside(value.ids)
    return int(numbering.inside(np.array([value.id], np.uint32))[0]) if isinstance(value, Vertex) else value


def _in_vertex_order(values: Any, numbering: Numbering, name: str, missing: str) -> Any:
    """Align a Series or a result of other vertices with the vertices.

    Vertices without a value get that of `_filled`, and values of unknown keys are dropped; in one of `EACH` such a key
    raises `UnknownVertex`.
    """
    keys, n = numbering.keys, numbering.n_vertices

    # Find the vertex of each value.
    if is_series(values):
        names, what = values.index, "its index"
        if not names.is_unique:
            raise InvalidBatch(f"its index has {shown(names[names.duplicated()][0])} more than once")
        if n and not len(names):
            raise InvalidBatch("it is empty; at least one vertex needs a value")
    else:
        layout = values._remote.numbering if isinstance(values, VertexValues) else numbering
        if layout.keys is keys:  # or neither graph has keys
            return values
        other, what = layout.keys, "its vertices"
        names = layout.all_names() if other is None else other.names.column(0, layout.n_vertices)
    if keys is not None:
        ids = Device.to_host(keys.find(as_keys(names, keys.kind, what), n))
    elif is_series(values):
        ids = numbering.ids(names, what)
    elif isinstance(names, Texts):
        raise InvalidBatch("its vertices are strings, and those of the graph are whole numbers")
    else:
        names = Device.to_host(names)
        ids = np.where((names >= 0) & (names < n), names, NONE).astype(np.uint32)

    if name in EACH and (ids == NONE).any():
        key = (values.index if is_series(values) else values.ids())[int((ids == NONE).argmax())]
        raise UnknownVertex(f"{name} has a value of {shown(key)}, which is no vertex of the graph")

    # Put the values in place.
    numbers = Device.to_host(as_numbers(values, name, ADVICE.get(name, "")) if is_series(values) else values.to_numpy())
    rows = isinstance(values, VertexRows)
    if numbers.ndim != 1 + rows or numbers.dtype.kind not in "biuf":
        raise InvalidBatch(f"it has shape {numbers.shape} and dtype {numbers.dtype}; one column of numbers is needed")
    array = _filled(numbers, n, missing)
    array[..., ids[ids != NONE]] = numbers[..., ids != NONE]
    return array


def _filled(numbers: np.ndarray, n: int, missing: str) -> np.ndarray:
    """Return float64[..., n], filled with the mean of each row of `numbers`, 1 without numbers; or with 0."""
    array = np.zeros((*numbers.shape[:-1], n))
    if missing == "mean":
        with np.errstate(over="ignore"):  # the program rejects values that are not finite
            array[:] = numbers.mean(axis=-1, keepdims=True) if numbers.size else 1.0
    return array


def _aligned(values: Any, numbering: Numbering, name: str, missing: str) -> np.ndarray:
    """Return numbers from users as an array in host memory, aligned with the vertices. Raises `InvalidOption`."""
    try:
        ordered = _in_vertex_order(values, numbering, name, missing)
    except InvalidBatch as error:
        raise InvalidOption(f"{name}: {error}") from None
    array = ordered.to_numpy() if isinstance(ordered, VertexValues) else as_numbers(ordered, name, ADVICE.get(name, ""))
    host: np.ndarray = Device.to_host(array)
    return host


def _values_by_rank(name: str, data: VertexData, coordinator: Caller, numbering: Numbering) -> list[dict[str, Any]]:
    """Return each rank's part of an argument with a number for each vertex.

    An earlier result of the same graph and order is on the ranks already, so only its key is sent. An array by users'
    ids is split in internal order.

    Raises
    ------
    InvalidOption
        The array is not one-dimensional, not numeric, or longer than the number of vertices. Rows, which an algorithm's
        check made of several arrays, are exempt.
    GraphClosed
        The result was closed.
    """
    starts, values = list(numbering.partition.starts), data.values
    # A result on the same ranks: only its key is sent.
    if isinstance(values, VertexValues) and not isinstance(values, VertexRows | VertexIds):
        remote = values._remote
        remote.check()
        if remote.coordinator is coordinator and remote.numbering.generation == numbering.generation:
            moved = remote.numbering.partition.starts[:-1] != numbering.partition.starts[:-1]
            reference = {"starts": starts, "result": remote.key, "column": values._column, "moved": moved}
            reference |= {"missing": data.missing} if len(values) < numbering.n_vertices else {}
            return [reference] * numbering.partition.size
    # Anything else is sent as an array, in internal order.
    if not data.rows:
        array = _whole(values, numbering, name, data.missing)
    elif isinstance(values, list):
        rows = [_whole(row, numbering, f"{name}[{i}]", data.missing) for i, row in enumerate(values)]
        array = np.stack(rows)
    else:
        array = _aligned(values, numbering, name, data.missing)
    inside = np.empty_like(array)
    inside[..., numbering.inside(np.arange(numbering.n_vertices))] = array
    return [{"starts": starts, "values": inside[..., first:end]} for first, end in pairwise(starts)]


def _whole(values: Any, numbering: Numbering, name: str, missing: str) -> np.ndarray:
    """Return one column of numbers from users, with a number for each vertex: float64[n_vertices]."""
    array, n = _aligned(values, numbering, name, missing), numbering.n_vertices
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) > n:
        raise InvalidOption(
            f"{name} has shape {array.shape} and dtype {array.dtype}; it must be a one-dimensional array of "
            f"{'' if name in EACH else 'at most '}{n} numbers, one for each vertex"
        )
    filled = _filled(array, n, missing)
    filled[: len(array)] = array
    return filled
