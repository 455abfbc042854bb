"""Every change of a graph goes by the one ballot: all ranks make it or none does, and a log can make it again."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pytest
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng
from ranks import Ranks
from test_shards import check

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import Aborted, CapacityError
from mgraph.worker.changes.ballot import Ballot
from mgraph.worker.changes.change import BatchChange, Change, Record, VerticesChange
from mgraph.worker.vertices.rebalance import Move

N = 40
NAMES = ("src", "dst", "weight", "op")  #: the columns of a batch without times
KINDS = [{}, {"directed": False, "weighted": True}, {"reverse": True, "weighted": True}]
STARTS = [(0, N), (0, 13, N), (0, 0, 25, N)]

CONTENT = ("batch", "part", "delete_vertices", "add_vertices")
MOVES = ("rebalance", "reorder")


# ---- a graph that is changed in every way ----------------------------------------------------------------------------


class Changed:
    """All ranks of a graph, its model, and changes of every kind made to both."""

    def __init__(self, starts: Iterable[int], rng: np.random.Generator, kind: dict[str, Any]) -> None:
        order = rng.permutation(N).astype(np.uint32) if rng.random() < 0.5 else None
        self.ranks, self.rng = Ranks(list(starts), order=order, **kind), rng
        self.model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
        self.epoch, self.turn = 0, 0

    def change(self, kind: str, prepared: tuple | None = None) -> list[Any]:
        """Ask all ranks for a change of this kind; the model follows where they made it."""
        given = prepared or self.draw(kind)
        answers = self.ask(kind, *given)
        if not any(isinstance(answer, BaseException) for answer in answers):
            self.follow(kind, *given)
        return answers

    def draw(self, kind: str) -> tuple:
        """What a change of this kind is about."""
        rng, n = self.rng, self.model.n_vertices
        if kind == "batch":
            return (random_batch(rng, n, int(rng.integers(1, 120)), self.model.weighted),)
        if kind == "part":  # some ranks have none; some parts have columns that others lack
            parts = [
                random_batch(rng, n, 30, self.model.weighted and rng.random() < 0.5, rng.choice([0, 0.5]))
                for _ in range(int(rng.integers(1, self.ranks.size + 1)))
            ]
            return (parts,)
        if kind == "delete_vertices":
            return (rng.integers(0, n, 3).astype(np.uint32),)
        return (n + int(rng.integers(1, 4)),) if kind == "add_vertices" else ()

    def ask(self, kind: str, *given: Any) -> list[Any]:
        call, epoch = self.ranks.call, self.epoch + 1
        if kind == "batch":
            return self.ranks.update(given[0], epoch)
        if kind == "part":
            self.turn += 1
            keys = [f"{self.turn}-{rank}" for rank in range(self.ranks.size)]
            self.ranks.held.update(zip(keys, given[0], strict=False))
            parts = [[key] if key in self.ranks.held else [] for key in keys]
            sources = [{"kind": "keys", "parts": mine, "columns": None} for mine in parts]
            return self.ranks.ingest(sources, epoch)
        if kind == "delete_vertices":
            return call(kind, ids=given[0], epoch=epoch)
        return call(kind, n_vertices=given[0], epoch=epoch) if kind == "add_vertices" else call(kind)

    def follow(self, kind: str, *given: Any) -> None:
        self.epoch += kind in CONTENT
        if kind == "batch":
            self.model.update(given[0])
        elif kind == "part":
            for part in given[0]:
                self.model.update(part)
        elif kind == "delete_vertices":
            self.model.delete_vertices(given[0].tolist())
        elif kind == "add_vertices":
            self.model.n_vertices = given[0]

    def check(self) -> None:
        """The ranks hold what the model holds."""
        check(self.ranks, self.model, self.ranks.shards[0].order)
        assert {shard.n_vertices for shard in self.ranks.shards} == {self.model.n_vertices}

    def held(self) -> str:
        """All that a change may change, on all ranks."""
        numbers = [
            (s.epoch, s.changes, s.generation, s.partition, None if s.order is None else s.order.tolist())
            for s in self.ranks.shards
        ]
        sizes = [(t.n_vertices, t.n_rows, t.num_edges) for s in self.ranks.shards for t in s.structures]
        return f"{numbers} {sizes} {[(e, n, [a.tolist() for c in t for a in c]) for e, n, t in self.ranks.snapshot()]}"

    def ballots(self) -> list[Ballot]:
        return [servant.ballot for servant in self.ranks.servants]


@pytest.mark.parametrize("starts", STARTS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_content_takes_an_epoch_and_every_change_is_counted(starts, kind):
    rng = fresh_rng()
    graph = Changed(starts, rng, kind)
    for changes, what in enumerate(["batch", *rng.permutation([*CONTENT, *MOVES] * 2).tolist()], 1):
        answers = graph.change(what)
        assert [(a["epoch"], a["changes"], a["in_doubt"], a["broken"]) for a in answers] == [
            (graph.epoch, changes, False, None)
        ] * graph.ranks.size, what
        graph.check()


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_log_that_fails_refuses_a_change_on_all_ranks_and_leaves_everything_as_it_was(failing, kind):
    rng = fresh_rng()
    graph = Changed((0, 13, 20, N), rng, kind)
    graph.change("batch")
    for what in rng.permutation(CONTENT).tolist():
        before, given = graph.held(), graph.draw(what)

        graph.ballots()[failing].log = full = FullLog()
        answers = graph.change(what, given)
        assert [type(answer) for answer in answers] == [OSError if r == failing else Aborted for r in range(3)], what
        assert full.said == ["begin", "ready", "refuse"]
        assert graph.held() == before
        assert all(b.in_doubt is None and b.broken is None for b in graph.ballots())
        graph.check()
        graph.ballots()[failing].log = None
        graph.ranks.reconnect()
        answers = graph.change(what, given)  # the same one goes in afterwards
        assert [answer["epoch"] for answer in answers] == [graph.epoch] * 3
        graph.check()


def test_moves_are_no_content_and_no_log_is_asked():
    graph = Changed((0, 13, N), fresh_rng(), {})
    graph.change("batch")
    for ballot in graph.ballots():
        ballot.log = SaidLog()
    for what in MOVES:
        graph.change(what)
        graph.check()
    assert [ballot.log.said for ballot in graph.ballots()] == [[], []]
    assert [shard.changes for shard in graph.ranks.shards] == [3, 3]


KIND_OF = dict.fromkeys(CONTENT, BatchChange) | dict.fromkeys(MOVES, Move) | {"add_vertices": VerticesChange}


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("what", KIND_OF)
def test_a_change_that_cannot_be_prepared_on_one_rank_is_discarded_on_all(what, failing, monkeypatch):
    graph = Changed((0, 13, 20, N), fresh_rng(), {"weighted": True, "reverse": True})
    graph.change("batch")
    before, given, discarded = graph.held(), graph.draw(what), []
    kind = KIND_OF[what]
    prepare, discard = kind.prepare, kind.discard

    def fails(change: Change) -> None:
        prepare(change)
        if change.shard.rank == failing:
            raise CapacityError(f"{change}: no room")

    def discards(change: Change) -> None:
        discarded.append(change.shard.rank)
        discard(change)

    monkeypatch.setattr(kind, "prepare", fails)
    monkeypatch.setattr(kind, "discard", discards)
    answers = graph.change(what, given)
    assert [type(answer) for answer in answers] == [CapacityError if r == failing else Aborted for r in range(3)]
    if what in MOVES:  # a rank whose moving partner failed cannot vote: the client releases the others, in doubt
        assert all(ballot.in_doubt is not None for r, ballot in enumerate(graph.ballots()) if r != failing)
        graph.ranks.call("resolve", changes=1)
    assert sorted(set(discarded)) == [0, 1, 2]
    assert graph.held() == before
    assert all(ballot.in_doubt is None for ballot in graph.ballots())
    monkeypatch.undo()
    graph.ranks.reconnect()
    graph.change(what, given)
    graph.check()
    assert [shard.changes for shard in graph.ranks.shards] == [2] * 3


# ---- the ballot alone ------------------------------------------------------------------------------------------------


class Noted(Change):
    """Notes what the ballot does with it."""

    content: ClassVar[bool] = True

    def __init__(self, shard: Any, noted: list[str], **fails: Exception) -> None:
        super().__init__(shard)
        self.noted, self.fails = noted, fails

    def _do(self, what: str) -> None:
        self.noted.append(what)
        if what in self.fails:
            raise self.fails[what]

    def prepare(self) -> None:
        self._do("prepare")

    def commit(self) -> None:
        self._do("commit")

    def discard(self) -> None:
        self._do("discard")


class NotedMove(Noted):
    """The same of a change that is no content and speaks to the other ranks."""

    content, logged, exchanges = False, False, True


class SaidLog:
    """A log that notes what it is told."""

    vote, safe = 3, None

    def __init__(self, said: list[str] | None = None) -> None:
        self.said = [] if said is None else said

    def begin(self, kind: str, columns: Any, epoch: int, ahead: bool = False) -> None:
        self.said.append("begin")

    def proceed(self) -> None:
        """Nothing was put off."""

    def ready(self) -> None:
        self.said.append("ready")

    def keep(self) -> None:
        self.said.append("keep")

    def refuse(self) -> None:
        self.said.append("refuse")


class FullLog(SaidLog):
    """A log without room."""

    def ready(self) -> None:
        super().ready()
        raise OSError(28, "No space left on device")


def decide(ballot: Ballot, change: Change) -> None:
    """A change as a call makes it."""
    with ballot.attempt(Record("batch", {}) if change.content else None):
        ballot.decide(change)


def noted_ballot(shard: Any, noted: list[str]) -> Ballot:
    """A ballot of one rank that notes what it waits for."""
    ballot = Ballot(shard, SaidLog(noted))
    vote = ballot._vote
    ballot._vote = lambda ready: (noted.append(f"vote {ready}"), vote(ready))[1]
    return ballot


@pytest.fixture
def shard():
    return Ranks((0, N)).shards[0]


def test_prepared_logged_voted_on_and_committed_in_this_order(shard, monkeypatch):
    noted: list[str] = []
    monkeypatch.setattr(Device, "synchronize", lambda device: noted.append("synchronize"))
    ballot = noted_ballot(shard, noted)
    decide(ballot, Noted(shard, noted))
    assert noted == ["begin", "prepare", "ready", "vote True", "commit", "keep", "synchronize"]
    assert (shard.epoch, shard.changes) == (1, 1)
    del noted[:]
    move = NotedMove(shard, noted)
    ballot.decide(move, settle=False)  # whoever says so waits for the device later
    assert noted == ["prepare", "vote True", "commit"]
    assert (shard.epoch, shard.changes) == (1, 2)
    ballot.settle()
    assert noted[-1] == "synchronize"


def test_a_change_that_cannot_be_prepared_is_voted_against_and_then_raised(shard):
    noted: list[str] = []
    ballot = noted_ballot(shard, noted)
    with pytest.raises(CapacityError, match="no room"):
        decide(ballot, Noted(shard, noted, prepare=CapacityError("no room")))
    assert noted == ["begin", "prepare", "discard", "vote False", "refuse"]
    assert (ballot.in_doubt, shard.changes) == (None, 0)


def test_no_vote_follows_where_a_change_that_exchanges_fails(shard):
    noted: list[str] = []
    ballot = noted_ballot(shard, noted)
    with pytest.raises(CapacityError, match="no room"):
        ballot.decide(NotedMove(shard, noted, prepare=CapacityError("no room")))
    assert noted == ["prepare", "discard"]


@pytest.mark.parametrize(("changes", "outcome"), [(0, "discard"), (1, "commit")])
@pytest.mark.parametrize("kind", [Noted, NotedMove])
def test_a_vote_that_is_not_heard_leaves_the_rank_in_doubt_until_it_is_told(shard, changes, outcome, kind):
    noted: list[str] = []
    ballot, change = noted_ballot(shard, noted), kind(shard, noted)

    def released(ready: bool) -> bool:
        raise Aborted("released")

    ballot._vote = released
    with pytest.raises(Aborted, match="released"):
        decide(ballot, change)
    assert ballot.in_doubt is change
    assert "refuse" not in noted, "whether it was refused is not known yet"
    del noted[:]
    ballot.resolve(changes)
    logged = {"commit": ["commit", "keep"], "discard": ["discard", "refuse"]}[outcome]
    assert noted == (logged if kind.content else [outcome])
    assert ballot.in_doubt is None
    assert (shard.epoch, shard.changes) == (changes * kind.content, changes)
    del noted[:]
    ballot.resolve(changes + 1)  # not in doubt any more: nothing to do
    assert noted == []


def test_one_that_was_against_it_is_in_no_doubt(shard):
    ballot = Ballot(shard)

    def released(ready: bool) -> bool:
        raise Aborted("released")

    ballot._vote = released
    with pytest.raises(Aborted):
        ballot.decide(Noted(shard, [], prepare=CapacityError("no room")))
    assert ballot.in_doubt is None


def test_the_end_discards_what_is_in_doubt(shard):
    noted: list[str] = []
    ballot = Ballot(shard)
    ballot.in_doubt = Noted(shard, noted)
    ballot.close()
    ballot.close()
    assert noted == ["discard"]


def test_a_commit_that_fails_is_remembered_and_waits_for_nothing(shard, monkeypatch):
    noted: list[str] = []
    ballot = noted_ballot(shard, noted)
    with pytest.raises(ZeroDivisionError):
        ballot.decide(Noted(shard, noted, commit=ZeroDivisionError("by 0")))
    assert ballot.broken == "rank 0: the commit failed: ZeroDivisionError: by 0"
    assert shard.epoch == 0
    monkeypatch.setattr(Device, "synchronize", lambda device: pytest.fail("it waited"))
    ballot.settle()


def test_a_device_that_fails_after_a_commit_is_remembered_too(shard, monkeypatch):
    ballot = Ballot(shard)
    monkeypatch.setattr(Device, "synchronize", lambda device: 1 / 0)
    ballot.decide(Noted(shard, []), settle=False)
    assert (shard.epoch, ballot.broken) == (1, None)
    with pytest.raises(ZeroDivisionError):
        ballot.settle()
    assert "the commit failed: ZeroDivisionError" in ballot.broken


# ---- the seam for a log ----------------------------------------------------------------------------------------------


class Log:
    """What one rank is given to log, each record with the epoch that it would be, and how it ended."""

    vote, safe = 3, None

    def __init__(self, ballot: Ballot) -> None:
        self.full = False
        self.entries: list[tuple[int, Record]] = []
        self.ends: list[str] = []
        ballot.log = self

    def begin(self, kind: str, columns: Any, epoch: int, ahead: bool = False) -> None:
        self.record = epoch, Record(kind, dict(columns))

    def proceed(self) -> None:
        """Nothing was put off."""

    def ready(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.entries.append(self.record)

    def keep(self) -> None:
        self.ends.append("kept")

    def refuse(self) -> None:
        self.ends.append("refused")

    def kept(self, epochs: int) -> list[Record]:
        """The record of each epoch: the last of its number, since a change that is refused leaves the number free."""
        by_epoch = dict(self.entries)
        assert sorted(by_epoch)[:epochs] == list(range(1, epochs + 1)), "a rank lacks its share of an epoch"
        return [by_epoch[epoch] for epoch in range(1, epochs + 1)]


def share(record: Record) -> dict[str, np.ndarray]:
    """A share of a batch, with all columns."""
    columns = {name: record.columns.get(name) for name in NAMES}
    n = len(columns["src"])
    for name in ("weight", "op"):
        given = columns[name]
        columns[name] = np.ones(n) if given is None else np.full(n, given) if isinstance(given, int) else given
    return columns


def replay(logs: list[list[Record]], ranks: Ranks) -> None:
    """Make every change again, in another graph: rank order is stream order."""
    for epoch, shares in enumerate(zip(*logs, strict=True), 1):
        (kind,) = {record.kind for record in shares}
        if kind == "batch":
            columns = [share(record) for record in shares]
            whole = {name: np.concatenate([mine[name] for mine in columns]) for name in NAMES}
            if not ranks.shards[0].spec.weighted:
                whole["weight"] = None
            answers = ranks.update(EdgeBatch(**{**whole, "op": whole["op"].astype(np.int8)}), epoch)
        else:
            answers = ranks.call(kind, **shares[0].columns, epoch=epoch)
        assert [answer["epoch"] for answer in answers] == [epoch] * ranks.size


@pytest.mark.parametrize("starts", STARTS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_was_logged_makes_the_same_graph_again_on_other_ranks_in_another_order(starts, kind):
    rng = fresh_rng()
    graph = Changed(starts, rng, kind)
    logs = [Log(ballot) for ballot in graph.ballots()]
    refused = 0
    for what in ["batch", *rng.permutation([*CONTENT, *MOVES] * 3).tolist()]:
        if what in CONTENT and rng.random() < 0.3:  # refused first
            logs[rng.integers(len(logs))].full = True
            answers = graph.change(what)
            assert any(isinstance(answer, OSError) for answer in answers)
            for log in logs:
                log.full = False
            graph.ranks.reconnect()
            refused += 1
        graph.change(what)
    graph.check()
    written = [log.kept(graph.epoch) for log in logs]
    print(refused, "refused,", [len(log.entries) for log in logs], "records of", graph.epoch, "epochs")
    again = Ranks((0, 5, 5, 17, N), order=rng.permutation(N).astype(np.uint32), structure="csr", **kind)
    replay(written, again)
    check(again, graph.model, again.shards[0].order)
    assert again.shards[0].n_vertices == graph.model.n_vertices
    hashes = [sum(answer["hash"] for answer in ranks.call("fingerprint")) % 2**64 for ranks in (graph.ranks, again)]
    assert hashes[0] == hashes[1]


def test_a_rank_without_a_part_logs_that_it_has_none():
    """A log can tell an epoch whose record is missing on a rank from one that the rank had nothing for."""
    graph = Changed((0, 13, 20, N), fresh_rng(), {})
    logs = [Log(ballot) for ballot in graph.ballots()]
    part = EdgeBatch([1, 2], [30, 31])
    graph.change("part", ([part],))
    assert [[(epoch, record.kind, len(record.columns["src"])) for epoch, record in log.entries] for log in logs] == [
        [(1, "batch", n)] for n in (2, 0, 0)
    ]


def test_records_hold_users_ids_in_stream_order():
    rng = fresh_rng()
    graph = Changed((0, 13, N), rng, {"weighted": True})
    logs = [Log(ballot) for ballot in graph.ballots()]
    graph.change("reorder")
    batch = random_batch(rng, N, 100, True)
    graph.change("batch", (batch,))
    for name in NAMES:
        halves = [log.entries[0][1].columns[name] for log in logs]
        np.testing.assert_array_equal(np.concatenate(halves), getattr(batch, name))


def test_the_record_of_a_refused_change_is_followed_by_no_epoch():
    graph = Changed((0, 13, N), fresh_rng(), {})
    logs = [Log(ballot) for ballot in graph.ballots()]
    graph.change("batch")
    for what in CONTENT:
        logs[1].full = True
        graph.change(what)
        graph.ranks.reconnect()
    assert [epoch for epoch, _ in logs[0].entries] == [1, 2, 2, 2, 2]
    assert [epoch for epoch, _ in logs[1].entries] == [1]
    assert [log.ends for log in logs] == [["kept"] + ["refused"] * 4] * 2
    assert [shard.epoch for shard in graph.ranks.shards] == [1, 1]
    assert [len(log.kept(1)) for log in logs] == [1, 1]
    graph.check()


def test_what_is_resolved_has_been_logged_and_is_not_logged_again(monkeypatch):
    """A rank in doubt has its record: it voted. Where the change was made elsewhere, the record is followed by it."""
    graph = Changed((0, 13, N), fresh_rng(), {})
    logs = [Log(ballot) for ballot in graph.ballots()]
    monkeypatch.setattr(Ballot, "_vote", lambda ballot, ready: (_ for _ in ()).throw(Aborted("released")))
    batch = graph.draw("batch")
    graph.change("batch", batch)
    monkeypatch.undo()
    graph.ranks.call("resolve", changes=1)
    graph.follow("batch", *batch)
    graph.check()
    assert [[epoch for epoch, _ in log.entries] for log in logs] == [[1], [1]]


def test_ranks_log_at_the_same_time():
    """A log is synced by every rank while the others sync theirs: no rank waits for another's before its own."""
    graph = Changed((0, 13, 20, N), fresh_rng(), {})
    together = threading.Barrier(3)
    for ballot in graph.ballots():
        ballot.log = log = SaidLog()
        log.ready = lambda: together.wait(10)  # type: ignore[method-assign,assignment,return-value]
    for what in CONTENT:
        assert not any(isinstance(answer, BaseException) for answer in graph.change(what)), what
    graph.check()
