"""The milliseconds of algorithms beside those that others' codes take on the same kind of GPU and graph."""

from __future__ import annotations

from typing import Any

from workloads.results.archive import Run, of, parameters, provenance

__all__ = ["published_results"]

STRUCTURE = "gpma+"  #: mgraph's figures are those on its default
#: what is measured, as `bench algorithms` names it
NAMES = {
    "components": "components",
    "sssp": "shortest paths, predecessors",
    "triangles": "triangles",
    "cores": "core numbers",
    "betweenness": "betweenness, 16 sources",
    "personalized": "personalised PageRank",
    "louvain": "Louvain",
}
#: the parameters of the graphs
GRAPHS: dict[str, dict[str, Any]] = {
    "RMAT, scale 25": {"scale": 25, "edge_factor": 16, "degree_order": True},
    "RMAT, scale 22": {"scale": 22, "edge_factor": 16, "degree_order": True},
    "4096 x 4096": {"scale": 24, "edge_factor": 8, "shape": "road"},
}
#: ms of cuGraph 26.10 and of a specialised code on one H200, by graph: not from this archive
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
    """A row an algorithm and graph: where and when mgraph's figures were measured, the columns, the rows."""
    rows: list[list[Any]] = []
    where: list[str] = []
    for graph, theirs in THEIRS.items():
        for name, (cugraph, special) in theirs.items():
            found = [(run, ms) for run in runs for ms in _measured(run, name, GRAPHS[graph])]
            if not found:
                continue
            run, ms = max(found, key=lambda one: one[0][0]["time"])
            where.append(provenance(run[0]))
            faster = [[one, one / ms] if one else ["", ""] for one in (cugraph, special)]
            rows.append([graph, NAMES[name], ms, *faster[0], *faster[1]])
    columns = ["graph", "what", "mgraph, ms", "cuGraph, ms", "times mgraph's", "specialised, ms", "times mgraph's"]
    return "; ".join(dict.fromkeys(where)), columns, rows


def _measured(run: Run, name: str, graph: dict[str, Any]) -> list[float]:
    """The median of an algorithm in a run on this graph, if it has one."""
    given = parameters(run[0])
    kind = run[0]["name"]
    if kind != ("bench-sssp" if name == "sssp" else "bench-algorithms"):
        return []
    told = ("scale", "edge_factor", "degree_order", "shape", "uniform", "directed")
    if {key: given[key] for key in told if key in given} != graph or (name == "sssp" and not given.get("predecessors")):
        return []
    return [line["p50_ms"] for line in of(run, name) if line.get("structure") == STRUCTURE]
