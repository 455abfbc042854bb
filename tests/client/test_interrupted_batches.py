"""Batches in flight whose vote was interrupted: the reports say what is known of them."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from fakes import FakeServant, fake_cluster, sending
from interrupts import ctrl_c, when

from mgraph.batch import COLUMNS, TOLD
from mgraph.client.batches.pipeline import Pipeline, Shares
from mgraph.client.calls import coordinator as coordinators
from mgraph.client.calls import exchange_lifecycle
from mgraph.client.calls.batch_group import BatchGroup
from mgraph.client.calls.coordinator import Coordinator
from mgraph.errors import GraphLost, MgraphError, WorkerLost
from mgraph.worker.sessions.thread import ShardThread

pytestmark = pytest.mark.timeout(60)

ONE = {"src": np.zeros(1, np.uint32), "dst": np.zeros(1, np.uint32), **dict.fromkeys(COLUMNS[2:])}
BATCHES = {"in one message": ONE, "in a message each": {"seconds": 0.0}}
VOTES = 3  #: the epoch whose vote is interrupted: rank 0 has made it, and rank 1 does not know


@pytest.fixture(params=BATCHES.values(), ids=BATCHES.keys())
def interrupted(request, monkeypatch) -> Any:
    """A batch of a pipeline, of which both ranks wait in the vote on epoch 3, or behind it."""

    def update(self: FakeServant, attempt: int, epoch: int, *args: Any, **share: Any) -> dict[str, Any]:
        if epoch != self.epoch + 1:
            raise MgraphError(f"a batch came as epoch {epoch}")
        if epoch > VOTES or (epoch == VOTES and self.rank == 1):
            self.in_doubt = epoch == VOTES
            return self.wait(attempt, [self.rank])
        self.epoch = epoch
        return {**dict.fromkeys(TOLD, 0), "inserted": 1, "epoch": epoch}

    monkeypatch.setattr(FakeServant, "update", update)
    return request.param


def voting(workers: list[Any]) -> bool:
    """Whether rank 0 has made the epoch, and rank 1 waits."""
    servants = [worker.session.thread._servant for worker in workers]
    return None not in servants and servants[0].epoch == VOTES and servants[1].in_doubt


def reports(coordinator, workers, batch, what, error) -> list[Any]:
    """The reports of five batches; `what` happens in the vote of the third."""
    pipe = Pipeline(coordinator, sending(coordinator), 1 << 20)
    pending, last = [], []  # the last epoch of each message

    def sent(group: BatchGroup, flight: Any, epoch: int) -> None:
        last.append(epoch + len(group.items) - 1)
        group_sent(group, flight, epoch)

    def answered() -> bool:
        """Return True once the messages before that of the vote are answered."""
        before = [epoch for epoch in last if epoch < VOTES] if batch is ONE else [VOTES - 1]
        return all(pending[epoch - 1].done() for epoch in before)

    group_sent, pipe.group_sent = pipe.group_sent, sent
    with pytest.raises(error), when(lambda: len(pending) == 5 and voting(workers) and answered(), what), pipe:
        for _ in range(5):
            pending.append(pipe.update(batch))
        pending[-1].exception()
        pipe._outcomes.check()
    assert all(one.done() for one in pending)
    return pending


def test_a_batch_that_the_ranks_made_after_an_interrupt_is_reported_without_its_counts(interrupted):
    with fake_cluster(2) as (coordinator, workers):
        *before, voted, _, _ = found = reports(coordinator, workers, interrupted, ctrl_c, KeyboardInterrupt)
        assert [one.result(0).inserted for one in before] == [2, 2]
        assert coordinator.status.epoch == VOTES
        told = voted.result(0)
        assert (told.epoch, told.inserted, told.missing, told.expired) == (VOTES, -1, -1, -1)
        assert math.isnan(told.seconds)
        for epoch, one in enumerate(found[VOTES:], VOTES + 1):
            assert re.search(f"epoch {epoch} was (dropped because of Ctrl-C|not applied)", str(one.exception(0)))


def test_while_the_ranks_do_not_answer_nobody_knows(interrupted, monkeypatch):
    aborts, abort = [], ShardThread.abort
    with fake_cluster(2) as (coordinator, workers):
        with monkeypatch.context() as patch:
            for module in (coordinators, exchange_lifecycle):
                patch.setattr(module, "ABORT_SECONDS", 0.1)
            patch.setattr(ShardThread, "abort", lambda *args: aborts.append(args))
            _, _, *unknown = reports(coordinator, workers, interrupted, ctrl_c, KeyboardInterrupt)
        for args in aborts:
            abort(*args)
        for epoch, one in enumerate(unknown, VOTES):
            assert f"the batch of epoch {epoch} may be committed" in str(one.exception(0))
        coordinator.call("echo")
        assert coordinator.status.epoch == VOTES


def test_of_batches_under_way_when_a_worker_is_lost_nobody_knows(interrupted):
    with fake_cluster(2) as (coordinator, workers):
        lose = lambda: workers[1].thread.loop.call_soon_threadsafe(workers[1].session.comm.abort)  # noqa: E731
        found = reports(coordinator, workers, interrupted, lose, (WorkerLost, GraphLost))
        for epoch, one in enumerate(found[VOTES - 1 :], VOTES):
            assert isinstance(one.exception(0), MgraphError)
            assert f"it is not known whether the batch of epoch {epoch}" in str(one.exception(0))


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_a_report_that_cannot_be_made_ends_its_wait(batch):
    with fake_cluster(1) as (coordinator, _):
        pipe = Pipeline(coordinator, lambda args, *_: nullcontext(Shares([dict(args)], absent="no number")), 1 << 20)
        with pipe:
            pending = [pipe.update(batch) for _ in range(2)]
        assert all(isinstance(one.exception(5), TypeError) for one in pending)


def test_a_group_for_which_workers_reserve_memory_during_an_interrupt_is_not_sent(monkeypatch):
    """It is neither queued nor in flight when the block is left, and would be committed afterwards."""
    reserving, goes_on, asked = threading.Event(), threading.Event(), []

    async def reserve(self: Coordinator, sizes: Any) -> None:
        reserving.set()
        while not goes_on.is_set():
            await asyncio.sleep(0.01)

    async def ask(self: Coordinator, method: str, rank_args: list[Any]) -> list[Any]:
        asked.append((method, rank_args))
        return []

    monkeypatch.setattr(Coordinator, "_may_lack_memory", lambda self, sizes: True)
    monkeypatch.setattr(Coordinator, "_reserve", reserve)
    monkeypatch.setattr(Coordinator, "_ask", ask)
    with fake_cluster(2) as (coordinator, _):
        with (
            pytest.raises(KeyboardInterrupt),
            when(reserving.is_set, ctrl_c),
            Pipeline(coordinator, sending(coordinator), 1 << 20) as pipe,
        ):
            report = pipe.update(ONE)
            threading.Event().wait(20)
        goes_on.set()
        assert "dropped because of Ctrl-C" in str(report.exception(20))
        assert asked == [("reserve", [{"nbytes": 0}] * 2)]
        coordinator.call("echo")
        assert coordinator.status.epoch == 0


def test_an_interrupt_in_the_turn_in_which_the_batch_before_has_landed(monkeypatch):
    """The second batch's flight has not been resumed yet, so nobody waits for its answers."""
    land = Coordinator._land

    async def interrupted(self: Coordinator, before: Any, asked: Any, epoch: int, group: Any = None) -> Any:
        try:
            return await land(self, before, asked, epoch, group)
        finally:
            if epoch == 1:
                assert made.acquire(timeout=20) and made.acquire(timeout=20)  # on both ranks
                next(flight for flight in self._flying if flight is not asyncio.current_task()).cancel()

    def update(self: FakeServant, attempt: int, epoch: int, *args: Any, **share: Any) -> dict[str, Any]:
        assert epoch != 1 or sent.wait(20)
        self.epoch, self.changes = epoch, epoch
        if epoch == 2:
            made.release()
        return {**dict.fromkeys(TOLD, 0), "inserted": 1, "epoch": epoch}

    sent, made = threading.Event(), threading.Semaphore(0)
    monkeypatch.setattr(Coordinator, "_land", interrupted)
    monkeypatch.setattr(FakeServant, "update", update)
    with fake_cluster(2) as (coordinator, _), Pipeline(coordinator, sending(coordinator), 1 << 20) as pipe:
        first, second = (pipe.update(BATCHES["in a message each"]) for _ in range(2))
        sent.set()
        assert first.result(20).inserted == 2
        told = second.result(20)
        assert (told.epoch, told.inserted, coordinator.status.epoch) == (2, -1, 2), "the ranks have made it"
