"""Ingest, rebalancing and their helpers over a fake exchange, against a dict of edges."""

from __future__ import annotations

import threading
import time
from itertools import zip_longest

import numpy as np
import pytest
from changed_ranks import check
from graph_model import GraphModel, random_batch
from patience import patience
from plain_graph import fresh_rng
from ranks import Ranks, settled

from mgraph.batch import EdgeBatch, as_batch
from mgraph.client.reports.report import balance_of, of_steps
from mgraph.device import Device
from mgraph.errors import Aborted, CapacityError, InvalidBatch, ReadError, UnknownVertex
from mgraph.partition import Partition
from mgraph.structures import names
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.inputs.read_ahead import ReadAhead
from mgraph.worker.inputs.sources import open_source
from mgraph.worker.vertices import rebalance

N = 40
KINDS = [{}, {"directed": False}, {"reverse": True, "weighted": True}, {"weighted": True, "directed": False}]


def ingest(ranks: Ranks, parts: list[list], epoch: int) -> list:
    """Ingest a list of parts from each rank."""
    keys = [[f"{rank}-{step}" for step in range(len(mine))] for rank, mine in enumerate(parts)]
    for names_, mine in zip(keys, parts, strict=True):
        ranks.held.update(zip(names_, mine, strict=True))
    return ranks.ingest([{"kind": "keys", "parts": part, "names": {}} for part in keys], epoch)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("starts", [(0, N), (0, 13, N), (0, 0, 25, N)])
def test_parts_of_uneven_number_and_columns_against_the_model(starts, kind):
    rng = fresh_rng()
    order = rng.permutation(N).astype(np.uint32)
    ranks = Ranks(starts, order=order, **kind)
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    parts = [
        [
            random_batch(rng, N, int(rng.integers(0, 90)), model.weighted and rng.random() < 0.5, rng.choice([0, 0.5]))
            for _ in range(int(rng.integers(0, 6)))
        ]
        for _ in range(ranks.size)
    ]
    answers = ingest(ranks, parts, 1)
    steps = max(map(len, parts))
    assert [answer["epoch"] for answer in answers] == [steps] * ranks.size
    reports = of_steps(answers)
    assert [report.epoch for report in reports] == list(range(1, steps + 1))
    for report, step in zip(reports, zip_longest(*parts), strict=True):
        whole = joined([part for part in step if part is not None])
        assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(whole)
    check(ranks, model, order)


def joined(parts: list[EdgeBatch]) -> EdgeBatch:
    """Parts one after another: inserts, and weights of 1, where a part has none."""
    ones = [np.ones(len(part), np.int8) for part in parts]
    return EdgeBatch(
        np.concatenate([part.src for part in parts]),
        np.concatenate([part.dst for part in parts]),
        np.concatenate([o if p.weight is None else p.weight for p, o in zip(parts, ones, strict=True)]),
        np.concatenate([o if p.op is None else p.op for p, o in zip(parts, ones, strict=True)]),
    )


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (EdgeBatch([0], [N]), UnknownVertex),
        (([0, 1], [0]), InvalidBatch),
        ({"src": [0], "to": [1]}, InvalidBatch),
        (EdgeBatch([0], [1], [2.0]), InvalidBatch),
        (5, InvalidBatch),
    ],
    ids=["id", "lengths", "columns", "weights", "type"],
)
def test_a_part_is_wrong_on_one_rank_and_the_steps_before_it_stay(part, error):
    ranks = Ranks((0, 13, N))
    good = [EdgeBatch([k, 20 + k], [20 + k, k]) for k in range(4)]
    answers = ingest(ranks, [good, [*good[:2], part, good[3]]], 1)
    assert isinstance(answers[0], Aborted)
    assert isinstance(answers[1], error)
    assert "ingest step 2, epoch 3, rank 1" in str(answers[1])
    assert [shard.epoch for shard in ranks.shards] == [2, 2]
    model = GraphModel(N)
    model.update(EdgeBatch([0, 20, 1, 21], [20, 0, 21, 1]))
    check(ranks, model)
    ranks.reconnect()
    assert ranks.update(good[2], 3)[0]["epoch"] == 3
    assert not [thread.name for thread in threading.enumerate() if thread.name.endswith("-ahead")]


def test_a_prepare_fails_in_a_later_step_and_its_epoch_is_named(monkeypatch):
    ranks = Ranks((0, 13, N))
    last, calls = ranks.shards[0].out_edges, []
    prepare = last.prepare

    def fails(run):
        calls.append(run)
        if len(calls) == 3:
            raise CapacityError("no room")
        return prepare(run)

    monkeypatch.setattr(last, "prepare", fails)
    answers = ingest(ranks, [[EdgeBatch([k], [k]) for k in range(5)], []], 1)
    assert isinstance(answers[0], CapacityError)
    assert "step 2, epoch 3, rank 0; the epochs before it are committed" in str(answers[0])
    assert [shard.epoch for shard in ranks.shards] == [2, 2]


def test_a_commit_fails_on_the_device_while_the_next_step_is_routed():
    """A GPU's error comes when its stream is waited for: the step is named, and the rank counts as broken."""
    ranks = Ranks((0, 13, N))
    shard = ranks.shards[1]

    def fails():
        if shard.epoch == 2:
            raise RuntimeError("an illegal address was encountered")

    object.__setattr__(shard.device, "synchronize", fails)  # it is frozen
    answers = ingest(ranks, [[EdgeBatch([k], [k]) for k in range(5)], []], 1)
    assert isinstance(answers[1], RuntimeError)
    assert "ingest step 1, epoch 2, rank 1" in answers[1].__notes__[0]
    states = [settled(servant) for servant in ranks.servants]
    assert states[0].broken is None
    assert "rank 1: the commit failed: RuntimeError: an illegal address" in states[1].broken
    assert not [thread.name for thread in threading.enumerate() if thread.name.endswith("-ahead")]


def test_released_in_the_vote_of_a_later_step(monkeypatch):
    """Rank 0 heard that epoch 3 is agreed on and waits in the vote on 4; rank 1 did not hear of 3."""
    ranks = Ranks((0, 13, N))
    vote = Ballot._vote

    def released(ballot, ready):
        shard = ballot.shard
        heard = shard.epoch < 2 or (shard.epoch == 2 and shard.rank == 0)
        if shard.epoch < 2:
            return vote(ballot, ready)
        if heard:
            return True
        ranks.tables[-1].abort()
        raise Aborted("released")

    monkeypatch.setattr(Ballot, "_vote", released)
    answers = ingest(ranks, [[EdgeBatch([k, 30], [k, k]) for k in range(5)], []], 1)
    assert all(isinstance(answer, Aborted) for answer in answers)
    states = [settled(servant) for servant in ranks.servants]
    assert [(state.epoch, state.changes) for state in states] == [(3, 3), (2, 2)]
    answers = ranks.call("resolve", changes=3)
    assert [(a["epoch"], a["in_doubt"]) for a in answers] == [(3, False), (3, False)]
    model = GraphModel(N)
    model.update(EdgeBatch([0, 30, 1, 30, 2, 30], [0, 0, 1, 1, 2, 2]))
    check(ranks, model)


def test_functions_are_called_until_they_end():
    from distributed.protocol.pickle import dumps

    asked = []

    def part(rank, size, step):
        asked.append(step)
        return None if step == 2 + rank else ([rank], [step])

    read = open_source(
        {"kind": "function", "function": dumps(part), "steps": None, "names": {}}, 1, 2, Device(), {}.get
    ).read
    assert [read(step) is None for step in range(6)] == [False, False, False, True, True, True]
    limited = open_source(
        {"kind": "function", "function": dumps(part), "steps": 1, "names": {}}, 1, 2, Device(), {}.get
    ).read
    assert [limited(step) is None for step in range(3)] == [False, True, True]


def test_files_are_read_and_bad_ones_named(tmp_path):
    columns = {"src": np.arange(4), "dst": np.arange(4) + 1, "weight": np.ones(4), "op": np.array([1, -1, 1, 1])}
    np.savez(tmp_path / "a.npz", **columns, other=np.zeros(3))
    np.savez(tmp_path / "b.npz", src=[1], dat=[2])
    (tmp_path / "c.npz").write_bytes(b"nothing")
    paths = [str(tmp_path / name) for name in ("a.npz", "b.npz", "c.npz", "d.npz")]
    source = open_source({"kind": "files", "parts": paths, "names": {}}, 0, 1, Device(), {}.get)
    read = source.read
    batch = read(0)
    assert source.left_out == set()
    for name, column in columns.items():
        np.testing.assert_array_equal(getattr(batch, name), column)
    for step, word in (
        (1, "b.npz.*no column 'target'; its columns are 'src', 'dat'"),
        (2, "c.npz"),
        (3, "d.npz"),
    ):
        with pytest.raises(ReadError, match=word):
            read(step)
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({**columns, "other": "x"})
    frame.to_parquet(tmp_path / "e.parquet")
    read = open_source(
        {"kind": "files", "parts": [str(tmp_path / "e.parquet")], "names": {}}, 0, 1, Device(), {}.get
    ).read
    for batch in (read(0), as_batch(frame)):
        np.testing.assert_array_equal(batch.dst, columns["dst"])
        assert batch.weight.dtype == np.float32


def test_one_item_is_made_ahead_and_no_more():
    made = []
    with ReadAhead("mgraph-test-ahead", Device(), None, lambda k: made.append(k) or k * k, lambda: False) as ahead:
        assert [ahead.next() for _ in range(3)] == [0, 1, 4]
        end = time.monotonic() + patience(5)
        while len(made) < 4 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.05)
        assert made == [0, 1, 2, 3]


def test_waiting_for_a_part_that_does_not_come_ends_with_an_abort():
    stop, hold = threading.Event(), threading.Event()
    threading.Timer(0.2, stop.set).start()
    with (
        pytest.raises(Aborted),
        ReadAhead("mgraph-test-ahead", Device(), None, lambda k: hold.wait(20), stop.is_set) as ahead,
    ):
        threading.Timer(0.4, hold.set).start()
        ahead.next()


# ---- moving the ranges -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ranges_move_and_the_graph_stays(structure, kind):
    rng = fresh_rng()
    order = rng.permutation(N).astype(np.uint32)
    ranks = Ranks((0, 1, 2, N), structure=structure, order=order, **kind)
    model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
    for epoch in (1, 2, 3):
        batch = random_batch(rng, N, 250, model.weighted)
        ranks.update(batch, epoch)
        model.update(batch)
        degrees = np.zeros(N, np.int64)
        for shard in ranks.shards:
            for s in shard.structures:
                degrees[shard.lo : shard.hi] += s.degrees()
        answers = ranks.call("rebalance")
        want = Partition.balanced(degrees, 3)
        assert [(a["lo"], a["hi"]) for a in answers] == [want.range(rank) for rank in range(3)]
        assert {shard.partition for shard in ranks.shards} == {want}
        assert [(a["epoch"], a["changes"]) for a in answers] == [(epoch, 2 * epoch)] * 3
        check(ranks, model, order)
        assert balance_of(["a", "b", "c"], [servant.state for servant in ranks.servants]).ratio < 1.3


def test_ranges_move_in_chunks_of_keys(monkeypatch):
    monkeypatch.setattr(rebalance, "CHUNK", 7)
    rng = fresh_rng()
    ranks, model = Ranks((0, 2, N), directed=False), GraphModel(N, directed=False)
    batch = random_batch(rng, N, 300, False)
    ranks.update(batch, 1)
    model.update(batch)
    ranks.call("rebalance")
    check(ranks, model)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_ranges_of_graphs_with_next_to_nothing_in_them(n):
    ranks = Ranks((0, 0, 0, n))
    ranks.update(EdgeBatch([0] * n, [0] * n), 1)
    ranks.call("rebalance")
    check(ranks, GraphModel(n, edges={(0, 0): 1.0} if n else {}))


def test_no_room_for_the_new_part_and_every_shard_stays_as_it_was(monkeypatch):
    ranks = Ranks((0, 2, N))
    batch = random_batch(np.random.default_rng(0), N, 300, False)
    ranks.update(batch, 1)
    before = repr(ranks.snapshot())

    def fails(n_rows, n_vertices):
        raise CapacityError("no room")

    monkeypatch.setattr(ranks.shards[1], "new_structure", fails)
    answers = ranks.call("rebalance")
    assert [type(answer) for answer in answers] == [Aborted, CapacityError]
    assert repr(ranks.snapshot()) == before
    assert [shard.partition.starts for shard in ranks.shards] == [(0, 2, N)] * 2


@pytest.mark.parametrize("made", [1, 2])
def test_released_in_the_vote_on_a_move(made, monkeypatch):
    ranks, model = Ranks((0, 2, N)), GraphModel(N)
    batch = random_batch(np.random.default_rng(0), N, 300, False)
    ranks.update(batch, 1)
    model.update(batch)
    monkeypatch.setattr(Ballot, "_vote", lambda ballot, ready: (_ for _ in ()).throw(Aborted("released")))
    ranks.call("rebalance")
    assert [settled(servant).in_doubt for servant in ranks.servants] == [True, True]
    answers = ranks.call("resolve", changes=made)
    assert [a["in_doubt"] for a in answers] == [False, False]
    assert (answers[0]["hi"] == 2) == (made == 1)
    check(ranks, model)


def test_a_read_by_ranges_of_before_is_refused():
    from mgraph.failures import Stale

    ranks = Ranks((0, 2, N))
    ranks.update(random_batch(np.random.default_rng(0), N, 300, False), 1)
    ranks.call("rebalance")
    answers = ranks.call("degrees", starts=[0, 2, N], generation=0, ids=np.array([1], np.uint32))
    assert all(isinstance(answer, Stale) for answer in answers)
