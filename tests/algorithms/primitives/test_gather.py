"""`gather` against NumPy in float64: expressions, every structure and device, 1 and 3 ranks, hubs, orders, batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import NONE, random_graph, shapes
from spmd import FakeShard, Graph, cut, run, shards

from mgraph import DynamicGraph
from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import GraphFacts
from mgraph.algorithms.primitives.gather.expression import MOST, parse_edge
from mgraph.errors import InvalidOption

GATHER = ALGORITHMS["gather"]
WEIGHTED = "value * weight + (u > v)"
#: an expression with everything that may stand in one, and the same for NumPy
RICH = "max(value, -u, 1) % 7 + (v // 3) ** 2 - abs(value - 0.5) if not (u <= 2 < v or value == 1) else sqrt(u)"


def rich(value: Any, u: Any, v: Any) -> Any:
    whole = np.maximum(np.maximum(value, -u), 1) % 7 + (v // 3) ** 2 - abs(value - 0.5)
    return np.where(~(((u <= 2) & (v > 2)) | (value == 1)), whole, np.sqrt(u))


def arcs(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tails, heads and weights of a graph's arcs, each once, as float64."""
    entries = graph.matrix().tocoo()
    return entries.row.astype(float), entries.col.astype(float), entries.data


def reduction(n: int, at: np.ndarray, edge: np.ndarray, reduce: str) -> np.ndarray:
    """The reduction of `edge` for each of n vertices, in float64; int64 for counts."""
    if reduce == "count":
        return np.bincount(at[edge != 0].astype(int), minlength=n).astype(np.int64)
    out = np.full(n, {"sum": 0.0, "min": np.inf, "max": -np.inf}[reduce])
    {"sum": np.add, "min": np.minimum, "max": np.maximum}[reduce].at(out, at.astype(int), edge)
    return out


def weighted(seed: int, n: int, m: int, directed: bool, skew: bool = False) -> Graph:
    graph = random_graph(seed, n, m, directed, skew)
    return replace(graph, weight=np.random.default_rng(seed).random(m, np.float32))


def check(graph: Graph, made: list[FakeShard], reduce: str = "sum", direction: str = "in") -> None:
    values = np.random.default_rng(graph.n).normal(size=graph.n)
    tail, head, weight = arcs(graph)
    u, v = (tail, head) if direction == "in" else (head, tail)
    want = reduction(graph.n, v, values[u.astype(int)] * weight + (u > v), reduce)
    got, info = run(made, GATHER, values, reduce, WEIGHTED, direction)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert (got.dtype, info) == (want.dtype, {})


def test_every_structure(structure: str, device: str, ranks: int) -> None:
    for seed, directed in ((1, True), (2, False)):
        print(f"seed {seed}")
        graph = weighted(seed, 200, 1800, directed, skew=True)
        check(graph, shards(graph, cut(graph.n, ranks, even=False), structure, True, device))


@pytest.mark.parametrize("reduce", ["min", "max", "count"])
def test_reductions(device: str, ranks: int, reduce: str) -> None:
    for seed, directed in ((3, True), (4, False)):
        print(f"seed {seed}")
        graph = weighted(seed, 150, 1200, directed, skew=True)
        made = shards(graph, cut(graph.n, ranks, even=False), "gpma+", True, device)
        for direction in ("in", "out"):
            check(graph, made, reduce, direction)


def test_shapes(device: str, ranks: int) -> None:
    for graph in (*shapes(), Graph(0, NONE, NONE)):
        values = np.random.default_rng(1).integers(-3, 9, graph.n)
        made = shards(graph, cut(graph.n, ranks, even=False), "gpma+", True, device)
        tail, head, _ = arcs(graph) if graph.n else (np.empty(0),) * 3
        got, _ = run(made, GATHER, values, edge=RICH)
        want = reduction(graph.n, head, rich(values[tail.astype(int)], tail, head), "sum")
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-9)
        degrees, _ = run(made, GATHER, 1, "count", "1", "out")
        np.testing.assert_array_equal(degrees, np.bincount(tail.astype(int), minlength=graph.n))


@pytest.mark.parametrize(
    ("edge", "want"),
    [
        ("value and weight or u - 3", lambda value, weight: (value and weight) or -3),
        ("0.5 and (value or weight) and 2 + value", lambda value, weight: (value or weight) and 2 + value),
        pytest.param("value > 1 or weight > 2", lambda value, weight: value > 1 or weight > 2, marks=pytest.mark.slow),
        ("9 if not value or weight else 8", lambda value, weight: 9 if not value or weight else 8),
    ],
)
def test_and_and_or_are_pythons(device: str, edge: str, want: Any) -> None:
    for value in (0.0, -2.0, 3.0, np.nan):
        for weight in (0.0, 1.5, 4.0):
            graph = Graph(2, np.array([0], np.uint32), np.array([1], np.uint32), weight=np.array([weight], np.float32))
            made = shards(graph, cut(2, 1), "gpma+", True, device)
            np.testing.assert_array_equal(run(made, GATHER, value, edge=edge)[0][1], float(want(value, weight)))


def test_float32_is_rounded_once(device: str, small: None) -> None:
    graph = random_graph(5, 120, 1500, skew=True)
    values = np.random.default_rng(5).random(graph.n, np.float32)
    tail, head, _ = arcs(graph)
    want = reduction(graph.n, head, values[tail.astype(int)].astype(float), "sum").astype(np.float32)
    got, _ = run(shards(graph, cut(graph.n, 2), "gpma+", True, device), GATHER, values)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-7)


def test_nan_and_division_by_zero(device: str) -> None:
    graph = Graph(3, np.array([0, 1], np.uint32), np.array([2, 2], np.uint32))
    made = shards(graph, cut(3, 1), "gpma+", True, device)
    values = np.array([np.nan, 4.0, 0.0])
    assert run(made, GATHER, values, "min")[0].tolist() == [np.inf, np.inf, 4.0]
    assert np.isnan(run(made, GATHER, values)[0][2])
    assert run(made, GATHER, 2.0, "max", "value / u")[0].tolist() == [-np.inf, -np.inf, np.inf]


def test_ids_are_the_users(device: str, small: None) -> None:
    graph = random_graph(6, 90, 900, skew=True)
    made, order = reordered(graph, 2, 6, device, reverse=True)
    values = np.random.default_rng(6).normal(size=graph.n)
    tail, head, _ = arcs(graph)
    want = reduction(graph.n, head, rich(values[tail.astype(int)], tail, head), "sum")
    inside = np.empty(graph.n)
    inside[order] = values
    np.testing.assert_allclose(run(made, GATHER, inside, edge=RICH)[0][order], want, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("directed", [True, False])
def test_after_batches(device: str, small: None, directed: bool) -> None:
    for graph, made in apply_to("gpma+", device, 2, n=90, each=300, directed=directed, reverse=True):
        tail, head, _ = arcs(graph)
        values = np.random.default_rng(1).normal(size=graph.n)
        want = reduction(graph.n, head, values[tail.astype(int)], "min")
        np.testing.assert_array_equal(run(made, GATHER, values, "min")[0], want)


def test_sums_do_not_depend_on_timing(device: str, small: None) -> None:
    graph = random_graph(7, 3000, 40000, skew=True)
    values, sums = np.random.default_rng(7).normal(size=graph.n), []
    for threads in (1, 4, 4):
        made = shards(graph, cut(graph.n, 1), "gpma+", True, device)
        made[0].device = replace(made[0].device, threads=threads)
        sums.append(run(made, GATHER, values)[0])
    assert sums[0].tobytes() == sums[1].tobytes() == sums[2].tobytes()


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        ("wieght * 2", "'wieght', at column 1: 'wieght' is none of value, weight, u, v"),
        ("value + foo(u)", r"'foo\(u\)', at column 9: only min, max, abs, .* may be called"),
        ("value.real", "'value.real', at column 1: only numbers"),
        ("value +", "is no expression"),
        ("u\x00", "is no expression: .* null"),
        ("min(u)", "min takes two arguments or more"),
        ("abs(u, v)", "abs takes one argument"),
        ("abs(value, key=1)", "abs takes one argument"),
        ("u in v", "a comparison is one of"),
        ("1e400", "past the range of float64"),
        ("'value'", "only numbers"),
        ("u << 2", "only numbers"),
        ("value); } // ", "is no expression"),
        ("[u for u in v]", "only numbers"),
        ("v" * (MOST + 1), f"{MOST + 1} characters; {MOST} are the limit"),
        (3, "must be an expression in a string"),
    ],
)
def test_bad_expressions(edge: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse_edge(edge)


def test_deep_expressions_are_written() -> None:
    assert parse_edge("-" * (MOST - 1) + "u").names == {"u"}
    assert parse_edge("+".join("u" * 128)).code.count("u") == 128
    assert parse_edge("(" * 30 + "u" + " or v)" * 30).code.count("v") == 30


def test_numbers_of_no_dimension() -> None:
    facts = GraphFacts(5, True, False, True)
    for two in (2, np.float32(2), np.array(2), np.array(2.0, np.float32)):
        assert GATHER.check(facts, two)["values"] == 2.0


def test_bad_arguments() -> None:
    plain, full = GraphFacts(5, True, False, False), GraphFacts(5, True, True, True)
    for facts, given, message in (
        (full, {"reduce": "mean"}, "'mean' is none of 'sum', 'min', 'max', 'count'"),
        (full, {"values": np.ones(4)}, "4 numbers, and the graph 5 vertices"),
        (full, {"values": None}, "values is None; it must be a number, an array of 5 numbers or a result"),
        (full, {"values": "x"}, "values is 'x'; it must be a number, an array"),
        (full, {"values": np.array(1j)}, "values is 1j"),
        (full, {"values": True}, "values is True; it must be a number in"),
        (full, {"direction": "both"}, "neither"),
        (plain, {}, "reverse=True"),
        (plain, {"edge": "weight", "direction": "out"}, "weighted=True"),
    ):
        with pytest.raises(InvalidOption, match=message):
            GATHER.check(facts, **{"values": np.ones(5), **given})


def test_infinite_weights_and_nan_are_refused_where_they_make_nan():
    with DynamicGraph(n_vertices=3, weighted=True, directed=False, combine="sum") as g:
        g.insert([0, 1], [1, 2], [1.0, np.inf])
        for _ in range(2):
            for call in (g.katz_centrality, g.eigenvector_centrality):
                with pytest.raises(InvalidOption, match="(1 to 2|2 to 1) has an infinite weight, or NaN; weights must"):
                    call(weight=True)
            g.insert([1], [2], [-np.inf])
