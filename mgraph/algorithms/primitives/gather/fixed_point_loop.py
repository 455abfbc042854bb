"""What algorithms that are written with `gather` share: the graph that they are methods of, and the loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Runs
from mgraph.checks import check_number, check_whole
from mgraph.errors import InvalidOption
from mgraph.facade import warn
from mgraph.tables.arrays import shown

__all__ = ["Gathers", "checked_edge", "iterate", "unit"]

Result_co = TypeVar("Result_co", covariant=True)

ROUNDING = 1e-9  #: of the values' sum: a smaller change says nothing about convergence


class Gathers(Runs[Result_co], Protocol[Result_co]):
    """A graph with the method `gather`. `Result_co` is what its algorithms return."""

    @property
    def num_vertices(self) -> int: ...  # noqa: D102
    @property
    def reverse(self) -> bool: ...  # noqa: D102
    @property
    def weighted(self) -> bool: ...  # noqa: D102
    def gather(self, values: Any, reduce: str = "sum", edge: str = "value", direction: str = "in") -> Any: ...  # noqa: D102
    def vertices(self) -> np.ndarray: ...  # noqa: D102
    def _by_vertex(self, values: Any, name: str, mean: bool = False) -> Any: ...


def checked_edge(graph: Gathers[Any], what: str, max_iter: int, tol: float, weight: bool) -> str:
    """What a neighbour adds to a sum: its value, by the edge's weight if that counts; for the method `what`.

    `InvalidOption` if `max_iter` is less than 1, `tol` is negative or not finite, or the graph lacks weights or
    in-edges.
    """
    if check_whole(max_iter, "max_iter") == 0:
        raise InvalidOption(f"max_iter is {max_iter}; it must be 1 or more")
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")
    if weight and not graph.weighted:
        raise InvalidOption("weight=True needs weights; create the graph with weighted=True")
    if not graph.reverse:
        raise InvalidOption(f"{what} needs in-edges; create the graph with reverse=True, or directed=False")
    return "value * weight" if weight else "value"


def unit(x: Any) -> Any:
    """Return `x`, scaled to a Euclidean norm of 1; first by its largest value, whose square may be past float64."""
    x = x / (x.norm(math.inf) or 1)
    return x / (x.norm() or 1)


def iterate(
    graph: Gathers[Any], step: Callable[[Any], Any], x: Any, max_iter: int, tol: float, weight: bool
) -> tuple[Any, dict[str, Any]]:
    """``x = step(x)`` until it changes by less than ``num_vertices * tol`` in the L1 norm, at most `max_iter` times.

    Returns the last x, and ``iterations``, ``error``, the last change, and ``converged``. `InvalidOption` where a value
    is past the range of its dtype, as infinite weights and growth make it. Warns of changes that do not get smaller.
    """
    error, before, steps, bound = math.inf, math.inf, 0, max(graph.num_vertices, 1) * tol
    while steps < max_iter and not error < bound:
        last, x = x, step(x)
        error, before, steps = (x - last).norm(1), error, steps + 1
        if not math.isfinite(error):
            _refuse_infinite_weight(graph, weight)
            raise InvalidOption(
                f"iteration {steps} gave a value that is no finite number: values that it begins with must be finite; "
                "or it grows without limit, as where alpha is too large"
            )
    # near the rounding error changes need not get smaller
    if not error < bound and error >= before and error > ROUNDING * x.norm(1):
        warn(
            f"no convergence: iteration {steps} changed the values by {error:.3g} and the one before by {before:.3g}; "
            "values grow without limit where alpha is too large",
            RuntimeWarning,
        )
    return x, {"iterations": steps, "error": error, "converged": error < bound}


def _refuse_infinite_weight(graph: Gathers[Any], weight: bool) -> None:
    """`InvalidOption`, naming the edge, if weights count and one is infinite. One `gather`."""
    if not weight:
        return
    [(v, u)] = graph.gather(0, "max", "u if abs(weight) > 3.5e38 else -1").top(1)
    if u >= 0:
        tail = shown(graph.vertices()[int(u)])
        raise InvalidOption(f"the edge from {tail} to {shown(v)} has an infinite weight; weights must be finite")
