"""Point of a scaling curve: the rate of batches, from the client's host memory and drawn on the workers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mgraph import DynamicGraph
from workloads.bench.harness import Mismatch, summary
from workloads.inputs.churn import Churn
from workloads.scaling.link import link_rate
from workloads.scaling.point import WARM, Point

__all__ = ["Updates"]

IN_FLIGHT = 4  #: batches in a pipeline


class Updates:
    """Batches into a directed graph with ids as drawn, after `--resident` edges."""

    def __init__(self, point: Point) -> None:
        self.point, self.options = point, point.options
        self.resident = self.options.resident or point.edges.n_edges // 2
        self.next = self.resident  # number of the first unused edge

    def measure(self) -> dict[str, Any]:
        """Build the graph and measure all batches. Returns the figures."""
        point = self.point
        # Build.
        with point.graph() as graph:
            seconds, _ = point.fill(graph, self.resident)
            point.checks["edges resident"] = graph.num_edges
            figures: dict[str, Any] = {"exchange": graph.exchange, "fill_s": round(seconds, 4)}
            # Measure each kind of batches.
            figures |= {"resident": graph.num_edges}
            figures |= {op: self._calls(graph, op) for op in ("insert", "delete")}
            figures |= {"pipelined": self._pipelined(graph)}
            figures |= {"born": self._from_workers(graph), "mixed": self._mixed(graph)}
            return {**figures, "resident_end": graph.num_edges, "nbytes_end": graph.nbytes}

    def _calls(self, graph: DynamicGraph, op: str) -> dict[str, Any]:
        """Measure a client's call per batch: new edges, or the same deleted."""
        size, count, seconds = self.options.batch, self.options.batches, []
        for k in range(WARM + count):
            batch = self.point.host(self.next + k * size, self.next + (k + 1) * size)
            report = (graph.insert if op == "insert" else graph.delete)(batch.src, batch.dst)
            seconds.append(report.seconds)
            counts = (report.inserted, report.updated, report.deleted, report.missing)
            self.point.checks[f"{op} {k}: inserted, updated, deleted, missing"] = counts
        return {"size": size, **summary(seconds[WARM:]), "updates_per_s": round(size * count / sum(seconds[WARM:]))}

    def _pipelined(self, graph: DynamicGraph) -> dict[str, Any]:
        """Measure new batches from the client, several in flight, beside the bandwidth of the bare link."""
        # Draw the batches beforehand, and warm up.
        size, count = self.options.batch, self.options.batches
        batches = [self.point.host(self.next + k * size, self.next + (k + 1) * size) for k in range(WARM + count)]
        self.next += (WARM + count) * size
        for batch in batches[:WARM]:
            graph.update(batch)

        # Measure the pipeline, then the link.
        began = time.perf_counter()
        with graph.pipeline(max_bytes=8 * size * IN_FLIGHT) as pipeline:
            for batch in batches[WARM:]:
                pipeline.update(batch)
        rate = size * count / (time.perf_counter() - began)
        link = link_rate(self.point.client, self.point.workers, 8 * size, count)
        return {
            "size": size,
            "n": count,
            "updates_per_s": round(rate),
            "link_gb_per_s": round(link / 1e9, 3),
            "share_of_link": round(8 * rate / link, 3),
        }

    def _from_workers(self, graph: DynamicGraph) -> dict[str, Any]:
        """Measure new edges drawn on the workers, `--batch` on each per step, in one call."""
        size, count = self.options.batch, self.options.batches
        before, first, each = graph.num_edges, self.next, size * len(self.point.workers)
        self.next += (WARM + count) * each
        warm = graph.ingest(self.point.edges.on_workers(first, size), steps=WARM)
        began = time.perf_counter()
        reports = graph.ingest(self.point.edges.on_workers(first + WARM * each, size), steps=count)
        return self._rate(graph, before, [*warm, *reports], time.perf_counter() - began)

    def _mixed(self, graph: DynamicGraph) -> dict[str, Any]:
        """Measure half new edges, half old ones deleted."""
        size, count, source = self.options.batch // 2, self.options.batches, self.point.edges.on_workers
        before, each = graph.num_edges, size * len(self.point.workers)
        warm = graph.ingest(Churn(source(self.next, size), source(0, size)), steps=WARM)
        came, went = source(self.next + WARM * each, size), source(WARM * each, size)
        began = time.perf_counter()
        reports = graph.ingest(Churn(came, went), steps=count)
        spent = time.perf_counter() - began
        self.next += (WARM + count) * each
        return self._rate(graph, before, [*warm, *reports], spent)

    def _rate(self, graph: DynamicGraph, before: int, reports: list[Any], spent: float) -> dict[str, Any]:
        """Return the rate of all but the first `WARM` steps.

        Raises `Mismatch` if the reports do not add up.
        """
        gained = sum(report.inserted - report.deleted for report in reports)
        if graph.num_edges - before != gained:
            raise Mismatch(f"the graph gained {graph.num_edges - before} edges and the reports say {gained}")
        steps, size = [report.seconds for report in reports[WARM:]], self.options.batch
        rate = size * len(steps) * len(self.point.workers) / spent
        slowest = int(np.argmax(steps))
        return {"size": size, **summary(steps), "slowest_step": slowest, "updates_per_s": round(rate)}
