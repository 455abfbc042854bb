"""Checks of the arguments of multilevel methods."""

from __future__ import annotations

import math
from typing import Any

from mgraph.algorithms.algorithm import GraphFacts
from mgraph.checks import check_number, check_whole
from mgraph.errors import InvalidOption

__all__ = ["check_levels", "check_resolution", "check_reverse"]

MOST_LEVELS = 50  #: 3 to 15 are usual


def check_reverse(graph: GraphFacts, what: str) -> None:
    """Raise `InvalidOption`, naming `what`, if the graph is directed and has no in-edges."""
    if not graph.reverse:
        raise InvalidOption(
            f"{what} of a directed graph needs in-edges; create the graph with reverse=True, or with directed=False"
        )


def check_resolution(value: Any) -> float:
    """Return `value` as a float. Raises `InvalidOption` unless it is a finite number of 0 or more."""
    if not 0 <= check_number(value, "resolution") < math.inf:
        raise InvalidOption(f"resolution is {value}; it must be finite and 0 or more")
    return float(value)


def check_levels(value: Any) -> int:
    """Return the largest number of levels. Raises `InvalidOption` unless `value` is None, or 1 or more."""
    if value is None:
        return MOST_LEVELS
    if check_whole(value, "max_levels") == 0:
        raise InvalidOption("max_levels is 0; it must be 1 or more, or None")
    return min(int(value), MOST_LEVELS)
