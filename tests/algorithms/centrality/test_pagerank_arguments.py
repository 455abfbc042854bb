"""PageRank's personalization, dangling and weights against NetworkX, and what is wrong with them."""

from __future__ import annotations

import array
import importlib
from contextlib import suppress
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graphs import IDS, random_graph
from spmd import Graph, cut, run, shards
from sssp_oracle import random_weighted

from mgraph.algorithms import ALGORITHMS
from mgraph.errors import InvalidOption, UnknownVertex

PAGERANK = ALGORITHMS["pagerank"]


def oracle(graph: Graph, weight: bool = False, **options: Any) -> np.ndarray:
    """NetworkX's ranks."""
    made = nx.DiGraph() if graph.directed else nx.Graph()
    made.add_nodes_from(range(graph.n))
    matrix = graph.matrix().tocoo()
    made.add_weighted_edges_from(zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True))
    given = {"tol": 1e-16, "max_iter": 3000, **options}
    found = nx.pagerank(made, weight="weight" if weight else None, **given)
    return np.array([found[v] for v in range(graph.n)])


def dropped(graph: Graph, alpha: float = 0.85, p: np.ndarray | None = None) -> np.ndarray:
    """The solution of x = alpha A x + (1 - alpha) p without anything for vertices that have no out-edges."""
    matrix = graph.matrix().toarray()
    out = matrix.sum(axis=1, keepdims=True)
    step = np.divide(matrix, out, out=np.zeros_like(matrix), where=out > 0).T
    p = np.full(graph.n, 1 / graph.n) if p is None else p / p.sum()
    return np.linalg.solve(np.eye(graph.n) - alpha * step, (1 - alpha) * p)


def test_a_start_by_vertex() -> None:
    graph = random_graph(4, 60, 200)
    made = shards(graph, cut(graph.n, 2))
    dense = np.zeros(graph.n)
    dense[[3, 9]] = 1.0, 2.0
    for name in ("start", "nstart"):
        found, want = (run(made, PAGERANK, tol=0, max_iter=2, **{name: one})[0] for one in ({3: 1, 9: 2}, dense))
        np.testing.assert_array_equal(found, want)
        with pytest.raises(UnknownVertex, match=rf"^{name}\[1\] is 60"):
            run(made, PAGERANK, **{name: {3: 1, 60: 1}})


KINDS = [(False, False), (True, False), (False, True), (True, True)]  # whether in-edges are kept; weights


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("reverse", "weight"), KINDS)
@pytest.mark.parametrize("size", [1, 3])
def test_against_networkx(device: str, small: None, size: int, directed: bool, reverse: bool, weight: bool) -> None:
    graph = random_weighted(1, directed, "fractions")
    rng = np.random.default_rng(5)
    few, many = {3: 1.0, 200: 2.5, 17: 0.0}, rng.random(graph.n)
    loose = {9: 1.0, 10: 3.0}
    made = shards(graph, cut(graph.n, size, even=False), "gpma+", reverse, device=device)
    exact = {"dtype": "float64", "tol": 1e-13, "max_iter": 1000, "weight": weight}
    for personal, dangling in ((few, None), (many, None), (None, loose), (few, loose), (many, "uniform"), (None, None)):
        got, info = run(made, PAGERANK, personalization=personal, dangling=dangling, **exact)
        networkx = {"personalization": dict(enumerate(many.tolist())) if personal is many else personal}
        networkx["dangling"] = dict.fromkeys(range(graph.n), 1) if dangling == "uniform" else dangling
        np.testing.assert_allclose(got, oracle(graph, weight, **networkx), rtol=1e-9, atol=1e-12)
        assert info["converged"]
    got, _ = run(made, PAGERANK, dangling="personalization", **exact)
    np.testing.assert_allclose(got, oracle(graph, weight), rtol=1e-9, atol=1e-12)


def test_structures_and_float32(structure: str, small: None) -> None:
    graph = random_weighted(1, kind="fractions")
    for size in (1, 2):
        made = shards(graph, cut(graph.n, size), structure, reverse=True)
        for weight in (False, True):
            want = oracle(graph, weight, personalization={7: 1})
            got, info = run(made, PAGERANK, personalization={7: 2.0}, weight=weight, tol=1e-7, max_iter=300)
            assert got.dtype == np.float32
            assert np.abs(got - want).sum() < 1e-6
            assert info["converged"]


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("way", ["float32", "narrow", "float64", "pushed"])
def test_dropped(way: str, weight: bool) -> None:
    graph = random_weighted(3, kind="fractions")
    plain = Graph(graph.n, graph.src, graph.dst)
    dtype, tol = ("float64", 1e-14) if way == "float64" else ("float32", 1e-7 if way == "narrow" else 1e-8)
    p = np.random.default_rng(2).random(graph.n)
    for size in (1, 2) if way in ("float32", "pushed") else (2,):
        made = shards(graph, cut(graph.n, size), "gpma+", reverse=way != "pushed")
        given = {"dangling": "drop", "weight": weight, "dtype": dtype, "tol": tol, "max_iter": 500}
        for personal in (None, p):
            want = dropped(graph if weight else plain, p=personal)
            got, info = run(made, PAGERANK, personalization=personal, **given)
            assert got.sum() < 0.99
            assert np.abs(got - want).sum() < (1e-12 if dtype == "float64" else 2e-6)
            assert info["converged"]


@pytest.mark.parametrize("size", [1, 2])
def test_several(device: str, size: int) -> None:
    graph = random_graph(2, 150, 400)
    made = shards(graph, cut(graph.n, size), reverse=True, device=device)
    dense = np.random.default_rng(1).random((2, graph.n))
    exact = {"dtype": "float64", "tol": 1e-13, "max_iter": 1000}
    lists = ([{3: 1}, {5: 2, 6: 1}, {3: 2}], [dense[0], dense[1]], dense, [{3: 1}, dense[0], [1.0, 2.0]])
    for given in lists:
        got, info = run(made, PAGERANK, personalization=given, **exact)
        assert got.shape == (len(given), graph.n)
        assert info["converged"]
        for row, personal in zip(got, given, strict=True):
            one, single = run(made, PAGERANK, personalization=personal, **exact)
            np.testing.assert_array_equal(row, one)
            assert single["iterations"] <= info["iterations"]
    assert run(made, PAGERANK, personalization=lists[0])[0].dtype == np.float32


@pytest.mark.parametrize("size", [1, 2])
def test_several_go_on(device: str, size: int) -> None:
    graph = random_graph(2, 150, 400)
    made = shards(graph, cut(graph.n, size), reverse=True, device=device)
    personal = [{3: 1}, {5: 2, 6: 1}]
    exact = {"dtype": "float64", "tol": 1e-9, "personalization": personal, "max_iter": 1000}
    first, cold = run(made, PAGERANK, **exact)
    again, info = run(made, PAGERANK, start=first, **exact)
    assert info["iterations"] <= 2 < cold["iterations"]
    assert np.abs(again - first).sum() < 1e-8
    with pytest.raises(InvalidOption, match=r"nstart has shape \(2, 150\); for no list of.*\(150,\)"):
        run(made, PAGERANK, nstart=first)
    with pytest.raises(InvalidOption, match=r"start has shape \(1, 150\); for 2 .*\(2, 150\)"):
        run(made, PAGERANK, start=first[:1], personalization=personal)
    bad = first.copy()
    bad[1, 7] = -1
    with pytest.raises(InvalidOption, match=r"nstart\[1\] sums to .* least value is -1"):
        run(made, PAGERANK, nstart=bad, personalization=personal)


def test_a_short_array_of_any_library_has_0_past_its_end() -> None:
    graph = random_graph(2, 50, 150)
    made = shards(graph, cut(graph.n, 2), reverse=True)
    short = np.array([1.0, 3.0])
    kinds = [array.array("d", short), memoryview(short)]
    for library, make in (("polars", "Series"), ("pyarrow", "array"), ("pandas", "array"), ("pandas", "Index")):
        with suppress(ImportError):
            kinds.append(getattr(importlib.import_module(library), make)(short))
    for argument in ("personalization", "dangling"):
        want, _ = run(made, PAGERANK, **{argument: [*short, *[0.0] * 48]})
        for kind in kinds:
            np.testing.assert_array_equal(run(made, PAGERANK, **{argument: kind})[0], want, err_msg=str(type(kind)))
        with pytest.warns(UserWarning, match=f"{argument} gives whole numbers to the first 2 of 50 vertices"):
            run(made, PAGERANK, **{argument: range(2)})


def test_any_tol_is_taken() -> None:
    graph = random_graph(2, 150, 400)
    made = shards(graph, cut(graph.n, 2), reverse=True)
    _, info = run(made, PAGERANK, tol=1e-30, max_iter=7, dtype="float64")
    assert (info["iterations"], info["converged"]) == (7, False)
    none = shards(Graph(10, np.empty(0, IDS), np.empty(0, IDS)), cut(10, 2))
    got, info = run(none, PAGERANK, tol=1e-30, dtype="float64")
    assert info["iterations"] == 1  # nothing changes
    np.testing.assert_allclose(got, 0.1)


def test_nstart_is_start() -> None:
    graph = random_graph(2, 150, 400)
    made = shards(graph, cut(graph.n, 2), reverse=True)
    first = np.random.default_rng(1).random(graph.n)
    few = {"tol": 0, "max_iter": 2}
    np.testing.assert_array_equal(
        run(made, PAGERANK, nstart=first, **few)[0], run(made, PAGERANK, start=first, **few)[0]
    )
    with pytest.raises(InvalidOption, match="start and nstart"):
        run(made, PAGERANK, start=first, nstart=first)


def test_weights_of_zero() -> None:
    """A vertex whose weights are all 0 has no way to go, as one without edges."""
    graph = random_weighted(2, kind="zeros")
    silent = graph.src % 3 == 0
    graph = Graph(graph.n, graph.src, graph.dst, weight=np.where(silent, 0, graph.weight).astype(np.float32))
    for reverse in (False, True):
        made = shards(graph, cut(graph.n, 2), "gpma+", reverse)
        got, _ = run(made, PAGERANK, weight=True, dtype="float64", tol=1e-13, max_iter=1000)
        np.testing.assert_allclose(got, oracle(graph, weight=True), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"personalization": {}}, "empty"),
        ({"personalization": {1: "a"}}, r"personalization\[1\] is 'a'"),
        ({"personalization": np.ones(21)}, "shape"),
        ({"personalization": [{1: 1}, {}]}, r"personalization\[1\] is empty"),
        ({"personalization": {1: -1.0}}, "personalization sums to -1.0, and its least value is -1.0"),
        ({"personalization": {1: 0.0}}, "personalization sums to 0"),
        ({"personalization": [{1: 1}, {2: np.nan}]}, r"personalization\[1\] sums to nan"),
        ({"personalization": {1: 1e-320}}, "their sum at least 2.2"),  # its reciprocal is infinite
        ({"personalization": 5}, "personalization is 5"),
        ({"dangling": "all"}, "dangling 'all' is none of 'uniform', 'personalization', 'drop'"),
        ({"dangling": {2: -1.0}}, "dangling sums to -1"),
        ({"weight": True}, "weighted=True"),
    ],
)
def test_bad_arguments(given: dict[str, Any], message: str) -> None:
    made = shards(random_graph(1, 20, 30), cut(20, 2))
    with pytest.raises(InvalidOption, match=message):
        run(made, PAGERANK, **given)


def test_unknown_vertices_and_bad_weights() -> None:
    with pytest.raises(UnknownVertex, match="20"):
        run(shards(random_graph(1, 20, 30), cut(20, 2)), PAGERANK, personalization={20: 1})
    for bad, message in (
        (-1, "-1; it must be 0 or more for PageRank"),
        (np.inf, "inf; it must be finite and 0 or"),
    ):
        graph = Graph(9, np.array([3, 5], IDS), np.array([4, 6], IDS), weight=np.array([bad, 1], np.float32))
        for reverse in (False, True):
            with pytest.raises(InvalidOption, match=f"the edge from 3 to 4 has weight {message}"):
                run(shards(graph, cut(9, 2), reverse=reverse), PAGERANK, weight=True)
        run(shards(graph, cut(9, 2)), PAGERANK)  # without weights nothing is wrong
