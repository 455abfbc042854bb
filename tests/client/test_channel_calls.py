"""Calls by channels, from the user's thread to the shards' threads: which go there, and what becomes of failed ones."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dask
import numpy as np
import pytest
from fakes import FAKE_CALLS, by_comm, called, fake_cluster, wait_for
from interrupts import after, ctrl_c, when

from mgraph import channel as channels
from mgraph import shared
from mgraph.calls import CALLS
from mgraph.client.connections import opening
from mgraph.client.connections.answers import PendingAnswers
from mgraph.errors import CapacityError, MgraphError, WorkerLost
from mgraph.protocol import Part
from mgraph.shared import LARGE

pytestmark = pytest.mark.timeout(60)


def test_small_calls_go_by_channels_and_large_or_odd_values_by_the_comm():
    with fake_cluster(2) as (coordinator, _):
        names = by_comm(coordinator)
        for i in range(20):
            answers = coordinator.call("echo", {"i": i}, [{"own": 0}, {"own": np.arange(3)}])
            assert [answer["i"] for answer in answers] == [i, i]
            np.testing.assert_array_equal(answers[1]["own"], [0, 1, 2])
        assert names == []
        large = np.arange(1 << 16)
        assert all((answer["x"] == large).all() for answer in coordinator.call("echo", {"x": large}))
        assert names == ["echo", "echo"]
        assert coordinator.call("echo", {"x": 1})[0]["x"] == 1
        assert names == ["echo", "echo"]


def test_an_answer_that_is_too_large_comes_by_the_comm():
    with fake_cluster(2) as (coordinator, _):
        names, began = by_comm(coordinator), time.monotonic()
        for n in (10, 1 << 18, 1 << 23, 10, 1 << 18):
            for rank, answer in enumerate(coordinator.call("big", {"n": n})):
                np.testing.assert_array_equal(answer["array"], np.arange(n) + rank)
                assert answer["array"].flags.writeable
        assert names == ["big", "big"]  # once, to share memory after so many bytes
        assert time.monotonic() - began < 30


def test_answers_in_shared_memory_are_read_there(monkeypatch):
    in_parts, add_part = list[int](), PendingAnswers.add_part

    def noted(self: PendingAnswers, part: Part) -> None:
        in_parts.append(part.seq)
        add_part(self, part)

    monkeypatch.setattr(PendingAnswers, "add_part", noted)
    with fake_cluster(2) as (coordinator, _):
        for _ in range(2):  # to share memory
            coordinator.call("big", {"n": 1 << 20})
        names = by_comm(coordinator)
        monkeypatch.setitem(CALLS, "read", replace(CALLS["big"], reads_in_place=True))
        del in_parts[:]
        for i in range(20):  # 160 MiB per rank: more than the memory has, so it is used again
            for rank, answer in enumerate(coordinator.call("read", {"n": (1 << 20) - i})):
                np.testing.assert_array_equal(answer["array"], np.arange((1 << 20) - i) + rank)
                assert not answer["array"].flags.writeable
            del answer
        assert (names, in_parts) == ([], [])

        # Arrays that are kept leave no room, and stay as they are.
        kept = [coordinator.call("read", {"n": 1 << 20})[0]["array"] for _ in range(6)]
        assert in_parts
        for array in kept:
            np.testing.assert_array_equal(array, np.arange(1 << 20))
        kept.clear()
        coordinator.call("echo")
        del in_parts[:]
        coordinator.call("read", {"n": 1 << 20})
        assert in_parts == []
        assert names == []


@pytest.mark.parametrize("alike", [True, False])
def test_arrays_that_are_too_large_together_go_by_shared_memory(alike):
    """Each alone is small enough for a channel's message."""
    with fake_cluster(2) as (coordinator, _):
        names = by_comm(coordinator)
        for n in [LARGE // 4 - 1] * 60:  # the first ones go by the comm, until sharing memory pays
            arrays = {name: np.full(n, i, np.float32) for i, name in enumerate("abc")}
            shares = [{"own": np.arange(n)[:9]}, {"own": np.arange(n)[:8]}]
            for answer in coordinator.call("sums", arrays, None if alike else shares):
                assert answer["sums"] == (0, n, 2 * n)
        assert 20 < len(names) / 2 < 50
        names.clear()
        with pytest.raises(TypeError):
            coordinator.call("sums", {**arrays, "lock": threading.Lock()})
        names.clear()
        coordinator.call("sums", arrays)
        assert names == []
        coordinator.call("echo")
        assert wait_for(lambda: all(not s._memory.shared._room._taken for s in coordinator.sessions.all))


def test_an_answer_by_a_channel_gives_the_room_of_its_call_back(monkeypatch):
    """A message of its own would take the event loops of both sides, which the next call's threads wait for."""
    monkeypatch.setattr(shared, "TELL_SECONDS", 60)  # after which a worker sends one
    with fake_cluster(2) as (coordinator, _):
        names, large = by_comm(coordinator), np.zeros(1 << 20)
        for _ in range(2):  # to share memory
            coordinator.call("flags", {"array": large})
        names.clear()
        for _ in range(5):
            coordinator.call("flags", {"array": large[: len(large) // 4]})
            assert all(not session._memory.shared._room._taken for session in coordinator.sessions.all)
        assert names == []


def test_only_the_owners_of_rows_are_asked(monkeypatch):
    monkeypatch.setitem(FAKE_CALLS, "echo", replace(FAKE_CALLS["echo"], rows="own"))
    some, none = np.arange(3), np.arange(0)

    def ranks(coordinator, *own: np.ndarray) -> list[int]:
        answers = coordinator.call("echo", {}, [{"own": ids} for ids in own])
        return [rank for rank, answer in enumerate(answers) if answer]

    with fake_cluster(3) as (coordinator, workers):
        names = by_comm(coordinator)
        assert ranks(coordinator, none, some, none) == [1]
        assert ranks(coordinator, some, none, some) == [0, 2]
        assert ranks(coordinator, none, none, none) == [0, 1, 2]
        assert [worker.log.count("echo") for worker in workers] == [2, 2, 2]

        # States and epochs are those of all ranks, and a result is freed on all of them.
        coordinator.call("update")
        assert ranks(coordinator, some, none, none) == [0]
        assert coordinator.epoch == 1
        assert [state.epoch for state in coordinator.states] == [1, 1, 1]
        coordinator.forget("r1")
        assert ranks(coordinator, none, none, some) == [0, 1, 2]
        assert ["free r1" in " ".join(map(str, worker.log)) for worker in workers] == [True] * 3

        # An error of the only rank that was asked, and the loss of one that was not.
        monkeypatch.setitem(CALLS, "fail", replace(CALLS["fail"], rows="own"))
        with pytest.raises(CapacityError, match="rank 1"):
            coordinator.call("fail", {"ranks": [1]}, [{"own": none}, {"own": some}, {"own": none}])
        assert ranks(coordinator, none, some, none) == [1]
        assert not {"echo", "fail"} & set(names)
        workers[2].session.stop()
        assert wait_for(lambda: coordinator.exchange.lost)
        with pytest.raises(WorkerLost, match="rank 2"):
            ranks(coordinator, some, none, none)


def test_it_can_be_turned_off_and_other_users_processes_are_refused(caplog, monkeypatch):
    caplog.set_level(logging.INFO, opening.__name__)
    with dask.config.set({opening.OPTION: False}), fake_cluster(1) as (coordinator, _):
        names = by_comm(coordinator)
        coordinator.call("echo")
        assert names == ["echo"]
        assert "calls go by the comm: mgraph.channels is False" in caplog.text
    monkeypatch.setattr(channels, "_same_user", lambda sock: False)
    with fake_cluster(1) as (coordinator, _):
        names = by_comm(coordinator)
        coordinator.call("echo")
        assert names == ["echo"]
        assert "belongs to another user" in caplog.text


def test_a_call_waits_for_another_threads_and_both_ways_keep_one_order():
    with fake_cluster(2) as (coordinator, _):
        coordinator.call("echo")
        threads = [threading.Thread(target=coordinator.call, args=("update", {"seconds": 0.002})) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert coordinator.sessions.epoch == 12
        assert [answer["x"] for answer in coordinator.call("echo", {"x": 5})] == [5, 5]


def test_an_error_on_one_rank_releases_the_others():
    with fake_cluster(3) as (coordinator, workers):
        names = by_comm(coordinator)
        for _ in range(3):
            with pytest.raises(CapacityError, match="rank 1"):
                coordinator.call("fail", {"ranks": [1]})
            assert coordinator.call("echo", {"x": 1})[2]["x"] == 1
        assert "fail" not in names
        assert workers[0].log.count("settle") == 3


def test_ctrl_c_releases_the_ranks_and_late_answers_are_dropped():
    with fake_cluster(2) as (coordinator, workers):
        names = by_comm(coordinator)
        for _ in range(3):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                coordinator.call("wait", {"ranks": [0, 1]})
            assert coordinator.status.unsettled
            assert [answer["x"] for answer in coordinator.call("echo", {"x": 3})] == [3, 3]
            assert not coordinator.status.unsettled
        assert "wait" not in names
        assert workers[1].log.count("settle") == 3


def test_ctrl_c_again_before_the_loop_has_heard_of_it_releases_the_ranks_too():
    def press() -> None:
        coordinator.runner.post(lambda: time.sleep(0.6))
        ctrl_c()
        time.sleep(0.3)
        ctrl_c()

    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo_together")
        names = by_comm(coordinator)
        with when(lambda: called(workers, "wait"), press), pytest.raises(KeyboardInterrupt):
            coordinator.call("wait_together", {"ranks": [0, 1]})
        assert coordinator.status.unsettled
        assert len(coordinator.call("echo_together")) == 2
        assert "wait" not in names
        assert [worker.log.count("settle") for worker in workers] == [1, 1]


def test_ctrl_c_before_the_loop_has_heard_of_a_failure_releases_the_other_ranks():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo_together")
        coordinator.runner.post(lambda: time.sleep(0.6))
        with after(0.3, ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("fail_together", {"ranks": [1]})
        assert len(coordinator.call("echo_together")) == 2
        assert [worker.log.count("settle") for worker in workers] == [1, 1]


def test_a_rank_is_lost_at_once_when_its_process_ends_the_session():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo")
        threading.Timer(0.2, workers[1].session.stop).start()
        began = time.monotonic()
        with pytest.raises(WorkerLost, match="rank 1"):
            coordinator.call("wait", {"ranks": [0, 1]})
        assert time.monotonic() - began < 10
        with pytest.raises(WorkerLost):
            coordinator.call("echo")


def test_the_loss_of_a_rank_comes_just_after_its_answer(monkeypatch):
    class Overtaken:
        """An answer in whose place the event loop puts the loss of the rank, once it was looked at."""

        def __init__(self, answer):
            self.answer, self.looks = answer, 0

        @property
        def outcome(self):
            self.looks += self.answer.outcome is not None
            return self.answer.outcome if self.looks < 3 else WorkerLost("of this test")

    with fake_cluster(1) as (coordinator, _):
        coordinator.call("echo")
        (session,) = coordinator.sessions.all
        expect = session.expect
        monkeypatch.setattr(session, "expect", lambda *args: Overtaken(expect(*args)))
        assert coordinator.call("echo", {"x": 1})[0]["x"] == 1


def test_the_channel_closes_while_a_call_is_packed(monkeypatch):
    with fake_cluster(1) as (coordinator, _):
        coordinator.call("echo")
        (session,), packed = coordinator.sessions.all, coordinator._channels._packed

        def closed(*args):
            session.close_channel()
            return packed(*args)

        monkeypatch.setattr(coordinator._channels, "_packed", closed)
        with pytest.raises(WorkerLost, match="closed its session"):
            coordinator.call("echo")


def test_the_client_closes_its_loop_during_a_call():
    with fake_cluster(1) as (coordinator, workers):
        coordinator.call("echo")
        threading.Timer(0.2, coordinator.close).start()
        with pytest.raises(MgraphError):
            coordinator.call("wait", {"ranks": [0]})
        assert wait_for(lambda: not workers[0].table.sessions)


def test_results_are_freed_by_a_call_that_goes_by_the_comm_after_all():
    with fake_cluster(1) as (coordinator, workers):
        coordinator.call("echo")
        coordinator.forget("r1")
        coordinator.call("echo", {"x": {1, 2}})  # a set is not plain
        assert "free r1" in " ".join(map(str, workers[0].log))


def test_a_call_to_another_rank_takes_few_instructions_more():
    """Those of the user's thread, which sends and receives one message per rank."""
    fewest = {}
    for size in (1, 8):
        with fake_cluster(size) as (coordinator, _):
            for _ in range(3):  # the first calls make the packer and register the channels
                coordinator.call("echo")
            fewest[size] = min(instructions_of(lambda: coordinator.call("echo")) for _ in range(10))
    assert (fewest[8] - fewest[1]) / 7 < 420


def instructions_of(call: Callable[[], Any]) -> int:
    """Count the instructions of Python that a call takes in this thread."""
    count, tracing = 0, sys.gettrace()

    def counted(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return counted

    def entered(frame: Any, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return counted

    sys.settrace(entered)
    try:
        call()
    finally:
        sys.settrace(tracing)
    return count
