"""Metrics of a graph: one table for `DynamicGraph.metrics`, Prometheus and the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from mgraph.protocol import ShardState

__all__ = ["BATCH_SECONDS", "METRICS", "Metric", "of_graph", "of_rank"]

#: bounds of the histogram of batches' times
BATCH_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metric(NamedTuple):
    """A number that each rank has.

    Attributes
    ----------
    name : str
    kind : "gauge" | "counter" | "histogram"
        A histogram's count and sum are metrics too.
    text : str
        Its description.
    read : callable
        Returns it from a rank's state.
    join : callable
        Returns the graph's number from those of the ranks.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    read: Callable[[ShardState], float]
    join: Callable[[Iterable[float]], float] = sum


METRICS: Sequence[Metric] = (
    Metric("vertices", "gauge", "Vertices that the rank owns.", lambda state: state.hi - state.lo),
    Metric("edges", "gauge", "Edges that the rank counts.", lambda state: state.edges),
    Metric("epoch", "gauge", "Committed changes of content.", lambda state: state.epoch, min),
    Metric("durable_epoch", "gauge", "Last epoch on the disk; 0 without a store.", lambda state: state.durable, min),
    Metric("operations", "counter", "Distinct edges in committed batches.", lambda state: state.operations),
    Metric("batches", "histogram", "Committed batches.", lambda state: state.batches, max),
    Metric("batch_seconds", "histogram", "Time of batches without waits.", lambda state: state.batch_seconds, max),
    Metric("last_batch_seconds", "gauge", "Time of the last batch without waits.", lambda state: state.seconds, max),
    Metric("memory_bytes", "gauge", "Device memory of structures and results.", lambda state: state.nbytes),
    Metric("recoveries", "counter", "Losses after which the graph came back.", lambda state: state.recoveries, max),
)


def of_rank(state: ShardState) -> dict[str, Any]:
    """Return the metrics of a rank by name."""
    return {metric.name: metric.read(state) for metric in METRICS}


def of_graph(states: Sequence[ShardState]) -> dict[str, Any]:
    """Return the metrics of a graph by name, from the states of its ranks."""
    return {metric.name: metric.join([metric.read(state) for state in states]) for metric in METRICS}
