"""Maintained PageRank goes on from the shares that vertices have sent and received."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch
from mgraph.algorithms.algorithm import HUB_DEGREE
from mgraph.algorithms.centrality.pagerank import carry, maintain

CASES: dict[str, dict[str, Any]] = {
    "by default": {},
    "drop": {"dangling": "drop"},
    "chosen": {"personalization": {1: 2.0, 5: 1.0}, "dangling": "uniform"},
    "tighter": {"tol": 1e-8, "alpha": 0.7, "max_iter": 200},
}


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[carry.Carry, bool]]:
    """Let reads iterate, however few edges changed. Returns what took changes in, and whether it did."""
    taken: list[tuple[carry.Carry, bool]] = []
    take = carry.Carry.take

    def noted(self: carry.Carry, *args: Any) -> bool:
        taken.append((self, take(self, *args)))
        return taken[-1][1]

    monkeypatch.setattr(maintain.Ranks, "_fits", lambda self, changed, most: False)
    monkeypatch.setattr(carry.Carry, "take", noted)
    return taken


class Changing:
    """A graph and its edges, for random changes."""

    def __init__(self, graph: DynamicGraph, n: int, m: int) -> None:
        self.graph, self.n, self.rng = graph, n, fresh_rng()
        self.edges = self.rng.integers(0, n, (2, m))
        graph.insert(*self.edges)

    def change(self, size: int) -> None:
        """Insert `size` edges, and delete as many."""
        at, new = self.rng.integers(0, self.edges.shape[1], size), self.rng.integers(0, self.n, (2, size))
        op = np.repeat([1, -1], size).astype(np.int8)
        self.graph.update(EdgeBatch(*np.append(new, self.edges[:, at], axis=1), op=op))
        self.edges = np.append(np.delete(self.edges, at, axis=1), new, axis=1)


def promised(result: Any, graph: DynamicGraph, given: dict[str, Any]) -> bool:
    """Return True if the L1 distance to the solution is what the result promises at most."""
    exact = graph.pagerank(**{**given, "tol": 1e-12, "dtype": "float64", "max_iter": 1000}).to_numpy()
    alpha, tol = given.get("alpha", 0.85), given.get("tol", 1e-6)
    assert result.converged and result.error < tol
    return bool(np.abs(result.to_numpy().astype(float) - exact).sum() <= alpha / (1 - alpha) * tol + 1e-7)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_ranks_keep_their_promise(place, case, directed, carried):
    """Also with new and removed vertices, large batches, rows that become hubs, and loose vertices."""
    n, given = 1500, CASES[case]
    with DynamicGraph(place, n, directed=directed, reverse=directed, device="cpu") as graph:
        changing, live = Changing(graph, n, 4 * n), graph.maintain("pagerank", **given)
        for i in range(24):
            changing.change(1 + i % 5 * 2)
            if i == 6:
                graph.add_vertices(10)
                graph.insert([n, n + 1, 3], [7, n + 2, n])
            if i == 9:
                graph.delete_vertices([20, 21])
            if i == 12:
                graph.insert(np.full(HUB_DEGREE + 100, 8), np.arange(HUB_DEGREE + 100))
            if i == 15:
                graph.delete(np.full(HUB_DEGREE, 8), np.arange(HUB_DEGREE))
            if i == 18:
                changing.change(n)
            assert promised(live.result(), graph, given)
        assert place or sum(done for _, done in carried) > 12


def test_errors_do_not_build_up_over_many_batches(carried):
    """All vertices have edges: a small component would take long, and later reads would compute anew."""
    n = 400
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        changing, live = Changing(graph, n, 10 * n), graph.maintain("pagerank")
        for i in range(1000):
            changing.change(2)
            result = live.result()
            if i % 100 == 99:
                assert promised(result, graph, {})
        assert sum(done for _, done in carried) > 990


def test_few_changes_take_fewer_iterations_than_from_the_last_ranks(carried, monkeypatch):
    n, iterations = 20_000, {}
    for way in ("from ranks", "carried"):
        with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph, monkeypatch.context() as patch:
            if way == "from ranks":
                patch.setattr(carry.Carry, "keep", lambda self, *args: None)
            changing, live = Changing(graph, n, 20 * n), graph.maintain("pagerank")
            iterations[way] = 0
            for _ in range(5):
                changing.change(2)
                iterations[way] += live.result().iterations
    assert iterations["carried"] <= iterations["from ranks"] - 5


def test_what_is_received_is_what_was_sent(carried):
    """After 60 batches, up to rounding."""
    n = 500
    with DynamicGraph(n_vertices=n, directed=False, device="cpu") as graph:
        changing, live = Changing(graph, n, 4 * n), graph.maintain("pagerank")
        for _ in range(60):
            changing.change(1)
            live.result()
        state = carried[-1][0]
        rows = graph.to_csr()
        src = np.repeat(np.arange(n), np.diff(rows.offsets))
        sent = np.bincount(rows.dst, state.sent[src], n)
        assert np.abs(sent - state.sums).sum() < 1e-13


def test_a_teleport_vector_after_vertices_were_added(monkeypatch):
    """Forward push takes them in, and so do the iterations after it, which would read past the vector's end."""
    rng, exact, lengths, run = fresh_rng(), {"dtype": "float64", "tol": 1e-10, "max_iter": 1000}, [], maintain.run

    def noted(shard: Any, **arguments: Any) -> Any:
        lengths.append((len(arguments["dense"]), shard.n_vertices))
        return run(shard, **arguments)

    monkeypatch.setattr(maintain, "run", noted)
    monkeypatch.setattr(maintain.Ranks, "_allowed", lambda self, most: 1 << 40)
    with DynamicGraph(n_vertices=50, directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, 50, (2, 120)))
        given = {"personalization": rng.random(50), **exact}
        live = graph.maintain("pagerank", **given)
        for pushes in (True, False):
            monkeypatch.setattr(maintain.Ranks, "_fits", lambda self, changed, most, pushes=pushes: pushes)
            if pushes:
                graph.add_vertices(3)
            graph.insert(rng.integers(0, 50, 2), [50, 51] if pushes else [51, 52])  # new edges each time
            assert promised(live.result(), graph, given)
            assert live.report.how == "incremental"
    assert len(lengths) > 2
    assert all(length == n for length, n in lengths)
