"""What one machine does, in one table: a row a measurement, a column a structure, from the newest archived runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from workloads.bench.harness import short
from workloads.results.archive import Run, of, parameters, provenance

__all__ = ["headline", "summary"]

Table = tuple[str, list[str], list[list[Any]]]  #: where and when, the columns, the rows
SHAPES = {"rmat": "", "hub": "one hub", "road": "road-like"}

#: the six rows that stand for all: patterns of the summary's rows
HEADLINE = (
    r"build from .*",
    r"insert 1M, ms",
    r"delete 1M, ms",
    r"BFS, [\d,]+M arcs, symmetric, ms",
    r"PageRank iteration, [\d,]+M arcs, symmetric, ms",
    r"bytes an edge after the batches",
)


@dataclass
class _Row:
    """One measurement: its value by structure, and the runs that it is from."""

    what: str
    values: dict[str, Any] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)


def summary(runs: list[Run]) -> Table:
    """All measurements of runs on the same hardware."""
    return _table(_rows(runs))


def headline(runs: list[Run]) -> Table:
    """The rows of `HEADLINE`, each where most structures were compared, for the structures that are in all of them.

    No row where one of them is missing.
    """
    chosen = []
    for pattern in HEADLINE:
        found = [row for row in _rows(runs) if re.fullmatch(pattern, row.what)]
        chosen += sorted(found, key=lambda row: len(row.values))[-1:]
    if len(chosen) < len(HEADLINE):
        return _table([])
    common = set.intersection(*(set(row.values) for row in chosen))
    for row in chosen:
        row.values = {name: value for name, value in row.values.items() if name in common}
    return _table(chosen)


def _rows(runs: list[Run]) -> list[_Row]:
    rows: dict[str, _Row] = {}
    for run in _largest_updates(runs) + [r for r in runs if r[0]["name"] in ROWS and not _is_updates(r)]:
        for what, structure, value in ROWS[run[0]["name"]](run):
            row = rows.setdefault(what, _Row(what))
            row.values[structure] = value
            row.runs.append(provenance(run[0]))
    return list(rows.values())


def _table(rows: list[_Row]) -> Table:
    """Rows with a column a structure, csr last."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    names = [name for name in names if name != "csr"] + ["csr"] * ("csr" in names)
    where = "; ".join(dict.fromkeys(run for row in rows for run in row.runs))
    return where, ["", *names], [[row.what, *(row.values.get(name, "") for name in names)] for row in rows]


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
            yield "slowest batch while doubling, relative to a copy", line["structure"], line["slowest_copies"]
    if of(run, "double"):
        return
    for line in of(run, "build"):
        yield f"build from {short(line['drawn'])} unsorted edges, ms", line["structure"], line["p50_ms"]
    for op in ("insert", "delete"):
        for line in of(run, "batch"):
            if line["op"] == op and not line["sorted"]:
                yield f"{op} {short(line['size'])}, ms", line["structure"], line["p50_ms"]
    for line in of(run, "check"):
        yield "bytes an edge after the batches", line["structure"], line["bytes_per_edge"]


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
        "ordered by degree" if given.get("degree_order") else "",
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
