"""BFS, with predecessors and without, against SciPy and NetworkX: every structure and device, 1 to 3 ranks."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from bfs_oracle import check, levels
from graphs import random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.errors import Aborted, InvalidOption, UnknownVertex
from mgraph.partition import Partition

BFS = ALGORITHMS["bfs"]

CUTS = [(1, True), (2, True), (3, True), (3, False)]


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
        graph = random_graph(seed, 700 + 31 * seed, 2500, directed, skew=seed % 2 == 1)
        print(f"seed {seed}")
        source = int(graph.src[seed])
        for direction in ("out", "in"):
            info = check(graph, cut(graph.n, size, even), source, True, direction, structure=structure, device=device)
            pulled += info["bottom_up"]
        check(graph, cut(graph.n, size, even), source, False, structure=structure, device=device)
    assert pulled > 0, "no search was ever bottom-up"


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_words(size: int, directed: bool, pieces: str) -> None:
    graph = random_graph(12, 20000, 150000, directed, skew=True)  # large enough for a launch to be dealt to all threads
    made = shards(graph, cut(graph.n, size))
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    source = int(np.bincount(graph.src).argmax())
    np.testing.assert_array_equal(run(made, BFS, source)[0], levels(graph, source))


def road(seed: int, side: int, directed: bool) -> Graph:
    """A square grid with shuffled ids, one of whose vertices has 40 further neighbours."""
    i = np.arange(side * side)
    right, below = i[i % side < side - 1], i[: side * (side - 1)]
    src = np.concatenate([right, below, np.full(40, side * side // 2)])
    dst = np.concatenate([right + 1, below + side, np.arange(len(i), len(i) + 40)])
    n = len(i) + 41
    ids = np.random.default_rng(seed).permutation(n).astype(np.uint32)
    return Graph(n, ids[src], ids[dst], directed)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("short", [8, 1 << 11])  # 8: the lists overflow, and are short again near the corners
def test_roads(
    structure: str, device: str, pieces: str, short: int, directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = importlib.import_module("mgraph.algorithms.paths.bfs.program")
    monkeypatch.setattr(program, "SHORT", {"cpu": short, "cuda": short})
    monkeypatch.setattr(program, "MOST_STEPS", 17)
    graph = road(5, 30, directed)
    corner = int(graph.src[0])
    for direction in ("out", "in"):
        check(graph, cut(graph.n, 1), corner, True, direction, structure=structure, device=device)


def test_a_long_path_takes_few_launches(counted: Counter[str]) -> None:
    ids = np.random.default_rng(6).permutation(1500).astype(np.uint32)
    made = shards(Graph(1500, ids[:-1], ids[1:]), cut(1500, 1))
    counted.clear()
    columns, info = BFS.run(made[0], source=int(ids[0]))
    np.testing.assert_array_equal(columns["distance"][ids], np.arange(1500))
    assert (info["levels"], info["reached"]) == (1500, 1500)
    assert counted["Walk"] == 3  # of 512 levels at most
    assert counted["Expand"] == 3
    assert counted["Absorb"] == 1 + 3 + 3
    assert counted["read-back"] == 3 + 2 * 3


def test_every_source_agrees_with_networkx() -> None:
    graph = random_graph(11, 60, 130)
    oracle = nx.DiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    oracle.add_nodes_from(range(graph.n))
    for reverse in (False, True):
        made = shards(graph, cut(graph.n, 2), reverse=reverse)
        for source in range(graph.n):
            lengths = nx.single_source_shortest_path_length(oracle, source)
            got, _ = run(made, BFS, source)
            assert {v: d for v, d in enumerate(got.tolist()) if d >= 0} == lengths


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(starts: tuple[int, ...]) -> None:
    for seed, directed in ((3, True), (4, False)):
        graph = random_graph(seed, 90, 200, directed)
        for reverse in (False, True):
            for source in (0, 5, 33, 89):
                check(graph, Partition(starts), source, reverse)


@pytest.mark.parametrize("name", ["web-NotreDame", "cit-HepPh", "ego-twitter", "luxembourg_osm"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, structure: str, device: str, name: str, size: int) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    want = {source: levels(graph, source) for source in (0, graph.n // 2)}
    for reverse in (False, True):
        made = shards(graph, cut(graph.n, size, even=reverse), structure, reverse, device)
        for source, distances in want.items():
            got, info = run(made, BFS, source)
            np.testing.assert_array_equal(got, distances)
            assert info["levels"] == distances.max() + 1
            assert info["reached"] == (distances >= 0).sum()
            if name == "ego-twitter":
                assert info["bottom_up"] > 0
            if not reverse and graph.directed:
                assert info["bottom_up"] == 0


def test_dense_level_travels_as_a_bitmap() -> None:
    n = 6400
    graph = Graph(n, np.zeros(n - 1, np.uint32), np.arange(1, n, dtype=np.uint32))
    made = shards(graph, cut(n, 2))
    run(made, BFS, 0)
    sent = [b for call, b in made[0].exchange.calls if call == "alltoallv"]
    assert sent == [n // 2 // 8]  # one bit a vertex of the other range, once


@pytest.mark.parametrize("found", [1, 99, 100, 101, 3200])
def test_fewer_bytes_travel_of_list_and_bitmap(found: int) -> None:
    n, words = 6400, 100
    far = np.sort(np.random.default_rng(found).permutation(n // 2)[:found] + n // 2).astype(np.uint32)
    graph = Graph(n, np.zeros(found, np.uint32), far)
    made = shards(graph, cut(n, 2))
    got, _ = run(made, BFS, 0)
    np.testing.assert_array_equal(got, levels(graph, 0))
    assert [b for call, b in made[0].exchange.calls if call == "alltoallv"] == [4 * min(found, words)]


def test_sparse_levels_travel_as_lists_without_repeats() -> None:
    n = 6400  # 0 .. 9 all point at ten vertices of the other range, which point back and at 20
    far = np.arange(3200, 3210)
    src = np.concatenate([np.zeros(9), np.repeat(np.arange(10), 10), np.repeat(far, 10), far])
    dst = np.concatenate([np.arange(1, 10), np.tile(far, 10), np.tile(np.arange(10), 10), np.full(10, 20)])
    graph = Graph(n, src.astype(np.uint32), dst.astype(np.uint32))
    made = shards(graph, cut(n, 2))
    got, _ = run(made, BFS, 0)
    np.testing.assert_array_equal(got, levels(graph, 0))
    assert sum(b for call, b in made[0].exchange.calls if call == "alltoallv") == 4 * 10
    assert sum(b for call, b in made[1].exchange.calls if call == "alltoallv") == 4 * 10  # all know 0


def test_each_rank_says_only_what_is_new_when_bottom_up() -> None:
    graph = random_graph(5, 6400, 60000, directed=False)
    made = shards(graph, cut(graph.n, 2))
    _, info = run(made, BFS, int(graph.src[0]))
    assert info["bottom_up"] > 1
    words = graph.n // 2 // 32
    assert all(b <= 4 * words for call, b in made[0].exchange.calls if call != "allreduce")


def test_launches_and_read_backs(counted: Counter[str]) -> None:
    graph = random_graph(6, 3000, 30000, directed=False)
    made = shards(graph, cut(graph.n, 1))
    counted.clear()
    _, info = BFS.run(made[0], source=0)
    pulls = info["bottom_up"]
    pushes = info["levels"] - pulls  # the last superstep finds nothing
    assert counted["read-back"] == info["levels"]
    assert counted["Expand"] == counted["ExpandHubs"] == pushes
    assert counted["Pull"] == counted["PullHubs"] == pulls > 0
    assert counted["Absorb"] == info["levels"] + 1
    assert sum(counted.values()) == 4 * info["levels"] + 2  # begin: MergeList and Absorb


def test_launches_on_two_ranks(counted: Counter[str], usual_constants: None) -> None:
    graph = random_graph(7, 600, 900)  # no hub is possible
    made = shards(graph, cut(graph.n, 2))
    counted.clear()
    _, info = run(made, BFS, int(np.bincount(graph.src).argmax()))
    steps = sum(call == "allreduce" for call, _ in made[0].exchange.calls)
    sends = sum(call == "alltoallv" for call, _ in made[0].exchange.calls)
    assert steps >= info["levels"] > 3
    assert 0 < sends < steps
    assert counted["ExpandHubs"] == counted["Pull"] == 0
    assert counted["Pack"] == 2 * steps
    assert counted["Absorb"] == 2 * (1 + steps + sends)


def test_second_search_of_a_shard_is_as_the_first() -> None:
    graph = random_graph(8, 500, 1500)
    made = shards(graph, cut(graph.n, 2), reverse=True)
    first, _ = run(made, BFS, 3)
    run(made, BFS, 4)
    again, _ = run(made, BFS, 3)
    np.testing.assert_array_equal(first, again)


def test_named() -> None:
    assert ALGORITHMS["bfs"].name == "bfs"


@pytest.mark.parametrize("source", [-1, 67, 2**40])
def test_unknown_source(source: int) -> None:
    with pytest.raises(UnknownVertex, match=f"source is {source}; the graph has 67 vertices"):
        run(shards(shapes()[3], cut(67, 2)), BFS, source)


def test_no_vertices() -> None:
    with pytest.raises(UnknownVertex, match="0 vertices"):
        run(shards(Graph(0, np.empty(0, np.uint32), np.empty(0, np.uint32)), cut(0, 2)), BFS, 0)


def test_bad_options() -> None:
    made = shards(shapes()[3], cut(67, 1))
    with pytest.raises(InvalidOption, match="1.5"):
        run(made, BFS, 1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="sideways"):
        run(made, BFS, 1, "sideways")
    with pytest.raises(InvalidOption, match="reverse=True"):
        run(made, BFS, 1, "in")


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_search(size: int) -> None:
    calls = iter(range(1000))
    made = shards(shapes()[3], cut(67, size), aborted=lambda: next(calls) >= 3 * size)
    with pytest.raises(Aborted):
        run(made, BFS, 0)
    assert next(calls) < 10 * size
