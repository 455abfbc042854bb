"""Users' numbers for algorithms written with `gather`: numbers, arrays, mappings, Series and results."""

from __future__ import annotations

from numbers import Real
from typing import Any

from mgraph.algorithms.primitives.vertex_mappings import is_mapping, mapping_array
from mgraph.checks import check_number
from mgraph.client.results.results import VertexRows, VertexValues
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.tables.arrays import as_numbers

__all__ = ["by_vertex"]


def by_vertex(self: Any, values: Any, name: str, mean: bool = False) -> Any:
    """Return the argument `name` as a number, a result, or an array with a number for each vertex.

    In a mapping or a Series of pandas, a vertex without a number gets 0; with `mean`, the mean of a Series.
    `InvalidOption` and `UnknownVertex` name the argument.
    """
    if is_mapping(values):
        facts = self._options.facts
        return self._directory.read(lambda now: mapping_array(values, facts(now), name, mean))
    n = self.num_vertices
    if isinstance(values, VertexValues):
        if isinstance(values, VertexRows) or len(values) != n:
            kind = "several rows" if isinstance(values, VertexRows) else f"{len(values)} numbers"
            raise InvalidOption(f"{name} has {kind}; it must have one number for each of {n} vertices")
        return values
    return _number_or_array(values, name, n)


def _number_or_array(values: Any, name: str, n: int) -> Any:
    if hasattr(values, "item") and getattr(values, "ndim", 1) == 0:  # a dtype has no dimensions either
        values = values.item()
    if isinstance(values, Real):
        return check_number(values, name)
    if not hasattr(values, "__len__") or isinstance(values, str | bytes):
        raise InvalidOption(f"{name} is {values!r}; it must be a number, mapping, result or array of {n} numbers")

    # Not a number: an array with a number for each vertex.
    array = Device.to_host(as_numbers(values, name))
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) != n:
        raise InvalidOption(
            f"{name} has shape {array.shape} and dtype {array.dtype}; it must have one number for each of {n} vertices"
        )
    return array
