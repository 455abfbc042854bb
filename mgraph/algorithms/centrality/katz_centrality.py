"""The method `katz_centrality` that users call, written with `gather`."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from mgraph.algorithms.primitives.gather.fixed_point_loop import Gathers, checked_edge, iterate, unit
from mgraph.checks import check_number
from mgraph.errors import InvalidOption

__all__ = ["katz_centrality"]


T = TypeVar("T")


def katz_centrality(
    self: Gathers[T],
    alpha: float = 0.1,
    beta: Any = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-6,
    nstart: Any = None,
    normalized: bool = True,
    weight: bool = False,
) -> T:
    """The Katz centrality of each vertex: `beta` plus `alpha` times that of its in-neighbours; on the workers.

    Parameters
    ----------
    alpha : float
        How much of a neighbour's value counts. It converges if this is below 1 / the largest eigenvalue; a warning says
        where it does not.
    beta : float, result, mapping, pandas.Series, or array of `num_vertices` numbers
        What each vertex has by itself; 0 for those that a mapping or the index of a Series does not name.
    max_iter : int
        The largest number of iterations, 1 or more.
    tol : float
        Stop when the values change by less than ``num_vertices * tol`` in total, as NetworkX does.
    nstart : result, mapping, pandas.Series, or array of `num_vertices` numbers, optional
        The values to begin with; 0 by default. Vertices that a mapping does not name begin with 0, and those that the
        index of a Series does not name with the mean.
    normalized : bool
        Whether to scale the values to a Euclidean norm of 1.
    weight : bool
        Whether edges count by their weights.

    Returns
    -------
    VertexValues
        float64 (float32 if `nstart` is a result of float32), with ``.iterations``, ``.error``, the last change, and
        ``.converged``.

    Raises
    ------
    InvalidOption
        An argument is out of its range, the graph is directed and has no in-edges, or has no weights and needs them; or
        values are past the range of float64, by an infinite weight, which the message names, or by growth.
    UnknownVertex
        A mapping or a Series names what is not a vertex of the graph.
    CapacityError
        A worker has too little memory: 48 bytes for each of its vertices, and what `gather` takes.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The values are the limit of ``x = alpha A^T x + beta`` [1]_. An iteration is a `gather`, O(n + m), and four calls of
    O(n). It has one superstep, in which each worker receives 8 bytes a vertex of the whole graph, or 4 if `nstart` is a
    result of float32; the other calls send numbers only, but for a `beta` in this process. If the graph changes
    meanwhile, the next iteration is of the new graph.

    References
    ----------
    .. [1] L. Katz, "A new status index derived from sociometric analysis", Psychometrika 18, 1953.

    Examples
    --------
    >>> g.insert([0, 1], [1, 2])  # of 3 vertices, with reverse=True  # doctest: +SKIP
    >>> g.katz_centrality(normalized=False).to_numpy()  # doctest: +SKIP
    array([1.  , 1.1 , 1.11])
    """
    alpha = check_number(alpha, "alpha")
    if not math.isfinite(alpha):
        raise InvalidOption(f"alpha is {alpha}; it must be finite")
    edge = checked_edge(self, "katz_centrality", max_iter, tol, weight)
    own = self._by_vertex(beta, "beta")
    start = 0.0 if nstart is None else self._by_vertex(nstart, "nstart", mean=True)
    x, info = iterate(self, lambda x: alpha * self.gather(x, edge=edge) + own, start, max_iter, tol, weight)
    found: T = (unit(x) if normalized else x).named("katz_centrality", **info)
    return found
