"""Times of algorithms by the number of GPUs, from the newest run of ``scaling --measure algorithms``."""

from __future__ import annotations

from typing import Any

from workloads.bench.harness import short
from workloads.results.archive import Run, of, parameters, provenance

__all__ = ["by_gpus", "six_by_gpus"]

#: six rows that stand for all
SIX = ("BFS", "components", "PageRank", "triangles", "label propagation, 10 rounds", "Louvain")


def by_gpus(runs: list[Run], names: tuple[str, ...] = ()) -> tuple[str, list[str], list[list[Any]]]:
    """Return the provenance, the columns, and a row per algorithm. A star marks a time that broke the rule twice."""
    measured = [run for run in runs if any("algorithms" in line for line in of(run, "scaling"))]
    if not measured:
        return "", [], []
    # The newest run, strong scaling.
    run = max(measured, key=lambda run: run[0]["time"])
    lines = [line for line in of(run, "scaling") if line["scaling"] == "strong"]
    arcs = short(2 * int(parameters(run[0])["edge_factor"]) << lines[0]["scale"])
    lost = {(name, many) for line in of(run, "losses") for _, many, name in line["pairs"]}
    counts = [f"{line['workers']} GPU{'s' * (line['workers'] > 1)}" for line in lines]
    columns = [f"ms, RMAT scale {lines[0]['scale']}, {arcs} drawn arcs", *counts]
    # A row per algorithm.
    rows = []
    for name in names or lines[0]["algorithms"]:
        times = [line["algorithms"][name]["p50_ms"] for line in lines]
        stars = [" *" if (name, line["workers"]) in lost else "" for line in lines]
        rows.append([name, *(f"{time:.3g}{star}" for time, star in zip(times, stars, strict=True))])
    return provenance(run[0]), columns, rows


def six_by_gpus(runs: list[Run]) -> tuple[str, list[str], list[list[Any]]]:
    """Return the table of `by_gpus` for six algorithms."""
    return by_gpus(runs, SIX)
