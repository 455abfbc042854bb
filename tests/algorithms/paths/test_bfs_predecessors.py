"""Predecessors of BFS beyond what every search is checked for: a tree by NetworkX, threads, real graphs, their cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from bfs_oracle import check, levels, nearest
from graphs import random_graph, real_graph, slow_build
from spmd import cut, run, shards

from mgraph.algorithms import ALGORITHMS

BFS = ALGORITHMS["bfs"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_tree_by_networkx(reverse: bool) -> None:
    graph = random_graph(11, 60, 130)
    known = nx.DiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    known.add_nodes_from(range(graph.n))
    made = shards(graph, cut(graph.n, 2), reverse=reverse)
    for source in range(graph.n):
        lengths = nx.single_source_shortest_path_length(known, source)
        every = nx.predecessor(known, source)  # all predecessors on shortest paths
        got, _ = run(made, BFS, source, predecessors=True)
        for vertex, before in enumerate(got["predecessors"].tolist()):
            if vertex in lengths and vertex != source:
                assert before == min(every[vertex])
            else:
                assert before == -1


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_vertices(structure: str, size: int, directed: bool, pieces: str) -> None:
    graph = random_graph(12, 20000, 150000, directed, skew=True)  # large enough for a launch to be dealt to all threads
    made = shards(graph, cut(graph.n, size), structure)
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    source = int(np.bincount(graph.src).argmax())
    got, _ = run(made, BFS, source, predecessors=True)
    np.testing.assert_array_equal(got["predecessors"], nearest(graph, levels(graph, source)))


@pytest.mark.parametrize("name", ["web-NotreDame", "cit-HepPh", "ego-twitter", "luxembourg_osm"])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, structure: str, device: str, name: str) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    for size, reverse in ((1, True), (1, False), (2, True)):
        check(graph, cut(graph.n, size), graph.n // 2, reverse, structure=structure, device=device)


def test_what_it_costs_beside_the_search(counted: Counter[str]) -> None:
    graph = random_graph(6, 3000, 30000, directed=False)
    made = shards(graph, cut(graph.n, 1))
    run(made, BFS, 0)
    counted.clear()
    run(made, BFS, 0, predecessors=True)
    # A program that takes long on a busy machine is launched again.
    assert {*counted} == {"BreadthFirst", "Tree", "read-back"}
    assert made[0].exchange.world(made[0].device).runs == 3
    made = shards(graph, cut(graph.n, 2))
    run(made, BFS, 0)
    plain = len(made[0].exchange.calls)
    run(made, BFS, 0, predecessors=True)
    assert made[0].exchange.calls[plain:] == []  # ranks that map each other
