"""Picture of a run: update rate, graph size and the time of each algorithm, by epoch."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from workloads.results.record import Record

__all__ = ["save_plot"]


def save_plot(record: Record, path: Path, title: str) -> None:
    """Write a PNG of a run's batches and analytics. Needs no display."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    # Panels of rate and size.
    batches = record.of("batch")
    epochs = [line["epoch"] for line in batches]
    names = list(dict.fromkeys(line["name"] for line in record.of("analytic")))
    panels = figure.subplots(3 if names else 2, 1, sharex=True)
    panels[0].plot(epochs, [line["operations"] / line["seconds"] / 1e6 for line in batches], ".-", linewidth=1)
    panels[0].set_ylabel("updates [M/s]")
    panels[1].plot(epochs, [line["edges"] / 1e6 for line in batches], ".-", linewidth=1, color="tab:green")
    panels[1].set_ylabel("edges [M]")
    # A panel of algorithms.
    for name in names:
        runs = [line for line in record.of("analytic") if line["name"] == name]
        panels[2].plot([r["epoch"] for r in runs], [r["seconds"] * 1e3 for r in runs], ".-", linewidth=1, label=name)
    if names:
        panels[2].set_ylabel("algorithm [ms]")
        panels[2].legend()
    for panel in panels:
        panel.set_ylim(0, 1.1 * max((y for line in panel.lines for y in line.get_ydata()), default=0) or 1)
        panel.grid(alpha=0.3)
    panels[-1].set_xlabel("epoch")
    figure.savefig(path, dpi=110)
