"""Summary of a machine in a table: a row per measurement, a column per structure, from the newest archived runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from workloads.bench.harness import short
from workloads.results.archive import Run, of, parameters, provenance

__all__ = ["summary"]

Table = tuple[str, list[str], list[list[Any]]]  #: provenance, columns, rows
SHAPES = {"rmat": "", "hub": "one hub", "road": "road-like", "planted": "planted communities", "grid": "grid"}


@dataclass
class _Row:
    """A measurement: its value by structure, and the runs that it is from."""

    what: str
    values: dict[str, Any] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)


def summary(runs: list[Run]) -> Table:
    """Return all measurements of runs on the same hardware."""
    return _table(_rows(runs))


def _rows(runs: list[Run]) -> list[_Row]:
    rows: dict[str, _Row] = {}
    for run in sorted((run for run in runs if run[0]["name"] in ROWS), key=_order):
        for what, structure, value in ROWS[run[0]["name"]](run):
            row = rows.setdefault(what, _Row(what))
            row.values[structure] = value
            row.runs.append(provenance(run[0]))
    return list(rows.values())


def _order(run: Run) -> tuple[int, str, int, str]:
    """Return a key that puts updates first, by shape and size of the graph, and of equal runs the newest last."""
    name = run[0]["name"]
    drawn = max((line["drawn"] for line in of(run, "build")), default=0) if name == "bench-updates" else 0
    return list(ROWS).index(name), _shape(run), drawn, run[0]["time"]


def _table(rows: list[_Row]) -> Table:
    """Return the rows with a column per structure, csr last."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    names = [name for name in names if name != "csr"] + ["csr"] * ("csr" in names)
    where = "; ".join(dict.fromkeys(run for row in rows for run in row.runs))
    return where, ["", *names], [[row.what, *(row.values.get(name, "") for name in names)] for row in rows]


def _shape(run: Run) -> str:
    chosen = parameters(run[0])
    shape = chosen.get("shape", "uniform" if chosen.get("uniform") else "rmat")
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
    """Describe the graph of a run's parameters."""
    chosen = parameters(run[0])
    kind = "directed" if chosen.get("directed") else "symmetric"
    details = (
        "with in-edges" if chosen.get("reverse") else "",
        _shape(run),
        "ordered by degree" if chosen.get("degree_order") else "",
    )
    return ", ".join(t for t in (f"{round(line['arcs'] / 10**6, -1):,.0f}M arcs", kind, *details) if t)


def _bfs(run: Run) -> Iterator[tuple[str, str, Any]]:
    what = "BFS with predecessors" if parameters(run[0]).get("predecessors") else "BFS"
    for line in of(run, "bfs"):
        yield f"{what}, {_graph(run, line)}, ms", line["structure"], line["p50_ms"]


def _pagerank(run: Run) -> Iterator[tuple[str, str, Any]]:
    for line in of(run, "pagerank"):
        yield f"PageRank iteration, {_graph(run, line)}, ms", line["structure"], line["p50_ms"]


ROWS = {"bench-updates": _updates, "bench-bfs": _bfs, "bench-pagerank": _pagerank}
