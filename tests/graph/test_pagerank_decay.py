"""PageRank whose edges' weights decay, against a power iteration by SciPy."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from graph_clusters import assert_clean
from plain_graph import fresh_rng
from scipy.sparse import csr_array

from mgraph import DynamicGraph
from mgraph.errors import InvalidOption

KINDS: dict[str, dict[str, Any]] = {
    "directed": {},
    "with in-edges": {"reverse": True},
    "undirected": {"directed": False},
    "weighted": {"directed": False, "weighted": True},
    "weighted, directed": {"weighted": True},
}
DAY = np.timedelta64(1, "D")
Edges = dict[tuple[int, int], tuple[int, float]]


def oracle(edges: Edges, n: int, decay: float, directed: bool, weight: bool) -> np.ndarray:
    """The ranks by the definition, in float64."""
    arcs = dict(edges)
    if not directed:
        arcs |= {(v, u): value for (u, v), value in edges.items()}
    src, dst = np.array(list(arcs), np.int64).reshape(-1, 2).T
    time, weights = np.array(list(arcs.values()), np.float64).reshape(-1, 2).T
    latest = np.full(n, -np.inf)
    np.maximum.at(latest, src, time)
    shares = np.exp2((time - latest[src]) / decay) * (weights if weight else 1)
    sums = np.bincount(src, shares, n)
    matrix = csr_array((shares / sums[src], (dst, src)), shape=(n, n))
    ranks = np.full(n, 1 / n)
    for _ in range(300):
        ranks = 0.85 * (matrix @ ranks + ranks[sums == 0].sum() / n) + 0.15 / n
    return ranks


class Stream:
    """Random edges with times, of which some come again later, and the edges that a graph then has."""

    def __init__(self, n: int, directed: bool, weighted: bool) -> None:
        self.rng, self.n, self.directed, self.weighted, self.edges = fresh_rng(), n, directed, weighted, Edges()

    def apply(self, graphs: list[DynamicGraph], m: int, times: tuple[int, int]) -> None:
        src, dst = self.rng.integers(0, self.n // 2, m), self.rng.integers(0, self.n, m)
        time = np.sort(self.rng.integers(*times, m))
        weight = (self.rng.random(m) + 0.5).astype(np.float32) if self.weighted else None
        for graph in graphs:
            graph.insert(src, dst, weight, time=time)
        values = np.ones(m) if weight is None else weight
        for u, v, t, w in zip(src.tolist(), dst.tolist(), time.tolist(), values.tolist(), strict=True):
            key = (u, v) if self.directed else (min(u, v), max(u, v))
            self.edges[key] = t, w

    def delete(self, graphs: list[DynamicGraph], m: int) -> None:
        gone = [list(self.edges)[i] for i in self.rng.choice(len(self.edges), m, replace=False)]
        for graph in graphs:
            graph.delete(*np.array(gone).T)
        for key in gone:
            del self.edges[key]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ranks_are_those_of_the_definition(kind, device):
    n, directed, weighted = 300, kind.get("directed", True), kind.get("weighted", False)
    stream = Stream(n, directed, weighted)
    with DynamicGraph(n_vertices=n, times=True, device=device, **kind) as graph:
        stream.apply([graph], 2000, (-1000, 1000))
        exact = {"decay": 100, "dtype": "float64", "tol": 1e-10, "max_iter": 1000}
        lives = [graph.maintain("pagerank", **exact, weight=weight) for weight in {False, weighted}]
        for step in range(4):
            for live, weight in zip(lives, {False, weighted}, strict=True):
                want = oracle(stream.edges, n, 100, directed, weight)
                got = graph.pagerank(**exact, weight=weight).to_numpy()
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-9)
                np.testing.assert_allclose(live.result().to_numpy(), want, rtol=1e-5, atol=1e-9)
                # An iteration from the last ranks that took no less is not tried again at once.
                hows = (("unchanged",), ("incremental",))[step] if step < 2 else ("incremental", "recomputed")
                assert live.report.how in hows
            stream.apply([graph], 30, (1000 + 100 * step, 1100 + 100 * step))
            stream.delete([graph], 5)
        want = oracle(stream.edges, n, 2.5, directed, False)
        np.testing.assert_allclose(graph.pagerank(decay=2.5, tol=1e-7).to_numpy(), want, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "kind", ["directed", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("with in-edges", "undirected"))]
)
def test_several_workers(client, kind):
    options = KINDS[kind]
    stream = Stream(200, options.get("directed", True), False)
    with DynamicGraph(client, 200, times=True, device="cpu", **options) as graph:
        stream.apply([graph], 1500, (0, 1000))
        live = graph.maintain("pagerank", decay=50, dtype="float64", tol=1e-10)
        stream.apply([graph], 20, (1000, 1100))
        want = oracle(stream.edges, 200, 50, stream.directed, False)
        np.testing.assert_allclose(live.result().to_numpy(), want, rtol=1e-5, atol=1e-9)
    assert_clean(client)


def test_an_edge_that_only_comes_again_changes_ranks():
    with DynamicGraph(n_vertices=4, times=True, device="cpu") as graph:
        graph.insert([0, 0, 1, 2], [1, 2, 3, 3], time=[0, 10, 0, 0])
        live = graph.maintain("pagerank", decay=10)
        before = live.result().to_numpy()
        assert before[2] > before[1]
        graph.insert([0], [1], time=[20])
        after = live.result().to_numpy()
        assert after[1] > after[2]
        np.testing.assert_allclose(after[[1, 2]], before[[2, 1]], rtol=1e-5)


def test_time_that_passes_changes_nothing():
    """Neither later times of all edges, nor later edges of other vertices, change how a vertex's walks choose."""
    rng = fresh_rng()
    src, dst, time = rng.integers(0, 50, 400), rng.integers(0, 60, 400), rng.integers(0, 1000, 400)
    ranks = []
    for shift in (0, 10**15):
        with DynamicGraph(n_vertices=62, times=True, device="cpu") as graph:
            graph.insert(src, dst, time=np.sort(time) + shift)
            ranks.append(graph.pagerank(decay=30, dtype="float64").to_numpy())
            graph.insert([60], [61], time=[10**16])
            graph.delete([60], [61])
            np.testing.assert_array_equal(graph.pagerank(decay=30, dtype="float64").to_numpy(), ranks[-1])
    np.testing.assert_array_equal(*ranks)


def test_a_row_of_high_degree():
    n = 5000
    time = fresh_rng().integers(0, 10**6, n - 1)
    with DynamicGraph(n_vertices=n, times=True, device="cpu", directed=False) as graph:
        graph.insert(np.zeros(n - 1, np.int64), np.arange(1, n), time=time)
        edges = {(0, v): (int(t), 1.0) for v, t in zip(range(1, n), time, strict=True)}
        want = oracle(edges, n, 10**5, False, False)
        got = graph.pagerank(decay=10**5, dtype="float64", tol=1e-12, max_iter=300).to_numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(("decay", "share"), [(2.0**63, 0.25), (1.0, 0.0), (1e-300, 0.0)])
def test_ages_past_int64(decay, share):
    with DynamicGraph(n_vertices=3, times=True, device="cpu") as graph:
        graph.insert([0, 0], [1, 2], time=[-(2**63) + 1, 2**63 - 1])
        ranks = graph.pagerank(decay=decay, dtype="float64", tol=1e-12).to_numpy()
    more = ranks[1:] - ranks[0]
    np.testing.assert_allclose(more[0], share * more[1], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("decay", ["7 days", datetime.timedelta(days=7), 7 * DAY])
def test_dates(decay):
    days = np.array(["2024-01-01", "2024-01-08", "2024-01-15"], "datetime64[s]")
    with DynamicGraph(n_vertices=4, times="datetime64[s]", device="cpu") as graph:
        graph.insert([0, 0, 0], [1, 2, 3], time=days)
        ranks = graph.pagerank(decay=decay, dtype="float64", tol=1e-12).to_numpy()
    more = ranks[1:] - ranks[0]
    np.testing.assert_allclose(more / more[2], [0.25, 0.5, 1], rtol=1e-6)


def test_bad_values():
    with DynamicGraph(n_vertices=4) as graph, pytest.raises(InvalidOption, match=r"^decay is 3, and .* times=True"):
        graph.pagerank(decay=3)
    with DynamicGraph(n_vertices=4, times=True, device="cpu") as graph:
        graph.insert([0], [1], time=[3])
        for bad in (0, -1, float("nan"), float("inf")):
            with pytest.raises(InvalidOption, match=f"^decay is {bad}; it must be"):
                graph.pagerank(decay=bad)
        for bad in ("soon", [1], True):
            with pytest.raises(InvalidOption, match="^decay is"):
                graph.pagerank(decay=bad)
        with pytest.raises(InvalidOption, match="^decay is .* times are integers"):
            graph.maintain("pagerank", decay=DAY)
    with DynamicGraph(n_vertices=4, times="datetime64[s]") as graph:
        for bad, why in ((7, "timedelta"), ("0 days", "above 0"), (np.timedelta64(1, "Y"), "years")):
            with pytest.raises(InvalidOption, match=f"^decay is .*{why}"):
                graph.pagerank(decay=bad)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("age", [0, 10_000])  # at which an edge of weight 1 weighs 0
def test_an_infinite_weight_is_refused(reverse, age):
    with DynamicGraph(n_vertices=3, times=True, weighted=True, combine="sum", reverse=reverse, device="cpu") as graph:
        graph.insert([0, 0, 1], [1, 2, 2], [2.0**127, 1.0, 1.0], time=[0, age, 0])
        with pytest.warns(UserWarning, match="it is inf"):
            graph.insert([0], [1], [2.0**127], time=[0])
        for call in (graph.pagerank, lambda **how: graph.maintain("pagerank", **how).result()):
            with pytest.raises(InvalidOption, match="from 0 to 1 has weight inf; it must be finite .* PageRank"):
                call(decay=3, weight=True)
        graph.pagerank(decay=3)
