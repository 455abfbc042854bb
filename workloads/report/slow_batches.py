"""Slow batches of runs that double a graph (``bench updates --double``): a table, and the lines of a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workloads.bench.harness import short
from workloads.results.archive import Run, of, provenance

__all__ = ["doubling", "named", "slow_batches"]

#: the goal: upper bounds of the 99th percentile and the maximum, in medians
P99, MOST = 2.5, 4.0

COLUMNS = ["batches", "memory", "structure", "p50 ms", "p99 ms", "max ms", "p99/p50", "max/p50", "goal"]


def slow_batches(runs: list[Run]) -> tuple[str, list[str], list[list[Any]]]:
    """Return the provenance, the columns, and a row per structure, without and with reserved memory."""
    kept_runs = list(doubling(runs))
    where = "; ".join(dict.fromkeys(provenance(run[0]) for run in kept_runs))
    return where, COLUMNS, [row for run in kept_runs for row in _rows(run)]


def doubling(runs: list[Run]) -> Iterator[Run]:
    """Yield the runs with the time of each batch, small batches first."""
    kept = [run for run in runs if any("each_ms" in line for line in of(run, "double"))]
    yield from sorted(kept, key=lambda run: of(run, "double")[0]["size"])


def named(run: Run) -> str:
    """Name the batches and the graph of a run."""
    line = of(run, "double")[0]
    return f"{line['n']} of {short(line['size'])} onto {short(of(run, 'build')[0]['drawn'])} edges"


def _rows(run: Run) -> Iterator[list[Any]]:
    for line in sorted(of(run, "double"), key=lambda line: bool(line["reserved_bytes"])):
        p99, most = line["p99_ms"] / line["p50_ms"], line["max_ms"] / line["p50_ms"]
        goals = {"p99": p99 <= P99, "maximum": most <= MOST}
        goal = "both" if all(goals.values()) else ", ".join(name for name, met in goals.items() if met) or "neither"
        memory = "reserved" if line["reserved_bytes"] else "not reserved"
        times = [line[name] for name in ("p50_ms", "p99_ms", "max_ms")]
        yield [named(run), memory, line["structure"], *times, f"{p99:.2f}", f"{most:.2f}", goal]
