"""Connected components against SciPy and NetworkX: every structure and device, 1 to 3 ranks, any order, batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from components_oracle import COMPONENTS, check, check_result, labels
from graphs import IDS, NONE, random_graph, real_graph, shapes, slow_build
from spmd import FakeShard, Graph, cut, run, shards

from mgraph.algorithms.communities.components import program
from mgraph.batch import EdgeBatch
from mgraph.errors import Aborted
from mgraph.exchange import world
from mgraph.partition import Partition

CUTS = [(1, True), (2, True), (3, True), (3, False)]


def scattered(graph: Graph, seed: int) -> Graph:
    """The same graph with its ids permuted, so that a path is no longer a run of ids."""
    ids = np.random.default_rng(seed).permutation(graph.n).astype(IDS)
    return Graph(graph.n, ids[graph.src], ids[graph.dst], graph.directed, f"{graph.name}-scattered")


def long_ones() -> list[Graph]:
    """What has a large diameter or no short way to a root: paths in several numberings, a grid, a binary tree."""
    n, side = 2000, 40
    ids = np.arange(n, dtype=IDS)
    cells = np.arange(side * side, dtype=IDS).reshape(side, side)
    east, south = (cells[:, :-1], cells[:, 1:]), (cells[:-1], cells[1:])
    grid = (np.concatenate([east[end].ravel(), south[end].ravel()]) for end in (0, 1))
    zigzag = np.ravel(np.column_stack([ids[: n // 2], ids[n // 2 :]]))  # every other vertex is a local minimum
    return [
        Graph(n, ids[:-1], ids[1:], name="path"),
        Graph(n, ids[1:], ids[:-1], name="path-back"),
        Graph(n, zigzag[:-1], zigzag[1:], name="zigzag"),
        Graph(side * side, *grid, directed=False, name="grid"),
        Graph(n, ids[1:], (ids[1:] - 1) // 2, directed=False, name="tree"),
        Graph(n, ids[:-3:3], ids[1:-2:3], directed=False, name="pairs"),
    ]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_shapes(structure: str, device: str, pieces: str, size: int, even: bool, reverse: bool) -> None:
    for graph in shapes():
        check(graph, cut(graph.n, size, even), reverse, structure=structure, device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_random(structure: str, device: str, pieces: str, memory: str, size: int, even: bool, directed: bool) -> None:
    for seed in range(6):
        print(f"seed {seed}")
        edges = (150, 700, 3000)[seed % 3]  # many components, a large one among small ones, one
        graph = random_graph(seed, 700 + 31 * seed, edges, directed, skew=seed > 2)
        for reverse in (False, True):
            check(graph, cut(graph.n, size, even), reverse, structure=structure, device=device)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_long_ways(device: str, pieces: str, memory: str, size: int, even: bool, reverse: bool) -> None:
    for graph in long_ones():
        for one in (graph, scattered(graph, 1)):
            check(one, cut(one.n, size, even), reverse, structure="gpma+", device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_trees(structure: str, size: int, directed: bool, pieces: str, memory: str) -> None:
    for graph in (random_graph(12, 20000, 60000, directed, skew=True), scattered(long_ones()[0], 3)):
        made = shards(graph, cut(graph.n, size), structure)  # large enough for a launch to be dealt to all threads
        for shard in made:
            shard.device = replace(shard.device, threads=4)
        check_result(*run(made, COMPONENTS), labels(graph))


def test_networkx_agrees() -> None:
    for seed in range(5):
        print(f"seed {seed}")
        graph = random_graph(seed, 80, 60)
        oracle = nx.DiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
        oracle.add_nodes_from(range(graph.n))
        want = {vertex: min(part) for part in nx.weakly_connected_components(oracle) for vertex in part}
        got, info = run(shards(graph, cut(graph.n, 2)), COMPONENTS)
        assert dict(enumerate(got.tolist())) == want
        assert info["components"] == nx.number_weakly_connected_components(oracle)


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(starts: tuple[int, ...]) -> None:
    for seed, directed in ((3, True), (4, False)):
        for reverse in (False, True):
            check(random_graph(seed, 90, 70, directed), Partition(starts), reverse)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_vertices(device: str, size: int) -> None:
    got, info = run(shards(Graph(0, NONE, NONE), cut(0, size), device=device), COMPONENTS)
    assert len(got) == 0
    assert info == {"components": 0, "supersteps": 1}


# ---- the program of all ranks ----------------------------------------------------------------------------------------


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The last states of all programs that ran."""
    ends: list[dict[str, int]] = []
    run_program = world.World.run
    monkeypatch.setattr(
        world.World, "run", lambda *args, **fields: ends.append(run_program(*args, **fields)) or ends[-1]
    )
    return ends


def crossing(n: int = 160) -> Graph:
    """A star whose leaves are all over the graph, paths from rank to rank, and isolated vertices."""
    ends = [(3, i) for i in range(5, n, 3)] + [(i, n - 2 - i) for i in range(4, n // 2, 6)] + [(1, 1), (n - 1, 1)]
    pairs = np.array(ends, IDS)
    return Graph(n, pairs[:, 0].copy(), pairs[:, 1].copy(), False, "crossing")


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_both_drivers(structure: str, memory: str, size: int, mapped: bool | str) -> None:
    check(crossing(), cut(160, size, even=False), structure=structure, mapped=mapped)
    for seed, directed in ((31, True), (32, False)):
        print(f"seed {seed}")
        graph = random_graph(seed, 500, 450, directed)
        for reverse in {False, directed}:
            check(graph, cut(graph.n, size), reverse, structure=structure, mapped=mapped)


@pytest.mark.parametrize("room", [1, 7, 100])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_full_inbox_loses_no_pair(monkeypatch: pytest.MonkeyPatch, separate: None, size: int, room: int) -> None:
    monkeypatch.setattr(program, "ROOM", room)
    for seed in range(3):
        print(f"seed {seed}")
        path = Graph(150, np.arange(149, dtype=IDS), np.arange(1, 150, dtype=IDS))
        for graph in (random_graph(seed, 150, 140), scattered(path, seed), crossing()):
            for reverse in (False, graph.directed):
                check(graph, cut(graph.n, size), reverse)


def dealt_grid(size: int, rows: int, columns: int) -> Graph:
    """Return a grid whose vertices are dealt to the ranks in turn by descending degree."""
    across, along = ((np.arange(n) % (n - 1) == 0).astype(int) for n in (rows, columns))
    by_degree = np.argsort((across[:, None] + along).ravel(), kind="stable")
    dealt = by_degree[np.argsort(np.arange(rows * columns) % size, kind="stable")]
    cells = np.argsort(dealt).reshape(rows, columns).astype(IDS)
    src, dst = (np.concatenate([cells[:, a].ravel(), cells[a].ravel()]) for a in (slice(-1), slice(1, None)))
    return Graph(cells.size, src, dst, directed=False, name="dealt-grid")


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [2, 4])
def test_roots_that_are_sent_as_an_array(
    monkeypatch: pytest.MonkeyPatch, states: list[dict[str, int]], separate: None, size: int, mapped: bool | str
) -> None:
    """Each rank joins nearly all vertices of the others to another tree than theirs, but tells few pairs."""
    monkeypatch.setattr(program, "ROOM", 100)
    graph = dealt_grid(size, 40, 40)
    check(graph, cut(graph.n, size), mapped=mapped)
    assert [(state["told"], state["parts"]) for state in states] == [(1, 0)] * size


def test_a_large_tree_of_all_ranks_is_sent_as_bits(states: list[dict[str, int]], separate: None) -> None:
    graph = random_graph(6, 3000, 30000, directed=False)
    check(graph, cut(3000, 3))
    assert [(state["told"], state["is_long"]) for state in states] == [(0, 0)] * 3


def test_long_paths_through_vertices_of_other_ranks(states: list[dict[str, int]], separate: None) -> None:
    """The second rank's vertices hang on those of the first, one row of the grid in a path."""
    graph = dealt_grid(2, 20, 200)
    check(graph, cut(graph.n, 2))
    assert sorted(state["is_long"] for state in states) == [0, 1]


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_cuts_and_rooms(
    monkeypatch: pytest.MonkeyPatch, states: list[dict[str, int]], memory: str, seed: int
) -> None:
    """Sparse graphs, dealt in turn or at random, with inboxes of any size and any part of the rows planted."""
    rng = np.random.default_rng(seed)
    for number in range(25):
        print(f"graph {number}")
        size, n = int(rng.integers(2, 6)), int(rng.integers(2, 300))
        monkeypatch.setattr(program, "ROOM", int(rng.choice([1, 8, 1 << 20])))
        monkeypatch.setattr(program, "PLANTED", int(rng.choice([1, 8, 1000])))
        graph = dealt_grid(size, 2 + n // 20, 20) if number % 3 else random_graph(number, n, int(rng.integers(2 * n)))
        kept = rng.random(len(graph.src)) < rng.choice([0.5, 0.8, 1])
        graph = Graph(graph.n, graph.src[kept], graph.dst[kept], bool(rng.integers(2)))
        for one in (graph, scattered(graph, number)):
            partition, reverse = cut(graph.n, size, bool(rng.integers(2))), bool(rng.integers(2)) and graph.directed
            check(one, partition, reverse, mapped=(True, False, "hosts")[rng.integers(3)])
    assert {state["told"] for state in states} == {0, 1}


@pytest.mark.parametrize("size", [2, 3])
def test_a_program_that_leaves_at_each_meeting_goes_on(monkeypatch: pytest.MonkeyPatch, memory: str, size: int) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 0)
    monkeypatch.setattr(program, "ROOM", 20)
    graph = random_graph(33, 600, 560, directed=False)
    made = shards(graph, cut(graph.n, size), "gpma+")
    check_result(*run(made, COMPONENTS), labels(graph))
    assert sum(shard.exchange.world(shard.device).launches for shard in made) > 2 * size


# ---- what must change no label ---------------------------------------------------------------------------------------


def apply_to(made: list[FakeShard], src: np.ndarray, dst: np.ndarray, op: int) -> None:
    """A batch of edges, by their rows' owners, to whatever holds them."""
    for shard in made:
        for rows, row, id in ((shard.out_edges, src, dst), (shard.in_edges, dst, src)):
            mine = (row >= shard.lo) & (row < shard.hi)
            if rows is not None:
                rows.apply(EdgeBatch(row[mine] - shard.lo, id[mine], op=op))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_after_batches(structure: str, device: str, size: int, reverse: bool) -> None:
    rng = np.random.default_rng(size)
    n, edges = 300, set()
    made = shards(Graph(n, NONE, NONE), cut(n, size), structure, reverse, device)
    for turn in range(6):
        src, dst = rng.integers(0, n, (2, 120), dtype=IDS)
        apply_to(made, src, dst, op=1)
        edges |= set(zip(src.tolist(), dst.tolist(), strict=True))
        gone = np.array(sorted(edges), IDS).reshape(-1, 2)
        gone = gone if turn == 5 else gone[rng.random(len(gone)) < 0.6]  # in the end everything
        apply_to(made, gone[:, 0].copy(), gone[:, 1].copy(), op=-1)
        edges -= set(map(tuple, gone.tolist()))
        left = np.array(sorted(edges), IDS).reshape(-1, 2)
        got, info = run(made, COMPONENTS)
        check_result(got, info, labels(Graph(n, left[:, 0], left[:, 1])))
    assert info["components"] == n


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_order_of_the_vertices(device: str, memory: str, directed: bool, size: int) -> None:
    for seed in range(4):
        print(f"seed {seed}")
        graph = random_graph(seed, 500, 350, directed)
        order = np.random.default_rng(seed).permutation(graph.n).astype(IDS)
        inside = Graph(graph.n, order[graph.src], order[graph.dst], directed)
        made = shards(inside, cut(graph.n, size), "gpma+", True, device)
        for shard in made:
            shard.order = shard.device.asarray(order)
        got, info = run(made, COMPONENTS)
        check_result(got[order], info, labels(graph))


# ---- several ranks ---------------------------------------------------------------------------------------------------


def two_crowds(bridge: bool) -> Graph:
    """Two dense halves, one a rank, and perhaps one edge, from a vertex whose first neighbours lie in its own half."""
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, 100, (2, 2000), dtype=IDS)
    src, dst = np.concatenate([src, src + IDS(100)]), np.concatenate([dst, dst + IDS(100)])
    ends = ([99], [199]) if bridge else ([], [])
    return Graph(200, np.append(src, ends[0]).astype(IDS), np.append(dst, ends[1]).astype(IDS))


@pytest.mark.parametrize("bridge", [True, False])
def test_ranks_with_different_largest_trees(structure: str, device: str, bridge: bool) -> None:
    for size in (1, 2, 3):
        info = check(two_crowds(bridge), cut(200, size), True, structure=structure, device=device)
        assert info == {"components": 2 - bridge, "supersteps": 1}


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_run(size: int) -> None:
    made = shards(random_graph(1, 100, 200), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, COMPONENTS)


# ---- what it costs ---------------------------------------------------------------------------------------------------


def test_one_launch(counted: Counter[str]) -> None:
    for size in (1, 2):
        made = shards(random_graph(6, 3000, 30000, directed=False), cut(3000, size))
        counted.clear()
        run(made, COMPONENTS)
        assert counted["Forest"] >= size  # again where a rank was late
        assert counted == {"Forest": counted["Forest"], "read-back": size}  # the test's own, of the result


# ---- real graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["web-NotreDame", "cit-HepPh", "ego-twitter", "luxembourg_osm"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, structure: str, device: str, name: str, size: int) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    want = labels(graph)
    for reverse in (False, True):
        got, info = run(shards(graph, cut(graph.n, size, even=reverse), structure, reverse, device), COMPONENTS)
        check_result(got, info, want)
