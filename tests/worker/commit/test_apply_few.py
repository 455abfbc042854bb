"""The short way of a single small batch, which a graph's only rank commits at once, against the ballot's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failing_allocations import each_fails_once, watched
from plain_graph import fresh_rng
from small_batches import KINDS, MAINTAINED, N, check_results, check_same, counts, timed

from mgraph import DynamicGraph, EdgeBatch
from mgraph.structures import names
from mgraph.worker.commit import ballot
from mgraph.worker.commit.change import BatchChange

#: graphs without maintained results, in which single batches take the short way too
ALONE: list[tuple[dict[str, Any], list[Any]]] = [
    *((kind, []) for kind in KINDS[1:]),
    ({"directed": False, "order": "degree"}, [("connected_components", {})]),
    ({"window": 40}, [("bfs", {"source": 0})]),
    ({"directed": False, "weighted": True, "combine": "sum", "window": 40}, []),
]


@pytest.mark.parametrize(("kind", "results"), MAINTAINED + ALONE, ids=str)
@pytest.mark.parametrize("structure", names())
def test_single_batches_by_the_short_way_and_by_the_long_one(monkeypatch, structure, kind, results):
    """Both give the same reports, edges and maintained results, and log the same changes."""
    rng, short, apply = fresh_rng(), [], BatchChange.apply
    monkeypatch.setattr(BatchChange, "apply", lambda change, loops: (short.append(loops), apply(change, loops)))
    options = {"n_vertices": N, "structure": structure, **kind}
    with DynamicGraph(**options) as graph, DynamicGraph(**options) as oracle:
        pairs = [(graph.maintain(name, **args), oracle.maintain(name, **args)) for name, args in results]
        for batch in [EdgeBatch(*rng.integers(0, N, (2, 30)), time=0 if graph.times else None), *timed(rng, graph, 80)]:
            one = batch if rng.random() < 0.5 else _first(batch)
            report = graph.update(one)
            with monkeypatch.context() as patch:
                patch.setattr(ballot, "FEW", -1)
                assert outcome(oracle.update(one)) == outcome(report)
            if rng.random() < 0.1:
                check_same(graph, oracle)
                for ours, theirs in pairs:
                    check_results(ours, theirs)
            assert logged(graph) == logged(oracle)
        for ours, theirs in pairs:
            check_results(ours, theirs)
        check_same(graph, oracle)
    assert len(short) >= 80  # the first batch precedes an order


def _first(batch: EdgeBatch) -> EdgeBatch:
    """The first operation of a batch."""
    columns = [c[:1] if isinstance(c, np.ndarray) else c for c in (batch.src, batch.dst, batch.weight, batch.op)]
    return EdgeBatch(*columns, time=None if batch.time is None else batch.time[:1])


def outcome(report: Any) -> tuple[int, ...]:
    return (*counts(report), report.expired, report.late, report.epoch)


def logged(graph: DynamicGraph) -> list[Any]:
    """The changes that are logged for maintained results."""
    log = graph._directory.coordinator._session.calls.shard.change_log
    since = [] if log.first is None else log.since(log.first)
    columns = [[epoch, t.deleted, *map(np.ndarray.tolist, (t.keys, t.kinds))] for epoch, t in since]
    weights = [[t.old.tolist(), t.new.tolist()] for _, t in since if t.old is not None]
    return [log.first, log.changed, sum(t.nbytes for _, t in since) == log.nbytes, columns, str(weights)]


@pytest.mark.parametrize(("kind", "results"), [MAINTAINED[i] for i in (0, 2, 4)] + ALONE[-2:], ids=str)
def test_each_allocation_of_a_single_batch_fails_once(kind, results):
    rng, n = fresh_rng(), 600
    time = {"time": 5} if "times" in kind or "window" in kind else {}
    first, then = (EdgeBatch(*rng.integers(0, n, (2, size)), **time) for size in (2000, 500))
    lives = list[Any]()

    def make() -> DynamicGraph:
        graph = DynamicGraph(n_vertices=n, **kind)
        graph.update(first)
        lives[:] = [graph.maintain(name, **args) for name, args in results[:1]]
        return graph

    def call(graph: DynamicGraph) -> tuple[int, ...]:
        return outcome(graph.update(then))[:-1]

    def update(graph: DynamicGraph) -> tuple[int, ...]:
        did = call(graph)
        for live in lives:
            graph._directory.coordinator.check()
            assert live.result().epoch == graph.epoch
        return did

    with watched():
        assert each_fails_once(make, call, most=24, rng=rng) > 4
    graph = make()
    update(graph)
    graph.close()
