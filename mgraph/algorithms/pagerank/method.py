"""The method `pagerank` that users call, and the check of its arguments."""

from __future__ import annotations

import math
import sys
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData
from mgraph.algorithms.pagerank.program import run, warm
from mgraph.checks import check_float, check_number, check_whole
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "pagerank"]

T = TypeVar("T")


def pagerank(
    self: Runs[T],
    alpha: float = 0.85,
    tol: float = 1e-6,
    max_iter: int = 100,
    start: Any = None,
    dtype: Any = "float32",
) -> T:
    """The PageRank of each vertex by power iteration: values that sum to 1, on the workers. Weights are ignored.

    Parameters
    ----------
    alpha : float
        The probability of following an edge (damping factor), above 0 and below 1.
    tol : float
        The tolerance, 0 or more. If the result is ``.converged``, its L1 distance to the exact ranks is at most
        ``alpha / (1 - alpha) * tol`` plus rounding. Rounding is 1e-7 with float32 (measured for `alpha` up to 0.999)
        and 1e-12 with float64 (measured up to 0.99; it grows with ``1 / (1 - alpha)``). NetworkX has another rule: it
        multiplies its tol by the number of vertices. With 0, exactly `max_iter` iterations are done.
    max_iter : int
        The largest number of iterations, 0 or more.
    start : result of an earlier ``pagerank``, or array of at most `num_vertices` numbers, optional
        The ranks to begin with, which are scaled to sum to 1. Ranks of an earlier epoch save iterations. A result of
        this graph stays on the workers, unless the graph was reordered since. Such a result, and an array, are sent
        through this process. Vertices that were added since begin with the mean.
    dtype : "float32" | "float64", or a NumPy dtype
        The dtype of the result. "float64" allows a `tol` down to 1e-12, and moves four times as many bytes.

    Returns
    -------
    VertexValues
        The ranks, with ``.iterations``, the number of iterations done; ``.error``, the value that is compared with
        `tol`; and ``.converged``, whether it is less than `tol`.

    Raises
    ------
    InvalidOption
        An argument is out of its range, or `start` has negative or infinite values or NaN, is too long or sums to 0.
    GraphClosed
        `start` is a result that was closed.
    CapacityError
        A worker has too little memory; `mgraph.algorithms.pagerank.program.run` lists what it needs.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) an iteration. With float32 and a `tol` of 1e-7 or more, vertices send only the changes of their ranks, cut
    to 16 bits, which is fastest. The limit is the same, but iterates before convergence, as with a small `max_iter`,
    differ from those of the power iteration by up to 1%. With a smaller `tol`, or 0, the k-th iterate is that of the
    power iteration up to 1e-4 relative, and with float64 up to rounding.

    Examples
    --------
    >>> g.pagerank(tol=1e-7).top(2)  # doctest: +SKIP
    [(3, 0.41), (1, 0.22)]
    """
    return self.run("pagerank", alpha=alpha, tol=tol, max_iter=max_iter, start=start, dtype=dtype)


def check(
    graph: GraphFacts,
    alpha: Any = 0.85,
    tol: Any = 1e-6,
    max_iter: Any = 100,
    start: Any = None,
    dtype: Any = "float32",
) -> dict[str, Any]:
    """The program's arguments from the user's."""
    if not 0 < check_number(alpha, "alpha") < 1:
        raise InvalidOption(f"alpha is {alpha}; it must be above 0 and below 1")
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")
    most = min(check_whole(max_iter, "max_iter"), sys.maxsize)
    given = {} if start is None else {"start": VertexData(start)}
    return {"alpha": float(alpha), "tol": float(tol), "max_iter": most, "dtype": check_float(dtype, "dtype"), **given}


ALGORITHM = Algorithm(
    name="pagerank",
    check=check,
    run=run,
    columns={"rank": "value"},
    scalars=("iterations", "error", "converged"),
    warm=warm,
)
