"""Every change of a graph goes by the one ballot: all ranks make it or none does."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest
from changed_ranks import CONTENT, KINDS, MOVES, STARTS, Changed, N
from plain_graph import fresh_rng
from ranks import Ranks

from mgraph.device import Device
from mgraph.errors import Aborted, CapacityError
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.commit.change import BatchChange, Change, Record, VerticesChange
from mgraph.worker.vertices.rebalance import Move


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

    epochs, logged, exchanges = 0, False, True


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
    with ballot.attempt(Record("batch", {}) if change.epochs else None):
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
def test_a_vote_that_is_not_heard_leaves_the_rank_in_doubt_until_it_learns_the_outcome(shard, changes, outcome, kind):
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
    assert noted == (logged if kind.epochs else [outcome])
    assert ballot.in_doubt is None
    assert (shard.epoch, shard.changes) == (changes * kind.epochs, changes)
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
