"""The k-truss against NetworkX: every structure and device, 1 and 3 ranks, orders, pieces, batches."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import NONE, random_graph, shapes
from spmd import FakeShard, Graph, cut, facts, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.density.triangles import program
from mgraph.errors import InvalidOption

K_TRUSS = ALGORITHMS["k_truss"]


def check(graph: Graph, made: list[FakeShard], k: int) -> None:
    oracle = nx.Graph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    oracle.remove_edges_from(list(nx.selfloop_edges(oracle)))
    want = sorted(tuple(sorted(edge)) for edge in nx.k_truss(oracle, k).edges)
    found, _ = run(made, K_TRUSS, k)
    assert list(zip(found.src.tolist(), found.dst.tolist(), strict=True)) == want


def cliques(n: int, seed: int) -> Graph:
    """Overlapping cliques of several sizes and some edges besides, of which each k leaves others."""
    rng, edges = np.random.default_rng(seed), []
    for size in (3, 4, 5, 6, 8, 12):
        members = rng.permutation(n)[:size].tolist()
        edges += [(a, b) for a in members for b in members if a <= b]
    src, dst = np.array(edges, np.uint32).T
    extra = rng.integers(0, n, (2, 2 * n), dtype=np.uint32)
    return Graph(n, np.concatenate([src, extra[0]]), np.concatenate([dst, extra[1]]), directed=False)


def test_every_structure(structure: str, device: str, ranks: int) -> None:
    for graph in (cliques(40, 1), random_graph(2, 60, 600, directed=False, skew=True)):
        made = shards(graph, cut(graph.n, ranks, even=False), structure, False, device)
        for k in (0, 3, 4, 6, 20):
            check(graph, made, k)


def strip(n: int) -> Graph:
    """Triangles in a row: at k = 4 one side goes first, and then the rest."""
    ids = np.arange(n, dtype=np.uint32)
    return Graph(n, np.concatenate([ids[:-1], ids[:-2]]), np.concatenate([ids[1:], ids[2:]]), directed=False)


def test_shapes_in_small_pieces(device: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PIECE", 16)
    monkeypatch.setattr(program, "ALONE", 16)
    for graph in (*(one for one in shapes() if not one.directed), strip(30), Graph(0, NONE, NONE, directed=False)):
        for k in (3, 4):
            check(graph, shards(graph, cut(graph.n, ranks, even=False), "gpma+", False, device), k)


def test_rounds(device: str) -> None:
    made = shards(strip(21), cut(21, 1), "gpma+", False, device)
    assert [run(made, K_TRUSS, k)[1]["rounds"] for k in (2, 3, 4)] == [0, 1, 3]


def test_orders_and_batches(device: str) -> None:
    graph = cliques(50, 3)
    made, order = reordered(graph, 2, 3, device)
    inside = Graph(50, order[graph.src], order[graph.dst], directed=False)
    check(inside, made, 4)
    for after, parts in apply_to("gpma+", device, 2, n=40, each=300, directed=False):
        check(after, parts, 4)


def test_bad_arguments() -> None:
    for directed, k, message in ((True, 3, "directed=False"), (False, -1, "k is -1"), (False, 2.5, "k is 2.5")):
        made = shards(Graph(5, NONE, NONE, directed), cut(5, 1))
        with pytest.raises(InvalidOption, match=message):
            K_TRUSS.check(facts(made), k)
