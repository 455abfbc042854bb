"""Maintained communities on shards: the same whether full computations copy the rows without gaps or not."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from communities import networkx_graph, planted, sets
from graphs import random_graph
from plain_graph import fresh_rng
from spmd import FakeShard, Graph, change_rows, cut, run, run_program, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Algorithm, EdgeDelta
from mgraph.algorithms.communities.dynamic import communities
from mgraph.algorithms.communities.leiden import program
from mgraph.algorithms.primitives import compact_csr
from mgraph.device import Device
from mgraph.structures.plan import DELETED, INSERTED

#: what is done at each update: vertices move, once or until no community is divided; some communities are improved on
#: all levels; all are computed anew
STEPS = [(1, 1.0, 1.0), (4, 1.0, 1.0), (1, 0.0, 1.0), (4, 0.0, 0.0)]


def followed(
    graph: Graph, size: int, structure: str, device: str, name: str, keys: np.ndarray, kinds: np.ndarray
) -> list[tuple[Any, dict]]:
    """The results before and after a change."""
    algorithm, made = ALGORITHMS[name], shards(graph, cut(graph.n, size), structure, device=device)
    maintained: dict[int, Any] = {}

    def begin(shard: FakeShard) -> Any:
        algorithm.warm(shard)
        maintained[shard.rank] = _maintained(algorithm, shard)
        return maintained[shard.rank].columns()

    def update(shard: FakeShard) -> Any:
        delta = EdgeDelta(shard.device.asarray(keys), shard.device.asarray(kinds), int((kinds == DELETED).sum()))
        assert maintained[shard.rank].apply_changes(delta, 2 * len(graph.src)) is not None
        # The next update of a level that is kept begins as that of a new one.
        assert not Device.to_host(maintained[shard.rank].level.marks).any()
        return maintained[shard.rank].columns()

    results = [run_program(made, begin, algorithm)]
    change_rows(made, keys, kinds)
    return [*results, run_program(made, update, algorithm)]


def _maintained(algorithm: Algorithm, shard: FakeShard, seed: int = 1) -> Any:
    assert algorithm.maintain is not None and algorithm.memory is not None
    arguments = {"resolution": 1.0, "seed": seed, "max_levels": 50}
    return algorithm.maintain(shard, algorithm.memory(0), **arguments)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", ["leiden", "louvain"])
def test_on_copied_rows(monkeypatch: pytest.MonkeyPatch, structure: str, device: str, name: str, size: int) -> None:
    rng, copies = fresh_rng(), []
    graph, truth = planted(int(rng.integers(1 << 30)))
    oracle, half = networkx_graph(graph), truth == truth[0]
    half &= np.cumsum(half) % 2 == 0
    # A community falls into two halves.
    lost = [(u, v) for u, v in oracle.edges if (truth[u] == truth[v] and half[u] != half[v]) or rng.random() < 0.1]
    new = [(u, v) for u, v in rng.integers(0, graph.n, (30, 2)).tolist() if u != v and not oracle.has_edge(u, v)]
    oracle.remove_edges_from(lost)
    oracle.add_edges_from(new)
    kind_of = {(u << 32) | v: kind for pairs, kind in ((lost, DELETED), (new, INSERTED)) for u, v in _both_ways(pairs)}
    keys = np.array(sorted(kind_of), np.uint64)
    kinds = np.array([kind_of[key] for key in keys.tolist()], np.uint8)

    for rounds, renewal, share in STEPS:
        for constant, value in (("ROUNDS", rounds), ("RENEWAL", renewal), ("FIRST", share), ("LEAST", share)):
            monkeypatch.setattr(communities, constant, value)
        results = []
        for worth in (False, True):
            monkeypatch.setattr(compact_csr, "_worth", lambda shard, edges, worth=worth: copies.append(worth) or worth)
            results.append(followed(graph, size, structure, device, name, keys, kinds))
        for got, want in zip(*results, strict=True):
            for column, values in want[0].items():
                np.testing.assert_array_equal(got[0][column], values)
            assert got[1] == want[1]
        assert all(nx.is_connected(oracle.subgraph(part)) for part in sets(got[0]["community"]))
    assert any(copies)


def _both_ways(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [*pairs, *((v, u) for u, v in pairs)]


def test_communities_of_a_large_graph_begin_with_two_iterations(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """They are better than those of fresh runs in the mean, and the same on each number of ranks."""
    for size in ("SMALL", "MEDIUM"):
        monkeypatch.setattr(program, size, 0)
    algorithm, graph = ALGORITHMS["leiden"], random_graph(7, 400, 2400, False)
    made = shards(graph, cut(graph.n, 1), device=device)
    qualities = []
    for seed in range(6):

        def begin(shard: FakeShard, seed: int = seed) -> Any:
            algorithm.warm(shard)
            return _maintained(algorithm, shard, seed).columns()

        columns, info = run_program(made, begin, algorithm)
        again = run_program(shards(graph, cut(graph.n, 3, even=False), device=device), begin, algorithm)
        np.testing.assert_array_equal(again[0]["community"], columns["community"])
        qualities.append((info["quality"], run(made, algorithm, seed=seed)[1]["quality"]))
    maintained, fresh = np.mean(qualities, axis=0)
    assert maintained > fresh
