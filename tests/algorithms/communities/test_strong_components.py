"""Strongly connected components against SciPy: every structure and device, 1 to 3 ranks, any order, batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import IDS, NONE, random_graph, real_graph, shapes, slow_build
from scipy.sparse.csgraph import connected_components
from spmd import Graph, cut, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.communities.strong_components import program
from mgraph.errors import Aborted
from mgraph.exchange.world import World
from mgraph.partition import Partition

STRONG = ALGORITHMS["strongly_connected_components"]


def labels(graph: Graph) -> np.ndarray:
    """The smallest id in the component of each vertex: int64[n]."""
    count, component = connected_components(graph.matrix(), directed=True, connection="strong")
    least = np.full(count, graph.n, np.int64)
    np.minimum.at(least, component, np.arange(graph.n))
    return least[component]


def check(graph: Graph, partition: Partition, **options: object) -> None:
    got, info = run(shards(graph, partition, **options), STRONG)
    want = labels(graph)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == np.int64
    assert info == {"components": len(np.unique(want))}


def chain(components: int, each: int, seed: int) -> Graph:
    """Cycles joined to a chain, with a path before and one after it, the ids scattered."""
    n = components * each
    ids = np.arange(n)
    ring = ids - ids % each + (ids + 1) % each
    src, dst = np.concatenate([ids, ids[each - 1 : -1 : each]]), np.concatenate([ring, ids[each::each]])
    path = np.arange(n, n + 40)
    src = np.concatenate([src, path[:-1], path[19:20], [n - 1]])
    dst = np.concatenate([dst, path[1:], [0], path[20:21]])
    order = np.random.default_rng(seed).permutation(n + 40).astype(IDS)
    return Graph(n + 40, order[src], order[dst], name=f"chain-{components}")


def test_shapes(structure: str, device: str, ranks: int) -> None:
    for graph in shapes():
        check(graph, cut(graph.n, ranks, even=False), structure=structure, device=device, reverse=ranks == 1)


def test_random(structure: str, device: str, ranks: int) -> None:
    for seed, degree in enumerate((0.8, 1.3, 2, 4)):  # no large component, one that grows
        print(f"seed {seed}")
        graph = random_graph(seed, 400, int(400 * degree), skew=seed == 3)
        check(graph, cut(graph.n, ranks, even=False), structure=structure, device=device, reverse=seed == 1)


@pytest.mark.parametrize("size", [1, 2])
def test_undirected_graphs(device: str, size: int) -> None:
    for seed in range(3):
        print(f"seed {seed}")
        graph = replace(random_graph(seed, 200, 150), directed=False)
        check(graph, cut(graph.n, size, even=False), device=device)


@pytest.mark.parametrize("size", [1, 2])
def test_chains_of_components(device: str, small: None, size: int) -> None:
    for graph in (chain(60, 3, 1), chain(3, 100, 2), chain(1, 50, 3), chain(100, 2, 4)):
        check(graph, cut(graph.n, size), structure="gpma+", device=device)


def test_a_chain_takes_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    states, run_program = [], World.run
    monkeypatch.setattr(World, "run", lambda *args, **fields: states.append(run_program(*args, **fields)) or states[-1])
    shard = shards(chain(400, 2, 5), cut(840, 1))[0]
    STRONG.run(shard)
    assert 2 < states[0]["scans"] < 30


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 90, 90, 90), (0, 31, 33, 65, 90)])
def test_ranges_of_any_length(starts: tuple[int, ...]) -> None:
    for seed in range(3):
        check(random_graph(seed, 90, 130), Partition(starts))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_vertices(device: str, size: int) -> None:
    check(Graph(0, NONE, NONE), cut(0, size), device=device)


@pytest.mark.parametrize("size", [1, 2])
def test_many_threads_on_the_same_vertices(structure: str, size: int, small: None) -> None:
    graph = random_graph(12, 5000, 9000, skew=size == 2)
    made = shards(graph, cut(graph.n, size), structure)
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    np.testing.assert_array_equal(run(made, STRONG)[0], labels(graph))


@pytest.mark.parametrize("size", [1, 3])
def test_after_batches(structure: str, device: str, small: None, size: int) -> None:
    for graph, made in apply_to(structure, device, size, n=150, each=200, directed=True, reverse=size == 3):
        np.testing.assert_array_equal(run(made, STRONG)[0], labels(graph))


@pytest.mark.parametrize("size", [1, 3])
def test_the_order_of_the_vertices(device: str, size: int) -> None:
    for seed in range(3):
        print(f"seed {seed}")
        graph = random_graph(seed, 300, 600)
        made, order = reordered(graph, size, seed, device)
        np.testing.assert_array_equal(run(made, STRONG)[0][order], labels(graph))


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_a_run(size: int) -> None:
    made = shards(random_graph(1, 100, 200), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, STRONG)


# ---- the program of all ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_both_drivers(monkeypatch: pytest.MonkeyPatch, size: int, mapped: bool | str) -> None:
    """Also with inboxes that hold few of the vertices that a turn changes."""
    graphs = [chain(20, 5, 7), random_graph(8, 300, 650), random_graph(9, 250, 1000, skew=True), hubs_of_loops(10)]
    for number, graph in enumerate(graphs):
        even = (number + size) % 2 == 0
        partition = cut(graph.n, size, even)
        check(graph, partition, structure="gpma+", reverse=even, mapped=mapped)
        with monkeypatch.context() as patch:
            patch.setattr(program, "inbox_room", lambda shard: 3 * (shard.size > 1))
            check(graph, partition, structure="gpma+", mapped=mapped)


def hubs_of_loops(seed: int) -> Graph:
    """Hubs with loops, some of which no cycle but their loop leads to, and vertices that only loops keep."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(300)
    hubs, others = ids[:6], ids[6:]
    src = np.concatenate([np.repeat(hubs[:3], 100), rng.choice(others, 300), hubs, others[:50], others[:80]])
    dst = np.concatenate([rng.choice(others, 300), np.repeat(hubs[3:], 100), hubs, others[:50], others[1:81]])
    return Graph(300, src.astype(IDS), dst.astype(IDS), name=f"loops-{seed}")


@pytest.mark.parametrize("mapped", [True, False])
def test_only_the_program_meets_where_ranks_map_each_other(mapped: bool) -> None:
    made = shards(random_graph(1, 300, 900), cut(300, 2), reverse=True, mapped=mapped)
    run(made, STRONG)
    before = len(made[0].exchange.calls)
    run(made, STRONG)
    calls = {call for call, _ in made[0].exchange.calls[before:]}
    assert calls == (set() if mapped else {"alltoallv"})


@pytest.mark.parametrize("name", ["web-NotreDame", "cit-HepPh"])
@pytest.mark.skipif(slow_build(), reason="takes minutes in a build that looks for faults")
def test_real_graphs(data_dir: Path, device: str, name: str) -> None:
    graph = real_graph(data_dir, name)
    if graph is None:
        pytest.skip(f"no {name} here")
    for size in (1, 3):
        check(graph, cut(graph.n, size), structure="gpma+", device=device)
