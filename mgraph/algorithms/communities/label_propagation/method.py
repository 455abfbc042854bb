"""The method `label_propagation` that users call, and the check of its arguments."""

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
    """The label of each vertex after `max_iter` rounds of label propagation: a vertex id, int64, on the workers.

    Every vertex begins with its own id as its label. In each round all vertices at once take the label that most of
    their neighbours have; of labels equally frequent, the smallest. A vertex without neighbours keeps its label. On a
    directed graph, in- and out-neighbours count, and a neighbour joined by both arcs counts twice. A self-loop makes a
    vertex a neighbour of its own. Weights are ignored. These are the rules of LDBC Graphalytics.

    Parameters
    ----------
    max_iter : int
        The number of rounds, 0 or more.

    Returns
    -------
    VertexValues
        With ``.communities``, the number of different labels, and ``.iterations``, the rounds that were computed: fewer
        than `max_iter` if a round has changed no label, as further ones would not either.

    Raises
    ------
    InvalidOption
        `max_iter` is not a whole number of 0 or more, or the graph is directed and has no in-edges.
    CapacityError
        A worker has too little memory. It needs 5 bytes for each vertex of the whole graph, 12 for each of its own, and
        200 MB, or 24 for each edge of the largest row if that is more, for rows of more than 192 edges.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) a round, which is one superstep. Labels are counted in hash tables. Each worker receives 4 bytes for each
    vertex of the others in a round. The result is exact: it does not depend on the order of the vertices, the structure
    or the number of workers. After U. N. Raghavan, R. Albert, S. Kumara, "Near linear time algorithm to detect
    community structures in large-scale networks", Phys. Rev. E 76, 2007, made synchronous.

    Examples
    --------
    >>> g.insert([0, 1, 2, 4], [1, 2, 0, 5])  # of 6 vertices, with directed=False  # doctest: +SKIP
    >>> g.label_propagation(3).to_numpy()  # doctest: +SKIP
    array([0, 0, 0, 3, 5, 4])
    """
    return self.run("label_propagation", max_iter=max_iter)


def check(graph: GraphFacts, max_iter: Any = 10) -> dict[str, Any]:
    """The program's arguments from the user's."""
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
