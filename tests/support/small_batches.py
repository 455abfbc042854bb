"""Random small batches, the kinds of graphs that take them, and comparisons of two such graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph_model import random_batch
from time_model import edges_of

from mgraph import DynamicGraph, EdgeBatch

N = 12  #: vertices: batches of a group name the same edges
KINDS: list[dict[str, Any]] = [
    {},
    {"weighted": True, "reverse": True},
    {"directed": False, "weighted": True},
    {"order": "degree"},
    {"directed": False, "weighted": True, "combine": "sum"},
    {"weighted": True, "reverse": True, "combine": "min"},
]
#: kinds of graphs, with the maintained results that each has
MAINTAINED: list[tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]] = [
    ({"directed": False}, [("connected_components", {}), ("triangles", {}), ("leiden", {})]),
    ({"reverse": True}, [("bfs", {"source": 0}), ("pagerank", {})]),
    ({"weighted": True, "combine": "max"}, [("sssp", {"source": 0}), ("connected_components", {})]),
    ({"directed": False, "weighted": True, "combine": "sum"}, [("louvain", {}), ("sssp", {"source": 0})]),
    ({"directed": False, "times": True}, [("bfs", {"source": 0})]),
    ({"weighted": True, "reverse": True, "times": True, "combine": "sum"}, [("leiden", {})]),
]


def edges(graph: DynamicGraph) -> dict[tuple[int, int], float]:
    """All arcs with their weights."""
    csr = graph.to_csr()
    src = np.repeat(np.arange(len(csr.offsets) - 1), np.diff(csr.offsets)).tolist()
    weight = [1.0] * len(src) if csr.weight is None else csr.weight.tolist()
    return dict(zip(zip(src, csr.dst.tolist(), strict=True), weight, strict=True))


def some(rng: np.random.Generator, weighted: bool, count: int = 100) -> list[EdgeBatch]:
    """Batches with repeats in them and between them; some are empty, some only insert, some have no weights."""
    sizes = np.where(rng.random(count) < 0.1, 0, rng.integers(0, 40, count))
    return [
        random_batch(rng, N, int(n), weighted and rng.random() < 0.9, 0.45 if rng.random() < 0.9 else 0) for n in sizes
    ]


def counts(report: Any) -> tuple[int, ...]:
    return report.inserted, report.updated, report.deleted, report.missing


def timed(rng: np.random.Generator, graph: DynamicGraph, count: int) -> list[EdgeBatch]:
    """Batches as `some`, with times if the graph has them; some of these have deletions only."""
    batches = some(rng, graph.weighted, count)
    if not graph.times:
        return batches
    return [
        EdgeBatch(b.src, b.dst, op=-1)
        if rng.random() < 0.1
        else EdgeBatch(b.src, b.dst, b.weight, b.op, time=rng.integers(0, 99, len(b)))
        for b in batches
    ]


def check_same(graph: DynamicGraph, oracle: DynamicGraph) -> None:
    """The graphs have the same edges, weights and times, and their structures the same reverse edges."""
    assert edges(graph) == edges(oracle)
    if oracle.times:
        assert edges_of(graph) == edges_of(oracle)
    if oracle.reverse:
        np.testing.assert_array_equal(*(g.degrees(direction="in") for g in (graph, oracle)))
    assert (graph.num_edges, graph.epoch) == (oracle.num_edges, oracle.epoch)


def check_results(ours: Any, theirs: Any) -> str:
    """Two maintained results have the same values. Communities have the same names, and were updated alike: how."""
    mine, yours = ours.result().to_numpy(), theirs.result().to_numpy()
    reports = ours.report, theirs.report
    assert ours.epoch == theirs.epoch
    if ours.name == "pagerank":
        np.testing.assert_allclose(mine, yours, rtol=1e-3)
    else:
        np.testing.assert_array_equal(mine, yours)
    assert reports[0].touched == reports[1].touched
    if ours.name in ("leiden", "louvain"):
        assert (reports[0].how, reports[0].moved) == (reports[1].how, reports[1].moved)
        np.testing.assert_array_equal(ours.names().to_numpy(), theirs.names().to_numpy())
    how: str = reports[0].how
    return how
