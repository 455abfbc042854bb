"""Louvain's communities and modularity against NetworkX: every structure and device, 1 to 3 ranks, any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from batches import apply_to, reordered
from communities import networkx_graph, planted, quality, sets, small_tables, weighted
from graphs import IDS, NONE, random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.communities.multilevel import level
from mgraph.errors import Aborted, InvalidOption
from mgraph.partition import Partition

LOUVAIN, MODULARITY = ALGORITHMS["louvain"], ALGORITHMS["modularity"]


def check(graph: Graph, partition: Partition, resolution: float = 1.0, **options: object) -> np.ndarray:
    """Find communities: what is said of them is so, and they are no worse than vertices alone."""
    got, info = run(shards(graph, partition, reverse=True, **options), LOUVAIN, resolution=resolution, seed=1)
    assert got.dtype == np.int64
    assert all(min(community) == next(iter(set(got[list(community)].tolist()))) for community in sets(got))
    assert info["communities"] == len(np.unique(got))
    assert info["modularity"] == pytest.approx(quality(graph, got, resolution), abs=1e-6)
    assert info["modularity"] >= quality(graph, np.arange(graph.n), resolution) - 1e-12
    return got


@pytest.fixture(params=["as-is", "small"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, small: None) -> str:
    """Also with tables for few rows at a time, sorted pieces of few arcs, and a launch per step."""
    if request.param == "small":
        small_tables(monkeypatch)
    return request.param


# ---- Louvain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_shapes(structure: str, device: str, small: None, size: int) -> None:
    for graph in shapes():
        one = replace(graph, directed=False)
        check(one, cut(one.n, size, even=False), structure=structure, device=device)


def test_planted_communities_are_found(structure: str, device: str, tables: str) -> None:
    graph, want = planted(1)
    for size in (1, 3):
        np.testing.assert_array_equal(check(graph, cut(graph.n, size), structure=structure, device=device), want)


@pytest.mark.parametrize("make", [lambda graph, seed: graph, weighted], ids=["plain", "weighted"])
def test_ranks_and_structures_change_no_label(device: str, tables: str, make: Callable[[Graph, int], Graph]) -> None:
    graph = make(random_graph(1, 120, 500, directed=False, skew=True), 1)
    want = check(graph, cut(graph.n, 1), device=device)
    for structure, size in (("gpma+", 2), ("slabgraph", 3)):
        got = check(graph, cut(graph.n, size, even=False), structure=structure, device=device)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("make", [lambda graph, seed: graph, weighted], ids=["plain", "weighted"])
def test_directed_graphs(device: str, tables: str, make: Callable[[Graph, int], Graph]) -> None:
    for seed in range(2):
        print(f"seed {seed}")
        graph = make(random_graph(seed, 120, 600, True, skew=seed == 1), seed)
        want = check(graph, cut(graph.n, 1), device=device)
        np.testing.assert_array_equal(check(graph, cut(graph.n, 3, even=False), device=device), want)
        oracle = networkx_graph(graph)
        theirs = [nx.community.louvain_communities(oracle, seed=one) for one in range(3)]
        least = min(nx.community.modularity(oracle, communities) for communities in theirs)
        made = shards(graph, cut(graph.n, 1), reverse=True, device=device)
        assert max(run(made, LOUVAIN, seed=one)[1]["modularity"] for one in range(3)) > least - 0.01


def test_most_levels() -> None:
    graph = random_graph(2, 400, 1500, directed=False)
    made = shards(graph, cut(graph.n, 1))
    whole, info = run(made, LOUVAIN)
    scores = []
    for most in range(1, info["levels"] + 2):
        labels, one = run(made, LOUVAIN, max_levels=most)
        assert one["levels"] == most - 1
        scores.append(one["modularity"])
    assert scores == sorted(scores)
    np.testing.assert_array_equal(labels, whole)


@pytest.mark.parametrize("size", [1, 3])
def test_the_order_of_the_vertices_changes_no_label(device: str, size: int) -> None:
    graph = weighted(random_graph(0, 150, 700, directed=False), 0)
    made, order = reordered(graph, size, 0, device)
    got, _ = run(made, LOUVAIN, seed=1)
    np.testing.assert_array_equal(got[order], check(graph, cut(graph.n, 1), device=device))


def test_as_good_as_networkx() -> None:
    for seed in (1, 2):
        print(f"seed {seed}")
        graph = random_graph(seed, 250, 1200, directed=False, skew=seed == 2)
        graph = weighted(graph, seed) if seed == 1 else graph
        oracle = networkx_graph(graph)
        theirs = [nx.community.louvain_communities(oracle, seed=one) for one in range(3)]
        least = min(nx.community.modularity(oracle, found) for found in theirs)
        ours = [run(shards(graph, cut(graph.n, 1)), LOUVAIN, seed=one)[1]["modularity"] for one in range(3)]
        assert max(ours) > least - 0.01


@pytest.mark.parametrize("resolution", [0, 0.5, 3])
def test_resolution(resolution: float) -> None:
    graph, _ = planted(4)
    found = len(np.unique(check(graph, cut(graph.n, 2), resolution)))
    assert found == 1 if resolution == 0 else found >= (6 if resolution == 3 else 1)


def test_seeds() -> None:
    graph = random_graph(2, 400, 1500, directed=False)
    made = shards(graph, cut(graph.n, 1))
    found = {run(made, LOUVAIN, seed=seed)[0].tobytes() for seed in (None, 0, 0, 5, 2**70)}
    assert 1 < len(found) <= 3


@pytest.mark.parametrize("size", [1, 3])
def test_after_batches(structure: str, device: str, small: None, size: int) -> None:
    for graph, made in apply_to(structure, device, size, n=100, each=200, directed=False):
        got, info = run(made, LOUVAIN)
        assert info["modularity"] == pytest.approx(quality(graph, got), abs=1e-12)
    assert got.tolist() == list(range(100))


def test_many_threads(structure: str, tables: str) -> None:
    graph = random_graph(12, 3000, 20000, directed=False, skew=True)
    labels = []
    for threads in (1, 4):
        made = shards(graph, cut(graph.n, 1), structure)
        for shard in made:
            shard.device = replace(shard.device, threads=threads)
        labels.append(run(made, LOUVAIN)[0])
    np.testing.assert_array_equal(*labels)


@pytest.mark.parametrize("size", [1, 2])
def test_nothing_to_find(device: str, size: int) -> None:
    got, info = run(shards(Graph(0, NONE, NONE, False), cut(0, size), device=device), LOUVAIN)
    assert (len(got), info) == (0, {"modularity": 0.0, "communities": 0, "levels": 0})
    light = weighted(random_graph(1, 50, 90, directed=False), 1, zeros=True)
    got, info = run(shards(light, cut(50, size), device=device), LOUVAIN)
    assert (got.tolist(), info) == (list(range(50)), {"modularity": 0.0, "communities": 50, "levels": 0})


@pytest.mark.parametrize("bad", [-1.0, -1e-30])
@pytest.mark.parametrize("size", [1, 2])
def test_negative_weights_are_refused(size: int, bad: float) -> None:
    graph = weighted(random_graph(1, 50, 90, directed=False), 1)
    assert graph.weight is not None
    graph.weight[3] = bad
    edge = f"edge from {graph.src[3]} to {graph.dst[3]} has weight {bad:g}"
    for algorithm, arguments in ((LOUVAIN, ()), (MODULARITY, (np.zeros(50),))):
        with pytest.raises(InvalidOption, match=edge):
            run(shards(graph, cut(50, size)), algorithm, *arguments)
    graph.weight[3] = np.inf
    ends = rf"({graph.src[3]} to {graph.dst[3]}|{graph.dst[3]} to {graph.src[3]})"
    with pytest.raises(InvalidOption, match=f"edge from {ends} has weight inf; it must be finite and 0 or more"):
        run(shards(graph, cut(50, size)), LOUVAIN)


def test_neighbours_that_change_places_try_again_in_more_turns() -> None:
    """Two ends of the only heavy edge that choose in one turn swap communities, which gains nothing."""
    pairs, weight = np.array([[0, 1], [1, 2], [2, 3]], IDS), np.array([1, 1000, 2], np.float32)
    path = Graph(4, pairs[:, 0].copy(), pairs[:, 1].copy(), False, "path", weight)
    for seed in range(6):
        got, info = run(shards(path, cut(4, 2)), LOUVAIN, seed=seed)
        assert (got.tolist(), info["modularity"]) == ([0] * 4, 0.0)


def test_what_is_refused() -> None:
    directed, undirected = (shards(random_graph(1, 10, 20, kind), cut(10, 1)) for kind in (True, False))
    with pytest.raises(InvalidOption, match=r"needs in-edges.*reverse=True.*directed=False"):
        run(directed, LOUVAIN)
    for options in (
        {"max_levels": 0},
        {"resolution": -1},
        {"resolution": np.nan},
        {"resolution": "1"},
        {"seed": -1},
        {"seed": 1.5},
    ):
        with pytest.raises(InvalidOption, match=f"{next(iter(options))} is"):
            run(undirected, LOUVAIN, **options)


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_run(size: int) -> None:
    made = shards(random_graph(1, 100, 200, False), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, LOUVAIN)


# ---- the program of all ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("method", ["louvain", "leiden"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_both_drivers(monkeypatch: pytest.MonkeyPatch, tables: str, size: int, method: str, mapped: bool) -> None:
    """They give the same bits, also with inboxes that hold few of a turn's moves."""
    usual_room = level.inbox_room
    for seed, directed in ((1, True), (2, False)):
        print(f"seed {seed}")
        graph = weighted(random_graph(seed, 120, 600, directed, skew=True), seed)
        results = []
        for room in (usual_room, lambda *_: 3 * (size > 1)):
            monkeypatch.setattr(level, "inbox_room", room)
            made = shards(graph, cut(graph.n, size, even=seed == 1), "gpma+", reverse=True, mapped=mapped)
            results.append(run(made, ALGORITHMS[method], seed=seed))
        for labels, info in results[1:]:
            np.testing.assert_array_equal(labels, results[0][0])
            assert info == results[0][1]
        assert results[0][1]["levels"] > 0


@pytest.mark.parametrize("method", ["louvain", "leiden"])
def test_ranks_that_round_differently_decide_alike(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    graph = weighted(random_graph(5, 200, 900, False, skew=True), 5)
    made = [shards(graph, cut(graph.n, 3)) for _ in range(2)]
    labels, info = run(made[0], ALGORITHMS[method], seed=5)
    exact = level.Level._sum_products
    monkeypatch.setattr(level.Level, "_sum_products", lambda self: exact(self) * (1 + self.shard.rank / 4))
    other_labels, other_info = run(made[1], ALGORITHMS[method], seed=5)
    np.testing.assert_array_equal(other_labels, labels)
    assert other_info == info


def test_launches(counted: Counter[str]) -> None:
    """A sweep is one run of the program."""
    shard = shards(random_graph(1, 300, 900, False), cut(300, 1))[0]
    LOUVAIN.run(shard)
    assert counted["Sweep"] >= shard.exchange.world(shard.device).runs > 3


# ---- modularity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_modularity(structure: str, device: str, tables: str, size: int, directed: bool) -> None:
    for seed in range(3):
        print(f"seed {seed}")
        graph = random_graph(seed, 120, (60, 900, 1500)[seed], directed, skew=seed == 2)
        labels = np.random.default_rng(seed).integers(0, (120, 5, 12)[seed], 120)
        for one in (graph, weighted(graph, seed)):
            made = shards(one, cut(one.n, size, even=False), structure, device=device)
            shares, info = run(made, MODULARITY, labels, 0.5 + seed)
            assert info["modularity"] == pytest.approx(quality(one, labels, 0.5 + seed), abs=1e-12)
            assert shares.sum() == pytest.approx(info["modularity"], abs=1e-12)


@pytest.mark.parametrize("size", [1, 2])
def test_modularity_of_little(size: int) -> None:
    for graph, labels in (
        (Graph(0, NONE, NONE, False), []),
        (Graph(4, NONE, NONE), [0, 0, 1, 3]),
        (weighted(random_graph(1, 50, 90), 1, zeros=True), [0] * 50),
    ):
        assert run(shards(graph, cut(graph.n, size)), MODULARITY, np.array(labels, np.int64))[1] == {"modularity": 0.0}


def test_weights_of_any_magnitude() -> None:
    graph = weighted(random_graph(3, 60, 300, directed=False), 3)
    labels = np.random.default_rng(1).integers(0, 4, 60)
    want = quality(graph, labels)
    assert graph.weight is not None
    graph.weight[graph.weight == 0] = -0.0
    for power in (-100, 100):
        scaled = replace(graph, weight=(graph.weight * np.float32(2.0**power)).astype(np.float32))
        got = run(shards(scaled, cut(60, 2)), MODULARITY, labels)[1]["modularity"]
        assert got == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(9), "9 labels and 10 vertices"),
        (5, "labels is 5"),
        (np.full(10, 10), "from 0 to 9"),
        (np.full(10, -1), "from 0 to 9"),
        (np.full(10, 0.5), "from 0 to 9"),
        (np.full(10, np.nan), "from 0 to 9"),
    ],
)
def test_bad_labels(labels: object, message: str, size: int) -> None:
    with pytest.raises(InvalidOption, match=message):
        run(shards(random_graph(1, 10, 20), cut(10, size)), MODULARITY, labels)


# ---- real graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cit-HepPh", "luxembourg_osm"])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, device: str, name: str) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    graph = replace(graph, directed=False)
    got, info = run(shards(graph, cut(graph.n, 1), "gpma+", device=device), LOUVAIN)
    again, _ = run(shards(graph, cut(graph.n, 3), "gpma+", device=device), LOUVAIN)
    np.testing.assert_array_equal(got, again)
    shares, found = run(shards(graph, cut(graph.n, 2), "csr", device=device), MODULARITY, got)
    assert found["modularity"] == pytest.approx(info["modularity"], abs=1e-9)
    assert found["modularity"] > {"cit-HepPh": 0.7, "luxembourg_osm": 0.98}[name]
    assert len(shares) == graph.n
