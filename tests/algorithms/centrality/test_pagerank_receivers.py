"""Which vertices send their new shares before the first iteration of maintained PageRank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graphs import random_graph
from plain_graph import fresh_rng
from spmd import FakeShard, Graph, change_rows, cut, facts, run_program, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import EdgeDelta
from mgraph.algorithms.centrality.pagerank import carry, maintain
from mgraph.device import Array, Device
from mgraph.structures.plan import DELETED, INSERTED

PAGERANK = ALGORITHMS["pagerank"]


def keys_of(graph: Graph) -> set[int]:
    src, dst = (ends.astype(np.int64) for ends in graph.arcs)
    return set((src << 32 | dst).tolist())


class Following:
    """Maintained PageRank that never pushes on, on all ranks."""

    def __init__(self, graph: Graph, size: int) -> None:
        self.graph, self.shards = graph, shards(graph, cut(graph.n, size))
        arguments, self.ranks = PAGERANK.check(facts(self.shards)), dict[int, maintain.Ranks]()

        def begin(shard: FakeShard) -> Any:
            self.ranks[shard.rank] = maintain.Ranks(shard, **arguments)
            self.ranks[shard.rank].forward_push = None
            return self.ranks[shard.rank].columns()

        run_program(self.shards, begin, PAGERANK)

    def change(self, graph: Graph) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the ranks after a change to `graph`."""
        before, after, self.graph = keys_of(self.graph), keys_of(graph), graph
        keys = np.array(sorted(before ^ after), np.uint64)
        kinds = np.array([INSERTED if key in after else DELETED for key in keys.tolist()], np.uint8)
        change_rows(self.shards, keys, kinds)

        def update(shard: FakeShard) -> Any:
            device, ranks = shard.device, self.ranks[shard.rank]
            delta = EdgeDelta(device.asarray(keys), device.asarray(kinds), int((kinds == DELETED).sum()))
            assert ranks.apply_changes(delta, 0).how == "iterated"
            return ranks.columns()

        found, info = run_program(self.shards, update, PAGERANK)
        return found["rank"] if isinstance(found, dict) else found, info


def changed(rng: np.random.Generator, graph: Graph, count: int) -> Graph:
    """`graph` with `count` edges less, and as many new ones."""
    keep = np.ones(len(graph.src), bool)
    keep[rng.choice(len(graph.src), count, replace=False)] = False
    new = rng.integers(0, graph.n, (2, count)).astype(np.uint32)
    return replace(graph, src=np.append(graph.src[keep], new[0]), dst=np.append(graph.dst[keep], new[1]))


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, ...]]:
    """The chosen rows of all calls, with the last receivers' rows, changes and degrees, and the limit."""
    calls, choose = list[tuple[np.ndarray, ...]](), carry.Carry._receivers

    def noted(self: carry.Carry, most: float) -> Array:
        listed = int(self.device.to_host(self.state)[carry.LISTED])
        receivers = np.unique(Device.to_host(self.list[:listed])).astype(int) - self.shard.lo
        receivers = receivers[(receivers >= 0) & (receivers < len(self.degrees))]
        degrees = Device.to_host(self.degrees)[receivers].astype(float)
        changes = np.abs(Device.to_host(self.residual)[receivers]) / np.maximum(degrees, 1)
        rows = choose(self, most)
        calls.append((Device.to_host(rows).astype(int), receivers, changes, degrees, np.array(most)))
        return rows

    monkeypatch.setattr(maintain.Ranks, "_fits", lambda self, changed, most: False)
    monkeypatch.setattr(carry.Carry, "_receivers", noted)
    return calls


def test_the_receivers_whose_shares_change_most_send_at_once(chosen: list[tuple[np.ndarray, ...]]) -> None:
    """Each of them changes more than half as much as any other, and they have few edges."""
    rng, graph = fresh_rng(), random_graph(1, 20_000, 100_000, False)
    following = Following(graph, 1)
    for count in (1, 1, 8, 20):
        graph = changed(rng, graph, count)
        following.change(graph)
    assert len(chosen) >= 2
    for rows, receivers, changes, degrees, most in chosen:
        taken = np.isin(receivers, rows)
        assert len(set(rows.tolist())) == len(rows) == taken.sum()
        assert degrees[taken].sum() <= most
        left = ~taken & (degrees > 0) & (changes >= 1)
        assert not left.any() or not len(rows) or changes[taken].min() > changes[left].max() / 2
    assert any(0 < len(rows) < len(receivers) for rows, receivers, *_ in chosen)


def test_ranks_do_not_depend_on_the_number_of_workers(chosen: list[tuple[np.ndarray, ...]]) -> None:
    """Bit for bit, as to which vertices send at once. Vertices of one worker have most of the edges."""
    rng, graph = fresh_rng(), random_graph(2, 3000, 20_000, False)
    skewed = np.append(graph.src, rng.integers(0, 200, 20_000, np.uint32))
    graph = replace(graph, src=skewed, dst=np.append(graph.dst, rng.integers(0, 200, 20_000, np.uint32)))
    followings = [Following(graph, size) for size in (1, 2, 3)]
    for count in (1, 4, 40, 4):
        graph = changed(rng, graph, count)
        (ranks, info), *others = (following.change(graph) for following in followings)
        for other, its in others:
            np.testing.assert_array_equal(ranks, other)
            assert its["iterations"] == info["iterations"]
    assert chosen


def test_fewer_iterations_follow(monkeypatch: pytest.MonkeyPatch, chosen: list[tuple[np.ndarray, ...]]) -> None:
    """In a graph in which many leaves hang on vertices of many edges."""
    rng, n, iterations = np.random.default_rng(2661243483), 6000, []
    start = replace(
        random_graph(3, n, 10, False),
        src=(n * rng.random(10 * n) ** 6).astype(np.uint32), dst=rng.integers(0, n, 10 * n, np.uint32),
    )  # fmt: skip
    batches = [changed(rng, start, 2)]
    for _ in range(4):
        batches.append(changed(rng, batches[-1], 2))
    for sends in (True, False):
        if not sends:
            monkeypatch.setattr(carry.Carry, "_receivers", lambda self, most: self.list[:0])
        following = Following(start, 1)
        iterations.append(sum(following.change(graph)[1]["iterations"] for graph in batches))
    print(iterations)
    assert iterations[0] < iterations[1]
