"""The method `modularity` that users call, and the check of its arguments."""

from __future__ import annotations

from typing import Any

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, VertexData
from mgraph.algorithms.communities.louvain.method import check_resolution
from mgraph.algorithms.communities.modularity.program import run, warm
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "modularity"]


def modularity(self: Runs[Any], labels: Any, resolution: float = 1.0) -> float:
    """The modularity of communities: a float64 number, at most 1. Weights count, and a self-loop counts twice.

    It is the share of weight on edges inside of communities, less the share that would be there if edges were drawn at
    random between vertices of the same strengths, times `resolution`. On a directed graph these are the strengths of
    out- and in-edges, and a self-loop counts once in each. This is NetworkX's definition.

    Parameters
    ----------
    labels : result, or array of num_vertices whole numbers
        The community of each vertex: numbers from 0 to ``num_vertices - 1``, such as the result of `louvain`,
        `label_propagation` or `connected_components`. A result of this graph stays on the workers, unless the graph was
        reordered since.
    resolution : float
        0 or more.

    Returns
    -------
    float
        0.0 for a graph without edges, or whose weights are all 0.

    Raises
    ------
    InvalidOption
        `labels` has another length, or other numbers; a weight is negative or not finite; or `resolution` is.
    GraphClosed
        `labels` is a result that was closed.
    CapacityError
        A worker has too little memory. It needs 12 bytes for each vertex of the whole graph and 32 for each of its own.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m), in two supersteps: each worker receives 4 bytes for each vertex of the others, and 8 bytes for each vertex
    of the graph from each of them. Weights are added up as whole numbers of a unit that is 2**-61 of the sum of all.
    ``g.run("modularity", labels=...)`` gives each vertex's share of it, too. After M. E. J. Newman, "Analysis of
    weighted networks", Phys. Rev. E 70, 2004; for directed graphs E. A. Leicht, M. E. J. Newman, "Community structure
    in directed networks", Phys. Rev. Lett. 100, 2008.

    Examples
    --------
    >>> g.insert([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3])  # with directed=False  # doctest: +SKIP
    >>> g.modularity([0, 0, 0, 3, 3, 3])  # doctest: +SKIP
    0.35714285714285715
    """
    return float(self.run("modularity", labels=labels, resolution=resolution).modularity)


def check(graph: GraphFacts, labels: Any, resolution: Any = 1.0) -> dict[str, Any]:
    """The program's arguments from the user's. The labels themselves are checked on the workers."""
    try:
        given = len(labels)
    except TypeError:
        raise InvalidOption(f"labels is {labels!r}; it must be a result, or an array with a label a vertex") from None
    if given != graph.n_vertices:
        raise InvalidOption(f"there are {given} labels and {graph.n_vertices} vertices; each vertex needs one")
    return {"labels": VertexData(labels), "resolution": check_resolution(resolution)}


ALGORITHM = Algorithm(
    name="modularity", check=check, run=run, columns={"share": "value"}, scalars=("modularity",), warm=warm
)
