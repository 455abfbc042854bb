"""Communities are divided exactly into their connected components, after any loss of edges and any moves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graphs import IDS
from plain_graph import fresh_rng
from spmd import FakeShard, Graph, cut, shards

from mgraph.algorithms.algorithm import EdgeDelta
from mgraph.algorithms.communities.dynamic import splits
from mgraph.algorithms.communities.dynamic.live_level import LiveLevel
from mgraph.algorithms.communities.dynamic.splits import divide_changed
from mgraph.algorithms.communities.multilevel import finest_level
from mgraph.device import Device
from mgraph.structures.plan import DELETED


def connected_labels(graph: nx.Graph, rng: np.random.Generator) -> np.ndarray:
    """Communities that are connected: the components of some of the edges, by their least vertices."""
    kept = [edge for edge in graph.edges if rng.random() < 0.5]
    labels = np.empty(len(graph), np.int64)
    for component in nx.connected_components(nx.Graph(kept)) if kept else []:
        labels[list(component)] = min(component)
    lone = [v for v in graph if not any(v in edge for edge in kept)]
    labels[lone] = lone
    return labels


def moved(graph: nx.Graph, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some vertices move to the communities of neighbours, one after another, or are alone."""
    n, labels = len(labels), labels.copy()
    for v in rng.integers(0, n, rng.integers(0, 8)).tolist():
        near = [labels[u] for u in graph[v]]
        labels[v] = rng.choice(near) if near and rng.random() < 0.8 else n + v
    return labels


def divided(shard: FakeShard, before: Any, labels: Any, changes: EdgeDelta) -> np.ndarray:
    """The result of `divide_changed` on a rank."""
    finest = finest_level(shard, "leiden", "modularity", 1.0)
    level = LiveLevel(shard, before.copy(), finest.strengths, 0, finest.objective, finest.weights[0].unit)
    level.start(labels.copy(), 0)
    level.settle_all()
    assert divide_changed(level, changes) == bool(Device.to_host(level.marks).any())
    sums, want = ([Device.to_host(column) for column in columns] for columns in (level.sums, level._sum()))
    np.testing.assert_array_equal(sums, want)
    assert level.products == sum(int(a) * int(b) for a, b in zip(sums[0], sums[-1], strict=True))
    for name in ("set", "open", "touched", "renamed"):
        assert not Device.to_host(getattr(level.scratch, name)).any()
    for copy in (level.before, level.turned):
        np.testing.assert_array_equal(Device.to_host(copy), Device.to_host(level.labels))
    return Device.to_host(level.labels)


@pytest.mark.parametrize(("size", "stepwise"), [(1, False), (1, True), (3, False)])
@pytest.mark.parametrize("directed", [False, True])
def test_random_losses_and_moves(
    device: str, monkeypatch: pytest.MonkeyPatch, size: int, stepwise: bool, directed: bool
) -> None:
    if stepwise:
        monkeypatch.setattr(splits, "STEPWISE", ("cpu", "cuda"))
    rng, divisions = fresh_rng(), 0
    for _ in range(60 if size == 1 else 15):
        n = int(rng.integers(2, 40))
        graph = nx.gnm_random_graph(n, int(1.4 * n), seed=int(rng.integers(1 << 30)))
        before = connected_labels(graph, rng)
        lost = [edge for edge in graph.edges if rng.random() < 0.12]
        labels = moved(graph, before, rng)
        graph.remove_edges_from(lost)
        ends = np.array(graph.edges, IDS).reshape(-1, 2)
        made = shards(Graph(n, ends[:, 0], ends[:, 1], directed), cut(n, size), reverse=directed, device=device)

        # The arcs that were lost, and their ends in a community.
        pairs = np.array(lost if directed else [*lost, *((v, u) for u, v in lost)], np.uint64).reshape(-1, 2)
        keys = np.sort(pairs[:, 0] << np.uint64(32) | pairs[:, 1])
        arrays = before.astype(IDS), labels.astype(IDS), keys, np.full(len(keys), DELETED, np.uint8)

        def body(shard: FakeShard, arrays: tuple[np.ndarray, ...] = arrays) -> np.ndarray:
            shard.device.use()
            old, new, keys, kinds = map(shard.device.asarray, arrays)
            return divided(shard, old, new, EdgeDelta(keys, kinds, len(keys)))

        want = np.empty(n, np.int64)
        for label in np.unique(labels):
            for component in nx.connected_components(graph.subgraph(np.flatnonzero(labels == label).tolist())):
                want[list(component)] = min(component)
        divisions += len(np.unique(want)) > len(np.unique(labels))
        with ThreadPoolExecutor(size) as pool:
            for got in pool.map(body, made):
                np.testing.assert_array_equal(got, want)
    assert divisions


@pytest.mark.parametrize("stepwise", [False, True])
def test_members_came_whose_only_neighbour_left(device: str, monkeypatch: pytest.MonkeyPatch, stepwise: bool) -> None:
    if stepwise:
        monkeypatch.setattr(splits, "STEPWISE", ("cpu", "cuda"))
    for came in range(1, 10):
        # Vertices join the community of 0, which leaves it for that of the last vertex.
        last = came + 1
        spokes = np.arange(1, last + 1, dtype=IDS)
        [shard] = shards(Graph(last + 1, np.zeros(last, IDS), spokes, False), cut(last + 1, 1), device=device)
        before, labels = np.arange(last + 1, dtype=IDS), np.zeros(last + 1, IDS)
        labels[[0, last]] = last
        none = EdgeDelta(shard.device.empty(0, np.uint64), shard.device.empty(0, np.uint8), 0)
        old, new = map(shard.device.asarray, (before, labels))
        np.testing.assert_array_equal(divided(shard, old, new, none), [0, *range(1, last), 0])
