"""A new order of the vertices on all ranks of a process: every edge keeps its users' ids, or nothing changes."""

from __future__ import annotations

import numpy as np
import pytest
from changed_ranks import check
from graph_model import GraphModel, random_batch
from ranks import Ranks, settled

from mgraph import EdgeBatch
from mgraph.errors import Aborted, CapacityError
from mgraph.failures import Stale
from mgraph.partition import Partition, degree_order
from mgraph.structures import names
from mgraph.worker.commit.ballot import Ballot

N = 40
KINDS = [{}, {"directed": False}, {"reverse": True, "weighted": True}, {"weighted": True, "directed": False}]


def skewed(rng: np.random.Generator, n: int, weighted: bool) -> EdgeBatch:
    batch = random_batch(rng, N, n, weighted)
    return EdgeBatch((batch.src.astype(np.int64) ** 2 // N).astype(np.uint32), batch.dst, batch.weight, batch.op)


@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("starts", [(0, N), (0, 3, N), (0, 0, 25, N)])
@pytest.mark.parametrize("ordered", [False, True])
def test_vertices_get_new_ids_and_the_graph_stays(structure, kind, starts, ordered):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(N).astype(np.uint32) if ordered else None
    ranks = Ranks(starts, structure=structure, order=order, **kind)
    size = len(starts) - 1
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    for epoch in (1, 2):
        batch = skewed(rng, 250, model.weighted)
        ranks.update(batch, epoch)
        model.update(batch)
        degrees = np.zeros(N, np.int64)
        for u, v in model.arcs():
            degrees[u] += 1
            degrees[v] += model.directed
        answers = ranks.call("reorder")
        assert [(a["generation"], a["epoch"], a["changes"]) for a in answers] == [(epoch, epoch, 2 * epoch)] * size
        assert {shard.partition for shard in ranks.shards} == {Partition.equal(N, size)}
        found = [shard.order for shard in ranks.shards]
        assert all((other == found[0]).all() for other in found)
        assert sorted(found[0].tolist()) == list(range(N))
        by_id = np.empty(N, np.int64)
        by_id[found[0]] = degrees
        by_rule = np.empty(N, np.int64)
        by_rule[degree_order(degrees, size)] = degrees
        np.testing.assert_array_equal(by_id, by_rule)
        check(ranks, model, found[0])


def test_reads_by_the_old_ids_are_refused():
    ranks = Ranks((0, N // 2, N))
    ranks.update(skewed(np.random.default_rng(0), 300, False), 1)
    ranks.call("reorder")
    ids = np.array([1], np.uint32)
    for method, args in (
        ("degrees", {"ids": ids}),
        ("neighbors", {"ids": ids}),
        ("has_edges", {"src": ids, "dst": ids}),
    ):
        answers = ranks.call(method, starts=[0, N // 2, N], generation=0, **args)
        assert all(isinstance(answer, Stale) for answer in answers)


def test_no_room_for_the_new_part_and_every_shard_stays_as_it_was(monkeypatch):
    ranks = Ranks((0, 2, N))
    ranks.update(skewed(np.random.default_rng(0), 300, False), 1)
    before = repr(ranks.snapshot())

    def fails(n_rows, n_vertices):
        raise CapacityError("no room")

    monkeypatch.setattr(ranks.shards[1], "new_structure", fails)
    answers = ranks.call("reorder")
    assert [type(answer) for answer in answers] == [Aborted, CapacityError]
    assert repr(ranks.snapshot()) == before
    assert [(shard.partition.starts, shard.order, shard.generation) for shard in ranks.shards] == [
        ((0, 2, N), None, 0)
    ] * 2


@pytest.mark.parametrize("made", [1, 2])
def test_released_in_the_vote_on_an_order(made, monkeypatch):
    ranks, model = Ranks((0, 2, N)), GraphModel(N)
    batch = skewed(np.random.default_rng(0), 300, False)
    ranks.update(batch, 1)
    model.update(batch)
    monkeypatch.setattr(Ballot, "_vote", lambda ballot, ready: (_ for _ in ()).throw(Aborted("released")))
    ranks.call("reorder")
    assert [settled(servant).in_doubt for servant in ranks.servants] == [True, True]
    answers = ranks.call("resolve", changes=made)
    assert [a["generation"] for a in answers] == [made - 1] * 2
    check(ranks, model, ranks.shards[0].order)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_graphs_with_next_to_nothing_in_them(n):
    ranks = Ranks((0, 0, 0, n))
    ranks.update(EdgeBatch([0] * n, [0] * n), 1)
    ranks.call("reorder")
    check(ranks, GraphModel(n, edges={(0, 0): 1.0} if n else {}), ranks.shards[0].order)
