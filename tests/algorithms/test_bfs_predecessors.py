"""Predecessors of BFS: exact, since the least internal id of the level before is asked for, and a tree by NetworkX."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graphs import random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, shards
from test_bfs import CUTS, levels

from mgraph.algorithms import bfs
from mgraph.partition import Partition


def oracle(graph: Graph, distance: np.ndarray, direction: str = "out") -> np.ndarray:
    """The least vertex of the level before from which an arc leads to each; -1 where there is none."""
    src, dst = graph.arcs if direction == "out" else graph.arcs[::-1]
    tree = (distance[src] >= 0) & (distance[dst] == distance[src] + 1)
    least = np.full(graph.n, graph.n, np.int64)
    np.minimum.at(least, dst[tree], src[tree].astype(np.int64))
    return np.where(least == graph.n, -1, least)


def check(graph: Graph, partition: Partition, source: int, reverse: bool, direction: str = "out", **kind: Any) -> dict:
    made = shards(graph, partition, reverse=reverse, **kind)
    got, info = run(made, bfs, source, direction, predecessors=True)
    want = levels(graph, source, direction)
    assert list(got) == ["distance", "predecessors"]
    np.testing.assert_array_equal(got["distance"], want)
    assert got["predecessors"].dtype == np.int64
    np.testing.assert_array_equal(got["predecessors"], oracle(graph, want, direction))
    assert info == run(made, bfs, source, direction)[1]
    return info


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_shapes(structure: str, device: str, pieces: str, size: int, even: bool, reverse: bool) -> None:
    for graph in shapes():
        check(graph, cut(graph.n, size, even), 0, reverse, structure=structure, device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_random(structure: str, device: str, pieces: str, size: int, even: bool, directed: bool) -> None:
    pulled = 0
    for seed in range(4):
        print(f"seed {seed}")
        graph = random_graph(seed, 700 + 31 * seed, 2500, directed, skew=seed % 2 == 1)
        source = int(graph.src[seed])
        for direction in ("out", "in"):
            info = check(graph, cut(graph.n, size, even), source, True, direction, structure=structure, device=device)
            pulled += info["bottom_up"]
        check(graph, cut(graph.n, size, even), source, False, structure=structure, device=device)
    assert pulled > 0, "no search was ever bottom-up"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_tree_by_networkx(reverse: bool) -> None:
    graph = random_graph(11, 60, 130)
    known = nx.DiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    known.add_nodes_from(range(graph.n))
    made = shards(graph, cut(graph.n, 2), reverse=reverse)
    for source in range(graph.n):
        lengths = nx.single_source_shortest_path_length(known, source)
        every = nx.predecessor(known, source)  # all predecessors on shortest paths
        got, _ = run(made, bfs, source, predecessors=True)
        for vertex, before in enumerate(got["predecessors"].tolist()):
            if vertex in lengths and vertex != source:
                assert before == min(every[vertex])
            else:
                assert before == -1


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(starts: tuple[int, ...]) -> None:
    for seed, directed in ((3, True), (4, False)):
        graph = random_graph(seed, 90, 200, directed)
        for reverse in (False, True):
            for source in (0, 5, 33, 89):
                check(graph, Partition(starts), source, reverse)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_vertices(structure: str, size: int, directed: bool, pieces: str) -> None:
    graph = random_graph(12, 20000, 150000, directed, skew=True)  # large enough for a launch to be dealt to all threads
    made = shards(graph, cut(graph.n, size), structure)
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    source = int(np.bincount(graph.src).argmax())
    got, _ = run(made, bfs, source, predecessors=True)
    np.testing.assert_array_equal(got["predecessors"], oracle(graph, levels(graph, source)))


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
    bfs(made[0], 0)
    without = counted.copy()
    counted.clear()
    bfs(made[0], 0, predecessors=True)
    assert counted - without == Counter(Predecessors=1)
    made = shards(graph, cut(graph.n, 2))
    calls = [c for shard in made for c in shard.exchange.calls]
    run(made, bfs, 0)
    plain = [call for call, _ in made[0].exchange.calls]
    run(made, bfs, 0, predecessors=True)
    more = made[0].exchange.calls[len(plain) :]
    assert calls == []
    assert [call for call, _ in more] == [*plain, "alltoallv"]
    assert more[-1] == ("alltoallv", 8 * 1500)
