"""One table of what one GPU does: a row a measurement, a column a structure, from the newest archived runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workloads.archive import Run, of, parameters, provenance
from workloads.bench.harness import short

__all__ = ["summary"]

Cells = dict[str, Any]  #: a row: its value by structure
SHAPES = {"rmat": "", "hub": "one hub", "road": "like roads"}


def summary(runs: list[Run]) -> tuple[str, list[str], list[list[Any]]]:
    """Where and when, the columns, and the rows, of runs on the same hardware."""
    rows: dict[str, Cells] = {}
    used: list[str] = []
    for run in _largest_updates(runs) + [r for r in runs if r[0]["name"] in ROWS and not _is_updates(r)]:
        found = list(ROWS[run[0]["name"]](run))
        used += [provenance(run[0])] if found else []
        for what, structure, value in found:
            rows.setdefault(what, {})[structure] = value
    names = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    names = [name for name in names if name != "csr"] + ["csr"] * ("csr" in names)
    return "; ".join(dict.fromkeys(used)), ["", *names], [[w, *(c.get(n, "") for n in names)] for w, c in rows.items()]


def _is_updates(run: Run) -> bool:
    return run[0]["name"] == "bench-updates"


def _largest_updates(runs: list[Run]) -> list[Run]:
    """Of the runs of updates the newest of those with the largest graph, and those that double it."""
    plain = [r for r in runs if _is_updates(r) and not {"uniform", "shape"} & set(parameters(r[0]))]
    doubling = [r for r in plain if of(r, "double")]
    others = [r for r in plain if not of(r, "double")]
    return sorted(others, key=lambda r: (max(line["drawn"] for line in of(r, "build")), r[0]["time"]))[-1:] + doubling


def _updates(run: Run) -> Iterator[tuple[str, str, Any]]:
    for line in of(run, "double"):
        if not line["reserved_bytes"]:
            yield "slowest batch while doubling, in copies of the graph", line["structure"], line["slowest_copies"]
    if of(run, "double"):
        return
    for line in of(run, "build"):
        yield f"build, {short(line['drawn'])} unsorted edges, ms", line["structure"], line["p50_ms"]
    for op in ("insert", "delete"):
        for line in of(run, "batch"):
            if line["op"] == op and not line["sorted"]:
                yield f"{op} {short(line['size'])}, ms", line["structure"], line["p50_ms"]


def _memory(run: Run) -> Iterator[tuple[str, str, Any]]:
    for line in of(run, "growth"):
        yield "bytes an edge, mean while growing", line["structure"], line["mean"]


def _graph(run: Run, line: dict[str, Any]) -> str:
    """Which graph, by a run's parameters."""
    given = parameters(run[0])
    kind = "directed" if given.get("directed") else "symmetric"
    shape = given.get("shape", "uniform" if given.get("uniform") else "rmat")
    told = (
        "with in-edges" if given.get("reverse") else "",
        SHAPES.get(shape, shape),
        "hubs first" if given.get("degree_order") else "",
    )
    return ", ".join(t for t in (f"{round(line['arcs'] / 10**6, -1):,.0f}M arcs", kind, *told) if t)


def _bfs(run: Run) -> Iterator[tuple[str, str, Any]]:
    what = "BFS with predecessors" if parameters(run[0]).get("predecessors") else "BFS"
    for line in of(run, "bfs"):
        yield f"{what}, {_graph(run, line)}, ms", line["structure"], line["p50_ms"]


def _pagerank(run: Run) -> Iterator[tuple[str, str, Any]]:
    for line in of(run, "pagerank"):
        yield f"PageRank iteration, {_graph(run, line)}, ms", line["structure"], line["p50_ms"]


ROWS = {"bench-updates": _updates, "bench-memory": _memory, "bench-bfs": _bfs, "bench-pagerank": _pagerank}
