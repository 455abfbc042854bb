"""Method `hits`, and the check of its arguments."""

from __future__ import annotations

import math
import sys
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData
from mgraph.algorithms.centrality.hits.program import run, warm
from mgraph.algorithms.primitives.vertex_mappings import starting_vector
from mgraph.checks import check_flag, check_number, check_weight, check_whole
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
    """Compute the hub and the authority of each vertex (HITS): float64, on the workers.

    Good hubs point to good authorities: a vertex's hub is proportional to the sum of the authorities of its
    out-neighbours, and its authority to the sum of the hubs of its in-neighbours. In an undirected graph the two are
    equal.

    Parameters
    ----------
    tol : float
        The tolerance, 0 or more. With ``B = A.T @ A`` for the adjacency matrix A, and `s` the largest eigenvalue of B,
        the authorities `a` of unit length fulfil ``|B a - s a| <= tol * s``. This is the rule of SciPy's ``svds``, and
        so of NetworkX's HITS.
    max_iter : int
        The largest number of iterations, 0 or more. Each has up to 20 products with B.
    start : result, mapping, pandas.Series, or array of at most `num_vertices` numbers, optional
        The first authorities, 0 or more; equal values by default. Vertices past an array's end, and those missing in a
        Series, begin with the mean; those missing in a mapping begin with 0. If several vectors of authorities are
        possible, for example because components are equally strong, it decides among them. A start with zeros takes
        twice as long, since the strongest component may have none of it.
    nstart : optional
        Another name of `start`.
    weight : bool
        Weight the sums by the edges' weights.
    normalized : bool
        Scale hubs and authorities to sum to 1. Otherwise the authorities have length 1 (the root of the sum of squares)
        and the hubs are the sums of their neighbours' authorities.

    Returns
    -------
    VertexValues
        The hubs, with the column ``.authorities``; ``.iterations``; ``.error``, to compare with `tol`; and
        ``.converged``. Without edges all hubs are equal, and authorities are those of `start`.

    Raises
    ------
    InvalidOption
        `tol`, `max_iter` or `start` is out of its range, or `start` is 0 for each vertex with an in-edge; or `weight`
        is True in an unweighted graph, in a directed graph without in-edges, or with a negative or infinite weight.
    CapacityError
        A worker has too little memory: 192 bytes per owned vertex and 8 per vertex of the whole graph. In-edges that
        the graph does not store are made for the call, which takes 32 bytes per arc meanwhile.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) per product with B, in two supersteps. In each of them every worker receives 8 bytes per vertex of the
    whole graph. The result does not depend on timing. Authorities are the dominant right singular vector of the
    adjacency matrix, found by restarted Lanczos iterations, which need far fewer products than the power iteration of
    J. Kleinberg, "Authoritative sources in a hyperlinked environment", J. ACM 46(5), 1999.

    Examples
    --------
    >>> g.insert([0, 1, 1], [2, 2, 3])  # of 4 vertices  # doctest: +SKIP
    >>> result = g.hits()  # doctest: +SKIP
    >>> result.to_numpy().round(2), result.authorities.to_numpy().round(2)  # doctest: +SKIP
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
    """Return the program's arguments."""
    # Check the options.
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")
    by_weight, scaled = check_weight(weight, graph.weighted), check_flag(normalized, "normalized")
    if by_weight and not graph.reverse:
        raise InvalidOption("weight=True needs in-edges; create the graph with reverse=True, or directed=False")

    # Name the starting vector like the user does.
    most = min(check_whole(max_iter, "max_iter"), sys.maxsize)
    name, first = starting_vector(graph, start, nstart)
    vectors = {} if first is None else {name: VertexData(first)}
    return {"tol": float(tol), "max_iter": most, "weight": by_weight, "normalized": scaled, **vectors}


ALGORITHM = Algorithm(
    name="hits",
    check=check,
    run=run,
    columns={"hubs": "value", "authorities": "value"},
    scalars=("iterations", "error", "converged"),
    warm=warm,
)
