"""Method `label_propagation`, and the check of its arguments."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.communities.label_propagation.program import run, warm
from mgraph.checks import check_whole
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "label_propagation"]

T = TypeVar("T")


def label_propagation(self: Runs[T], max_iter: int = 10) -> T:
    """Compute the label of each vertex, a vertex id, by `max_iter` rounds of label propagation.

    Labels are int64, and stay on the workers. Every vertex begins with its own id as its label. In each round all
    vertices at once take the most frequent label among their neighbours; of labels equally frequent, the smallest. A
    vertex without neighbours keeps its label. On a directed graph, in- and out-neighbours count, and a neighbour joined
    by both arcs counts twice. A self-loop makes a vertex a neighbour of its own. Weights are ignored. These are the
    rules of LDBC Graphalytics.

    Parameters
    ----------
    max_iter : int
        The number of rounds, 0 or more.

    Returns
    -------
    VertexValues
        With ``.communities``, the number of different labels, and ``.iterations``, the computed rounds: fewer than
        `max_iter` if a round changed no label.

    Raises
    ------
    InvalidOption
        `max_iter` is not a whole number of 0 or more, or the graph is directed and has no in-edges.
    CapacityError
        A worker has too little memory: 5 bytes per vertex of the whole graph, on CPUs 13, 12 per own vertex, and for
        rows of more than 192 edges 200 MB, or 24 per edge of the largest row if that is more.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) per round. Labels are counted in hash tables. Each worker receives 4 bytes per vertex of the others in a
    round. The result is exact: it does not depend on the order of the vertices, the structure or the number of workers.
    After U. N. Raghavan, R. Albert, S. Kumara, "Near linear time algorithm to detect
    community structures in large-scale networks", Phys. Rev. E 76, 2007, made synchronous.

    Examples
    --------
    >>> g.insert([0, 1, 2, 4], [1, 2, 0, 5])  # of 6 vertices, with directed=False  # doctest: +SKIP
    >>> g.label_propagation(3).to_numpy()  # doctest: +SKIP
    array([0, 0, 0, 3, 5, 4])
    """
    return self.run("label_propagation", max_iter=max_iter)


def check(graph: GraphFacts, max_iter: Any = 10) -> dict[str, Any]:
    """Return the program's arguments."""
    if not graph.reverse:
        raise InvalidOption(
            "label_propagation needs in-edges; create the graph with reverse=True, or with directed=False"
        )
    return {"max_iter": min(check_whole(max_iter, "max_iter"), sys.maxsize)}


ALGORITHM = Algorithm(
    name="label_propagation",
    check=check,
    run=run,
    columns={"label": "label"},
    scalars=("communities", "iterations"),
    warm=warm,
)
