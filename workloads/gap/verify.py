"""Checks of the six kernels' results from the list of edges alone, on the device, by array operations.

Each proves what gapbs's verifier proves, without running the kernel again; betweenness is computed once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.gap.graphs import GapGraph

__all__ = ["ALPHA", "bc", "bfs", "cc", "pr", "sssp", "tc"]

ALPHA = 0.85
LOOKED_AT = 16  #: vertices whose triangles are counted otherwise


def _arcs(graph: GapGraph) -> tuple[Any, Any]:
    """Each edge both ways."""
    concatenate = graph.device.xp.concatenate
    return concatenate([graph.src, graph.dst]), concatenate([graph.dst, graph.src])


def bfs(graph: GapGraph, source: int, distance: Any, predecessors: Any) -> str:
    """What is wrong with a breadth-first tree, or nothing.

    No edge spans more than one level or leaves what was reached, and each vertex but the source has a neighbour one
    level up as its predecessor: so levels are distances.
    """
    xp = graph.device.xp
    near, far = distance[graph.src], distance[graph.dst]
    if int(distance[source]) != 0 or int((distance == 0).sum()) != 1:
        return "the source alone must have distance 0"
    if bool(((near < 0) != (far < 0)).any()) or bool((abs(near - far) > 1).any()):
        return "an edge spans more than one level"
    vertices = xp.flatnonzero(distance > 0)
    before = predecessors[vertices]
    if bool((before < 0).any()) or bool((predecessors[distance <= 0] != -1).any()):
        return "a vertex that has no predecessor has one, or the other way round"
    if bool((distance[before] != distance[vertices] - 1).any()):
        return "a predecessor is not one level up"
    return "" if bool(_present(graph, before, vertices).all()) else "a predecessor is no neighbour"


def _present(graph: GapGraph, u: Any, v: Any) -> Any:
    """Whether each edge exists: bool[k]."""
    xp, n = graph.device.xp, np.int64(graph.n_vertices)
    keys = graph.src.astype(np.int64) * n + graph.dst
    wanted = xp.minimum(u, v).astype(np.int64) * n + xp.maximum(u, v)
    return keys[xp.minimum(xp.searchsorted(keys, wanted), len(keys) - 1)] == wanted


def sssp(graph: GapGraph, source: int, distance: Any) -> str:
    """What is wrong with distances by weights, or nothing.

    No edge is a shorter way, and each vertex that was reached has an edge that is exactly its way: with weights above
    0 that makes them the shortest.
    """
    xp = graph.device.xp
    u, v = _arcs(graph)
    way = distance[u] + xp.concatenate([graph.weight, graph.weight])
    if float(distance[source]) != 0:
        return "the source must have distance 0"
    if bool((way < distance[v]).any()):
        return "an edge is a shorter way"
    reached = xp.zeros(graph.n_vertices, bool)
    reached[v[xp.isfinite(way) & (way == distance[v])]] = True
    reached[source] = True
    return "" if bool((reached == xp.isfinite(distance)).all()) else "a distance is that of no path"


def pr(graph: GapGraph, ranks: Any, tol: float) -> str:
    """What is wrong with ranks, or nothing: one more iteration, in float64, must change them by less than `tol`."""
    xp, n = graph.device.xp, graph.n_vertices
    u, v = _arcs(graph)
    share = ranks.astype(np.float64) / xp.maximum(graph.degrees(), 1)
    following = (1 - ALPHA) / n + ALPHA * xp.bincount(v, weights=share[u], minlength=n)
    error = float(abs(following - ranks).sum())
    return "" if error < tol else f"one more iteration changes the ranks by {error:.3g}, and {tol:g} is allowed"


def cc(graph: GapGraph, labels: Any, reached: Any) -> str:
    """What is wrong with components, or nothing.

    An edge has one label, and each component hangs together: `reached` is what a search from the vertices that gave
    their names to components found, -1 where it did not come.
    """
    if bool((labels[graph.src] != labels[graph.dst]).any()):
        return "an edge joins different components"
    if bool((labels[labels] != labels).any()) or bool((reached < 0).any()):
        return "a component has parts that are not connected"
    return ""


def bc(graph: GapGraph, sources: list[int], sums: Any) -> str:
    """What is wrong with sums of betweenness, or nothing: Brandes's by levels in float64, to 1e-6 of the greatest.

    A source's own share is not counted, by Brandes's definition. gapbs counts there all that the source reaches.
    """
    xp, n = graph.device.xp, graph.n_vertices
    u, v = _arcs(graph)
    total = xp.zeros(n)
    for source in sources:
        depth, paths = xp.full(n, -1), xp.zeros(n)
        depth[source], paths[source], level = 0, 1, 0
        while bool((on := (depth[u] == level) & (depth[v] < 0)).any()):
            depth[v[on]] = level + 1
            paths += xp.bincount(v[on], weights=paths[u[on]], minlength=n)
            level += 1
        share = xp.zeros(n)
        for at in range(level - 1, -1, -1):
            on = (depth[u] == at) & (depth[v] == at + 1)
            ends = v[on]
            share += xp.bincount(u[on], weights=paths[u[on]] / paths[ends] * (1 + share[ends]), minlength=n)
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
        near[graph.dst[graph.src == vertex]] = near[graph.src[graph.dst == vertex]] = True
        among = int((near[graph.src] & near[graph.dst]).sum())
        if among != int(counts[vertex]):
            return f"vertex {vertex} has {int(counts[vertex])} triangles, by the edges {among}"
    return ""
