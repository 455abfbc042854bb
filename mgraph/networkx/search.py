"""Searches for the paths of NetworkX: lengths and predecessors, from one node, several or each.

A search is a `DynamicGraph.bfs` if edges count 1 each, and a `DynamicGraph.sssp` in float64 if they have the weight.
Several sources take a search each. Lengths are Python integers if all weights were; they are refused where float64
would round them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np

from mgraph.convert.build import edges_of
from mgraph.graph import DynamicGraph
from mgraph.networkx.calls import refusing, weighted
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph
from mgraph.tables.ids import EXACT

__all__ = ["Path", "SearchResult", "length_rows", "search", "search_from_each"]

Path = list[Any]
AT_ONCE = 64  #: searches per call of `DynamicGraph.distances`


@dataclass(frozen=True)
class SearchResult:
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
            ahead = []  # if weights are 0, a node may precede its predecessor
            while i not in paths and before[i] >= 0:
                ahead.append(i)
                i = before[i]
            path = paths.setdefault(i, [self.nodes[i]])
            for i in reversed(ahead):
                path = paths[i] = [*path, self.nodes[i]]
        return {self.nodes[i]: paths[i] for i in self.order.tolist()}


def search(
    G: Graph,
    sources: Iterable[int],
    weight: Any,
    cutoff: float | None = None,
    *,
    trees: bool,
    direction: str = "out",
) -> SearchResult:
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
    return SearchResult(G._contents.nodes, least, nearest, before, whole)


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


def search_from_each(
    G: Graph, weight: Hashable, read: Callable[[SearchResult], Any], cutoff: float | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield each node, and `read` of the search from it. O(n) searches, of which the first runs at once.

    What can be refused is refused before the first result, since NetworkX cannot fall back later.
    """
    _check_all_exact(G, weight, cutoff)
    each = _search_each(G, weight, read, cutoff)
    return chain([*islice(each, 1)], each)


def _search_each(
    G: Graph, weight: Hashable, read: Callable[[SearchResult], Any], cutoff: float | None
) -> Iterator[tuple[Any, Any]]:
    """Yield each node, and `read` of the search from it.

    As in NetworkX, edges of a live graph may change meanwhile, and its nodes must not.
    """
    nodes, trees = list(G), read is not SearchResult.distances
    for node in nodes:
        with refusing(G):  # gives the ids of removed nodes to others
            i = G._contents.index.get(node)
        if i is None or len(G) != len(nodes):
            raise RuntimeError("nodes were added or removed during the iteration over the paths from each")
        yield node, read(search(G, [i], weight, cutoff, trees=trees))


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
        search(G, [source], weight, cutoff, trees=False)
