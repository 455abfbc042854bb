"""Milliseconds of algorithms beside published ones of other codes, on the same kind of GPU and graph."""

from __future__ import annotations

from typing import Any

from workloads.results.archive import Run, of, parameters, provenance

__all__ = ["published_results"]

STRUCTURE = "gpma+"  #: the structure of mgraph's figures: the default
#: measured algorithms, by their names in `bench algorithms`
NAMES = {
    "components": "components",
    "sssp": "shortest paths, predecessors",
    "triangles": "triangles",
    "cores": "core numbers",
    "betweenness": "betweenness, 16 sources",
    "personalized": "personalised PageRank",
    "louvain": "Louvain",
}
#: parameters of the graphs
GRAPHS: dict[str, dict[str, Any]] = {
    "RMAT, scale 25": {"scale": 25, "edge_factor": 16, "degree_order": True},
    "RMAT, scale 22": {"scale": 22, "edge_factor": 16, "degree_order": True},
    "4096 x 4096": {"scale": 24, "edge_factor": 8, "shape": "road"},
}
#: ms of cuGraph 26.10 and of a specialised code on one H200, by graph; not from this archive
THEIRS: dict[str, dict[str, tuple[float | None, float | None]]] = {
    "RMAT, scale 25": {
        "components": (68.9, 15.9),
        "sssp": (163, 447),
        "triangles": (10158, 1315),
        "cores": (529, 675),
        "betweenness": (4459, None),
        "personalized": (248, None),
        "louvain": (10225, None),
    },
    "RMAT, scale 22": {
        "components": (22.5, 1.87),
        "sssp": (64.8, 62.9),
        "triangles": (669, 84.9),
        "cores": (286, 86.7),
        "betweenness": (525, None),
        "personalized": (34.9, None),
        "louvain": (1304, None),
    },
    "4096 x 4096": {
        "components": (52.8, 1.08),
        "sssp": (4232, 182),
        "triangles": (40.7, None),
        "cores": (1479, None),
        "personalized": (33.1, None),
    },
}


def published_results(runs: list[Run]) -> tuple[str, list[str], list[list[Any]]]:
    """Return a row per algorithm and graph, after the provenance and the columns."""
    rows: list[list[Any]] = []
    where: list[str] = []
    # Take the newest measurement of each algorithm and graph.
    for graph, theirs in THEIRS.items():
        for name, (cugraph, special) in theirs.items():
            measurements = [(run, ms) for run in runs for ms in _measured(run, name, GRAPHS[graph])]
            if not measurements:
                continue
            run, ms = max(measurements, key=lambda pair: pair[0][0]["time"])
            where.append(provenance(run[0]))
            faster = [[published, published / ms] if published else ["", ""] for published in (cugraph, special)]
            rows.append([graph, NAMES[name], ms, *faster[0], *faster[1]])
    columns = ["graph", "what", "mgraph, ms", "cuGraph, ms", "times mgraph's", "specialised, ms", "times mgraph's"]
    return "; ".join(dict.fromkeys(where)), columns, rows


def _measured(run: Run, name: str, graph: dict[str, Any]) -> list[float]:
    """Return the median of an algorithm in a run on this graph; empty if it has none."""
    chosen = parameters(run[0])
    kind = run[0]["name"]
    if kind != ("bench-sssp" if name == "sssp" else "bench-algorithms"):
        return []
    names = ("scale", "edge_factor", "degree_order", "shape", "uniform", "directed")
    if {key: chosen[key] for key in names if key in chosen} != graph or (
        name == "sssp" and not chosen.get("predecessors")
    ):
        return []
    return [line["p50_ms"] for line in of(run, name) if line.get("structure") == STRUCTURE]
