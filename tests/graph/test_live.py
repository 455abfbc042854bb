"""Results that follow the graph: equal to fresh runs after whatever happens to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from graph_clusters import assert_clean
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph, EdgeBatch
from mgraph.algorithms.components import maintain as components
from mgraph.errors import GraphClosed, InvalidOption, UnknownVertex
from mgraph.sources.rmat import Rmat
from mgraph.structures import names
from mgraph.worker.results import live as worker_live
from mgraph.worker.shard import ring

IDS = np.uint32


def fresh_seed() -> np.random.Generator:
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    return np.random.default_rng(seed)


def assert_same(live: Any, graph: DynamicGraph, arguments: dict[str, Any]) -> None:
    """The maintained result is that of a fresh run, in class, dtype, values, columns and scalars."""
    got, want = live.result(), graph.run(live.name, **arguments)
    assert type(got) is type(want) and got.dtype == want.dtype and got.epoch == live.epoch == graph.epoch
    a, b = got.to_pandas(), want.to_pandas()
    assert list(a.columns) == list(b.columns) and set(got.info) == set(want.info)
    if live.name == "pagerank":
        alpha, tol = arguments.get("alpha", 0.85), arguments.get("tol", 1e-6)
        assert np.abs(a.to_numpy(float) - b.to_numpy(float)).sum(axis=0).max() <= 2 * alpha / (1 - alpha) * tol + 4e-7
        assert got.converged == (got.error < tol)
        return
    for column in b.columns:
        np.testing.assert_array_equal(a[column], b[column], err_msg=f"{live.name} {arguments} {column}: {live.report}")
    for scalar in {"components", "reached", "levels", "total", "pairs"} & set(want.info):
        assert got.info[scalar] == want.info[scalar], (live.name, scalar, live.report)


def random_change(graph: DynamicGraph, rng: np.random.Generator, edges: GraphModel) -> None:
    """Something happens to the graph."""
    n, kind = graph.num_vertices, rng.random()
    if kind < 0.7:
        batch = random_batch(rng, n, int(rng.choice([1, 3, 10, 40])), edges.weighted, deletes=0.3)
        gone = list(edges.edges)  # deletions of edges that are there
        gone = [gone[i] for i in rng.permutation(len(gone))[: int(rng.integers(0, 6))]]
        batch = EdgeBatch(
            np.append(batch.src, [u for u, _ in gone]).astype(IDS),
            np.append(batch.dst, [v for _, v in gone]).astype(IDS),
            None if batch.weight is None else np.append(batch.weight, np.zeros(len(gone))).astype(np.float32),
            np.append(batch.op, -np.ones(len(gone))).astype(np.int8),
        )
        graph.update(batch)
        edges.update(batch)
    elif kind < 0.78:
        dead = rng.integers(0, n, 2)
        graph.delete_vertices(dead)
        edges.delete_vertices(dead.tolist())
    elif kind < 0.86:
        graph.add_vertices(int(rng.integers(1, 4)))
    elif kind < 0.93:
        graph.rebalance()
    else:
        graph.reorder()


KINDS = {
    "undirected": {"directed": False},
    "undirected, weighted": {"directed": False, "weighted": True},
    "directed": {"weighted": True},
    "with in-edges": {"reverse": True, "weighted": True},
}


def followed(directed: bool, reverse: bool) -> list[tuple[str, dict[str, Any]]]:
    """What is maintained on a graph of a kind."""
    found: list[tuple[str, dict[str, Any]]] = [
        ("connected_components", {}),
        ("bfs", {"source": 3}),
        ("bfs", {"source": 5, "predecessors": True}),
        ("pagerank", {}),
        ("pagerank", {"alpha": 0.5, "personalization": {0: 1}, "tol": 1e-9, "dtype": "float64"}),
        ("sssp", {"source": 0}),
        ("sssp", {"source": 1, "dtype": "float64", "predecessors": True}),
    ]
    found += [("bfs", {"source": 2, "direction": "in"})] if reverse or not directed else []
    return found if directed else [*found, ("triangles", {})]


def fuzz(place: Any, kind: dict[str, Any], rounds: int, n: int, **options: Any) -> Counter[str]:
    """Random changes of a graph, and reads at random of all that follows it; how often each way was taken."""
    rng, hows = fresh_seed(), Counter[str]()
    with DynamicGraph(place, n, **{"device": "cpu", **kind, **options}) as graph:
        model = GraphModel(n, kind.get("directed", True), kind.get("weighted", False))
        start = random_batch(rng, n, 2 * n, model.weighted, deletes=0)
        graph.update(start)
        model.update(start)
        what = followed(model.directed, kind.get("reverse", False))
        what = [
            (name, {**given, "source": given["source"] % n} if "source" in given else given) for name, given in what
        ]
        lives = [(graph.maintain(name, **given), given) for name, given in what]
        for _ in range(rounds):
            random_change(graph, rng, model)
            for live, given in lives:
                if rng.random() < 0.4:
                    assert_same(live, graph, given)
                    hows[live.report.how] += 1
    print(hows)
    return hows


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_they_equal_fresh_runs(kind):
    assert fuzz(None, kind, 16, n=150)["incremental"]


@pytest.mark.parametrize("kind", ["undirected, weighted", pytest.param("with in-edges", marks=pytest.mark.slow)])
def test_on_two_workers(client, kind):
    assert fuzz(client, KINDS[kind], 12, n=150)["incremental"]
    assert_clean(client)


@pytest.mark.parametrize("n", [1, 12])
def test_small_graphs(n):
    for kind in KINDS.values():
        fuzz(None, kind, 12, n)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_long_streams(client3, structure, kind):
    for place in (None, client3) if structure == "gpma+" else (None,):
        fuzz(place, kind, 80, n=300, structure=structure)
        fuzz(place, kind, 80, n=40, structure=structure)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_on_a_gpu(kind):
    fuzz(None, kind, 60, n=400, device="cuda")


# ---- what it takes ---------------------------------------------------------------------------------------------------


def test_few_edges_are_visited_for_few_changes():
    rng, n, m = fresh_seed(), 200_000, 1_000_000
    src, dst = rng.integers(0, n, (2, m), dtype=IDS)
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        graph.insert(src, dst)
        given = {"connected_components": {}, "bfs": {"source": 0}, "sssp": {"source": 0}, "triangles": {}}
        lives = [graph.maintain(name, **arguments) for name, arguments in given.items()]
        cheap: Counter[str] = Counter()
        for _ in range(20):
            gone, new = rng.integers(0, m, 5), rng.integers(0, n, (2, 5), dtype=IDS)
            op = np.repeat([1, -1], 5).astype(np.int8)
            graph.update(EdgeBatch(np.append(new[0], src[gone]), np.append(new[1], dst[gone]), op=op))
            for live in lives:
                live.result()
                cheap[live.name] += live.report.how != "again" and live.report.edges < graph.num_edges / 100
                assert live.report.touched <= 10
        print(cheap)
        assert min(cheap.values()) >= 0.9 * 20
        for live in lives:
            assert_same(live, graph, given[live.name])


def line(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(n - 1, dtype=IDS), np.arange(1, n, dtype=IDS)


def test_the_report_says_what_was_done():
    with DynamicGraph(n_vertices=1000, directed=False, device="cpu") as graph:
        graph.insert(*line(1000))
        live = graph.maintain("bfs", source=0)
        assert (live.report.how, live.epoch) == ("again", 1)
        first = live.result()
        assert (live.report.how, live.report.touched, live.report.edges) == ("unchanged", 0, 0)
        graph.delete([5], [500])  # which is not there
        live.result()
        assert (live.report.how, live.report.touched, live.epoch) == ("unchanged", 0, 2)
        graph.insert([0], [990])
        assert live.result()[990] == 1
        assert (live.report.how, live.report.touched) == ("incremental", 1)
        assert 0 < live.report.edges < 1998 and live.report.ms > 0
        graph.insert([7], [9])
        graph.delete([7], [9])
        live.result()
        assert (live.report.how, live.report.touched) == ("unchanged", 0)
        graph.reorder()
        assert live.result()[990] == 1 and live.report.how == "again"
        assert first[990] == 990  # what was read earlier stays
        assert "bfs" in repr(live) and "again" in repr(live)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_long_ways_with_ties(device, monkeypatch):
    """On a torus with three weights, a vertex has several ways of the same length, and what is cut off is long."""
    monkeypatch.setattr(worker_live, "FEW", 10**9)  # nothing is given up, or left out
    monkeypatch.setattr(worker_live, "SLOWER", 1e9)
    rng, side = fresh_seed(), 40
    ids = np.arange(side * side, dtype=IDS)
    src = np.tile(ids, 2)
    dst = np.append((ids % side + 1) % side + ids // side * side, (ids + side) % len(ids)).astype(IDS)
    with DynamicGraph(n_vertices=len(ids), directed=False, weighted=True, device=device) as graph:
        graph.insert(src, dst, rng.integers(1, 4, len(src)).astype(np.float32))
        given = {"sssp": {"source": 7}, "bfs": {"source": 3}, "connected_components": {}, "pagerank": {}}
        lives = [graph.maintain(name, **arguments) for name, arguments in given.items()]
        for k in (1, 5, 60, 200, 5, 60):
            at = rng.choice(len(src), k, replace=False)
            weights = rng.integers(1, 4, k).astype(np.float32)
            graph.update(EdgeBatch(src[at], dst[at], weights, rng.choice([1, 1, -1], k).astype(np.int8)))
            for live in lives:
                assert_same(live, graph, given[live.name])
                assert live.report.how != "again"


def test_the_error_of_ranks_is_that_of_the_way_they_were_found():
    with DynamicGraph(n_vertices=60, directed=False, device="cpu") as graph:
        graph.insert(*line(60))
        live = graph.maintain("pagerank")
        assert live.result().error == graph.pagerank().error
        graph.insert([3], [4])
        assert live.result().error == graph.pagerank().error and live.report.how == "unchanged"
        graph.insert([7], [9])
        assert_same(live, graph, {})


def test_what_the_ring_has_lost_is_computed_again(monkeypatch):
    monkeypatch.setattr(ring, "LEAST", 8)
    with DynamicGraph(n_vertices=60, directed=False, device="cpu") as graph:
        graph.insert(*line(12))
        live = graph.maintain("connected_components")
        graph.insert([20], [21])
        assert live.result().components == 60 - 11 - 1 and live.report.how == "incremental"
        graph.insert([30, 32, 34], [31, 33, 35])
        graph.insert([40, 42, 44], [41, 43, 45])
        assert live.result().components == 60 - 11 - 7 and live.report.how == "again"


def test_many_new_components_and_many_visits_are_left_to_a_fresh_run(monkeypatch):
    monkeypatch.setattr(components, "PIECES", 3)
    pairs = np.arange(0, 40, 2)
    with DynamicGraph(n_vertices=2000, directed=False, device="cpu") as graph:
        graph.insert(np.repeat(1999, 20), pairs)
        graph.insert(pairs, pairs + 1)
        live = graph.maintain("connected_components")
        graph.delete([1999] * 2, [0, 2])
        assert live.result().components == 1960 + 2 and live.report.how == "incremental"
        graph.delete([1999] * 10, pairs[2:12])
        assert live.result().components == 1960 + 12 and live.report.how == "again"


def test_large_components_that_are_joined_keep_their_roots_only(monkeypatch):
    monkeypatch.setattr(worker_live, "FEW", 1)
    with DynamicGraph(n_vertices=200, directed=False, device="cpu") as graph:
        graph.insert(*line(100))
        graph.insert(*(ends + IDS(100) for ends in line(100)))
        live = graph.maintain("connected_components")
        graph.insert([50], [150])
        assert live.result().components == 1 and (live.report.how, live.report.edges) == ("incremental", 0)
        graph.delete([50], [150])
        assert live.result().components == 2 and live.report.how == "again"


@pytest.fixture
def only_roots(monkeypatch):
    """Components are found so quickly that only their roots are kept."""
    monkeypatch.setattr(components, "LARGE", 0)
    monkeypatch.setattr(components, "QUICK", 1e9)


def test_where_only_roots_are_kept_small_parts_that_are_cut_off_are_found(only_roots):
    with DynamicGraph(n_vertices=60, directed=False, device="cpu") as graph:
        graph.insert(*line(50))
        live = graph.maintain("connected_components")
        graph.insert([49], [55])
        assert live.result().components == 10 and (live.report.how, live.report.edges) == ("incremental", 0)
        graph.delete([41, 55], [42, 49])  # 8 vertices and 1
        assert live.result().components == 12 and live.report.how == "incremental"
        assert live.result()[45] == 42 and live.result()[55] == 55
        graph.delete([20], [21])  # 21
        assert live.result().components == 13 and live.report.how == "again"
        graph.delete([19, 18], [20, 20])  # only one of them is there; 20 was between nobody
        assert live.result().components == 14 and live.report.how == "incremental"


@pytest.mark.parametrize("n", [12, 60])
def test_where_only_roots_are_kept_they_equal_fresh_runs(only_roots, n):
    rng, hows = fresh_seed(), Counter[str]()
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        model = GraphModel(n, False, False)
        star = EdgeBatch(np.zeros(n - 3, IDS), np.arange(1, n - 2, dtype=IDS))  # near whose hub ways are short
        graph.update(star)
        model.update(star)
        live = graph.maintain("connected_components")
        for _ in range(60):
            random_change(graph, rng, model)
            assert_same(live, graph, {})
            hows[live.report.how] += 1
    print(hows)
    assert hows["incremental"] > 1


def test_going_on_that_is_slow_is_left_out_for_some_time(monkeypatch):
    """After three times in a row, once, then twice and so on; not for batches of less than half the size."""
    monkeypatch.setattr(worker_live, "SLOWER", -1e9)  # always
    pairs = np.arange(0, 40, 2)
    with DynamicGraph(n_vertices=2000, directed=False, device="cpu") as graph:
        live = graph.maintain("bfs", source=0)
        hows = []
        for number in range(10):
            graph.insert(pairs[:8] + 40 * number, pairs[:8] + 40 * number + 1)
            live.result()
            hows.append(live.report.how == "again")
        assert hows == [False] * 3 + [True] + [False] + [True] * 2 + [False] + [True] * 2
        graph.insert([1000], [1001])
        assert live.result().levels == 2 and live.report.how == "unchanged"


# ---- eager, closed, refused ------------------------------------------------------------------------------------------


def test_eager_results_are_ready_after_each_change(place, caplog):
    with DynamicGraph(place, 50, directed=False, device="cpu") as graph:
        live = graph.maintain("connected_components", eager=True)
        lazy = graph.maintain("bfs", source=0)
        changes = (
            lambda: graph.insert([0, 1], [1, 2]),
            lambda: graph.add_vertices(3),
            lambda: graph.delete_vertices([1]),
            lambda: graph.ingest(Rmat(5, 10), steps=2),
        )
        for change in changes:
            change()
            assert live.epoch == graph.epoch > lazy.epoch
        with graph.pipeline() as pipeline:
            pipeline.update(EdgeBatch([7], [8]))
        assert live.epoch == graph.epoch
        live.result()
        assert live.report.how == "unchanged"
        assert_same(live, graph, {})
        assert_same(lazy, graph, {"source": 0})
        live.close()
        graph.insert([9], [10])
    assert not [one for one in caplog.records if one.name.startswith("mgraph")]


def test_memory_is_reported_and_freed():
    with DynamicGraph(n_vertices=10_000, directed=False, device="cpu") as graph:
        graph.insert(*line(10_000))
        before = graph.nbytes
        with graph.maintain("connected_components") as one:
            both = graph.maintain("sssp", source=0)
            held = graph.nbytes
            assert held > before + 3 * 80_000
            graph.insert(np.arange(0, 5000, 5), np.arange(7, 5007, 5))
            assert graph.nbytes > held
            result = one.result()
        both.close()
        both.close()
        assert result.components == 1
        result.close()
        graph.degrees([0])
        assert graph.nbytes < before + 80_000
        with pytest.raises(GraphClosed, match="sssp"):
            both.result()
        live = graph.maintain("bfs", source=1)
    with pytest.raises(GraphClosed):
        live.result()


def test_what_cannot_be_maintained():
    with DynamicGraph(n_vertices=10, weighted=True, device="cpu") as graph:
        with pytest.raises(InvalidOption, match="'louvain'.*'bfs'"):
            graph.maintain("louvain")
        with pytest.raises(UnknownVertex, match="10"):
            graph.maintain("bfs", source=10)
        with pytest.raises(TypeError):
            graph.maintain("bfs", sauce=1)
        with pytest.raises(InvalidOption, match="directed=False"):
            graph.maintain("triangles")


@pytest.mark.parametrize("name", ["connected_components", "pagerank", "triangles"])
def test_an_interrupted_read_is_done_again(monkeypatch, name):
    """What was brought up to date when the read was interrupted is not gone on with as if it were older."""
    with DynamicGraph(n_vertices=40, directed=False, device="cpu") as graph:
        graph.insert(*line(40))
        live = graph.maintain(name)
        graph.insert(np.zeros(20, IDS), np.arange(20, dtype=IDS))
        with monkeypatch.context() as patch:
            patch.setattr(worker_live, "_longest", lambda shard, began: 1 / 0)
            for _ in range(2):  # while it goes on, and while it is computed again
                with pytest.raises(ZeroDivisionError):
                    live.result()
        assert_same(live, graph, {})
        assert live.report.how == "again"


def test_a_graph_that_grows_from_nothing():
    with DynamicGraph(directed=False, device="cpu") as graph:
        lives = [graph.maintain(name) for name in ("connected_components", "pagerank", "triangles")]
        for ends in (([0, 1], [1, 2]), ([2, 70], [0, 70]), ([500], [3])):
            graph.insert(*ends)
            for live in lives:
                assert_same(live, graph, {})


def test_an_error_leaves_what_can_be_read_again(place):
    with DynamicGraph(place, 10, weighted=True, device="cpu") as graph:
        graph.insert([0, 1], [1, 2], [1, 1])
        live = graph.maintain("sssp", source=0)
        eager = graph.maintain("sssp", eager=True, source=0)
        graph.insert([2], [3], [-1])  # the batch is committed
        for one in (live, eager):
            with pytest.raises(InvalidOption, match="from 2 to 3 has weight -1"):
                one.result()
        graph.insert([2], [3], [4])
        for one in (live, eager):
            assert one.result()[3] == 6
