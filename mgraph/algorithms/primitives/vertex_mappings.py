"""Numbers that users give together with the vertices that they belong to: in a mapping, or in a Series of pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import GraphFacts
from mgraph.checks import check_number, is_series
from mgraph.columns import shown
from mgraph.errors import InvalidOption

__all__ = ["begun", "filled", "is_named", "numbers", "pairs"]


def is_named(given: Any) -> bool:
    """Whether numbers come with their vertices."""
    return isinstance(given, Mapping) or is_series(given)


def pairs(given: Any, graph: GraphFacts, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The vertices and the numbers of what `is_named`: uint32[k] and float64[k]. Errors name the argument `name`."""
    if isinstance(given, Mapping):
        ids = graph.vertices(list(given), name)
        return ids, np.array([check_number(value, f"{name}[{vertex}]") for vertex, value in given.items()], np.float64)
    if not given.index.is_unique:
        raise InvalidOption(f"the index of {name} has {shown(given.index[given.index.duplicated()][0])} more than once")
    return graph.vertices(given.index, f"the index of {name}"), numbers(given, name)


def numbers(given: Any, name: str) -> np.ndarray:
    """An array of numbers as float64; `InvalidOption` if it is none."""
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InvalidOption(f"{name} is not an array of numbers") from None


def filled(given: Any, graph: GraphFacts, name: str, mean: bool = False) -> np.ndarray:
    """What `is_named` as an array with a number for each vertex: float64[n_vertices].

    Vertices that it does not name have 0; or, with `mean`, those that a Series does not name have its mean.
    """
    ids, values = pairs(given, graph, name)
    array = np.full(graph.n_vertices, values.mean() if mean and is_series(given) else 0.0)
    array[ids] = values
    return array


def begun(graph: GraphFacts, start: Any, nstart: Any) -> tuple[str, Any]:
    """What a computation begins with, None for nothing, after the name that the user gave it; a mapping as an array.

    `InvalidOption` if both names are given.
    """
    if start is not None and nstart is not None:
        raise InvalidOption("start and nstart are two names of one argument; give one of them")
    name, first = ("start", start) if nstart is None else ("nstart", nstart)
    return name, filled(first, graph, name) if isinstance(first, Mapping) else first
