"""Eigenvector centrality: a power iteration with sums over in-neighbours, on the ranks."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

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
from mgraph.algorithms.primitives.vectors import add_squares, unit
from mgraph.device import Array
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "eigenvector_centrality"]


T = TypeVar("T")


def eigenvector_centrality(
    self: TakesVertexNumbers[T], max_iter: int = 100, tol: float = 1e-6, nstart: Any = None, weight: bool = False
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
        float64 (float32 if `nstart` is a result of float32), with ``.iterations``, ``.error``, the last change,
        ``.converged``, and ``.growing``, True if the changes do not get smaller.

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
    The power iteration with the adjacency matrix plus the identity [1]_, O(n + m) each, on the workers. In an iteration
    each worker receives 8 bytes per vertex of the whole graph, or 4 if `nstart` is a result of float32, and two
    numbers.

    References
    ----------
    .. [1] P. Bonacich, "Power and centrality: a family of measures", American Journal of Sociology 92, 1987.

    Examples
    --------
    >>> g.insert([0, 1, 2], [1, 2, 0])  # with directed=False  # doctest: +SKIP
    >>> g.eigenvector_centrality().to_numpy()  # doctest: +SKIP
    array([0.57735027, 0.57735027, 0.57735027])
    """
    start = None if nstart is None else self._by_vertex(nstart, "nstart", mean=True)
    result: T = warned(self.run("eigenvector_centrality", max_iter=max_iter, tol=tol, nstart=start, weight=weight))
    return result


def check(
    graph: GraphFacts, max_iter: Any = 100, tol: Any = 1e-6, nstart: Any = None, weight: Any = False
) -> dict[str, Any]:
    """Return the program's arguments."""
    loop = check_loop(graph, "eigenvector_centrality", max_iter, tol, weight)
    return {**loop, **({} if nstart is None else {"nstart": vertex_argument(nstart)})}


def run(shard: Shard, max_iter: int, tol: float, weight: bool, nstart: Array | float | None = None) -> Columns:
    """Return the centrality of each own vertex, in the column "eigenvector_centrality", and the scalars of the loop.

    Raises `InvalidOption` on every rank if values leave their dtype's range, or all become 0.
    """
    start = 1 / max(shard.n_vertices, 1) if nstart is None else nstart
    sums, x = neighbor_sums(shard, "eigenvector_centrality", start, weight)

    def step(x: Array) -> Array:
        """Return (x + A^T x) / |x + A^T x|."""
        following = sums.of(x)
        return unit(shard, following, add_squares(shard, following, (1.0, following), (1.0, x)))

    x, info = iterate(shard, step, x, max_iter, tol, weight)
    if (
        nstart is not None and shard.n_vertices
        and shard.exchange.allreduce(np.array([shard.device.total(x != 0)]))[0] == 0
    ):  # fmt: skip
        raise InvalidOption("with this nstart all values become 0; give another one, such as positive values")
    return {"eigenvector_centrality": x}, info


ALGORITHM = Algorithm(
    name="eigenvector_centrality",
    check=check,
    run=run,
    columns={"eigenvector_centrality": "value"},
    scalars=SCALARS,
    warm=warm,
)
