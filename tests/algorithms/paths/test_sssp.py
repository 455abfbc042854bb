"""Shortest paths by weights against Dijkstra, bit for bit: every structure and device, 1 to 3 ranks, any order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import IDS, NONE, random_graph, real_graph, shapes, slow_build
from scipy.sparse.csgraph import dijkstra
from spmd import FakeShard, Graph, cut, run, shards
from sssp_oracle import SSSP, check, check_forest, distances, random_weighted, weighted

from mgraph import DynamicGraph
from mgraph.algorithms.paths.near_far.search import Lengths
from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import InvalidOption, UnknownVertex
from mgraph.kernels import load
from mgraph.partition import Partition

CUTS = [(1, True), (2, True), (3, False)]


@pytest.mark.parametrize(("size", "even"), CUTS)
def test_shapes(structure: str, device: str, small: None, size: int, even: bool) -> None:
    for seed, graph in enumerate(shapes()):
        check(graph, cut(graph.n, size, even), 0, structure=structure, device=device)
        if graph.n < 1000:
            check(weighted(graph, seed), cut(graph.n, size, even), 0, structure=structure, device=device)


@pytest.mark.parametrize(("size", "even"), CUTS)
def test_random(structure: str, device: str, small: None, size: int, even: bool) -> None:
    most = structure == "gpma+"  # what is asked of others does not hang on the weights
    for seed, kind in enumerate(["whole", "zeros", "fractions", "sizes"] if most else ["whole", "zeros"]):
        print(f"seed {seed}")
        graph = random_weighted(seed, directed=seed != 1, kind=kind)
        source = int(graph.src[seed])
        for dtype in ("float32", "float64") if most else ("float32",):
            check(graph, cut(graph.n, size, even), source, dtype, structure=structure, device=device)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_nothing_but_weights_of_0(device: str, small: None, size: int) -> None:
    """All distances are 0, so that predecessors are found in rounds."""
    for seed in range(3):
        print(f"seed {seed}")
        check(random_weighted(seed, kind="none"), cut(300 + 11 * seed, size), 5, device=device)
    n = 400
    path = Graph(n, np.arange(n - 1, dtype=IDS), np.arange(1, n, dtype=IDS))
    check(weighted(path, 0, "none"), cut(n, size), 0, device=device)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_without_weights(device: str, size: int, even: bool, reverse: bool) -> None:
    for seed, dtype in enumerate(["float32", "float64"]):
        print(f"seed {seed}")
        graph = random_graph(seed, 300, 900)
        distance, _, info = check(graph, cut(300, size, even), int(graph.src[0]), dtype, device=device, reverse=reverse)
        assert (info["delta"], info["supersteps"]) == (1, distance[np.isfinite(distance)].max() + 1)


def test_ones_add_up_to_the_largest_number_that_grows_by_one(device: str) -> None:
    made = Device(device, 0)
    hops = np.array([-1, 0, 5, 2**24, 2**24 + 1, 2**31 - 1], np.int32)
    for dtype, most in (("float32", 2**24), ("float64", 2**31)):
        lengths = Lengths.of(dtype)
        words = made.empty(len(hops), lengths.word)
        kernels = load(made, "algorithms/paths/sssp/lengths_of_hops.cuh", LENGTHS=lengths.bits)
        kernels.LengthsOfHops(len(hops), hops=made.asarray(hops), n=len(hops), none=lengths.none, lengths=words)
        want = np.where(hops < 0, np.inf, np.minimum(hops.astype(np.int64), most)).astype(dtype)
        np.testing.assert_array_equal(made.to_host(words).view(dtype), want)


def test_weights_that_are_rounded_away(device: str) -> None:
    n = 50  # a cycle after a long first edge: float32 adds nothing more, float64 does
    src, dst = np.arange(n, dtype=IDS), np.append(np.arange(1, n), 1).astype(IDS)
    weight = np.append(1e6, np.full(n - 1, 1e-3)).astype(np.float32)
    graph = Graph(n, src, dst, weight=weight)
    for size in (1, 3):
        distance, predecessors, _ = check(graph, cut(n, size), 0, device=device)
        assert (distance[1:] == 1e6).all()
        assert predecessors[1] == 0
        assert check(graph, cut(n, size), 0, "float64", device=device)[0][-1] > 1e6


def test_sums_past_the_largest_number_are_unreachable() -> None:
    graph = Graph(4, np.array([0, 1, 2], IDS), np.array([1, 2, 3], IDS), weight=np.full(3, 3e38, np.float32))
    assert np.isinf(check(graph, cut(4, 2), 0)[0]).tolist() == [False, False, True, True]
    assert np.isfinite(check(graph, cut(4, 2), 0, "float64")[0]).all()


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_words(size: int, directed: bool) -> None:
    graph = weighted(random_graph(12, 20000, 100000, directed, skew=True), 3, "fractions")
    made = shards(graph, cut(graph.n, size))
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    source = int(np.bincount(graph.src).argmax())
    found, _ = run(made, SSSP, source, predecessors=True, dtype="float64")
    np.testing.assert_array_equal(found["distance"], dijkstra(graph.matrix(), indices=source))
    check_forest(graph, source, found["distance"], found["predecessors"])


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(starts: tuple[int, ...]) -> None:
    for seed, directed in ((3, True), (4, False)):
        for source in (0, 33, 89):
            check(weighted(random_graph(seed, 90, 200, directed), seed), Partition(starts), source)


def test_nothing_depends_on_the_ranks_or_the_step(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    graph = random_weighted(7, kind="fractions")
    first = check(graph, cut(graph.n, 1), 3, device=device)[:2]
    step = "mgraph.algorithms.paths.sssp.program.Paths._step"
    for size in (1, 2, 3):
        for delta in (0.0, 1e-3, 1.0, 1e30):
            monkeypatch.setattr(step, lambda paths, *numbers, delta=delta: delta)
            got = check(graph, cut(graph.n, size), 3, device=device)[:2]
            np.testing.assert_array_equal(got, first)


# ---- weights -------------------------------------------------------------------------------------------------------


def test_an_undirected_edge_has_its_last_weight_from_either_end(structure: str) -> None:
    src, dst = np.array([0, 1, 1, 2], IDS), np.array([1, 0, 2, 1], IDS)
    graph = Graph(3, src, dst, directed=False, weight=np.array([5, 3, 1, 4], np.float32))
    assert check(graph, cut(3, 2), 0, structure=structure)[0].tolist() == [0, 3, 7]
    assert check(graph, cut(3, 1), 2, structure=structure)[0].tolist() == [7, 4, 0]


@pytest.mark.parametrize("bad", [-1.0, -1e-30, -np.inf])
@pytest.mark.parametrize("size", [1, 3])
def test_a_negative_weight_is_refused_and_named(device: str, small: None, size: int, bad: float) -> None:
    graph = weighted(random_graph(2, 200, 3000, skew=True), 1)
    edge = 1234  # its ends may be joined again later
    graph = Graph(graph.n, graph.src, graph.dst, weight=graph.weight.copy())
    same = (graph.src == graph.src[edge]) & (graph.dst == graph.dst[edge])
    graph.weight[same] = bad
    order = np.random.default_rng(1).permutation(graph.n).astype(IDS)
    inside = Graph(graph.n, order[graph.src], order[graph.dst], weight=graph.weight)
    want = f"from {graph.src[edge]} to {graph.dst[edge]} has weight {np.float32(bad):g}; "
    with pytest.raises(InvalidOption, match=want):
        run(shards(graph, cut(graph.n, size), device=device), SSSP, 0)
    made = shards(inside, cut(graph.n, size), device=device)
    for shard in made:
        shard.order = shard.device.asarray(order)
    with pytest.raises(InvalidOption, match=want):
        run(made, SSSP, 0)


def test_negative_zero_is_zero() -> None:
    graph = Graph(3, np.array([0, 1], IDS), np.array([1, 2], IDS), weight=np.array([-0.0, 2], np.float32))
    assert check(graph, cut(3, 1), 0)[0].tolist() == [0, 0, 2]


def apply_to(made: list[FakeShard], src: np.ndarray, dst: np.ndarray, weight: np.ndarray | None, op: int) -> None:
    for shard in made:
        mine = (src >= shard.lo) & (src < shard.hi)
        batch = EdgeBatch(src[mine] - shard.lo, dst[mine], None if weight is None else weight[mine], op=op)
        shard.out_edges.apply(batch)


def test_a_weight_that_becomes_negative_is_refused(structure: str, device: str) -> None:
    """Edges that were looked through are looked through again after each change."""
    with DynamicGraph(n_vertices=4, weighted=True, structure=structure, device=device) as graph:
        graph.insert([0, 1], [1, 2], [1, 2])
        for _ in range(2):
            assert graph.sssp(0).to_numpy().tolist() == [0, 1, 3, np.inf]
            assert graph.sssp(0).to_numpy().tolist() == [0, 1, 3, np.inf]
            graph.insert([1], [2], [-2])
            for _ in range(2):
                with pytest.raises(InvalidOption, match="from 1 to 2 has weight -2; "):
                    graph.sssp(0)
            graph.delete([1], [2])
            assert graph.sssp(0).to_numpy().tolist() == [0, 1, np.inf, np.inf]
            graph.insert([1], [2], [2])


def test_weights_are_looked_through_once(counted: Counter[str]) -> None:
    """Until a batch changes the edges of a rank: then that rank alone looks at its own."""
    graph = weighted(random_graph(3, 60, 400), 2)
    made, looked = shards(graph, cut(graph.n, 3)), []
    owner = [shard for shard in made if shard.lo <= graph.src[0] < shard.hi]
    for _ in range(2):
        for _ in range(2):
            counted.clear()
            run(made, SSSP, 0)
            looked.append(counted["CheckWeights"])
        apply_to(owner, graph.src[:1], graph.dst[:1], graph.weight[:1] + 1, op=1)
    assert looked == [3, 0, 1, 0]


@pytest.mark.parametrize("size", [1, 3])
def test_after_batches(structure: str, device: str, size: int) -> None:
    rng, n, edges = np.random.default_rng(size), 200, {}
    made = shards(Graph(n, NONE, NONE, weight=np.empty(0, np.float32)), cut(n, size), structure, device=device)
    for turn in range(4):
        src, dst = rng.integers(0, n, (2, 300), dtype=IDS)
        weight = rng.random(300).astype(np.float32)
        apply_to(made, src, dst, weight, op=1)
        edges |= dict(zip(zip(src.tolist(), dst.tolist(), strict=True), weight, strict=True))
        gone = np.array(sorted(edges), IDS)
        gone = gone if turn == 3 else gone[rng.random(len(gone)) < 0.5]  # in the end everything
        apply_to(made, gone[:, 0].copy(), gone[:, 1].copy(), None, op=-1)
        for edge in gone.tolist():
            del edges[tuple(edge)]
        ends = np.array(list(edges), IDS).reshape(-1, 2)
        graph = Graph(n, ends[:, 0].copy(), ends[:, 1].copy(), weight=np.array(list(edges.values()), np.float32))
        found, _ = run(made, SSSP, 7, predecessors=True)
        want = distances(graph, 7, "float32")
        np.testing.assert_array_equal(found["distance"], want)
        check_forest(graph, 7, want, found["predecessors"])


@pytest.mark.parametrize("source", [-1, 67, 2**40])
def test_unknown_source(source: int) -> None:
    with pytest.raises(UnknownVertex, match=f"source is {source}; the graph has 67 vertices"):
        run(shards(shapes()[3], cut(67, 2)), SSSP, source)


def test_bad_options() -> None:
    made = shards(shapes()[3], cut(67, 1))
    with pytest.raises(InvalidOption, match="int32"):
        run(made, SSSP, 1, dtype="int32")
    with pytest.raises(InvalidOption, match="1.5"):
        run(made, SSSP, 1.5)


@pytest.mark.parametrize("name", ["web-NotreDame", "ego-twitter", "luxembourg_osm"])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, device: str, name: str, size: int) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    graph = weighted(graph, 1, "fractions")
    made = shards(graph, cut(graph.n, size), "gpma+", device=device)
    source = int(graph.src[len(graph.src) // 2])
    got, info = run(made, SSSP, source, dtype="float64")
    np.testing.assert_array_equal(got, dijkstra(graph.matrix(), indices=source))
    assert info["reached"] == np.isfinite(got).sum() > 1000
