"""Shortest paths between two vertices: their edges are there, and add up to the distance."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from bfs_oracle import levels
from graphs import IDS, random_graph, shapes
from spmd import Graph, cut, run, shards
from sssp_oracle import distances, random_weighted, weighted

from mgraph.algorithms import ALGORITHMS
from mgraph.errors import InvalidOption, NoPath, UnknownVertex

PATH = ALGORITHMS["shortest_path"]


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_random(device: str, size: int, directed: bool, weight: bool) -> None:
    for seed in range(2):
        print(f"seed {seed}")
        graph = random_weighted(seed, directed, "fractions")
        matrix, source = graph.matrix(), int(graph.src[0])
        far = distances(graph, source, "float64") if weight else levels(graph, source)
        for target in np.random.default_rng(seed).integers(0, graph.n, 8).tolist():
            made = shards(graph, cut(graph.n, size, even=seed == 0), "gpma+", device=device)
            if not 0 <= far[target] < np.inf:
                with pytest.raises(NoPath, match=f"no path from {source} to {target}"):
                    run(made, PATH, source, target, weight=weight)
                continue
            path, info = run(made, PATH, source, target, weight=weight)
            assert (path[0], path[-1]) == (source, target)
            assert info["edges"] == len(path) - 1
            steps = [matrix[u, v] for u, v in pairwise(path)]
            assert all(steps)  # a fraction is above 0
            assert sum(steps) == far[target] if weight else len(steps) == far[target]


@pytest.mark.parametrize("size", [1, 3])
def test_a_path_that_goes_through_all_ranges(structure: str, size: int) -> None:
    graph = next(g for g in shapes() if g.name == "path-scattered")
    ends = int(graph.src[0]), int(graph.dst[-1])
    want = [*graph.src.tolist(), ends[1]]
    assert run(shards(graph, cut(graph.n, size), structure), PATH, *ends)[0] == want
    heavy = weighted(graph, 1)
    assert run(shards(heavy, cut(graph.n, size), structure), PATH, *ends, weight=True)[0] == want
    assert run(shards(graph, cut(graph.n, size), structure), PATH, 5, 5)[0] == [5]


def test_bad_arguments() -> None:
    made = shards(random_graph(1, 20, 30), cut(20, 1))
    with pytest.raises(UnknownVertex, match="target is 20; the graph has 20"):
        run(made, PATH, 0, 20)
    with pytest.raises(InvalidOption, match="weighted=True"):
        run(made, PATH, 0, 1, weight=True)
    negative = Graph(3, np.array([0], IDS), np.array([1], IDS), weight=np.array([-2], np.float32))
    with pytest.raises(InvalidOption, match="from 0 to 1 has weight -2"):
        run(shards(negative, cut(3, 1)), PATH, 0, 1, weight=True)
