"""Fixed-point loop of algorithms that are written with `gather`, and the protocol of their graph."""

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

ROUNDING = 1e-9  #: share of the values' sum: smaller changes do not show whether it converges


class Gathers(Runs[Result_co], Protocol[Result_co]):
    """A graph with the method `gather`.

    `Result_co` is the type of its algorithms' results.
    """

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
    """Check a method's arguments, and return the expression of a neighbour's value, weighted on demand.

    Raises `InvalidOption` if `max_iter` is less than 1, `tol` is negative or not finite, or the graph lacks weights or
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
    """Return `x` scaled to a Euclidean norm of 1.

    First by its largest value, whose square may exceed float64.
    """
    x = x / (x.norm(math.inf) or 1)
    return x / (x.norm() or 1)


def iterate(
    graph: Gathers[Any], step: Callable[[Any], Any], x: Any, max_iter: int, tol: float, weight: bool
) -> tuple[Any, dict[str, Any]]:
    """Repeat ``x = step(x)`` until the L1 change is less than ``num_vertices * tol``, at most `max_iter` times.

    Returns the last x, and ``iterations``, ``error``, the last change, and ``converged``. Raises `InvalidOption` if a
    value exceeds the range of its dtype, because of infinite weights or growth. Warns if changes do not get smaller.
    """
    # Iterate.
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
    # Warn of divergence. Near the rounding error changes need not get smaller.
    if not error < bound and error >= before and error > ROUNDING * x.norm(1):
        warn(
            f"no convergence: iteration {steps} changed the values by {error:.3g} and the one before by {before:.3g}; "
            "values grow without limit where alpha is too large",
            RuntimeWarning,
        )
    return x, {"iterations": steps, "error": error, "converged": error < bound}


def _refuse_infinite_weight(graph: Gathers[Any], weight: bool) -> None:
    """Raise `InvalidOption`, naming the edge, if weights count and one is infinite.

    One `gather`.
    """
    if not weight:
        return
    [(v, u)] = graph.gather(0, "max", "u if abs(weight) > 3.5e38 else -1").top(1)
    if u >= 0:
        tail = shown(graph.vertices()[int(u)])
        raise InvalidOption(f"the edge from {tail} to {shown(v)} has an infinite weight; weights must be finite")
