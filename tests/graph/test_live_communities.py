"""Maintained communities: their quality, their names against a slow model, and the same on any ranks and structures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from community_names import Event, NamesModel, parts
from graph_clusters import assert_clean
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch
from mgraph.algorithms.communities.dynamic import communities
from mgraph.client.results.maintained import Live
from mgraph.structures import names

KINDS: dict[str, dict[str, Any]] = {
    "undirected": {"directed": False},
    "weighted": {"directed": False, "weighted": True},
    "with in-edges": {"reverse": True, "weighted": True},
}
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("leiden", {}),
    ("louvain", {"resolution": 1.5, "seed": 3}),
    ("leiden", {"quality": "cpm", "resolution": 0.1}),
]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Communities are rarely computed anew."""
    monkeypatch.setattr(communities, "SHARE", 0.5)
    monkeypatch.setattr(communities, "LEAST_SHARE", 0.4)


def networkx_of(model: GraphModel, n: int) -> nx.Graph:
    oracle = nx.DiGraph() if model.directed else nx.Graph()
    oracle.add_nodes_from(range(n))
    oracle.add_weighted_edges_from((u, v, w) for (u, v), w in model.edges.items())
    return oracle


def check(live: Live, model: GraphModel, n: int, arguments: dict[str, Any]) -> np.ndarray:
    """Return the labels. Communities are connected and named by their least vertices, and the quality is theirs."""
    result = live.result()
    labels = result.to_numpy()
    oracle, groups = networkx_of(model, n), parts(labels)
    assert all(labels[min(group)] == min(group) for group in groups)
    assert result.communities == len(groups)
    positive = nx.Graph((u, v) for (u, v), w in model.edges.items() if w > 0)
    positive.add_nodes_from(range(n))
    for group in groups:
        assert nx.is_connected(positive.subgraph(group)), sorted(group)
    if arguments.get("quality") == "cpm":
        weight = sum(w for (u, v), w in model.edges.items() if labels[u] == labels[v])
        pairs = sum(len(group) * (len(group) - 1) for group in groups) / (1 if model.directed else 2)
        assert result.quality == pytest.approx(weight - arguments["resolution"] * pairs, rel=1e-6, abs=1e-4)
    elif oracle.size("weight"):
        want = nx.community.modularity(oracle, groups, resolution=arguments.get("resolution", 1))
        assert next(iter(result.info.values())) == pytest.approx(want, abs=1e-6)
    return labels


def events_since(live: Live, epoch: int) -> list[Event]:
    """The events at the reads after `epoch`, as the model has them."""
    columns = ("event", "name", "other", "before", "after")
    return [tuple(row[name] for name in columns) for row in live.changes(epoch).communities.to_pylist()]


def fuzz(
    place: Any, kind: dict[str, Any], method: tuple[str, dict[str, Any]], rounds: int, n: int, other: dict[str, Any]
) -> Counter[str]:
    """Random changes of two graphs, of which one has other ranks or another structure, and is rebalanced and reordered.

    Both are read at the same times.
    """
    rng, hows, name = fresh_rng(), Counter[str](), method[0]
    options = {"device": "cpu", **kind}
    with DynamicGraph(None, n, **options) as graph, DynamicGraph(place, n, **options, **other) as twin:
        model, names = GraphModel(n, kind.get("directed", True), kind.get("weighted", False)), NamesModel()
        first = random_batch(rng, n, 3 * n, model.weighted, deletes=0)
        model.update(first)
        for each in (graph, twin):
            each.update(first)
        live, twins = graph.maintain(name, **method[1]), twin.maintain(name, **method[1])
        names.read(parts(check(live, model, n, method[1])))
        for _ in range(rounds):
            batch = random_batch(rng, n, int(rng.choice([1, 3, 10])), model.weighted, deletes=0.3)
            gone = [pair for pair in model.edges if rng.random() < 3 / (1 + len(model.edges))]
            for pairs, op in (((batch.src, batch.dst), batch.op), (np.array(gone).reshape(-1, 2).T, None)):
                src, dst = (np.asarray(column, np.uint32) for column in pairs)
                op = -np.ones(len(src), np.int8) if op is None else op
                weight = np.zeros(len(src), np.float32) if op is not batch.op else batch.weight
                part = EdgeBatch(src, dst, weight if model.weighted else None, op)
                model.update(part)
                for each in (graph, twin):
                    each.update(part)
            if rng.random() < 0.1:
                for each in (graph, twin):
                    each.add_vertices(2)
            if rng.random() < 0.3:
                twin.rebalance() if rng.random() < 0.5 else twin.reorder()
            if rng.random() < 0.6:
                before = live.epoch
                labels = check(live, model, graph.num_vertices, method[1])
                hows[live.report.how] += 1
                np.testing.assert_array_equal(twins.result().to_numpy(), labels)
                np.testing.assert_array_equal(twins.names().to_numpy(), live.names().to_numpy())
                assert events_since(live, before) == names.read(parts(labels))
                assert live.names().to_numpy().tolist() == [names.names[v] for v in range(len(labels))]
                assert events_since(twins, before) == events_since(live, before)
                assert twins.report.how == live.report.how and twins.report.moved == live.report.moved
    print(hows)
    return hows


@pytest.mark.parametrize("method", METHODS, ids=["leiden", "louvain", "cpm"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_random_streams(patient, kind, method):
    assert fuzz(None, kind, method, 25, 120, {"structure": "slabgraph"})["incremental"]


@pytest.mark.parametrize("kind", ["weighted", pytest.param("with in-edges", marks=pytest.mark.slow)])
def test_two_workers_change_no_name(client, kind):
    fuzz(client, KINDS[kind], METHODS[0], 12, 120, {})
    assert_clean(client)


@pytest.mark.parametrize("n", [1, 2, 12])
def test_small_graphs(n):
    for kind in KINDS.values():
        fuzz(None, kind, METHODS[0], 12, n, {})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_long_streams(client3, kind, structure):
    for method in METHODS:
        for place in (None, client3):
            fuzz(place, kind, method, 120, 200, {"structure": structure})
