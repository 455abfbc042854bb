"""What algorithms that are written with `gather` share: the graph that they are methods of, and the loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from mgraph.checks import check_number, check_whole
from mgraph.errors import InvalidOption

__all__ = ["Gathers", "edge_of", "iterate", "unit"]


class Gathers(Protocol):
    """A graph with the method `gather`."""

    @property
    def num_vertices(self) -> int: ...  # noqa: D102
    @property
    def weighted(self) -> bool: ...  # noqa: D102
    def gather(self, values: Any, reduce: str = "sum", edge: str = "value", direction: str = "in") -> Any: ...  # noqa: D102


def edge_of(weight: bool) -> str:
    """What a neighbour adds to a sum: its value, by the edge's weight if that counts."""
    return "value * weight" if weight else "value"


def unit(x: Any) -> Any:
    """`x`, scaled to a Euclidean norm of 1."""
    return x / (x.norm() or 1)


def iterate(step: Callable[[Any], Any], x: Any, max_iter: int, tol: float, n: int) -> tuple[Any, dict[str, Any]]:
    """``x = step(x)`` until it changes by less than ``n * tol`` in the L1 norm, at most `max_iter` times.

    Returns the last x, and ``iterations``, ``error``, the last change, and ``converged``. `InvalidOption` if `max_iter`
    is less than 1, or `tol` is negative or not finite, or where a value is NaN, as infinite weights and growth make it.
    """
    if check_whole(max_iter, "max_iter") == 0:
        raise InvalidOption(f"max_iter is {max_iter}; it must be 1 or more")
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")
    error, steps, bound = math.inf, 0, n * tol
    while steps < max_iter and not error < bound:
        last, x = x, step(x)
        error, steps = (x - last).norm(1), steps + 1
        if math.isnan(error):
            raise InvalidOption(
                f"iteration {steps} gave a value that is no number: weights must be finite, and so must values that "
                "it begins with; or it grows without limit, as where alpha is too large"
            )
    return x, {"iterations": steps, "error": error, "converged": error < bound}
