"""PageRank's promises in numbers, most of them on graphs where mixing is slow: the bound, the iterates, tolerances."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np
import pytest
from graphs import random_graph, slow_build
from pagerank_oracle import iterate, limit
from spmd import Graph, cut, run, run_program, shards

from mgraph.algorithms import ALGORITHMS

PAGERANK = ALGORITHMS["pagerank"]

pytestmark = [
    pytest.mark.skipif(slow_build(), reason="thousands of iterations: minutes in a build that looks for faults"),
    pytest.mark.usefixtures("usual_constants"),  # the promises are about these
]
module = importlib.import_module("mgraph.algorithms.centrality.pagerank.program")
ROUNDING = {"float32": 1e-7, "float64": 1e-12}  # of the ranks, in L1


def _both_ways(name: str, n: int, src: Any, dst: Any) -> Graph:
    src, dst = np.asarray(src, np.uint32), np.asarray(dst, np.uint32)
    return Graph(n, np.concatenate([src, dst]), np.concatenate([dst, src]), name=name)


def _cliques(small: int, large: int) -> Graph:
    (a, b), (c, d) = np.triu_indices(small, 1), np.triu_indices(large, 1)
    src, dst = np.concatenate([a, c + small, [0]]), np.concatenate([b, d + small, [small]])
    return _both_ways("cliques", small + large, src, dst)


def _grid(side: int) -> Graph:
    ids = np.arange(side * side).reshape(side, side)
    src = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    return _both_ways("grid", side * side, src, np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()]))


def _chain(n: int) -> Graph:
    return Graph(n, np.arange(n - 1, dtype=np.uint32), np.arange(1, n, dtype=np.uint32), name="chain")


def _star(n: int) -> Graph:
    return _both_ways("star", n, np.zeros(n - 1), np.arange(1, n))


def _dangling(n: int) -> Graph:
    """Two chains that feed each other by one edge, and a vertex without out-edges beside each of theirs."""
    at = np.arange(n // 2)
    src = np.concatenate([at[:-1], at[1:], at, [0]])
    return Graph(n, src.astype(np.uint32), np.concatenate([at[1:], at[:-1], at + n // 2, [n // 4]]).astype(np.uint32))


GRAPHS = {
    "cliques": lambda: _cliques(300, 700), "grid": lambda: _grid(100), "chain": lambda: _chain(1000),
    "star": lambda: _star(20_000), "dangling": lambda: _dangling(800), "small cliques": lambda: _cliques(40, 90),
    "small star": lambda: _star(3000), "small grid": lambda: _grid(20),
}  # fmt: skip


@cache
def graph_of(name: str) -> Graph:
    return GRAPHS[name]()


@cache
def limit_of(name: str, alpha: float) -> np.ndarray:
    return limit(graph_of(name), alpha)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(np.float64) - other).sum())


def rank(graph: Graph, size: int = 1, way: str = "kept", structure: str = "gpma+", **options: Any) -> tuple[Any, dict]:
    return run(shards(graph, cut(graph.n, size), structure, way == "kept"), PAGERANK, **options)


BOUNDS = [
    ("cliques", 0.99, 1e-6), ("cliques", 0.99, 1e-7), ("grid", 0.999, 1e-7), ("chain", 0.99, 1e-6),
    ("chain", 0.999, 1e-6), ("chain", 0.999, 1e-7), ("star", 0.85, 1e-7), ("star", 0.99, 1e-7),
    ("dangling", 0.999, 1e-7), ("small cliques", 0.999, 1e-7), ("small cliques", 0.999, 1e-9),
    ("chain", 0.999, 1e-9), ("small star", 0.99, 1e-8), ("small grid", 0.999, 1e-10),
]  # fmt: skip
#: with in-edges that the graph keeps, the graphs that converge slowly; the other two ways once
QUICK = [("kept", *BOUNDS[i]) for i in (2, 5, 8, 10, 12)] + [("made", *BOUNDS[3]), ("pushed", *BOUNDS[3])]


@pytest.mark.parametrize(
    ("way", "name", "alpha", "tol"),
    [
        pytest.param(way, *bound, marks=() if (way, *bound) in QUICK else pytest.mark.slow)
        for bound in BOUNDS
        for way in ("kept", "made", "pushed")
    ],
    indirect=["way"],
)
def test_converged_ranks_are_within_the_bound(name: str, alpha: float, tol: float, way: str) -> None:
    graph = graph_of(name)
    ranks, info = rank(graph, 2 if name == "dangling" else 1, way, alpha=alpha, tol=tol, max_iter=30_000)
    found = apart(ranks, limit_of(name, alpha))
    print(info, found)
    assert ranks.dtype == np.float32
    assert info["converged"]
    assert info["error"] < tol
    assert found <= alpha / (1 - alpha) * tol + ROUNDING["float32"]


@pytest.mark.parametrize(
    ("bits", "name", "alpha", "most"),
    [
        (32, "small cliques", 0.99, 5000),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (
            (16, "cliques", 0.99, 5000), (16, "grid", 0.999, 20_000), (32, "grid", 0.999, 20_000),
            (16, "chain", 0.999, 20_000), (32, "chain", 0.999, 20_000),
        )),
    ],
)  # fmt: skip
def test_a_longer_run_is_never_worse(
    bits: int, name: str, alpha: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NARROW_TOL", 0.0 if bits == 16 else 1.0, raising=False)  # whatever the tolerance
    least = np.inf
    for steps in (most // 50, most // 10, most // 2, most):
        ranks, info = rank(graph_of(name), alpha=alpha, tol=0.0, max_iter=steps)
        assert info["iterations"] == steps
        found = apart(ranks, limit_of(name, alpha))
        assert found <= least + ROUNDING["float32"]
        least = min(least, found)
    assert least < ROUNDING["float32"]


def test_the_error_bounds_the_distance_at_any_time(way: str) -> None:
    for name, alpha in (("small cliques", 0.99), ("dangling", 0.95), ("small star", 0.85)):
        for steps in (1, 2, 3, 5, 10, 40, 160):
            ranks, info = rank(graph_of(name), 2, way, alpha=alpha, tol=1e-7, max_iter=steps)
            found, bound = apart(ranks, limit_of(name, alpha)), alpha / (1 - alpha) * info["error"]
            print(name, steps, found, bound)
            assert found <= bound + ROUNDING["float32"]


@pytest.mark.parametrize("directed", [True, False])
def test_converged_is_true_of_random_graphs(directed: bool, pieces: str) -> None:
    rng = np.random.default_rng(3)
    for seed in range(12):
        alpha, tol = float(rng.choice([0.5, 0.85, 0.99, 0.999])), float(rng.choice([1e-3, 1e-5, 1e-7, 1e-9]))
        print(f"seed {seed}, alpha {alpha}, tol {tol}")
        graph = random_graph(seed, 300, 450, directed, skew=seed % 2 == 1)
        ranks, info = rank(graph, 1 + seed % 3, alpha=alpha, tol=tol, max_iter=30_000)
        assert info["converged"]
        assert apart(ranks, limit(graph, alpha)) <= alpha / (1 - alpha) * tol + ROUNDING["float32"]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("steps", [0, 1, 2, 7, 60])
def test_below_a_tolerance_of_1e_7_iterates_are_the_definitions(size: int, steps: int, way: str) -> None:
    for graph, alpha in ((random_graph(21, 900, 5000, skew=True), 0.85), (graph_of("dangling"), 0.999)):
        want, _ = iterate(graph, alpha, 0.0, steps)
        for tol in (0.0, 1e-30):
            ranks, info = rank(graph, size, way, alpha=alpha, tol=tol, max_iter=steps)
            if info["error"] > 0 or tol == 0:
                assert info["iterations"] == steps
                assert not info["converged"]
            np.testing.assert_allclose(ranks, want, rtol=1e-6)  # a hundredth of what is promised


def test_a_tolerance_of_0_goes_on_where_nothing_changes() -> None:
    ring = Graph(64, np.arange(64, dtype=np.uint32), np.roll(np.arange(64, dtype=np.uint32), 1), directed=False)
    _, info = rank(ring, tol=0.0, max_iter=33)
    assert info == {"iterations": 33, "error": 0.0, "converged": False}
    _, info = rank(ring, tol=1e-30, max_iter=33)
    assert info["converged"]
    assert info["iterations"] < 33


@pytest.mark.parametrize("size", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_float64_reaches_1e_12(size: int, way: str) -> None:
    alpha = 0.85 if size == 2 else 0.99
    for name in ("small cliques", "chain", "small star", "dangling"):
        graph = graph_of(name)
        ranks, info = rank(graph, size, way, alpha=alpha, tol=1e-12, max_iter=5000, dtype="float64")
        found = apart(ranks, limit_of(name, alpha))
        print(name, info, found)
        assert ranks.dtype == np.float64
        assert info["converged"]
        assert found <= alpha / (1 - alpha) * 1e-12 + ROUNDING["float64"]
        assert abs(ranks.sum() - 1) < 1e-13
        want, _ = iterate(graph, alpha, 0.0, 20)
        ranks, _ = rank(graph, size, way, alpha=alpha, tol=0.0, max_iter=20, dtype="float64")
        np.testing.assert_allclose(ranks, want, rtol=1e-12)  # NumPy's own rounding


def test_float64_on_every_structure(structure: str, pieces: str, way: str) -> None:
    graph = random_graph(22, 2000, 30_000, skew=True)
    ranks, info = rank(graph, 2, way, structure, tol=1e-12, max_iter=300, dtype="float64")
    _, steps = iterate(graph, tol=1e-12, max_iter=300)
    assert abs(info["iterations"] - steps) <= 1
    assert apart(ranks, limit(graph, 0.85)) <= 0.85 / 0.15 * 1e-12 + ROUNDING["float64"]


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"tol": 1e-9}, {"tol": 1e-12, "dtype": "float64"}], ids=str)
@pytest.mark.parametrize("size", [1, 3])
def test_a_start_of_any_kind(options: dict[str, Any], kind: str, size: int, way: str) -> None:
    graph, alpha = graph_of("dangling"), 0.99
    want = limit_of("dangling", alpha)
    made = shards(graph, cut(graph.n, size), reverse=way == "kept")

    def run_on(most: int) -> tuple[Any, dict]:
        def program(shard: Any) -> Any:
            start = want[shard.lo : shard.hi].astype(kind)
            return PAGERANK.run(shard, alpha=alpha, start=start, max_iter=most, **options)

        return run_program(made, program, PAGERANK)

    dtype, tol = options.get("dtype", "float32"), options.get("tol", 1e-6)
    ranks, info = run_on(0)
    assert apart(ranks, want) < ROUNDING["float32"]
    ranks, info = run_on(10_000)
    _, cold = run(made, PAGERANK, alpha=alpha, max_iter=10_000, **options)
    assert info["converged"]
    assert info["iterations"] < cold["iterations"] / 2
    if not options or (dtype, kind) == ("float64", "float64"):
        assert info["iterations"] <= 2
    assert apart(ranks, want) <= alpha / (1 - alpha) * tol + ROUNDING[dtype]


@pytest.mark.parametrize("options", [{}, {"tol": 1e-9}, {"tol": 1e-12, "dtype": "float64"}], ids=str)
def test_a_start_where_there_are_hubs(options: dict[str, Any], pieces: str, way: str) -> None:
    graph, alpha = random_graph(23, 800, 9000, skew=True), 0.95
    want, rng = limit(graph, alpha), np.random.default_rng(23)
    made = shards(graph, cut(graph.n, 2), reverse=way == "kept")
    start = (want * rng.uniform(0.99, 1.01, graph.n)).astype(np.float32)

    def run_on(**more: Any) -> tuple[Any, dict]:
        def program(shard: Any) -> Any:
            return PAGERANK.run(shard, alpha=alpha, start=start[shard.lo : shard.hi], **{**options, **more})

        return run_program(made, program, PAGERANK)

    dtype, tol = options.get("dtype", "float32"), options.get("tol", 1e-6)
    ranks, info = run_on(max_iter=1000)
    assert info["converged"]
    assert apart(ranks, want) <= alpha / (1 - alpha) * tol + ROUNDING[dtype]
    after, _ = run_on(tol=0.0, max_iter=1)
    flow = graph.matrix().toarray()
    degree, first = flow.sum(axis=1), start / start.sum(dtype=np.float64)
    once = alpha * (flow.T @ (first / np.where(degree, degree, 1)) + first[degree == 0].sum() / graph.n)
    np.testing.assert_allclose(after, once + (1 - alpha) / graph.n, rtol=1e-6)
