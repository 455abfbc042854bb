"""HITS against the singular vectors of dense matrices: devices, 1 and 3 ranks, weights, ties, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import NONE, random_graph, shapes
from spmd import FakeShard, Graph, cut, run, shards
from sssp_oracle import random_weighted

from mgraph.algorithms import ALGORITHMS
from mgraph.errors import InvalidOption, UnknownVertex

HITS = ALGORITHMS["hits"]
TOL = 1e-11
SHAPES = {"one-vertex", "one-loop", "no-edges", "star-out", "hub-last", "two-parts", "complete"}


def check(graph: Graph, made: list[FakeShard], **options: Any) -> dict[str, np.ndarray]:
    """The authorities are the nearest vector to the start among the dominant right singular ones; hubs follow."""
    matrix = graph.matrix().toarray().astype(np.float64)
    if not options.get("weight"):
        matrix = (matrix != 0).astype(np.float64)
    both, info = run(made, HITS, tol=TOL, normalized=False, **options)
    hubs, authorities = both["hubs"], both["authorities"]
    assert (hubs.dtype, authorities.dtype) == (np.float64, np.float64)
    assert info["converged"], str(graph)
    assert info["error"] <= TOL
    _, values, rows = np.linalg.svd(matrix)
    if values[0] == 0:
        assert not hubs.any()
        return both
    np.testing.assert_allclose(hubs, matrix @ authorities, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(hubs), values[0], rtol=1e-10)
    start = options.get("start", np.ones(graph.n))
    dominant = rows[values > values[0] * (1 - 1e-9)]
    if values[len(dominant) :].size == 0 or values[len(dominant)] < 0.99 * values[0]:
        want = dominant.T @ (dominant @ start)
        np.testing.assert_allclose(authorities, want / np.linalg.norm(want), atol=1e-8)
    scaled, _ = run(made, HITS, tol=TOL, **options)
    for name, column in both.items():
        np.testing.assert_allclose(scaled[name], column / column.sum(), rtol=1e-12)
    return both


def test_shapes_and_random(structure: str, device: str, ranks: int) -> None:
    graphs = [random_graph(seed, 90, 900, directed=seed % 2 == 0, skew=True) for seed in range(2)]
    for graph in (*(shape for shape in shapes() if shape.name in SHAPES), *graphs):
        check(graph, shards(graph, cut(graph.n, ranks, even=False), structure, ranks == 3, device))


@pytest.mark.parametrize("directed", [True, False])
def test_weights(device: str, ranks: int, directed: bool) -> None:
    graph = random_weighted(3, directed, "fractions")
    check(graph, shards(graph, cut(graph.n, ranks), "gpma+", True, device), weight=True)


def test_a_start_decides_among_equal_components(ranks: int) -> None:
    graph = Graph(6, np.array([0, 3], np.uint32), np.array([1, 4], np.uint32))
    made = shards(graph, cut(6, ranks), "gpma+")
    assert check(graph, made, start=np.array([0, 3.0, 0, 0, 4.0, 0]))["authorities"].round(9).tolist() == [
        *(0, 0.6, 0, 0, 0.8, 0)
    ]
    check(graph, made)


def test_a_start_with_zeros_has_the_strongest_vector(ranks: int) -> None:
    """Which is out of reach of such a start if its component has none of it."""
    reached = 0
    for seed in range(40):
        graph = random_graph(seed, 3 + seed % 6, 8)
        made, start = shards(graph, cut(graph.n, ranks), "gpma+"), np.zeros(graph.n)
        start[graph.arcs[1][0]] = 1
        both, info = run(made, HITS, start=start, normalized=False)
        strongest = np.linalg.svd(graph.matrix().toarray() != 0, compute_uv=False)[0]
        assert info["converged"]
        np.testing.assert_allclose(np.linalg.norm(both["hubs"]), strongest, rtol=1e-7, err_msg=str(seed))
        reached += both["authorities"][start > 0] > 1e-3
    assert 0 < reached < 40


def test_a_start_by_vertex_and_its_other_name() -> None:
    graph = Graph(6, np.array([0, 3], np.uint32), np.array([1, 4], np.uint32))
    made = shards(graph, cut(6, 2), "gpma+")
    for given in ({"start": {1: 3, 4: 4.0}}, {"nstart": {1: 3, 4: 4.0}}, {"nstart": np.array([0, 3.0, 0, 0, 4.0, 0])}):
        both, _ = run(made, HITS, tol=TOL, normalized=False, **given)
        np.testing.assert_allclose(both["authorities"], [0, 0.6, 0, 0, 0.8, 0], atol=1e-9)
    with pytest.raises(InvalidOption, match="start and nstart are two names"):
        run(made, HITS, start={1: 1}, nstart={1: 1})
    for name in ("start", "nstart"):
        with pytest.raises(UnknownVertex, match=rf"^{name}\[1\] is 6"):
            run(made, HITS, **{name: {1: 1, 6: 1}})
        with pytest.raises(InvalidOption, match=f"^{name} must be finite"):
            run(shards(graph, cut(6, 2)), HITS, **{name: {1: -1}})


@pytest.mark.parametrize("value", [5e-324, 1e-200, 1e-161, 1e200, 1.7e308])
def test_a_start_whose_squares_leave_the_range_of_float64(value: float, ranks: int) -> None:
    graph = random_graph(1, 60, 300)
    made = shards(graph, cut(60, ranks, even=False))
    want, found = (run(made, HITS, start=np.full(60, of))[0] for of in (1.0, value))
    for name, column in want.items():
        np.testing.assert_allclose(found[name], column, rtol=1e-12)


def test_no_vertices_and_no_iterations() -> None:
    made = shards(Graph(0, NONE, NONE), cut(0, 1))
    assert run(made, HITS)[0]["hubs"].tolist() == []
    path = random_graph(1, 50, 80)
    for most in (0, 1):
        both, info = run(shards(path, cut(50, 1)), HITS, tol=1e-15, max_iter=most)
        assert (info["converged"], info["iterations"]) == (False, most)
        np.testing.assert_allclose([column.sum() for column in both.values()], 1)


def test_authorities_have_length_1_where_a_coarse_tolerance_leaves_negative_ones() -> None:
    for seed in range(20):
        graph = random_weighted(seed, True, "fractions")
        both, _ = run(shards(graph, cut(graph.n, 1), "gpma+", True), HITS, tol=0.3, weight=True, normalized=False)
        np.testing.assert_allclose(np.linalg.norm(both["authorities"]), 1, rtol=1e-12)


def test_long_paths_converge_in_few_iterations() -> None:
    n = 400
    path = Graph(n, np.arange(n - 1, dtype=np.uint32), np.arange(1, n, dtype=np.uint32), directed=False)
    both, info = run(shards(path, cut(n, 1)), HITS, tol=1e-8, max_iter=300)
    print(info)
    assert info["converged"]
    want = np.sin(np.arange(1, n + 1) * np.pi / (n + 1))
    np.testing.assert_allclose(both["authorities"], want / want.sum(), atol=1e-4)


@pytest.mark.parametrize("tol", [0.0, 1e-16])
def test_a_tolerance_below_rounding(tol: float) -> None:
    """A basis that goes on past convergence would find the largest eigenvalue twice, and mix the copies."""
    for seed in range(40):
        graph = random_graph(seed, 3 + seed % 9, 15, directed=seed % 2 == 0)
        matrix = (graph.matrix().toarray() != 0).astype(np.float64)
        both, info = run(shards(graph, cut(graph.n, 1)), HITS, tol=tol, max_iter=30, normalized=False)
        hubs, authorities = both["hubs"], both["authorities"]
        largest = np.linalg.svd(matrix)[1][0]
        np.testing.assert_allclose(np.linalg.norm(hubs), largest, rtol=1e-13, err_msg=str(graph))
        np.testing.assert_allclose(matrix.T @ hubs, largest**2 * authorities, atol=1e-11, err_msg=str(graph))
        assert info["converged"] == (info["error"] <= tol)  # with a tol of 0 too, if rounding leaves an error of 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tol": -1}, "tol is -1"),
        ({"max_iter": 1.5}, "max_iter"),
        ({"weight": True}, "weighted=True"),
        ({"start": np.repeat([1, -1.0], 10)}, "start must be .* from -1.0 to 1.0"),
        ({"start": np.repeat([1, np.nan], 10)}, "start must be"),
        ({"start": np.zeros(20)}, "start must be"),
    ],
)
def test_bad_arguments(options: dict[str, Any], told: str) -> None:
    graph = random_graph(1, 20, 50)
    with pytest.raises(InvalidOption, match=told):
        run(shards(graph, cut(20, 2)), HITS, **options)


def test_weights_that_make_no_sense() -> None:
    for weights, told in (([1, -2], "weight -2"), ([1, np.inf], "from 1 to 2 has weight inf; it must be finite")):
        pair = Graph(3, np.array([0, 1], np.uint32), np.array([1, 2], np.uint32), weight=np.array(weights, np.float32))
        for iterations in (0, 1):
            with pytest.raises(InvalidOption, match=told):
                run(shards(pair, cut(3, 1), "gpma+", True), HITS, weight=True, max_iter=iterations)
        with pytest.raises(InvalidOption, match="reverse=True"):
            run(shards(pair, cut(3, 1), "gpma+"), HITS, weight=True)
