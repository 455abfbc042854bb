"""Shards and the batch path over a fake exchange, against a dict of edges."""

from __future__ import annotations

import numpy as np
import pytest
from changed_ranks import check
from graph_model import GraphModel, random_batch
from ranks import Ranks, settled

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import Aborted, CapacityError, MgraphError
from mgraph.structures import names
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.shard.results import Result

N = 40


@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize("starts", [(0, N), (0, 13, N), (0, 0, 25, N)])
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"directed": False},
        {"reverse": True},
        {"weighted": True, "reverse": True},
        {"weighted": True, "directed": False},
    ],
    ids=str,
)
def test_random_batches_against_the_model(structure, starts, kind):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(N).astype(np.uint32)
    ranks = Ranks(starts, structure=structure, order=order, **kind)
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    for epoch in range(1, 9):
        batch = random_batch(rng, N, int(rng.integers(0, 120)), model.weighted, float(rng.choice([0, 0.4, 0.9])))
        answers = ranks.update(batch, epoch)
        counts = [sum(answer[name] for answer in answers) for name in ("inserted", "updated", "deleted", "missing")]
        assert tuple(counts) == model.update(batch)
        assert [answer["epoch"] for answer in answers] == [epoch] * ranks.size
        check(ranks, model, order)


def test_a_second_exchange_of_one_attempt_is_refused():
    """Ranks of both would wait for each other for ever."""
    ranks = Ranks((0, 13, N))
    for rank, error in enumerate(ranks.call("open_exchange")):
        assert isinstance(error, MgraphError)
        assert str(error) == f"rank {rank}: the exchange of attempt 0 is open already"
    ranks.reconnect()
    batch = EdgeBatch([0], [20])
    assert [answer["epoch"] for answer in ranks.update(batch, 1)] == [1, 1]


@pytest.mark.parametrize("kind", [{}, {"directed": False}, {"reverse": True, "weighted": True}], ids=str)
def test_vertices_come_and_go(kind):
    rng = np.random.default_rng(7)
    order = rng.permutation(N).astype(np.uint32)
    ranks = Ranks((0, 13, N), order=order, **kind)
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    batch = random_batch(rng, N, 400, model.weighted, 0)
    ranks.update(batch, 1)
    model.update(batch)
    dead = np.array([3, 5, 5, 30], np.uint32)
    answers = ranks.call("delete_vertices", ids=dead, epoch=2)
    assert sum(answer["deleted"] for answer in answers) == model.delete_vertices(dead.tolist())
    check(ranks, model, order)
    answers = ranks.call("add_vertices", n_vertices=N + 5, epoch=3)
    assert [(answer["epoch"], answer["changes"]) for answer in answers] == [(3, 3)] * 2
    assert [shard.n_vertices for shard in ranks.shards] == [N + 5] * 2
    order = np.concatenate([order, np.arange(N, N + 5, dtype=np.uint32)])
    model.n_vertices = N + 5
    batch = random_batch(rng, N + 5, 400, model.weighted)
    ranks.update(batch, 4)
    model.update(batch)
    check(ranks, model, order)


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("kind", [{}, {"reverse": True, "weighted": True}, {"directed": False}], ids=str)
def test_prepare_fails_on_one_rank_and_every_shard_stays_as_it_was(failing, kind, monkeypatch):
    rng = np.random.default_rng(failing)
    ranks = Ranks((0, 13, 20, N), **kind)
    ranks.update(random_batch(rng, N, 300, kind.get("weighted", False)), 1)
    before = ranks.snapshot()
    last = ranks.shards[failing].structures[-1]
    prepare = last.prepare

    def fails(run):
        raise CapacityError(f"no room for {len(run)}")

    monkeypatch.setattr(last, "prepare", fails)
    batch = random_batch(rng, N, 300, kind.get("weighted", False))
    answers = ranks.update(batch, 2)
    assert isinstance(answers[failing], CapacityError)
    assert all(isinstance(answer, Aborted) for rank, answer in enumerate(answers) if rank != failing)
    after = ranks.snapshot()
    assert repr(before) == repr(after)
    for mine, theirs in zip(before, after, strict=True):
        for old, new in zip(mine[2], theirs[2], strict=True):
            assert all((a == b).all() for a, b in zip(old, new, strict=True))
    for shard in ranks.shards:
        for structure in shard.structures:
            structure.check_invariants()
    monkeypatch.setattr(last, "prepare", prepare)
    ranks.reconnect()
    assert [answer["epoch"] for answer in ranks.update(batch, 2)] == [2, 2, 2]  # the same batch goes in afterwards


def test_a_batch_that_fails_has_read_its_columns(monkeypatch):
    """The client may overwrite them once it has the error."""
    ranks, events = Ranks((0, 13, N)), []
    for shard in ranks.shards:
        monkeypatch.setattr(shard.out_edges, "prepare", lambda run: events.append("fails") or 1 / 0)
    monkeypatch.setattr(Device, "synchronize", lambda device: events.append("waits"))
    answers = ranks.update(EdgeBatch([0, 20], [1, 2]), 1)
    assert [type(answer) for answer in answers] == [ZeroDivisionError] * 2
    assert events == ["fails"] * 2 + ["waits"] * 2  # the vote is between the two


@pytest.mark.parametrize("commit", [True, False])
def test_a_rank_released_during_the_vote_waits_for_its_outcome(commit, monkeypatch):
    ranks = Ranks((0, 13, N))
    monkeypatch.setattr(Ballot, "_vote", lambda ballot, ready: (_ for _ in ()).throw(Aborted("released")))
    answers = ranks.update(EdgeBatch([0, 20], [1, 2]), 1)
    assert all(isinstance(answer, Aborted) for answer in answers)
    assert [settled(servant).in_doubt for servant in ranks.servants] == [True, True]
    answers = ranks.call("resolve", changes=int(commit))
    assert [(a["epoch"], a["in_doubt"], a["edges"]) for a in answers] == [(int(commit), False, int(commit))] * 2
    monkeypatch.undo()
    ranks.reconnect()
    assert ranks.update(EdgeBatch([5], [6]), 1 + commit)[0]["edges"] == 1 + commit


def test_a_commit_that_fails_is_reported_as_broken(monkeypatch):
    ranks = Ranks((0, 13, N))
    monkeypatch.setattr(ranks.shards[1].out_edges, "commit", lambda plan: 1 / 0)
    answers = ranks.update(EdgeBatch([0, 20], [1, 2]), 1)
    assert isinstance(answers[1], ZeroDivisionError)
    states = [settled(servant) for servant in ranks.servants]
    assert [state.epoch for state in states] == [1, 0]
    assert states[0].broken is None
    assert "rank 1: the commit failed: ZeroDivisionError" in states[1].broken


def test_a_batch_of_another_epoch_is_refused():
    ranks = Ranks((0, N))
    (answer,) = ranks.update(EdgeBatch([0], [1]), 5)
    assert isinstance(answer, MgraphError)
    assert "epoch 5" in str(answer)


def test_adding_vertices_fails_on_the_last_rank_and_none_adds_them(monkeypatch):
    ranks = Ranks((0, 13, N))

    def fails(n, rows=None):
        raise CapacityError("no room")

    monkeypatch.setattr(ranks.shards[1].out_edges, "prepare_vertices", fails)
    answers = ranks.call("add_vertices", epoch=1, n_vertices=N + 1)
    assert [type(answer) for answer in answers] == [Aborted, CapacityError]
    assert [shard.n_vertices for shard in ranks.shards] == [N, N]


def test_the_largest_of_a_result():
    ranks = Ranks((0, 13, N))
    rng = np.random.default_rng(3)
    holes = np.where(rng.random(27) < 0.5, np.nan, -np.inf)
    many = [rng.integers(0, 5, 27).astype(np.int32), rng.random(27).astype(np.float32), holes, rng.random(27) < 0.5]
    for values in (*many, 2**62 + rng.integers(0, 5, 27), np.full(27, np.nan)):
        shard = ranks.shards[1]
        shard.results["r"] = Result({"value": values}, 13)
        for k in (0, 1, 5, 27, 100):
            ids, best = shard.top("r", None, k)
            want = sorted(range(27), key=lambda i: (values[i] != values[i], -values[i].item(), i))[:k]
            np.testing.assert_array_equal(ids, np.array(want, int) + 13)
            np.testing.assert_array_equal(best, values[want])
