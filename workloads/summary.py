"""What one machine does, in one table: a row a measurement, a column a structure, from the newest archived runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from workloads.archive import Run, of, parameters, provenance
from workloads.bench.harness import short

__all__ = ["headline", "summary"]

Table = tuple[str, list[str], list[list[Any]]]  #: where and when, the columns, the rows
SHAPES = {"rmat": "", "hub": "one hub", "road": "road-like"}

#: the six rows that stand for all: patterns of the summary's rows
HEADLINE = (
    r"build from [\d.]+M edges, ms",
    r"insert 1M into [\d.]+M edges, ms",
    r"delete 1M from [\d.]+M edges, ms",
    r"BFS, [\d,]+M arcs, symmetric, ms",
    r"PageRank iteration, [\d,]+M arcs, symmetric, ms",
    r"bytes per edge, [\d.]+M after the batches",
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
    for run in sorted((run for run in runs if run[0]["name"] in ROWS), key=_order):
        for what, structure, value in ROWS[run[0]["name"]](run):
            row = rows.setdefault(what, _Row(what))
            row.values[structure] = value
            row.runs.append(provenance(run[0]))
    return list(rows.values())


def _order(run: Run) -> tuple[int, str, int, str]:
    """Updates first, by shape and size of the graph; of two runs on one graph the newer one last, which counts."""
    name = run[0]["name"]
    drawn = max((line["drawn"] for line in of(run, "build")), default=0) if name == "bench-updates" else 0
    return list(ROWS).index(name), _shape(run), drawn, run[0]["time"]


def _table(rows: list[_Row]) -> Table:
    """Rows with a column a structure, csr last."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    names = [name for name in names if name != "csr"] + ["csr"] * ("csr" in names)
    where = "; ".join(dict.fromkeys(run for row in rows for run in row.runs))
    return where, ["", *names], [[row.what, *(row.values.get(name, "") for name in names)] for row in rows]


def _shape(run: Run) -> str:
    given = parameters(run[0])
    shape = given.get("shape", "uniform" if given.get("uniform") else "rmat")
    return SHAPES.get(shape, shape)


def _updates(run: Run) -> Iterator[tuple[str, str, Any]]:
    drawn = short(max(line["drawn"] for line in of(run, "build")))
    graph = ", ".join(filter(None, (f"{drawn} edges", _shape(run))))
    for line in of(run, "build"):
        yield f"build from {graph}, ms", line["structure"], line["p50_ms"]
    for op, way in (("insert", "into"), ("delete", "from")):
        for line in of(run, "batch"):
            if line["op"] == op and not line["sorted"]:
                yield f"{op} {short(line['size'])} {way} {graph}, ms", line["structure"], line["p50_ms"]
    for line in of(run, "check"):
        after = ", ".join(filter(None, (f"{drawn} after the batches", _shape(run))))
        yield f"bytes per edge, {after}", line["structure"], line["bytes_per_edge"]


def _graph(run: Run, line: dict[str, Any]) -> str:
    """Which graph, by a run's parameters."""
    given = parameters(run[0])
    kind = "directed" if given.get("directed") else "symmetric"
    told = (
        "with in-edges" if given.get("reverse") else "",
        _shape(run),
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


ROWS = {"bench-updates": _updates, "bench-bfs": _bfs, "bench-pagerank": _pagerank}
