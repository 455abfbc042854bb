"""Arithmetic on columns of results, on the workers where they are stored."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.checks import is_series
from mgraph.client.results.column import Column
from mgraph.client.results.held import Held
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.tables.arrays import as_array

__all__ = ["VALUE", "check_whole", "combined"]

VALUE = "value"  #: the name of the column that `combined` makes


def combined(operation: str, inputs: Sequence[Any]) -> Held:
    """What an elementwise operation gives, in one column named `VALUE`, on the workers of the first input there.

    Parameters
    ----------
    operation : str
        The name of a universal function of NumPy, or "where".
    inputs : sequence
        Numbers, arrays with a number for each vertex, and columns, one at least.
    """
    results = [one for one in inputs if isinstance(one, Column)]
    on_workers = [one for one in results if one._kind != "vertex"]
    anchor = (on_workers or results)[0]
    held, key = anchor._held, uuid.uuid4().hex
    size = held.numbering.partition.size
    operands = [_operand(one, held) for one in inputs]
    shares = [{"operands": [parts[rank] for parts in operands]} for rank in range(size)]
    try:
        answers = held.coordinator.call("combine", {"result": key, "operation": operation, "like": held.key}, shares)
    except BaseException:
        held.coordinator.forget(key)
        raise
    dtypes, kinds = {VALUE: answers[0]["dtype"]}, {VALUE: "value"}
    if any(one._kind == "rows" for one in on_workers):
        kinds = {VALUE: "rows"}
    return Held(held.coordinator, held.numbering, operation, key, held.epoch, dtypes, {}, kinds)


def _operand(value: Any, held: Held) -> list[dict[str, Any]]:
    """Each rank's share of an operand of the results in `held`."""
    here, size = held.numbering, held.numbering.partition.size
    if isinstance(value, Column) and value._kind != "vertex":
        other = value._held
        other.check()
        there = other.numbering
        alike = there.generation == here.generation and there.partition == here.partition
        if other.coordinator is held.coordinator and alike:
            return [{"result": other.key, "column": value._column}] * size
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise InvalidOption(f"an operand is {value}; whole numbers have 64 bits")
    if isinstance(value, int | float | np.number | np.bool_):
        return [{"number": value}] * size
    array = Device.to_host(as_array(_in_order(value, here)))
    if array.ndim == 0 and array.dtype.kind in "biuf":  # NumPy makes one of its numbers on the left of a comparison
        return [{"number": array[()]}] * size
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) != here.n_vertices:
        raise InvalidOption(
            f"an operand has shape {array.shape} and dtype {array.dtype}; it must be a number, or have one for each of "
            f"{here.n_vertices} vertices"
        )
    inside = np.empty_like(array)
    inside[here.inside(np.arange(len(array)))] = array
    return [{"values": inside[first:end]} for first, end in pairwise(here.partition.starts)]


def _in_order(value: Any, here: Numbering) -> Any:
    """An operand in the order of the vertices: a Series of pandas is aligned by its index."""
    if isinstance(value, Column):
        if here.keys is None or value._held.numbering.keys is here.keys:
            return value
        raise InvalidOption(f"an operand is a result of epoch {value.epoch}, when the graph had other vertices")
    if not is_series(value):
        return value
    ids = here.ids(value.index, "the index of an operand")
    if len(ids) != here.n_vertices or len(np.unique(ids)) != len(ids):
        raise InvalidOption(f"the index of an operand has {len(ids)} rows; it must name each vertex once")
    ordered = np.empty_like(value.to_numpy())
    ordered[ids] = value.to_numpy()
    return ordered


def check_whole(axis: Any, out: Any) -> None:
    """`InvalidOption` unless all values are asked for as one number."""
    if axis is not None or out is not None:
        raise InvalidOption(f"axis is {axis!r} and out {out!r}; a result is reduced whole, to a number")
