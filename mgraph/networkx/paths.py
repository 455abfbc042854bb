"""Shortest paths by numbers of edges and by weights.

A search is `DynamicGraph.bfs` where edges count 1 each, and `DynamicGraph.sssp` in float64 where they have the weight.
Several sources are as many searches. Lengths are Python integers where all weights were.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import networkx as nx
import numpy as np

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
AT_ONCE = 64  #: searches that `DynamicGraph.distances` makes together


@dataclass(frozen=True)
class _Found:
    """Lengths and predecessors of searches from some sources.

    Parameters
    ----------
    nodes : list
        The nodes by id.
    lengths : array, shape (n,)
        The distance of each id from the nearest source, inf where there is no path.
    nearest : int64[n]
        The place of that source in the rows of `before`.
    before : int64[sources, n] or None
        The id before each on the path from a source, -1 for the source; None where only lengths were asked for.
    whole : bool
        Whether lengths are integers.
    """

    nodes: list[Any]
    lengths: np.ndarray
    nearest: np.ndarray
    before: np.ndarray | None
    whole: bool

    @cached_property
    def order(self) -> np.ndarray:
        """The ids that were reached, nearest first."""
        reached = np.flatnonzero(np.isfinite(self.lengths))
        return reached[np.argsort(self.lengths[reached], kind="stable")]

    def length(self, i: int) -> int | float:
        """The distance of an id that was reached."""
        return int(self.lengths[i]) if self.whole else float(self.lengths[i])

    def distances(self) -> dict[Any, Any]:
        """The distances of the nodes that were reached, nearest first."""
        numbers = self.lengths[self.order]
        numbers = numbers.astype(np.int64) if self.whole else numbers
        return dict(zip((self.nodes[i] for i in self.order.tolist()), numbers.tolist(), strict=True))

    def path(self, i: int) -> Path:
        """The nodes on the path to an id that was reached."""
        assert self.before is not None
        before, back = self.before[self.nearest[i]], [i]
        while (i := int(before[i])) >= 0:
            back.append(i)
        return [self.nodes[i] for i in reversed(back)]

    def paths(self) -> dict[Any, Path]:
        """The paths to the nodes that were reached, nearest first. O(sum of their lengths)."""
        assert self.before is not None
        before = self.before[self.nearest, np.arange(len(self.nodes))].tolist()
        known: dict[int, Path] = {}
        for i in self.order.tolist():
            ahead = []  # with weights of 0 a node may come before the one that leads to it
            while i not in known and before[i] >= 0:
                ahead.append(i)
                i = before[i]
            path = known.setdefault(i, [self.nodes[i]])
            for i in reversed(ahead):
                path = known[i] = [*path, self.nodes[i]]
        return {self.nodes[i]: known[i] for i in self.order.tolist()}


def _search(
    G: Graph,
    sources: Iterable[int],
    weight: Any,
    cutoff: float | None = None,
    *,
    trees: bool,
    direction: str = "out",
) -> _Found:
    """Search from the ids `sources`, with `trees` for paths; nodes further than `cutoff` do not count as reached."""
    by_weight, ids = weighted(G, weight, exactly=True), list(sources)
    with refusing(G) as graph:
        rows = [_one(graph, source, by_weight, trees, direction) for source in ids]
        lengths = np.stack([row[0] for row in rows])
        before = np.stack([row[1] for row in rows]) if trees else None
    nearest = lengths.argmin(axis=0)
    least = lengths.min(axis=0)
    if cutoff is not None:
        least[least > cutoff] = np.inf
    nearest[ids], least[ids] = np.arange(len(ids)), 0  # also where the cutoff is negative, or another is 0 away
    whole = not by_weight or G._contents.whole
    if whole and (least[np.isfinite(least)] > EXACT).any():
        raise Refused(f"a path is longer than {EXACT}, up to which float64 has every whole number")
    return _Found(G._contents.nodes, least, nearest, before, whole)


def _one(graph: DynamicGraph, source: int, by_weight: bool, trees: bool, direction: str) -> tuple[np.ndarray, Any]:
    """The distances from one source, float64[n], inf where there is no path; and predecessors with `trees`."""
    if by_weight:
        found = graph.sssp(source, predecessors=trees, dtype="float64")
    else:
        found = graph.bfs(source, direction=direction, predecessors=trees)
    lengths = found.to_numpy().astype(np.float64)
    lengths[lengths < 0] = np.inf
    return lengths, found.predecessors.to_numpy() if trees else None


def length_rows(G: Graph, sources: Sequence[int], weight: Any) -> Iterator[np.ndarray]:
    """Yield the lengths of the paths from each id in `sources`: float64[n], inf where there is no path."""
    by_weight = weighted(G, weight, exactly=True)
    with refusing(G) as graph:
        if by_weight:
            for source in sources:
                yield _one(graph, source, True, False, "out")[0]
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
    """Do as `networkx.has_path`."""
    ends = _ends(G, source, target)
    with refusing(G) as graph:
        return ends[0] == ends[1] or graph.bfs(ends[0])[ends[1]] >= 0


def _ends(G: Graph, source: Any, target: Any) -> tuple[int, int]:
    first = id_of(G, source, f"Source {source} is not in G")
    return first, id_of(G, target, f"Target {target} is not in G")


@offered()
def single_source_shortest_path_length(G: Graph, source: Any, cutoff: float | None = None) -> dict[Any, int]:
    """Do as `networkx.single_source_shortest_path_length`."""
    first = id_of(G, source, f"Source {source} is not in G")
    return _search(G, [first], None, _levels(cutoff), trees=False).distances()


def _levels(cutoff: float | None) -> float | None:
    """Return the number of levels that NetworkX searches: while `cutoff` is greater than the last one."""
    return None if cutoff is None else float(np.ceil(cutoff)) if cutoff > 0 else 0.0


@offered()
def single_source_shortest_path(G: Graph, source: Any, cutoff: float | None = None) -> dict[Any, Path]:
    """Do as `networkx.single_source_shortest_path`."""
    first = id_of(G, source, f"Source {source} not in G")
    return _search(G, [first], None, _levels(cutoff), trees=True).paths()


@offered()
def single_target_shortest_path(G: Graph, target: Any, cutoff: float | None = None) -> dict[Any, Path]:
    """Do as `networkx.single_target_shortest_path`."""
    last = id_of(G, target, f"Target {target} not in G")
    direction = "in" if G.is_directed() else "out"
    found = _search(G, [last], None, _levels(cutoff), trees=True, direction=direction)
    return {node: path[::-1] for node, path in found.paths().items()}


@offered()
def single_target_shortest_path_length(G: Graph, target: Any, cutoff: float | None = None) -> dict[Any, int]:
    """Do as `networkx.single_target_shortest_path_length`."""
    last = id_of(G, target, f"Target {target} is not in G")
    direction = "in" if G.is_directed() else "out"
    return _search(G, [last], None, _levels(cutoff), trees=False, direction=direction).distances()


@offered()
def bidirectional_shortest_path(G: Graph, source: Any, target: Any) -> Path:
    """Do as `networkx.bidirectional_shortest_path`, by a search from the source."""
    found, last = _between(G, source, target, None, "dijkstra", trees=True)
    return found.path(last)


@offered()
def all_pairs_shortest_path_length(G: Graph, cutoff: float | None = None) -> Iterator[tuple[Any, dict[Any, int]]]:
    """Do as `networkx.all_pairs_shortest_path_length`."""
    return _from_each(G, None, _Found.distances, _levels(cutoff))


@offered()
def all_pairs_shortest_path(G: Graph, cutoff: float | None = None) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Do as `networkx.all_pairs_shortest_path`."""
    return _from_each(G, None, _Found.paths, _levels(cutoff))


# ---- by weights ------------------------------------------------------------------------------------------------------


@offered(_why_no_weight)
def multi_source_dijkstra(
    G: Graph, sources: Any, target: Any = None, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Do as `networkx.multi_source_dijkstra`."""
    ids = _sources(G, sources)
    if target in sources:
        return 0, [target]
    found = _search(G, ids, weight, cutoff, trees=True)
    if target is None:
        return found.distances(), found.paths()
    i = G._contents.index.get(target)
    if i is None or not np.isfinite(found.lengths[i]):
        raise nx.NetworkXNoPath(f"No path to {target}.")
    return found.length(i), found.path(i)


def _sources(G: Graph, sources: Any) -> list[int]:
    if not sources:
        raise ValueError("sources must not be empty")
    return [id_of(G, source, f"Node {source} not found in graph") for source in sources]


@offered(_why_no_weight)
def multi_source_dijkstra_path(
    G: Graph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Path]:
    """Do as `networkx.multi_source_dijkstra_path`."""
    return _search(G, _sources(G, sources), weight, cutoff, trees=True).paths()


@offered(_why_no_weight)
def multi_source_dijkstra_path_length(
    G: Graph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Any]:
    """Do as `networkx.multi_source_dijkstra_path_length`."""
    return _search(G, _sources(G, sources), weight, cutoff, trees=False).distances()


@offered(_why_no_weight)
def single_source_dijkstra(
    G: Graph, source: Any, target: Any = None, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Do as `networkx.single_source_dijkstra`."""
    return multi_source_dijkstra(G, {source}, target, cutoff, weight)


@offered(_why_no_weight)
def single_source_dijkstra_path(
    G: Graph, source: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Path]:
    """Do as `networkx.single_source_dijkstra_path`."""
    return multi_source_dijkstra_path(G, {source}, cutoff, weight)


@offered(_why_no_weight)
def single_source_dijkstra_path_length(
    G: Graph, source: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Any]:
    """Do as `networkx.single_source_dijkstra_path_length`."""
    return multi_source_dijkstra_path_length(G, {source}, cutoff, weight)


@offered(_why_no_weight)
def dijkstra_path(G: Graph, source: Any, target: Any, weight: Any = "weight") -> Path:
    """Do as `networkx.dijkstra_path`."""
    path: Path = multi_source_dijkstra(G, {source}, target, None, weight)[1]
    return path


@offered(_why_no_weight)
def dijkstra_path_length(G: Graph, source: Any, target: Any, weight: Any = "weight") -> int | float:
    """Do as `networkx.dijkstra_path_length`."""
    first, last = id_of(G, source, f"Node {source} not found in graph"), G._contents.index.get(target)
    if source == target:
        return 0
    found = _search(G, [first], weight, trees=False)
    if last is None or not np.isfinite(found.lengths[last]):
        raise nx.NetworkXNoPath(f"Node {target} not reachable from {source}")
    return found.length(last)


@offered(_why_no_weight)
def dijkstra_predecessor_and_distance(
    G: Graph, source: Any, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[dict[Any, list[Any]], dict[Any, Any]]:
    """Do as `networkx.dijkstra_predecessor_and_distance`. Reads the whole graph to this process."""
    first = id_of(G, source, f"Node {source} is not found in the graph")
    found = _search(G, [first], weight, cutoff, trees=False)
    with refusing(G) as graph:
        csr = graph.to_csr()
    steps = csr.weight.astype(np.float64) if csr.weight is not None and weighted(G, weight) else 1.0
    src, dst = np.repeat(np.arange(len(found.nodes)), np.diff(csr.offsets)), csr.dst
    last = np.flatnonzero(np.isfinite(found.lengths[dst]) & (found.lengths[src] + steps == found.lengths[dst]))
    rank = np.empty(len(found.nodes), np.int64)
    rank[found.order] = np.arange(len(found.order))
    last = last[np.argsort(rank[src[last]], kind="stable")]
    before: dict[Any, list[Any]] = {found.nodes[i]: [] for i in found.order.tolist()}
    for i, j in zip(src[last].tolist(), dst[last].tolist(), strict=True):
        before[found.nodes[j]].append(found.nodes[i])
    return before, found.distances()


@offered(_why_no_weight)
def bidirectional_dijkstra(G: Graph, source: Any, target: Any, weight: Any = "weight") -> tuple[Any, Path]:
    """Do as `networkx.bidirectional_dijkstra`, by a search from the source."""
    if source == target and source in G:
        return 0, [source]
    found, last = _between(G, source, target, weight, "dijkstra", trees=True)
    return found.length(last), found.path(last)


def _both(found: _Found) -> tuple[dict[Any, Any], dict[Any, Path]]:
    return found.distances(), found.paths()


@offered(_why_no_weight)
def all_pairs_dijkstra(G: Graph, cutoff: float | None = None, weight: Any = "weight") -> Iterator[tuple[Any, Any]]:
    """Do as `networkx.all_pairs_dijkstra`."""
    return _from_each(G, weight, _both, cutoff)


@offered(_why_no_weight)
def all_pairs_dijkstra_path(
    G: Graph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Do as `networkx.all_pairs_dijkstra_path`."""
    return _from_each(G, weight, _Found.paths, cutoff)


@offered(_why_no_weight)
def all_pairs_dijkstra_path_length(
    G: Graph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, dict[Any, Any]]]:
    """Do as `networkx.all_pairs_dijkstra_path_length`."""
    return _from_each(G, weight, _Found.distances, cutoff)


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
    """Do as `networkx.shortest_path`; both methods find the same lengths, as no weight is negative."""
    if source is None or target is None:
        found = _from_or_to(G, source, target, weight, method, _Found.paths)
        return {node: path[::-1] for node, path in found.items()} if target is not None else found
    found, last = _between(G, source, target, weight, method, trees=True)
    return found.path(last)


@offered(_why_no_path)
def shortest_path_length(
    G: Graph, source: Any = None, target: Any = None, weight: Any = None, method: str = "dijkstra"
) -> Any:
    """Do as `networkx.shortest_path_length`; both methods find the same lengths, as no weight is negative."""
    if source is None or target is None:
        return _from_or_to(G, source, target, weight, method, _Found.distances)
    if weight is not None:
        _check_method(method)
        return dijkstra_path_length(G, source, target, weight)
    found, last = _between(G, source, target, weight, method, trees=False)
    return found.length(last)


def _from_or_to(
    G: Graph, source: Any, target: Any, weight: Hashable, method: str, read: Callable[[_Found], dict[Any, Any]]
) -> Any:
    """Apply `read` to the search from `source`, back from `target`, or to those from each node in turn."""
    _check_method(method)
    if source is None and target is None:
        return _from_each(G, weight, read)
    node = target if source is None else source
    what = "Source {} is not in G" if weight is None else "Node {} not found in graph"
    first = id_of(G, node, what.format(node))
    direction = "in" if source is None and G.is_directed() else "out"
    return read(_search(G, [first], weight, trees=read is _Found.paths, direction=direction))


def _from_each(
    G: Graph, weight: Hashable, read: Callable[[_Found], Any], cutoff: float | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield what `read` makes of the search from each node; the first search is made at once, and may be refused."""
    trees, ids = read is not _Found.distances, G._contents.index
    each = ((node, read(_search(G, [ids[node]], weight, cutoff, trees=trees))) for node in list(G))
    return chain([*islice(each, 1)], each)


def _check_method(method: str) -> None:
    if method not in ("dijkstra", "bellman-ford"):
        raise ValueError(f"method not supported: {method}")


def _between(G: Graph, source: Any, target: Any, weight: Any, method: str, trees: bool) -> tuple[_Found, int]:
    """The search from `source`, and the id of `target`, which it reached."""
    _check_method(method)
    first, last = _ends(G, source, target)
    found = _search(G, [first], weight, trees=trees)
    if not np.isfinite(found.lengths[last]):
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return found, last
