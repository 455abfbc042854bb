"""PageRank against NetworkX, and against its iteration in float64 on the real graphs."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import random_graph, real_graph, shapes, slow_build
from pagerank_oracle import iterate, with_networkx
from spmd import Graph, cut, run, run_program, said_bytes, shards
from sssp_oracle import random_weighted

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.centrality.pagerank import power_iteration
from mgraph.errors import Aborted, InvalidOption
from mgraph.partition import Partition

PAGERANK = ALGORITHMS["pagerank"]

CUTS = [(1, True), (2, True), (3, True), (3, False)]
module = importlib.import_module("mgraph.algorithms.centrality.pagerank.program")


def check(graph: Graph, partition: Partition, reverse: bool, **kind: Any) -> dict:
    ranks, info = run(shards(graph, partition, reverse=reverse, **kind), PAGERANK, tol=1e-6, max_iter=300)
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
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    limit, steps = real_oracle(data_dir, name)
    for reverse in (True, False):
        made = shards(graph, cut(graph.n, size, even=reverse), structure, reverse, device)
        ranks, info = run(made, PAGERANK)
        print(name, size, info, np.abs(ranks - limit).sum())
        assert abs(info["iterations"] - steps) <= 2  # what is cut off and handed on later damps swings
        assert info["converged"]
        assert np.abs(ranks - limit).sum() < 1e-5


@pytest.mark.parametrize("alpha", [0, 0.5, 1.0])
def test_alpha(alpha: float, way: str) -> None:
    graph = random_graph(4, 200, 800)
    made = shards(graph, cut(graph.n, 2), reverse=way == "kept")
    options = {"alpha": alpha, "tol": 1.6e-6, "max_iter": 500}  # 0 and 1 are refused by the check, and no trouble here
    ranks, info = run_program(made, lambda shard: PAGERANK.run(shard, **options), PAGERANK)
    want, steps = iterate(graph, alpha, 1.6e-6, 500)
    assert steps <= info["iterations"] <= (steps if way == "pushed" else steps + 2)  # until nothing more is cut off
    assert np.abs(ranks - want).sum() < 2e-6


def test_not_converged_says_so(way: str) -> None:
    graph = random_graph(5, 300, 900)
    ranks, info = run(shards(graph, cut(graph.n, 2), reverse=way == "kept"), PAGERANK, tol=1e-12, max_iter=10)
    assert info["iterations"] == 10
    assert not info["converged"]
    assert info["error"] > 1e-12
    apart = np.abs(ranks - iterate(graph, tol=1e-12, max_iter=10)[0]).sum()
    assert apart < (1e-6 if way == "pushed" else info["error"] / 16)  # what is still to be handed on
    ranks, info = run(shards(graph, cut(graph.n, 2), reverse=way == "kept"), PAGERANK, max_iter=0)
    assert info["iterations"] == 0
    np.testing.assert_allclose(ranks, 1 / 300, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bit_for_bit_whatever_the_threads(size: int, dtype: str, way: str, pieces: str) -> None:
    graph = random_graph(6, 5000, 60000, skew=True)
    made = shards(graph, cut(graph.n, size), reverse=way == "kept")
    first, info = run(made, PAGERANK, tol=2e-6, dtype=dtype)
    for threads in (1, 7):
        for shard in made:
            shard.device = replace(shard.device, threads=threads)
        again, other = run(made, PAGERANK, tol=2e-6, dtype=dtype)
        np.testing.assert_array_equal(first, again)
        assert info == other


def run_from(made: Sequence[Any], starts: dict[int, Any], **options: Any) -> tuple[Any, dict]:
    """Run from ranks that lie with their owners, as an earlier result does."""
    return run_program(made, lambda shard: PAGERANK.run(shard, start=starts[shard.rank], **options), PAGERANK)


@pytest.mark.parametrize("size", [1, 2])
def test_warm_start(device: str, size: int, way: str) -> None:
    graph = random_graph(7, 2000, 9000)
    partition = cut(graph.n, size)
    ranks, cold = run(shards(graph, partition, reverse=way == "kept", device=device), PAGERANK, tol=1e-6)
    more = random_graph(8, 2000, 20)
    grown = Graph(graph.n, np.concatenate([graph.src, more.src]), np.concatenate([graph.dst, more.dst]))
    made = shards(grown, partition, reverse=way == "kept", device=device)
    starts = {s.rank: s.device.asarray(3 * ranks[s.lo : s.hi]) for s in made}  # scaled back to 1
    again, info = run_from(made, starts, tol=1e-6)
    assert info["converged"]
    assert info["iterations"] < cold["iterations"]
    assert np.abs(again - with_networkx(grown, tol=1e-9)).sum() < 1e-5


def test_warm_start_after_vertices_were_added() -> None:
    graph, partition = random_graph(9, 2050, 9000), Partition((0, 1000, 2050))
    made = shards(graph, partition, reverse=True)
    starts = {0: np.full(1000, 1 / 2000, np.float32), 1: np.full(1000, 1 / 2000, np.float32)}
    ranks, info = run_from(made, starts, tol=1e-6)
    assert np.abs(ranks - with_networkx(graph, tol=1e-9)).sum() < 1e-5
    _, info = run_from(made, starts, max_iter=0)
    assert info["iterations"] == 0


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf, 0.0])
def test_bad_start(value: float) -> None:
    graph = random_graph(9, 50, 100)
    starts = {0: np.full(25, 0.0 if value == 0 else 0.02, np.float32), 1: np.full(25, value, np.float32)}
    with pytest.raises(InvalidOption, match="start"):
        run_from(shards(graph, cut(50, 2)), starts)


def test_launches_and_read_backs(counted: Counter[str], way: str, usual_constants: None) -> None:
    graph = random_graph(10, 3000, 30000)
    made = shards(graph, cut(graph.n, 1), reverse=way == "kept")
    world = made[0].exchange.world(made[0].device)
    counted.clear()
    PAGERANK.run(made[0], tol=2e-6)
    # A program that takes long on a busy machine is launched again.
    assert counted.pop("PushIteration" if way == "pushed" else "PowerIteration") > 0
    assert world.runs == 1
    once = ["ListHubs", "StartRanks", "GiveRanks", "read-back"]
    once += ["Degrees", "Neighbors", "RowKeys"] if way == "made" else []
    assert +counted == Counter(once)  # `+`: a kernel without an item is no launch


OPTIONS = [({}, 2), ({"tol": 0, "max_iter": 12}, 4), ({"dtype": "float64"}, 8)]


@pytest.mark.parametrize(("options", "nbytes"), OPTIONS, ids=str)
def test_the_host_makes_one_collective_an_iteration(options: dict[str, Any], nbytes: int, way: str) -> None:
    graph = random_graph(10, 3000, 30000)
    made = shards(graph, cut(graph.n, 2), reverse=way == "kept", mapped=False)
    run(made, PAGERANK, **options)
    calls = len(made[0].exchange.calls)
    _, info = run(made, PAGERANK, **options)
    more, steps = made[0].exchange.calls[calls:], info["iterations"]
    if way == "made":
        assert [call for call, _ in more[1:5]] == ["allreduce", "allreduce", "allreduce", "alltoallv"]
        more = [more[0], *more[5:]]
    # A meeting is one message, of the words that a rank says, and what it sends or shares. Push has two meetings per
    # step. By pull the first shares are sent, too.
    pushed = way == "pushed"
    sent = said_bytes(2) + 1500 * (8 if pushed else nbytes)
    meetings = {("alltoallv", sent): steps + (not pushed), ("alltoallv", said_bytes(2)): steps + 1 if pushed else 1}
    assert Counter(more) == {**meetings, ("allreduce", 16): 1}


def test_ranks_that_map_each_other_make_no_collective() -> None:
    made = shards(random_graph(10, 3000, 30000), cut(3000, 2), reverse=True)
    run(made, PAGERANK)
    calls = len(made[0].exchange.calls)
    run(made, PAGERANK)
    assert made[0].exchange.calls[calls:] == [("allreduce", 16)]  # the sum of the start


@pytest.mark.parametrize("most", [module.FEW, module.FEW + 1])
def test_in_edges_are_not_made_for_a_few_iterations(counted: Counter[str], most: int) -> None:
    made = shards(random_graph(10, 300, 3000), cut(300, 1))
    PAGERANK.run(made[0], tol=0.0, max_iter=most)
    assert counted["RowKeys"] == (most > module.FEW)


def test_dropped_mass_costs_a_cpu_no_iterations() -> None:
    graph = random_graph(17, 2000, 40000, directed=False)
    _, info = run(shards(graph, cut(graph.n, 1)), PAGERANK, dangling="drop", tol=1e-4)
    assert info["iterations"] <= iterate(graph, tol=1e-4)[1] + 1  # with 16 bits of the first shares, 4 more


@pytest.mark.parametrize("size", [1, 2])
def test_a_start_near_the_limit_stays_there(size: int) -> None:
    graph = random_graph(13, 2000, 20000, directed=False)
    partition = cut(graph.n, size)
    made = shards(graph, partition)
    limit, _ = iterate(graph, tol=1e-12, max_iter=1000)
    starts = {s.rank: limit[s.lo : s.hi].astype(np.float32) for s in made}
    ranks, info = run_from(made, starts, tol=2e-6)
    assert info["iterations"] == 1  # 16 bits of it alone would move it by 1e-3
    assert np.abs(ranks - limit).sum() < 5e-7


def test_no_vertices() -> None:
    none = np.empty(0, np.uint32)
    ranks, info = run(shards(Graph(0, none, none), cut(0, 2)), PAGERANK)
    assert len(ranks) == 0
    assert info == {"iterations": 0, "error": 0.0, "converged": True}


def test_named() -> None:
    assert PAGERANK.name == "pagerank"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("alpha", 1.5), ("alpha", -0.1), ("alpha", float("nan")), ("alpha", "0.85"),
        ("tol", -1e-9), ("tol", float("nan")), ("max_iter", -1), ("max_iter", 2.5),
        ("dtype", "float16"), ("dtype", None),
    ],
)  # fmt: skip
def test_bad_options(option: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=option):
        run(shards(shapes()[3], cut(67, 2)), PAGERANK, **{option: value})


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_an_iteration(size: int, mapped: bool) -> None:
    calls = iter(range(1000))
    graph, aborted = random_graph(1, 100, 300, directed=False), lambda: next(calls) >= 20 * size
    with pytest.raises(Aborted):
        run(shards(graph, cut(100, size), aborted=aborted, mapped=mapped), PAGERANK, tol=0.0, max_iter=10**9)
    assert next(calls) < 30 * size


# ---- the program of all ranks ----------------------------------------------------------------------------------------


WAYS: list[dict[str, Any]] = [
    {},
    {"start": True, "tol": 1e-5},
    {"tol": 0, "max_iter": 9},
    {"dtype": "float64"},
    {"weight": True},
    {"personalization": True, "dangling": "uniform"},
    {"personalization": True, "tol": 1e-8, "max_iter": 300},
    {"dangling": "drop", "max_iter": 0},
    {"dangling": True, "dtype": "float64", "weight": True, "personalization": True},
]


def options_of(way: dict[str, Any], graph: Graph, n: int = 5) -> dict[str, Any]:
    """The options of a way: True stands for numbers of the vertices."""
    rng = np.random.default_rng(n)
    numbers = {name: rng.random(graph.n) * (rng.random(graph.n) < 0.4) for name in ("personalization", "dangling")}
    numbers["start"] = rng.random(graph.n).astype(np.float32)
    return {name: numbers[name] if value is True and name in numbers else value for name, value in way.items()}


@pytest.mark.parametrize("way", ["kept", "pushed"], indirect=True)
@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_both_drivers_give_the_same_bits_on_any_ranks(options: dict[str, Any], mapped: bool | str, way: str) -> None:
    """By pull also those of one rank; pushed sums are rounded on their way to the owner."""
    graph = random_weighted(7, kind="fractions")
    options = options_of(options, graph)
    first, want = run(shards(graph, cut(graph.n, 1), "csr", reverse=way == "kept"), PAGERANK, **options)
    for starts in ((0, 90, graph.n), (0, 0, 31, 33, graph.n), (0, graph.n, graph.n), (0, 5, 100, 100, 260, graph.n)):
        made = shards(graph, Partition(starts), "csr", reverse=way == "kept", mapped=mapped)
        ranks, info = run(made, PAGERANK, **options)
        if way == "pushed":
            np.testing.assert_allclose(ranks, first, rtol=1e-6)
            assert info["iterations"] == want["iterations"]
        else:
            np.testing.assert_array_equal(ranks, first)
            assert info == want


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("way", ["kept", "pushed"], indirect=True)
def test_a_run_of_the_program_goes_on_where_the_last_one_ended(
    monkeypatch: pytest.MonkeyPatch, size: int, way: str
) -> None:
    graph = random_graph(14, 700, 5000, skew=True)
    made = shards(graph, cut(graph.n, size), reverse=way == "kept", structure="gpma+")
    first, want = run(made, PAGERANK)
    world = made[0].exchange.world(made[0].device)
    before = world.runs
    monkeypatch.setattr(power_iteration, "STEPS", 3)
    ranks, info = run(made, PAGERANK)
    np.testing.assert_array_equal(ranks, first)
    assert info == want
    assert world.runs - before == -(-info["iterations"] // 3) > 2
