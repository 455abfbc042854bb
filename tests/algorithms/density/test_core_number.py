"""Core numbers and k-cores against NetworkX: every structure and device, 1 to 3 ranks, any order, batches."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from batches import apply_to, reordered
from core_oracle import by_heap, by_networkx
from graphs import IDS, NONE, random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, run_program, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.errors import Aborted, CapacityError, InvalidOption
from mgraph.exchange import world
from mgraph.partition import Partition

program = importlib.import_module("mgraph.algorithms.density.core_number.program")
CORES, K_CORE = ALGORITHMS["core_number"], ALGORITHMS["k_core"]
CUTS = [(1, True), (3, False)]


def check(graph: Graph, partition: Partition, want: np.ndarray | None = None, **options: object) -> None:
    want = by_networkx(graph) if want is None else want
    got, info = run(shards(graph, partition, **options), CORES)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == np.int64
    assert info == {"largest": int(want.max(initial=0))}


def check_k(graph: Graph, partition: Partition, k: int | None, **options: object) -> None:
    core = by_networkx(graph)
    got, info = run(shards(graph, partition, **options), K_CORE, k)
    k = int(core.max(initial=0)) if k is None else k
    np.testing.assert_array_equal(got, core >= k)
    assert got.dtype == bool
    assert info == {"k": k, "vertices": int((core >= k).sum())}


def long_ones() -> list[Graph]:
    """What takes many frontiers: a path, a grid, a path through small cliques."""
    n, side = 700, 24
    ids = np.arange(n, dtype=IDS)
    cells = np.arange(side * side, dtype=IDS).reshape(side, side)
    east, south = (cells[:, :-1], cells[:, 1:]), (cells[:-1], cells[1:])
    grid = (np.concatenate([east[end].ravel(), south[end].ravel()]) for end in (0, 1))
    cliques = [(4 * c + i, 4 * c + j) for c in range(50) for i in range(4) for j in range(i)]
    chained = np.array(cliques + [(4 * c, 4 * c + 4) for c in range(49)], IDS)
    return [
        Graph(n, ids[:-1], ids[1:], False, "path"),
        Graph(side * side, *grid, directed=False, name="grid"),
        Graph(200, chained[:, 0].copy(), chained[:, 1].copy(), False, "cliques"),
    ]


def test_shapes(structure: str, device: str, ranks: int) -> None:
    for graph in shapes():
        for directed in {graph.directed, False}:
            partition = cut(graph.n, ranks, even=False)
            check(replace(graph, directed=directed), partition, structure=structure, device=device, reverse=ranks == 1)


@pytest.mark.parametrize("directed", [True, False])
def test_random(structure: str, device: str, memory: str, ranks: int, directed: bool) -> None:
    for seed in range(3):
        print(f"seed {seed}")
        graph = random_graph(seed, 300 + 31 * seed, (250, 3000, 2500)[seed], directed, skew=seed == 2)
        check(graph, cut(graph.n, ranks, even=False), structure=structure, device=device, reverse=seed == 1)


@pytest.mark.parametrize(("size", "even"), CUTS)
def test_long_ways(device: str, small: None, memory: str, size: int, even: bool) -> None:
    for graph in long_ones():
        check(graph, cut(graph.n, size, even), structure="gpma+", device=device)


@pytest.mark.parametrize("k", [None, 0, 1, 2, 5, 40, 2**40])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("mapped", [True, False, "hosts"])
def test_k_core(device: str, size: int, k: int | None, mapped: bool | str) -> None:
    for seed, directed in ((1, True), (2, False), (3, False)):
        print(f"seed {seed}")
        graph = random_graph(seed, 200, 0 if seed == 3 else 1500, directed, skew=seed == 2)
        check_k(graph, cut(graph.n, size), k, structure="gpma+", device=device, mapped=mapped)
    check_k(Graph(0, NONE, NONE), cut(0, size), k, mapped=mapped)


def test_k_core_has_the_vertices_of_networkx() -> None:
    graph = random_graph(4, 100, 600, directed=False)
    oracle = nx.Graph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    oracle.remove_edges_from(list(nx.selfloop_edges(oracle)))
    for k in (None, 3, 6):
        got, _ = run(shards(graph, cut(graph.n, 2)), K_CORE, k)
        assert set(np.flatnonzero(got).tolist()) == set(nx.k_core(oracle, k))


def test_bad_k() -> None:
    made = shards(random_graph(1, 10, 20), cut(10, 1))
    for k in (-1, 1.5, "2", True):
        with pytest.raises(InvalidOption, match="k is"):
            run(made, K_CORE, k)


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(starts: tuple[int, ...]) -> None:
    for seed, directed in ((3, True), (4, False)):
        check(random_graph(seed, 90, 500, directed), Partition(starts))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_vertices(device: str, size: int) -> None:
    check(Graph(0, NONE, NONE), cut(0, size), np.empty(0, np.int64), device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_edges(structure: str, size: int, directed: bool, small: None, memory: str) -> None:
    graph = random_graph(12, 4000, 30000, directed, skew=True)
    made, want = shards(graph, cut(graph.n, size), structure), by_heap(graph)
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    np.testing.assert_array_equal(run(made, CORES)[0], want)
    if structure == "csr":
        np.testing.assert_array_equal(want, by_networkx(graph))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_after_batches(structure: str, device: str, small: None, size: int, directed: bool) -> None:
    for graph, made in apply_to(structure, device, size, n=150, each=400, directed=directed, reverse=size == 3):
        got, info = run(made, CORES)
        np.testing.assert_array_equal(got, by_networkx(graph))
    assert info["largest"] == 0


@pytest.mark.parametrize("size", [1, 3])
def test_the_order_of_the_vertices(device: str, size: int) -> None:
    for seed, directed in ((0, True), (1, False)):
        print(f"seed {seed}")
        graph = random_graph(seed, 200, 1500, directed)
        made, order = reordered(graph, size, seed, device)
        np.testing.assert_array_equal(run(made, CORES)[0][order], by_networkx(graph))


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_run(size: int) -> None:
    made = shards(random_graph(1, 100, 200), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, CORES)


# ---- the program of all ranks ----------------------------------------------------------------------------------------


def rounds(graph: Graph, partition: Partition, **options: object) -> int:
    """The rounds that a check of the core numbers takes."""
    made, turns = shards(graph, partition, **options), []

    def decompose(shard: object) -> object:
        core, state = program.removal_levels(shard, program.sides(shard, "core_number"))
        turns.append(state["turn"])
        return {"core": core}, {"largest": state["largest"]}

    got, _ = run_program(made, decompose, CORES)
    np.testing.assert_array_equal(got, by_networkx(graph))
    return max(turns)


def hubs(n: int = 120) -> Graph:
    """Two stars with a common leaf, a clique among other leaves, self-loops, and isolated vertices."""
    clique = [(i, j) for i in range(30, 40) for j in range(30, i)]
    star = [(0, i) for i in range(1, 60)] + [(100, i) for i in range(59, 99)]
    pairs = np.array(star + clique + [(0, 0), (35, 35), (110, 110)], IDS)
    return Graph(n, pairs[:, 0].copy(), pairs[:, 1].copy(), False, "hubs")


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_both_drivers(structure: str, memory: str, size: int, mapped: bool | str) -> None:
    check(hubs(), cut(120, size, even=False), structure=structure, mapped=mapped)
    for seed, directed in ((21, True), (22, False)):
        print(f"seed {seed}")
        graph = random_graph(seed, 150, 1200, directed, skew=True)
        check(graph, cut(graph.n, size), structure=structure, mapped=mapped, reverse=seed == 21)


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("directed", [True, False])
def test_rows_wait_for_room_in_the_inboxes(
    monkeypatch: pytest.MonkeyPatch, separate: None, mapped: bool | str, directed: bool
) -> None:
    graph = random_graph(23, 300, 12000, directed)  # most of which one level removes
    few = rounds(graph, cut(graph.n, 3), structure="gpma+", mapped=mapped)
    monkeypatch.setattr(program, "LEAST_ROOM", 300)
    monkeypatch.setattr(program, "USUAL_ROOM", 300)
    monkeypatch.setattr(program, "MEMORY", 0)
    assert rounds(graph, cut(graph.n, 3), structure="gpma+", mapped=mapped) > few + 10


def test_long_and_short_rows_of_a_tile_fit_together(monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    """All edges lead to the other rank, which has no core without them: none may be lost."""
    monkeypatch.setattr(program, "LEAST_ROOM", 1 << 20)
    rng, left, right, long = np.random.default_rng(3), 20_000, 130, 120
    degrees = np.where(np.arange(left) % 4 == 0, long, 8)
    ends = np.concatenate([left + rng.permutation(right)[:degree] for degree in degrees])
    graph = Graph(left + right, np.repeat(np.arange(left), degrees).astype(IDS), ends.astype(IDS), directed=False)
    got, info = run(shards(graph, Partition((0, left, left + right)), "gpma+"), K_CORE, long + 1)
    assert not got.any()
    assert info == {"k": long + 1, "vertices": 0}


def test_a_unit_of_more_edges_than_an_inbox_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LEAST_ROOM", 8)
    monkeypatch.setattr(program, "USUAL_ROOM", 8)
    monkeypatch.setattr(program, "MEMORY", 0)
    ends = np.arange(1, 120, dtype=IDS)
    with pytest.raises(CapacityError, match="than the 8 messages"):
        run(shards(Graph(120, np.zeros_like(ends), ends, False), cut(120, 2), "csr"), CORES)


@pytest.mark.parametrize("size", [2, 3])
def test_a_program_that_leaves_at_each_meeting_goes_on(monkeypatch: pytest.MonkeyPatch, memory: str, size: int) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 0)
    graph = random_graph(24, 400, 5000, directed=False, skew=True)
    made = shards(graph, cut(graph.n, size), "gpma+")
    np.testing.assert_array_equal(run(made, CORES)[0], by_networkx(graph))
    assert sum(shard.exchange.world(shard.device).launches for shard in made) > 10 * size


def test_one_launch(counted: Counter[str]) -> None:
    for size in (1, 2):
        made = shards(random_graph(1, 300, 6000, directed=False), cut(300, size))
        counted.clear()
        run(made, CORES)
        assert counted["Cores"] >= size  # again where a rank was late
        assert set(counted) == {"Cores", "read-back"}
        assert counted["read-back"] == size  # the test's own, of the result


# ---- real graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["cit-HepPh", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ego-twitter", "luxembourg_osm"))]
)
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, device: str, name: str) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    want = by_heap(graph)
    for size in (1, 3):
        check(graph, cut(graph.n, size), want, structure="gpma+", device=device)
