"""Picture of pauses: the time of each batch while a graph doubles, a panel per run and a line per structure."""

from __future__ import annotations

from pathlib import Path

from matplotlib.ticker import LogLocator, NullFormatter

from workloads.report.picture import picture
from workloads.report.slow_batches import named
from workloads.results.archive import Run, of, provenance

__all__ = ["save_latencies"]


def save_latencies(runs: list[Run], path: Path) -> None:
    """Write an SVG of the batches of `runs`, without reserved memory."""
    # A panel per run, a line per structure.
    with picture(path, 9, 3.4 * len(runs)) as figure:
        for panel, run in zip(figure.subplots(len(runs), 1, squeeze=False)[:, 0], runs, strict=True):
            for line in of(run, "double"):
                if not line["reserved_bytes"]:
                    label = f"{line['structure']}, median {line['p50_ms']:.3g} ms"
                    panel.plot(range(1, line["n"] + 1), line["each_ms"], linewidth=0.8, label=label)

            # Times on a log scale.
            panel.set_yscale("log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.set_title(f"{named(run)}. {provenance(run[0])}", fontsize=9)
            panel.set_xlabel("batch")
            panel.set_ylabel("time of the batch [ms]")
            panel.grid(alpha=0.3)
            panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
