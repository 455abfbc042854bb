"""The method `eigenvector_centrality` that users call, written with `gather`."""

from __future__ import annotations

from typing import Any

from mgraph.algorithms.gather.iteration import Gathers, edge_of, iterate, unit
from mgraph.errors import InvalidOption

__all__ = ["eigenvector_centrality"]


def eigenvector_centrality(
    self: Gathers, max_iter: int = 100, tol: float = 1e-6, nstart: Any = None, weight: bool = False
) -> Any:
    """The eigenvector centrality of each vertex: large if its in-neighbours' are; of Euclidean norm 1, on the workers.

    Parameters
    ----------
    max_iter : int
        The largest number of iterations, 1 or more.
    tol : float
        Stop when the values change by less than ``num_vertices * tol`` in total, as NetworkX does.
    nstart : result or array of `num_vertices` numbers, optional
        The values to begin with; all alike by default.
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
        An argument is out of its range, the graph is directed and has no in-edges, or has no weights and needs them;
        values become NaN, by infinite weights or past the range of float64; or all become 0, as from an `nstart` of 0.
    CapacityError
        A worker has too little memory: 48 bytes for each of its vertices, and what `gather` takes.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The power iteration with the adjacency matrix plus the identity [1]_. An iteration is a `gather`, O(n + m), and five
    calls of O(n). If the graph changes meanwhile, the next iteration is of the new graph.

    References
    ----------
    .. [1] P. Bonacich, "Power and centrality: a family of measures", American Journal of Sociology 92, 1987.

    Examples
    --------
    >>> g.insert([0, 1, 2], [1, 2, 0])  # with directed=False  # doctest: +SKIP
    >>> g.eigenvector_centrality().to_numpy()  # doctest: +SKIP
    array([0.57735027, 0.57735027, 0.57735027])
    """
    n, edge = max(self.num_vertices, 1), edge_of(weight)
    start = 1 / n if nstart is None else nstart
    x, info = iterate(lambda x: unit(x + self.gather(x, edge=edge)), start, max_iter, tol, n)
    if nstart is not None and self.num_vertices and x.norm() == 0:
        raise InvalidOption("with this nstart all values become 0; give another one, such as positive values")
    return x.named("eigenvector_centrality", **info)
