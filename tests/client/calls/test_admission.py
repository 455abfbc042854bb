"""What is sent to workers that may have no room for it: only after they kept memory for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import fake_cluster, sending
from interrupts import after, ctrl_c

from mgraph.calls import CallSize
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.calls.admission import SMALL, WORK, may_lack_memory, refusal
from mgraph.errors import CapacityError
from mgraph.protocol import ShardState

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20
BIG = np.zeros(6 * MIB, np.uint8)


def states(*left: int) -> list[ShardState]:
    return [ShardState(memory_left=nbytes) for nbytes in left]


@pytest.mark.parametrize(
    ("nbytes", "flying", "left", "expected"),
    [
        (SMALL, 0, 0, False),  # nobody is asked for that
        (SMALL + 1, 0, 0, True),
        (SMALL + 1, 0, SMALL + 1, False),
        (SMALL + 1, 0, SMALL, True),
        (SMALL, 1, 0, True),  # together it is more
        (5 * MIB, 4 * MIB, 9 * MIB, False),
        (5 * MIB, 4 * MIB, 9 * MIB - 1, True),
    ],
)
def test_who_is_asked(nbytes, flying, left, expected):
    others = [[CallSize(0), CallSize(flying)]] if flying else []
    assert may_lack_memory([CallSize(0), CallSize(nbytes)], others, states(1 << 62, left)) is expected


def test_a_worker_is_asked_where_it_has_no_room_to_work_on_the_operations():
    small, large = CallSize(5 * MIB, 0), CallSize(5 * MIB, 10_000)
    left = states(5 * MIB + 10_000 * WORK - 1)
    assert [may_lack_memory([size], [], left) for size in (small, large)] == [False, True]
    assert not may_lack_memory([large], [], states(5 * MIB + 10_000 * WORK))


def test_why_a_worker_has_no_room():
    assert refusal([{"lack": None}, {"lack": None}]) is None
    assert refusal([{"lack": None}, {"lack": "rank 1: no"}]) == "rank 1: no"


def told(workers: Any, rank: int) -> list[str]:
    """What a worker was asked for, and what it kept and did since."""
    return [line for line in workers[rank].log if line.split()[0] in ("asked", "release", "begin")]


def test_workers_that_have_room_are_not_asked():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("update", {"array": BIG})
        coordinator.call("have", {"left": 0})
        coordinator.call("update", {"array": BIG[:SMALL]})
        assert told(workers, 0) == ["begin 1", "begin 2"]


def test_memory_is_kept_until_what_it_is_for_has_arrived():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("have", shares=[{"left": 1 << 62}, {"left": 7 * MIB}])
        coordinator.call("update", {"src": BIG})  # which takes more than its bytes
        assert told(workers, 0) == told(workers, 1) == [f"asked {6 * MIB}", f"release {6 * MIB}", "begin 1"]


def test_nothing_is_sent_where_one_worker_has_no_room_and_the_others_keep_nothing():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("have", shares=[{"left": 1 << 62}, {"left": 5 * MIB}])
        with pytest.raises(CapacityError, match=f"graph g: rank 1: {6 * MIB} bytes are needed.*; nothing was sent"):
            coordinator.call("update", {"array": BIG})
        assert told(workers, 0) == [f"asked {6 * MIB}", f"release {6 * MIB}", "asked 0"]
        assert coordinator.status.states[0].memory_left == 1 << 62
        coordinator.call("update", {"array": BIG[:9]})
        assert coordinator.status.epoch == 1


def pipeline(coordinator: Any) -> Pipeline:
    return Pipeline(coordinator, sending(coordinator), 1 << 30)


def test_in_a_pipeline_a_batch_waits_for_those_before_it_and_workers_that_may_still_lack_room_are_asked():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("have", {"left": 10 * MIB})
        with pipeline(coordinator) as pipe:
            first = pipe.update({"array": BIG, "seconds": 0.3})
            second = pipe.update({"array": BIG})  # the two are more than there is
            assert first.done()
            third = pipe.update({"src": BIG})
            assert second.done()
            assert third.result(5).epoch == 3
        assert told(workers, 0) == ["begin 1", "begin 2", f"asked {6 * MIB}", f"release {6 * MIB}", "begin 3"]


def test_a_batch_that_is_not_sent_does_not_end_its_pipeline():
    with fake_cluster(2) as (coordinator, _):
        coordinator.call("have", {"left": 5 * MIB})
        with pipeline(coordinator) as pipe:
            pending = [pipe.update({})]
            with pytest.raises(CapacityError, match="nothing was sent"):
                pipe.update({"array": BIG})
            pending.append(pipe.update({}))
        assert [p.result(0).epoch for p in pending] == [1, 2]


def test_a_batch_that_fails_is_what_is_raised_by_the_one_that_waits_to_be_sent():
    with fake_cluster(2) as (coordinator, _):
        coordinator.call("have", {"left": 10 * MIB})
        with pytest.raises(CapacityError, match="rank 1 has no room .the batch of epoch 1"), pipeline(coordinator) as p:
            p.update({"array": BIG, "fails": [1]})
            p.update({"array": BIG})


def test_ctrl_c_while_a_batch_waits_for_room():
    with fake_cluster(2) as (coordinator, _):
        coordinator.call("have", {"left": 10 * MIB})
        with pytest.raises(KeyboardInterrupt), pipeline(coordinator) as pipe:
            pipe.update({"array": BIG, "fails": [7]})  # until it is aborted
            with after(0.5, ctrl_c):
                pipe.update({"array": BIG})
        assert coordinator.call("echo")
        assert (coordinator.status.epoch, coordinator.status.states[1].memory_left) == (0, 10 * MIB)
