"""The method `gather` that users call, and the check of its arguments."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData
from mgraph.algorithms.primitives.gather.expression import parse_edge
from mgraph.algorithms.primitives.gather.program import REDUCTIONS, run, warm
from mgraph.checks import check_direction, check_number
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "gather"]

T = TypeVar("T")


def gather(self: Runs[T], values: Any, reduce: str = "sum", edge: str = "value", direction: str = "in") -> T:
    """Reduce an expression over the neighbours u of each vertex v: the step of an algorithm of your own.

    Parameters
    ----------
    values : result of this graph, array of `num_vertices` numbers, or number
        A number for each vertex, or one for all. A result stays on the workers, unless the graph was reordered since.
    reduce : "sum" | "min" | "max" | "count"
        What to do with the neighbours' numbers. "count" is how many are not 0.
    edge : str
        A Python expression of at most 256 characters over the edge between v and a neighbour u: ``value``, that of u;
        ``weight``, the edge's; ``u`` and ``v``, the ids, which in a graph with keys are the vertices' places in
        `vertices`. It may have numbers, ``+ - * / // % **``, comparisons, ``and``, ``or``, ``not``,
        ``a if c else b``, and calls of min, max, abs, sqrt, exp, log, floor and ceil.
    direction : "in" | "out"
        Over edges u -> v, or over edges v -> u. "in" needs ``reverse=True`` or an undirected graph.

    Returns
    -------
    VertexValues
        float32 if `values` is a result of float32, else float64; int64 for "count". A vertex without neighbours has 0
        for "sum" and "count", inf for "min" and -inf for "max". It stays on the workers, and takes arithmetic there.

    Raises
    ------
    InvalidOption
        `edge` has what it may not have; the message names the place. It uses ``weight`` in an unweighted graph.
        `values` has another length, or `direction` is "in" in a graph without in-edges.
    CapacityError
        A worker has too little memory. It needs 4 or 8 bytes for each of its own vertices; on several workers as many
        for each vertex of the whole graph; and 4 for each of these where `edge` uses u or v and the graph has an order.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) in one superstep, in which each worker receives the values of all vertices: 4 bytes a vertex if they are a
    result of float32, else 8. It is computed in float64, with inf and NaN as NumPy has them: a division by 0 gives inf
    or NaN. An expression means what it means in Python: comparisons and ``not`` are 1 or 0, ``a or b`` is `a` unless
    that is 0, ``a and b`` is `b` unless `a` is 0, and ``min(a, b)`` is `a` unless `b` is less. The reductions "min" and
    "max" ignore NaN. A float32 result is rounded once. Sums do not depend on timing; their last digits depend on the
    structure and on the order of the vertices. The kernels for an expression are compiled at its first use on each
    machine, which takes about a second.

    Examples
    --------
    >>> g.insert([0, 1, 2], [2, 2, 3])  # of 4 vertices, with reverse=True  # doctest: +SKIP
    >>> g.gather([1.0, 2.0, 3.0, 4.0], "sum", "value * 10 + u").to_numpy()  # doctest: +SKIP
    array([ 0.,  0., 31., 32.])
    """
    return self.run("gather", values=values, reduce=reduce, edge=edge, direction=direction)


def check(
    graph: GraphFacts, values: Any, reduce: Any = "sum", edge: Any = "value", direction: Any = "in"
) -> dict[str, Any]:
    """The program's arguments from the user's."""
    if not isinstance(reduce, str) or reduce not in REDUCTIONS:
        raise InvalidOption(f"reduce {reduce!r} is none of {', '.join(map(repr, REDUCTIONS))}")
    parsed = parse_edge(edge)
    if "weight" in parsed.names and not graph.weighted:
        raise InvalidOption(f"edge {edge!r} uses weight; create the graph with weighted=True")
    direction = check_direction(direction, graph.reverse)
    values = _values(values, graph.n_vertices)
    named = not parsed.names.isdisjoint("uv")
    return {"values": values, "reduce": reduce, "edge": parsed.code, "named": named, "direction": direction}


def _values(given: Any, n: int) -> float | VertexData:
    """A number for all vertices, or one for each."""
    if getattr(given, "ndim", 1) == 0:
        given = given.item()
    if isinstance(given, Real):
        return check_number(given, "values")
    if not hasattr(given, "__len__") or isinstance(given, str | bytes):
        raise InvalidOption(f"values is {given!r}; it must be a number, an array of {n} numbers or a result")
    if len(given) != n:
        raise InvalidOption(f"values has {len(given)} numbers, and the graph {n} vertices")
    return VertexData(given)


ALGORITHM = Algorithm(name="gather", check=check, run=run, columns={"gathered": "value"}, scalars=(), warm=warm)
