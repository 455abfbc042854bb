"""Label propagation against a plain count of labels: every structure and device, 1 to 3 ranks, any order, batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import IDS, NONE, random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.primitives import label_counts
from mgraph.errors import Aborted, InvalidOption
from mgraph.partition import Partition

LABELS = ALGORITHMS["label_propagation"]


def expected(graph: Graph, rounds: int) -> np.ndarray:
    """Labels by sorting the arcs by vertex and label, and counting runs; a repeat of an arc counts once."""
    arcs = np.unique(np.column_stack(graph.arcs).reshape(-1, 2), axis=0).astype(np.int64)
    if graph.directed:
        arcs = np.concatenate([arcs, arcs[:, ::-1]])  # both ways: twice where there is an arc back
    labels = np.arange(graph.n)
    for _ in range(rounds):
        pairs, times = np.unique(np.column_stack([arcs[:, 0], labels[arcs[:, 1]]]), axis=0, return_counts=True)
        best = np.lexsort((pairs[:, 1], -times, pairs[:, 0]))
        vertices, first = np.unique(pairs[best, 0], return_index=True)
        labels = labels.copy()
        labels[vertices] = pairs[best[first], 1]
    return labels


def check(graph: Graph, partition: Partition, rounds: int = 3, **options: object) -> None:
    got, info = run(shards(graph, partition, reverse=True, **options), LABELS, rounds)
    want = expected(graph, rounds)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == np.int64
    assert info["communities"] == len(np.unique(want))
    assert 0 <= info["iterations"] <= rounds


@pytest.fixture(params=["as-is", "small"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, small: None) -> str:
    """Also with tables for few rows at a time."""
    if request.param == "small":
        monkeypatch.setattr(label_counts, "ROOM", 64)
        monkeypatch.setattr(label_counts, "TABLED_BY_THREAD", label_counts.TABLED)
    return request.param


def wide_graph(seed: int, directed: bool) -> Graph:
    """Rows of all widths: hubs past a tile's table, and past the degree from which rows are cut into tasks."""
    rng = np.random.default_rng(seed)
    n = 1500
    src = np.concatenate([rng.integers(0, n, 3000), np.full(1400, 3), np.full(400, 8), np.full(250, 11)])
    dst = np.concatenate([rng.integers(0, n, 3000), rng.permutation(n)[:1400], rng.permutation(n)[:650]])
    return Graph(n, src.astype(IDS), dst.astype(IDS), directed, f"wide-{seed}")


def test_the_rules_by_hand() -> None:
    """0 is joined with 1 and 2 both ways, and has an arc to 3; 4 has no neighbours."""
    src, dst = np.array([0, 1, 0, 2, 0], IDS), np.array([1, 0, 2, 0, 3], IDS)
    got, _ = run(shards(Graph(5, src, dst), cut(5, 2), reverse=True), LABELS, 1)
    assert got.tolist() == [1, 0, 0, 0, 4]  # 1 and 2 are there twice each
    path = Graph(3, np.array([0, 1], IDS), np.array([1, 2], IDS), directed=False)
    assert run(shards(path, cut(3, 1)), LABELS, 1)[0].tolist() == [1, 0, 1]
    assert run(shards(path, cut(3, 1)), LABELS, 2)[0].tolist() == [0, 1, 0]
    assert run(shards(path, cut(3, 1)), LABELS, 0)[0].tolist() == [0, 1, 2]


def test_shapes(structure: str, device: str, tables: str) -> None:
    for graph in shapes():
        one, size = (replace(graph, directed=False), 1) if tables == "as-is" else (graph, 3)
        check(one, cut(one.n, size, even=False), 2, structure=structure, device=device)


@pytest.mark.parametrize("directed", [True, False])
def test_rows_of_all_widths(structure: str, device: str, tables: str, directed: bool) -> None:
    size = 1 if tables == "as-is" else 3
    check(wide_graph(size, directed), cut(1500, size, even=False), structure=structure, device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_random(device: str, size: int, directed: bool) -> None:
    for seed in range(6):
        print(f"seed {seed}")
        graph = random_graph(seed, 300 + 31 * seed, (250, 3000, 2500)[seed % 3], directed, skew=seed > 2)
        check(graph, cut(graph.n, size), 1 + seed, structure="gpma+", device=device)


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(monkeypatch: pytest.MonkeyPatch, starts: tuple[int, ...]) -> None:
    monkeypatch.setattr("mgraph.algorithms.primitives.replicated.PART", 7)
    for seed, directed in ((3, True), (4, False)):
        check(random_graph(seed, 90, 500, directed), Partition(starts))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_vertices(device: str, size: int) -> None:
    got, info = run(shards(Graph(0, NONE, NONE, False), cut(0, size), device=device), LABELS, 3)
    assert (len(got), info) == (0, {"communities": 0, "iterations": 1})


def test_what_is_refused() -> None:
    with pytest.raises(InvalidOption, match="reverse=True"):
        run(shards(random_graph(1, 10, 20), cut(10, 1)), LABELS, 1)
    for rounds in (-1, 1.5, "2", None):
        with pytest.raises(InvalidOption, match="max_iter is"):
            run(shards(random_graph(1, 10, 20, directed=False), cut(10, 1)), LABELS, rounds)


@pytest.mark.parametrize("directed", [True, False])
def test_many_threads(structure: str, directed: bool, tables: str) -> None:
    graph = random_graph(12, 3000, 40000, directed, skew=True)
    made = shards(graph, cut(graph.n, 1), structure, reverse=True)
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    np.testing.assert_array_equal(run(made, LABELS, 2)[0], expected(graph, 2))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_after_batches(structure: str, device: str, small: None, size: int, directed: bool) -> None:
    for graph, made in apply_to(structure, device, size, n=150, each=400, directed=directed, reverse=True):
        np.testing.assert_array_equal(run(made, LABELS, 3)[0], expected(graph, 3))
    assert run(made, LABELS, 3)[0].tolist() == list(range(150))


@pytest.mark.parametrize("size", [1, 3])
def test_ties_go_by_users_ids(device: str, size: int) -> None:
    for seed, directed in ((0, True), (1, False)):
        print(f"seed {seed}")
        graph = random_graph(seed, 200, 900, directed)
        made, order = reordered(graph, size, seed, device, reverse=True)
        np.testing.assert_array_equal(run(made, LABELS, 4)[0][order], expected(graph, 4))


def test_it_ends_where_nothing_changes() -> None:
    clique = np.array([(i, j) for i in range(6) for j in range(i)], IDS)
    graph = Graph(7, clique[:, 0].copy(), clique[:, 1].copy(), directed=False)
    got, info = run(shards(graph, cut(7, 2)), LABELS, 10**30)
    assert info["iterations"] < 6
    np.testing.assert_array_equal(got, expected(graph, 12))


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_run(size: int) -> None:
    made = shards(random_graph(1, 100, 200, False), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, LABELS, 5)


def test_launches(counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_counts, "TABLED_BY_THREAD", label_counts.TABLED)
    made = shards(random_graph(1, 300, 900, False), cut(300, 1))
    wide = shards(wide_graph(1, True), cut(1500, 1), reverse=True)
    for shard, wide_rows in ((made[0], 0), (wide[0], 1)):
        counted.clear()
        LABELS.run(shard, max_iter=3)
        # A program that takes long on a busy machine is launched again.
        assert counted.pop("Rounds") > 0
        assert shard.exchange.world(shard.device).runs == 1
        dealt = {"CountOneTurn": 1, "DealRows": 1, "MeasureWide": wide_rows, "CutGroups": wide_rows}
        assert +counted == +Counter({**dealt, "CountLabels": 1, "read-back": 2})


# ---- the program of all ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_both_drivers(tables: str, size: int, mapped: bool | str) -> None:
    """Also where ranks have wide rows of other numbers of groups, or none."""
    for graph in (wide_graph(4, True), wide_graph(5, False), random_graph(6, 400, 3000, False, skew=True)):
        for even in (True,) if size == 1 else (False,) if graph.directed else (True, False):
            partition = cut(graph.n, size, even)
            check(graph, partition, 3, structure="gpma+", mapped=mapped)
            check(graph, partition, 0, mapped=mapped)


@pytest.mark.parametrize("mapped", [True, False])
def test_only_the_program_meets_where_ranks_map_each_other(mapped: bool) -> None:
    made = shards(random_graph(1, 300, 900, False), cut(300, 2), mapped=mapped)
    run(made, LABELS, 3)
    before = len(made[0].exchange.calls)
    run(made, LABELS, 3)
    calls = [call for call, _ in made[0].exchange.calls[before:]]
    # One exchange carries numbers and labels of a meeting: of the first one, and of three rounds.
    assert Counter(calls) == ({} if mapped else {"alltoallv": 4})


@pytest.mark.parametrize("name", [pytest.param("cit-HepPh", marks=pytest.mark.slow), "luxembourg_osm"])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, device: str, name: str) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    for size in (1, 3):
        check(graph, cut(graph.n, size), 2, structure="gpma+", device=device)
