"""Times of algorithms by the number of GPUs, from the newest run of ``scaling --measure algorithms``."""

from __future__ import annotations

from typing import Any

from workloads.bench.harness import short, three_digits
from workloads.results.archive import Run, of, parameters, provenance

__all__ = ["by_gpus", "points_by_gpus", "six_by_gpus"]

#: six rows that stand for all
SIX = ("BFS", "shortest paths", "distances, 64", "components", "PageRank", "betweenness, 4 sources")


def points_by_gpus(runs: list[Run]) -> tuple[Run, Run]:
    """Return the newest run that timed algorithms on RMAT graphs, and its lines of strong scaling.

    Empty lists without one.
    """
    rmat = [run for run in runs if not {"shape", "uniform"} & parameters(run[0]).keys()]
    measured = [run for run in rmat if any("algorithms" in line for line in of(run, "scaling"))]
    every = [run for run in measured if not set(SIX) - set(parameters(run[0]).get("names", SIX))]
    run = max(every, key=lambda run: run[0]["time"], default=[])
    return run, [line for line in of(run, "scaling") if line["scaling"] == "strong"]


def by_gpus(runs: list[Run], names: tuple[str, ...] = ()) -> tuple[str, list[str], list[list[Any]]]:
    """Return the provenance, the columns, and a row per algorithm. A star marks a time that broke the rule twice."""
    run, lines = points_by_gpus(runs)
    if not lines:
        return "", [], []
    arcs = short(2 * int(parameters(run[0])["edge_factor"]) << lines[0]["scale"])
    lost = {(name, many) for line in of(run, "losses") for _, many, name in line["pairs"]}
    counts = [f"{line['workers']} GPU{'s' * (line['workers'] > 1)}" for line in lines]
    columns = [f"ms, RMAT scale {lines[0]['scale']}, {arcs} drawn arcs", *counts]
    # A row per algorithm.
    rows = []
    for name in names or dict.fromkeys(name for line in lines for name in line["algorithms"]):
        times = [line["algorithms"].get(name, {}).get("p50_ms") for line in lines]  # None: it had too little memory
        stars = [" *" if (name, line["workers"]) in lost else "" for line in lines]
        cells = [
            "no memory" if time is None else three_digits(time) + star for time, star in zip(times, stars, strict=True)
        ]
        rows.append([name, *cells])
    return provenance(run[0]), columns, rows


def six_by_gpus(runs: list[Run]) -> tuple[str, list[str], list[list[Any]]]:
    """Return the table of `by_gpus` for six algorithms."""
    return by_gpus(runs, SIX)
