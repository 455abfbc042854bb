"""PageRank against NetworkX, and against its iteration in float64 on the real graphs."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graphs import random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, shards

from mgraph.algorithms import PROGRAMS, pagerank
from mgraph.errors import Aborted, InvalidOption
from mgraph.partition import Partition

CUTS = [(1, True), (2, True), (3, True), (3, False)]
module = importlib.import_module("mgraph.algorithms.pagerank")  # whose name is the function's in its package


@pytest.fixture(params=["kept", "made", "pushed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where in-edges of a directed graph come from: the graph, a sort for the call; or it pushes for want of memory."""
    if request.param == "pushed":
        monkeypatch.setattr(module, "transposed", lambda shard: None)
    return request.param


def with_networkx(graph: Graph, **options: Any) -> np.ndarray:
    oracle = (nx.DiGraph if graph.directed else nx.Graph)()
    oracle.add_nodes_from(range(graph.n))
    oracle.add_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    if "tol" in options:
        options["tol"] /= graph.n  # NetworkX multiplies it by the number of vertices
    ranks = nx.pagerank(oracle, weight=None, max_iter=1000, **options)
    return np.array([ranks[v] for v in range(graph.n)])


def iterate(graph: Graph, alpha: float = 0.85, tol: float = 1e-6, max_iter: int = 100) -> tuple[np.ndarray, int]:
    """NetworkX's iteration in float64, for graphs that would take it minutes to hold; and its number of steps."""
    matrix = graph.matrix()
    degree = matrix.sum(axis=1)
    flow = (matrix.T @ _diagonal(1 / np.where(degree, degree, 1))).tocsr()
    x = np.full(graph.n, 1 / graph.n)
    for step in range(1, max_iter + 1):
        new = alpha * (flow @ x) + (alpha * x[degree == 0].sum() + 1 - alpha) / graph.n
        change, x = np.abs(new - x).sum(), new
        if change < tol:
            return x, step
    return x, max_iter


def _diagonal(values: np.ndarray) -> Any:
    import scipy.sparse as sp

    return sp.diags_array(values)


def check(graph: Graph, partition: Partition, reverse: bool, **kind: Any) -> dict:
    tol = 1e-6  # float32 ranks may swing by 5e-7
    ranks, info = run(shards(graph, partition, reverse=reverse, **kind), pagerank, tol=tol, max_iter=300)
    assert ranks.dtype == np.float32
    assert info["converged"]
    assert np.abs(ranks - with_networkx(graph, tol=1e-9)).sum() < 1e-5
    return info


@pytest.mark.parametrize(("size", "even"), CUTS)
def test_shapes(structure: str, device: str, pieces: str, size: int, even: bool, way: str) -> None:
    for graph in shapes():
        check(graph, cut(graph.n, size, even), way == "kept", structure=structure, device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_random(structure: str, device: str, pieces: str, size: int, even: bool, directed: bool, way: str) -> None:
    for seed in range(2):
        print(f"seed {seed}")
        graph = random_graph(seed, 700 + 31 * seed, 2500, directed, skew=seed % 2 == 1)
        check(graph, cut(graph.n, size, even), way == "kept", structure=structure, device=device)


def test_the_float64_iteration_is_networkx() -> None:
    for graph in (random_graph(2, 300, 900, skew=True), random_graph(3, 300, 900, directed=False)):
        for tol in (1e-2, 1e-6):
            np.testing.assert_allclose(iterate(graph, tol=tol)[0], with_networkx(graph, tol=tol), rtol=1e-9)


@cache
def real_oracle(folder: Path, name: str) -> tuple[np.ndarray, int]:
    """The limit of a real graph's ranks, and the steps that the default tolerance takes; seconds each."""
    graph = real_graph(folder, name)
    assert graph is not None
    return iterate(graph, tol=1e-10, max_iter=1000)[0], iterate(graph)[1]


@pytest.mark.parametrize("name", ["web-NotreDame", "cit-HepPh", "ego-twitter", "luxembourg_osm"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, structure: str, device: str, name: str, size: int) -> None:
    if structure != "gpma+" and size > 1:
        pytest.skip("what more ranks add does not hang on the structure")
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    limit, steps = real_oracle(data_dir, name)
    for reverse in (True, False):
        made = shards(graph, cut(graph.n, size, even=reverse), structure, reverse, device)
        ranks, info = run(made, pagerank)
        print(name, size, info, np.abs(ranks - limit).sum())
        assert abs(info["iterations"] - steps) <= 1  # float32 may cross the limit a step away
        assert info["converged"]
        assert np.abs(ranks - limit).sum() < 1e-5


@pytest.mark.parametrize("alpha", [0, 0.5, 1.0])
def test_alpha(alpha: float, way: str) -> None:
    graph = random_graph(4, 200, 800)
    ranks, info = run(
        shards(graph, cut(graph.n, 2), reverse=way == "kept"), pagerank, alpha=alpha, tol=1.6e-6, max_iter=500
    )
    want, steps = iterate(graph, alpha, 1.6e-6, 500)
    assert info["iterations"] == steps
    assert np.abs(ranks - want).sum() < 2e-6


def test_not_converged_says_so(way: str) -> None:
    graph = random_graph(5, 300, 900)
    ranks, info = run(shards(graph, cut(graph.n, 2), reverse=way == "kept"), pagerank, tol=1e-12, max_iter=10)
    assert info["iterations"] == 10
    assert not info["converged"]
    assert info["error"] > 1e-12
    apart = np.abs(ranks - iterate(graph, tol=1e-12, max_iter=10)[0]).sum()
    assert apart < (1e-6 if way == "pushed" else info["error"] / 16)  # what is still to be handed on
    ranks, info = run(shards(graph, cut(graph.n, 2), reverse=way == "kept"), pagerank, max_iter=0)
    assert info["iterations"] == 0
    np.testing.assert_allclose(ranks, 1 / 300, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 3])
def test_the_same_bit_for_bit_whatever_the_threads(size: int, way: str, pieces: str) -> None:
    graph = random_graph(6, 5000, 60000, skew=True)
    made = shards(graph, cut(graph.n, size), reverse=way == "kept")
    first, info = run(made, pagerank, tol=2e-6)
    for threads in (1, 7):
        for shard in made:
            shard.device = replace(shard.device, threads=threads)
        again, other = run(made, pagerank, tol=2e-6)
        np.testing.assert_array_equal(first, again)
        assert info == other


def warm(shard: Any, starts: dict[int, Any], **options: Any) -> Any:
    return pagerank(shard, start=starts[shard.rank], **options)


@pytest.mark.parametrize("size", [1, 2])
def test_warm_start(device: str, size: int, way: str) -> None:
    graph = random_graph(7, 2000, 9000)
    partition = cut(graph.n, size)
    ranks, cold = run(shards(graph, partition, reverse=way == "kept", device=device), pagerank, tol=1e-6)
    more = random_graph(8, 2000, 20)
    grown = Graph(graph.n, np.concatenate([graph.src, more.src]), np.concatenate([graph.dst, more.dst]))
    made = shards(grown, partition, reverse=way == "kept", device=device)
    starts = {s.rank: s.device.asarray(3 * ranks[s.lo : s.hi]) for s in made}  # scaled back to 1
    again, info = run(made, warm, starts, tol=1e-6)
    assert info["converged"]
    assert info["iterations"] < cold["iterations"]
    assert np.abs(again - with_networkx(grown, tol=1e-9)).sum() < 1e-5


def test_warm_start_after_vertices_were_added() -> None:
    graph, partition = random_graph(9, 2050, 9000), Partition((0, 1000, 2050))
    made = shards(graph, partition, reverse=True)
    starts = {0: np.full(1000, 1 / 2000, np.float32), 1: np.full(1000, 1 / 2000, np.float32)}
    ranks, info = run(made, warm, starts, tol=1e-6)
    assert np.abs(ranks - with_networkx(graph, tol=1e-9)).sum() < 1e-5
    _, info = run(made, warm, starts, max_iter=0)
    assert info["iterations"] == 0


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf, 0.0])
def test_bad_start(value: float) -> None:
    graph = random_graph(9, 50, 100)
    starts = {0: np.full(25, 0.0 if value == 0 else 0.02, np.float32), 1: np.full(25, value, np.float32)}
    with pytest.raises(InvalidOption, match="start"):
        run(shards(graph, cut(50, 2)), warm, starts)


def test_launches_and_read_backs(counted: Counter[str], way: str) -> None:  # `+`: a kernel without an item: no launch
    graph = random_graph(10, 3000, 30000)
    made = shards(graph, cut(graph.n, 1), reverse=way == "kept")
    counted.clear()
    _, info = pagerank(made[0], tol=2e-6)
    steps = info["iterations"]
    turning = ["Degrees", "Neighbors", "RowKeys"]
    once = {"kept": ["FirstShares"], "made": ["FirstShares", *turning], "pushed": []}[way]
    each = ["PushRanks", "FinishRanks"] if way == "pushed" else ["PullRows", "FinishPull"]
    assert +counted == Counter(
        dict.fromkeys(["ListHubs", "StartRanks", *once], 1) | {"read-back": steps + 2} | dict.fromkeys(each, steps)
    )


def test_one_collective_and_one_allreduce_an_iteration(way: str) -> None:
    graph = random_graph(10, 3000, 30000)
    made = shards(graph, cut(graph.n, 2), reverse=way == "kept")
    _, info = run(made, pagerank)
    calls = made[0].exchange.calls
    if way == "made":
        assert [call for call, _ in calls[1:5]] == ["allreduce", "allreduce", "allreduce", "alltoallv"]
        calls = [calls[0], *calls[5:]]
    sent = ("alltoallv", 4 * 1500) if way == "pushed" else ("allgather", 2 * 1500)
    assert Counter(calls) == {sent: info["iterations"], ("allreduce", 16): info["iterations"] + 2}


@pytest.mark.parametrize("most", [module.FEW, module.FEW + 1])
def test_in_edges_are_not_made_for_a_few_iterations(counted: Counter[str], most: int) -> None:
    made = shards(random_graph(10, 300, 3000), cut(300, 1))
    pagerank(made[0], tol=0.0, max_iter=most)
    assert counted["RowKeys"] == (most > module.FEW)


@pytest.mark.parametrize("size", [1, 2])
def test_a_start_near_the_limit_stays_there(size: int) -> None:
    graph = random_graph(13, 2000, 20000, directed=False)
    partition = cut(graph.n, size)
    made = shards(graph, partition)
    limit, _ = iterate(graph, tol=1e-12, max_iter=1000)
    starts = {s.rank: limit[s.lo : s.hi].astype(np.float32) for s in made}
    ranks, info = run(made, warm, starts, tol=2e-6)
    assert info["iterations"] == 1  # 16 bits of it alone would move it by 1e-3
    assert np.abs(ranks - limit).sum() < 5e-7


def test_no_vertices() -> None:
    none = np.empty(0, np.uint32)
    ranks, info = run(shards(Graph(0, none, none), cut(0, 2)), pagerank)
    assert len(ranks) == 0
    assert info == {"iterations": 0, "error": 0.0, "converged": True}


def test_named() -> None:
    assert PROGRAMS["pagerank"] is pagerank


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("alpha", 1.5), ("alpha", -0.1), ("alpha", float("nan")), ("alpha", "0.85"),
        ("tol", -1e-9), ("tol", float("nan")), ("max_iter", -1), ("max_iter", 2.5),
    ],
)  # fmt: skip
def test_bad_options(option: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=option):
        run(shards(shapes()[3], cut(67, 2)), pagerank, **{option: value})


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_an_iteration(size: int) -> None:
    calls = iter(range(1000))
    made = shards(random_graph(1, 100, 300), cut(100, size), aborted=lambda: next(calls) >= 6 * size)
    with pytest.raises(Aborted):
        run(made, pagerank, tol=0.0)
    assert next(calls) < 12 * size
