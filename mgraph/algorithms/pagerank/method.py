"""The method `pagerank` that users call, and the check of its arguments."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData, Vertices
from mgraph.algorithms.pagerank.maintain import Ranks
from mgraph.algorithms.pagerank.program import run, warm
from mgraph.checks import check_float, check_number, check_whole, is_series
from mgraph.columns import shown
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
        with the mean; those that a mapping does not name begin with 0.
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
        A worker has too little memory; `mgraph.algorithms.pagerank.program.run` lists what it needs.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) an iteration. With float32 and a `tol` of 1e-7 or more, vertices send only the changes of their ranks, cut
    to 16 bits, which is fastest. The limit is the same, but iterates before convergence, as with a small `max_iter`,
    differ from those of the power iteration by up to 1%. With a smaller `tol`, or 0, the k-th iterate is that of the
    power iteration up to 1e-4 relative, and with float64 up to rounding. A tol that cannot be reached, such as 1e-30,
    means `max_iter` iterations unless nothing changes any more. k personalizations take as long as k calls, but for
    in-edges that are made once. With weights an iteration takes up to four times as long, and more in directed graphs
    without in-edges.

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
    if start is not None and nstart is not None:
        raise InvalidOption("start and nstart are two names of one argument; give one of them")
    if weight and not graph.weighted:
        raise InvalidOption("weight=True needs weights; create the graph with weighted=True")
    most, first = min(check_whole(max_iter, "max_iter"), sys.maxsize), start if nstart is None else nstart
    if isinstance(first, Mapping):
        first = _filled(first, graph, "start" if nstart is None else "nstart")
    given: dict[str, Any] = {} if first is None else {"start": VertexData(first)}
    given |= _teleport(personalization, graph) | _dangling(dangling, graph)
    given |= {"weight": True} if weight else {}
    return {"alpha": float(alpha), "tol": float(tol), "max_iter": most, "dtype": check_float(dtype, "dtype"), **given}


def _teleport(given: Any, graph: GraphFacts) -> dict[str, Any]:
    """The program's arguments from `personalization`."""
    n = graph.n_vertices
    if given is None:
        return {}
    if _is_named(given):
        ids, values = _pairs(given, graph, "personalization")
        return {"chosen": Vertices(ids), "chosen_rows": np.zeros(len(ids), np.int64), "chosen_values": values}
    rows = list(given) if isinstance(given, list | tuple) or getattr(given, "ndim", 1) == 2 else []
    if not any(hasattr(row, "__len__") for row in rows):
        return {"dense": VertexData(_padded(given, n, "personalization"))}
    names = [f"personalization[{i}]" for i in range(len(rows))]
    if all(map(_is_named, rows)):
        pairs = [_pairs(row, graph, name) for row, name in zip(rows, names, strict=True)]
        ids, values = (np.concatenate(part) for part in zip(*pairs, strict=True))
        owners = np.repeat(np.arange(len(pairs)), [len(part) for part, _ in pairs])
        return {"chosen": Vertices(ids), "chosen_rows": owners, "chosen_values": values, "several": len(rows)}
    whole = np.zeros((len(rows), n))
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        whole[i] = _filled(row, graph, name) if _is_named(row) else _padded(np.asarray(row), n, name)
    return {"dense": VertexData(whole, rows=True), "several": len(rows)}


def _dangling(given: Any, graph: GraphFacts) -> dict[str, Any]:
    """The program's arguments from `dangling`."""
    if given is None:
        return {}
    if isinstance(given, str):
        if given not in DANGLING:
            raise InvalidOption(f"dangling {given!r} is none of {', '.join(map(repr, DANGLING))}")
        return {"dangling": given}
    if _is_named(given):
        ids, values = _pairs(given, graph, "dangling")
        return {"loose": Vertices(ids), "loose_values": values}
    return {"loose_dense": VertexData(_padded(given, graph.n_vertices, "dangling"))}


def _is_named(given: Any) -> bool:
    """Whether numbers come with their vertices: in a mapping, or in a Series of pandas."""
    return isinstance(given, Mapping) or is_series(given)


def _pairs(given: Any, graph: GraphFacts, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The vertices and the numbers of what `_is_named`."""
    if isinstance(given, Mapping):
        ids = graph.vertices(list(given), name)
        return ids, np.array([check_number(value, f"{name}[{vertex}]") for vertex, value in given.items()], np.float64)
    if not given.index.is_unique:
        raise InvalidOption(f"the index of {name} has {shown(given.index[given.index.duplicated()][0])} more than once")
    return graph.vertices(given.index, f"the index of {name}"), _numbers(given, name)


def _numbers(given: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InvalidOption(f"{name} is not an array of numbers") from None


def _filled(given: Any, graph: GraphFacts, name: str) -> np.ndarray:
    """What `_is_named` as an array with a number for each vertex: 0 for those that it does not name."""
    ids, values = _pairs(given, graph, name)
    array = np.zeros(graph.n_vertices)
    array[ids] = values
    return array


def _padded(given: Any, n: int, name: str) -> Any:
    """An array with zeros for the vertices past its end; a result, or an array on a GPU, as it is."""
    if not isinstance(given, np.ndarray | list | tuple):
        if not hasattr(given, "__len__") or isinstance(given, str | bytes):
            raise InvalidOption(f"{name} is {given!r}; it must be a mapping, or an array of numbers")
        return given
    array = _numbers(given, name)
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
