"""Shortest paths by numbers of edges and by weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import networkx as nx
import numpy as np

from mgraph.networkx.calls import id_of, offered, refusing, weighted, why_no_weight
from mgraph.networkx.graph import Graph
from mgraph.networkx.search import Path, SearchResult, search, search_from_each

__all__ = [
    "all_pairs_dijkstra",
    "all_pairs_dijkstra_path",
    "all_pairs_dijkstra_path_length",
    "all_pairs_shortest_path",
    "all_pairs_shortest_path_length",
    "bidirectional_dijkstra",
    "bidirectional_shortest_path",
    "dijkstra_path",
    "dijkstra_path_length",
    "dijkstra_predecessor_and_distance",
    "has_path",
    "multi_source_dijkstra",
    "multi_source_dijkstra_path",
    "multi_source_dijkstra_path_length",
    "shortest_path",
    "shortest_path_length",
    "single_source_dijkstra",
    "single_source_dijkstra_path",
    "single_source_dijkstra_path_length",
    "single_source_shortest_path",
    "single_source_shortest_path_length",
    "single_target_shortest_path",
    "single_target_shortest_path_length",
]


def _why_no_weight(G: Any, weight: Any = "weight", **others: Any) -> str | None:
    return why_no_weight(weight)


# ---- by numbers of edges ---------------------------------------------------------------------------------------------


@offered()
def has_path(G: Graph, source: Any, target: Any) -> bool:
    """Implement `networkx.has_path`."""
    ends = _ends(G, source, target)
    with refusing(G) as graph:
        return ends[0] == ends[1] or graph.bfs(ends[0])[ends[1]] >= 0


def _ends(G: Graph, source: Any, target: Any) -> tuple[int, int]:
    first = id_of(G, source, f"Source {source} is not in G")
    return first, id_of(G, target, f"Target {target} is not in G")


@offered()
def single_source_shortest_path_length(G: Graph, source: Any, cutoff: float | None = None) -> dict[Any, int]:
    """Implement `networkx.single_source_shortest_path_length`."""
    first = id_of(G, source, f"Source {source} is not in G")
    return search(G, [first], None, _levels(cutoff), trees=False).distances()


def _levels(cutoff: float | None) -> float | None:
    """Return the number of levels that NetworkX searches: while `cutoff` is greater than the last one."""
    return None if cutoff is None else float(np.ceil(cutoff)) if cutoff > 0 else 0.0


@offered()
def single_source_shortest_path(G: Graph, source: Any, cutoff: float | None = None) -> dict[Any, Path]:
    """Implement `networkx.single_source_shortest_path`."""
    first = id_of(G, source, f"Source {source} not in G")
    return search(G, [first], None, _levels(cutoff), trees=True).paths()


@offered()
def single_target_shortest_path(G: Graph, target: Any, cutoff: float | None = None) -> dict[Any, Path]:
    """Implement `networkx.single_target_shortest_path`."""
    last = id_of(G, target, f"Target {target} not in G")
    direction = "in" if G.is_directed() else "out"
    result = search(G, [last], None, _levels(cutoff), trees=True, direction=direction)
    return {node: path[::-1] for node, path in result.paths().items()}


@offered()
def single_target_shortest_path_length(G: Graph, target: Any, cutoff: float | None = None) -> dict[Any, int]:
    """Implement `networkx.single_target_shortest_path_length`."""
    last = id_of(G, target, f"Target {target} is not in G")
    direction = "in" if G.is_directed() else "out"
    return search(G, [last], None, _levels(cutoff), trees=False, direction=direction).distances()


@offered()
def bidirectional_shortest_path(G: Graph, source: Any, target: Any) -> Path:
    """Implement `networkx.bidirectional_shortest_path`, by a search from the source."""
    result, last = _between(G, source, target, None, "dijkstra", trees=True)
    return result.path(last)


@offered()
def all_pairs_shortest_path_length(G: Graph, cutoff: float | None = None) -> Iterator[tuple[Any, dict[Any, int]]]:
    """Implement `networkx.all_pairs_shortest_path_length`."""
    return search_from_each(G, None, SearchResult.distances, _levels(cutoff))


@offered()
def all_pairs_shortest_path(G: Graph, cutoff: float | None = None) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Implement `networkx.all_pairs_shortest_path`."""
    return search_from_each(G, None, SearchResult.paths, _levels(cutoff))


# ---- by weights ------------------------------------------------------------------------------------------------------


@offered(_why_no_weight)
def multi_source_dijkstra(
    G: Graph, sources: Any, target: Any = None, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Implement `networkx.multi_source_dijkstra`."""
    ids = _sources(G, sources)
    # Check the sources, and search from all.
    if target in sources:
        return 0, [target]
    result = search(G, ids, weight, cutoff, trees=True)

    # Read the result, of every node or of the target.
    if target is None:
        return result.distances(), result.paths()
    i = G._contents.index.get(target)
    if i is None or not np.isfinite(result.lengths[i]):
        raise nx.NetworkXNoPath(f"No path to {target}.")
    return result.length(i), result.path(i)


def _sources(G: Graph, sources: Any) -> list[int]:
    if not sources:
        raise ValueError("sources must not be empty")
    return [id_of(G, source, f"Node {source} not found in graph") for source in sources]


@offered(_why_no_weight)
def multi_source_dijkstra_path(
    G: Graph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Path]:
    """Implement `networkx.multi_source_dijkstra_path`."""
    return search(G, _sources(G, sources), weight, cutoff, trees=True).paths()


@offered(_why_no_weight)
def multi_source_dijkstra_path_length(
    G: Graph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Any]:
    """Implement `networkx.multi_source_dijkstra_path_length`."""
    return search(G, _sources(G, sources), weight, cutoff, trees=False).distances()


@offered(_why_no_weight)
def single_source_dijkstra(
    G: Graph, source: Any, target: Any = None, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Implement `networkx.single_source_dijkstra`."""
    return multi_source_dijkstra(G, {source}, target, cutoff, weight)


@offered(_why_no_weight)
def single_source_dijkstra_path(
    G: Graph, source: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Path]:
    """Implement `networkx.single_source_dijkstra_path`."""
    return multi_source_dijkstra_path(G, {source}, cutoff, weight)


@offered(_why_no_weight)
def single_source_dijkstra_path_length(
    G: Graph, source: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Any]:
    """Implement `networkx.single_source_dijkstra_path_length`."""
    return multi_source_dijkstra_path_length(G, {source}, cutoff, weight)


@offered(_why_no_weight)
def dijkstra_path(G: Graph, source: Any, target: Any, weight: Any = "weight") -> Path:
    """Implement `networkx.dijkstra_path`."""
    path: Path = multi_source_dijkstra(G, {source}, target, None, weight)[1]
    return path


@offered(_why_no_weight)
def dijkstra_path_length(G: Graph, source: Any, target: Any, weight: Any = "weight") -> int | float:
    """Implement `networkx.dijkstra_path_length`."""
    first, last = id_of(G, source, f"Node {source} not found in graph"), G._contents.index.get(target)
    if source == target:
        return 0
    result = search(G, [first], weight, trees=False)
    if last is None or not np.isfinite(result.lengths[last]):
        raise nx.NetworkXNoPath(f"Node {target} not reachable from {source}")
    return result.length(last)


@offered(_why_no_weight)
def dijkstra_predecessor_and_distance(
    G: Graph, source: Any, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[dict[Any, list[Any]], dict[Any, Any]]:
    """Implement `networkx.dijkstra_predecessor_and_distance`. Copies the whole graph to this process."""
    # Search, and read the edges.
    first = id_of(G, source, f"Node {source} is not found in the graph")
    result = search(G, [first], weight, cutoff, trees=False)
    with refusing(G) as graph:
        csr = graph.to_csr()

    # (u, v) ends a shortest path if d[u] + w == d[v]. Sort these by the distance of u.
    steps = csr.weight.astype(np.float64) if csr.weight is not None and weighted(G, weight) else 1.0
    src, dst = np.repeat(np.arange(len(result.nodes)), np.diff(csr.offsets)), csr.dst
    last = np.flatnonzero(np.isfinite(result.lengths[dst]) & (result.lengths[src] + steps == result.lengths[dst]))
    rank = np.empty(len(result.nodes), np.int64)
    rank[result.order] = np.arange(len(result.order))
    last = last[np.argsort(rank[src[last]], kind="stable")]

    # Group the predecessors by v.
    before: dict[Any, list[Any]] = {result.nodes[i]: [] for i in result.order.tolist()}
    for i, j in zip(src[last].tolist(), dst[last].tolist(), strict=True):
        before[result.nodes[j]].append(result.nodes[i])
    return before, result.distances()


@offered(_why_no_weight)
def bidirectional_dijkstra(G: Graph, source: Any, target: Any, weight: Any = "weight") -> tuple[Any, Path]:
    """Implement `networkx.bidirectional_dijkstra`, by a search from the source."""
    if source == target and source in G:
        return 0, [source]
    result, last = _between(G, source, target, weight, "dijkstra", trees=True)
    return result.length(last), result.path(last)


def _both(result: SearchResult) -> tuple[dict[Any, Any], dict[Any, Path]]:
    return result.distances(), result.paths()


@offered(_why_no_weight)
def all_pairs_dijkstra(G: Graph, cutoff: float | None = None, weight: Any = "weight") -> Iterator[tuple[Any, Any]]:
    """Implement `networkx.all_pairs_dijkstra`."""
    return search_from_each(G, weight, _both, cutoff)


@offered(_why_no_weight)
def all_pairs_dijkstra_path(
    G: Graph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Implement `networkx.all_pairs_dijkstra_path`."""
    return search_from_each(G, weight, SearchResult.paths, cutoff)


@offered(_why_no_weight)
def all_pairs_dijkstra_path_length(
    G: Graph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, dict[Any, Any]]]:
    """Implement `networkx.all_pairs_dijkstra_path_length`."""
    return search_from_each(G, weight, SearchResult.distances, cutoff)


# ---- either way ------------------------------------------------------------------------------------------------------


def _why_no_path(
    G: Any, source: Any = None, target: Any = None, weight: Any = None, method: str = "dijkstra"
) -> str | None:
    if source is None and target is not None and weight is not None and G.is_directed():
        return "the backend has no search by weights against the direction of edges"
    return why_no_weight(weight)


@offered(_why_no_path)
def shortest_path(
    G: Graph, source: Any = None, target: Any = None, weight: Any = None, method: str = "dijkstra"
) -> Any:
    """Implement `networkx.shortest_path`. Both methods give the same lengths, because no weight is negative."""
    if source is None or target is None:
        result = _from_or_to(G, source, target, weight, method, SearchResult.paths)
        return {node: path[::-1] for node, path in result.items()} if target is not None else result
    result, last = _between(G, source, target, weight, method, trees=True)
    return result.path(last)


@offered(_why_no_path)
def shortest_path_length(
    G: Graph, source: Any = None, target: Any = None, weight: Any = None, method: str = "dijkstra"
) -> Any:
    """Implement `networkx.shortest_path_length`. Both methods give the same lengths, because no weight is negative."""
    if source is None or target is None:
        return _from_or_to(G, source, target, weight, method, SearchResult.distances)
    if weight is not None:
        _check_method(method)
        return dijkstra_path_length(G, source, target, weight)
    result, last = _between(G, source, target, weight, method, trees=False)
    return result.length(last)


def _from_or_to(
    G: Graph, source: Any, target: Any, weight: Hashable, method: str, read: Callable[[SearchResult], dict[Any, Any]]
) -> Any:
    """Apply `read` to the search from `source`, back from `target`, or from each node in turn."""
    _check_method(method)
    if source is None and target is None:
        return search_from_each(G, weight, read)
    node = target if source is None else source
    what = "Source {} is not in G" if weight is None else "Node {} not found in graph"
    first = id_of(G, node, what.format(node))
    direction = "in" if source is None and G.is_directed() else "out"
    return read(search(G, [first], weight, trees=read is SearchResult.paths, direction=direction))


def _check_method(method: str) -> None:
    if method not in ("dijkstra", "bellman-ford"):
        raise ValueError(f"method not supported: {method}")


def _between(G: Graph, source: Any, target: Any, weight: Any, method: str, trees: bool) -> tuple[SearchResult, int]:
    """Return the search from `source`, and the id of `target`, a reached node."""
    _check_method(method)
    first, last = _ends(G, source, target)
    result = search(G, [first], weight, trees=trees)
    if not np.isfinite(result.lengths[last]):
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return result, last
