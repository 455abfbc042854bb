"""Triangles and clustering coefficients against SciPy and NetworkX: every structure and device, 1 to 3 ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import IDS, NONE, random_graph, real_graph, shapes, slow_build
from spmd import Graph, cut, run, shards
from triangle_oracle import coefficients, transitivity, triangles

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.density.triangles import program
from mgraph.errors import Aborted, CapacityError, InvalidOption
from mgraph.partition import Partition

TRIANGLES, CLUSTERING = ALGORITHMS["triangles"], ALGORITHMS["clustering"]


def networkx_graph(graph: Graph) -> nx.Graph:
    oracle = nx.DiGraph() if graph.directed else nx.Graph()
    oracle.add_nodes_from(range(graph.n))
    oracle.add_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    return oracle


def check(graph: Graph, partition: Partition, **options: object) -> None:
    """Count the triangles of an undirected graph, and check them."""
    got, info = run(shards(graph, partition, **options), TRIANGLES)
    want = triangles(graph)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == np.int64
    assert info["total"] == want.sum() // 3
    ratio = 3 * info["total"] / info["pairs"] if info["pairs"] else 0.0
    assert ratio == pytest.approx(transitivity(graph), rel=1e-14)


def check_clustering(graph: Graph, partition: Partition, only: str | None = None, **options: object) -> None:
    for definition in (only,) if only else ("ldbc", "fagiolo"):
        got, info = run(shards(graph, partition, **options), CLUSTERING, definition=definition)
        assert (got.dtype, info) == (np.float64, {})
        np.testing.assert_allclose(got, coefficients(graph, definition), rtol=1e-14, atol=0)


def test_shapes(structure: str, device: str, ranks: int) -> None:
    for graph in shapes():
        partition = cut(graph.n, ranks, even=False)
        check(replace(graph, directed=False), partition, structure=structure, device=device)
        only = "ldbc" if ranks == 1 else "fagiolo"
        check_clustering(graph, partition, only, structure=structure, device=device, reverse=ranks == 1)


@pytest.mark.parametrize("directed", [True, False])
def test_random(structure: str, device: str, ranks: int, directed: bool) -> None:
    for seed in range(3):
        print(f"seed {seed}")
        graph = random_graph(seed, 200 + 31 * seed, (200, 3000, 2500)[seed], directed, skew=seed == 2)
        partition = cut(graph.n, ranks, even=False)
        if not directed:
            check(graph, partition, structure=structure, device=device)
        check_clustering(graph, partition, structure=structure, device=device, reverse=seed == 1)


@pytest.mark.parametrize("directed", [True, False])
def test_networkx_agrees(directed: bool) -> None:
    for seed in range(4):
        print(f"seed {seed}")
        graph = random_graph(seed, 60, 400, directed)
        oracle = networkx_graph(graph)
        made = shards(graph, cut(graph.n, 2))
        got, _ = run(made, CLUSTERING, definition="fagiolo")
        want = nx.clustering(oracle)
        np.testing.assert_allclose(got, [want[v] for v in range(graph.n)], rtol=1e-12)
        if not directed:
            got, info = run(made, TRIANGLES)
            assert dict(enumerate(got.tolist())) == nx.triangles(oracle)
            assert 3 * info["total"] / info["pairs"] == pytest.approx(nx.transitivity(oracle), rel=1e-12)


def test_the_definition_of_ldbc_by_hand() -> None:
    """Neighbours of 0 are 1, 2 and 3; among them are the arcs 1 -> 2, 2 -> 1 and 2 -> 3."""
    src, dst = np.array([0, 0, 2, 3, 1, 2, 2, 0], IDS), np.array([1, 2, 0, 0, 2, 1, 3, 0], IDS)
    got, _ = run(shards(Graph(5, src, dst), cut(5, 2)), CLUSTERING)
    # 1 and 3: the arcs among 0 and 2 are both there; 2: of its neighbours 0, 1 and 3 the arcs 0 -> 1 and 3 -> 0
    np.testing.assert_allclose(got, [3 / 6, 2 / 2, 2 / 6, 2 / 2, 0])


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(starts: tuple[int, ...]) -> None:
    check(random_graph(3, 90, 700, directed=False), Partition(starts))
    check_clustering(random_graph(4, 90, 700), Partition(starts))


@pytest.mark.parametrize("piece", [3, 40, 1000])
@pytest.mark.parametrize("size", [1, 3])
def test_pieces_of_any_length(monkeypatch: pytest.MonkeyPatch, size: int, piece: int) -> None:
    monkeypatch.setattr(program, "PIECE", piece)
    monkeypatch.setattr(program, "ALONE", piece)
    monkeypatch.setattr("mgraph.algorithms.primitives.replicated.PART", piece)
    check(random_graph(5, 120, 1500, directed=False), cut(120, size, even=False))
    check_clustering(random_graph(6, 120, 1500, skew=True), cut(120, size))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_vertices(device: str, size: int) -> None:
    empty = Graph(0, NONE, NONE, directed=False)
    got, info = run(shards(empty, cut(0, size), device=device), TRIANGLES)
    assert (len(got), info) == (0, {"total": 0, "pairs": 0})
    assert len(run(shards(replace(empty, directed=True), cut(0, size), device=device), CLUSTERING)[0]) == 0


@pytest.mark.parametrize(("n", "apart"), [(40, 8192), (100, 4096), pytest.param(2100, 1, marks=pytest.mark.slow)])
def test_all_know_all(n: int, apart: int) -> None:
    """Ids with the same low bits, and rows that are longer than what a CPU hashes."""
    first, second = np.triu_indices(n, 1)
    graph = Graph(n * apart, (first * apart).astype(np.uint32), (second * apart).astype(np.uint32), directed=False)
    got, info = run(shards(graph, cut(graph.n, 1)), TRIANGLES)
    want = np.zeros(graph.n, np.int64)
    want[::apart] = (n - 1) * (n - 2) // 2
    np.testing.assert_array_equal(got, want)
    assert info["total"] == n * (n - 1) * (n - 2) // 6


def test_directed_graphs_have_none() -> None:
    with pytest.raises(InvalidOption, match="directed=False"):
        run(shards(random_graph(1, 10, 20), cut(10, 1)), TRIANGLES)
    with pytest.raises(InvalidOption, match="'LDBC'.*'ldbc', 'fagiolo'"):
        run(shards(random_graph(1, 10, 20), cut(10, 1)), CLUSTERING, definition="LDBC")


@pytest.mark.parametrize("directed", [True, False])
def test_many_threads(structure: str, directed: bool, small: None) -> None:
    graph = random_graph(12, 3000, 40000, directed, skew=True)
    made = shards(graph, cut(graph.n, 1), structure)
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    got, _ = run(made, CLUSTERING)
    np.testing.assert_allclose(got, coefficients(graph, "ldbc"), rtol=1e-14)


# ---- what must change nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("size", [1, 3])
def test_after_batches(structure: str, device: str, small: None, size: int, directed: bool) -> None:
    for graph, made in apply_to(structure, device, size, n=120, each=400, directed=directed):
        got, _ = run(made, CLUSTERING)
        np.testing.assert_allclose(got, coefficients(graph, "ldbc"), rtol=1e-14)
        if not directed:
            np.testing.assert_array_equal(run(made, TRIANGLES)[0], triangles(graph))
    assert got.sum() == 0


@pytest.mark.parametrize("size", [1, 3])
def test_the_order_of_the_vertices(device: str, size: int) -> None:
    for seed in range(3):
        print(f"seed {seed}")
        graph = random_graph(seed, 200, 2500, directed=False)
        made, order = reordered(graph, size, seed, device)
        np.testing.assert_array_equal(run(made, TRIANGLES)[0][order], triangles(graph))


# ---- several ranks, memory, cost -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_run(size: int) -> None:
    made = shards(random_graph(1, 100, 200, directed=False), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, TRIANGLES)


def test_no_room_for_in_edges_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgraph.algorithms.primitives.replicated.transposed", lambda shard: None)
    with pytest.raises(CapacityError, match="reverse=True"):
        run(shards(random_graph(1, 100, 200), cut(100, 2)), CLUSTERING)


def test_what_travels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PIECE", 500)
    monkeypatch.setattr(program, "ALONE", 500)
    graph = random_graph(4, 1000, 30000, directed=False)
    made = shards(graph, cut(graph.n, 2))
    run(made, TRIANGLES)
    for shard in made:
        sent = [nbytes for call, nbytes in shard.exchange.calls if call == "allgather"]
        assert max(sent[1:]) <= 8 * (500 + 250)  # a piece, and a row that is cut by none
        assert sum(sent) < 4 * graph.n + 9 * graph.n + 4 * 30000
        assert Counter(call for call, _ in shard.exchange.calls)["allgather"] > 30


def test_launches_and_read_backs(counted: Counter[str]) -> None:
    graph = random_graph(6, 500, 3000, directed=False)
    made = shards(graph, cut(graph.n, 1))
    counted.clear()
    TRIANGLES.run(made[0])
    launches = {"AddDegrees": 1, "KeepRows": 2, "KeepHubs": 2, "Close": 1, "AddSupport": 1, "Paths": 1}
    assert counted == {**launches, "read-back": 4}


# ---- real graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"), [pytest.param("cit-HepPh", 1, marks=pytest.mark.slow), ("cit-HepPh", 3), ("luxembourg_osm", 2)]
)
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, device: str, name: str, size: int) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    check(replace(graph, directed=False), cut(graph.n, size), structure="gpma+", device=device)
    if graph.directed:
        check_clustering(graph, cut(graph.n, size), structure="gpma+", device=device)
