"""Checks of the arguments of multilevel methods."""

from __future__ import annotations

from typing import Any

from mgraph.algorithms.algorithm import GraphFacts
from mgraph.checks import check_number, check_whole
from mgraph.errors import InvalidOption

__all__ = ["check_arguments", "check_resolution"]

MOST_LEVELS = 50  #: 3 to 15 are usual
MOST = 1e100  #: resolution, so that its products with any weights stay in the range of float64


def check_arguments(graph: GraphFacts, what: str, resolution: Any, max_levels: Any, seed: Any) -> dict[str, Any]:
    """Return the arguments that the programs share, after checks.

    Raises `InvalidOption` that names `what` if the graph is directed and has no in-edges, or an argument that is out of
    its range.
    """
    if not graph.reverse:
        raise InvalidOption(
            f"{what} of a directed graph needs in-edges; create the graph with reverse=True, or with directed=False"
        )
    resolution = check_resolution(resolution)
    if max_levels is not None and check_whole(max_levels, "max_levels") == 0:
        raise InvalidOption("max_levels is 0; it must be 1 or more, or None")
    return {
        "resolution": resolution,
        "max_levels": MOST_LEVELS if max_levels is None else min(int(max_levels), MOST_LEVELS),
        "seed": 0 if seed is None else check_whole(seed, "seed") % 2**64,
    }


def check_resolution(value: Any) -> float:
    """Return `value` as a float. Raises `InvalidOption` unless it is a number from 0 to `MOST`."""
    if not 0 <= check_number(value, "resolution") <= MOST:
        raise InvalidOption(f"resolution is {value}; it must be from 0 to {MOST}")
    return float(value)
