"""Random walks and sampled neighbours: what they may be, how likely each is, and the same by a seed everywhere."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import NONE, random_graph, shapes
from spmd import FakeShard, Graph, cut, facts, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import GraphFacts
from mgraph.algorithms.sampling.random_walks import program
from mgraph.algorithms.sampling.sample_neighbors import program as sample_program
from mgraph.algorithms.sampling.sample_neighbors.method import SampledNeighbors
from mgraph.errors import Aborted, CapacityError, InvalidOption, UnknownVertex
from mgraph.exchange import world
from mgraph.splitmix import mix64

WALKS, SAMPLE = ALGORITHMS["random_walks"], ALGORITHMS["sample_neighbors"]


def neighbors(graph: Graph, direction: str = "out") -> list[set[int]]:
    tails, heads = graph.arcs if direction == "out" else graph.arcs[::-1]
    rows: list[set[int]] = [set() for _ in range(graph.n)]
    for u, v in zip(tails.tolist(), heads.tolist(), strict=True):
        rows[u].add(v)
    return rows


# ---- walks -----------------------------------------------------------------------------------------------------------


def scramble(z: np.ndarray) -> np.ndarray:
    return mix64(z + np.uint64(0x9E3779B97F4A7C15))


def expected(graph: Graph, starts: np.ndarray, length: int, seed: int) -> np.ndarray:
    """To the neighbour with the least hash of seed, walk, step and its id."""
    rows = [np.array(sorted(row), np.uint64) for row in neighbors(graph)]
    walks = np.empty((len(starts), length + 1), np.int64)
    walks[:, 0] = starts
    of_walks = scramble(scramble(np.array([seed], np.uint64)) ^ np.arange(len(starts), dtype=np.uint64))
    for step in range(length):
        streams = scramble(of_walks ^ np.uint64(step))
        for walk, at in enumerate(walks[:, step].tolist()):
            row = rows[at]
            walks[walk, step + 1] = row[np.argmin(scramble(streams[walk] ^ row))] if len(row) else at
    return walks


def walk(graph: Graph, made: list[FakeShard], seed: int, length: int = 7) -> None:
    """Check walks from all vertices, twice."""
    starts = np.tile(np.arange(graph.n), 2)
    walks, info = run(made, WALKS, starts, length, seed)
    assert (walks.dtype, info) == (np.int64, {"walks": 2 * graph.n, "length": length})
    np.testing.assert_array_equal(walks, expected(graph, starts, length, seed))


def test_the_same_walks_wherever(structure: str, device: str, ranks: int) -> None:
    for directed in (True, False):
        graph = random_graph(1, 60, 500, directed, skew=True)
        walk(graph, shards(graph, cut(60, ranks, False), structure, False, device), 5)


def test_walks_of_shapes_and_after_batches(device: str) -> None:
    for graph in shapes():
        walk(graph, shards(graph, cut(graph.n, 2, False), "gpma+", False, device), 1)
    for graph, made in apply_to("gpma+", device, 2, n=50, each=200, directed=True):
        walk(graph, made, 2)


def test_each_neighbor_is_equally_likely(device: str) -> None:
    graph = Graph(20, np.zeros(16, np.uint32), np.arange(1, 17, dtype=np.uint32))
    made = shards(graph, cut(20, 2), "gpma+", False, device)
    walks, _ = run(made, WALKS, np.zeros(16_000, int), 1, 3)
    counts = np.bincount(walks[:, 1], minlength=20)[1:17]
    assert ((counts - 1000) ** 2 / 1000).sum() < 45  # chi squared with 15 degrees of freedom: 1 of 10,000 seeds fails


def test_an_order_changes_no_walk(device: str) -> None:
    graph = random_graph(3, 60, 500)
    made, order = reordered(graph, 2, 3, device)
    walks, _ = run(made, WALKS, order[np.arange(60)], 5, 9)
    np.testing.assert_array_equal(walks, run(shards(graph, cut(60, 1)), WALKS, np.arange(60), 5, 9)[0])


@pytest.fixture(params=["whole", "few"])
def rooms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Also with few walks at a time, in inboxes and lists with room for no more, and rows in one or two pieces."""
    if request.param == "few":
        for name, value in {"WALKS": 37, "VISITS": 200, "ROOM": 1, "PIECES": 70}.items():
            monkeypatch.setattr(program, name, value)
    return request.param


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_both_drivers(size: int, mapped: bool | str, rooms: str) -> None:
    """Also where a rank owns no vertex, and where all walks are at the same rank."""
    star = Graph(70, np.arange(1, 70, dtype=np.uint32), np.zeros(69, np.uint32), directed=False)
    for graph in (random_graph(4, 70, 600, True, skew=True), random_graph(5, 90, 300, False), star):
        for even in (True,) if size == 1 else (True, False):
            made = shards(graph, cut(graph.n, size, even), mapped=mapped)
            for length in (4, 7, 0):
                walk(graph, made, 5, length)


@pytest.mark.parametrize("mapped", [True, False])
def test_only_the_program_meets_where_ranks_map_each_other(mapped: bool) -> None:
    made = shards(random_graph(1, 300, 900, False), cut(300, 2), mapped=mapped)
    walk(random_graph(1, 300, 900, False), made, 1, 3)
    before = len(made[0].exchange.calls)
    run(made, WALKS, [5, 299], 3, 1)
    calls = [call for call, _ in made[0].exchange.calls[before:]]
    # One exchange carries numbers and walks of a meeting: of the first one, and of three steps.
    assert Counter(calls) == ({} if mapped else {"alltoallv": 4})


def test_a_program_that_leaves_at_each_meeting_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 0)
    graph = random_graph(7, 80, 700, skew=True)
    made = shards(graph, cut(80, 3))
    walk(graph, made, 3)
    assert sum(shard.exchange.world(shard.device).launches for shard in made) > 3


def test_many_threads(structure: str, rooms: str) -> None:
    graph = random_graph(8, 700, 20_000, skew=True)
    made = shards(graph, cut(700, 1), structure)
    for shard in made:
        shard.device = replace(shard.device, threads=4)
    walk(graph, made, 4, 3)


@pytest.mark.parametrize("size", [1, 2])
def test_abort_ends_walks(size: int) -> None:
    made = shards(random_graph(1, 100, 200, False), cut(100, size), aborted=lambda: True)
    with pytest.raises(Aborted):
        run(made, WALKS, [1], 5)


def test_a_call_is_one_program_without_a_read_back(counted: Counter[str]) -> None:
    made = shards(random_graph(1, 300, 900, False), cut(300, 1))
    counted.clear()
    WALKS.run(made[0], starts=np.arange(300, dtype=np.uint32), length=9, seed=1)
    assert counted.pop("Walking") > 0  # more on a busy machine
    assert +counted == {}
    assert made[0].exchange.world(made[0].device).runs == 1


# ---- neighbours ------------------------------------------------------------------------------------------------------


def check_sample(found: SampledNeighbors, rows: list[set[int]], seeds: list[int], fanouts: list[int]) -> None:
    nodes = found.node.tolist()
    assert nodes[: len(seeds)] == seeds
    assert len(set(nodes)) == len(nodes) == sum(found.num_sampled_nodes)
    assert len(found.row) == len(found.col) == sum(found.num_sampled_edges)
    assert (len(found.num_sampled_nodes), len(found.num_sampled_edges)) == (len(fanouts) + 1, len(fanouts))
    first, end, edge = 0, len(seeds), 0
    for hop, fanout in enumerate(fanouts):
        row, col = (c[edge : edge + found.num_sampled_edges[hop]].tolist() for c in (found.row, found.col))
        assert col == sorted(col)
        chosen: dict[int, list[int]] = {place: [] for place in range(first, end)}
        for r, c in zip(row, col, strict=True):
            chosen[c].append(nodes[r])
        for place, near in chosen.items():
            there = rows[nodes[place]]
            assert set(near) <= there
            assert len(set(near)) == len(near) == (len(there) if fanout < 0 else min(fanout, len(there)))
        edge, first, end = edge + len(row), end, end + found.num_sampled_nodes[hop + 1]
        assert set(row) >= set(range(first, end))  # who is new was found in this hop


def expected_sample(
    graph: Graph, seeds: list[int], fanouts: list[int], seed: int, direction: str
) -> dict[str, list[int]]:
    """The neighbours with the smallest hashes of seed, vertex and neighbour, each vertex's by their ids."""
    rows = [np.array(sorted(row), np.uint64) for row in neighbors(graph, direction)]
    nodes, row, col, first = list(seeds), list[int](), list[int](), 0
    places = {node: place for place, node in enumerate(nodes)}
    nodes_of_hops, edges_of_hops = [len(nodes)], list[int]()
    for fanout in fanouts:
        end, edges = len(nodes), len(row)
        for place in range(first, end):
            near = rows[nodes[place]]
            stream = scramble(scramble(scramble(np.array([seed], np.uint64)) ^ np.uint64(nodes[place])))
            if 0 <= fanout < len(near):
                near = np.sort(near[np.argsort(scramble(stream ^ near))[:fanout]])
            for neighbor in near.tolist():
                if neighbor not in places:
                    places[neighbor] = len(nodes)
                    nodes.append(neighbor)
                row.append(places[neighbor])
                col.append(place)
        first = end
        nodes_of_hops.append(len(nodes) - end)
        edges_of_hops.append(len(row) - edges)
    return {
        "node": nodes, "row": row, "col": col, "num_sampled_nodes": nodes_of_hops, "num_sampled_edges": edges_of_hops,
    }  # fmt: skip


@pytest.mark.parametrize("fanouts", [[7, 40, -1], [100, 3], [2, 0, 5], [1, 1, 1, 1]])
def test_samples_have_the_smallest_draws(device: str, fanouts: list[int]) -> None:
    seed = secrets.randbits(64)
    print("seed", seed)
    graph = random_graph(seed % 1000, 900, 30_000, True, skew=True)
    seeds = np.random.default_rng(seed).permutation(900)[:40].tolist()
    expected = expected_sample(graph, seeds, fanouts, seed, "out")
    for size, even in ((1, True), (2, True), (3, False)):
        made = shards(graph, cut(900, size, even), device=device)
        found, info = run(made, SAMPLE, seeds, fanouts, seed, "out")
        for name, value in expected.items():
            np.testing.assert_array_equal(getattr(found, name), value)
        assert found.node.dtype == found.row.dtype == found.col.dtype == np.int64
        assert info == {"nodes": found.num_sampled_nodes, "edges": found.num_sampled_edges}


def test_a_sample_of_too_many_vertices(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(50, np.zeros(30, np.uint32), np.arange(1, 31, dtype=np.uint32))
    for size in (1, 2):
        made = shards(graph, cut(50, size))
        monkeypatch.setattr(sample_program, "MOST_NODES", 30)
        with pytest.raises(CapacityError, match="1 nodes and 30 more edges; it may have 30 nodes"):
            run(made, SAMPLE, [0], [-1], 1, "out")
        monkeypatch.setattr(sample_program, "MOST_NODES", 31)
        made = shards(graph, cut(50, size))
        assert len(run(made, SAMPLE, [0], [-1], 1, "out")[0].node) == 31


def test_the_same_sample_wherever(structure: str, device: str, ranks: int) -> None:
    for directed, direction in ((True, "in"), (True, "out"), (False, "in")):
        graph = random_graph(2, 150, 3000, directed, skew=True)
        seeds, fanouts = np.random.default_rng(2).permutation(150)[:12].tolist(), [5, 2, -1]
        here = shards(graph, cut(150, 1), reverse=True)
        there = shards(graph, cut(150, ranks, False), structure, True, device)
        plain, found = (run(made, SAMPLE, seeds, fanouts, 4, direction)[0] for made in (here, there))
        check_sample(found, neighbors(graph, direction), seeds, fanouts)
        for name, value in vars(plain).items():
            np.testing.assert_array_equal(getattr(found, name), value)


@pytest.mark.parametrize(("enough", "room"), [(2, 100), (40, 40), (0, 0)])
def test_too_few_or_too_many_candidates(device: str, enough: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their vertices choose from the whole row."""
    graph = random_graph(6, 300, 20_000, skew=True)
    made, given = shards(graph, cut(300, 2), "gpma+", True, device), (np.arange(40).tolist(), [20, 3], 8)
    plain, _ = run(made, SAMPLE, *given)
    monkeypatch.setattr(sample_program, "_candidates", lambda fanout: (enough, room))
    found, _ = run(made, SAMPLE, *given)
    check_sample(found, neighbors(graph, "in"), *given[:2])
    for name, value in vars(plain).items():
        np.testing.assert_array_equal(getattr(found, name), value)


def test_hops_after_the_last_vertex_cost_nothing() -> None:
    graph = Graph(4, np.array([0, 1, 2], np.uint32), np.array([1, 2, 3], np.uint32), directed=False)
    found, _ = run(shards(graph, cut(4, 2)), SAMPLE, [0], [2] * 100_000, 1, "out")
    assert (found.node.tolist(), len(found.row)) == ([0, 1, 2, 3], 6)
    assert (found.num_sampled_nodes[:6], found.num_sampled_edges[:6]) == ([1, 1, 1, 1, 0, 0], [1, 2, 2, 1, 0, 0])
    assert (len(found.num_sampled_nodes), len(found.num_sampled_edges)) == (100_001, 100_000)


def test_samples_of_shapes(device: str) -> None:
    for graph in shapes():
        made = shards(graph, cut(graph.n, 2, False), "gpma+", True, device)
        for fanouts in ([], [0], [3, 3], [-1, 1]):
            check_sample(run(made, SAMPLE, [0], fanouts, 1)[0], neighbors(graph, "in"), [0], fanouts)


def test_each_set_is_equally_likely(device: str) -> None:
    """Of 400 neighbours, 3 are chosen among candidates below a bound; each neighbour equally often."""
    graph = Graph(401, np.arange(1, 401, dtype=np.uint32), np.zeros(400, np.uint32))
    made, counts = shards(graph, cut(401, 1), "gpma+", True, device), np.zeros(401, int)
    for seed in range(400):
        found, _ = run(made, SAMPLE, [0], [3], seed)
        counts[found.node[1:]] += 1
    assert counts.sum() == 1200
    assert ((counts[1:] - 3) ** 2 / 3).sum() < 520  # chi squared with 399 degrees of freedom, 4.3 deviations up


def test_a_sample_of_an_order_and_after_batches(device: str) -> None:
    graph = random_graph(3, 90, 900, directed=False)
    made, order = reordered(graph, 2, 3, device)
    plain, _ = run(shards(graph, cut(90, 1)), SAMPLE, [5, 1], [4, 4], 9)
    ordered, _ = run(made, SAMPLE, order[[5, 1]], [4, 4], 9)
    for name, value in vars(plain).items():
        np.testing.assert_array_equal(getattr(ordered, name), value)
    for after, parts in apply_to("gpma+", device, 2, n=90, each=300, directed=True, reverse=True):
        check_sample(run(parts, SAMPLE, [3, 80], [2, 2], 1)[0], neighbors(after, "in"), [3, 80], [2, 2])


@pytest.mark.parametrize(
    ("algorithm", "given", "error", "message"),
    [
        (WALKS, ([10], 1), UnknownVertex, "10"),
        (WALKS, ([], 1), InvalidOption, "empty"),
        (WALKS, ([1], -1), InvalidOption, "length is -1"),
        (WALKS, ([1], 1, 2**64), InvalidOption, "less than 2"),
        (WALKS, ([1], 2**40), CapacityError, "length is 1099511627776; 1 walks take"),
        (SAMPLE, ([1, 2, 1], [1]), InvalidOption, r"seeds\[2\] is 1, which comes before"),
        (SAMPLE, ([1], [3, -2]), InvalidOption, r"fanouts\[1\] is -2"),
        (SAMPLE, ([1], 3), InvalidOption, "must be a list"),
        (SAMPLE, ([1], [1.5]), InvalidOption, "must be a list"),
        (SAMPLE, ([1], [1], None, "both"), InvalidOption, "neither"),
        (SAMPLE, ([1], [1]), InvalidOption, "reverse=True"),
    ],
)
def test_bad_arguments(algorithm: Any, given: tuple[Any, ...], error: type[Exception], message: str) -> None:
    made = shards(Graph(10, NONE, NONE), cut(10, 1))
    with pytest.raises(error, match=message):
        algorithm.check(facts(made), *given)


def test_more_walks_than_numbers() -> None:
    many = np.broadcast_to(np.uint32(0), 2**32 + 1)
    graph = GraphFacts(10, True, False, False, ids=lambda values, name: values)
    with pytest.raises(InvalidOption, match="starts has 4294967297 vertices"):
        WALKS.check(graph, many, 1)


def test_a_seed_is_drawn() -> None:
    made = shards(random_graph(1, 10, 20), cut(10, 1))
    first, second = (WALKS.check(facts(made), [1], 2)["seed"] for _ in range(2))
    assert first != second
