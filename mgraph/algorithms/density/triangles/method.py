"""Methods `triangles` and `transitivity`, and the check of their arguments."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.density.triangles.maintain import Triangles
from mgraph.algorithms.density.triangles.program import run, warm
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "transitivity", "triangles"]

T = TypeVar("T")


class _Graph(Runs[Any], Protocol):
    @property
    def directed(self) -> bool: ...


def triangles(self: Runs[T]) -> T:
    """Count the triangles at each vertex of an undirected graph: int64, on the workers.

    Self-loops are ignored.

    Returns
    -------
    VertexValues
        With ``.total``, the number of triangles in the graph, and ``.pairs``, the sum over all vertices of the pairs of
        their neighbours, d (d - 1) / 2.

    Raises
    ------
    InvalidOption
        The graph is directed.
    CapacityError
        A worker has too little memory: 12 bytes per vertex of the whole graph, 17 per own vertex, 16 per kept edge (all
        workers together keep each edge once), and 20 MiB per worker.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(m sqrt(m)) work at most: each edge is kept at its end of smaller degree, and the rows of kept edges are
    intersected. Each worker receives the kept edges of all others once, in pieces of 16 MiB, on GPUs of up to a quarter
    of the free memory: 4 bytes per edge and 8 per vertex; each piece is a superstep. The result is exact. The bound is
    that of N. Chiba, T. Nishizeki, "Arboricity and subgraph listing algorithms", SIAM J. Comput. 14, 1985.

    Examples
    --------
    >>> g.insert([0, 1, 2], [1, 2, 0])  # of 4 vertices, with directed=False  # doctest: +SKIP
    >>> result = g.triangles()  # doctest: +SKIP
    >>> result.to_numpy(), result.total  # doctest: +SKIP
    (array([1, 1, 1, 0]), 1)
    """
    return self.run("triangles")


def transitivity(self: _Graph) -> float:
    """Return the share of pairs of neighbours that are neighbours themselves: 3 triangles / pairs, 0.0 without pairs.

    The graph must be undirected; self-loops are ignored. Costs and errors are those of `triangles`. After M. E. J.
    Newman, S. H. Strogatz, D. J. Watts, "Random graphs with arbitrary degree distributions and their applications",
    Phys. Rev. E 64, 2001.

    Examples
    --------
    >>> g.insert([0, 1, 2, 0], [1, 2, 0, 3])  # with directed=False  # doctest: +SKIP
    >>> g.transitivity()  # doctest: +SKIP
    0.6
    """
    _check_undirected(self.directed, "transitivity")
    result = self.run("triangles")
    return 3 * result.total / result.pairs if result.pairs else 0.0


def check(graph: GraphFacts) -> dict[str, Any]:
    """Return the program's arguments: none. The graph must be undirected."""
    _check_undirected(graph.directed, "triangles")
    return {}


def _check_undirected(directed: bool, what: str) -> None:
    if directed:
        raise InvalidOption(f"{what} is for undirected graphs; create the graph with directed=False")


ALGORITHM = Algorithm(
    name="triangles",
    check=check,
    run=run,
    columns={"triangles": "value"},
    scalars=("total", "pairs"),
    warm=warm,
    maintain=Triangles,
)
