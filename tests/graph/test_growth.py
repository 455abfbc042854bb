"""Graphs without a number of vertices: they grow with the batch that names a new id, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from faults import before, refuse, rest
from graph_clusters import HERE, assert_clean, check_graph, on
from graph_model import GraphModel, random_batch
from interrupts import ctrl_c, when
from plain_graph import fresh_rng

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch, UnknownVertex
from mgraph.structures import names
from mgraph.worker.commit.change import BatchChange

KINDS = [{}, {"directed": False, "weighted": True}, {"reverse": True, "order": "degree"}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("size", [HERE, 1, 3])
def test_a_growing_stream_against_the_model(client3, size, kind):
    rng = fresh_rng()
    model = GraphModel(0, kind.get("directed", True), kind.get("weighted", False))
    with DynamicGraph(**on(client3, size), **kind) as graph:
        assert graph.num_vertices == 0
        for epoch, bound in enumerate((5, 40, 40, 3, 100, 101), 1):
            batch = random_batch(rng, bound, 60, model.weighted)
            model.n_vertices = max(model.n_vertices, int(max(batch.src.max(), batch.dst.max())) + 1)
            report = graph.update(batch)
            assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(batch)
            assert report.epoch == graph.epoch == epoch
            check_graph(graph, model, rng)
        graph.rebalance()
        assert graph.add_vertices(3) == range(model.n_vertices, model.n_vertices + 3)
        model.n_vertices += 200
        assert graph.delete([model.n_vertices - 1], [0]).missing == 1
        check_graph(graph, model, rng)
        assert len(graph.pagerank().to_numpy()) == model.n_vertices
        assert "vertices so far" in repr(graph)
    assert_clean(client3)


def edges(graph: DynamicGraph) -> dict[tuple[int, int], float]:
    """The edges and weights of a weighted graph, whose rows need not be sorted."""
    frame = graph.to_pandas()
    pairs = zip(frame["source"].tolist(), frame["target"].tolist(), strict=True)
    return dict(zip(pairs, frame["weight"].tolist(), strict=True))


def test_the_first_vertices_are_dealt_evenly(client3):
    with DynamicGraph(client3) as graph:
        graph.insert([0], [8])
        assert [worker.vertices for worker in graph.balance().workers] == [3, 3, 3]


@pytest.mark.parametrize("kind", [KINDS[1], pytest.param(KINDS[2], marks=pytest.mark.slow)], ids=str)
def test_a_batch_that_is_refused_on_one_rank_brings_no_vertices(client, kind):
    rng = fresh_rng()
    model = GraphModel(0, kind.get("directed", True), kind.get("weighted", False))
    with DynamicGraph(client, **kind) as graph:
        for first in (True, False):
            for step in ("sort", "route", "prepare"):
                bound = model.n_vertices + 50
                batch = random_batch(rng, bound, 100, model.weighted)
                for worker in graph.workers:
                    client.run(before, step, refuse, workers=[worker])
                    with pytest.raises(CapacityError, match="no room"):
                        graph.update(batch)
                    assert graph.num_vertices == len(graph.degrees()) == model.n_vertices
                    assert (graph.num_edges, graph.to_csr().offsets[-1]) == (len(model.edges), len(model.arcs()))
                    if not first:
                        check_graph(graph, model, rng)
            model.n_vertices = int(max(batch.src.max(), batch.dst.max())) + 1
            assert graph.update(batch).inserted == model.update(batch)[0]
            check_graph(graph, model, rng)
    assert_clean(client)


def test_ctrl_c_before_the_vote_brings_no_vertices_and_after_it_all(client, tmp_path):
    with DynamicGraph(client) as graph:
        graph.insert([0], [1])
        for step, n in (("prepare", 2), ("commit", 61)):
            client.run(before, step, rest, 1.0, tmp_path / step, workers=[graph.workers[1]])
            with when((tmp_path / step).exists, ctrl_c), pytest.raises(KeyboardInterrupt):
                graph.insert([60], [0])
            assert graph.num_vertices == len(graph.degrees()) == n
        assert graph.has_edges([60], [0]).all()
        assert graph.insert([70], [60]).epoch == 3


@pytest.mark.parametrize(
    "structure", [pytest.param(s, marks=() if s in ("gpma+", "slabgraph") else pytest.mark.slow) for s in names()]
)
def test_every_structure_forgets_the_vertices_of_a_refused_batch(monkeypatch, structure):
    rng = fresh_rng()
    model = GraphModel(0, directed=True, weighted=True)
    with DynamicGraph(structure=structure, weighted=True, reverse=True) as graph:
        shard = graph._directory.coordinator._session.calls
        prepare = BatchChange.prepare

        def refused(change: BatchChange) -> None:
            prepare(change)  # of all structures, after which the vote may still go against it
            raise CapacityError("of this test")

        for turn in range(8):
            bound = 10 + 7 * turn
            batch = random_batch(rng, bound, 80, True)
            with monkeypatch.context() as patch:
                patch.setattr(BatchChange, "prepare", refused)
                with pytest.raises(CapacityError, match="of this test"):
                    graph.update(batch)
            assert graph.num_vertices == model.n_vertices
            for held in shard.shard.structures:
                assert (held.n_rows, held.n_vertices) == (model.n_vertices,) * 2
                held.check_invariants()
            assert edges(graph) == model.edges
            model.n_vertices = max(model.n_vertices, int(max(batch.src.max(), batch.dst.max())) + 1)
            assert graph.update(batch).inserted == model.update(batch)[0]
            for held in shard.shard.structures:
                held.check_invariants()
            assert edges(graph) == model.edges
            assert len(graph.degrees(direction="in")) == model.n_vertices


def test_ids_that_are_too_large_and_those_that_nobody_brings(place):
    with DynamicGraph(place, keys=None) as graph:
        with pytest.raises(InvalidBatch, match=r'dst\[1\] is 2000000, the graph has 0 vertices and.* keys="int64"'):
            graph.insert([0, 1], [1, 2_000_000])
        assert (graph.epoch, graph.num_vertices) == (0, 0)
        assert graph.insert([0], [3]).inserted == 1
        for call in (
            lambda: graph.has_edges([4], [0]),
            lambda: graph.degrees([4]),
            lambda: graph.neighbors([4]),
            lambda: graph.bfs(4),
            lambda: graph.delete_vertices([4]),
        ):
            with pytest.raises(UnknownVertex, match="is 4; the graph has 4 vertices"):
                call()
        with pytest.raises(UnknownVertex, match="is 4; the graph has 4 vertices"), graph.pipeline() as pipe:
            pipe.update(EdgeBatch([4], [0]))
        with pytest.raises(InvalidBatch, match="unweighted"):
            graph.insert([9], [0], [1.0])
        assert (graph.epoch, graph.num_vertices) == (1, 4)
        assert graph.insert([], []).epoch == 2


def test_threads_that_bring_vertices(place):
    from concurrent.futures import ThreadPoolExecutor

    with DynamicGraph(place) as graph, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: graph.insert([i * 3], [i]), range(30)))
        assert (graph.epoch, graph.num_edges, graph.num_vertices) == (30, 30, 88)
        assert np.flatnonzero(graph.degrees()).tolist() == list(range(0, 88, 3))


def test_sums_of_weights_on_several_workers(client3):
    rng = fresh_rng()
    model: dict[tuple[int, int], float] = {}
    with DynamicGraph(client3, weighted=True, directed=False, combine="sum") as graph:
        for _ in range(4):
            src, dst = rng.integers(0, 9, (2, 80))
            weight = rng.integers(1, 5, 80)
            graph.insert(src, dst, weight)
            for u, v, w in zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True):
                key = (min(u, v), max(u, v))
                model[key] = model.get(key, 0) + w
            assert edges(graph) == model
        graph.rebalance()
        assert edges(graph) == model
    assert_clean(client3)
