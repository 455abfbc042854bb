"""Point of a scaling curve: the time of every algorithm through the client, and those that lose on more workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mgraph import DynamicGraph, EdgeBatch
from mgraph.algorithms.sampling.sample_neighbors.method import SampledNeighbors
from mgraph.client.results.results import VertexRows
from mgraph.errors import CapacityError
from mgraph.structures.reads import Csr
from workloads.bench.harness import summary, three_digits
from workloads.scaling.point import Analytics

__all__ = ["NAMES", "SLACK", "Algorithms", "first_column", "slower", "slower_pairs"]

WARM_SECONDS = 0.3  #: from the first call of an algorithm to the first that is timed, at least
WARM_READS = 10  #: of a maintained result, each after its changes, before those that are timed
RUNS = 5  #: timed runs of each algorithm; searches take `--roots` instead
CHANGES = 1000  #: edges inserted before each read of a maintained result
COMPARED = 1 << 16  #: vertices of a result with several values for each
SHARE, LEAST_MS = 0.05, 0.05  #: a time is slower if it exceeds another by both

Call = Callable[[DynamicGraph, int], Any]


class _Case(NamedTuple):
    """Algorithm of the table.

    Parameters
    ----------
    call : callable
        ``call(graph, root)`` runs it.
    searches : bool
        True if it is run from each root.
    """

    call: Call
    searches: bool = False


CASES: dict[str, _Case] = {
    "BFS": _Case(lambda g, root: g.bfs(root), True),
    "BFS, predecessors": _Case(lambda g, root: g.bfs(root, predecessors=True), True),
    "shortest paths": _Case(lambda g, root: g.sssp(root), True),
    "k-hop, 2 hops": _Case(lambda g, root: g.k_hop([root], 2), True),
    "multi-source BFS, 64": _Case(lambda g, root: g.multi_source_bfs(list(range(64)))),
    "distances, 64": _Case(lambda g, root: g.distances(list(range(64)))),
    "components": _Case(lambda g, root: g.connected_components()),
    "strong components": _Case(lambda g, root: g.strongly_connected_components()),
    "label propagation, 10 rounds": _Case(lambda g, root: g.label_propagation(max_iter=10)),
    "Louvain": _Case(lambda g, root: g.louvain()),
    "Leiden": _Case(lambda g, root: g.leiden()),
    "core numbers": _Case(lambda g, root: g.core_number()),
    "k-core, 8": _Case(lambda g, root: g.k_core(8)),
    "k-truss, 4": _Case(lambda g, root: g.k_truss(4)),
    "triangles": _Case(lambda g, root: g.triangles()),
    "clustering": _Case(lambda g, root: g.clustering()),
    "PageRank": _Case(lambda g, root: g.pagerank(tol=1e-6)),
    "HITS": _Case(lambda g, root: g.hits()),
    "eigenvector centrality": _Case(lambda g, root: g.eigenvector_centrality(max_iter=1000)),
    "betweenness, 4 sources": _Case(lambda g, root: g.betweenness_centrality(k=4, seed=1)),
    "degree centrality": _Case(lambda g, root: g.degree_centrality()),
    "random walks, 10,000": _Case(lambda g, root: g.random_walks(_some(g, 10_000), 8, seed=1)),
    "sampled neighbours, 10,000": _Case(lambda g, root: g.sample_neighbors(_some(g, 10_000), [10, 10], seed=1)),
}
MAINTAINED = {"components": "connected_components", "PageRank": "pagerank"}
#: on a graph of its own, whose edges have weights
WEIGHTED: dict[str, _Case] = {"shortest paths, weighted": CASES["shortest paths"]}
NAMES = (*CASES, *(f"maintained {name}" for name in MAINTAINED), *WEIGHTED)

#: what more workers may cost: a share of the time, and milliseconds; other algorithms may not lose at all
MAY_LOSE = ("core numbers", *(f"maintained {name}" for name in MAINTAINED))
SLACK: dict[str, tuple[float, float]] = dict.fromkeys(MAY_LOSE, (0.1, 0.1))
SLACK["grid"] = (0.35, LEAST_MS)  #: of every algorithm on a grid, and over the fewest workers, not over half as many


def _some(graph: DynamicGraph, count: int) -> np.ndarray:
    return np.arange(min(count, graph.num_vertices), dtype=np.uint32)


class Algorithms(Analytics):
    """All algorithms on the graph of `Analytics`. Results must not depend on the number of workers."""

    def measure(self) -> dict[str, Any]:
        """Build the graph, and time every algorithm. Returns the figures by its name."""
        return {"algorithms": self.times(self.options.names)}

    def times(self, names: Sequence[str]) -> dict[str, Any]:
        """Time some algorithms on new graphs, and tell the point of each.

        Returns the figures by their names, but for those that the workers have too little memory for.
        """
        figures = self._times([name for name in names if name not in WEIGHTED], weighted=False)
        return figures | self._times([name for name in names if name in WEIGHTED], weighted=True)

    def _times(self, names: Sequence[str], weighted: bool) -> dict[str, Any]:
        if not names:
            return {}
        point, total = self.point, self.point.edges.n_edges
        with point.graph(directed=False, weighted=weighted, order=self.order) as graph:
            point.fill(graph, total, weighted)
            roots, cases = self._roots(), CASES | WEIGHTED
            calls = {name: partial(self._time, graph, name, case, roots) for name, case in cases.items()}
            for short, name in MAINTAINED.items():
                calls[f"maintained {short}"] = partial(self._maintained, graph, name)
            figures = {}
            for name in names:
                who = f"{len(point.workers)} workers, {name}"
                try:
                    figures[name] = timing = calls[name]()
                except CapacityError as error:
                    point.say(f"{who}: {error}")
                    continue
                point.say(f"{who}: {three_digits(timing['p50_ms'])} ms, first {three_digits(timing['first_ms'])}")
            return figures

    def _roots(self) -> list[int]:
        """Draw vertices with edges."""
        with_edges = np.flatnonzero(self.degrees)
        rng = np.random.default_rng(self.options.seed)
        return [int(root) for root in rng.choice(with_edges, max(RUNS, self.options.roots))]

    def _time(self, graph: DynamicGraph, name: str, case: _Case, roots: list[int]) -> dict[str, Any]:
        roots = roots[: self.options.roots if case.searches else RUNS]
        # The first call compiles, and its result is compared with those of other numbers of workers.
        began = time.perf_counter()
        self.point.checks[name] = first_column(case.call(graph, roots[0]))
        first, seconds = time.perf_counter() - began, []
        while time.perf_counter() - began < WARM_SECONDS:
            case.call(graph, roots[0])
        for root in roots:
            began = time.perf_counter()
            case.call(graph, root)
            seconds.append(time.perf_counter() - began)
        return {**summary(seconds), "first_ms": 1e3 * first}

    def _maintained(self, graph: DynamicGraph, name: str) -> dict[str, Any]:
        """Time the read of a maintained result after batches of random edges, which are the same for every point."""
        rng, seconds = np.random.default_rng(self.options.seed), []
        began = time.perf_counter()
        with graph.maintain(name) as live:
            live.result()
            first = time.perf_counter() - began
            for _ in range(WARM_READS + RUNS):
                graph.insert(*rng.integers(0, graph.num_vertices, (2, CHANGES), np.uint32))
                began = time.perf_counter()
                live.result()
                seconds.append(time.perf_counter() - began)
            self.point.checks[f"maintained {name}"] = first_column(live.result())
        return {**summary(seconds[WARM_READS:]), "first_ms": 1e3 * first}


def first_column(result: Any) -> np.ndarray:
    """Return the values of a result that must not depend on the number of workers."""
    if isinstance(result, EdgeBatch):
        return np.sort(result.src.astype(np.uint64) << np.uint64(32) | result.dst)
    if isinstance(result, Csr):
        return np.sort(result.dst)
    if isinstance(result, SampledNeighbors):
        return np.sort(result.node)
    if isinstance(result, VertexRows):  # a row for each source: gigabytes of large graphs
        return np.asarray(result[:: max(1, len(result) // COMPARED)])
    return np.asarray(result.to_numpy() if hasattr(result, "to_numpy") else result)


def slower(name: str, before: float, after: float) -> bool:
    """Return True if `after` milliseconds on more workers break the rule that more workers never cost time.

    `name` is an algorithm, or "grid".
    """
    share, least = SLACK.get(name, (SHARE, LEAST_MS))
    return after > before * (1 + share) and after > before + least


def slower_pairs(figures: Mapping[int, Mapping[str, Any]], grid: bool = False) -> list[tuple[int, int, str]]:
    """Return (workers, more workers, algorithm) of each time that is slower, by figures per number of workers.

    The more workers are twice as many, or on a grid any number beside the least.
    """
    least = min(figures)
    pairs = [(least if grid else count // 2, count) for count in figures if count > least]
    return [
        (few, many, name)
        for few, many in pairs
        if few in figures and (grid or 2 * few == many)
        for name in figures[few]
        if name in figures[many]
        and slower("grid" if grid else name, figures[few][name]["p50_ms"], figures[many][name]["p50_ms"])
    ]
