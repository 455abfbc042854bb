"""The method `clustering` that users call, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.density.clustering.program import DEFINITIONS, run, warm
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "clustering"]

T = TypeVar("T")


def clustering(self: Runs[T], definition: str = "ldbc") -> T:
    """The clustering coefficient of each vertex: float64 from 0 to 1, on the workers. Weights and loops are ignored.

    On an undirected graph it is the share of pairs of neighbours that are neighbours themselves, with both definitions.

    Parameters
    ----------
    definition : "ldbc" | "fagiolo"
        What it is on a directed graph. "ldbc": with N the set of all in- and out-neighbours of a vertex, each once and
        without the vertex itself, the number of arcs among them by ``|N| (|N| - 1)`` [1]_. "fagiolo": directed
        triangles by all that there could be [2]_, as in NetworkX.

    Returns
    -------
    VertexValues
        0 for a vertex with less than two neighbours.

    Raises
    ------
    InvalidOption
        `definition` is neither of the two.
    CapacityError
        A worker has too little memory. It needs what `triangles` needs, in a directed graph 4 bytes more for each
        vertex of the whole graph. If that does not store in-edges, they are made for the call, which takes 32 bytes an
        arc meanwhile.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(m sqrt(m)) at most, as `triangles`. Counts are exact, and the coefficient is one division of them.

    References
    ----------
    .. [1] The LDBC Graphalytics benchmark specification: "local clustering coefficient".
    .. [2] G. Fagiolo, "Clustering in complex directed networks", Phys. Rev. E 76, 2007.

    Examples
    --------
    >>> g.insert([0, 1, 2, 0], [1, 2, 0, 3])  # with directed=False  # doctest: +SKIP
    >>> g.clustering().to_numpy()  # doctest: +SKIP
    array([0.33333333, 1.        , 1.        , 0.        ])
    """
    return self.run("clustering", definition=definition)


def check(graph: GraphFacts, definition: Any = "ldbc") -> dict[str, Any]:
    """The program's arguments from the user's."""
    if not isinstance(definition, str) or definition not in DEFINITIONS:
        raise InvalidOption(f"definition is {definition!r}; it must be one of {', '.join(map(repr, DEFINITIONS))}")
    return {"definition": definition}


ALGORITHM = Algorithm(name="clustering", check=check, run=run, columns={"coefficient": "value"}, scalars=(), warm=warm)
