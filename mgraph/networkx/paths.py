"""Shortest paths by numbers of edges and by weights.

A search is a `DynamicGraph.bfs` if edges count 1 each, and a `DynamicGraph.sssp` in float64 if they have the weight.
Several sources take a search each. Lengths are Python integers if all weights were.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import networkx as nx
import numpy as np

from mgraph.convert.build import edges_of
from mgraph.graph import DynamicGraph
from mgraph.networkx.calls import id_of, offered, refusing, weighted, why_no_weight
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph
from mgraph.tables.ids import EXACT

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
    "length_rows",
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

Path = list[Any]
AT_ONCE = 64  #: searches per call of `DynamicGraph.distances`


@dataclass(frozen=True)
class _SearchResult:
    """Lengths and predecessors of searches from some sources.

    Parameters
    ----------
    nodes : list
        The nodes by id.
    lengths : array, shape (n,)
        The distance of each id from the nearest source, inf where there is no path.
    nearest : int64[n]
        The nearest source's row in `before`.
    before : int64[sources, n] or None
        The predecessor of each id on the path from a source, -1 for the source; None if only lengths were searched.
    whole : bool
        True if lengths are integers.
    """

    nodes: list[Any]
    lengths: np.ndarray
    nearest: np.ndarray
    before: np.ndarray | None
    whole: bool

    @cached_property
    def order(self) -> np.ndarray:
        """The reached ids, nearest first."""
        reached = np.flatnonzero(np.isfinite(self.lengths))
        return reached[np.argsort(self.lengths[reached], kind="stable")]

    def length(self, i: int) -> int | float:
        """Return the distance of a reached id."""
        return int(self.lengths[i]) if self.whole else float(self.lengths[i])

    def distances(self) -> dict[Any, Any]:
        """Return the distances of the reached nodes, nearest first."""
        numbers = self.lengths[self.order]
        numbers = numbers.astype(np.int64) if self.whole else numbers
        return dict(zip((self.nodes[i] for i in self.order.tolist()), numbers.tolist(), strict=True))

    def path(self, i: int) -> Path:
        """Return the nodes on the path to a reached id."""
        assert self.before is not None
        before, back = self.before[self.nearest[i]], [i]
        while (i := int(before[i])) >= 0:
            back.append(i)
        return [self.nodes[i] for i in reversed(back)]

    def paths(self) -> dict[Any, Path]:
        """Return the paths to the reached nodes, nearest first. O(sum of their lengths)."""
        assert self.before is not None
        before = self.before[self.nearest, np.arange(len(self.nodes))].tolist()
        paths: dict[int, Path] = {}
        # Extend each path from the path of its predecessor.
        for i in self.order.tolist():
            ahead = []  # with weights of 0 a node may precede its predecessor
            while i not in paths and before[i] >= 0:
                ahead.append(i)
                i = before[i]
            path = paths.setdefault(i, [self.nodes[i]])
            for i in reversed(ahead):
                path = paths[i] = [*path, self.nodes[i]]
        return {self.nodes[i]: paths[i] for i in self.order.tolist()}


def _search(
    G: Graph,
    sources: Iterable[int],
    weight: Any,
    cutoff: float | None = None,
    *,
    trees: bool,
    direction: str = "out",
) -> _SearchResult:
    """Search from the ids `sources`, with `trees` for paths. Nodes further than `cutoff` do not count as reached."""
    # Search from each source.
    by_weight, ids = weighted(G, weight, exactly=True), list(sources)
    with refusing(G) as graph:
        rows = [_search_from(graph, source, by_weight, trees, direction) for source in ids]
        lengths = np.stack([row[0] for row in rows])
        before = np.stack([row[1] for row in rows]) if trees else None

    # Keep the nearest source of each node.
    nearest = lengths.argmin(axis=0)
    least = lengths.min(axis=0)
    if cutoff is not None:
        least[least > cutoff] = np.inf
    nearest[ids], least[ids] = np.arange(len(ids)), 0  # even if the cutoff is negative, or another source is 0 away

    whole = not by_weight or G._contents.whole
    if whole:
        _check_exact(least)
    return _SearchResult(G._contents.nodes, least, nearest, before, whole)


def _check_exact(lengths: np.ndarray) -> None:
    """Raise `Refused` if a whole length may be rounded. A sum that is rounded is `EXACT` or more."""
    if (lengths[np.isfinite(lengths)] >= EXACT).any():
        raise Refused(f"a path has a length of {EXACT} or more, from which on float64 rounds whole numbers")


def _search_from(
    graph: DynamicGraph, source: int, by_weight: bool, trees: bool, direction: str
) -> tuple[np.ndarray, Any]:
    """Return the distances from a source, float64[n], inf without a path; and predecessors with `trees`."""
    if by_weight:
        result = graph.sssp(source, predecessors=trees, dtype="float64")
    else:
        result = graph.bfs(source, direction=direction, predecessors=trees)
    lengths = result.to_numpy().astype(np.float64)
    lengths[lengths < 0] = np.inf
    return lengths, result.predecessors.to_numpy() if trees else None


def length_rows(G: Graph, sources: Sequence[int], weight: Any) -> Iterator[np.ndarray]:
    """Yield the lengths of the paths from each id in `sources`: float64[n], inf without a path."""
    by_weight = weighted(G, weight, exactly=True)
    with refusing(G) as graph:
        if by_weight:
            for source in sources:
                row = _search_from(graph, source, True, False, "out")[0]
                if G._contents.whole:
                    _check_exact(row)
                yield row
            return
        for at in range(0, len(sources), AT_ONCE):
            rows = graph.distances(np.asarray(sources[at : at + AT_ONCE], np.int64)).to_numpy().astype(np.float64)
            rows[rows < 0] = np.inf
            yield from rows


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
    return _search(G, [first], None, _levels(cutoff), trees=False).distances()


def _levels(cutoff: float | None) -> float | None:
    """Return the number of levels that NetworkX searches: while `cutoff` is greater than the last one."""
    return None if cutoff is None else float(np.ceil(cutoff)) if cutoff > 0 else 0.0


@offered()
def single_source_shortest_path(G: Graph, source: Any, cutoff: float | None = None) -> dict[Any, Path]:
    """Implement `networkx.single_source_shortest_path`."""
    first = id_of(G, source, f"Source {source} not in G")
    return _search(G, [first], None, _levels(cutoff), trees=True).paths()


@offered()
def single_target_shortest_path(G: Graph, target: Any, cutoff: float | None = None) -> dict[Any, Path]:
    """Implement `networkx.single_target_shortest_path`."""
    last = id_of(G, target, f"Target {target} not in G")
    direction = "in" if G.is_directed() else "out"
    result = _search(G, [last], None, _levels(cutoff), trees=True, direction=direction)
    return {node: path[::-1] for node, path in result.paths().items()}


@offered()
def single_target_shortest_path_length(G: Graph, target: Any, cutoff: float | None = None) -> dict[Any, int]:
    """Implement `networkx.single_target_shortest_path_length`."""
    last = id_of(G, target, f"Target {target} is not in G")
    direction = "in" if G.is_directed() else "out"
    return _search(G, [last], None, _levels(cutoff), trees=False, direction=direction).distances()


@offered()
def bidirectional_shortest_path(G: Graph, source: Any, target: Any) -> Path:
    """Implement `networkx.bidirectional_shortest_path`, by a search from the source."""
    result, last = _between(G, source, target, None, "dijkstra", trees=True)
    return result.path(last)


@offered()
def all_pairs_shortest_path_length(G: Graph, cutoff: float | None = None) -> Iterator[tuple[Any, dict[Any, int]]]:
    """Implement `networkx.all_pairs_shortest_path_length`."""
    return _from_each(G, None, _SearchResult.distances, _levels(cutoff))


@offered()
def all_pairs_shortest_path(G: Graph, cutoff: float | None = None) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Implement `networkx.all_pairs_shortest_path`."""
    return _from_each(G, None, _SearchResult.paths, _levels(cutoff))


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
    result = _search(G, ids, weight, cutoff, trees=True)

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
    return _search(G, _sources(G, sources), weight, cutoff, trees=True).paths()


@offered(_why_no_weight)
def multi_source_dijkstra_path_length(
    G: Graph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Any]:
    """Implement `networkx.multi_source_dijkstra_path_length`."""
    return _search(G, _sources(G, sources), weight, cutoff, trees=False).distances()


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
    result = _search(G, [first], weight, trees=False)
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
    result = _search(G, [first], weight, cutoff, trees=False)
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


def _both(result: _SearchResult) -> tuple[dict[Any, Any], dict[Any, Path]]:
    return result.distances(), result.paths()


@offered(_why_no_weight)
def all_pairs_dijkstra(G: Graph, cutoff: float | None = None, weight: Any = "weight") -> Iterator[tuple[Any, Any]]:
    """Implement `networkx.all_pairs_dijkstra`."""
    return _from_each(G, weight, _both, cutoff)


@offered(_why_no_weight)
def all_pairs_dijkstra_path(
    G: Graph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Implement `networkx.all_pairs_dijkstra_path`."""
    return _from_each(G, weight, _SearchResult.paths, cutoff)


@offered(_why_no_weight)
def all_pairs_dijkstra_path_length(
    G: Graph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, dict[Any, Any]]]:
    """Implement `networkx.all_pairs_dijkstra_path_length`."""
    return _from_each(G, weight, _SearchResult.distances, cutoff)


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
        result = _from_or_to(G, source, target, weight, method, _SearchResult.paths)
        return {node: path[::-1] for node, path in result.items()} if target is not None else result
    result, last = _between(G, source, target, weight, method, trees=True)
    return result.path(last)


@offered(_why_no_path)
def shortest_path_length(
    G: Graph, source: Any = None, target: Any = None, weight: Any = None, method: str = "dijkstra"
) -> Any:
    """Implement `networkx.shortest_path_length`. Both methods give the same lengths, because no weight is negative."""
    if source is None or target is None:
        return _from_or_to(G, source, target, weight, method, _SearchResult.distances)
    if weight is not None:
        _check_method(method)
        return dijkstra_path_length(G, source, target, weight)
    result, last = _between(G, source, target, weight, method, trees=False)
    return result.length(last)


def _from_or_to(
    G: Graph, source: Any, target: Any, weight: Hashable, method: str, read: Callable[[_SearchResult], dict[Any, Any]]
) -> Any:
    """Apply `read` to the search from `source`, back from `target`, or from each node in turn."""
    _check_method(method)
    if source is None and target is None:
        return _from_each(G, weight, read)
    node = target if source is None else source
    what = "Source {} is not in G" if weight is None else "Node {} not found in graph"
    first = id_of(G, node, what.format(node))
    direction = "in" if source is None and G.is_directed() else "out"
    return read(_search(G, [first], weight, trees=read is _SearchResult.paths, direction=direction))


def _from_each(
    G: Graph, weight: Hashable, read: Callable[[_SearchResult], Any], cutoff: float | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield each node, and `read` of the search from it. The first search runs at once.

    What can be refused is refused before the first result, since NetworkX cannot fall back later.
    """
    _check_all_exact(G, weight, cutoff)
    each = _search_each(G, weight, read, cutoff)
    return chain([*islice(each, 1)], each)


def _search_each(
    G: Graph, weight: Hashable, read: Callable[[_SearchResult], Any], cutoff: float | None
) -> Iterator[tuple[Any, Any]]:
    """Yield as `_from_each`. As in NetworkX, edges of a live graph may change meanwhile, and its nodes must not."""
    nodes, trees = list(G), read is not _SearchResult.distances
    for node in nodes:
        with refusing(G):  # gives the ids of removed nodes to others
            i = G._contents.index.get(node)
        if i is None or len(G) != len(nodes):
            raise RuntimeError("nodes were added or removed during the iteration over the paths from each")
        yield node, read(_search(G, [i], weight, cutoff, trees=trees))


def _check_all_exact(G: Graph, weight: Hashable, cutoff: float | None) -> None:
    """Raise `Refused` if a whole length from any node may be rounded. O(m), or a search from each node."""
    if not weighted(G, weight, exactly=True) or not G._contents.whole or (cutoff is not None and cutoff < EXACT):
        return
    # A shortest path has at most n - 1 edges.
    with refusing(G) as graph:
        weights = edges_of(graph)[2]
    if weights is None or len(weights) == 0 or float(weights.max()) * (len(G) - 1) < EXACT:
        return
    for source in range(len(G)):
        _search(G, [source], weight, cutoff, trees=False)


def _check_method(method: str) -> None:
    if method not in ("dijkstra", "bellman-ford"):
        raise ValueError(f"method not supported: {method}")


def _between(G: Graph, source: Any, target: Any, weight: Any, method: str, trees: bool) -> tuple[_SearchResult, int]:
    """Return the search from `source`, and the id of `target`, a reached node."""
    _check_method(method)
    first, last = _ends(G, source, target)
    result = _search(G, [first], weight, trees=trees)
    if not np.isfinite(result.lengths[last]):
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return result, last
