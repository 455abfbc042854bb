"""Stores of graphs whose edges have times."""

from __future__ import annotations

import pytest
from graph_clusters import HERE
from plain_graph import fresh_rng
from time_model import TimeModel, check, edges_of, random_timed

from mgraph import DynamicGraph

STORED = [
    ({"times": True}, {}),
    ({"window": 40, "directed": False, "weighted": True, "combine": "sum"}, {"structure": "slabgraph"}),
    ({"window": 40, "reverse": True}, {"order": "degree"}),
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
