"""BFS, with predecessors and without, against SciPy and NetworkX: every structure and device, 1 to 3 ranks."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from bfs_oracle import check, levels
from graphs import random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, said_bytes, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.errors import Aborted, CapacityError, InvalidOption, UnknownVertex
from mgraph.exchange import world
from mgraph.partition import Partition

BFS = ALGORITHMS["bfs"]

CUTS = [(1, True), (2, True), (3, True), (3, False)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_shapes(
    structure: str, device: str, pieces: str, size: int, even: bool, mapped: bool | str, reverse: bool
) -> None:
    for graph in shapes():
        check(graph, cut(graph.n, size, even), 0, reverse, structure=structure, device=device, mapped=mapped)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("room", [1, 1 << 16])  # 1: more is found of another rank than its inbox holds
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_random(
    structure: str, device: str, pieces: str, size: int, even: bool, room: int, mapped: bool | str, directed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(importlib.import_module("mgraph.algorithms.paths.bfs.program"), "ROOM", room)
    kind = {"structure": structure, "device": device, "mapped": mapped}
    pulled = 0
    for seed in range(2):
        graph = random_graph(seed, 500 + 31 * seed, 1800, directed, skew=seed % 2 == 1)
        print(f"seed {seed}")
        source = int(graph.src[seed])
        for direction in ("out", "in"):
            info = check(graph, cut(graph.n, size, even), source, True, direction, **kind)
            pulled += info["bottom_up"]
        check(graph, cut(graph.n, size, even), source, False, **kind)
    assert pulled > 0, "no search was ever bottom-up"


def test_ranks_have_the_same_phases_where_one_of_them_alone_has_a_hub() -> None:
    """Ranks that count them in another way wait for each other for ever at their next search."""
    n, leaves = 20_000, np.arange(100, 15_000)
    src = np.concatenate([np.full(len(leaves), 5), [n - 2, n - 1]])  # its least nearer neighbour is its last one
    graph = Graph(n, src, np.concatenate([leaves, [5, n - 2]]), directed=False)
    check(graph, cut(n, 3), n - 1, False, structure="gpma+")


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
@pytest.mark.parametrize("size", [1, 2])
def test_roads(structure: str, device: str, pieces: str, size: int, directed: bool) -> None:
    graph = road(5, 30, directed)
    corner = int(graph.src[0])
    for direction in ("out", "in"):
        check(graph, cut(graph.n, size), corner, True, direction, structure=structure, device=device)


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_a_search_of_long_paths_goes_on_by_lists(
    structure: str, device: str, size: int, even: bool, mapped: bool | str, counted: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where it has explored few edges after some levels: so does a search in a part that is small."""
    monkeypatch.setitem(importlib.import_module("mgraph.algorithms.paths.bfs.program").LEVELS, device, 4)
    grid = road(7, 30, False)
    whole = Graph(1000, np.append(grid.src, range(950, 970)), np.append(grid.dst, range(951, 971)), False)
    for source in (int(grid.src[0]), 950):
        for direction in ("out", "in"):
            counted.clear()
            info = check(
                whole, cut(1000, size, even), source, True, direction, structure=structure, device=device, mapped=mapped
            )
            assert info["bottom_up"] == 0 and counted["NearFar"] >= size


@pytest.mark.parametrize("size", [1, 3])
def test_a_search_goes_on_by_levels_if_a_rank_has_too_little_memory_for_lists(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bfs = importlib.import_module("mgraph.algorithms.paths.bfs.program")
    lists, asked = bfs.NearFarSearch, []

    def of_one_rank_too_large(shard: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(shard.rank)
        if shard.rank == size - 1:
            raise CapacityError("no memory")
        return lists(shard, *args, **kwargs)

    monkeypatch.setattr(bfs, "NearFarSearch", of_one_rank_too_large)
    monkeypatch.setitem(bfs.LEVELS, "cpu", 4)
    grid = road(7, 30, False)
    check(grid, cut(grid.n, size), int(grid.src[0]), True)
    assert sorted(asked) == sorted(2 * [*range(size)])


def test_a_long_path_takes_no_launch_per_level(counted: Counter[str]) -> None:
    ids = np.random.default_rng(6).permutation(1500).astype(np.uint32)
    made = shards(Graph(1500, ids[:-1], ids[1:]), cut(1500, 1))
    counted.clear()
    columns, info = BFS.run(made[0], source=int(ids[0]))
    np.testing.assert_array_equal(columns["distance"][ids], np.arange(1500))
    assert (info["levels"], info["reached"]) == (1500, 1500)
    assert set(counted) == {"BreadthFirst"}
    assert counted["BreadthFirst"] < 100  # one, unless the machine is so busy that a launch takes 50 ms


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
        for source in (0, 33, 89):
            check(graph, Partition(starts), source, reverse=source == 33)


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


@pytest.mark.parametrize("found", [1, 99, 100, 101, 3200])  # a bitmap of a range has 100 words
def test_what_a_full_inbox_lacks_is_read_from_the_bitmap(found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("mgraph.algorithms.paths.bfs.program"), "ROOM", 1)
    n = 6400
    far = np.sort(np.random.default_rng(found).permutation(n // 2)[:found] + n // 2).astype(np.uint32)
    graph = Graph(n, np.zeros(found, np.uint32), far)
    got, info = run(shards(graph, cut(n, 2)), BFS, 0)
    np.testing.assert_array_equal(got, levels(graph, 0))
    assert info["reached"] == found + 1


def test_a_vertex_is_found_here_before_its_message_is_read() -> None:
    # 0 leads to 50 and 51 of the other range, and 50 to 51: the other rank expands 50 while 51 waits in its inbox
    graph = Graph(100, np.array([0, 0, 50, 51], np.uint32), np.array([50, 51, 51, 99], np.uint32))
    got, info = run(shards(graph, cut(100, 2)), BFS, 0)
    assert got[[0, 50, 51, 99]].tolist() == [0, 1, 1, 2]
    assert (info["levels"], info["reached"]) == (3, 4)


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
def test_a_last_level_that_came_in_messages_before_a_level_upwards_counts(mapped: bool | str) -> None:
    # 0 leads to 60 .. 79 of the other range; 10 .. 29, at their places in the own range, have many edges
    far, ring = np.arange(60, 80), np.arange(10, 30)
    graph = Graph(
        100, np.concatenate([np.zeros(20), far, ring, np.roll(ring, 1)]).astype(np.uint32),
        np.concatenate([far, np.zeros(20), np.roll(ring, 1), ring]).astype(np.uint32),
    )  # fmt: skip
    got, info = run(shards(graph, cut(100, 2), reverse=True, mapped=mapped), BFS, 0)
    np.testing.assert_array_equal(got, levels(graph, 0))
    assert info["bottom_up"] > 0 and (info["levels"], info["reached"]) == (2, 21)


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_source_after_the_last_row_with_in_edges(size: int, mapped: bool | str) -> None:
    """Levels upwards do not look at such rows."""
    core, tail = random_graph(7, 200, 4000), np.arange(199, 215)
    src = np.concatenate([core.src, tail, np.full(50, 399), [398]]).astype(np.uint32)
    dst = np.concatenate([core.dst, tail + 1, np.arange(50), [0]]).astype(np.uint32)
    for source in (398, 399):
        info = check(Graph(400, src, dst), cut(400, size), source, True, structure="gpma+", mapped=mapped)
        assert info["bottom_up"] > 0


def test_sparse_levels_travel_as_lists_without_repeats() -> None:
    n = 6400  # 0 .. 9 all point at ten vertices of the other range, which point back and at 20
    far = np.arange(3200, 3210)
    src = np.concatenate([np.zeros(9), np.repeat(np.arange(10), 10), np.repeat(far, 10), far])
    dst = np.concatenate([np.arange(1, 10), np.tile(far, 10), np.tile(np.arange(10), 10), np.full(10, 20)])
    graph = Graph(n, src.astype(np.uint32), dst.astype(np.uint32))
    made = shards(graph, cut(n, 2), mapped=False)
    got, _ = run(made, BFS, 0)
    np.testing.assert_array_equal(got, levels(graph, 0))
    assert sum(b - said_bytes(2) for call, b in made[0].exchange.calls if call == "alltoallv") == 4 * 10
    assert sum(b - said_bytes(2) for call, b in made[1].exchange.calls if call == "alltoallv") == 4 * 10  # all know 0


def test_each_rank_says_only_what_is_new_when_bottom_up() -> None:
    graph = random_graph(5, 6400, 60000, directed=False)
    made = shards(graph, cut(graph.n, 2), mapped=False)
    _, info = run(made, BFS, int(graph.src[0]))
    assert info["bottom_up"] > 1
    words = graph.n // 2 // 32
    assert 4 * words in {b - said_bytes(2) for call, b in made[0].exchange.calls if call == "alltoallv"}


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_launches_one_kernel_and_calls_no_other(
    size: int, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 60_000_000_000)  # on a loaded machine a rank may be late
    graph = random_graph(6, 3000, 30000, directed=False)
    made = shards(graph, cut(graph.n, size))
    run(made, BFS, 1)
    counted.clear()
    calls = [len(shard.exchange.calls) for shard in made] if size > 1 else []
    _, info = run(made, BFS, 0)
    assert info["bottom_up"] > 0
    assert counted == Counter({"BreadthFirst": size, "read-back": size})  # the test reads the result of each rank
    assert calls == ([len(shard.exchange.calls) for shard in made] if size > 1 else [])


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


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_search(size: int, mapped: bool) -> None:
    aborted = False
    made = shards(shapes()[3], cut(67, size), aborted=lambda: aborted, mapped=mapped)
    run(made, BFS, 0)
    aborted = True
    with pytest.raises(Aborted):
        run(made, BFS, 0)
