"""The program of shortest paths against Dijkstra: mapped or not, full inboxes, leaving and coming back, and abort."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from graphs import IDS, random_graph
from spmd import FakeShard, Graph, cut, run, run_program, shards
from sssp_oracle import SSSP, check, distances, random_weighted, weighted

from mgraph.algorithms.paths.near_far import search
from mgraph.algorithms.primitives import programs
from mgraph.errors import Aborted
from mgraph.exchange import world
from mgraph.partition import Partition


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inboxes hold one length."""
    monkeypatch.setattr(programs, "ROOM", 1)
    monkeypatch.setattr(programs, "ROOM_SHARE", 1 << 20)


def meetings(made: list[FakeShard]) -> Iterator[int]:
    """How often each rank has launched the program."""
    for shard in made:
        yield shard.exchange.world(shard.device).launches


def finds_what_dijkstra_does(
    graph: Graph, made: list[FakeShard], source: int, dtype: str = "float32"
) -> dict[str, Any]:
    found, info = run(made, SSSP, source, dtype=dtype)
    want = distances(graph, source, dtype)
    np.testing.assert_array_equal(found, want)
    assert info["reached"] == np.isfinite(want).sum()
    return info


@pytest.mark.parametrize("mapped", [True, False, "hosts", "carried"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_both_drivers(ranks: int, mapped: bool | str, device: str) -> None:
    for seed, kind in enumerate(["whole", "zeros", "fractions", "sizes"]):
        print(f"seed {seed}")
        graph = random_weighted(seed, directed=seed != 1, kind=kind)
        made = shards(graph, cut(graph.n, ranks, even=ranks == 2), "gpma+", device=device, mapped=mapped)
        for dtype in ("float32", "float64"):
            finds_what_dijkstra_does(graph, made, int(graph.src[seed]), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_full_inbox_loses_nothing(ranks: int, dtype: str, tiny: None) -> None:
    """What does not fit is sent in further meetings: so it is with all edges of a row of high degree."""
    for seed in range(2):
        print(f"seed {seed}")
        graph = random_weighted(seed, kind="fractions")
        hub = np.arange(graph.n, dtype=IDS)
        src, dst = np.append(graph.src, np.zeros(graph.n, IDS)), np.append(graph.dst, hub)
        graph = weighted(Graph(graph.n, src, dst), seed, "whole")
        made = shards(graph, cut(graph.n, ranks))
        finds_what_dijkstra_does(graph, made, 0, dtype)


def test_a_program_that_leaves_at_each_meeting_goes_on(monkeypatch: pytest.MonkeyPatch, tiny: None) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 0)
    graph = random_weighted(5, kind="zeros")
    made = shards(graph, cut(graph.n, 3))
    info = finds_what_dijkstra_does(graph, made, int(graph.src[0]))
    assert sum(meetings(made)) > info["supersteps"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_infinite_weights_and_sums_lead_nowhere(ranks: int) -> None:
    most = np.float32(np.finfo(np.float32).max)
    src, dst = np.array([0, 0, 1, 2, 4], IDS), np.array([1, 3, 2, 4, 5], IDS)
    graph = Graph(6, src, dst, weight=np.array([most, np.inf, 1, most, 1], np.float32))
    made = shards(graph, cut(6, ranks))
    assert run(made, SSSP, 0)[0].tolist() == [0, most, most, np.inf, np.inf, np.inf]
    large = 2 * float(most) + 1
    assert run(made, SSSP, 0, dtype="float64")[0].tolist() == [0, most, float(most) + 1, np.inf, large, large]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_row_of_high_degree_is_read_in_pieces(ranks: int, device: str) -> None:
    n = 400
    ends = np.arange(2, n, dtype=IDS)
    src, dst = np.concatenate([[0], np.ones(n - 2), ends[:-1]]), np.concatenate([[1], ends, ends[1:]])
    graph = weighted(Graph(n, src.astype(IDS), dst.astype(IDS)), 7, "fractions")
    check(graph, cut(n, ranks), 0, device=device)


def test_a_search_is_one_launch_on_each_rank(counted: Counter[str]) -> None:
    graph = random_weighted(3)
    made = shards(graph, cut(graph.n, 2))
    run(made, SSSP, 1)
    counted.clear()
    run(made, SSSP, 0)
    assert counted["NearFar"] >= 2  # more where a rank waited for longer than a launch may
    assert {name for name in counted if counted[name]} == {"NearFar", "read-back"}


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_search_goes_on_from_lengths_that_are_known(ranks: int) -> None:
    """As after edges were inserted: all ranks know all lengths, and begin at the ends of new edges."""
    graph = random_weighted(4, kind="fractions")
    more = weighted(random_graph(9, graph.n, 40), 9, "fractions")
    whole = Graph(
        graph.n, np.append(graph.src, more.src), np.append(graph.dst, more.dst),
        weight=np.append(graph.weight, more.weight).astype(np.float32),
    )  # fmt: skip
    lengths = search.Lengths.of("float32")
    before, want = distances(graph, 0, "float32"), distances(whole, 0, "float32")

    def program(shard: FakeShard) -> Any:
        first = search.NearFarSearch(shard, lengths, 0.25, length=before.view(np.uint32).copy())
        seeds = before[more.src] + more.weight
        better = seeds < before[more.dst]
        first.resume(more.dst[better], seeds[better].view(np.uint32).astype(np.uint64))
        return {"distance": first.length[shard.lo : shard.hi].view(np.float32)}, dict.fromkeys(SSSP.scalars)

    found, _ = run_program(shards(whole, cut(whole.n, ranks)), program, SSSP)
    np.testing.assert_array_equal(found, want)


def test_all_changes_are_the_first_turn_of_a_search_that_goes_on(device: str) -> None:
    """However long they are: in the order of lengths, each would have a turn of its own."""
    n = 100  # a path, and a leaf at each of its vertices, whose edge gets shorter
    path, leaves = np.arange(n), np.arange(n, 2 * n)
    src, dst = np.append(path[:-1], path).astype(IDS), np.append(path[1:], leaves).astype(IDS)
    before, after = (
        Graph(2 * n, src, dst, weight=np.append(np.full(n - 1, 10), np.full(n, leaf)).astype(np.float32))
        for leaf in (5, 4)
    )
    known, want = distances(before, 0, "float32"), distances(after, 0, "float32")
    rounds: list[int] = []

    def program(shard: FakeShard) -> Any:
        length = shard.device.asarray(known.view(np.uint32).copy())
        found = search.NearFarSearch(shard, search.Lengths.of("float32"), 10.0, length=length)
        found.resume(leaves.astype(np.uint32), want[leaves].view(np.uint32).astype(np.uint64))
        rounds.append(found.rounds)
        return {"distance": found.length[shard.lo : shard.hi].view(np.float32)}, dict.fromkeys(SSSP.scalars)

    got, _ = run_program(shards(after, cut(2 * n, 2), device=device), program, SSSP)
    np.testing.assert_array_equal(got, want)
    assert max(rounds) <= 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_abort_ends_a_search(ranks: int) -> None:
    graph, stop = random_weighted(1), threading.Event()
    made = shards(graph, cut(graph.n, ranks), aborted=stop.is_set)
    run(made, SSSP, 0)
    stop.set()
    began = time.monotonic()
    with pytest.raises(Aborted):
        run(made, SSSP, 0)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("starts", [(0, 5, 5, 70, 71, 90), (0, 0, 0, 90), (0, 31, 33, 65, 90)])
def test_ranges_that_share_words_of_bitmaps(starts: tuple[int, ...], tiny: None) -> None:
    for seed in (3, 4):
        print(f"seed {seed}")
        graph = weighted(random_graph(seed, 90, 300), seed, "fractions")
        finds_what_dijkstra_does(graph, shards(graph, Partition(starts)), int(graph.src[0]))
