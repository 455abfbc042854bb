"""The method `hits` that users call, and the check of its arguments."""

from __future__ import annotations

import math
import sys
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData
from mgraph.algorithms.centrality.hits.program import run, warm
from mgraph.algorithms.primitives.vertex_mappings import begun
from mgraph.checks import check_number, check_whole
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "hits"]

T = TypeVar("T")


def hits(
    self: Runs[T],
    tol: float = 1e-8,
    max_iter: int = 100,
    start: Any = None,
    *,
    nstart: Any = None,
    weight: bool = False,
    normalized: bool = True,
) -> T:
    """The hub and the authority of each vertex (HITS): float64, on the workers.

    Good hubs point to good authorities: a vertex's hub is proportional to the sum of the authorities of its
    out-neighbours, and its authority to the sum of the hubs of its in-neighbours. In an undirected graph the two are
    the same.

    Parameters
    ----------
    tol : float
        The tolerance, 0 or more. With B the square of the adjacency matrix, transposed times plain, and `s` its largest
        eigenvalue, the authorities `a` of unit length fulfil ``|B a - s a| <= tol * s``. SciPy's ``svds``, and so
        NetworkX's HITS, has this rule.
    max_iter : int
        The largest number of iterations, 0 or more. Each has up to 20 products with B.
    start : result, mapping, pandas.Series, or array of at most `num_vertices` numbers, optional
        The authorities to begin with, 0 or more; all alike by default. Vertices past an array's end, and those that the
        index of a Series does not name, begin with the mean; those that a mapping does not name begin with 0. If
        several vectors of authorities are possible, as where components are equally strong, it decides among them.
    nstart : optional
        Another name of `start`.
    weight : bool
        Whether the sums are weighted by the edges' weights.
    normalized : bool
        Whether hubs and authorities sum to 1. Otherwise the authorities have length 1 (the root of the sum of squares)
        and the hubs are the sums of their neighbours' authorities.

    Returns
    -------
    VertexValues
        The hubs, with the column ``.authorities``; ``.iterations``; ``.error``, which was compared with `tol`; and
        ``.converged``. Without edges all vertices are alike.

    Raises
    ------
    InvalidOption
        `tol`, `max_iter` or `start` is out of its range, or `start` is 0 for each vertex that an edge leads to;
        `weight` is asked for in an unweighted graph, in a directed graph without in-edges, or with an edge whose weight
        is negative or infinite.
    CapacityError
        A worker has too little memory: 184 bytes for each owned vertex and 8 for each vertex of the whole graph.
        In-edges that the graph does not store are made for the call, which takes 32 bytes an arc meanwhile.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) a product with B, in two supersteps. In each of them every worker receives 8 bytes a vertex of the whole
    graph. The result does not depend on timing. Authorities are the dominant right singular vector of the
    adjacency matrix, found by restarted Lanczos iterations, which need far fewer products than the power iteration of
    J. Kleinberg, "Authoritative sources in a hyperlinked environment", J. ACM 46(5), 1999.

    Examples
    --------
    >>> g.insert([0, 1, 1], [2, 2, 3])  # of 4 vertices  # doctest: +SKIP
    >>> found = g.hits()  # doctest: +SKIP
    >>> found.to_numpy().round(2), found.authorities.to_numpy().round(2)  # doctest: +SKIP
    (array([0.38, 0.62, 0.  , 0.  ]), array([0.  , 0.  , 0.62, 0.38]))
    """
    return self.run(
        "hits", tol=tol, max_iter=max_iter, start=start, nstart=nstart, weight=weight, normalized=normalized
    )


def check(
    graph: GraphFacts,
    tol: Any = 1e-8,
    max_iter: Any = 100,
    start: Any = None,
    nstart: Any = None,
    weight: Any = False,
    normalized: Any = True,
) -> dict[str, Any]:
    """The program's arguments from the user's."""
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")
    if weight and not graph.weighted:
        raise InvalidOption("weight=True needs weights; create the graph with weighted=True")
    if weight and not graph.reverse:
        raise InvalidOption("weight=True needs in-edges; create the graph with reverse=True, or directed=False")
    most = min(check_whole(max_iter, "max_iter"), sys.maxsize)
    name, first = begun(graph, start, nstart)
    given = {} if first is None else {name: VertexData(first)}
    return {"tol": float(tol), "max_iter": most, "weight": bool(weight), "normalized": bool(normalized), **given}


ALGORITHM = Algorithm(
    name="hits",
    check=check,
    run=run,
    columns={"hubs": "value", "authorities": "value"},
    scalars=("iterations", "error", "converged"),
    warm=warm,
)
