"""Mixed streams over a fake exchange, on every structure, against a replay one operation at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from plain_graph import fresh_rng
from ranks import Ranks
from stream_model import StreamModel, check_answers, random_stream

from mgraph import Answers, CapacityError, Operations, UnknownVertex
from mgraph.client.batches.mixed import answers_of
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.failures import Stale
from mgraph.operations import COLUMNS
from mgraph.partition import Partition
from mgraph.structures import mixed_stream, names

N = 40
KINDS = [{}, {"directed": False, "weighted": True}, {"reverse": True, "weighted": True}, {"directed": False}]
BOTH = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Tiles count few operations each, so that small streams are cut too."""
    monkeypatch.setitem(mixed_stream.CHUNK, "cpu", 70)
    monkeypatch.setitem(mixed_stream.CHUNK, "cuda", 70)


def sent(ranks: Ranks, ops: Operations, epoch: int | None) -> list:
    """The ranks' answers to a stream, dealt as a client does; one rank may have to check the ids."""
    cuts = [len(ops) * rank // ranks.size for rank in range(ranks.size + 1)]
    shares = [
        {"first": a, **{name: None if (c := getattr(ops, name)) is None else c[a:b] for name in COLUMNS}}
        for a, b in pairwise(cuts)
    ]
    given = {} if epoch is None else {"epoch": epoch}
    if ranks.size == 1:
        given |= {"counts": list(ops.counts.values()), "check": True}
    return ranks.call("execute", shares, generation=0, **given)


def execute(ranks: Ranks, ops: Operations, epoch: int | None, numbering: Numbering) -> Answers:
    answers = sent(ranks, ops, epoch)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers_of(numbering, answers, 0.0)


def held(ranks: Ranks, order: np.ndarray) -> dict[tuple[int, int], float]:
    """The arcs of all ranks, by users' ids."""
    found, users = {}, np.argsort(order)
    for shard in ranks.shards:
        shard.out_edges.check_invariants()
        csr = shard.out_edges.to_csr()
        offsets, dst = Device.to_host(csr.offsets), Device.to_host(csr.dst)
        weight = np.ones(len(dst)) if csr.weight is None else Device.to_host(csr.weight)
        src = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) + shard.lo
        found |= dict(zip(zip(users[src].tolist(), users[dst].tolist(), strict=True), weight.tolist(), strict=True))
    return found


def arcs(model: StreamModel) -> dict[tuple[int, int], float]:
    return {(u, v): w for u, row in model.out.items() for v, w in row.items()}


@pytest.mark.parametrize("device", BOTH)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("starts", [(0, N), (0, 0, 13, N)])
@pytest.mark.parametrize("structure", names())
def test_random_streams_against_a_replay(structure, starts, kind, device):
    rng = fresh_rng()
    order = rng.permutation(N).astype(np.uint32)
    ranks = Ranks(starts, structure=structure, order=order, device=device, **kind)
    numbering = Numbering(Partition(starts), order)
    model = StreamModel(kind.get("directed", True), kind.get("weighted", False))
    reverse = kind.get("reverse", False) or not model.directed
    for epoch in range(1, 6):
        stream = random_stream(rng, N, int(rng.integers(1, 400)), model, reverse, float(rng.choice([1, 3])))
        ops = Operations(*stream)
        if not ops.n_updates:
            continue
        answers = execute(ranks, ops, ranks.shards[0].epoch + 1, numbering)
        check_answers(answers, model.replay(*stream), model.weighted)
        assert held(ranks, order) == arcs(model), epoch
        assert sum(shard.num_edges for shard in ranks.shards) == len(model.edges)


@pytest.mark.parametrize("starts", [(0, N), (0, 13, N)])
def test_without_updates_there_is_no_epoch(starts):
    rng, model, ranks = fresh_rng(), StreamModel(), Ranks(starts, reverse=True)
    numbering = Numbering(Partition(starts))
    stream = (["insert"] * 300, *rng.integers(0, N, (2, 300)), None)
    model.replay(*stream)
    assert execute(ranks, Operations(*stream), 1, numbering).report.epoch == 1
    kinds = rng.choice(["has_edge", "degree", "neighbors", "predecessors"], 200).tolist()
    stream = (kinds, *rng.integers(0, N, (2, 200)), None)
    answers = execute(ranks, Operations(*stream), None, numbering)
    check_answers(answers, model.replay(*stream), False)
    assert answers.report.epoch == 1
    assert [shard.changes for shard in ranks.shards] == [1] * ranks.size
    answers = execute(ranks, Operations([], [], []), None, numbering)
    assert len(answers.has_edge) == len(answers.neighbors.dst) == 0
    assert answers.neighbors.offsets.tolist() == [0]


@pytest.mark.parametrize("device", BOTH)
@pytest.mark.parametrize("structure", names())
def test_one_row_with_many_updates_and_queries(structure, device):
    """Every operation is on vertex 0, whose row grows past 1024 edges: a sum or a search that is off by one shows."""
    rng, n, model = fresh_rng(), 3000, StreamModel(weighted=True)
    ranks, numbering = Ranks((0, n), structure=structure, weighted=True, device=device), Numbering(Partition((0, n)))
    for epoch in (1, 2):
        size = 6000
        chosen = ["insert", "delete", "degree", "has_edge", "weight", "neighbors"]
        kinds = rng.choice(chosen, size, p=[0.4, 0.2, 0.2, 0.1, 0.098, 0.002])
        stream = kinds.tolist(), np.zeros(size, np.int64), rng.integers(0, n, size), rng.random(size)
        check_answers(execute(ranks, Operations(*stream), epoch, numbering), model.replay(*stream), True)
        assert held(ranks, np.arange(n)) == arcs(model)
    assert len(model.out[0]) > 1024


def test_one_edge_asked_about_between_all_its_updates():
    kinds = ["has_edge", "weight", "degree", "insert"] * 500 + ["has_edge", "weight", "degree", "delete"] * 500
    rng, model, ranks = (
        fresh_rng(),
        StreamModel(directed=False, weighted=True),
        Ranks((0, 2), directed=False, weighted=True),
    )
    turn = rng.permutation(len(kinds) // 4)
    kinds = [kinds[4 * i + k] for i in turn for k in range(4)]
    ends = rng.integers(0, 2, len(kinds))
    stream = kinds, ends, 1 - ends, np.arange(len(kinds))
    check_answers(execute(ranks, Operations(*stream), 1, Numbering(Partition((0, 2)))), model.replay(*stream), True)


@pytest.mark.parametrize("failing", [0, 1])
def test_no_room_for_answers_on_one_rank_and_every_shard_stays_as_it_was(failing):
    left: dict[int, int] = {}
    ranks = Ranks((0, 20, N), reverse=True, memory_left=lambda rank: left.get(rank, 1 << 62))
    numbering = Numbering(Partition((0, 20, N)))
    src, dst = np.divmod(np.arange(N * N), N)
    execute(ranks, Operations(["insert"] * N * N, src, dst), 1, numbering)
    before, row = ranks.snapshot(), 0 if failing == 0 else 30
    kinds = ["delete", *["neighbors"] * 40_000]
    ops = Operations(kinds, [row] * len(kinds), [1] * len(kinds))
    left[failing] = 5 << 20  # the answers take 40,000 * 39 * 4 bytes
    answers = sent(ranks, ops, 2)
    assert isinstance(answers[failing], CapacityError)
    assert "bytes are needed" in str(answers[failing])
    assert isinstance(answers[1 - failing], Aborted)
    assert repr(before) == repr(ranks.snapshot())
    left.clear()
    ranks.reconnect()
    answers = execute(ranks, ops, 2, numbering)
    assert answers.neighbors.offsets[-1] == 40_000 * (N - 1)
    assert answers.report.deleted == 1


def test_an_order_that_has_changed_is_stale():
    ranks = Ranks((0, N))
    answers = ranks.call(
        "execute", [{"kind": np.zeros(1, np.int8), "src": [0], "dst": [1]}], generation=3, first=0, epoch=1
    )
    assert isinstance(answers[0], Stale)
    assert ranks.shards[0].epoch == 0


@pytest.mark.parametrize("device", BOTH)
@pytest.mark.parametrize("structure", names())
def test_one_rank_finds_unknown_vertices_itself(structure, device):
    """Before anything is changed, and whether the structure has edges or not; in updates and in queries."""
    rng, n = fresh_rng(), 500
    ranks = Ranks((0, n), structure=structure, device=device)
    numbering = Numbering(Partition((0, n)))
    for epoch in (1, 2):
        kinds, src, dst = rng.choice(["insert", "delete", "has_edge", "degree"], 2000), *rng.integers(0, n, (2, 2000))
        for kind, name in (("insert", "src"), ("delete", "dst"), ("has_edge", "dst"), ("degree", "src")):
            at = int(rng.choice(np.flatnonzero(kinds == kind)))
            ends = {"src": src.copy(), "dst": dst.copy()}
            ends[name][at] = rng.choice([n, n + 7, 2**32 - 2])
            with pytest.raises(UnknownVertex, match=rf"{name}\[{at}\] is {ends[name][at]}; the graph has {n} vertices"):
                execute(ranks, Operations(kinds, **ends), epoch, numbering)
            assert ranks.shards[0].epoch == epoch - 1
        with pytest.raises(UnknownVertex, match=r"src\[0\] is 500"):
            execute(ranks, Operations(["degree"], [n], [0]), None, numbering)
        execute(ranks, Operations(kinds, src, dst), epoch, numbering)
        assert ranks.shards[0].epoch == epoch
        ranks.shards[0].out_edges.check_invariants()
