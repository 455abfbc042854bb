"""What the ranks give a log of each change: with it the change can be made again, on other ranks in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from changed_ranks import CONTENT, KINDS, MOVES, STARTS, Changed, N, check
from graph_model import random_batch
from plain_graph import fresh_rng
from ranks import Ranks

from mgraph.batch import EdgeBatch
from mgraph.errors import Aborted
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.commit.change import Record

NAMES = ("src", "dst", "weight", "op")  #: the columns of a batch without times


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
