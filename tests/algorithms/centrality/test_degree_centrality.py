"""Degree centrality against NetworkX: every structure and device, 1 to 3 ranks, self-loops, one vertex and none."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from batches import apply_to
from graphs import NONE, random_graph, shapes
from spmd import FakeShard, Graph, cut, run, shards

from mgraph.algorithms import ALGORITHMS

CENTRALITY = ALGORITHMS["degree_centrality"]


def check(graph: Graph, made: list[FakeShard]) -> None:
    oracle = nx.DiGraph() if graph.directed else nx.Graph()
    oracle.add_nodes_from(range(graph.n))
    oracle.add_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    want = nx.degree_centrality(oracle)
    got, info = run(made, CENTRALITY)
    np.testing.assert_allclose(got, [want[v] for v in range(graph.n)], rtol=1e-14)
    assert (got.dtype, info) == (np.float64, {})


def test_shapes_and_random(structure: str, device: str, ranks: int) -> None:
    graphs = [random_graph(seed, 200, 1500, directed=seed % 2 == 0, skew=seed > 1) for seed in range(4)]
    for graph in (*shapes(), *graphs, Graph(0, NONE, NONE), Graph(1, NONE, NONE, False)):
        check(graph, shards(graph, cut(graph.n, ranks, even=False), structure, ranks == 3, device))


@pytest.mark.parametrize("directed", [True, False])
def test_after_batches(structure: str, device: str, small: None, directed: bool) -> None:
    for graph, made in apply_to(structure, device, 2, n=90, each=200, directed=directed):
        check(graph, made)
