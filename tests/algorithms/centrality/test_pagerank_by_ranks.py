"""Maintained PageRank that goes on from the shares sent, on several ranks."""

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
from mgraph.algorithms.centrality.pagerank import maintain
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


def test_ranks_do_not_depend_on_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, as to which vertices send at once. Vertices of one worker have most of the edges."""
    monkeypatch.setattr(maintain.Ranks, "_fits", lambda self, changed, most: False)
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
