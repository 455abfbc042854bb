"""The six kernels of the GAP benchmark: how often each runs, what a trial is, and how its result is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from mgraph import DynamicGraph
from mgraph.errors import InvalidOption
from workloads.gap import verify
from workloads.gap.graphs import GapGraph

__all__ = ["KERNELS", "Kernel"]

TOL, MAX_ITER = 1e-4, 1000
BC_SOURCES = 4
PICKS = 10_000  #: after so many vertices, a graph is taken to have no further ones with edges

Given = list[int]  #: the sources of a trial


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes
    ----------
    name, title : str
        As gapbs's program is named; in words.
    trials : int
        By the benchmark's rules.
    sources : int
        How many sources a trial has.
    weighted : bool
        Whether it runs on the weighted graph.
    run : callable
        ``run(graph, sources)``: what is timed.
    wrong : callable
        ``wrong(graph, edges, sources, result)``: what is wrong with a result, or "".
    flags : tuple of str
        gapbs's, beside the graph and the number of trials.
    """

    name: str
    title: str
    trials: int
    sources: int
    weighted: bool
    run: Callable[[DynamicGraph, Given], Any]
    wrong: Callable[[DynamicGraph, GapGraph, Given, Any], str]
    flags: tuple[str, ...] = ()

    def given(self, picked: Iterator[int]) -> Given:
        """The sources of the next trial, by gapbs's order; one that a trial has already is passed over."""
        found: dict[int, None] = {}
        for vertex in islice(picked, PICKS if self.sources else 0):
            found[vertex] = None
            if len(found) == self.sources:
                break
        if len(found) < self.sources:
            raise InvalidOption(f"{self.name} needs {self.sources} different sources; choose a larger scale")
        return list(found)


def _on(edges: GapGraph, values: Any) -> Any:
    """A result's values in users' order on the device of `edges`."""
    return edges.device.asarray(values.to_numpy())


def _bfs_wrong(g: DynamicGraph, edges: GapGraph, given: Given, found: Any) -> str:
    return verify.bfs(edges, given[0], _on(edges, found), _on(edges, found.predecessors))


def _components_wrong(g: DynamicGraph, edges: GapGraph, given: Given, found: Any) -> str:
    labels = found.to_numpy()
    reached = g.multi_source_bfs(np.unique(labels))
    return verify.cc(edges, edges.device.asarray(labels), _on(edges, reached))


def _betweenness_wrong(g: DynamicGraph, edges: GapGraph, given: Given, found: Any) -> str:
    """The sums over the sources are undone of their scale, which is another one at the sources themselves."""
    k = len(given)
    sums = found.to_numpy() * k * (edges.n_vertices - 2)
    sums[given] *= (k - 1) / k
    return verify.bc(edges, given, edges.device.asarray(sums))


def _pagerank(g: DynamicGraph, given: Given) -> Any:
    return g.pagerank(verify.ALPHA, TOL, MAX_ITER, dangling="drop")


KERNELS = (
    Kernel("bfs", "BFS", 64, 1, False, lambda g, s: g.bfs(s[0], predecessors=True), _bfs_wrong),
    Kernel(
        "pr",
        "PageRank",
        16,
        0,
        False,
        _pagerank,
        lambda g, edges, s, found: verify.pr(edges, _on(edges, found), TOL),
        ("-i", str(MAX_ITER), "-t", str(TOL)),
    ),
    Kernel("cc", "components", 16, 0, False, lambda g, s: g.connected_components(), _components_wrong),
    Kernel(
        "bc",
        "betweenness",
        16,
        BC_SOURCES,
        False,
        lambda g, s: g.betweenness_centrality(k=s),
        _betweenness_wrong,
        ("-i", str(BC_SOURCES)),
    ),
    Kernel(
        "tc",
        "triangles",
        3,
        0,
        False,
        lambda g, s: g.triangles(),
        lambda g, edges, s, found: verify.tc(edges, _on(edges, found), found.total),
    ),
    Kernel(
        "sssp",
        "shortest paths",
        64,
        1,
        True,
        lambda g, s: g.sssp(s[0]),
        lambda g, edges, s, found: verify.sssp(edges, s[0], _on(edges, found)),
        ("-d", "2"),
    ),
)
