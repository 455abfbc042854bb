"""Random walks and sampled neighbours: what they may be, how likely each is, and the same by a seed everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import apply_to, reordered
from graphs import NONE, random_graph, shapes
from spmd import FakeShard, Graph, cut, facts, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.sampling.sample_neighbors.method import SampledNeighbors
from mgraph.errors import CapacityError, InvalidOption, UnknownVertex

WALKS, SAMPLE = ALGORITHMS["random_walks"], ALGORITHMS["sample_neighbors"]


def neighbors(graph: Graph, direction: str = "out") -> list[set[int]]:
    tails, heads = graph.arcs if direction == "out" else graph.arcs[::-1]
    rows: list[set[int]] = [set() for _ in range(graph.n)]
    for u, v in zip(tails.tolist(), heads.tolist(), strict=True):
        rows[u].add(v)
    return rows


# ---- walks -----------------------------------------------------------------------------------------------------------


def walk(graph: Graph, made: list[FakeShard], seed: int, length: int = 7) -> np.ndarray:
    """Checked walks from all vertices, twice."""
    starts, rows = np.tile(np.arange(graph.n), 2), neighbors(graph)
    walks, _ = run(made, WALKS, starts, length, seed)
    assert (walks.shape, walks.dtype) == ((2 * graph.n, length + 1), np.int64)
    np.testing.assert_array_equal(walks[:, 0], starts)
    for before, after in zip(walks[:, :-1].ravel().tolist(), walks[:, 1:].ravel().tolist(), strict=True):
        assert after in rows[before] or (after == before and not rows[before])
    return walks


def test_the_same_walks_wherever(structure: str, device: str, ranks: int) -> None:
    for directed in (True, False):
        graph = random_graph(1, 60, 500, directed, skew=True)
        plain = walk(graph, shards(graph, cut(60, 1)), 5)
        np.testing.assert_array_equal(
            walk(graph, shards(graph, cut(60, ranks, False), structure, False, device), 5), plain
        )
        assert (walk(graph, shards(graph, cut(60, 1)), 6) != plain).any()


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
    inside, _ = run(made, WALKS, order[np.arange(60)], 5, 9)
    back = np.argsort(order)
    np.testing.assert_array_equal(back[inside], run(shards(graph, cut(60, 1)), WALKS, np.arange(60), 5, 9)[0])


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
    inside, _ = run(made, SAMPLE, order[[5, 1]], [4, 4], 9)
    assert set(np.argsort(order)[inside.node].tolist()) == set(plain.node.tolist())
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


def test_a_seed_is_drawn() -> None:
    made = shards(random_graph(1, 10, 20), cut(10, 1))
    first, second = (WALKS.check(facts(made), [1], 2)["seed"] for _ in range(2))
    assert first != second
