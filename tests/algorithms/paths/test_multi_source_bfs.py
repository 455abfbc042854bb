"""Searches from several vertices against SciPy: to the nearest, from each, and within some edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import IDS, random_graph, real_graph, shapes, slow_build
from scipy.sparse.csgraph import dijkstra
from spmd import Graph, cut, run, run_program, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.primitives import programs
from mgraph.errors import Aborted, InvalidOption, UnknownVertex
from mgraph.exchange import world
from mgraph.partition import Partition
from mgraph.structures import Csr

DISTANCES, K_HOP, NEAREST = (ALGORITHMS[name] for name in ("distances", "k_hop", "multi_source_bfs"))

CUTS = [(1, True), (2, True), (3, False)]


def every(graph: Graph, sources: np.ndarray) -> np.ndarray:
    """The distances from each source: int32[k, n], -1 where there is no path."""
    far = dijkstra(graph.matrix(), unweighted=True, indices=sources)
    return np.where(np.isinf(far), -1, far).astype(np.int32)


def nearest(far: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least distance of each vertex, and the least of the sources that are as near."""
    far = np.where(far < 0, 2**30, far)
    least = far.min(axis=0)
    names = np.where(far == least, np.asarray(names, np.int64)[:, None], 2**40).min(axis=0)
    return np.where(least == 2**30, -1, least), np.where(least == 2**30, -1, names)


def check_rows(rows: Csr, far: np.ndarray, k: int) -> None:
    """Row i has what is within k edges of source i, nearest first, then by id."""
    assert (rows.offsets.dtype, rows.dst.dtype, rows.hop.dtype) == (np.int64, np.uint32, np.int32)
    assert rows.weight is None
    for i, row in enumerate(far):
        here = slice(rows.offsets[i], rows.offsets[i + 1])
        inside = np.flatnonzero((row >= 0) & (row <= k))
        inside = inside[np.lexsort((inside, row[inside]))]
        np.testing.assert_array_equal(rows.dst[here], inside)
        np.testing.assert_array_equal(rows.hop[here], row[inside])


def check(graph: Graph, partition: Partition, sources: np.ndarray, **kind: object) -> None:
    """All three from the same sources."""
    made, far = shards(graph, partition, **kind), every(graph, sources)
    got, info = run(made, DISTANCES, sources)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, far)
    assert info == {}
    found, info = run(made, NEAREST, sources)
    least, names = nearest(far, sources)
    np.testing.assert_array_equal(found["distance"], least)
    np.testing.assert_array_equal(found["nearest"], names)
    assert (found["distance"].dtype, found["nearest"].dtype) == (np.int32, np.int64)
    assert info == {"levels": least.max() + 1, "reached": (least >= 0).sum()}
    for k in (0, 2, graph.n):
        check_rows(run(made, K_HOP, sources, k)[0], far, k)
        check_rows(run(made, K_HOP, sources[:1], k)[0], far[:1], k)


@pytest.mark.parametrize(("size", "even"), CUTS)
def test_shapes(structure: str, device: str, size: int, even: bool) -> None:
    for graph in shapes():
        sources = np.array([0, graph.n - 1, graph.n // 2, 0])
        check(graph, cut(graph.n, size, even), sources, structure=structure, device=device)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("size", "even"), CUTS)
def test_random(structure: str, device: str, memory: str, size: int, even: bool, directed: bool) -> None:
    for seed, k in ((0, 1), (1, 70)):
        print(f"seed {seed}")
        graph = random_graph(seed, 300 + 31 * seed, 900, directed, skew=seed == 1)
        sources = np.random.default_rng(seed).integers(0, graph.n, k)
        check(graph, cut(graph.n, size, even), sources, structure=structure, device=device)


@pytest.mark.parametrize("k", [63, 64, 65, 130])
def test_as_many_sources_as_fit_into_words(k: int) -> None:
    graph = random_graph(5, 200, 300)
    check(graph, cut(200, 2), np.arange(k), structure="gpma+")


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(memory: str, starts: tuple[int, ...]) -> None:
    for seed, directed in ((3, True), (4, False)):
        check(random_graph(seed, 90, 200, directed), Partition(starts), np.array([3, 88, 32]))


@pytest.mark.parametrize(("sources", "longest"), [(5, 3), (5, 2**31 - 2), (1, 3)])
def test_rows_of_any_number_are_sorted(sources: int, longest: int) -> None:
    """As one number of 64 bits each where they fit, otherwise by three columns; of a single source part by part."""
    rng = np.random.default_rng(7)
    counts, hops = np.array([200, 0, 700, 100, 1000]), np.array([0, 1, longest, 0, 1])
    row, hop = rng.integers(0, sources, 2000), np.repeat(hops, counts)
    vertex = rng.choice(2**32 - 1, 2000, replace=False) if sources == 1 else rng.integers(0, 2**32 - 1, 2000)
    columns = {"vertex": vertex.astype(IDS), "row": row.astype(IDS) if sources > 1 else row[:0]}
    parts = {name: np.split(column, [900]) for name, column in columns.items()}
    parts |= {name: np.split(column, [3]) for name, column in {"counts": counts, "hops": hops}.items()}
    rows = K_HOP.result(parts, {"rows": sources}, lambda ids: ids)
    want = np.lexsort((vertex, hop, row))
    np.testing.assert_array_equal(rows.dst, vertex[want])
    np.testing.assert_array_equal(rows.hop, hop[want])
    np.testing.assert_array_equal(rows.offsets, np.searchsorted(row[want], np.arange(sources + 1)))


@pytest.mark.parametrize("size", [1, 3])
def test_the_nearest_is_by_users_ids(size: int) -> None:
    graph = random_graph(6, 400, 1000, directed=False)
    order = np.random.default_rng(3).permutation(graph.n).astype(IDS)
    inside = Graph(graph.n, order[graph.src], order[graph.dst], directed=False)
    sources = np.arange(0, 400, 9).astype(IDS)
    made = shards(inside, cut(graph.n, size))
    for shard in made:
        shard.order = order
    got = {}
    for way in (1, -1):  # the order of the sources changes nothing
        program = {"sources": order[sources][::way].copy()}
        found, _ = run_program(made, lambda shard, program=program: NEAREST.run(shard, **program), NEAREST)
        got[way] = found["distance"][order], found["nearest"][order]
        np.testing.assert_array_equal(got[way], nearest(every(graph, sources), sources))


@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_words(memory: str, size: int) -> None:
    graph = random_graph(12, 20000, 100000, skew=True)
    made = shards(graph, cut(graph.n, size))
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    sources = np.random.default_rng(1).integers(0, graph.n, 20)
    far = every(graph, sources)
    np.testing.assert_array_equal(run(made, DISTANCES, sources)[0], far)
    np.testing.assert_array_equal(run(made, NEAREST, sources)[0]["nearest"], nearest(far, sources)[1])
    check_rows(run(made, K_HOP, sources, 2)[0], far, 2)


def test_one_launch_runs_all_levels_or_one(counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "STAY_OF_CPU", 1 << 30)  # a launch stays however busy the machine is
    n = 3000
    made = shards(Graph(n, np.arange(n - 1, dtype=IDS), np.arange(1, n, dtype=IDS)), cut(n, 1))
    counted.clear()
    found, _ = DISTANCES.run(made[0], sources=np.array([0, 7], IDS))
    assert found["distance"][:, -1].tolist() == [n - 1, n - 8]
    assert counted == {"BitParallel": 1}
    counted.clear()
    found, _ = K_HOP.run(made[0], sources=np.array([0, 7], IDS), k=4)
    assert np.sort(found["vertex"]).tolist() == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]
    assert counted == {"BitParallel": 5, "Emit": 5}
    counted.clear()
    found, _ = K_HOP.run(made[0], sources=np.array([0], IDS), k=n)
    assert found["vertex"].tolist() == found["hops"].tolist() == list(range(n))
    assert found["counts"].tolist() == [1] * n
    assert counted == {"BitParallel": 3, "read-back": 3}  # of 1,024 levels each


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_programs_with_full_inboxes_and_both_drivers(
    ranks: int, mapped: bool | str, device: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A level is sent in parts; a program that leaves at each meeting goes on. Some ranks have no vertices."""
    monkeypatch.setattr(programs, "ROOM", 3)
    monkeypatch.setattr(programs, "ROOM_SHARE", 1 << 20)
    monkeypatch.setitem(world.PATIENCE, "cpu", 0)
    for seed in range(2):
        print(f"seed {seed}")
        graph = random_graph(seed, 150, 700, skew=seed == 1)
        sources = np.random.default_rng(seed).integers(0, graph.n, 40)
        cuts = cut(graph.n, ranks, even=ranks < 5)
        made, far = shards(graph, cuts, device=device, mapped=mapped), every(graph, sources)
        np.testing.assert_array_equal(run(made, DISTANCES, sources)[0], far)
        np.testing.assert_array_equal(run(made, NEAREST, sources)[0]["nearest"], nearest(far, sources)[1])
        for k in (1, graph.n):
            check_rows(run(made, K_HOP, sources, k)[0], far, k)
            check_rows(run(made, K_HOP, sources[:1], k)[0], far[:1], k)


def test_bad_arguments() -> None:
    made = shards(random_graph(1, 20, 30), cut(20, 2))
    for algorithm, more in ((DISTANCES, ()), (NEAREST, ()), (K_HOP, (2,))):
        with pytest.raises(UnknownVertex, match=r"sources\[1\] is 20; the graph has 20"):
            run(made, algorithm, [0, 20], *more)
        for bad, message in (([], "empty"), ([0.5], "whole"), (3, "one value"), (["a"], "whole numbers")):
            with pytest.raises(InvalidOption, match=message):
                run(made, algorithm, bad, *more)
    for k in (-1, 1.5):
        with pytest.raises(InvalidOption, match="k is"):
            run(made, K_HOP, [0], k)


@pytest.mark.parametrize(("algorithm", "more"), [(DISTANCES, ()), (NEAREST, ()), (K_HOP, (2,))])
@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_search(size: int, algorithm: object, more: tuple[int, ...]) -> None:
    made = shards(shapes()[3], cut(67, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, algorithm, [0], *more)


@pytest.mark.parametrize("name", ["web-NotreDame", "luxembourg_osm"])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, device: str, name: str) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    sources = np.random.default_rng(1).integers(0, graph.n, 5)
    far = every(graph, sources)
    made = shards(graph, cut(graph.n, 2), "gpma+", device=device)
    np.testing.assert_array_equal(run(made, DISTANCES, sources)[0], far)
    np.testing.assert_array_equal(run(made, NEAREST, sources)[0]["nearest"], nearest(far, sources)[1])
    check_rows(run(made, K_HOP, sources, 3)[0], far, 3)
