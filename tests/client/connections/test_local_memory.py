"""Sessions that share memory with their workers: what arrives, what goes by the comm instead, and what is left."""

from __future__ import annotations

import logging
import os
import threading
import time

import dask
import numpy as np
import pytest
from fakes import fake_cluster, sending, wait_for
from interrupts import after, ctrl_c
from plain_graph import fresh_rng

from mgraph import shared as module
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.connections import local_memory
from mgraph.errors import CapacityError, DeviceError, MgraphError, WorkerLost
from mgraph.shared import LARGE, Shared

pytestmark = pytest.mark.timeout(60)

LOGGER = "mgraph.client.connections.local_memory"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """The first large array is worth it, and little memory is shared; nothing is left in /dev/shm."""
    make, made = Shared.make, list[str]()

    def noted(nbytes):
        segment, place = make(nbytes)
        made.append(place.path)
        return segment, place

    monkeypatch.setattr(local_memory, "WORTH", 1)
    monkeypatch.setattr(Shared, "make", noted)
    with dask.config.set({"mgraph.shared-memory": "8 MiB"}):
        yield
    assert not [path for path in made if os.path.exists(path)]


def shares(coordinator: Coordinator) -> list[bool]:
    return [session._memory.shared is not None for session in coordinator.sessions.all]


def all_free(coordinator: Coordinator, workers: list) -> bool:
    """Whether the room of both ends has come back."""
    ours = [session._memory.shared for session in coordinator.sessions.all]
    theirs = [worker.session._shared for worker in workers]
    return wait_for(lambda: not any(one._room._taken for one in [*ours, *theirs] if one is not None))


def pipeline_of(coordinator: Coordinator) -> Pipeline:
    return Pipeline(coordinator, sending(coordinator), 1 << 30)


def random_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    sizes = rng.integers(0, 3 * LARGE, 4).tolist()
    return {
        name: rng.integers(0, 200, n).astype(rng.choice(["u1", "i4", "f8"]))
        for name, n in zip("abcd", sizes, strict=True)
    }


def test_arrays_arrive_and_come_back_whatever_their_sizes():
    rng = fresh_rng()
    with fake_cluster(2) as (coordinator, workers):
        for _ in range(8):
            args, src = random_arrays(rng), rng.integers(0, 9, LARGE, np.uint32)
            answers = coordinator.call("echo", args, [{"src": src}, {"src": src[::-1]}])
            for answer, sent in zip(answers, (src, src[::-1]), strict=True):
                for name, array in {**args, "src": sent}.items():
                    assert answer[name].dtype == array.dtype
                    np.testing.assert_array_equal(answer[name], array)
                    assert answer[name].flags.writeable or array.nbytes < LARGE
        assert shares(coordinator) == [True, True]
        assert all_free(coordinator, workers)


def test_answers_larger_than_the_memory_arrive():
    with fake_cluster(2) as (coordinator, workers):
        for n in (300_000, 4_000_000, 300_001):  # the first goes by the comm
            for rank, answer in enumerate(coordinator.call("big", {"n": n})):
                np.testing.assert_array_equal(answer["array"], np.arange(n) + rank)
            coordinator.call("echo", {"a": np.zeros(LARGE, np.int8)})
        assert shares(coordinator) == [True, True]
        assert all_free(coordinator, workers)


def test_arguments_larger_than_the_memory_go_by_the_comm():
    with fake_cluster(1) as (coordinator, workers):
        for n in (10, 2_000_000, 10):
            (answer,) = coordinator.call("flags", {"array": np.ones(n)})
            assert answer["sum"] == n
        assert shares(coordinator) == [True]
        assert all_free(coordinator, workers)


@pytest.mark.parametrize("far", [[0, 1], [1]], ids=["none", "one"])
def test_a_worker_that_cannot_map_the_memory_is_sent_by_the_comm(monkeypatch, caplog, far):
    of_worker = Shared.of_worker

    def map_or_not(place, loop, tell):
        if tell.__self__.rank in far:
            raise DeviceError("it is on another host")
        return of_worker(place, loop, tell)

    monkeypatch.setattr(Shared, "of_worker", map_or_not)
    with (
        fake_cluster(2) as (coordinator, workers),
        caplog.at_level(logging.INFO, LOGGER),
    ):
        for _ in range(3):
            answers = coordinator.call("echo", {"src": np.arange(LARGE)})
            assert all((answer["src"] == np.arange(LARGE)).all() for answer in answers)
        assert shares(coordinator) == [rank not in far for rank in range(2)]
        assert all_free(coordinator, workers)
    said = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(said) == len(far)
    for rank, line in zip(far, sorted(said), strict=True):
        assert f"rank {rank}" in line and "arrays go by the comm" in line and "it is on another host" in line


@pytest.fixture
def fills(monkeypatch) -> list[int]:
    """The sizes of the arrays that were written to shared memory so far."""
    sizes, fill = list[int](), module._fill
    monkeypatch.setattr(module, "_fill", lambda target, array: (sizes.append(len(target)), fill(target, array)))
    return sizes


def test_an_array_for_all_ranks_is_written_once(fills):
    array = np.arange(3 * LARGE)
    with fake_cluster(3) as (coordinator, workers):
        coordinator.call("flags", {"array": array})
        assert not coordinator.write_once  # it opens with the next call, and nothing else does
        coordinator.call("echo")
        assert coordinator.write_once
        fills.clear()
        for n in (len(array), LARGE, 1):
            answers = coordinator.call("flags", {"array": array[:n]})
            assert [answer["sum"] for answer in answers] == [array[:n].sum()] * 3
        assert fills == [array.nbytes, array[:LARGE].nbytes]
        common = coordinator.sessions.common
        coordinator.sessions.common_due = True  # by another thread that asked before
        coordinator.call("echo")
        assert coordinator.sessions.common is common
        assert wait_for(lambda: not common._room._taken) and all_free(coordinator, workers)

        # What has no room there is written for each.
        fills.clear()
        common._room.take([local_memory.COMMON_BYTES - 2 * array.nbytes])
        for _ in range(3):
            common.put({"array": array})
        assert [answer["sum"] for answer in coordinator.call("flags", {"array": array})] == [array.sum()] * 3
        assert fills == [array.nbytes] * 4
        with pytest.raises(TypeError):  # it is not sent
            coordinator.call("flags", {"array": array[:LARGE], "lock": threading.Lock()})
        assert all_free(coordinator, workers)


def test_the_common_memory_has_room_again_after_failures(fills):
    array = np.arange(3 * LARGE)
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("flags", {"array": array})
        assert not coordinator.write_once
        with pytest.raises(CapacityError, match="rank 1 has no room"):
            coordinator.call("fail_together", {"ranks": [1], "src": array})
        assert coordinator.write_once
        fills.clear()
        with pytest.raises(CapacityError, match="rank 1 has no room"):
            coordinator.call("fail_together", {"ranks": [1], "src": array})
        with after(0.3, ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("wait_together", {"ranks": [0, 1], "src": array})
        with pytest.raises(TypeError):
            coordinator.call("echo", {"src": array, "lock": threading.Lock()})
        assert array.nbytes in fills
        assert wait_for(lambda: not coordinator.sessions.common._room._taken) and all_free(coordinator, workers)


@pytest.mark.parametrize("trouble", ["far", "late", "none is left"])
def test_arrays_are_written_for_each_rank_where_not_all_can_map_the_same(monkeypatch, caplog, fills, trouble):
    array, map_common = np.arange(3 * LARGE), Shared.map_common

    def map_or_not(shared: Shared, place: bytes) -> None:
        if trouble == "late":
            time.sleep(0.5)
        elif shared is workers[1].session._shared:
            raise DeviceError("it is on another host")
        map_common(shared, place)

    monkeypatch.setattr(Shared, "map_common", map_or_not)
    if trouble == "none is left":
        monkeypatch.setattr(local_memory, "COMMON_BYTES", 1 << 60)
        monkeypatch.setattr(local_memory, "LEAST", 1 << 60)  # nothing smaller is tried
    monkeypatch.setattr(local_memory, "OPEN_SECONDS", 0.2)
    why = {"far": "it is on another host", "late": "has not answered for 0.2 s", "none is left": "cannot be had"}
    with fake_cluster(2) as (coordinator, workers), caplog.at_level(logging.INFO, LOGGER):
        coordinator.call("flags", {"array": array})
        for _ in range(3):
            assert not coordinator.write_once
            fills.clear()
            assert [answer["sum"] for answer in coordinator.call("flags", {"array": array})] == [array.sum()] * 2
            assert fills == [array.nbytes] * 2
        assert all_free(coordinator, workers)
    (line,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert "arrays for all workers are written for each of them" in line and why[trouble] in line


def test_too_little_shared_memory_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(local_memory, "LEAST", 1 << 60)
    with dask.config.set({"mgraph.shared-memory": 1 << 60}), fake_cluster(1) as (coordinator, _):
        for _ in range(3):
            assert coordinator.call("flags", {"array": np.ones(LARGE)})[0]["sum"] == LARGE
        assert shares(coordinator) == [False]
    (line,) = [record.getMessage() for record in caplog.records if LOGGER in record.name]
    assert "arrays go by the comm" in line and f"{1 << 60} bytes of shared memory cannot be had in /dev/shm" in line


def test_less_memory_is_shared_where_there_is_little(monkeypatch):
    make = Shared.make
    monkeypatch.setattr(local_memory, "LEAST", 1 << 20)
    monkeypatch.setattr(Shared, "make", lambda n: make(n if n <= 1 << 20 else 1 << 60))
    with fake_cluster(1) as (coordinator, _):
        coordinator.call("flags", {"array": np.ones(LARGE)})
        assert len(coordinator.sessions.all[0]._memory.shared._segment.data) == 1 << 20


def test_no_memory_is_shared_where_it_is_turned_off_or_little_is_sent(monkeypatch):
    with dask.config.set({"mgraph.shared-memory": 0}), fake_cluster(1) as (coordinator, _):
        coordinator.call("flags", {"array": np.ones(LARGE)})
        assert shares(coordinator) == [False]
    monkeypatch.setattr(local_memory, "WORTH", 1 << 21)
    with fake_cluster(1) as (coordinator, _):
        for n in (100, LARGE, LARGE, 3 * LARGE):
            assert shares(coordinator) == [False]
            coordinator.call("flags", {"array": np.ones(n)})
        coordinator.call("flags", {"array": np.ones(3 * LARGE)})
        assert shares(coordinator) == [True]


def test_the_room_comes_back_of_calls_that_fail():
    array = np.arange(LARGE)
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo", {"src": array})
        with pytest.raises(MgraphError, match="Local"):
            coordinator.call("odd", {"src": array})
        with pytest.raises(CapacityError, match="rank 1 has no room"):
            coordinator.call("fail_together", {"ranks": [1], "src": array})
        with pytest.raises(TypeError):
            coordinator.call("echo", {"src": array, "lock": threading.Lock()})
        assert all_free(coordinator, workers)
        assert coordinator.call("echo", {"src": array})[1]["src"][-1] == LARGE - 1


def test_the_room_comes_back_after_ctrl_c():
    with fake_cluster(2) as (coordinator, workers):
        with after(0.3, ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("wait_together", {"ranks": [0, 1], "src": np.arange(LARGE)})
        assert all_free(coordinator, workers)
        assert coordinator.call("echo", {"src": np.arange(LARGE)})[0]["src"][-1] == LARGE - 1


def test_a_worker_is_lost_while_arrays_wait_for_room():
    with fake_cluster(1) as (coordinator, workers):
        lose = workers[0].session.comm.abort
        with pytest.raises(WorkerLost), pipeline_of(coordinator) as pipe:
            sent = [pipe.update({"seconds": 0.5, "src": np.zeros(2 << 20, np.uint8)}) for _ in range(6)]
            workers[0].thread.loop.call_soon_threadsafe(lose)
        for one in sent:
            with pytest.raises(WorkerLost):
                one.result(10)


def test_batches_in_flight_take_turns_in_the_memory():
    with fake_cluster(2) as (coordinator, workers):
        with pipeline_of(coordinator) as pipe:
            sent = [pipe.update({"seconds": 0.01, "src": np.full(LARGE // 2, i)}) for i in range(60)]
        assert [one.result().epoch for one in sent] == list(range(1, 61))
        assert all_free(coordinator, workers)


def test_answers_that_lie_in_the_memory_before_its_opening_is_known(monkeypatch):
    """The worker uses it at once. Its agreement may be late: then arrays of this end go by the comm."""
    monkeypatch.setattr(local_memory, "OPEN_SECONDS", 0.2)
    with fake_cluster(1) as (coordinator, workers):
        share = workers[0].session._share
        late = threading.Event()

        def share_and_dawdle(message):
            why = share(message)
            late.wait(0.5)
            return why

        monkeypatch.setattr(workers[0].session, "_share", share_and_dawdle)
        for _ in range(3):
            (answer,) = coordinator.call("echo", {"src": np.arange(LARGE)})
            np.testing.assert_array_equal(answer["src"], np.arange(LARGE))
        assert not coordinator.sessions.all[0]._memory._agreed
        assert workers[0].session._shared is not None
        assert all_free(coordinator, workers)


def test_a_graph_that_is_closed_while_memory_is_made_leaves_no_name(monkeypatch):
    made, begun, go_on = local_memory._make_segment, threading.Event(), threading.Event()

    def slowly(nbytes):
        begun.set()
        go_on.wait(10)
        return made(nbytes)

    make, ended = local_memory._Making.make, threading.Event()

    def make_and_tell(self, nbytes):
        try:
            return make(self, nbytes)
        finally:
            ended.set()

    def call(coordinator):
        with pytest.raises(MgraphError):
            coordinator.call("echo", {"src": np.arange(LARGE)})

    monkeypatch.setattr(local_memory, "_make_segment", slowly)
    monkeypatch.setattr(local_memory._Making, "make", make_and_tell)
    with fake_cluster(1) as (coordinator, _):
        caller = threading.Thread(target=call, args=[coordinator])
        caller.start()
        assert begun.wait(10)
        coordinator.close()
        caller.join(10)
    go_on.set()
    assert ended.wait(10)  # the fixture looks for names
