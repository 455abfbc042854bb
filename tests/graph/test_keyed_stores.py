"""Graphs with keys in stores, and that move to other workers or to this process, against a dict of edges."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from graph_clusters import HERE, assert_clean
from keyed_model import Model, check, keys_of
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, Operations

KINDS = ["int64", "string"]


def stored(graph: DynamicGraph) -> tuple:
    """What a graph has, by keys."""
    return graph.keys, graph.vertices().tolist(), found_edges(graph)


def found_edges(graph: DynamicGraph) -> set:
    frame = graph.to_pandas()
    return set(zip(frame["source"].tolist(), frame["target"].tolist(), strict=True))


@pytest.mark.parametrize("kind", ["string", pytest.param("int64", marks=pytest.mark.slow)])
def test_a_store_on_other_numbers_of_workers(client3, tmp_path, kind):
    rng, then, workers = fresh_rng(), [], None
    graph = DynamicGraph(client3, store=tmp_path / "s", retain=0, snapshot_bytes=0)
    for size in (HERE, 3, 2):
        with graph:
            workers = workers or list(graph.workers)
            for step in range(4):
                src, dst = (keys_of(kind, ends) for ends in rng.integers(1, 60, (2, 25)))
                graph.insert(src, dst)
                then.append(stored(graph))
                some = graph.vertices().tolist()
                if step == 1:
                    with pytest.raises(InvalidBatch):
                        graph.insert(src, [None] * len(dst))
                    graph.delete(src[:9], dst[:9])
                elif step == 2:
                    graph.delete_vertices(some[2 : 2 + len(some) // 2])
                elif step == 3:
                    graph.add_vertices([*some, *keys_of(kind, rng.integers(60, 80, 3))])
                else:
                    graph.insert(some[:1], some[-1:])
                then.append(stored(graph))
                if step == 3 and size in (HERE, 2):
                    graph.snapshot()
            assert len(then) == graph.epoch
            for epoch in rng.integers(1, graph.epoch + 1, 2).tolist():
                with graph.at(epoch) as earlier:
                    assert stored(earlier) == then[epoch - 1], epoch
            graph.save(tmp_path / f"saved {size}")
        with DynamicGraph.load(None, tmp_path / f"saved {size}") as saved:
            assert stored(saved) == then[-1]
        where = {"client": None} if size == HERE else {"client": client3, "workers": workers[:size]}
        graph = DynamicGraph.open(**where, store=tmp_path / "s", retain=0)
        assert stored(graph) == then[-1]
        assert graph.epoch == len(then)
    graph.delete_vertices(graph.vertices())
    graph.close()
    with DynamicGraph.open(None, tmp_path / "s") as graph:
        assert stored(graph) == (kind, [], set())
        graph.insert(keys_of(kind, [7]), keys_of(kind, [7]))
        assert graph.vertices().tolist() == keys_of(kind, [7])
    assert_clean(client3)


class Numbers:
    """Places 0 to n - 1 of a source, a batch of keys each."""

    def __init__(self, n):
        self.n = n

    def batches(self, after):
        for i in range(after.get("numbers", -1) + 1, self.n):
            yield ("numbers", i), {"src": [f"v{i}"], "dst": [f"v{i + 1}"]}


def test_a_source_of_keys_is_followed_once_in_a_graph_that_moves(client, tmp_path):
    with DynamicGraph(store=tmp_path / "store", snapshots=f"file://{tmp_path / 'archive'}") as graph:
        assert (graph.follow(Numbers(3)), graph.keys) == (3, "string")
        graph.delete_vertices(["v1"])
        graph.snapshot()
        assert list((tmp_path / "archive").rglob("keys.arrow"))
        graph.move_to(client)
        assert (graph.follow(Numbers(5)), graph.vertices().tolist()) == (2, ["v0", "v2", "v3", "v4", "v5"])
        assert graph.has_edges(["v2", "v4"], ["v3", "v5"]).tolist() == [True, True]


@pytest.mark.parametrize(("kind", "directed"), [("string", False), pytest.param("int64", True, marks=pytest.mark.slow)])
def test_changes_are_of_keys(client, tmp_path, kind, directed):
    rng, models = fresh_rng(), [Model(directed)]
    with DynamicGraph(store=tmp_path / "s", keys=kind, weighted=True, directed=directed, retain=0) as graph:
        for _ in range(4):
            src, dst = (keys_of(kind, ends) for ends in rng.integers(0, 30, (2, 60)))
            op, weight = np.where(rng.random(60) < 0.4, -1, 1), rng.integers(1, 4, 60).astype(float)
            graph.update(EdgeBatch(src, dst, weight, op, keys=kind))
            models.append(copy.deepcopy(models[-1]))
            models[-1].update(src, dst, weight.tolist(), op.tolist())
            gone = list(models[-1].vertices)[::4]
            graph.delete_vertices(gone)
            models.append(copy.deepcopy(models[-1]))
            models[-1].remove(gone)
        if kind == "string":
            graph.move_to(client)
        for first, last in [(0, 8), (5, None), (7, 2), (8, 0), (3, 3)]:
            frame = graph.changes(first, last)
            old, new = models[first].edges, models[8 if last is None else last].edges
            found = {
                models[0].key(row.src, row.dst): (row.change, *(None if w != w else w for w in (row.before, row.after)))
                for row in frame.itertuples()
            }
            assert len(found) == len(frame)
            assert found == {
                edge: (
                    "deleted" if edge not in new else "updated" if edge in old else "inserted",
                    old.get(edge),
                    new.get(edge),
                )
                for edge in {*old, *new}
                if old.get(edge) != new.get(edge)
            }
            place = {key: i for i, key in enumerate(models[8 if last is None else last].vertices)}
            at = [place.get(key, len(place)) for key in frame["src"]]
            assert at == sorted(at)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_without_a_store_moves_with_its_keys(client, kind):
    rng, directed = fresh_rng(), kind == "string"
    with DynamicGraph(keys=kind, weighted=True, directed=directed) as graph:
        graph.move_to(client)
        assert (graph.keys, graph.num_vertices, graph.epoch) == (kind, 0, 0)
        src, dst = (keys_of(kind, ends) for ends in rng.integers(0, 30, (2, 80)))
        model = Model(directed)
        model.update(src, dst, [2.5] * 80, [1] * 80)
        graph.insert(src, dst, [2.5] * 80)
        graph.delete_vertices(src[:1])
        model.remove(src[:1])
        for to in (None, client):
            graph.move_to(to)
            assert graph.epoch == 2
            check(graph, model, rng)
    with DynamicGraph() as graph:
        graph.insert(["a"], ["b"])
        graph.move_to(None)
        assert (graph.keys, graph.vertices().tolist()) == ("string", ["a", "b"])


def test_a_stream_of_ids_decides_for_ids():
    with DynamicGraph() as graph:
        assert graph.execute(Operations(["insert", "has_edge"], [5000, 0], [1, 1])).has_edge.tolist() == [False]
        assert (graph.keys, graph.num_vertices) == (None, 5001)
        graph.move_to(None)
        assert (graph.keys, graph.num_vertices, graph.epoch) == (None, 5001, 1)
