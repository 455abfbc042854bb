"""``bench communities``: quality and time of Leiden and Louvain, against other libraries.

The quality of `leiden` is compared with igraph's Leiden, and on small graphs leidenalg's, both at two iterations: the
modularity, the constant Potts model, and the adjusted Rand index with the communities by which a graph was drawn. All
figures are means over seeds, by the same functions of this module. The times are wall time and this process' CPU time,
of `louvain` and networkit's PLM, and of `leiden` and igraph's, in turn.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mgraph import DynamicGraph
from mgraph.errors import InvalidOption, MgraphError
from workloads.arguments import check_least
from workloads.bench.harness import Bench
from workloads.inputs.clustered import Clustered, graphs
from workloads.inputs.edges import EdgeStream

__all__ = ["HELP", "LOSS", "add_arguments", "adjusted_rand", "constant_potts", "measure", "modularity"]

HELP = "compare Leiden and Louvain with igraph, leidenalg and networkit: quality and time"
LOSS = 0.002  #: of a quality, at most, relative to that of the others
ITERATIONS = 2  #: of the other libraries' Leiden
DENSITY = 0.02  #: the resolution of the constant Potts model
PATIENT = 30_000  #: most edges of graphs for leidenalg, which takes ten times as long as igraph
QUALITIES = {"modularity": 1.0, "cpm": DENSITY}  #: resolution by quality
Find = Callable[[int], np.ndarray]  #: takes a seed, and returns the community of each vertex


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the graphs, the seeds and the repeats."""
    add, data = parser.add_argument, os.environ.get("MGRAPH_DATA")
    add("--data", type=Path, default=data, metavar="DIR", help="the folder of real graphs (default: MGRAPH_DATA)")
    add("--names", metavar="A,B", help="graphs whose names begin so (default: all 60)")
    add("--seeds", type=int, default=3, metavar="N", help="runs of each method for its quality (default: %(default)s)")
    add("--repeats", type=int, default=0, metavar="N", help="timed runs of each method (default: none)")


def measure(bench: Bench) -> None:
    """Compare the methods on each graph."""
    # Choose the graphs.
    options = bench.options
    _library("igraph")
    check_least(options, "seeds")
    check_least(options, "repeats", least=0)
    chosen = [(name, make) for name, make in graphs(options.data) if _is_chosen(name, options.names)]
    if not chosen:
        raise InvalidOption(f"--names is {options.names!r}; no graph begins so")

    # Compare; what cannot be made is left out.
    rows: list[list[Any]] = []
    times: list[list[Any]] = []
    for name, make in chosen:
        try:
            clustered = make()
        except MgraphError as error:
            bench.say(f"left out: {name}: {error}")
            continue
        with _graph(bench, clustered.edges) as graph:
            rows.append(_compared(bench, name, clustered, graph))
            if options.repeats:
                times.append(_timed(bench, name, clustered.edges, graph))

    # Print the tables.
    behind = sum(any(isinstance(loss, float) and loss < -100 * LOSS for loss in row[3::3]) for row in rows)
    title = f"Leiden, means of {options.seeds} seeds; more than {LOSS:.1%} below the others: {behind} of {len(rows)}"
    columns = ["graph, edges", "modularity", "others", "%", "CPM", "others", "%", "Rand index", "others"]
    bench.table(title, columns, rows)
    if times:
        title = f"ms of wall time, and of CPU time; {bench.device.threads} threads, medians of {options.repeats} runs"
        bench.table(title, ["graph", "louvain", "PLM", "leiden", "igraph"], times)


def _is_chosen(name: str, names: str | None) -> bool:
    return names is None or name.startswith(tuple(names.split(",")))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MgraphError(f"bench communities needs {name} (pip install {name}): {error}") from None


def _graph(bench: Bench, edges: EdgeStream) -> DynamicGraph:
    weighted = edges.weight is not None
    graph = DynamicGraph(
        n_vertices=edges.n_vertices,
        directed=edges.directed,
        reverse=edges.directed,
        weighted=weighted,
        device=bench.device.kind,
    )
    graph.insert(edges.src, edges.dst, edges.weight)
    return graph


# ---- quality ---------------------------------------------------------------------------------------------------------


def modularity(edges: EdgeStream, labels: np.ndarray) -> float:
    """Return the modularity of communities, the directed one of directed edges."""
    weight = np.ones(len(edges)) if edges.weight is None else edges.weight.astype(np.float64)
    total = weight.sum()
    out: Any
    into: Any
    out, into = (np.bincount(labels[end], weight, labels.max() + 1) for end in (edges.src, edges.dst))
    if not edges.directed:
        out = into = (out + into) / 2
    return float(weight[labels[edges.src] == labels[edges.dst]].sum() / total - (out * into).sum() / total**2)


def constant_potts(edges: EdgeStream, labels: np.ndarray) -> float:
    """Return the quality of communities by the constant Potts model of resolution `DENSITY`."""
    weight = np.ones(len(edges)) if edges.weight is None else edges.weight.astype(np.float64)
    sizes = np.bincount(labels).astype(np.float64)
    pairs = (sizes * (sizes - 1)).sum() / (1 if edges.directed else 2)
    return float(weight[labels[edges.src] == labels[edges.dst]].sum() - DENSITY * pairs)


def adjusted_rand(labels: np.ndarray, communities: np.ndarray) -> float:
    """Return the adjusted Rand index of two divisions of the vertices (Hubert and Arabie 1985): 1 if they are equal."""
    both = labels.astype(np.int64) * (int(communities.max()) + 1) + communities
    same, own, other = (_pairs(np.unique(part, return_counts=True)[1]) for part in (both, labels, communities))
    expected = own * other / _pairs(np.array([len(labels)]))
    return (same - expected) / ((own + other) / 2 - expected)


def _pairs(sizes: np.ndarray) -> float:
    return float((sizes.astype(np.float64) * (sizes - 1) / 2).sum())


MEASURES: dict[str, Callable[[EdgeStream, np.ndarray], float]] = {"modularity": modularity, "cpm": constant_potts}


def _compared(bench: Bench, name: str, clustered: Clustered, graph: DynamicGraph) -> list[Any]:
    """Compare the qualities on a graph. Returns a row of the table."""
    edges, truth = clustered.edges, clustered.communities
    other = _igraph(edges)
    row: list[Any] = [f"{name}, {len(edges):,}"]
    line: dict[str, Any] = {"vertices": edges.n_vertices, "edges": len(edges), "directed": edges.directed}
    rand: dict[str, float] = {}
    # Find communities of each quality by each library.
    for quality, resolution in QUALITIES.items():
        means = {}
        for library, find in _methods(graph, other, edges, quality, resolution).items():
            found = [find(seed) for seed in range(bench.options.seeds)]
            means[library] = float(np.mean([MEASURES[quality](edges, labels) for labels in found]))
            if quality == "modularity" and truth is not None:
                rand[library] = float(np.mean([adjusted_rand(labels, truth) for labels in found]))
        line[quality] = means
        best = max(value for library, value in means.items() if library != "mgraph")
        loss = 100 * (means["mgraph"] / best - 1) if best > 0 else 0.0
        row += [means["mgraph"], best, round(loss, 3)]

    # Record the line.
    bench.add("quality", graph=name, weighted=edges.weight is not None, **line, rand=rand)
    ours = rand.pop("mgraph", "")
    return [*row, ours, max(rand.values(), default="")]


def _methods(graph: DynamicGraph, other: Any, edges: EdgeStream, quality: str, resolution: float) -> dict[str, Find]:
    """Return each library's Leiden."""

    def ours(seed: int) -> np.ndarray:
        return graph.leiden(resolution, quality, seed=seed).to_numpy()

    def leidenalg(seed: int) -> np.ndarray:
        kind, options = ("ModularityVertexPartition", {})
        if quality == "cpm":
            kind, options = "CPMVertexPartition", {"resolution_parameter": resolution}
        module = _library("leidenalg")
        partition = module.find_partition(
            other, getattr(module, kind), weights=edges.weight, n_iterations=ITERATIONS, seed=seed, **options
        )
        return np.array(partition.membership)

    methods: dict[str, Find] = {"mgraph": ours, "igraph": lambda seed: _by_igraph(other, edges, quality, seed)}
    if len(edges) <= PATIENT and importlib.util.find_spec("leidenalg"):
        methods["leidenalg"] = leidenalg
    return methods


def _igraph(edges: EdgeStream) -> Any:
    pairs = np.column_stack([edges.src, edges.dst])
    return _library("igraph").Graph(n=edges.n_vertices, edges=pairs, directed=edges.directed)


def _by_igraph(other: Any, edges: EdgeStream, quality: str, seed: int) -> np.ndarray:
    random.seed(seed)  # from which igraph draws
    objective = quality.upper() if quality == "cpm" else quality
    weights = None if edges.weight is None else edges.weight.tolist()
    partition = other.community_leiden(
        objective, weights=weights, resolution=QUALITIES[quality], n_iterations=ITERATIONS
    )
    return np.array(partition.membership)


# ---- time ------------------------------------------------------------------------------------------------------------


def _timed(bench: Bench, name: str, edges: EdgeStream, graph: DynamicGraph) -> list[Any]:
    """Time the methods in turn. Returns a row of the table: wall time and CPU time in milliseconds."""
    other, plm = _igraph(edges), _plm(edges, bench.device.threads)
    calls: dict[str, Callable[[], Any]] = {
        "louvain": lambda: graph.louvain().to_numpy(),
        "plm": plm,
        "leiden": lambda: graph.leiden().to_numpy(),
        "igraph": lambda: _by_igraph(other, edges, "modularity", 0),
    }
    wall: dict[str, list[float]] = {method: [] for method in calls}
    cpu: dict[str, list[float]] = {method: [] for method in calls}
    for repeat in range(bench.options.repeats + 1):  # the first run compiles
        for method, call in calls.items():
            began, used = time.perf_counter(), time.process_time()
            call()
            if repeat:
                wall[method].append(1e3 * (time.perf_counter() - began))
                cpu[method].append(1e3 * (time.process_time() - used))

    # Record the line.
    figures = {method: (float(np.median(wall[method])), float(np.median(cpu[method]))) for method in calls}
    line = {f"{method}_ms": wall_ms for method, (wall_ms, _) in figures.items()}
    line |= {f"{method}_cpu_ms": cpu_ms for method, (_, cpu_ms) in figures.items()}
    bench.add("times", graph=name, edges=len(edges), repeats=bench.options.repeats, **line)
    return [name, *(f"{wall_ms:,.0f}, {cpu_ms:,.0f}" for wall_ms, cpu_ms in figures.values())]


def _plm(edges: EdgeStream, threads: int) -> Callable[[], Any]:
    """Return a call of networkit's parallel Louvain method, which takes undirected graphs only."""
    networkit = _library("networkit")
    ends = (edges.src.astype(np.uint64), edges.dst.astype(np.uint64))
    weight = edges.weight is not None
    data = (edges.weight.astype(np.float64), ends) if weight else ends
    networkit.setNumberOfThreads(threads)
    other = networkit.GraphFromCoo(data, n=edges.n_vertices, weighted=weight, directed=False)
    return lambda: networkit.community.PLM(other, refine=False).run().getPartition().getVector()
