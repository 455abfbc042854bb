"""Picture of scaling: rate of updates and time of each algorithm over the number of workers."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from workloads.report.command import inside
from workloads.results.record import Record

__all__ = ["save_scaling_plot"]

PANELS: dict[str, tuple[str, float]] = {
    "updates from the client [M/s]": ("pipelined.updates_per_s", 1e-6),
    "updates from the workers, 50% deletes [M/s]": ("mixed.updates_per_s", 1e-6),
    "BFS [ms]": ("bfs.p50_ms", 1.0),
    "PageRank [ms per iteration]": ("pagerank.p50_ms", 1.0),
}


def save_scaling_plot(record: Record, path: Path) -> None:
    """Write a PNG of a run's scaling lines.

    Needs no display. Panels without measurements stay empty.
    """
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    lines = record.of("scaling")
    for panel, (label, (name, unit)) in zip(figure.subplots(2, 2).ravel(), PANELS.items(), strict=True):
        # A curve per kind of scaling.
        for kind in dict.fromkeys(line["scaling"] for line in lines):
            curve = [(line["workers"], inside(line, name)) for line in lines if line["scaling"] == kind]
            points = [(workers, value * unit) for workers, value in curve if value is not None]
            if points:
                panel.plot(*zip(*points, strict=True), "o-", label=f"{kind} scaling")
                panel.legend()
        # Axes from 0.
        panel.set_xlabel("workers")
        panel.set_ylabel(label)
        panel.set_xticks(sorted({line["workers"] for line in lines}))
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
