"""Method `gather`, and the check of its arguments."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData
from mgraph.algorithms.primitives.gather.expression import parse_edge
from mgraph.algorithms.primitives.gather.program import run, warm
from mgraph.algorithms.primitives.gather.reduction import REDUCTIONS
from mgraph.checks import check_direction, check_number
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "gather"]

T = TypeVar("T")


def gather(self: Runs[T], values: Any, reduce: str = "sum", edge: str = "value", direction: str = "in") -> T:
    """Reduce an expression over the neighbours u of each vertex v: a step of your own algorithm.

    Parameters
    ----------
    values : result of this graph, array of `num_vertices` numbers, or number
        A number per vertex, or one for all. A result stays on the workers, unless the graph was reordered since.
    reduce : "sum" | "min" | "max" | "count"
        The reduction of the neighbours' numbers. "count" counts those that are not 0.
    edge : str
        A Python expression of at most 256 characters over the edge between v and a neighbour u: ``value``, that of u;
        ``weight``, the edge's; ``u`` and ``v``, the ids, which in a graph with keys are the vertices' positions in
        `vertices`. It may have numbers, ``+ - * / // % **``, comparisons, ``and``, ``or``, ``not``, ``a if c else b``,
        and calls of min, max, abs, sqrt, exp, log, floor and ceil.
    direction : "in" | "out"
        Over edges u -> v, or over edges v -> u. "in" needs ``reverse=True`` or an undirected graph.

    Returns
    -------
    VertexValues
        float32 if `values` is a result of float32, else float64; int64 for "count". A vertex without neighbours has 0
        for "sum" and "count", inf for "min" and -inf for "max". The result stays on the workers, and supports
        arithmetic there.

    Raises
    ------
    InvalidOption
        `edge` has an unsupported part, whose place the message names, or uses ``weight`` in an unweighted graph;
        `values` has another length; or `direction` is "in" in a graph without in-edges.
    CapacityError
        A worker has too little memory: 4 or 8 bytes per own vertex; on several workers as many per vertex of the whole
        graph; and 4 for each of these if `edge` uses u or v and the graph has an order.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) in one superstep, in which each worker receives the values of all vertices: 4 bytes per vertex if they are
    a result of float32, else 8. It computes in float64, with inf and NaN like NumPy: a division by 0 gives inf or NaN.
    An expression means the same as in Python: comparisons and ``not`` are 1 or 0, ``a or b`` is `a` unless that is 0,
    ``a and b`` is `b` unless `a` is 0, and ``min(a, b)`` is `a` unless `b` is less. The reductions "min" and "max"
    ignore NaN. A float32 result is rounded once. Sums do not depend on timing; their last digits depend on the
    structure and on the order of the vertices. The kernels of an expression are compiled at its first use on each
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
    """Return the program's arguments."""
    if not isinstance(reduce, str) or reduce not in REDUCTIONS:
        raise InvalidOption(f"reduce {reduce!r} is none of {', '.join(map(repr, REDUCTIONS))}")
    parsed = parse_edge(edge)
    if "weight" in parsed.names and not graph.weighted:
        raise InvalidOption(f"edge {edge!r} uses weight; create the graph with weighted=True")
    direction = check_direction(direction, graph.reverse)
    values = _values(values, graph.n_vertices)
    named = not parsed.names.isdisjoint("uv")
    return {"values": values, "reduce": reduce, "edge": parsed.code, "named": named, "direction": direction}


def _values(values: Any, n: int) -> float | VertexData:
    """Return a number for all vertices, or a number per vertex."""
    if hasattr(values, "item") and getattr(values, "ndim", 1) == 0:  # a dtype has no dimensions either
        values = values.item()
    if isinstance(values, Real):
        return check_number(values, "values")
    if not hasattr(values, "__len__") or isinstance(values, str | bytes):
        raise InvalidOption(f"values is {values!r}; it must be a number, an array of {n} numbers or a result")
    if len(values) != n:
        raise InvalidOption(f"values has {len(values)} numbers, and the graph {n} vertices")
    return VertexData(values)


ALGORITHM = Algorithm(name="gather", check=check, run=run, columns={"gathered": "value"}, scalars=(), warm=warm)
