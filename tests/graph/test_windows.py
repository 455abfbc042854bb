"""Edges with times, and windows, on workers: random streams against a dict."""

from __future__ import annotations

import numpy as np
import pytest
from faults import before, refuse
from graph_clusters import HERE, assert_clean, on
from plain_graph import fresh_rng
from time_model import KINDS, TimeModel, check, check_stream, random_timed

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch


@pytest.mark.parametrize("kind", KINDS[1:3], ids=str)
def test_a_number_of_edges_on_workers(client3, kind):
    rng = fresh_rng()
    model = TimeModel(kind.get("directed", True), kind.get("combine", "last"), None, 30)
    with DynamicGraph(client3, n_vertices=12, window_edges=30, **kind) as graph:
        check_stream(graph, model, rng)
    assert_clean(client3)


@pytest.mark.parametrize(("size", "kind"), [(1, KINDS[1]), (3, KINDS[1]), (3, KINDS[2])], ids=str)
def test_streams_on_workers_against_the_model(client3, size, kind):
    rng = fresh_rng()
    model = TimeModel(kind.get("directed", True), kind.get("combine", "last"), 40)
    with DynamicGraph(**on(client3, size), n_vertices=12, window=40, **kind) as graph:
        check_stream(graph, model, rng)
    assert_clean(client3)


@pytest.mark.parametrize("size", [HERE, 3])
@pytest.mark.parametrize("window", [{"window": 40}, {"window_edges": 30}], ids=str)
def test_steps_of_an_ingest(client3, size, window):
    rng = fresh_rng()
    model, parts = TimeModel(**window), [random_timed(rng, 12, 30, now, 20, False) for now in range(0, 300, 15)]
    with DynamicGraph(**on(client3, size), n_vertices=12, **window) as graph:
        reports = graph.ingest(lambda rank, size, step: parts[step] if rank == 0 and step < len(parts) else None)
        done = [model.update(part) for part in parts]
        assert len(reports) == len(done)
        check(graph, model)
        for report, did in zip(reports, done, strict=True):
            assert {name: getattr(report, name) for name in did} == did
        with pytest.raises(InvalidBatch, match="inserts edges without times.*step 0"):
            graph.ingest(lambda rank, size, step: EdgeBatch([0], [1]))
        check(graph, model)


@pytest.mark.parametrize("size", [HERE, 3])
def test_small_batches_of_a_pipeline(client3, size):
    rng = fresh_rng()
    model, done = TimeModel(window=40), []
    with DynamicGraph(**on(client3, size), n_vertices=12, window=40) as graph:
        with graph.pipeline() as pipeline:
            for now in range(0, 200, 5):
                batch = random_timed(rng, 12, 5, now, 20, False)
                if rng.random() < 0.3:
                    batch = EdgeBatch(batch.src, batch.dst, op=-1)
                done.append((pipeline.update(batch), model.update(batch)))
        check(graph, model)
        for pending, did in done:
            report = pending.result()
            assert {name: getattr(report, name) for name in did} == did


@pytest.mark.parametrize("kind", KINDS[1:3], ids=str)
def test_times_move_with_the_rows(client3, kind):
    rng = fresh_rng()
    model = TimeModel(kind.get("directed", True), kind.get("combine", "last"), 40)
    with DynamicGraph(client3, window=40, **kind) as graph:
        for now in range(0, 60, 15):
            batch = random_timed(rng, 12, 40, now, 20, True)
            check(graph, model, graph.update(batch), model.update(batch))
            (graph.rebalance if now == 15 else graph.reorder)()
            check(graph, model)
        assert graph.delete_vertices([3, 4]).deleted == sum(bool({3, 4} & set(edge)) for edge in model.made)
        model.made = {edge: made for edge, made in model.made.items() if not {3, 4} & set(edge)}
        check(graph, model)


@pytest.mark.parametrize("window", [{"window": 40}, {"window_edges": 30}], ids=str)
def test_a_batch_that_is_refused_leaves_times_and_window_as_they_were(client3, window):
    rng = fresh_rng()
    model = TimeModel(**window)
    with DynamicGraph(client3, n_vertices=12, **window) as graph:
        for now in (0, 30):
            batch = random_timed(rng, 12, 60, now, 10, False)
            check(graph, model, graph.update(batch), model.update(batch))
            for worker in graph.workers:
                client3.run(before, "prepare", refuse, workers=[worker])
                with pytest.raises(CapacityError, match="no room"):
                    graph.update(random_timed(rng, 12, 60, now + 100, 10, False))
                check(graph, model)
    assert_clean(client3)


@pytest.mark.parametrize("size", [HERE, 3])
def test_vertices_without_edges_go_with_the_batch(client3, size):
    rng = fresh_rng()
    model = TimeModel(False, "last", 20)
    with DynamicGraph(**on(client3, size), window=20, directed=False, drop_isolated=True, keys="int64") as graph:
        for epoch, now in enumerate(range(0, 120, 8), 1):
            batch = random_timed(rng, 30, 12, now, 5, False)
            did, batch = model.update(batch), EdgeBatch(1000 + batch.src.astype(np.int64), 1000 + batch.dst.astype(
                np.int64), None, batch.op, "int64", batch.time)  # fmt: skip
            report = graph.update(batch)
            assert {name: getattr(report, name) for name in did} == did
            assert graph.epoch == epoch
            there = {1000 + end for edge in model.made for end in edge}
            assert set(graph.vertices().tolist()) == there
            assert graph.num_vertices == len(there)
            frame = graph.to_pandas()
            ends = zip(frame["source"] - 1000, frame["target"] - 1000, strict=True)
            found = {(min(edge), max(edge)): time for edge, time in zip(ends, frame["time"], strict=True)}
            assert found == {edge: made[-1][0] for edge, made in model.made.items()}
            assert set(graph.connected_components().to_series().index) == there
        graph.expire(10**6)
        assert (graph.num_vertices, graph.num_edges) == (0, 0)
        graph.insert([7], [9], time=10**6)
        assert graph.vertices().tolist() == [7, 9]
