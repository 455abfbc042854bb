"""The budget that a worker's graphs share, and devices that take from it."""

from __future__ import annotations

import pickle
from functools import partial
from threading import Barrier, Thread

import numpy as np
import pytest
from graph_model import random_batch
from ledger import Ledger
from ranks import Ranks, settled

from mgraph import CapacityError
from mgraph.budget import GRAIN, Budget
from mgraph.device import Device, touch_pages
from mgraph.worker import memory
from mgraph.worker.commit import route
from mgraph.worker.memory import budget_under, map_pages, resident_bytes

N, MIB = 100_000, 1 << 20


class Left:
    """So many bytes are left, whatever is taken."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def __call__(self) -> int:
        return self.nbytes


@pytest.mark.parametrize("touch", [touch_pages, map_pages])
def test_what_a_device_takes_is_its_own_at_once(touch):
    """The system maps memory when it is written: who asks next would be told too much."""
    limited = Device(budget=Budget(Left(1 << 40)), touch=touch)
    limited.empty(8 * MIB, np.uint8)  # which compiles
    before = resident_bytes()
    taken = limited.empty(200 * MIB, np.uint8)  # more than an allocator keeps for later
    assert 190 * MIB < resident_bytes() - before < 300 * MIB
    assert len(taken) == 200 * MIB


def test_an_allocation_past_the_budget_is_refused_with_both_numbers():
    limited = Device(budget=Budget(Left(5)))
    with pytest.raises(
        CapacityError, match="8388608 bytes are needed for an array of 1048576 float64, and .* limit leaves 5"
    ):
        limited.empty(MIB, np.float64)
    assert len(limited.empty(GRAIN - 1, np.uint8)) == GRAIN - 1  # not worth asking


def test_reservations_add_up_and_are_given_back_once():
    budget = Budget(Left(10 * MIB))
    first, second = budget.reserve(4 * MIB, "one"), budget.reserve(5 * MIB, "another")
    assert budget.left() == MIB
    with pytest.raises(CapacityError, match=f"{2 * MIB} bytes are needed for a third, .* leaves {MIB}"):
        budget.reserve(2 * MIB, "a third")
    first.release()
    first.release()
    assert budget.left() == 5 * MIB
    with budget.reserve(5 * MIB, "a fourth"):
        assert budget.left() == 0
    second.release()
    assert budget.left() == 10 * MIB


def test_threads_do_not_take_the_same_bytes():
    """Each sees room for itself alone: what one is about to map is not resident yet."""
    budget, refused, meet = Budget(Left(10 * MIB)), [], Barrier(8)

    def take() -> None:
        meet.wait()
        try:
            kept.append(budget.reserve(3 * MIB, "a thread"))
        except CapacityError as error:
            refused.append(error)

    kept: list[object] = []
    threads = [Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(kept), len(refused)) == (3, 5)


def test_what_is_not_used_is_given_back_before_anything_is_refused():
    left = Left(0)
    budget = Budget(left, reclaim=lambda: setattr(left, "nbytes", 5 * MIB))
    assert budget.reserve(4 * MIB, "what fits then")


def test_what_is_reclaimed_may_be_reservations():
    budget = Budget(Left(4 * MIB), reclaim=lambda: first.release())
    first = budget.reserve(3 * MIB, "what a collector finds")
    assert budget.reserve(4 * MIB, "what fits then")
    assert budget.left() == 0


def test_a_device_is_pickled_without_the_limit_of_its_process():
    device = pickle.loads(pickle.dumps(Device(threads=3, budget=Budget(Left(5)))))
    assert (device.threads, device.budget.limited) == (3, False)


def test_a_process_under_its_limit_has_what_is_left_of_it():
    limit = resident_bytes() + memory.MARGIN + 50 * MIB
    budget = budget_under(limit)
    assert 40 * MIB < budget.left() <= 51 * MIB
    with pytest.raises(CapacityError, match=f"{limit} bytes are needed"):
        Device(budget=budget).empty(limit, np.uint8)  # whatever is given back before
    assert not budget_under(None).limited


def test_the_worker_memory_limit_refuses_a_batch():
    left = {0: 1 << 62, 1: 1 << 62}
    ranks = Ranks((0, 13, N), memory_left=lambda rank: left[rank])
    rng = np.random.default_rng(0)
    ranks.update(random_batch(rng, N, 300, False), 1)
    before = repr(ranks.snapshot())
    left[1] = 0
    answers = ranks.update(random_batch(rng, N, 900_000, False), 2)
    assert isinstance(answers[1], CapacityError)
    assert "the worker's memory limit leaves 0" in str(answers[1])
    left[1] = 1 << 62
    assert repr(ranks.snapshot()) == before


def test_what_is_reserved_for_a_call_is_its_own_once_it_arrives_or_is_given_up():
    ranks = Ranks((0, 13, N), memory_left=lambda rank: 10 * MIB, weighted=True)
    budgets = [servant.host.budget for servant in ranks.servants]
    assert [answer["lack"] for answer in ranks.call("reserve", nbytes=MIB)] == [None, None]
    assert [budget.left() for budget in budgets] == [9 * MIB] * 2
    ranks.call("reserve", nbytes=MIB, operations=1000, columns=True)  # another one takes its place
    assert [budget.left() for budget in budgets] == [9 * MIB - 32_000] * 2
    ranks.servants[0].received()
    settled(ranks.servants[1])
    assert [budget.left() for budget in budgets] == [10 * MIB] * 2
    lacks = [answer["lack"] for answer in ranks.call("reserve", nbytes=MIB, operations=10 * MIB)]
    assert lacks == [
        f"rank {rank}: {81 * MIB} bytes are needed for {10 * MIB} operations that are to be sent, "
        f"and the worker's memory limit leaves {10 * MIB}"
        for rank in range(2)
    ]


@pytest.mark.parametrize(("directed", "columns"), [(True, False), (True, True), (False, False), (False, True)])
def test_a_share_takes_what_its_worker_was_asked_for(directed, columns):
    """At least that much, so that no batch is refused before it is sent where it would have fitted."""
    n, ranks = 300_000, Ranks((0, N), directed=directed, weighted=True)
    batch = random_batch(np.random.default_rng(0), N, n, columns, deletes=0)
    with Ledger() as ledger:
        route.share_runs(ranks.shards[0], batch.src, batch.dst, batch.weight)
    least = route.least_bytes(ranks.shards[0], n, columns)
    assert least <= ledger.peak <= 2 * least


HELPERS = {
    "asarray": lambda device, a: device.asarray(a[::2], np.int64),
    "astype": lambda device, a: device.astype(a, np.int64),
    "gather": lambda device, a: device.gather(a, a[::-1]),
    "repeat": lambda device, a: device.repeat(a, 2),
    "concatenate": lambda device, a: device.concatenate([a, a[:5]]),
    "cumsum": lambda device, a: device.cumsum(a, device.empty(len(a), np.int64)),
    "cumsum in place": lambda device, a: device.cumsum(own := device.astype(a, np.uint32), own),
    "arange": lambda device, a: device.arange(3, 3 + len(a), np.uint32),
}
WANTED = {
    "asarray": lambda a: a[::2].astype(np.int64),
    "astype": lambda a: a.astype(np.int64),
    "gather": lambda a: a[a[::-1]],
    "repeat": lambda a: np.repeat(a, 2),
    "concatenate": lambda a: np.concatenate([a, a[:5]]),
    "cumsum": lambda a: np.cumsum(a, dtype=np.int64),
    "cumsum in place": lambda a: np.cumsum(a, dtype=np.uint32),
    "arange": lambda a: np.arange(3, 3 + len(a), dtype=np.uint32),
}


@pytest.mark.parametrize("name", HELPERS)
@pytest.mark.parametrize("n", [0, 1, 1000, 300_001])
@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_helpers_give_what_numpy_gives(name, n, kind):
    device = Device(kind)
    given = np.random.default_rng(n).permutation(n).astype(np.uint32)
    got = HELPERS[name](device, device.asarray(given))
    want = WANTED[name](given)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(device.to_host(got), want)


@pytest.mark.parametrize("name", HELPERS)
def test_helpers_take_from_the_budget(name):
    given, left = np.random.default_rng(0).permutation(MIB).astype(np.uint32), Left(1 << 62)
    device = Device(budget=Budget(left))
    call = partial(HELPERS[name], device, given)
    call()
    left.nbytes = GRAIN
    with pytest.raises(CapacityError):
        call()
