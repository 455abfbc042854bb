"""Jaccard's and the overlap coefficient against sets: every structure and device, 1 and 3 ranks, pieces, batches."""

from __future__ import annotations

import importlib
from typing import Any

import networkx as nx
import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import NONE, random_graph, shapes
from spmd import FakeShard, Graph, cut, facts, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.errors import InvalidOption, UnknownVertex

PROGRAM = importlib.import_module("mgraph.algorithms.pairs.jaccard")


def by_sets(graph: Graph, pairs: np.ndarray, name: str) -> list[float]:
    rows: list[set[int]] = [set() for _ in range(graph.n)]
    for u, v in zip(*(ends.tolist() for ends in graph.arcs), strict=True):
        rows[u].add(v)
    found = []
    for u, v in pairs.tolist():
        a, b = rows[u], rows[v]
        whole = len(a | b) if name == "jaccard" else min(len(a), len(b))
        found.append(len(a & b) / whole if whole else 0.0)
    return found


def check(graph: Graph, made: list[FakeShard], pairs: np.ndarray, order: Any = None) -> None:
    inside = pairs if order is None else order[pairs]
    for name in ("jaccard", "overlap"):
        got, info = run(made, ALGORITHMS[name], inside)
        np.testing.assert_allclose(got, by_sets(graph, pairs, name), rtol=1e-15)
        assert (got.dtype, info) == (np.float64, {"pairs": len(pairs)})


def some_pairs(n: int, k: int = 300) -> np.ndarray:
    return np.random.default_rng(n).integers(0, n, (k, 2))


def test_every_structure(structure: str, device: str, ranks: int) -> None:
    for seed, directed in ((1, True), (2, False)):
        print(f"seed {seed}")
        graph = random_graph(seed, 90, 900, directed, skew=True)
        check(graph, shards(graph, cut(graph.n, ranks, even=False), structure, False, device), some_pairs(graph.n))


def test_shapes_in_small_pieces(device: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROGRAM, "PIECE", 7)
    for graph in shapes():
        check(graph, shards(graph, cut(graph.n, ranks, even=False), "gpma+", False, device), some_pairs(graph.n, 40))
    empty = shards(Graph(0, NONE, NONE), cut(0, ranks), "gpma+", False, device)
    check(Graph(0, NONE, NONE), empty, np.empty((0, 2), np.int64))


def test_jaccard_is_networkx_s() -> None:
    graph = random_graph(3, 60, 400, directed=False)
    graph = Graph(60, *(ends[graph.src != graph.dst] for ends in (graph.src, graph.dst)), directed=False)
    oracle = nx.Graph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    pairs = np.array([pair for pair in some_pairs(60) if set(pair.tolist()) <= set(oracle)])
    want = [score for _, _, score in nx.jaccard_coefficient(oracle, pairs.tolist())]
    np.testing.assert_allclose(run(shards(graph, cut(60, 2)), ALGORITHMS["jaccard"], pairs)[0], want, rtol=1e-15)


def test_orders_and_batches(device: str) -> None:
    graph = random_graph(4, 80, 700)
    made, order = reordered(graph, 2, 4, device)
    check(graph, made, some_pairs(80), order)
    for after, parts in apply_to("gpma+", device, 2, n=90, each=300, directed=False):
        check(after, parts, some_pairs(90))


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([1, 2], InvalidOption, r"shape \(2,\); it must be \(k, 2\)"),
        ([[1, 2, 3]], InvalidOption, r"shape \(1, 3\)"),
        ([[1, 2], [3, 10]], UnknownVertex, r"pairs\[:, 1\]\[1\] is 10; the graph has 10 vertices"),
        ([[1, -1]], InvalidOption, "is -1"),
        ([[0.5, 1]], InvalidOption, r"pairs\[0, 0\] is 0.5; vertex ids are whole numbers"),
        ([[0, 1], [0, 0.5]], InvalidOption, r"pairs\[1, 1\] is 0.5; vertex ids are whole numbers"),
        ([[1], [2, 3]], InvalidOption, "cannot be made an array"),
        ([[1, 2], [True, 2]], InvalidOption, r"pairs\[:, 0\]\[1\] is True; vertex ids"),
    ],
)
def test_bad_pairs(pairs: Any, error: type[Exception], message: str) -> None:
    made = shards(random_graph(1, 10, 20), cut(10, 1))
    with pytest.raises(error, match=message):
        ALGORITHMS["overlap"].check(facts(made), pairs)
