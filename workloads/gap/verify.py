"""Checks of the six kernels' results from the list of edges alone, on the device, by array operations.

Each proves what gapbs's verifier proves, without running the kernel again; betweenness is computed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workloads.gap.graphs import GapGraph

__all__ = ["ALPHA", "bc", "bfs", "cc", "pr", "sssp", "tc"]

ALPHA = 0.85
LOOKED_AT = 16  #: vertices whose triangles are counted anew


def _arcs(graph: GapGraph) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each edge in both directions, part by part: its ends and its weight."""
    for src, dst, weight in graph.edges():
        yield src, dst, weight
        yield dst, src, weight


def bfs(graph: GapGraph, source: int, distance: Any, predecessors: Any) -> str:
    """Return the fault of a breadth-first tree, or "".

    No edge spans more than one level or leaves the reached vertices, and each vertex but the source has a neighbour one
    level up as its predecessor: so levels are distances.
    """
    # The source alone has distance 0.
    xp = graph.device.xp
    if int(distance[source]) != 0 or int((distance == 0).sum()) != 1:
        return "the source alone must have distance 0"
    led = xp.zeros(graph.n_vertices, bool)  # has an edge from its predecessor

    # Check every edge, and mark the vertices with an edge from their predecessor.
    for u, v, _ in _arcs(graph):
        near, far = distance[u], distance[v]
        if bool(((near < 0) != (far < 0)).any()) or bool((abs(near - far) > 1).any()):
            return "an edge spans more than one level"
        led[v[predecessors[v] == u]] = True

    # Check the predecessors.
    vertices = xp.flatnonzero(distance > 0)
    before = predecessors[vertices]
    if bool((before < 0).any()) or bool((predecessors[distance <= 0] != -1).any()):
        return "a vertex that has no predecessor has one, or the other way round"
    if bool((distance[before] != distance[vertices] - 1).any()):
        return "a predecessor is not one level up"
    return "" if bool(led[vertices].all()) else "a predecessor is no neighbour"


def sssp(graph: GapGraph, source: int, distance: Any) -> str:
    """Return the fault of distances by weights, or "".

    No edge is a shorter path, and each reached vertex has an edge that is exactly its path: with weights above 0 that
    makes them the shortest.
    """
    xp = graph.device.xp
    if float(distance[source]) != 0:
        return "the source must have distance 0"
    reached = xp.zeros(graph.n_vertices, bool)
    reached[source] = True
    for u, v, weight in _arcs(graph):
        through, direct = distance[u] + weight, distance[v]
        if bool((through < direct).any()):
            return "an edge is a shorter way"
        reached[v[xp.isfinite(through) & (through == direct)]] = True
    return "" if bool((reached == xp.isfinite(distance)).all()) else "a distance is that of no path"


def pr(graph: GapGraph, ranks: Any, tol: float) -> str:
    """Return the fault of ranks, or "".

    One more iteration, in float64, must change them by less than `tol`.
    """
    xp, n = graph.device.xp, graph.n_vertices
    # r' = (1 - alpha) / n + alpha sum over in-edges of r / degree.
    share, sums = ranks.astype(np.float64) / xp.maximum(graph.degrees, 1), xp.zeros(n)
    for u, v, _ in _arcs(graph):
        sums += xp.bincount(v, weights=share[u], minlength=n)
    error = float(abs((1 - ALPHA) / n + ALPHA * sums - ranks).sum())
    return "" if error < tol else f"one more iteration changes the ranks by {error:.3g}, and {tol:g} is allowed"


def cc(graph: GapGraph, labels: Any, reached: Any) -> str:
    """Return the fault of components, or "".

    Edges join equal labels, and each component is connected: `reached` has the distances of a search from the vertices
    whose ids are labels, -1 for vertices without a path.
    """
    if any(bool((labels[src] != labels[dst]).any()) for src, dst, _ in graph.edges()):
        return "an edge joins different components"
    if bool((labels[labels] != labels).any()) or bool((reached < 0).any()):
        return "a component has parts that are not connected"
    return ""


def _between(graph: GapGraph, depth: Any, near: int, far: int) -> Iterator[tuple[Any, Any]]:
    """Yield the ends of the arcs from the vertices of one depth to those of another, part by part."""
    for src, dst, _ in graph.edges():
        of_src, of_dst = depth[src], depth[dst]
        out, back = (of_src == near) & (of_dst == far), (of_dst == near) & (of_src == far)
        yield src[out], dst[out]
        yield dst[back], src[back]


def bc(graph: GapGraph, sources: list[int], sums: Any) -> str:
    """Return the fault of sums of betweenness, or "": Brandes's by levels in float64, to 1e-6 of the largest.

    A source's own share is not counted, by Brandes's definition. gapbs counts all vertices that the source reaches.
    """
    xp, n = graph.device.xp, graph.n_vertices
    total = xp.zeros(n)
    for source in sources:
        # Forward: count the shortest paths, level by level.
        depth, paths = xp.full(n, -1, np.int32), xp.zeros(n)
        depth[source], paths[source], level = 0, 1, 0
        while True:
            counts = xp.zeros(n)
            for u, v in _between(graph, depth, level, -1):
                counts += xp.bincount(v, weights=paths[u], minlength=n)
            new = counts > 0
            if not bool(new.any()):
                break
            level += 1
            depth[new], paths[new] = level, counts[new]

        # Backward: credit flows from the deepest level up.
        share = xp.zeros(n)
        for at in range(level - 1, -1, -1):
            credit, more = (1 + share) / xp.maximum(paths, 1), xp.zeros(n)
            for u, v in _between(graph, depth, at, at + 1):
                more += xp.bincount(u, weights=credit[v], minlength=n)
            share += paths * more
        share[source] = 0
        total += share

    # Compare the sums.
    error, most = float(abs(sums - total).max()), float(total.max())
    return "" if error <= 1e-6 * most else f"a sum differs by {error:.3g}, and the greatest is {most:.3g}"


def tc(graph: GapGraph, counts: Any, total: int) -> str:
    """Return the fault of triangles, or "": their sum, and at some vertices the edges among their neighbours."""
    # Each triangle has three corners.
    xp = graph.device.xp
    if int(counts.sum()) != 3 * total:
        return f"the vertices have {int(counts.sum())} triangles and the graph {total}, which is no third of it"

    # Count anew at a few vertices.
    for vertex in np.random.default_rng(1).integers(0, graph.n_vertices, LOOKED_AT):
        near = xp.zeros(graph.n_vertices, bool)
        for u, v, _ in _arcs(graph):
            near[v[u == vertex]] = True
        among = sum(int((near[src] & near[dst]).sum()) for src, dst, _ in graph.edges())
        if among != int(counts[vertex]):
            return f"vertex {vertex} has {int(counts[vertex])} triangles, by the edges {among}"
    return ""
