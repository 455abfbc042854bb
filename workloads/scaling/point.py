"""Point of a scaling curve: analytics of a graph on some workers, and the source of the point's graphs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Client

from mgraph import DynamicGraph, EdgeBatch
from mgraph.device import Array
from mgraph.distinct import distinct
from mgraph.errors import InvalidOption
from mgraph.partition import degree_order
from workloads.arguments import device_of
from workloads.bench.harness import summary
from workloads.bench.inputs import Edges

__all__ = ["WARM", "Analytics", "Point"]

WARM = 3  #: warm-up batches and calls: compilation, memory pools, UCX's mappings of the other GPUs' memory
CHUNK = 1 << 26  #: edges per draw on the client
TOL = 1e-7  #: the smallest tolerance with PageRank's default exchange of shares as 16 bits


class Point:
    """Some workers, and the numbered edges of all graphs of the point.

    Parameters
    ----------
    options : argparse.Namespace
        The options of the command.
    client : Client
    workers : sequence of str
        The workers' addresses.
    scale : int
    say : callable, optional
        ``say(message)`` reports progress.

    Attributes
    ----------
    checks : dict
        Results that must not depend on the number of workers, by a name for messages.
    """

    def __init__(
        self, options: argparse.Namespace, client: Client, workers: Sequence[str], scale: int, say: Any = None
    ) -> None:
        self.say = say or (lambda message: None)
        self.options, self.client, self.workers = options, client, list(workers)
        self.maker = device_of(options.device)
        self.maker.use()
        self.edges = Edges(argparse.Namespace(**{**vars(options), "scale": scale}), self.maker)
        self.checks: dict[str, Any] = {}

    def graph(self, **more: Any) -> DynamicGraph:
        """Create an empty graph on the point's workers."""
        options = self.options
        graph_options = {
            "structure": options.structure,
            "exchange": options.exchange,
            "reserve": options.reserve,
            **more,
        }
        return DynamicGraph(self.client, self.edges.n_vertices, workers=self.workers, **graph_options)

    def fill(self, graph: DynamicGraph, total: int, weighted: bool = False) -> tuple[float, int]:
        """Insert the first `total` edges, drawn on the workers, with weights if `weighted`.

        Returns the seconds, and the number inserted.
        """
        # Steps of equal size, and a last batch of the rest.
        size = len(self.workers)
        step = max(1, min(self.options.part, total // size))
        steps = total // (step * size)
        began = time.perf_counter()
        reports = graph.ingest(self.edges.on_workers(0, step, weighted), steps=steps)
        if steps * step * size < total:
            reports.append(graph.update(self.host(steps * step * size, total, weighted)))
        return time.perf_counter() - began, sum(report.inserted for report in reports)

    def host(self, start: int, stop: int, weighted: bool = False) -> EdgeBatch:
        """Return edges in the client's host memory."""
        drawn = self.edges.on_workers(start, stop - start, weighted)(0, 1, 0, self.maker)
        src, dst, *weight = (self.maker.to_host(column) for column in drawn)
        del drawn
        self.free()
        return EdgeBatch(src, dst, weight[0] if weighted else None)

    def free(self) -> None:
        """Free the memory of draws: on a GPU that a worker uses too, the pool would keep it."""
        if self.maker.kind == "cuda":
            self.maker.xp.get_default_memory_pool().free_all_blocks()

    def degrees(self, total: int) -> Array:
        """Count the ends of the first `total` edges at each vertex, a self-loop twice: int64[n], on the maker."""
        xp, n = self.maker.xp, self.edges.n_vertices
        degrees = xp.zeros(n, np.int64)
        for at in range(0, total, CHUNK):
            for ids in self.edges.between(at, min(at + CHUNK, total)):
                degrees += xp.bincount(ids, minlength=n)
        return degrees


class Analytics:
    """BFS and PageRank on a graph, with the hubs' ids first unless `--ids drawn`."""

    def __init__(self, point: Point) -> None:
        self.point, self.options = point, point.options
        degrees = point.degrees(point.edges.n_edges)
        order = None
        if self.options.ids == "degree":
            order = point.maker.to_host(degree_order(degrees, len(point.workers)))
        self.degrees, self.order = point.maker.to_host(degrees), order
        del degrees
        point.free()

    def measure(self) -> dict[str, Any]:
        """Build the graph and measure it. Returns the figures."""
        point, total = self.point, self.point.edges.n_edges
        with point.graph(directed=self.options.directed, order=self.order) as graph:
            seconds, _ = point.fill(graph, total)
            point.checks["edges built"] = graph.num_edges
            figures = {
                "exchange": graph.exchange,
                "built": graph.num_edges,
                "drawn": total,
                "build_s": round(seconds, 4),
            }
            figures |= {"nbytes": graph.nbytes, "bfs": self._bfs(graph), "pagerank": self._pagerank(graph)}
            balance = graph.balance()
            figures |= {"arcs": sum(load.arcs for load in balance.workers)}
            return {**figures, "most_arcs_over_mean": round(balance.ratio, 4)}

    def _bfs(self, graph: DynamicGraph) -> dict[str, Any]:
        """Measure searches from sources of random edges that reach more than a hundredth of the vertices."""
        # Draw roots, and warm up.
        sources = distinct(self.point.host(0, min(16 * self.options.roots, self.point.edges.n_edges)).src)
        roots = np.random.default_rng(self.options.seed).permutation(sources).tolist()
        for root in roots[:WARM]:
            graph.bfs(root)

        # Search. The edges reached are counted once for each number of vertices reached.
        seconds: list[float] = []
        rates: list[float] = []
        searched: dict[int, int] = {}  # edges among the reached vertices, by the number of these
        for root in roots:
            if len(seconds) == self.options.roots:
                break
            began = time.perf_counter()
            result = graph.bfs(root)
            spent = time.perf_counter() - began
            if result.reached * 100 <= len(self.degrees):
                continue
            if result.reached not in searched:  # mostly the giant component, from every root
                distance = result.to_numpy()
                self.point.checks[f"distances from {root}"] = distance
                searched[result.reached] = int(self.degrees[distance >= 0].sum()) // 2
            seconds.append(spent)
            rates.append(searched[result.reached] / spent / 1e9)
        if not seconds:
            raise InvalidOption(f"no root reaches a hundredth of {len(self.degrees)} vertices; raise --edge-factor")
        return {**summary(seconds), "gteps_median": round(float(np.median(rates)), 4)}

    def _pagerank(self, graph: DynamicGraph) -> dict[str, Any]:
        seconds: list[float] = []
        for _ in range(1 + WARM):
            began = time.perf_counter()
            result = graph.pagerank(tol=TOL, max_iter=self.options.iterations)
            seconds.append((time.perf_counter() - began) / result.iterations)
        self.point.checks["ranks"] = result.to_numpy()
        return {"iterations": result.iterations, **summary(seconds[1:])}
