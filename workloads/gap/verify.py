"""Checks of the six kernels' results from the list of edges alone, on the device, by array operations.

Each proves what gapbs's verifier proves, without running the kernel again; betweenness is computed once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workloads.gap.graphs import GapGraph

__all__ = ["ALPHA", "bc", "bfs", "cc", "pr", "sssp", "tc"]

ALPHA = 0.85
LOOKED_AT = 16  #: vertices whose triangles are counted otherwise


def _arcs(graph: GapGraph) -> Iterator[tuple[Any, Any, Any]]:
    """Part by part, each edge one way and then the other: its ends and its weight."""
    for src, dst, weight in graph.edges():
        yield src, dst, weight
        yield dst, src, weight


def bfs(graph: GapGraph, source: int, distance: Any, predecessors: Any) -> str:
    """What is wrong with a breadth-first tree, or nothing.

    No edge spans more than one level or leaves what was reached, and each vertex but the source has a neighbour one
    level up as its predecessor: so levels are distances.
    """
    xp = graph.device.xp
    if int(distance[source]) != 0 or int((distance == 0).sum()) != 1:
        return "the source alone must have distance 0"
    led = xp.zeros(graph.n_vertices, bool)  # by an edge from its predecessor
    for u, v, _ in _arcs(graph):
        near, far = distance[u], distance[v]
        if bool(((near < 0) != (far < 0)).any()) or bool((abs(near - far) > 1).any()):
            return "an edge spans more than one level"
        led[v[predecessors[v] == u]] = True
    vertices = xp.flatnonzero(distance > 0)
    before = predecessors[vertices]
    if bool((before < 0).any()) or bool((predecessors[distance <= 0] != -1).any()):
        return "a vertex that has no predecessor has one, or the other way round"
    if bool((distance[before] != distance[vertices] - 1).any()):
        return "a predecessor is not one level up"
    return "" if bool(led[vertices].all()) else "a predecessor is no neighbour"


def sssp(graph: GapGraph, source: int, distance: Any) -> str:
    """What is wrong with distances by weights, or nothing.

    No edge is a shorter way, and each vertex that was reached has an edge that is exactly its way: with weights above
    0 that makes them the shortest.
    """
    xp = graph.device.xp
    if float(distance[source]) != 0:
        return "the source must have distance 0"
    reached = xp.zeros(graph.n_vertices, bool)
    reached[source] = True
    for u, v, weight in _arcs(graph):
        way, known = distance[u] + weight, distance[v]
        if bool((way < known).any()):
            return "an edge is a shorter way"
        reached[v[xp.isfinite(way) & (way == known)]] = True
    return "" if bool((reached == xp.isfinite(distance)).all()) else "a distance is that of no path"


def pr(graph: GapGraph, ranks: Any, tol: float) -> str:
    """What is wrong with ranks, or nothing: one more iteration, in float64, must change them by less than `tol`."""
    xp, n = graph.device.xp, graph.n_vertices
    share, sums = ranks.astype(np.float64) / xp.maximum(graph.degrees, 1), xp.zeros(n)
    for u, v, _ in _arcs(graph):
        sums += xp.bincount(v, weights=share[u], minlength=n)
    error = float(abs((1 - ALPHA) / n + ALPHA * sums - ranks).sum())
    return "" if error < tol else f"one more iteration changes the ranks by {error:.3g}, and {tol:g} is allowed"


def cc(graph: GapGraph, labels: Any, reached: Any) -> str:
    """What is wrong with components, or nothing.

    An edge has one label, and each component hangs together: `reached` is what a search from the vertices that gave
    their names to components found, -1 where it did not come.
    """
    if any(bool((labels[src] != labels[dst]).any()) for src, dst, _ in graph.edges()):
        return "an edge joins different components"
    if bool((labels[labels] != labels).any()) or bool((reached < 0).any()):
        return "a component has parts that are not connected"
    return ""


def _between(graph: GapGraph, depth: Any, near: int, far: int) -> Iterator[tuple[Any, Any]]:
    """Part by part, the ends of the arcs from the vertices of one depth to those of another."""
    for src, dst, _ in graph.edges():
        of_src, of_dst = depth[src], depth[dst]
        there, back = (of_src == near) & (of_dst == far), (of_dst == near) & (of_src == far)
        yield src[there], dst[there]
        yield dst[back], src[back]


def bc(graph: GapGraph, sources: list[int], sums: Any) -> str:
    """What is wrong with sums of betweenness, or nothing: Brandes's by levels in float64, to 1e-6 of the greatest.

    A source's own share is not counted, by Brandes's definition. gapbs counts there all that the source reaches.
    """
    xp, n = graph.device.xp, graph.n_vertices
    total = xp.zeros(n)
    for source in sources:
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
        share = xp.zeros(n)
        for at in range(level - 1, -1, -1):
            credit, more = (1 + share) / xp.maximum(paths, 1), xp.zeros(n)
            for u, v in _between(graph, depth, at, at + 1):
                more += xp.bincount(u, weights=credit[v], minlength=n)
            share += paths * more
        share[source] = 0
        total += share
    error, most = float(abs(sums - total).max()), float(total.max())
    return "" if error <= 1e-6 * most else f"a sum differs by {error:.3g}, and the greatest is {most:.3g}"


def tc(graph: GapGraph, counts: Any, total: int) -> str:
    """What is wrong with triangles, or nothing: their sum, and at some vertices the edges among their neighbours."""
    xp = graph.device.xp
    if int(counts.sum()) != 3 * total:
        return f"the vertices have {int(counts.sum())} triangles and the graph {total}, which is no third of it"
    for vertex in np.random.default_rng(1).integers(0, graph.n_vertices, LOOKED_AT):
        near = xp.zeros(graph.n_vertices, bool)
        for u, v, _ in _arcs(graph):
            near[v[u == vertex]] = True
        among = sum(int((near[src] & near[dst]).sum()) for src, dst, _ in graph.edges())
        if among != int(counts[vertex]):
            return f"vertex {vertex} has {int(counts[vertex])} triangles, by the edges {among}"
    return ""
