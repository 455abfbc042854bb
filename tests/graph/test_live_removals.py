"""Maintained results go on while vertices without edges leave the graph, as those of a window do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from graph_clusters import HERE, on
from live_results import assert_same
from plain_graph import fresh_rng

from mgraph import DynamicGraph, UnknownVertex
from mgraph.algorithms.communities.dynamic import Communities, Names
from mgraph.algorithms.density.triangles.maintain import Triangles
from mgraph.errors import CapacityError
from mgraph.worker.results import maintained
from mgraph.worker.shard.results import Tried

FRAUD: dict[str, Any] = {"keys": "int64", "window": 3000, "drop_isolated": True}
KINDS: dict[str, dict[str, Any]] = {
    "undirected": {"directed": False},
    "weighted": {"directed": False, "weighted": True},
    "reverse": {"reverse": True, "weighted": True},
    "directed": {"weighted": True},
}
FOLLOWED: list[tuple[str, dict[str, Any]]] = [
    ("connected_components", {}),
    ("pagerank", {}),
    ("bfs", {"source": 0}),
    ("bfs", {"source": 0, "predecessors": True}),
    ("sssp", {"source": 0, "dtype": "float64"}),
    ("triangles", {}),
]


def followed_in(kind: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The results that a graph of this kind has."""
    left_out = {"triangles"} if kind.get("directed", True) else set()
    left_out |= set() if kind.get("weighted") else {"sssp"}
    return [(name, given) for name, given in FOLLOWED if name not in left_out]


def payments(rng: np.random.Generator, step: int, n: int = 40) -> tuple[np.ndarray, ...]:
    """Edges among accounts that come and go with time, and between the account 0, which stays, and some of them."""
    src, dst = (20 * step + rng.integers(0, 1000, n) for _ in range(2))
    src[:3], dst[:3] = 0, 20 * step + np.arange(3)
    return src, dst, rng.random(n).astype(np.float32) + 0.5, 100 * step + np.sort(rng.integers(0, 100, n))


@pytest.fixture
def timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No update in this process takes long, whatever else the machine does."""
    monkeypatch.setattr(maintained, "_longest", lambda shard, watch: (0.0, shard.out_edges.num_edges))
    monkeypatch.setattr(maintained, "Tried", lambda seconds, *update: Tried(0.0, *update))


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("reverse", HERE),
        pytest.param("undirected", 3, marks=pytest.mark.slow),
        *(pytest.param(kind, HERE, marks=pytest.mark.slow) for kind in KINDS if kind != "reverse"),
        pytest.param("reverse", 3, marks=pytest.mark.slow),
    ],
)
def test_results_go_on_while_accounts_leave(request, timeless, kind, size):
    client3 = None if size == HERE else request.getfixturevalue("client3")
    rng, how, gone, live = fresh_rng(), Counter(), 0, []
    with DynamicGraph(**on(client3, size), **FRAUD, **KINDS[kind]) as graph:
        for step in range(45):
            src, dst, weight, time = payments(rng, step)
            before = len(graph) + len({*src.tolist(), *dst.tolist()} - set(graph.vertices().tolist()))
            graph.insert(src, dst, weight if graph.weighted else None, time)
            gone += before - len(graph)
            if step < 30:  # the window does not move yet
                continue
            live = live or [(graph.maintain(name, **given), given) for name, given in followed_in(KINDS[kind])]
            for one, given in live:
                assert_same(one, graph, given)
                how[one.report.how] += step > 30
    assert gone > 100
    if size == HERE and kind != "directed":  # without in-edges, nobody knows what a deletion cuts off
        assert how["recomputed"] <= 0.1 * how.total(), how


@pytest.mark.parametrize("kind", ["weighted", pytest.param("reverse", marks=pytest.mark.slow)])
def test_reads_between_several_removals(timeless, kind):
    rng, how, live = fresh_rng(), Counter(), []
    with DynamicGraph(**FRAUD, **KINDS[kind]) as graph:
        for step in range(50):
            src, dst, weight, time = payments(rng, step)
            graph.insert(src, dst, weight, time)
            if step >= 30 and step % 4 == 0:
                live = live or [(graph.maintain(name, **given), given) for name, given in followed_in(KINDS[kind])]
                for one, given in live:
                    assert_same(one, graph, given)
                    how[one.report.how] += step > 33
    assert how["recomputed"] <= 0.1 * how.total(), how


def test_removals_without_a_read_are_not_followed_for_long(monkeypatch):
    monkeypatch.setattr(maintained, "_longest", lambda shard, watch: (1.0, shard.out_edges.num_edges))
    rng = fresh_rng()
    with DynamicGraph(**FRAUD, directed=False) as graph:
        for step in range(31):
            graph.insert(*payments(rng, step)[:2], time=100 * step)
        live = graph.maintain("pagerank")
        made = []
        for step in range(31, 40):
            graph.insert(*payments(rng, step)[:2], time=100 * step)
            (state,) = graph._directory.coordinator._session.calls.shard.maintained.values()
            made.append(state.result is not None)
        assert made == [True] * 3 + [False] * 6  # updates may take twice as long as computing it
        assert_same(live, graph, {})
        assert live.report.how == "recomputed"


def test_a_source_that_leaves_and_vertices_that_are_dropped_by_hand(timeless):
    with DynamicGraph(keys="string", directed=False) as graph:
        graph.insert([("a", "b"), ("b", "c"), ("c", "d"), ("x", "y"), ("y", "z"), ("z", "x")])
        paths, labels, ranks, corners = (
            graph.maintain(name, **given)
            for name, given in (
                ("bfs", {"source": "a"}),
                ("connected_components", {}),
                ("pagerank", {}),
                ("triangles", {}),
            )
        )
        graph.delete([("c", "d")])
        assert (graph.drop_isolated(), graph.num_vertices) == (1, 6)
        for one, given in ((paths, {"source": "a"}), (labels, {}), (ranks, {}), (corners, {})):
            assert_same(one, graph, given)
            assert one.report.how == "incremental"
            assert one.report.touched == 1
            one.result()
            assert one.report.how == "unchanged"
        assert labels.result()["c"] == "a"
        graph.delete([("a", "b")])
        graph.drop_isolated()
        with pytest.raises(UnknownVertex):
            paths.result()
        for one in (labels, ranks, corners):
            assert_same(one, graph, {})
            assert one.report.how == "incremental"
        graph.insert("a", "b")
        assert_same(paths, graph, {"source": "a"})
        graph.delete_vertices(["x"])  # with edges
        for one in (labels, ranks, corners):
            assert_same(one, graph, {})
            assert one.report.how == "recomputed"


@pytest.mark.parametrize("name", ["triangles", "pagerank", "connected_components"])
def test_an_interrupted_removal_leaves_no_result_that_takes_its_changes_twice(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rng = fresh_rng()
    with DynamicGraph(keys="int64", directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, 60, (2, 150)))
        live = graph.maintain(name)
        live.result()
        graph.insert(*rng.integers(0, 60, (2, 30)))
        graph.insert([1000], [1001])
        graph.delete([1000], [1001])
        with monkeypatch.context() as patch:
            # Ctrl-C ends the call where the ranks tell how long an update took.
            patch.setattr(maintained, "_longest", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                graph.drop_isolated()
        assert_same(live, graph, {})
        assert live.report.how == "recomputed"
        graph.drop_isolated()
        assert_same(live, graph, {})


@pytest.mark.parametrize("drop", ["drop_isolated", "delete_vertices"])
@pytest.mark.parametrize("error", [CapacityError, MemoryError])
def test_a_removal_goes_on_where_names_run_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, drop: str, error: type[Exception]
) -> None:
    def fails(*_: object) -> None:
        raise error("no memory is left")

    rng = fresh_rng()
    with DynamicGraph(keys="int64", directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, 60, (2, 150)))
        lives = graph.maintain("leiden"), graph.maintain("triangles")
        before = set(lives[0].names().to_numpy().tolist())
        graph.insert([1000], [1001])
        lives[0].result()
        graph.delete([1000], [1001])
        n = graph.num_vertices
        with monkeypatch.context() as patch:
            patch.setattr(Names, "remove", fails)
            if drop == "drop_isolated":
                assert graph.drop_isolated() == 2
            else:
                graph.delete_vertices([1000, 1001])
        assert graph.num_vertices == len(lives[0].result()) == n - 2
        assert before.isdisjoint(lives[0].names().to_numpy().tolist())
        graph.insert([0], [2000])
        lives[0].result()
        assert lives[0].report.how == "incremental"
        assert_same(lives[1], graph, {})


@pytest.mark.parametrize("error", [CapacityError, MemoryError])
def test_a_removal_goes_on_where_results_run_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fails(*_: object) -> None:
        raise error("no memory is left")

    rng = fresh_rng()
    with DynamicGraph(keys="int64", directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, 60, (2, 150)))
        graph.insert([1000], [1001])
        communities, triangles = graph.maintain("leiden"), graph.maintain("triangles")
        before = communities.names().to_series().to_dict()
        graph.delete([1000], [1001])
        with monkeypatch.context() as patch:
            patch.setattr(Communities, "renumber", fails)
            assert graph.drop_isolated() == 2
        after = communities.names().to_series().to_dict()
        assert communities.report.how == "recomputed"
        assert {*after} == {*before} - {1000, 1001}
        assert {*after.values()} & {*before.values()}
        assert_same(triangles, graph, {})
        assert triangles.report.how == "incremental"


def test_a_removal_that_stops_among_the_results_leaves_none_with_old_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    with DynamicGraph(keys="int64", directed=False, device="cpu") as graph:
        graph.insert([5, 6, 1000, 1, 2, 3], [6, 7, 1001, 2, 3, 1])
        triangles, communities = graph.maintain("triangles"), graph.maintain("leiden")
        before = communities.names().to_series().to_dict()
        graph.delete([1000], [1001])
        with monkeypatch.context() as patch:
            patch.setattr(Triangles, "renumber", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                graph.drop_isolated()
        assert graph.num_vertices == 6
        assert communities.result().to_numpy().tolist() == graph.leiden().to_numpy().tolist()
        assert_same(triangles, graph, {})
        assert [live.report.how for live in (communities, triangles)] == ["recomputed", "recomputed"]
        assert communities.names().to_series().to_dict() == {key: before[key] for key in (5, 6, 7, 1, 2, 3)}


@pytest.mark.parametrize("name", ["connected_components", "leiden"])
def test_changes_from_before_a_deletion_of_vertices_are_not_renumbered_after_it(name):
    """Their ids are past the end of a later order."""
    with DynamicGraph(keys="int64", directed=False, device="cpu") as graph:
        graph.insert(range(999), range(1, 1000))
        live = graph.maintain(name)
        graph.insert(range(950, 997), range(952, 999))
        assert graph.memory().workers[0].change_log > 0
        graph.delete_vertices(range(10, 1000))
        assert graph.memory().workers[0].change_log == 0
        for _ in range(3):
            graph.reorder()
        graph.insert([0], [2])
        assert live.result().to_numpy().tolist() == getattr(graph, name)().to_numpy().tolist()


def test_ranks_of_a_graph_whose_vertices_are_all_new() -> None:
    with DynamicGraph(keys="string", drop_isolated=True) as graph:
        graph.add_vertices(["a", "b"])
        live = graph.maintain("pagerank", tol=1e-9)
        graph.delete([], [])
        assert live.result().to_numpy().tolist() == []
        graph.insert(["c"], ["d"])
        assert_same(live, graph, {"tol": 1e-9})
