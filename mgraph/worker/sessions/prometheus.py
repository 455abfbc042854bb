"""Metrics of all shards of a process in Dask's ``/metrics``, through prometheus_client (the extra ``metrics``)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from mgraph.metrics import BATCH_SECONDS, METRICS
from mgraph.worker.sessions.meter import Meter

__all__ = ["expose", "withdraw"]

LABELS = ("graph", "rank")

_METERS: list[Meter] = []  # one per worker of this process
_COLLECTOR: list[_Collector] = []  # the registered collector


class _Collector:
    """Collector of prometheus_client's registry, which Dask serves.

    It reads what the shards' threads last wrote, so a scrape makes no call. A shard that is freed has no series.
    """

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        # Read all shards once: several families share their numbers.
        shards = [
            ((meter.name(graph, rank), str(rank)), thread.live, len(thread.requests), thread.batch_times)
            for meter in _METERS
            for (graph, rank), thread in meter.threads().items()
        ]
        for metric in METRICS:
            if metric.kind != "histogram":
                make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
                family = make(f"mgraph_{metric.name}", metric.text, labels=LABELS)
                for labels, state, _, _ in shards:
                    family.add_metric(labels, metric.read(state))
                yield family

        # The queue is the thread's, and the histogram has buckets.
        queued = GaugeMetricFamily("mgraph_queued_calls", "Calls that wait for the running one.", labels=LABELS)
        times = HistogramMetricFamily("mgraph_batch_seconds", "Time of batches without waits.", labels=LABELS)
        for labels, state, waiting, counts in shards:
            queued.add_metric(labels, waiting)
            bounds = [*map(str, BATCH_SECONDS), "+Inf"]
            times.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), state.batch_seconds)
        yield queued
        yield times

    def describe(self) -> list[Any]:
        """Return nothing: there are no fixed series."""
        return []


def expose(meter: Meter) -> None:
    """Add a worker's shards to ``/metrics``. Does nothing without prometheus_client."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    _METERS.append(meter)
    if not _COLLECTOR:
        _COLLECTOR.append(_Collector())
        REGISTRY.register(_COLLECTOR[0])


def withdraw(meter: Meter) -> None:
    """Remove a worker's shards from ``/metrics``."""
    if meter in _METERS:
        _METERS.remove(meter)
    if _COLLECTOR and not _METERS:
        from prometheus_client import REGISTRY

        REGISTRY.unregister(_COLLECTOR.pop())
