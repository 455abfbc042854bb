"""Method `eigenvector_centrality`, written with `gather`."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.primitives.gather.fixed_point_loop import Gathers, checked_edge, iterate, unit
from mgraph.errors import InvalidOption

__all__ = ["eigenvector_centrality"]


T = TypeVar("T")


def eigenvector_centrality(
    self: Gathers[T], max_iter: int = 100, tol: float = 1e-6, nstart: Any = None, weight: bool = False
) -> T:
    """Compute the eigenvector centrality of each vertex: large if its in-neighbours' are.

    Values have a Euclidean norm of 1, and stay on the workers.

    Parameters
    ----------
    max_iter : int
        The largest number of iterations, 1 or more.
    tol : float
        Stop when the values change by less than ``num_vertices * tol`` in total, like NetworkX.
    nstart : result, mapping, pandas.Series, or array of `num_vertices` numbers, optional
        The starting vector; equal values by default. Vertices that are missing in a mapping begin with 0, and those
        missing in a Series with the mean.
    weight : bool
        Count edges by their weights.

    Returns
    -------
    VertexValues
        float64 (float32 if `nstart` is a result of float32), with ``.iterations``, ``.error``, the last change, and
        ``.converged``.

    Raises
    ------
    InvalidOption
        An argument is out of its range, the graph is directed and has no in-edges, or has no weights and needs them;
        values exceed float64, for example because of an infinite weight, which the message names; or all become 0, as
        from an `nstart` of 0.
    UnknownVertex
        A mapping or a Series names an unknown vertex.
    CapacityError
        A worker has too little memory: 48 bytes per own vertex, and the memory of `gather`.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The power iteration with the adjacency matrix plus the identity [1]_. An iteration is a `gather`, O(n + m), and five
    calls of O(n). It has one superstep, in which each worker receives 8 bytes per vertex of the whole graph, or 4 if
    `nstart` is a result of float32; the other calls send numbers only. If the graph changes meanwhile, the next
    iteration uses the new graph.

    References
    ----------
    .. [1] P. Bonacich, "Power and centrality: a family of measures", American Journal of Sociology 92, 1987.

    Examples
    --------
    >>> g.insert([0, 1, 2], [1, 2, 0])  # with directed=False  # doctest: +SKIP
    >>> g.eigenvector_centrality().to_numpy()  # doctest: +SKIP
    array([0.57735027, 0.57735027, 0.57735027])
    """
    # Check the arguments.
    edge = checked_edge(self, "eigenvector_centrality", max_iter, tol, weight)
    start = 1 / max(self.num_vertices, 1) if nstart is None else self._by_vertex(nstart, "nstart", mean=True)

    # Iterate x' = (x + A^T x) / |x + A^T x|.
    x, info = iterate(self, lambda x: unit(x + self.gather(x, edge=edge)), start, max_iter, tol, weight)
    if nstart is not None and self.num_vertices and x.norm() == 0:
        raise InvalidOption("with this nstart all values become 0; give another one, such as positive values")
    centrality: T = x.named("eigenvector_centrality", **info)
    return centrality
