"""A graph is moved between this process and workers, with a store and without, and goes on there."""

from __future__ import annotations

import numpy as np
import pytest
from graph_clusters import addresses, assert_clean
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng
from test_store import assert_graph

from mgraph import DynamicGraph, GraphClosed, InvalidOption, StoreError
from mgraph.client.creation import moving

N = 40


@pytest.mark.parametrize(
    ("stored", "kind"),
    [pytest.param(True, {}, marks=pytest.mark.slow), (False, {"weighted": True, "directed": False})],
    ids=["stored", "not stored"],
)
def test_here_there_and_back(client, tmp_path, monkeypatch, stored, kind):
    monkeypatch.setattr(moving, "CHUNK", 100)  # so that there are several
    rng, model = fresh_rng(), GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    store = {"store": tmp_path / "store"} if stored else {}
    with DynamicGraph(n_vertices=N, structure="slabgraph", **kind, **store) as graph:
        places = [(client, {}), (client, {"workers": addresses(client)[:1], "order": "degree"}), (None, {})]
        for turn, (there, options) in enumerate([(None, {}), *places]):
            if turn:
                ranks = graph.pagerank()
                graph.move_to(there, **options)
                with pytest.raises(GraphClosed):
                    ranks.to_numpy()
            assert graph.epoch == 2 * turn
            assert_graph(graph, model)
            assert (graph.structure, len(graph.workers)) == ("slabgraph", 2 if turn == 1 else 1)
            batch = random_batch(rng, model.n_vertices, 150, graph.weighted)
            graph.update(batch)
            model.update(batch)
            graph.add_vertices(1)
            model.n_vertices += 1
        if stored:
            assert graph.durable_epoch == graph.epoch == 8
            with graph.at(3) as then:
                then.move_to(client)
                assert then.epoch == 3
                with pytest.raises(InvalidOption, match="read-only"):
                    then.insert([0], [1])
    assert_clean(client)


def test_a_graph_that_grows_goes_on_growing(client):
    with DynamicGraph() as graph:
        graph.insert([5], [6])
        graph.move_to(client)
        assert (graph.num_vertices, graph.num_edges, graph.epoch) == (7, 1, 1)
        graph.insert([6], [9])
        assert (graph.num_vertices, graph.epoch) == (10, 2)
    with DynamicGraph() as graph:
        graph.move_to(client)
        assert (graph.num_vertices, graph.epoch) == (0, 0)
    assert_clean(client)


def test_it_stays_where_it_was_when_it_cannot_be_moved(client, tmp_path, monkeypatch):
    with DynamicGraph(client, N, store=tmp_path / "store") as graph:
        graph.insert([1], [2])
        for options in ({"workers": ["tcp://127.0.0.1:1"]}, {"colour": "red"}, {"device": "tpu"}):
            with pytest.raises(InvalidOption):
                graph.move_to(client, **options)
            assert graph.insert([1], [3]).epoch == graph.epoch
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="holds no store on host "):
            graph.move_to(None)
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        assert graph.insert([1], [4]).epoch == 5
        assert graph.has_edges([1, 1, 1], np.array([2, 3, 4])).all()
    assert_clean(client)
