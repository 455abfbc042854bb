"""Betweenness centrality against NetworkX: every structure and device, 1 to 5 ranks, sampled or of all sources."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from graphs import IDS, random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, shards

from mgraph import DynamicGraph
from mgraph.algorithms import ALGORITHMS
from mgraph.errors import Aborted, CapacityError, InvalidOption, UnknownVertex
from mgraph.exchange import world
from mgraph.partition import Partition

BETWEENNESS = ALGORITHMS["betweenness_centrality"]
CUTS = [(1, True), (2, True), (3, False)]


def oracle(graph: Graph) -> nx.Graph:
    made = nx.DiGraph() if graph.directed else nx.Graph()
    made.add_nodes_from(range(graph.n))
    made.add_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    return made


class Draw(random.Random):
    """A draw for NetworkX that gives these sources."""

    def __init__(self, sources: list[int]) -> None:
        super().__init__(0)
        self.sources = sources

    def sample(self, population: object, k: int, **options: object) -> list[int]:
        return self.sources


def want(graph: Graph, sources: list[int] | None = None, normalized: bool = True) -> np.ndarray:
    given = {} if sources is None else {"k": len(sources), "seed": Draw(sources)}
    found = nx.betweenness_centrality(oracle(graph), normalized=normalized, **given)
    return np.array([found[v] for v in range(graph.n)])


def check(graph: Graph, partition: Partition, reverse: bool = False, sampled: bool = False, **kind: object) -> None:
    made = shards(graph, partition, reverse=reverse, **kind)
    rng = np.random.default_rng(graph.n)
    few = rng.choice(graph.n, min(graph.n, 5), replace=False).tolist()
    # The factors do not depend on the ranks: several have two of the four.
    cases = ((None, True), (few, False), (None, False), (few, True))[: 4 if partition.size == 1 else 2]
    for sources, normalized in ((few, True), (few, False)) if sampled else cases:
        got, info = run(made, BETWEENNESS, sources, normalized=normalized)
        assert got.dtype == np.float64
        assert info == {"sources": graph.n if sources is None else len(sources)}
        np.testing.assert_allclose(got, want(graph, sources, normalized), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("size", "even"), CUTS)
def test_shapes(structure: str, device: str, small: None, size: int, even: bool) -> None:
    for graph in shapes():
        if graph.n < {1: 70, 2: 51, 3: 30}[size]:
            check(graph, cut(graph.n, size, even), structure=structure, device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_random(structure: str, device: str, small: None, size: int, even: bool, directed: bool) -> None:
    for seed in range(2):
        print(f"seed {seed}")
        graph = random_graph(seed, 50 + 3 * seed, 150, directed, skew=seed == 1)
        check(graph, cut(graph.n, size, even), reverse=seed == 1, structure=structure, device=device)


def test_more_paths_than_a_float_can_count() -> None:
    """A chain of 1,100 pairs: 2^1100 shortest paths from end to end, half of them through either vertex of a pair."""
    pairs = 1100
    ends = 3 * np.arange(pairs + 1)
    src = np.concatenate([ends[:-1], ends[:-1], ends[:-1] + 1, ends[:-1] + 2])
    dst = np.concatenate([ends[:-1] + 1, ends[:-1] + 2, ends[1:], ends[1:]])
    graph = Graph(3 * pairs + 1, src.astype(IDS), dst.astype(IDS))
    got, _ = run(shards(graph, cut(graph.n, 2)), BETWEENNESS, [0, 1], normalized=False)
    n, after = graph.n, graph.n - 1 - np.arange(graph.n)
    middle = np.arange(graph.n) % 3 > 0
    pair_end = 3 * (np.arange(graph.n) // 3) + 3  # the vertex behind a pair
    through = np.where(middle, (n - pair_end) / 2, after)  # from 0
    other = np.where(np.arange(n) < 3, 0, through)  # from 1, a vertex of the first pair
    factor = (n - 1) / 2
    expected = (through + other) * factor
    expected[0], expected[1] = 0, through[1] * (n - 1)  # sources are scaled by one less
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2])
def test_many_levels_in_each_word(size: int, device: str) -> None:
    """Threads list the vertices of 40 levels at once; those of a word and a level stay together."""
    levels, width = 40, 300
    layers = 1 + np.random.default_rng(1).permutation(levels * width).reshape(levels, width)
    src = [np.zeros(width, np.int64), *layers[:-1], *layers[:-1]]
    dst = [layers[0], *layers[1:], *(np.roll(layer, 1) for layer in layers[1:])]
    graph = Graph(levels * width + 1, np.concatenate(src).astype(IDS), np.concatenate(dst).astype(IDS))
    made, wanted = shards(graph, cut(graph.n, size), device=device), want(graph, [0, int(layers[0, 0])])
    for _ in range(20):  # some of which failed where threads mixed words
        got, _ = run(made, BETWEENNESS, [0, int(layers[0, 0])])
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-14)


def test_a_draw_is_that_of_its_seed() -> None:
    graph = random_graph(3, 80, 300, directed=False)
    made = shards(graph, cut(80, 2))
    first, info = run(made, BETWEENNESS, 10, seed=4)
    assert info == {"sources": 10}
    np.testing.assert_array_equal(run(made, BETWEENNESS, 10, seed=4)[0], first)
    drawn = np.random.default_rng(4).choice(80, 10, replace=False).tolist()
    np.testing.assert_allclose(first, want(graph, drawn), rtol=1e-12, atol=1e-15)
    assert (run(made, BETWEENNESS, 10, seed=5)[0] != first).any()
    np.testing.assert_allclose(run(made, BETWEENNESS, 80, seed=1)[0], want(graph), rtol=1e-12, atol=1e-15)


def test_one_source_says_nothing_of_itself() -> None:
    got, _ = run(shards(random_graph(3, 30, 100), cut(30, 2)), BETWEENNESS, [7])
    assert np.flatnonzero(np.isnan(got)).tolist() == [7]


def test_bad_arguments() -> None:
    made = shards(random_graph(1, 20, 30), cut(20, 2))
    for k in (0, 21, -1, True):
        with pytest.raises(InvalidOption, match=f"k is {k}; the graph has 20 vertices"):
            run(made, BETWEENNESS, k)
    with pytest.raises(InvalidOption, match=r"k\[2\] is 1, which comes before"):
        run(made, BETWEENNESS, [1, 2, 1])
    with pytest.raises(UnknownVertex, match="20"):
        run(made, BETWEENNESS, [20])
    for k in (None, 3, [1]):
        with pytest.raises(InvalidOption, match="seed"):
            run(made, BETWEENNESS, k, seed=-1)


def test_bad_sources_of_graphs_with_keys_and_without_vertices() -> None:
    with DynamicGraph(keys="string") as graph:
        with pytest.raises(InvalidOption, match="k is 1, and the graph has no vertices"):
            graph.betweenness_centrality(k=1)
        graph.insert(["a"], ["b"])
        for twice in (["b", "a", "a"], np.array(["b", "a", "a"]), pd.Series(["b", "a", "a"], [7, 8, 9])):
            with pytest.raises(InvalidOption, match=r"k\[2\] is 'a', which comes before; sources must be different"):
                graph.betweenness_centrality(k=twice)


def test_no_memory_for_in_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgraph.algorithms.centrality.betweenness.program.transposed", lambda shard: None)
    with pytest.raises(CapacityError, match="reverse=True"):
        run(shards(random_graph(1, 20, 30), cut(20, 1)), BETWEENNESS)


def test_no_vertices_and_few() -> None:
    none = np.empty(0, IDS)
    for n in (0, 1, 2):
        assert run(shards(Graph(n, none, none), cut(n, 2)), BETWEENNESS)[0].tolist() == [0] * n


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_run(size: int) -> None:
    made = shards(random_graph(1, 100, 200), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, BETWEENNESS)


# ---- the program of all ranks ----------------------------------------------------------------------------------------


def hubs(n: int = 90) -> Graph:
    """Two directed stars and their reverse, with common leaves, cycles among leaves, self-loops, isolated vertices."""
    leaves = np.arange(2, 70)
    star = [*((0, v) for v in leaves), *((v, 1) for v in leaves[:40]), *((1, v) for v in (2, 75, 76)), (76, 0)]
    pairs = np.array([*star, *pairwise(leaves), (0, 0), (30, 30)], IDS)
    return Graph(n, pairs[:, 0].copy(), pairs[:, 1].copy(), name="hubs")


def grid(side: int) -> Graph:
    """A grid, whose longest shortest paths number the middle of a row of Pascal's triangle."""
    cells = np.arange(side * side, dtype=IDS).reshape(side, side)
    ends = (np.concatenate([cells[:, at].ravel(), cells[at].ravel()]) for at in (slice(None, -1), slice(1, None)))
    return Graph(side * side, *ends, directed=False, name="grid")


CORNERS = 0, 269


@cache
def want_of_grid() -> np.ndarray:
    return want(grid(270), list(CORNERS))


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 2, 3, *(pytest.param(size, marks=pytest.mark.slow) for size in (4, 5))])
def test_both_drivers(size: int, mapped: bool | str) -> None:
    for graph in (hubs(), replace(hubs(), directed=False), grid(9)):
        check(graph, cut(graph.n, size, even=False), sampled=True, structure="gpma+", mapped=mapped)
    print("seed 31")
    graph = random_graph(31, 100, 700, directed=True, skew=True)
    check(graph, cut(graph.n, size), reverse=True, sampled=True, mapped=mapped)


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
@pytest.mark.parametrize("mapped", [True, False, "hosts"])
def test_ranges_of_any_length(starts: tuple[int, ...], mapped: bool | str) -> None:
    directed = len(starts) < 5  # one list of ranges with directed graphs, the others without
    check(random_graph(3 + (not directed), 90, 300, directed), Partition(starts), sampled=True, mapped=mapped)


@pytest.mark.parametrize("mapped", [True, *(pytest.param(way, marks=pytest.mark.slow) for way in (False, "hosts"))])
@pytest.mark.parametrize("size", [1, 3])
def test_more_paths_than_a_float_can_count_on_a_grid(size: int, mapped: bool | str) -> None:
    """A grid of 270 x 270: about 2^533 paths from corner to corner, and the powers travel among the ranks."""
    graph = grid(270)
    got, _ = run(shards(graph, cut(graph.n, size, even=False), mapped=mapped), BETWEENNESS, list(CORNERS))
    np.testing.assert_allclose(got, want_of_grid(), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("threads", [1, 4])
def test_the_last_digits_do_not_depend_on_timing_or_driver(threads: int) -> None:
    print("seed 32")
    graph = random_graph(32, 5000, 60000, directed=False, skew=True)
    results = []
    for mapped in (True, True, False):
        made = shards(graph, cut(graph.n, 3), mapped=mapped)
        for shard in made:
            shard.device = replace(shard.device, threads=threads)
        results.append(run(made, BETWEENNESS, [1, 17, 4000])[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_a_program_that_leaves_at_each_meeting_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 0)
    graph, sources = hubs(), [0, 1, 2, 76]
    made = shards(graph, cut(graph.n, 3))
    got, _ = run(made, BETWEENNESS, sources)
    np.testing.assert_allclose(got, want(graph, sources), rtol=1e-12, atol=1e-13)
    launches = sum(shard.exchange.world(shard.device).launches for shard in made)
    assert launches > 2 * 3 * len(sources)  # those where nobody leaves


def test_a_source_is_two_launches(counted: Counter[str]) -> None:
    for size in (1, 2):
        made = shards(random_graph(1, 300, 6000, directed=False), cut(300, size))
        counted.clear()
        run(made, BETWEENNESS, 2, seed=4)
        assert counted["BreadthFirst"] >= 2 * size  # more where a rank was late
        assert counted["Brandes"] >= 2 * size
        assert set(counted) == {"BreadthFirst", "Brandes", "read-back"}
        assert counted["read-back"] == size  # the test's own, of the result


@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graph(data_dir: Path, device: str) -> None:
    graph = real_graph(data_dir, "cit-HepPh")
    if graph is None:
        pytest.skip("no cit-HepPh here")
    sources = [5, 7000, 30000]
    got, _ = run(shards(graph, cut(graph.n, 2), "gpma+", device=device), BETWEENNESS, sources)
    np.testing.assert_allclose(got, want(graph, sources), rtol=1e-10, atol=1e-14)
