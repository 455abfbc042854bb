"""Centrality by paths, by neighbours and by degrees."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from random import Random
from typing import Any

import networkx as nx
import numpy as np

from mgraph.graph import DynamicGraph
from mgraph.networkx.calls import by_node, offered, refusing, weighted, why_no_weight
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph
from mgraph.networkx.search import length_rows

__all__ = [
    "betweenness_centrality",
    "closeness_centrality",
    "degree_centrality",
    "eigenvector_centrality",
    "harmonic_centrality",
    "in_degree_centrality",
    "katz_centrality",
    "out_degree_centrality",
]

SEARCHES = 64  #: searches per call of `distances`


def _why_no_betweenness(G: Any, weight: Any = None, **others: Any) -> str | None:
    return why_no_weight(weight)


@offered(_why_no_betweenness)
def betweenness_centrality(
    G: Graph,
    k: int | None = None,
    normalized: bool = True,
    weight: Any = None,
    endpoints: bool = False,
    seed: Any = None,
) -> dict[Any, float]:
    """Implement `networkx.betweenness_centrality`, by numbers of edges. With `k`, draws the same nodes as NetworkX."""
    # Draw the sources.
    if weighted(G, weight):
        raise Refused("the backend has no betweenness centrality by weights")
    nodes = list(G)
    drawn = (seed or Random()).sample(nodes, k) if k is not None and k != len(G) else nodes
    if len(G) == 0:
        return {}

    # Run the searches; ends count in a second pass.
    with refusing(G) as graph:
        ids = None if drawn is nodes else np.array([G._contents.index[node] for node in drawn], np.int64)
        if not endpoints:
            return by_node(G, graph.betweenness_centrality(ids, normalized=bool(normalized)).to_numpy())
        return by_node(G, _with_endpoints(graph, ids, normalized))


def _with_endpoints(graph: DynamicGraph, ids: np.ndarray | None, normalized: bool) -> np.ndarray:
    """Return the betweenness in which paths count for their ends, too. Searches twice from each source."""
    n = graph.num_vertices
    if n < 2:
        return np.zeros(n)
    sources = np.arange(n) if ids is None else ids
    # Undo the scaling of the library: c[v] is a number of paths again. NaN stands for 0 paths.
    counts = graph.betweenness_centrality(sources, normalized=False).to_numpy()
    if n > 2:
        paths = np.full(n, len(sources))
        paths[sources] -= 1
        counts = np.nan_to_num(counts) * (paths / (n - 1)) * (1 if graph.directed else 2)

    # Add the paths' ends: one for each pair of a source and a vertex it reaches.
    for at in range(0, len(sources), SEARCHES):
        chunk = sources[at : at + SEARCHES]
        reached = graph.distances(chunk).to_numpy() >= 0
        counts += reached.sum(axis=0)
        counts[chunk] += reached.sum(axis=1) - 2  # itself once as a source and once as an end
    return counts * (1 / (len(sources) * (n - 1)) if normalized else n / (len(sources) * (1 if graph.directed else 2)))


# ---- by degrees ------------------------------------------------------------------------------------------------------


def _why_no_degrees(G: Any) -> str | None:
    return "each of parallel edges counts, and the backend keeps one" if G.is_multigraph() else None


def _by_degree(G: Graph, *directions: str) -> dict[Any, float]:
    """Return the sum of degrees of each node over n - 1, the largest degree in a simple graph. A lone node gets 1."""
    if len(G) <= 1:
        return dict.fromkeys(G, 1)
    with refusing(G) as graph:
        degrees = np.sum([graph.degrees(direction=direction) for direction in directions], axis=0, dtype=np.int64)
        if not graph.directed:  # a self-loop counts twice
            every = np.arange(graph.num_vertices)
            degrees += graph.has_edges(every, every)
    return by_node(G, np.asarray(degrees * (1.0 / (len(G) - 1.0))))


@offered(_why_no_degrees)
def degree_centrality(G: Graph) -> dict[Any, float]:
    """Implement `networkx.degree_centrality`."""
    return _by_degree(G, *(("out", "in") if G.is_directed() else ("out",)))


@offered(_why_no_degrees)
def in_degree_centrality(G: Graph) -> dict[Any, float]:
    """Implement `networkx.in_degree_centrality`."""
    return _by_degree(G, "in")


@offered(_why_no_degrees)
def out_degree_centrality(G: Graph) -> dict[Any, float]:
    """Implement `networkx.out_degree_centrality`."""
    return _by_degree(G, "out")


# ---- by neighbours ---------------------------------------------------------------------------------------------------


def _array(G: Graph, values: Mapping[Any, float]) -> np.ndarray:
    """Return values by node as an array by id. Raises `Refused` if a node has none."""
    try:
        return np.array([values[node] for node in G._contents.nodes], np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"there is no number for each node: {error!r}") from None


def _why_no_eigenvector(G: Any, weight: Any = None, **others: Any) -> str | None:
    return _why_no_degrees(G) or why_no_weight(weight)


@offered(_why_no_eigenvector)
def eigenvector_centrality(
    G: Graph,
    max_iter: int = 100,
    tol: float = 1e-6,
    nstart: Mapping[Any, float] | None = None,
    weight: Any = None,
) -> dict[Any, float]:
    """Implement `networkx.eigenvector_centrality` in float64."""
    # Check the start vector as NetworkX does.
    if len(G) == 0:
        raise nx.NetworkXPointlessConcept("cannot compute centrality for the null graph")
    start = None if nstart is None else _array(G, nstart)
    if start is not None and not start.any():
        raise nx.NetworkXError("initial vector cannot have all zero values")

    # Iterate on the normalised start vector.
    by_weight = weighted(G, weight)
    with refusing(G) as graph, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the error below reports it
        start = None if start is None else start / start.sum()
        centrality = graph.eigenvector_centrality(max_iter, tol, start, by_weight)
        if not centrality.converged:
            raise nx.PowerIterationFailedConvergence(max_iter)
        return by_node(G, centrality.to_numpy())


@offered(_why_no_eigenvector)
def katz_centrality(
    G: Graph,
    alpha: float = 0.1,
    beta: Any = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-6,
    nstart: Mapping[Any, float] | None = None,
    normalized: bool = True,
    weight: Any = None,
) -> dict[Any, float]:
    """Implement `networkx.katz_centrality` in float64."""
    # Read `beta`: one number, or one per node.
    if len(G) == 0:
        return {}
    try:
        own: Any = float(beta)
    except (TypeError, ValueError, AttributeError):
        if set(beta) != set(G):
            raise nx.NetworkXError("beta dictionary must have a value for every node") from None
        own = _array(G, beta)

    # Iterate.
    start, by_weight = None if nstart is None else _array(G, nstart), weighted(G, weight)
    with refusing(G) as graph, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        centrality = graph.katz_centrality(alpha, own, max_iter, tol, start, bool(normalized), by_weight)
        if not centrality.converged:
            raise nx.PowerIterationFailedConvergence(max_iter)
        return by_node(G, centrality.to_numpy())


# ---- by distances ----------------------------------------------------------------------------------------------------


def _why_no_distances(G: Any, distance: Any = None, **others: Any) -> str | None:
    return why_no_weight(distance)


@offered(_why_no_distances)
def closeness_centrality(G: Graph, u: Any = None, distance: Any = None, wf_improved: bool = True) -> Any:
    """Implement `networkx.closeness_centrality`. Searches from each node."""
    # Sum the lengths of paths to each node, and count the nodes with a path to it.
    n = len(G)
    if u is not None and u not in G:
        raise nx.NodeNotFound(f"Source {u} is not in G")
    if u is not None and not G.is_directed():
        (row,) = length_rows(G, [G._contents.index[u]], distance)
        total, reached = np.nan_to_num(row, posinf=0).sum(keepdims=True), np.isfinite(row).sum(keepdims=True)
    else:
        total, reached = np.zeros(n), np.zeros(n, np.int64)
        for row in length_rows(G, range(n), distance):  # column v has the lengths to v
            finite = np.isfinite(row)
            total[finite] += row[finite]
            reached += finite

    # closeness[v] = (reached - 1) / total, times (reached - 1) / (n - 1) with `wf_improved`.
    closeness = np.zeros(len(total))
    if n > 1:
        near = total > 0
        closeness[near] = (reached[near] - 1.0) / total[near]
        if wf_improved:
            closeness[near] *= (reached[near] - 1.0) / (n - 1)
    if u is None:
        return by_node(G, closeness)
    return float(closeness[G._contents.index[u] if len(closeness) == n > 1 else 0])


@offered(_why_no_distances)
def harmonic_centrality(G: Graph, nbunch: Any = None, distance: Any = None, sources: Any = None) -> dict[Any, float]:
    """Implement `networkx.harmonic_centrality`. A search from each source."""
    targets = set(G.nbunch_iter(nbunch) if nbunch is not None else G.nodes)
    begins = set(G.nbunch_iter(sources) if sources is not None else G.nodes)
    index, sums = G._contents.index, np.zeros(len(G))
    for row in length_rows(G, [index[v] for v in begins], distance):
        other = np.isfinite(row) & (row != 0)
        sums[other] += 1 / row[other]
    return {u: float(sums[index[u]]) or 0 for u in targets}
