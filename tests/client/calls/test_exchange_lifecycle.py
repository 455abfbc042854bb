"""What follows where a call fails on a rank or is interrupted: release, the outcome of a vote, the next exchange."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import dask
import pytest
from fakes import FakeServant, called, fake_cluster
from interrupts import ctrl_c, when
from patience import patience

from mgraph.errors import Aborted, CapacityError, GraphLost, MgraphError, StoreError

pytestmark = pytest.mark.timeout(60)


def test_one_rank_fails_while_the_other_waits_for_it():
    with fake_cluster(2) as (coordinator, workers):
        began = time.monotonic()
        with pytest.raises(CapacityError, match="rank 1 has no room"):
            coordinator.call("fail_together", {"ranks": [1]})
        assert time.monotonic() - began < patience(2)
        assert workers[0].log[-1] == workers[1].log[-1] == "settle"
        answers = coordinator.call("echo_together")  # the graph is usable, over a new exchange
        assert [answer["attempt"] for answer in answers] == [1, 1]
        assert workers[0].log[-3:] == ["open_exchange", "connect_exchange", "echo"]


def test_all_ranks_fail_alike_and_nothing_is_aborted():
    with fake_cluster(2) as (coordinator, workers):
        with pytest.raises(TypeError) as raised:
            coordinator.call("big", {"unknown": 3})
        assert "unexpected keyword argument" in raised.value.__notes__[0]  # the worker's traceback
        assert "settle" not in workers[0].log
        assert coordinator.exchange.number == 0


def test_keyboard_interrupt_during_a_call_leaves_the_graph_usable():
    with fake_cluster(2) as (coordinator, workers):
        began = time.monotonic()
        with when(lambda: called(workers, "wait"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("wait_together", {"ranks": [0, 1]})
        assert time.monotonic() - began < patience(2)
        assert workers[0].log[-1] == workers[1].log[-1] == "settle"
        assert len(coordinator.call("echo_together")) == 2


def test_keyboard_interrupt_while_a_rank_polls_nothing():
    with fake_cluster(2) as (coordinator, workers):
        with when(lambda: called(workers, "deaf"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("deaf", {"ranks": [1], "seconds": 3.5})
        assert len(coordinator.call("echo_together")) == 2  # waits for the rank to come back


def test_two_keyboard_interrupts_leave_it_unsettled_until_a_call_is_answered():
    with fake_cluster(2) as (coordinator, workers):
        began, slow = time.monotonic(), patience(1.5)
        with (
            when(lambda: called(workers, "deaf"), ctrl_c),
            when(lambda: coordinator.exchange.aborting, ctrl_c),
            pytest.raises(KeyboardInterrupt),
        ):
            coordinator.call("deaf_together", {"ranks": [1], "seconds": slow})
        assert time.monotonic() - began < 0.9 * slow  # nobody waited for the rank
        assert coordinator.status.unsettled
        assert coordinator.exchange.aborting
        coordinator.call("echo")
        assert time.monotonic() - began > 0.9 * slow
        assert not coordinator.status.unsettled


def test_a_keyboard_interrupt_that_all_ranks_acknowledge_is_asked_after_too():
    """The client's thread may have left before its event loop heard of the interrupt."""
    with fake_cluster(2) as (coordinator, workers):
        with when(lambda: called(workers, "wait"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("wait_together", {"ranks": [0, 1]})
        assert not coordinator.exchange.aborting
        assert coordinator.status.unsettled
        with pytest.raises(CapacityError):
            coordinator.call("fail", {"ranks": [0, 1]})
        assert coordinator.status.unsettled  # only an answer says what the ranks have
        coordinator.call("echo")
        assert not coordinator.status.unsettled


def test_interrupted_batch_that_one_rank_committed_is_committed_by_all():
    with fake_cluster(3) as (coordinator, workers):
        with when(lambda: called(workers, "vote"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("vote", {"committed": [0], "doubting": [1, 2]})
        assert coordinator.status.epoch == 1
        assert [state.epoch for state in coordinator.status.states] == [1, 1, 1]
        assert "resolve" in workers[0].log


@pytest.mark.parametrize("channels", [True, False])
def test_batch_is_committed_though_a_rank_lost_its_connection_before_it_heard_the_vote(monkeypatch, channels):
    def update(rank: FakeServant, attempt: int, epoch: int, **share: Any) -> dict[str, Any]:
        if rank.rank == 0:
            rank.epoch = epoch
            return {"inserted": 1, "epoch": epoch}
        rank.in_doubt = True
        raise Aborted("rank 1 found that rank 0 has closed its connection")

    for name in ("update", "execute"):
        monkeypatch.setattr(FakeServant, name, update, raising=False)
    with dask.config.set({"mgraph.channels": channels}), fake_cluster(2) as (coordinator, _):
        coordinator.call("echo_together")
        for epoch in (1, 2):
            (answer,) = coordinator.call("update")
            assert (answer["epoch"], answer["inserted"]) == (epoch, -1)
            assert [state.epoch for state in coordinator.status.states] == [epoch, epoch]
        with pytest.raises(MgraphError, match="the updates of epoch 3 are committed, and its answers were lost"):
            coordinator.call("execute")
        assert not coordinator.status.unsettled


def test_two_waits_for_the_same_release_judge_once():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo_together")
        exchange = coordinator.exchange

        async def both() -> None:
            await asyncio.gather(exchange.abort(), exchange.wait_for_aborts())

        coordinator.runner.run(both(), 5)  # as after a third Ctrl-C
        assert workers[0].log[-1] == workers[1].log[-1] == "settle"
        assert not exchange.aborting
        assert len(coordinator.call("echo_together")) == 2


def test_interrupted_batch_that_no_rank_committed_is_discarded_by_all():
    with fake_cluster(2) as (coordinator, workers):
        with when(lambda: called(workers, "vote"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("vote", {"committed": [], "doubting": [0]})
        assert coordinator.status.epoch == 0
        coordinator.call("resolve", {"changes": 1})  # none is in doubt any more
        assert [state.epoch for state in coordinator.status.states] == [0, 0]


def test_commit_fails_on_one_rank_and_the_graph_is_lost():
    with fake_cluster(2) as (coordinator, _):
        coordinator.call("commit_fails", {"ranks": []})
        with pytest.raises(RuntimeError, match="the commit failed"):
            coordinator.call("commit_fails_together", {"ranks": [1]})
        for _ in range(2):
            with pytest.raises(GraphLost, match="last epoch acknowledged by all is 1"):
                coordinator.call("echo")


def test_commit_fails_alike_on_all_ranks_and_the_graph_is_lost():
    with fake_cluster(2) as (coordinator, _):
        with pytest.raises(CapacityError):
            coordinator.call("fail_commit_alike_together")
        with pytest.raises(GraphLost, match="the commit failed"):
            coordinator.call("echo")


def test_a_change_that_cannot_be_refused_is_reported_and_the_graph_goes_on():
    with fake_cluster(2) as (coordinator, workers):
        with pytest.raises(StoreError, match="whether the store has it"):
            coordinator.call("refusal_fails_together")
        assert [state.undecided for state in coordinator.status.states] == [1, 1]
        with when(lambda: called(workers, "wait"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("wait_together", {"ranks": [0, 1]})
        assert len(coordinator.call("echo_together")) == 2  # the interrupted call was another


@pytest.mark.parametrize("others", ["wait", "doubt"])
def test_an_interrupted_change_that_cannot_be_refused_loses_the_graph(others):
    """No read says that the change is not there: the store may have it."""
    with fake_cluster(2) as (coordinator, workers):
        with when(lambda: called(workers, "refusal_fails"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("refusal_fails_together", {"others": others})
        with pytest.raises(GraphLost, match="whether the store has it .* acknowledged by all is 0"):
            coordinator.call("echo")
        assert coordinator.status.unsettled


def test_a_rank_that_polls_nothing_for_longer_than_the_patience_loses_the_graph():
    with fake_cluster(2, patience=1.0) as (coordinator, workers):
        with when(lambda: called(workers, "deaf"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("deaf", {"ranks": [1], "seconds": 4})
        what = rf"ranks \[1\], the workers at {workers[1].address}, have not returned .* within 1 s"
        with pytest.raises(GraphLost, match=what):
            coordinator.call("echo")


def test_the_exchange_of_a_rank_does_not_end_as_it_should_and_the_vote_is_known_all_the_same(monkeypatch):
    def fail(self: FakeServant) -> None:
        raise OSError("no such device any more")

    with fake_cluster(2) as (coordinator, workers):
        monkeypatch.setattr(FakeServant, "settle", fail)
        with when(lambda: called(workers, "vote"), ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("vote", {"committed": [0], "doubting": [1]})
        assert coordinator.status.epoch == 1
        assert [state.epoch for state in coordinator.status.states] == [1, 1]
