"""Method `pagerank`, and the check of its arguments."""

from __future__ import annotations

import datetime
import math
import sys
from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData, Vertices
from mgraph.algorithms.centrality.pagerank.maintain import Ranks
from mgraph.algorithms.centrality.pagerank.program import run, warm
from mgraph.algorithms.primitives.vertex_mappings import is_mapping, mapping_array, numbers, pairs, starting_vector
from mgraph.checks import check_dtype, check_number, check_weight, check_whole
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.facade import warn
from mgraph.tables.arrays import as_numbers
from mgraph.tables.times import INTEGERS, as_span

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
    decay: Any = None,
) -> T:
    """Compute the PageRank of each vertex by power iteration: values that sum to 1, on the workers.

    Parameters
    ----------
    alpha : float
        The probability of following an edge (damping factor), above 0 and below 1.
    tol : float
        The tolerance, 0 or more. If the result is ``.converged``, its L1 distance to the exact ranks is at most ``alpha
        / (1 - alpha) * tol`` plus rounding. Rounding is 1e-7 with float32 (measured for `alpha` up to 0.999) and 1e-12
        with float64 (measured up to 0.99; it grows with ``1 / (1 - alpha)``). NetworkX multiplies its tol by the number
        of vertices. With 0, exactly `max_iter` iterations are done.
    max_iter : int
        The largest number of iterations, 0 or more.
    start : result, mapping, pandas.Series, or array of at most `num_vertices` numbers, optional
        The starting vector, scaled to sum to 1. Ranks of an earlier epoch save iterations. A result of this graph stays
        on the workers, unless the graph was reordered since. Otherwise a result, and an array, are sent through this
        process. Vertices that were added since, and those missing in a Series, begin with the mean; those missing in a
        mapping begin with 0. With k personalizations it may have k rows.
    dtype : "float32" | "float64", or a NumPy dtype
        The dtype of the result. "float64" allows a `tol` down to 1e-12, and moves four times as many bytes.
    personalization : result, mapping of vertices to numbers, pandas.Series, or array of at most `num_vertices` numbers
        The teleport vector: how often a walk that follows no edge goes to each vertex, scaled to sum to 1. Vertices
        missing in a result, a mapping or a Series have 0, and so have those past an array's end: a list has numbers by
        vertex and names no vertices. A short list of whole numbers gives a warning, since vertices may be meant. By
        default equal for all vertices. A list of k of them, or an array of shape (k, n), gives k rows of ranks.
    nstart : optional
        Another name of `start`.
    dangling : "uniform" | "personalization" | "drop", result, mapping, pandas.Series or array, optional
        The destination of a walk from a vertex without out-edges: all vertices equally; those of `personalization`;
        none, so that ranks sum to less than 1, as in the GAP benchmark; or vertices in proportion to these numbers. The
        default is "personalization", as in NetworkX.
    weight : bool
        Let a walk choose among a vertex's edges in proportion to their weights; by default equally.
    decay : float or timedelta, optional
        In a graph with times, let a walk prefer recent edges: an edge weighs half as much as one of the same vertex
        that is `decay` later, so ``2 ** ((time - latest) / decay)``, where `latest` is the largest time among the
        vertex's out-edges. With `weight`, its weight times that. A number above 0 in the unit of times; with dates a
        timedelta, or a string as of a `window`. Ranks change with new edges, and not while time passes.

    Returns
    -------
    VertexValues, or VertexRows for a list of personalizations
        The ranks, with ``.iterations``, the number of iterations; ``.error``, to compare with `tol`; and
        ``.converged``, True if it is less than `tol`.

    Raises
    ------
    InvalidOption
        An argument is out of its range, or `start` or a distribution has negative or infinite values or NaN, is too
        long or sums to 0; or `weight` is True in an unweighted graph, or with a negative or infinite weight; or `decay`
        is given in a graph without times.
    UnknownVertex
        A mapping names an unknown vertex.
    GraphClosed
        `start` is a closed result.
    CapacityError
        A worker has too little memory: 24 bytes per own vertex, 4 more for a float32 result, and on several workers 2
        to 8 per vertex of the whole graph; on CPUs 4 to 16. In-edges that the graph does not store are made for the
        call, which takes 32 bytes per arc meanwhile. If there is too little memory for that, 12 bytes per own vertex
        suffice, and 8, on several workers 16, on CPUs 24, per vertex of the whole graph.
        `mgraph.algorithms.centrality.pagerank.program.run` lists each array.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) per iteration. In it each worker receives the shares of all vertices: 2 bytes per vertex with float32 and a
    `tol` of 1e-7 or more, 4 with a smaller one, and 8 with float64 or weights. If in-edges are neither stored nor made,
    it sends a sum per vertex instead, 8 bytes, to the vertex's owner. With float32 and a `tol` of 1e-7 or more,
    vertices send only the changes of their ranks, cut to 16 bits, which is fastest. The limit is the same, but iterates
    before convergence, as with a small `max_iter`, differ from those of the power iteration by up to 1%. With a smaller
    `tol`, or 0, the k-th iterate is that of the power iteration up to 1e-4 relative, and with float64 up to rounding. A
    tol that cannot be reached, such as 1e-30, means `max_iter` iterations unless the ranks stop changing. k
    personalizations take as long as k calls, but in-edges are made once. With weights an iteration takes up to four
    times as long, and more in directed graphs without in-edges. With `decay` too, and each call looks up the times of
    all edges; the decayed weights are float32, so an edge of 150 times `decay` or more weighs 0. After L. Page,
    S. Brin, R. Motwani, T. Winograd, "The PageRank citation ranking: bringing order to the web", Stanford InfoLab,
    1999.

    Examples
    --------
    >>> g.pagerank(tol=1e-7).top(2)  # doctest: +SKIP
    [(3, 0.41), (1, 0.22)]
    """
    return self.run(
        "pagerank", alpha=alpha, tol=tol, max_iter=max_iter, start=start, dtype=dtype, personalization=personalization,
        nstart=nstart, dangling=dangling, weight=weight, decay=decay,
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
    decay: Any = None,
) -> dict[str, Any]:
    """Return the program's arguments."""
    # Check the numbers.
    if not 0 < check_number(alpha, "alpha") < 1:
        raise InvalidOption(f"alpha is {alpha}; it must be above 0 and below 1")
    if not 0 <= check_number(tol, "tol") < math.inf:
        raise InvalidOption(f"tol is {tol}; it must be finite and 0 or more")

    # Name the starting vector like the user does, and collect the distributions.
    name, first = starting_vector(graph, start, nstart)
    by_weight = check_weight(weight, graph.weighted)
    most = min(check_whole(max_iter, "max_iter"), sys.maxsize)
    distributions = _teleport(personalization, graph)
    distributions |= _dangling(dangling, graph) | _start(name, first, graph.n_vertices, distributions.get("several", 0))
    distributions |= {"weight": True} if by_weight else {}
    distributions |= {} if decay is None else {"decay": _decay(decay, graph.times)}
    return {
        "alpha": float(alpha),
        "tol": float(tol),
        "max_iter": most,
        "dtype": check_dtype(dtype),
        **distributions,
    }


def _decay(decay: Any, times: str | None) -> float:
    """Return the age at which an edge weighs half as much, in the unit of a graph's times."""
    if times is None:
        raise InvalidOption(f"decay is {decay!r}, and the edges have no times; create the graph with times=True")
    if times != INTEGERS or isinstance(decay, str | datetime.timedelta | np.timedelta64):
        return float(as_span(decay, times, "decay")[0])
    if not 0 < check_number(decay, "decay") < math.inf:
        raise InvalidOption(f"decay is {decay}; it must be finite and above 0")
    return float(decay)


def _start(name: str, ranks: Any, n: int, several: int) -> dict[str, Any]:
    """Return the program's argument of `start` or `nstart`: ranks, or rows of ranks for several personalizations."""
    if ranks is None:
        return {}
    several_rows = hasattr(ranks, "ranks")  # a result
    rows = ranks.to_numpy() if several_rows else ranks
    if getattr(rows, "ndim", 1) != 2:
        return {name: VertexData(ranks)}
    if rows.shape != (several, n):
        raise InvalidOption(
            f"{name} has shape {rows.shape}; for {several or 'no list of'} personalizations and {n} vertices it must "
            f"be of shape {(several, n) if several else (n,)}"
        )
    return {name: VertexData(ranks if several_rows else numbers(rows, name), rows=True)}


def _teleport(personalization: Any, graph: GraphFacts) -> dict[str, Any]:
    """Return the program's arguments of `personalization`."""
    # A mapping, or a single array.
    n = graph.n_vertices
    if personalization is None:
        return {}
    if is_mapping(personalization):
        ids, values = pairs(personalization, graph, "personalization")
        return {"chosen": Vertices(ids), "chosen_rows": np.zeros(len(ids), np.int64), "chosen_values": values}
    rows = (
        list(personalization)
        if isinstance(personalization, list | tuple) or getattr(personalization, "ndim", 1) == 2
        else []
    )
    if rows and isinstance(rows[0], str):
        raise InvalidOption(
            f"personalization[0] is {rows[0]!r}; it must be a number: a mapping, as {{{rows[0]!r}: 1}}, names vertices"
        )
    if not any(hasattr(row, "__len__") for row in rows):
        column = _padded(personalization, n, "personalization")
        return {"dense": VertexData(column, name="personalization", missing="zero")}

    # Several rows, of mappings or of arrays.
    names = [f"personalization[{i}]" for i in range(len(rows))]
    if all(map(is_mapping, rows)):
        parts = [pairs(row, graph, name) for row, name in zip(rows, names, strict=True)]
        ids, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        owners = np.repeat(np.arange(len(parts)), [len(part) for part, _ in parts])
        return {"chosen": Vertices(ids), "chosen_rows": owners, "chosen_values": values, "several": len(rows)}
    whole = [
        mapping_array(row, graph, name) if is_mapping(row) else _padded(row, n, name)
        for row, name in zip(rows, names, strict=True)
    ]
    return {"dense": VertexData(whole, rows=True, name="personalization", missing="zero"), "several": len(rows)}


def _dangling(dangling: Any, graph: GraphFacts) -> dict[str, Any]:
    """Return the program's arguments of `dangling`."""
    if dangling is None:
        return {}
    if isinstance(dangling, str):
        if dangling not in DANGLING:
            raise InvalidOption(f"dangling {dangling!r} is none of {', '.join(map(repr, DANGLING))}")
        return {"dangling": dangling}
    if is_mapping(dangling):
        ids, values = pairs(dangling, graph, "dangling")
        return {"loose": Vertices(ids), "loose_values": values}
    column = _padded(dangling, graph.n_vertices, "dangling")
    return {"loose_dense": VertexData(column, name="dangling", missing="zero")}


def _padded(values: Any, n: int, name: str) -> Any:
    """Return an array padded with zeros to all vertices, float64[n]. A result stays unchanged."""
    if hasattr(values, "epoch"):
        return values
    if not hasattr(values, "__len__") or isinstance(values, str | bytes):
        raise InvalidOption(f"{name} is {values!r}; it must be a mapping, or an array of numbers")
    array = Device.to_host(as_numbers(values, name))
    if array.ndim != 1 or len(array) > n:
        raise InvalidOption(f"{name} has shape {array.shape}; it must be one-dimensional, of at most {n} numbers")
    if 0 < len(array) < n and array.dtype.kind in "iu":
        warn(
            f"{name} gives whole numbers to the first {len(array)} of {n} vertices, and 0 to the others; a mapping, as "
            f"{{{array[0]}: 1}}, names vertices"
        )
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
