"""Algorithms on every structure, by both drivers of programs, against the same run on gpma+ by the kernel's."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from graphs import random_graph
from spmd import cut, run, shards

from mgraph.algorithms import ALGORITHMS, WARM
from mgraph.algorithms.sampling.sample_neighbors.method import SampledNeighbors
from mgraph.batch import EdgeBatch
from mgraph.structures import names

#: by structure, those of the default set: rows in tables differ most from sorted ones; gpma and lpma are read as gpma+
QUICK = {
    "slabgraph": (*WARM, "triangles", "random_walks"),
    "csr": ("pagerank",),
}
#: what an algorithm has to be given
ARGUMENTS: dict[str, dict[str, Any]] = {
    "bfs": {"source": 3, "predecessors": True},
    "distances": {"sources": [0, 3, 5]},
    "gather": {"values": np.arange(300.0)},
    "jaccard": {"pairs": np.arange(300).reshape(-1, 2)},
    "k_hop": {"sources": [3, 4], "k": 2},
    "k_truss": {"k": 4},
    "modularity": {"labels": np.arange(300) % 7},
    "multi_source_bfs": {"sources": [3, 9]},
    "overlap": {"pairs": np.arange(300).reshape(-1, 2)},
    "random_walks": {"starts": np.arange(300), "length": 5, "seed": 1},
    "sample_neighbors": {"seeds": [3, 9, 27], "fanouts": [4, 4], "seed": 1},
    "shortest_path": {"source": 3, "target": 9},
    "sssp": {"source": 3, "predecessors": True},
}


def test_each_algorithm_has_its_arguments() -> None:
    for name, algorithm in ALGORITHMS.items():
        inspect.signature(algorithm.check).bind(None, **ARGUMENTS.get(name, {}))


@pytest.mark.parametrize(
    ("structure", "chosen"),
    [
        *QUICK.items(),
        *(pytest.param(name, tuple(ALGORITHMS), marks=pytest.mark.slow) for name in names()),
    ],
)
@pytest.mark.parametrize(
    ("size", "mapped"),
    [(1, True), pytest.param(2, True, marks=pytest.mark.slow), pytest.param(2, False, marks=pytest.mark.slow)],
)
def test_as_on_gpma_plus(structure: str, device: str, chosen: tuple[str, ...], size: int, mapped: bool) -> None:
    graph = random_graph(17, 300, 1400, directed=False, skew=True)
    kinds = ((structure, mapped), ("gpma+", True))
    made, right = (shards(graph, cut(graph.n, size), kind, device=device, mapped=maps) for kind, maps in kinds)
    for name in chosen:
        for shard in (*made, *right):
            ALGORITHMS[name].warm(shard)  # compiling takes longer than a rank may
        arguments = ARGUMENTS.get(name, {})
        found, want = (_flat(run(ranks, ALGORITHMS[name], **arguments)[0]) for ranks in (made, right))
        for mine, theirs in zip(found, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-7, err_msg=f"{name} on {structure}")


def _flat(found: Any) -> list[np.ndarray]:
    """The arrays of a result of any kind; those of rows in any order are sorted."""
    if isinstance(found, dict):
        return list(found.values())
    if isinstance(found, SampledNeighbors):
        return [np.asarray(column) for column in vars(found).values()]
    if isinstance(found, EdgeBatch):
        return [found.src, found.dst]
    if hasattr(found, "offsets"):
        row = np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets))
        return [np.asarray(found.offsets), np.sort(row << 32 | found.dst)]
    return [np.asarray(found, np.float64)]
