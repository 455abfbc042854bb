"""The picture of scaling: rate of updates and time of each algorithm over the number of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from workloads.record import Record

__all__ = ["save_scaling_plot"]

PANELS: dict[str, Callable[[dict[str, Any]], float]] = {
    "updates from the client [M/s]": lambda line: line["pipelined"]["updates_per_s"] / 1e6,
    "updates born on the workers [M/s]": lambda line: line["born"]["updates_per_s"] / 1e6,
    "BFS [ms]": lambda line: line["bfs"]["p50_ms"],
    "PageRank [ms an iteration]": lambda line: line["pagerank"]["p50_ms"],
}


def save_scaling_plot(record: Record, path: Path) -> None:
    """Write a PNG of a run's scaling lines; needs no display."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    lines = record.of("scaling")
    for panel, (label, value) in zip(figure.subplots(2, 2).ravel(), PANELS.items(), strict=True):
        for kind in dict.fromkeys(line["scaling"] for line in lines):
            points = [(line["workers"], value(line)) for line in lines if line["scaling"] == kind]
            panel.plot(*zip(*points, strict=True), "o-", label=f"{kind} scaling")
        panel.set_xlabel("workers")
        panel.set_ylabel(label)
        panel.set_xticks(sorted({line["workers"] for line in lines}))
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(path, dpi=110)
