"""Graphs to search and rank: small shapes that break things, random ones by seed, and the real ones."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
from spmd import Graph

IDS = np.uint32
NONE = np.empty(0, IDS)


def _graph(name: str, n: int, edges: list[tuple[int, int]], directed: bool = True) -> Graph:
    pairs = np.array(edges, np.int64).reshape(-1, 2).astype(IDS)
    return Graph(n, np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), directed, name)


def shapes() -> list[Graph]:
    """One of each shape; all have at least one vertex, and vertex 0 is worth beginning at."""
    hub = 40  # past the hub degree of the tests that lower it
    return [
        _graph("one-vertex", 1, []),
        _graph("one-loop", 1, [(0, 0)]),
        _graph("no-edges", 70, []),
        _graph("path", 67, [(i, i + 1) for i in range(66)]),
        _graph("path-undirected", 67, [(i, i + 1) for i in range(66)], directed=False),
        _graph("path-scattered", 101, [(i * 37 % 101, (i + 1) * 37 % 101) for i in range(100)]),
        _graph("cycle", 33, [(i, (i + 1) % 33) for i in range(33)]),
        _graph("star-out", 2 * hub, [(0, i) for i in range(1, 2 * hub)]),
        _graph("star-in", 2 * hub, [(i, 0) for i in range(1, 2 * hub)] + [(0, 5)]),
        _graph("star-undirected", 1100, [(0, i) for i in range(1, 1100)], directed=False),
        _graph("hub-last", 100, [(i, 99) for i in range(99)] + [(99, i) for i in range(1, 99, 2)] + [(0, 50)]),
        _graph("loops", 50, [(i, i) for i in range(50)] + [(i, i + 1) for i in range(48)]),
        _graph("two-parts", 90, [(i, i + 1) for i in range(40)] + [(i, 45 + i * 7 % 45) for i in range(45, 90)], False),
        _graph("complete", 40, [(i, j) for i in range(40) for j in range(40) if i != j]),
        _graph("two-way", 64, [(i, 63 - i) for i in range(64)] + [(i, i // 2) for i in range(64)]),
    ]


def random_graph(seed: int, n: int, m: int, directed: bool = True, skew: bool = False) -> Graph:
    """m edges, repeats and loops among them; skewed ones have hubs, and vertices with no edge."""
    rng = np.random.default_rng(seed)
    src, dst = ((rng.random(m) ** (4 if skew else 1) * n).astype(IDS) for _ in range(2))
    order = rng.permutation(n).astype(IDS)
    return Graph(n, order[src], order[dst], directed, f"random-{seed}-{'skewed' if skew else 'even'}")


@cache
def real_graph(folder: Path, name: str) -> Graph | None:
    """A graph of the data folder, or None; build each once a session."""
    path = folder / f"{name}.npz"
    if not path.exists():
        return None
    data = dict(np.load(path))
    src, dst = data["src"].astype(IDS), data["dst"].astype(IDS)
    n = int(max(src.max(), dst.max())) + 1
    return Graph(n, src, dst, name not in ("ego-twitter", "luxembourg_osm"), name)


def slow_build() -> bool:
    """Whether the host kernels are built to find faults rather than for speed."""
    return os.environ.get("MGRAPH_HOST_BUILD", "plain") not in ("plain", "quick")
