"""The level that is kept between updates: its sweeps are those of any level, and its sums follow exactly."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from communities import planted, small_tables, weighted
from graphs import IDS, random_graph
from plain_graph import fresh_rng
from spmd import FakeShard, Graph, cut, shards

from mgraph.algorithms.communities.dynamic.live_level import LiveLevel
from mgraph.algorithms.communities.multilevel import Level, finest_level
from mgraph.algorithms.communities.multilevel.level import MOST_TURNS, SWEEPS, TURNS, sweep_seed
from mgraph.device import Device


def improve_from(level: Level, active: Any, seed: int) -> tuple[float, int]:
    """Sweep from the `active` vertices on, uint8[rows], by the sweeps of any level: the quality, and visited edges."""
    best, turns, visited = level.value(), TURNS, 0
    for number in range(SWEEPS):
        before = level.labels.copy(), level.inside
        marks, now = level._sweep(sweep_seed(seed, number), turns, active, math.inf)
        visited += level.tally.edges
        if marks is None:
            break
        if now <= best:
            level.start(*before)
            turns *= 2
            if turns > MOST_TURNS:
                break
            continue
        best, active = now, marks
    return best, visited


def swept(
    shard: FakeShard, quality: str, start: np.ndarray, marks: np.ndarray, seed: int
) -> list[tuple[np.ndarray, int, float]]:
    """The labels, the weight inside, and the quality by both kinds of levels."""
    device = shard.device
    device.use()
    level = finest_level(shard, "leiden", quality, 1.0 if quality == "modularity" else 0.1)
    level.start(device.asarray(start.copy()))
    live = LiveLevel(
        shard, device.asarray(start.copy()), level.strengths, level.inside, level.objective, level.weights[0].unit
    )
    live.marks[...] = device.asarray(marks)
    best, visited = improve_from(level, device.asarray(marks[shard.lo : shard.hi]), seed)
    value = live.improve_marked(seed)

    # What is followed is what a new count gives.
    sums, want = ([Device.to_host(column) for column in columns] for columns in (live.sums, live._sum()))
    np.testing.assert_array_equal(sums, want)
    assert live.products == sum(int(a) * int(b) for a, b in zip(sums[0], sums[-1], strict=True))
    np.testing.assert_array_equal(Device.to_host(live.turned), Device.to_host(live.labels))
    moved = np.flatnonzero(Device.to_host(live.labels) != start)
    noted = Device.to_host(live.noted())
    assert set(moved.tolist()) <= set(noted.tolist()) and len(np.unique(noted)) == len(noted)
    assert not Device.to_host(live.marks).any()
    assert live.visited == visited
    return [(Device.to_host(one.labels), one.inside, reached) for one, reached in ((level, best), (live, value))]


def compare(graph: Graph, size: int, device: str, *arguments: Any) -> None:
    """Both kinds of levels, on all ranks, come to the same."""
    made = shards(graph, cut(graph.n, size), reverse=graph.directed, device=device)
    with ThreadPoolExecutor(size) as pool:
        results = [one for both in pool.map(lambda shard: swept(shard, *arguments), made) for one in both]
    for labels, inside, value in results:
        np.testing.assert_array_equal(labels, results[0][0])
        assert inside == results[0][1] and value == pytest.approx(results[0][2], abs=1e-12)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("quality", ["modularity", "cpm"])
@pytest.mark.parametrize("kind", ["plain", "weighted", "directed"])
def test_sweeps_are_those_of_a_level(
    monkeypatch: pytest.MonkeyPatch, device: str, kind: str, quality: str, size: int
) -> None:
    """With vertices of any labels, and hubs with wide rows."""
    small_tables(monkeypatch)
    rng = fresh_rng()
    for number in range(6):
        skewed = random_graph(int(rng.integers(1 << 30)), 120, 700, directed=False, skew=True)
        graph = skewed if number % 2 else planted(int(rng.integers(1 << 30)))[0]
        graph = graph if kind == "plain" else weighted(graph, 3)
        graph.directed = kind == "directed"
        start = rng.integers(0, graph.n, graph.n).astype(IDS) % np.uint32(9)
        marks = (rng.random(graph.n) < rng.choice([0.05, 0.5])).astype(np.uint8)
        compare(graph, size, device, quality, start, marks, int(rng.integers(1000)))


@pytest.mark.parametrize("size", [1, 2])
def test_sweeps_that_are_undone(monkeypatch: pytest.MonkeyPatch, device: str, size: int) -> None:
    """Two neighbours that choose in the same turn change places, which gains nothing."""
    undone, undo = [], LiveLevel._undo
    monkeypatch.setattr(LiveLevel, "_undo", lambda level, *rest: undone.append(level.n) or undo(level, *rest))
    ends = np.arange(0, 4, 2, dtype=IDS)
    for seed in range(40):
        graph = Graph(4, ends, ends + 1, False)
        compare(graph, size, device, "modularity", np.arange(4, dtype=IDS), np.ones(4, np.uint8), seed)
    assert undone
