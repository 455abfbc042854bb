"""The method `pagerank` that users call, and the check of its arguments."""

from __future__ import annotations

import math
import sys
from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData, Vertices
from mgraph.algorithms.centrality.pagerank.maintain import Ranks
from mgraph.algorithms.centrality.pagerank.program import run, warm
from mgraph.algorithms.primitives.vertex_mappings import begun, filled, is_named, numbers, pairs
from mgraph.checks import check_float, check_number, check_whole
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "pagerank"]

T = TypeVar("T")

DANGLING = ("uniform", "personalization", "drop")


def pagerank(
    self: Runs[T],
    alpha: float = 0.85,
    tol: float = 1e-6,
    max_iter: int = 100,
    start: Any = None,
    dtype: Any = "float32",
    *,
    personalization: Any = None,
    nstart: Any = None,
    dangling: Any = None,
    weight: bool = False,
) -> T:
    """The PageRank of each vertex by power iteration: values that sum to 1, on the workers.

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
    start : result of ``pagerank``, mapping, pandas.Series, or array of at most `num_vertices` numbers, optional
        The ranks to begin with, which are scaled to sum to 1. Ranks of an earlier epoch save iterations. A result of
        this graph stays on the workers, unless the graph was reordered since. Such a result, and an array, are sent
        through this process. Vertices that were added since, and those that the index of a Series does not name, begin
        with the mean; those that a mapping does not name begin with 0. With k personalizations it may have k rows.
    dtype : "float32" | "float64", or a NumPy dtype
        The dtype of the result. "float64" allows a `tol` down to 1e-12, and moves four times as many bytes.
    personalization : mapping of vertices to numbers, pandas.Series, array of at most `num_vertices` numbers, optional
        How often a walk that follows no edge goes to each vertex, scaled to sum to 1; 0 for vertices that a mapping or
        the index of a Series does not name, and for those past an array's end. All vertices alike by default. A list of
        k of them, or an array of shape (k, n), gives k rows of ranks.
    nstart : optional
        Another name of `start`.
    dangling : "uniform" | "personalization" | "drop", mapping, pandas.Series or array, optional
        Where a walk goes from a vertex without out-edges: to all vertices alike; as `personalization` says; nowhere, so
        that ranks sum to less than 1, as the GAP benchmark has it; or by these numbers, scaled to sum to 1. The
        default is "personalization", as in NetworkX.
    weight : bool
        Whether a walk chooses among a vertex's edges in proportion to their weights; else all alike.

    Returns
    -------
    VertexValues, or VertexRows for a list of personalizations
        The ranks, with ``.iterations``, the number of iterations done; ``.error``, the value that is compared with
        `tol`; and ``.converged``, whether it is less than `tol`.

    Raises
    ------
    InvalidOption
        An argument is out of its range, or `start` or a distribution has negative or infinite values or NaN, is too
        long or sums to 0. `weight` is asked for in an unweighted graph, or an edge's weight is negative or infinite.
    UnknownVertex
        A mapping names what is not a vertex of the graph.
    GraphClosed
        `start` is a result that was closed.
    CapacityError
        A worker has too little memory. It needs 22 bytes for each of its own vertices (24 with a `tol` below 1e-7), 4
        more for a float32 result, and on several workers 2 to 8 for each vertex of the whole graph. In-edges that the
        graph does not store are made for the call, which takes 32 bytes an arc meanwhile. Where there is too little
        memory for that, 12 bytes suffice for each of its own vertices, and 8, on several workers 16, for each vertex of
        the whole graph. `centrality.pagerank.program.run` lists it all.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) an iteration, which is a superstep. In it each worker receives the shares of all vertices: 2 bytes a vertex
    with float32 and a `tol` of 1e-7 or more, 4 with a smaller one, and 8 with float64 or weights. Where in-edges are
    neither stored nor made, it sends a sum for each vertex instead, 8 bytes, to the vertex's owner. With float32 and a
    `tol` of 1e-7 or more, vertices send only the changes of their ranks, cut to 16 bits, which is fastest. The limit is
    the same, but iterates before convergence, as with a small `max_iter`, differ from those of the power iteration by
    up to 1%. With a smaller `tol`, or 0, the k-th iterate is that of the power iteration up to 1e-4 relative, and with
    float64 up to rounding. A tol that cannot be reached, such as 1e-30, means `max_iter` iterations unless nothing
    changes any more. k personalizations take as long as k calls, but for in-edges that are made once. With weights an
    iteration takes up to four times as long, and more in directed graphs without in-edges. After L. Page, S. Brin, R.
    Motwani, T. Winograd, "The PageRank citation ranking: bringing order to the web", Stanford InfoLab, 1999.

    Examples
    --------
    >>> g.pagerank(tol=1e-7).top(2)  # doctest: +SKIP
    [(3, 0.41), (1, 0.22)]
    """
    return self.run(
        "pagerank", alpha=alpha, tol=tol, max_iter=max_iter, start=start, dtype=dtype, personalization=personalization,
        nstart=nstart, dangling=dangling, weight=weight,
    )  # fmt: skip


def check(
    graph: GraphFacts,
    alpha: Any = 0.85,
    tol: Any = 1e-6,
    max_iter: Any = 100,
    start: Any = None,
    dtype: Any = "float32",
    personalization: Any = None,
    nstart: Any = None,
    dangling: Any = None,
    weight: Any = False,
) -> dict[str, Any]:
    """The program's arguments from the user's."""
    if not 0 < check_number(alpha, "alpha") < 1:
        raise InvalidOption(f"alpha is {alpha}; it must be above 0 and below 1")
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")
    name, first = begun(graph, start, nstart)
    if weight and not graph.weighted:
        raise InvalidOption("weight=True needs weights; create the graph with weighted=True")
    most = min(check_whole(max_iter, "max_iter"), sys.maxsize)
    given = _teleport(personalization, graph)
    given |= _dangling(dangling, graph) | _start(name, first, graph.n_vertices, given.get("several", 0))
    given |= {"weight": True} if weight else {}
    return {"alpha": float(alpha), "tol": float(tol), "max_iter": most, "dtype": check_float(dtype, "dtype"), **given}


def _start(name: str, given: Any, n: int, several: int) -> dict[str, Any]:
    """The program's argument from `start`, or `nstart`: ranks, or rows of ranks for as many personalizations."""
    if given is None:
        return {}
    rows = given.to_numpy() if hasattr(given, "ranks") else given  # a result of several rows
    if getattr(rows, "ndim", 1) != 2:
        return {name: VertexData(given)}
    if rows.shape != (several, n):
        raise InvalidOption(
            f"{name} has shape {rows.shape}; for {several or 'no list of'} personalizations and {n} vertices it must "
            f"be of shape {(several, n) if several else (n,)}"
        )
    return {name: VertexData(numbers(rows, name), rows=True)}


def _teleport(given: Any, graph: GraphFacts) -> dict[str, Any]:
    """The program's arguments from `personalization`."""
    n = graph.n_vertices
    if given is None:
        return {}
    if is_named(given):
        ids, values = pairs(given, graph, "personalization")
        return {"chosen": Vertices(ids), "chosen_rows": np.zeros(len(ids), np.int64), "chosen_values": values}
    rows = list(given) if isinstance(given, list | tuple) or getattr(given, "ndim", 1) == 2 else []
    if not any(hasattr(row, "__len__") for row in rows):
        return {"dense": VertexData(_padded(given, n, "personalization"))}
    names = [f"personalization[{i}]" for i in range(len(rows))]
    if all(map(is_named, rows)):
        parts = [pairs(row, graph, name) for row, name in zip(rows, names, strict=True)]
        ids, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        owners = np.repeat(np.arange(len(parts)), [len(part) for part, _ in parts])
        return {"chosen": Vertices(ids), "chosen_rows": owners, "chosen_values": values, "several": len(rows)}
    whole = np.zeros((len(rows), n))
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        whole[i] = filled(row, graph, name) if is_named(row) else _padded(np.asarray(row), n, name)
    return {"dense": VertexData(whole, rows=True), "several": len(rows)}


def _dangling(given: Any, graph: GraphFacts) -> dict[str, Any]:
    """The program's arguments from `dangling`."""
    if given is None:
        return {}
    if isinstance(given, str):
        if given not in DANGLING:
            raise InvalidOption(f"dangling {given!r} is none of {', '.join(map(repr, DANGLING))}")
        return {"dangling": given}
    if is_named(given):
        ids, values = pairs(given, graph, "dangling")
        return {"loose": Vertices(ids), "loose_values": values}
    return {"loose_dense": VertexData(_padded(given, graph.n_vertices, "dangling"))}


def _padded(given: Any, n: int, name: str) -> Any:
    """An array with zeros for the vertices past its end; a result, or an array on a GPU, as it is."""
    if not isinstance(given, np.ndarray | list | tuple):
        if not hasattr(given, "__len__") or isinstance(given, str | bytes):
            raise InvalidOption(f"{name} is {given!r}; it must be a mapping, or an array of numbers")
        return given
    array = numbers(given, name)
    if array.ndim != 1 or len(array) > n:
        raise InvalidOption(f"{name} has shape {array.shape}; it must be one-dimensional, of at most {n} numbers")
    return np.concatenate([array, np.zeros(n - len(array))])


ALGORITHM = Algorithm(
    name="pagerank",
    check=check,
    run=run,
    columns={"rank": "value", "ranks": "rows"},
    scalars=("iterations", "error", "converged"),
    warm=warm,
    maintain=Ranks,
)
