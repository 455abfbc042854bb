"""Method `betweenness_centrality`, and the check of its arguments."""

from __future__ import annotations

import math
import operator
from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs, Vertices
from mgraph.algorithms.centrality.betweenness.program import run, warm
from mgraph.checks import check_flag, check_whole
from mgraph.errors import InvalidOption
from mgraph.tables.arrays import written

__all__ = ["ALGORITHM", "betweenness_centrality"]

T = TypeVar("T")


def betweenness_centrality(self: Runs[T], k: Any = None, seed: int | None = None, normalized: bool = True) -> T:
    """Compute the betweenness centrality of each vertex, like ``networkx.betweenness_centrality``.

    It is the sum over all pairs of other vertices of the share of their shortest paths that go through the vertex:
    float64, on the workers. Weights are ignored.

    Parameters
    ----------
    k : None, int, or array-like
        The sources whose shortest paths count: all vertices; this many, drawn at random; or these, by ids or keys. With
        fewer than all, the result is an estimate, scaled up like in NetworkX 3.6: sources are scaled by k - 1, because
        paths from themselves do not count, and so are NaN if k is 1.
    seed : int, optional
        The seed of the draw. Equal seeds draw equal sources, but not those of NetworkX.
    normalized : bool
        Divide by the number of pairs, (n - 1) (n - 2). Otherwise a pair counts once in undirected graphs.

    Returns
    -------
    VertexValues
        With ``.sources``, their number.

    Raises
    ------
    UnknownVertex
        A source is not a vertex of the graph.
    InvalidOption
        `k` is more than the number of vertices or below 1, or names a vertex twice.
    CapacityError
        A worker has too little memory: 50 bytes per vertex of the whole graph suffice if in-edges are stored.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) per source: a search, and two passes over its levels, in which each worker sends 16 bytes per vertex of its
    own to every other. Sums are float64, and numbers of paths may exceed its range. The result does not depend on
    timing. After U. Brandes, "A faster algorithm for betweenness centrality", J. Mathematical Sociology 25(2), 2001.

    Examples
    --------
    >>> g.insert([0, 1], [1, 2])  # of 3 vertices  # doctest: +SKIP
    >>> g.betweenness_centrality().to_numpy()  # doctest: +SKIP
    array([0. , 0.5, 0. ])
    """
    return self.run("betweenness_centrality", k=k, seed=seed, normalized=normalized)


def check(graph: GraphFacts, k: Any = None, seed: Any = None, normalized: Any = True) -> dict[str, Any]:
    """Return the program's arguments."""
    # Draw or check the sources.
    n = graph.n_vertices
    seed, scaled = None if seed is None else check_whole(seed, "seed"), check_flag(normalized, "normalized")
    sources = None if k is None else _sources(k, seed, graph)

    # Scale the sums; paths from a source itself do not count for it.
    count = n - 1 if sources is None else len(sources)
    factors = [_factor(n, count, graph.directed, scaled)] * 2
    if sources is not None:
        own = count - 1
        factors[1] = math.nan if n > 2 and own == 0 else _factor(n, own, graph.directed, scaled)
    vertices = None if sources is None else Vertices(sources)
    return {"sources": vertices, "factor": factors[0], "source_factor": factors[1]}


def _sources(k: Any, seed: Any, graph: GraphFacts) -> np.ndarray:
    n = graph.n_vertices
    try:
        count = operator.index(k)
    except TypeError:
        count = None
    if count is None:
        ids = graph.vertices(k, "k")
        graph.check_distinct(k, ids, "k", "sources")
        return ids
    if n == 0:
        raise InvalidOption(f"k is {k}, and the graph has no vertices")
    if not 1 <= count <= n or isinstance(k, bool):
        raise InvalidOption(f"k is {written(k)}; the graph has {n} vertices, of which 1 to {n} can be sources")
    return np.random.default_rng(seed).choice(n, count, replace=False).astype(np.uint32)


def _factor(n: int, sources: int, directed: bool, normalized: bool) -> float:
    """Return the factor of a sum over this many sources."""
    if n < 3:
        return 1.0  # no vertex lies between two others
    if normalized:
        return 1 / (sources * (n - 2))
    return (n - 1) / (sources * (1 if directed else 2))


ALGORITHM = Algorithm(
    name="betweenness_centrality",
    check=check,
    run=run,
    columns={"centrality": "value"},
    scalars=("sources",),
    warm=warm,
)
