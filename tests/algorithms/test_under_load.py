"""Every algorithm gives the same result again and again on a machine that has other things to do.

Threads of a launch are interrupted at any place there, so that an order which they only happen to keep breaks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import IDS, real_graph
from spmd import Graph, cut, run, shards

from mgraph import EdgeBatch
from mgraph.algorithms import ALGORITHMS

pytestmark = pytest.mark.slow

REPEATS = int(os.environ.get("MGRAPH_REPEATS", "10"))
SOURCES = [5, 7000, 30000]
CALLS: dict[str, list[dict[str, Any]]] = {
    "bfs": [{"source": source, "predecessors": True} for source in SOURCES],
    "distances": [{"sources": SOURCES}],
    "k_hop": [{"sources": SOURCES, "k": 3}],
    "multi_source_bfs": [{"sources": SOURCES}],
    "shortest_path": [{"source": 5, "target": 7000}, {"source": 7000, "target": 5, "weight": True}],
    "sssp": [{"source": source, "predecessors": True} for source in SOURCES],
    "betweenness_centrality": [{"k": SOURCES}],
    "degree_centrality": [{}],
    "eigenvector_centrality": [{"max_iter": 1000, "tol": 1e-4}],
    "hits": [{"tol": 1e-6, "max_iter": 1000}],
    "katz_centrality": [{"alpha": 1e-3}],
    "pagerank": [{}, {"weight": True}],
    "connected_components": [{}],
    "label_propagation": [{"max_iter": 5}],
    "leiden": [{"seed": 3}],
    "louvain": [{"seed": 3}],
    "strongly_connected_components": [{}],
    "clustering": [{}],
    "core_number": [{}],
    "k_core": [{"k": 5}],
    "k_truss": [{"k": 4}],
    "triangles": [{}],
    "jaccard": [{"pairs": [SOURCES[:2], SOURCES[1:]]}],
    "overlap": [{"pairs": [SOURCES[:2], SOURCES[1:]]}],
    "random_walks": [{"starts": SOURCES, "length": 20, "seed": 3}],
    "sample_neighbors": [{"seeds": SOURCES, "fanouts": [5, 5], "seed": 3}],
}

#: works while its parent is there, which may be killed
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(10**5))"
DIRECTED = {"betweenness_centrality", "hits", "pagerank", "strongly_connected_components"}  #: the others are not


def test_no_algorithm_is_missing() -> None:
    assert set(ALGORITHMS) - set(CALLS) == {"gather", "modularity"}  # which run within others here


def _layers() -> Graph:
    """60 levels of 600 vertices in any order."""
    levels, width = 60, 600
    layers = np.random.default_rng(1).permutation(levels * width).reshape(levels, width)
    src = np.concatenate([layers[:-1].ravel(), layers[:-1].ravel()])
    dst = np.concatenate([layers[1:].ravel(), np.roll(layers[1:], 1, axis=1).ravel()])
    return Graph(levels * width, src.astype(IDS), dst.astype(IDS), name="layers")


@cache
def _graph(name: str, folder: Path | None, directed: bool) -> Graph | None:
    graph = _layers() if folder is None else real_graph(folder, name)
    if graph is None:
        return None
    weight = 1 + np.random.default_rng(2).integers(0, 9, len(graph.src)).astype(np.float32)
    return Graph(graph.n, graph.src, graph.dst, directed, name, weight)


@pytest.fixture(scope="module")
def load() -> Iterator[None]:
    """Twice as many busy processes as cores, with those that run already."""
    missing = 2 * (os.cpu_count() or 1) - int(os.getloadavg()[0])
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(missing)]
    yield
    for process in busy:
        process.kill()
        process.wait()


def _columns(got: Any) -> list[np.ndarray]:
    """The arrays of a result of any kind."""
    if isinstance(got, EdgeBatch):
        return [got.src, got.dst]
    if is_dataclass(got):
        got = [getattr(got, field.name) for field in fields(got)]
    elif isinstance(got, dict):
        got = list(got.values())
    if isinstance(got, (list, tuple)) and not all(isinstance(part, int) for part in got):
        return [one for part in got for one in _columns(part)]
    return [] if got is None else [np.asarray(got)]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("graph", ["layers", "cit-HepPh", "luxembourg_osm"])
@pytest.mark.parametrize("name", CALLS)
def test_a_result_repeats(name: str, graph: str, size: int, request: pytest.FixtureRequest, load: None) -> None:
    folder = None if graph == "layers" else request.getfixturevalue("data_dir")
    whole = _graph(graph, folder, name in DIRECTED)
    if whole is None:
        pytest.skip(f"no {graph} here")
    for options in CALLS[name]:
        first: list[np.ndarray] | None = None
        for repeat in range(REPEATS):
            if repeat % 5 == 0:
                made = shards(whole, cut(whole.n, size), "gpma+", reverse=True)
            got, _ = run(made, ALGORITHMS[name], **options)
            columns = _columns(got)
            first = columns if first is None else first
            for one, other in zip(columns, first, strict=True):
                close = one.dtype.kind == "f"
                (np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-14) if close
                 else np.testing.assert_array_equal(one, other))  # fmt: skip
