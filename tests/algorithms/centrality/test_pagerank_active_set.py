"""Walks that begin at few vertices: only what they reach is visited, with the ranks that a visit of all gives."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from graphs import random_graph
from spmd import Graph, cut, run, shards
from sssp_oracle import random_weighted

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.centrality.pagerank import active_set as module

PAGERANK = ALGORITHMS["pagerank"]
program = importlib.import_module("mgraph.algorithms.centrality.pagerank.program")


def torus(side: int) -> Graph:
    v = np.arange(side * side, dtype=np.uint32).reshape(side, side)
    right, down = np.roll(v, -1, 1), np.roll(v, -1, 0)
    src, dst = np.concatenate([v.ravel(), v.ravel()]), np.concatenate([right.ravel(), down.ravel()])
    return Graph(v.size, src, dst, directed=False)


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many vertices were reached at each step, and whether they were few."""
    seen: list[tuple[int, bool]] = []
    read = module.ActiveSet._read

    def reading(self: Any) -> None:
        read(self)
        seen.append((self.n, self.few))

    monkeypatch.setattr(module.ActiveSet, "_read", reading)
    return seen


OPTIONS: list[dict[str, Any]] = [
    {},
    {"tol": 1e-9, "max_iter": 300},
    {"dtype": "float64", "tol": 1e-10, "max_iter": 300},
    {"dangling": "drop"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["torus", "undirected", "directed", "weighted", "hubs"])
def test_the_same_as_a_visit_of_all(
    device: str, monkeypatch: pytest.MonkeyPatch, visited: list[tuple[int, bool]], kind: str, options: dict[str, Any]
) -> None:
    """Bit for bit: with few until the end, with few at first, and with all from the beginning.

    The error is a sum over the vertices that are visited, in their order there, so its last digits may differ.
    """
    graph = {
        "torus": lambda: torus(30),
        "undirected": lambda: random_graph(1, 900, 1200, directed=False),
        "directed": lambda: random_graph(2, 900, 1500),  # with vertices that have no out-edges
        "weighted": lambda: random_weighted(3, kind="fractions"),
        "hubs": lambda: random_graph(4, 900, 4000, skew=True),
    }[kind]()
    made = shards(graph, cut(graph.n, 1), "gpma+", reverse=True, device=device)
    given = {"weight": kind == "weighted", "max_iter": 200, **options}
    for personal in ({5: 1.0}, {graph.n - 1: 2.0, 7: 1.0, 400 % graph.n: 0.0})[1 if options else 0 :]:
        found = []
        for share in (1, 8, 10**9):
            monkeypatch.setattr(module, "SHARE", share)
            visited.clear()
            found.append(run(made, PAGERANK, personalization=personal, **given))
            few = [there for _, there in visited]
            assert few == sorted(few, reverse=True)  # once they are too many, nobody asks again
            assert few[:1] == [share < 10**9]
            assert all(few) or share > 1 or kind in ("weighted", "hubs")  # both have hubs
        ranks, info = found[0]
        assert info["converged"]
        for others, same in found[1:]:
            np.testing.assert_array_equal(others, ranks)
            assert same.pop("error") == pytest.approx(info["error"], rel=1e-9)
            assert same == {name: value for name, value in info.items() if name != "error"}


def test_far_vertices_are_not_visited(counted: Counter[str], visited: list[tuple[int, bool]], device: str) -> None:
    graph = torus(300)
    (made,) = shards(graph, cut(graph.n, 1), "gpma+", device=device)
    counted.clear()
    few = {"chosen": np.array([0], np.uint32), "chosen_rows": np.zeros(1, np.int64), "chosen_values": np.ones(1)}
    columns, info = PAGERANK.run(made, alpha=0.5, **few)
    steps = info["iterations"]
    n, still_few = visited[-1]
    assert (n, still_few) == (2 * (steps + 1) * (steps + 2) + 1, True)  # the vertices of a torus at most steps + 1 away
    assert steps > 10
    kernels = {"Begin": 1, "Reach": steps + 1, "PullRows": steps, "FinishPull": steps}
    assert +counted == Counter(
        kernels | {"StartRanks": 1, "FirstShares": 1, "GiveRanks": 1, "read-back": 2 * steps + 3}
    )
    ranks = made.device.to_host(columns["rank"])
    assert np.count_nonzero(ranks) <= n
    np.testing.assert_allclose(ranks.sum(), 1, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2])
def test_an_iteration_that_may_not_converge_begins_as_the_definition(size: int) -> None:
    """And so its iterates are the definition's; one that converges before its last iteration begins with the walks."""
    graph = random_graph(6, 400, 3000, directed=False)
    made = shards(graph, cut(graph.n, size))
    matrix = graph.matrix()
    degrees = np.asarray(matrix.sum(axis=1)).ravel()
    p = np.zeros(graph.n)
    p[9] = 1.0
    x = np.full(graph.n, 1 / graph.n)
    for steps in range(4):
        options = {"personalization": p, "dtype": "float64", "max_iter": steps}
        ranks, info = run(made, PAGERANK, tol=1e-3, **options)
        assert info["iterations"] == steps
        np.testing.assert_allclose(ranks, x, rtol=1e-9)
        send = np.divide(x, degrees, out=np.zeros_like(x), where=degrees > 0)
        x = 0.85 * (matrix.T @ send + x[degrees == 0].sum() * p) + 0.15 * p
    exact, _ = run(made, PAGERANK, personalization=p, dtype="float64", tol=1e-13, max_iter=1000)
    for most in (5, 100):
        ranks, info = run(made, PAGERANK, personalization=p, tol=1e-6, max_iter=most)
        assert info["converged"] == (most == 100)
        if info["converged"]:
            assert np.abs(ranks - exact).sum() < 0.85 / 0.15 * 1e-6 + 1e-7


@pytest.mark.parametrize("directed", [True, False])
def test_on_every_structure(structure: str, device: str, directed: bool) -> None:
    graph = random_graph(8, 2000, 5000, directed)
    made = shards(graph, cut(graph.n, 1), structure, reverse=True, device=device)
    want, _ = run(made, PAGERANK, personalization={3: 1.0}, dtype="float64", tol=1e-13, max_iter=1000)
    ranks, info = run(made, PAGERANK, personalization={3: 1.0})
    assert info["converged"]
    assert np.abs(ranks - want).sum() < 0.85 / 0.15 * 1e-6 + 1e-7
