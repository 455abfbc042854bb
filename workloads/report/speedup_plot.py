"""Picture of speed-ups: each algorithm on several GPUs, relative to one."""

from __future__ import annotations

from pathlib import Path

from workloads.report.by_gpus import points_by_gpus
from workloads.report.picture import picture
from workloads.results.archive import Run, provenance

__all__ = ["save_speedups"]


def save_speedups(runs: list[Run], path: Path) -> bool:
    """Write an SVG of the table of `by_gpus`. Returns False without a run to draw."""
    run, lines = points_by_gpus(runs)
    if len(lines) < 2:
        return False
    # Speed-ups by algorithm and number of GPUs, the greatest at the top.
    times = [{name: figures["p50_ms"] for name, figures in line["algorithms"].items()} for line in lines]
    measured = [name for name in times[0] if all(name in some for some in times)]
    names = sorted(measured, key=lambda name: times[0][name] / times[-1][name])
    with picture(path, 9, 1.3 + 0.22 * len(names)) as figure:
        panel = figure.subplots()
        for line, some in zip(lines[1:], times[1:], strict=True):
            panel.plot([times[0][name] / some[name] for name in names], names, "o", label=f"{line['workers']} GPUs")
        panel.axvline(1, color="gray", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_xlabel("times as fast as on one GPU")
        panel.set_title(f"RMAT scale {lines[0]['scale']}, through the client. {provenance(run[0])}", fontsize=9)
        panel.grid(alpha=0.3)
        panel.legend(loc="lower right")
    return True
