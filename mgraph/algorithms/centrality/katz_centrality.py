"""Katz centrality: a fixed point of sums over in-neighbours, on the ranks."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Shard
from mgraph.algorithms.primitives.gather.fixed_point_loop import (
    SCALARS,
    TakesVertexNumbers,
    check_loop,
    iterate,
    neighbor_sums,
    vertex_argument,
    warm,
    warned,
)
from mgraph.algorithms.primitives.vectors import dot, unit
from mgraph.checks import check_flag, check_number
from mgraph.device import Array
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "katz_centrality"]


T = TypeVar("T")


def katz_centrality(
    self: TakesVertexNumbers[T],
    alpha: float = 0.1,
    beta: Any = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-6,
    nstart: Any = None,
    normalized: bool = True,
    weight: bool = False,
) -> T:
    """Compute the Katz centrality of each vertex: `beta` plus `alpha` times its in-neighbours' sum.

    The result is on the workers.

    Parameters
    ----------
    alpha : float
        The factor of a neighbour's value. The iteration converges if it is below 1 / the largest eigenvalue; a warning
        says where it does not.
    beta : float, result, mapping, pandas.Series, or array of `num_vertices` numbers
        The value of each vertex by itself; 0 for those missing in a mapping or a Series.
    max_iter : int
        The largest number of iterations, 1 or more.
    tol : float
        Stop when the values change by less than ``num_vertices * tol`` in total, like NetworkX.
    nstart : result, mapping, pandas.Series, or array of `num_vertices` numbers, optional
        The starting vector; 0 by default. Vertices that are missing in a mapping begin with 0, and those missing in a
        Series with the mean.
    normalized : bool
        Scale the values to a Euclidean norm of 1.
    weight : bool
        Count edges by their weights.

    Returns
    -------
    VertexValues
        float64 (float32 if `nstart` is a result of float32), with ``.iterations``, ``.error``, the last change,
        ``.converged``, and ``.growing``, True if the changes do not get smaller.

    Raises
    ------
    InvalidOption
        An argument is out of its range, the graph is directed and has no in-edges, or has no weights and needs them; or
        values exceed float64, because of an infinite weight, which the message names, or by growth.
    UnknownVertex
        A mapping or a Series names an unknown vertex.
    CapacityError
        A worker has too little memory: 48 bytes per own vertex, and the memory of `gather`.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The values are the limit of ``x = alpha A^T x + beta`` [1]_. An iteration is O(n + m), on the workers. In it each
    worker receives 8 bytes per vertex of the whole graph, or 4 if `nstart` is a result of float32, and a number.

    References
    ----------
    .. [1] L. Katz, "A new status index derived from sociometric analysis", Psychometrika 18, 1953.

    Examples
    --------
    >>> g.insert([0, 1], [1, 2])  # of 3 vertices, with reverse=True  # doctest: +SKIP
    >>> g.katz_centrality(normalized=False).to_numpy()  # doctest: +SKIP
    array([1.  , 1.1 , 1.11])
    """
    own = self._by_vertex(beta, "beta")
    start = 0.0 if nstart is None else self._by_vertex(nstart, "nstart", mean=True)
    options = {"max_iter": max_iter, "tol": tol, "nstart": start, "normalized": normalized, "weight": weight}
    result: T = warned(self.run("katz_centrality", alpha=alpha, beta=own, **options))
    return result


def check(
    graph: GraphFacts, alpha: Any = 0.1, beta: Any = 1.0, max_iter: Any = 1000, tol: Any = 1e-6, nstart: Any = 0.0,
    normalized: Any = True, weight: Any = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the program's arguments."""
    if not math.isfinite(check_number(alpha, "alpha")):
        raise InvalidOption(f"alpha is {alpha}; it must be finite")
    loop = check_loop(graph, "katz_centrality", max_iter, tol, weight)
    vectors = {"beta": vertex_argument(beta), "nstart": vertex_argument(nstart)}
    return {**loop, **vectors, "alpha": float(alpha), "normalized": check_flag(normalized, "normalized")}


def run(
    shard: Shard, alpha: float, beta: Array | float, nstart: Array | float, normalized: bool, max_iter: int, tol: float,
    weight: bool,
) -> Columns:  # fmt: skip
    """Return the centrality of each own vertex, in the column "katz_centrality", and the scalars of the loop.

    Raises `InvalidOption` on every rank if values leave their dtype's range.
    """
    sums, x = neighbor_sums(shard, "katz_centrality", nstart, weight)
    own = beta if isinstance(beta, float) else shard.device.asarray(beta, sums.dtype)

    def step(x: Array) -> Array:
        """Return alpha A^T x + beta."""
        following = sums.of(x)
        following *= alpha
        following += own
        return following

    x, info = iterate(shard, step, x, max_iter, tol, weight)
    return {"katz_centrality": unit(shard, x, dot(shard, x, x)) if normalized else x}, info


ALGORITHM = Algorithm(
    name="katz_centrality", check=check, run=run, columns={"katz_centrality": "value"}, scalars=SCALARS, warm=warm
)
