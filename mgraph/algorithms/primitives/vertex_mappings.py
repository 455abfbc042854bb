"""Numbers by vertex from users: in a mapping, or in a Series of pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import GraphFacts
from mgraph.checks import check_number, is_series
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.tables.arrays import as_numbers, shown

__all__ = ["is_mapping", "mapping_array", "numbers", "pairs", "starting_vector"]


def is_mapping(argument: Any) -> bool:
    """Return True if numbers come with their vertices."""
    return isinstance(argument, Mapping) or is_series(argument)


def pairs(argument: Any, graph: GraphFacts, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the vertices and the numbers of a mapping: uint32[k] and float64[k].

    Errors name the argument `name`.
    """
    if isinstance(argument, Mapping):
        ids = graph.vertices(list(argument), name)
        return ids, np.array(
            [check_number(value, f"{name}[{vertex}]") for vertex, value in argument.items()], np.float64
        )
    if not argument.index.is_unique:
        raise InvalidOption(
            f"the index of {name} has {shown(argument.index[argument.index.duplicated()][0])} more than once"
        )
    return graph.vertices(argument.index, f"the index of {name}"), numbers(argument, name)


def numbers(argument: Any, name: str) -> np.ndarray:
    """Return numbers as float64, in host memory. Raises the errors of `as_numbers`."""
    return np.asarray(Device.to_host(as_numbers(argument, name)), np.float64)


def mapping_array(argument: Any, graph: GraphFacts, name: str, mean: bool = False) -> np.ndarray:
    """Return the array of a mapping, with a number per vertex: float64[n_vertices].

    Missing vertices have 0; with `mean`, those missing in a Series have its mean.
    """
    ids, values = pairs(argument, graph, name)
    array = np.full(graph.n_vertices, values.mean() if mean and is_series(argument) else 0.0)
    array[ids] = values
    return array


def starting_vector(graph: GraphFacts, start: Any, nstart: Any) -> tuple[str, Any]:
    """Return the name, `start` or `nstart`, of the starting vector, and the vector.

    Mappings become arrays; None stays. Raises `InvalidOption` if both names are given.
    """
    if start is not None and nstart is not None:
        raise InvalidOption("start and nstart are two names of one argument; give one of them")
    name, first = ("start", start) if nstart is None else ("nstart", nstart)
    return name, mapping_array(first, graph, name) if isinstance(first, Mapping) else first
