"""Stores of graphs whose edges have times."""

from __future__ import annotations

import numpy as np
import pytest
from graph_clusters import HERE
from plain_graph import fresh_rng
from time_model import TimeModel, check, edges_of, named, random_timed

from mgraph import DynamicGraph
from mgraph.log.manifest import BY_KEY
from mgraph.log.store import Store

STORED = [
    pytest.param({"times": True}, {}, marks=pytest.mark.slow),
    ({"window": 40, "directed": False, "weighted": True, "combine": "sum"}, {"structure": "slabgraph"}),
    pytest.param({"window": 40, "reverse": True}, {"order": "degree"}, marks=pytest.mark.slow),
    ({"window_edges": 30, "directed": False, "weighted": True}, {"order": "degree"}),
]


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize(("kind", "opened"), STORED, ids=str)
def test_a_store_gives_times_and_window_back(client3, tmp_path, kind, opened, snapshot):
    rng, store = fresh_rng(), tmp_path / "store"
    how = {name: kind[name] for name in ("directed", "combine", "window", "window_edges") if name in kind}
    model, then = TimeModel(**how), {}
    weighted = kind.get("weighted", False)
    with DynamicGraph(n_vertices=12, store=store, **kind) as graph:
        for now in range(0, 100, 10):
            batch = random_timed(rng, 12, 40, now, 30, weighted)
            check(graph, model, graph.update(batch), model.update(batch))
            then[graph.epoch] = model.edges()
            if now == 50:
                graph.snapshot() if snapshot else None
                assert graph.expire(25).expired == model.expire(25)
    for size in (3, HERE):
        with DynamicGraph.open(*([client3] if size else [None]), store, **opened) as graph:
            check(graph, model)
            for now in (95, 100):
                batch = random_timed(rng, 12, 40, now, 30, weighted)
                check(graph, model, graph.update(batch), model.update(batch))
            if size == HERE and snapshot:
                graph.save(tmp_path / "saved")
                with graph.at(max(then)) as earlier:
                    assert edges_of(earlier) == then[max(then)]
    if snapshot:
        with DynamicGraph.load(None, tmp_path / "saved") as graph:
            batch = random_timed(rng, 12, 40, 105, 30, weighted)
            check(graph, model, graph.update(batch), model.update(batch))


KEYED = [
    pytest.param({}, "int64", marks=pytest.mark.slow),
    pytest.param({"directed": False, "weighted": True, "combine": "sum"}, "string", marks=pytest.mark.slow),
    ({"reverse": True, "drop_isolated": True}, "string"),
]


@pytest.mark.parametrize("size", [HERE, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "keys"), KEYED, ids=str)
def test_of_edges_of_one_time_those_with_the_least_keys_leave(client3, tmp_path, kind, keys, size):
    """Whatever the order in which keys come, live and again from the log, after snapshots and removals."""
    rng, store = fresh_rng(), tmp_path / "store"
    vertices = rng.integers(-50, 50, 12).cumsum() * 1_000_003
    vertices = vertices if keys == "int64" else np.array([f"{v % 97}é{i}" for i, v in enumerate(vertices)], object)
    model = TimeModel(kind.get("directed", True), kind.get("combine", "last"), None, 25)
    weighted, then = "combine" in kind, {}
    client = client3 if size else None
    graphs = [DynamicGraph(client, keys=keys, window_edges=25, store=store, **kind)]
    if "drop_isolated" not in kind:
        graphs.append(DynamicGraph(client, window_edges=25, **kind))  # decides by its first batch, and has no store

    def update(now: int) -> None:
        batch = named(random_timed(rng, 12, int(rng.choice([1, 30])), now, int(rng.choice([0, 2])), weighted), vertices)
        did = model.update(batch)
        for graph in graphs:
            check(graph, model, graph.update(batch), did)

    for now in range(0, 60, 3):
        update(now)
        then[graphs[0].epoch] = model.edges()
        if now == 30:
            graphs[0].snapshot()
        if now == 45:
            gone = next(iter(model.made))[0]
            model.made = {edge: made for edge, made in model.made.items() if gone not in edge}
            for graph in graphs:
                graph.delete_vertices([gone])
    graphs.pop(0).close()
    for again in (client3, None):
        graphs.insert(0, DynamicGraph.open(again, store))
        check(graphs[0], model)
        for now in range(60, 70, 3):
            update(now)
        for epoch in sorted(then)[-3::2]:
            with graphs[0].at(epoch) as earlier:
                assert edges_of(earlier) == then[epoch]
        graphs.pop(0).close()
    for graph in graphs:
        graph.close()


def test_a_store_of_an_earlier_format_goes_on_by_the_order_in_which_keys_came(tmp_path):
    store = tmp_path / "store"
    with DynamicGraph(keys="int64", window_edges=2, store=store) as graph:
        graph.insert([30, 10, 20], [1, 1, 1], time=[0, 0, 0])
        assert sorted(graph.to_pandas()["source"]) == [20, 30]
    files = Store(str(store))
    assert files.about()["format"] >= BY_KEY
    files.describe("store.json", {**files.about(), "format": 2})
    with DynamicGraph.open(None, store) as graph:
        assert sorted(graph.to_pandas()["source"]) == [10, 20]  # 30 came first
        graph.insert([5], [1], time=[0])
        assert sorted(graph.to_pandas()["source"]) == [5, 20]
    with DynamicGraph.open(None, store) as graph:
        assert sorted(graph.to_pandas()["source"]) == [5, 20]


def test_a_store_keeps_the_steps_of_an_ingest(tmp_path):
    rng = fresh_rng()
    model, parts = TimeModel(window=40), [random_timed(rng, 12, 30, now, 20, False) for now in range(0, 100, 15)]
    with DynamicGraph(keys="int64", window=40, store=tmp_path / "keyed") as graph:
        graph.insert([100, 200], [200, 300], time=[5, 50])
    with DynamicGraph(n_vertices=12, window=40, store=tmp_path / "store") as graph:
        graph.ingest(lambda rank, size, step: parts[step] if step < len(parts) else None)
        for part in parts:
            model.update(part)
        check(graph, model)
    with DynamicGraph.open(None, tmp_path / "store") as graph:
        check(graph, model)
    with DynamicGraph.open(None, tmp_path / "keyed") as graph:
        assert graph.to_pandas().values.tolist() == [[200, 300, 50]]
