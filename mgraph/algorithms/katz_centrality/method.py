"""The method `katz_centrality` that users call, written with `gather`."""

from __future__ import annotations

import math
from typing import Any

from mgraph.algorithms.gather.iteration import Gathers, edge_of, iterate, unit
from mgraph.checks import check_number
from mgraph.errors import InvalidOption

__all__ = ["katz_centrality"]


def katz_centrality(
    self: Gathers,
    alpha: float = 0.1,
    beta: Any = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-6,
    nstart: Any = None,
    normalized: bool = True,
    weight: bool = False,
) -> Any:
    """The Katz centrality of each vertex: `beta` plus `alpha` times that of its in-neighbours; on the workers.

    Parameters
    ----------
    alpha : float
        How much of a neighbour's value counts. It converges if this is below 1 / the largest eigenvalue.
    beta : float, or result or array of `num_vertices` numbers
        What each vertex has by itself.
    max_iter : int
        The largest number of iterations, 1 or more.
    tol : float
        Stop when the values change by less than ``num_vertices * tol`` in total, as NetworkX does.
    nstart : result or array of `num_vertices` numbers, optional
        The values to begin with; 0 by default.
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
        values become NaN, by infinite weights or past the range of float64.
    CapacityError
        A worker has too little memory: 48 bytes for each of its vertices, and what `gather` takes.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The values are the limit of ``x = alpha A^T x + beta`` [1]_. An iteration is a `gather`, O(n + m), and four calls of
    O(n). If the graph changes meanwhile, the next iteration is of the new graph.

    References
    ----------
    .. [1] L. Katz, "A new status index derived from sociometric analysis", Psychometrika 18, 1953.

    Examples
    --------
    >>> g.insert([0, 1], [1, 2])  # of 3 vertices, with reverse=True  # doctest: +SKIP
    >>> g.katz_centrality(normalized=False).to_numpy()  # doctest: +SKIP
    array([1.  , 1.1 , 1.11])
    """
    n, edge, alpha = max(self.num_vertices, 1), edge_of(weight), check_number(alpha, "alpha")
    if not math.isfinite(alpha):
        raise InvalidOption(f"alpha is {alpha}; it must be finite")
    start = 0.0 if nstart is None else nstart
    x, info = iterate(lambda x: alpha * self.gather(x, edge=edge) + beta, start, max_iter, tol, n)
    return (unit(x) if normalized else x).named("katz_centrality", **info)
