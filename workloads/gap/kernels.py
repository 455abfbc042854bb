"""The six kernels of the GAP benchmark: their numbers of trials, their calls, and their verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mgraph import DynamicGraph
from mgraph.distinct import distinct
from mgraph.errors import InvalidOption
from workloads.gap import verify
from workloads.gap.graphs import GapGraph

__all__ = ["KERNELS", "Kernel"]

TOL, MAX_ITER = 1e-4, 1000
BC_SOURCES = 4
PICKS = 10_000  #: vertices to try, before a graph counts as one with too few sources

Sources = list[int]  #: sources of a trial


@dataclass(frozen=True)
class Kernel:
    """A kernel of the benchmark.

    Attributes
    ----------
    name, title : str
        The name of gapbs's program; a title in words.
    trials : int
        The number of trials, by the benchmark's rules.
    sources : int
        The number of sources per trial.
    weighted : bool
        True if it runs on the weighted graph.
    run : callable
        ``run(graph, sources)``: the timed call.
    wrong : callable
        ``wrong(graph, edges, sources, result)``: the fault of a result, or "".
    flags : tuple of str
        gapbs's flags, beside the graph and the number of trials.
    """

    name: str
    title: str
    trials: int
    sources: int
    weighted: bool
    run: Callable[[DynamicGraph, Sources], Any]
    wrong: Callable[[DynamicGraph, GapGraph, Sources, Any], str]
    flags: tuple[str, ...] = ()

    def next_sources(self, picked: Iterator[int]) -> Sources:
        """Return the sources of the next trial, in gapbs's order, without repeats."""
        chosen: dict[int, None] = {}
        for vertex in islice(picked, PICKS if self.sources else 0):
            chosen[vertex] = None
            if len(chosen) == self.sources:
                break
        if len(chosen) < self.sources:
            raise InvalidOption(f"{self.name} needs {self.sources} different sources; choose a larger scale")
        return list(chosen)


def _on(edges: GapGraph, values: Any) -> Any:
    """Return a result's values in users' order on the device of `edges`."""
    return edges.device.asarray(values.to_numpy())


def _bfs_wrong(g: DynamicGraph, edges: GapGraph, chosen: Sources, result: Any) -> str:
    return verify.bfs(edges, chosen[0], _on(edges, result), _on(edges, result.predecessors))


def _components_wrong(g: DynamicGraph, edges: GapGraph, chosen: Sources, result: Any) -> str:
    labels = result.to_numpy()
    reached = g.multi_source_bfs(distinct(labels))
    return verify.cc(edges, edges.device.asarray(labels), _on(edges, reached))


def _betweenness_wrong(g: DynamicGraph, edges: GapGraph, chosen: Sources, result: Any) -> str:
    """Undo the scale of the library's sums, which differs at the sources, and verify them."""
    k = len(chosen)
    sums = result.to_numpy() * k * (edges.n_vertices - 2)
    sums[chosen] *= (k - 1) / k
    return verify.bc(edges, chosen, edges.device.asarray(sums))


def _pagerank(g: DynamicGraph, chosen: Sources) -> Any:
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
        lambda g, edges, s, result: verify.pr(edges, _on(edges, result), TOL),
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
        lambda g, edges, s, result: verify.tc(edges, _on(edges, result), result.total),
    ),
    Kernel(
        "sssp",
        "shortest paths",
        64,
        1,
        True,
        lambda g, s: g.sssp(s[0]),
        lambda g, edges, s, result: verify.sssp(edges, s[0], _on(edges, result)),
        ("-d", "2"),
    ),
)
