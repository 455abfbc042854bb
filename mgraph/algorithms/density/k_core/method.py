"""The method `k_core` that users call, and the check of its arguments."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.density.k_core.program import run, warm
from mgraph.checks import check_whole

__all__ = ["ALGORITHM", "k_core"]

T = TypeVar("T")


def k_core(self: Runs[T], k: int | None = None) -> T:
    """Which vertices are in the k-core: bool, True for those inside, on the workers.

    The k-core is the largest subgraph in which every vertex has k edges or more. On a directed graph, edges to and from
    a vertex count. Self-loops are ignored. The ids of its vertices are ``numpy.flatnonzero(g.k_core(k))``; its edges
    are those of the graph among them.

    Parameters
    ----------
    k : int, optional
        0 or more. Without it, the innermost core: that of the largest core number.

    Returns
    -------
    VertexValues
        With ``.k``, and ``.vertices``, how many vertices the k-core has.

    Raises
    ------
    InvalidOption
        `k` is not a whole number of 0 or more.
    CapacityError
        A worker has too little memory; it needs what `core_number` needs.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work. With `k`, all levels below it are peeled as one, so that it takes less time and fewer supersteps than
    `core_number`, with the same bytes for a vertex that has lost edges. Without `k` it takes as long. The result is
    exact. After S. B. Seidman, "Network structure and minimum degree", Social Networks 5, 1983.

    Examples
    --------
    >>> g.insert([0, 1, 2, 0], [1, 2, 0, 3])  # of 5 vertices  # doctest: +SKIP
    >>> np.flatnonzero(g.k_core(2))  # doctest: +SKIP
    array([0, 1, 2])
    """
    return self.run("k_core", k=k)


def check(graph: GraphFacts, k: Any = None) -> dict[str, Any]:
    """The program's arguments from the user's."""
    return {} if k is None else {"k": min(check_whole(k, "k"), sys.maxsize)}


ALGORITHM = Algorithm(
    name="k_core", check=check, run=run, columns={"inside": "value"}, scalars=("k", "vertices"), warm=warm
)
