"""Fixed points of sums over in-neighbours: the loop on the ranks, the check of its arguments, and its warning."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import GraphFacts, Runs, Shard, VertexData, incoming
from mgraph.algorithms.primitives.gather.reduction import Reduction, reduction_kernels
from mgraph.algorithms.primitives.user_ids import user_id
from mgraph.algorithms.primitives.vectors import distance, vector_kernels
from mgraph.checks import check_number, check_weight, check_whole
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.facade import warn

__all__ = [
    "SCALARS",
    "TakesVertexNumbers",
    "check_loop",
    "iterate",
    "neighbor_sums",
    "vertex_argument",
    "warm",
    "warned",
]

T_co = TypeVar("T_co", covariant=True)

SCALARS = ("iterations", "error", "converged", "growing")
EDGES = {False: "value", True: "(value * weight)"}  #: in C++, by whether weights count
ROUNDING = 1e-9  #: share of the values' sum: smaller changes do not show whether it converges
NO_EDGE = 2**64 - 1


class TakesVertexNumbers(Runs[T_co], Protocol[T_co]):
    """A graph whose methods take numbers by vertex."""

    def _by_vertex(self, values: Any, name: str, mean: bool = False) -> Any: ...


def check_loop(graph: GraphFacts, what: str, max_iter: Any, tol: Any, weight: Any) -> dict[str, Any]:
    """Return the arguments of `iterate`.

    Raises `InvalidOption` if `max_iter` is less than 1, `tol` is negative or not finite, or the graph lacks weights or
    in-edges.
    """
    if (most := check_whole(max_iter, "max_iter")) == 0:
        raise InvalidOption(f"max_iter is {max_iter}; it must be 1 or more")
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")
    by_weight = check_weight(weight, graph.weighted)
    if not graph.reverse:
        raise InvalidOption(f"{what} needs in-edges; create the graph with reverse=True, or directed=False")
    return {"max_iter": min(most, sys.maxsize), "tol": float(tol), "weight": by_weight}


def vertex_argument(values: Any) -> float | VertexData:
    """Return checked numbers by vertex as an argument of a program."""
    return float(values) if isinstance(values, int | float) else VertexData(values)


def warm(shard: Shard) -> None:
    """Compile the kernels of `neighbor_sums` for this shard, without weights."""
    if shard.in_edges is not None:
        reduction_kernels(shard, shard.in_edges, EDGES[False])
    vector_kernels(shard.device)


def neighbor_sums(shard: Shard, what: str, start: Array | float, weight: bool) -> tuple[Reduction, Array]:
    """Return the sums over in-neighbours, and the starting vector, float64 or, if `start` is float32, that."""
    bits = 32 if not isinstance(start, float) and start.dtype == np.float32 else 64
    sums, rows = Reduction(shard, incoming(shard, what), EDGES[weight], bits=bits), shard.hi - shard.lo
    x = shard.device.empty(rows, sums.dtype)
    x[:] = start if isinstance(start, float) else shard.device.asarray(start, sums.dtype)
    return sums, x


@np.errstate(all="ignore")  # the change shows whether a value has left its range
def iterate(
    shard: Shard, step: Callable[[Array], Array], x: Array, max_iter: int, tol: float, weight: bool
) -> tuple[Array, dict[str, Any]]:
    """Repeat ``x = step(x)`` until the L1 change of all ranks is less than ``n_vertices * tol``, `max_iter` times.

    Returns the last x and the `SCALARS`. An iteration has a read-back and an allreduce besides its step. Raises
    `InvalidOption` on every rank if a value exceeds the range of its dtype, because of infinite weights or growth.
    """
    # Iterate.
    error, before, steps, bound = math.inf, math.inf, 0, max(shard.n_vertices, 1) * tol
    while steps < max_iter and not error < bound:
        last, x = x, step(x)
        error, before, steps = distance(shard, last, x), error, steps + 1
        if not math.isfinite(error):
            if weight:
                _refuse_infinite_weight(shard)
            raise InvalidOption(
                f"iteration {steps} gave a value that is no finite number: values that it begins with must be finite, "
                "and their sums; or it grows without limit, as Katz centrality does where alpha is too large"
            )
    # Near the rounding error changes need not get smaller.
    growing = not error < bound and error >= before
    growing = growing and error > ROUNDING * distance(shard, x, shard.device.zeros(len(x), x.dtype))
    return x, {"iterations": steps, "error": error, "converged": error < bound, "growing": growing}


def _refuse_infinite_weight(shard: Shard) -> None:
    """Raise `InvalidOption` on every rank, naming the edge, if a weight is infinite or NaN."""
    tails = Reduction(shard, incoming(shard, ""), "(MATH(fabs)(weight) < 3.5e38 ? -1.0 : u)", "max", named=True).of(0.0)
    rows = np.flatnonzero(Device.to_host(tails) >= 0)[:1]
    edge = np.array([NO_EDGE if len(rows) == 0 else (shard.lo + int(rows[0])) << 32], np.uint64)
    if len(rows):
        edge |= np.uint64(Device.to_host(tails)[rows[0]])
    first = int(shard.exchange.allreduce(edge, "min")[0])
    if first != NO_EDGE:
        text = "the edge from {} to {} has an infinite weight, or NaN; weights must be finite"
        raise InvalidOption.about(text, first & 0xFFFFFFFF, user_id(shard, first >> 32))


def warned(result: Any) -> Any:
    """Return a result of `iterate`, after a warning if its values grow."""
    if result.growing:
        warn(
            f"no convergence: iteration {result.iterations} changed the values by {result.error:.3g}, and the one "
            "before by no more; values grow without limit where alpha is too large",
            RuntimeWarning,
        )
    return result
