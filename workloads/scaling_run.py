"""One point of a scaling curve: a cluster of so many workers, one graph, and everything that is timed on it."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from cluster import start
from mgraph import DynamicGraph, EdgeBatch
from mgraph.device import Device, gpu_count
from mgraph.errors import InvalidOption
from workloads.bench.harness import summary
from workloads.bench.inputs import Edges

__all__ = ["Measured"]

WARM = 2  #: batches and searches that do not count
IN_FLIGHT = 4  #: batches in a pipeline
CHUNK = 1 << 26  #: edges drawn at once on the client
TINY = 1e-30  #: a tolerance that no iteration meets, so that all of them are done


class Measured:
    """One number of workers with one graph.

    Parameters
    ----------
    options : argparse.Namespace
        Of the command.
    workers, scale : int

    Attributes
    ----------
    checks : dict
        What must not depend on the number of workers, by a name for messages.
    """

    def __init__(self, options: argparse.Namespace, workers: int, scale: int) -> None:
        self.options, self.workers = options, workers
        self.maker = Device("cuda" if options.device != "cpu" and gpu_count() else "cpu")
        self.maker.use()
        self.edges = Edges(argparse.Namespace(**{**vars(options), "scale": scale}), self.maker)
        self.drawn = np.zeros(self.edges.n_vertices, np.int64)  # edges by source: Graph500's rate counts what was drawn
        self.checks: dict[str, Any] = {}

    def measure(self) -> dict[str, Any]:
        """All figures as one line, and what must not depend on the number of workers."""
        options = self.options
        with (
            start(self.workers, device=options.device) as client,
            DynamicGraph(
                client,
                self.edges.n_vertices,
                structure=options.structure,
                directed=options.directed,
                exchange=options.exchange,
            ) as graph,
        ):
            line = {"device": graph.device, "exchange": graph.exchange, **self._build(graph), **self._batches(graph)}
            line |= {"bfs": self._bfs(graph), "pagerank": self._pagerank(graph), "edges": graph.num_edges}
            line |= {"most_arcs_over_mean": round(graph.balance().ratio, 4)}
            line |= {"pipelined": self._pipelined(graph), "born": self._born(graph)}
            return {"line": {**line, "nbytes": graph.nbytes}, "checks": self.checks}

    def _host(self, start: int, stop: int) -> EdgeBatch:
        src, dst = (self.maker.to_host(ids) for ids in self.edges.between(start, stop))
        self._free()
        return EdgeBatch(src, dst)

    def _free(self) -> None:
        """Give up what was drawn here: on a GPU, which a worker uses too, the pool would keep it."""
        if self.maker.kind == "cuda":
            self.maker.xp.get_default_memory_pool().free_all_blocks()

    def _build(self, graph: DynamicGraph) -> dict[str, Any]:
        """All edges, drawn on the workers."""
        total, step = self.edges.n_edges, min(self.options.part, self.edges.n_edges // self.workers)
        steps = total // (step * self.workers)
        began = time.perf_counter()
        graph.ingest(self.edges.source(0, step), steps=steps)
        if steps * step * self.workers < total:
            graph.update(self._host(steps * step * self.workers, total))
        seconds = time.perf_counter() - began
        for at in range(0, total, CHUNK):
            src, _ = self.edges.between(at, min(at + CHUNK, total))
            self.drawn += self.maker.to_host(self.maker.xp.bincount(src, minlength=len(self.drawn)))
        self._free()
        self.checks["edges built"] = graph.num_edges
        return {"built": graph.num_edges, "drawn": total, "build_s": round(seconds, 4)}

    def _batches(self, graph: DynamicGraph) -> dict[str, Any]:
        size, found = self.options.batch, {}
        for op in ("insert", "delete"):
            seconds = []
            for k in range(WARM + self.options.batches):
                batch = self._host(self.edges.n_edges + k * size, self.edges.n_edges + (k + 1) * size)
                report = (graph.insert if op == "insert" else graph.delete)(batch.src, batch.dst)
                seconds.append(report.seconds)
                counts = (report.inserted, report.updated, report.deleted, report.missing)
                self.checks[f"{op} {k}: inserted, updated, deleted, missing"] = counts
            rate = size * self.options.batches / sum(seconds[WARM:])
            found[op] = {"size": size, **summary(seconds[WARM:]), "updates_per_s": round(rate)}
        return found

    def _pipelined(self, graph: DynamicGraph) -> dict[str, Any]:
        """New batches from the client, several in flight."""
        size, count = self.options.batch, self.options.batches
        first = self.edges.n_edges + (WARM + count) * size
        batches = [self._host(first + k * size, first + (k + 1) * size) for k in range(WARM + count)]
        for batch in batches[:WARM]:
            graph.update(batch)
        began = time.perf_counter()
        with graph.pipeline(max_bytes=8 * size * IN_FLIGHT) as pipeline:
            for batch in batches[WARM:]:
                pipeline.update(batch)
        return {"size": size, "n": count, "updates_per_s": round(size * count / (time.perf_counter() - began))}

    def _born(self, graph: DynamicGraph) -> dict[str, Any]:
        """New batches drawn on the workers, `--batch` edges on each for each step, in one call."""
        size, count = self.options.batch, self.options.batches
        first = self.edges.n_edges + 2 * (WARM + count) * size
        graph.ingest(self.edges.source(first, size), steps=WARM)
        began = time.perf_counter()
        graph.ingest(self.edges.source(first + WARM * size * self.workers, size), steps=count)
        rate = size * count * self.workers / (time.perf_counter() - began)
        return {"size": size, "n": count, "updates_per_s": round(rate)}

    def _bfs(self, graph: DynamicGraph) -> dict[str, Any]:
        """Searches from sources of random edges that reach more than a hundredth of the vertices."""
        sources = np.unique(self._host(0, min(16 * self.options.roots, self.edges.n_edges)).src)
        roots = np.random.default_rng(self.options.seed).permutation(sources).tolist()
        for _ in range(WARM):
            graph.bfs(roots[0])
        seconds: list[float] = []
        rates: list[float] = []
        for root in roots:
            if len(seconds) == self.options.roots:
                break
            began = time.perf_counter()
            result = graph.bfs(root)
            spent = time.perf_counter() - began
            if result.reached * 100 > len(self.drawn):
                distance = result.to_numpy()
                self.checks[f"distances from {root}"] = distance
                seconds.append(spent)
                rates.append(self.drawn[distance >= 0].sum() / spent / 1e9)
        if not seconds:
            raise InvalidOption(f"no root reaches a hundredth of {len(self.drawn)} vertices; raise --edge-factor")
        return {**summary(seconds), "gteps_median": round(float(np.median(rates)), 4)}

    def _pagerank(self, graph: DynamicGraph) -> dict[str, Any]:
        seconds: list[float] = []
        for _ in range(3):
            began = time.perf_counter()
            result = graph.pagerank(tol=TINY, max_iter=self.options.iterations)
            seconds.append((time.perf_counter() - began) / result.iterations)
        self.checks["ranks"] = result.to_numpy()
        return {"iterations": result.iterations, **summary(seconds)}
