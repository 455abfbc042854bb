"""Programs that ranks run together: meetings, messages, leaving and coming back, regions, and closing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from exchange_ranks import ranks, run_processes
from worlds import ENDLESS, LIMIT, ROOM, meet, together, until

from mgraph.device import Device
from mgraph.errors import Aborted, CapacityError, DeviceError
from mgraph.exchange import Exchange, Loopback, world
from mgraph.exchange.segment import Segment
from mgraph.partition import Partition


@pytest.mark.parametrize("messages", [0, 5, ROOM, ROOM + 36])
@pytest.mark.parametrize("mapped", [True, False, "hosts", "carried"])
@pytest.mark.parametrize(("size", "bits"), [(1, 32), (2, 64), (3, 32), (3, 64)])
def test_every_rank_hears_what_all_say(size: int, bits: int, mapped: bool | str, messages: int) -> None:
    if mapped is not True and messages == ROOM + 36:
        messages += 100 - ROOM  # where ranks are apart, an inbox holds a range
    room = ROOM if mapped is True else 100
    for state in together(size, lambda exchange, device: meet(exchange, device, 41, messages, room, bits=bits), mapped):
        assert state["round"] == 41
        assert state["total"] == state["expected"] == 820 * size * (size + 1) // 2
        assert state["wrong"] == 0


def test_tags_go_on_over_runs() -> None:
    def work(exchange: Exchange, device: Device) -> list[int]:
        return [meet(exchange, device, rounds)["wrong"] for rounds in (1, 2, 3, 5, 8)]

    assert together(3, work) == [[0] * 5] * 3


@pytest.mark.parametrize("mapped", [True, "hosts"])
def test_a_rank_leaves_while_another_is_late_and_goes_on(monkeypatch: pytest.MonkeyPatch, mapped: bool | str) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 1_000_000)

    def work(exchange: Exchange, device: Device) -> tuple[int, int]:
        meet(exchange, device)
        before = exchange.world(device).launches
        time.sleep(0.2 * exchange.rank)
        return meet(exchange, device)["wrong"], exchange.world(device).launches - before

    (wrong, launches), (also_wrong, _) = together(2, work, mapped)
    assert wrong == also_wrong == 0
    assert launches > 2  # one for each millisecond that a fast machine waits


@pytest.mark.parametrize(("size", "rounds", "mapped"), [(1, 30_000, True), (3, 300, True), (3, 100, "hosts")])
def test_a_launch_that_does_not_wait_ends_after_a_while_too(
    monkeypatch: pytest.MonkeyPatch, size: int, rounds: int, mapped: bool | str
) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 10_000)

    def work(exchange: Exchange, device: Device) -> tuple[int, int]:
        wrong = meet(exchange, device, rounds)["wrong"]
        return wrong, exchange.world(device).launches

    for wrong, launches in together(size, work, mapped):
        assert wrong == 0
        assert launches > 2


@pytest.mark.parametrize("mapped", [True, "hosts"])
def test_abort_ends_the_wait_for_a_rank_that_does_not_come(mapped: bool | str) -> None:
    stop, came = threading.Event(), threading.Event()

    def work(exchange: Exchange, device: Device) -> float:
        meet(exchange, device)
        if exchange.rank == 1:
            came.wait(LIMIT)
            time.sleep(0.05)
            stop.set()
            return 0.0
        came.set()
        with pytest.raises(Aborted):
            meet(exchange, device)
        return time.monotonic()

    assert together(2, work, mapped, aborted=stop.is_set)[1] == 0.0


@pytest.mark.parametrize("mapped", [True, False, "hosts"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_that_map_each_other_have_one_memory(size: int, mapped: bool | str) -> None:
    assert (
        together(size, lambda exchange, device: exchange.world(device).one_memory, mapped)
        == [size > 1 and mapped is True] * size
    )


def test_the_first_region_alone_has_arrays_of_all_ranks() -> None:
    def work(exchange: Exchange, device: Device) -> tuple[list[int], list[int]]:
        own, parts, sizes = exchange.world(device), Partition.equal(30, 3), []
        for nbytes, private in ((4096, 256), (1024, 512), (2048, 2048)):
            layout = own.layout(parts, 0, 4, {"shared": nbytes}, own=private)
            sizes.append(own.nbytes)
        shared = own.common_array(layout, "shared", 256, np.int64)
        shared[exchange.rank] = exchange.rank + 1
        exchange.barrier()
        return sizes, shared[:3].tolist()

    (first, values), *others = together(3, work)
    assert values == [1, 2, 3]
    assert others[0] == others[1]
    assert others[0][1] == values
    before = first[0] - 4096 - 256
    assert first == [before + 4096 + 256] * 3
    assert others[0][0] == [before + 256, before + 512, before + 2048]


@pytest.mark.parametrize("common", [0, 256])
def test_no_rank_begins_a_program_with_arrays_of_all_before_each_is_there(
    monkeypatch: pytest.MonkeyPatch, common: int
) -> None:
    monkeypatch.setitem(world.PATIENCE, "cpu", 1_000_000)
    ends, worlds = np.ones(1, np.int64), {}

    def work(exchange: Exchange, device: Device) -> int:
        meet(exchange, device, ends=ends, common=common)
        own = exchange.world(device)
        worlds[exchange.rank] = own, own.launches
        exchange.barrier()
        if exchange.rank == 1:
            first, before = worlds[0]
            until(lambda: first.launches > before + 1)  # the second one waits still
            ends[0] = 0
        return meet(exchange, device, ends=ends, common=common)["round"]

    assert together(2, work) == [9 if common else 1] * 2  # a rank that began had read that the first round is the last


@pytest.fixture
def _no_names_stay() -> Iterator[None]:
    """No segment of this process has a name at the end; other processes may make some."""
    create, made = Segment.create, list[str]()

    def noted(nbytes: int, extra: dict[str, Any]) -> Any:
        segment, place = create(nbytes, extra)
        made.append(place.path)
        return segment, place

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "create", noted)
        yield
    assert made
    assert not [path for path in made if os.path.exists(path)]


@pytest.mark.usefixtures("_no_names_stay")
def test_regions_grow_and_leave_no_names() -> None:
    def work(exchange: Exchange, device: Device) -> list[int]:
        wrong, sizes = [], []
        for room in (8, 1 << 12, 16, 1 << 14):
            wrong.append(meet(exchange, device, room=room)["wrong"])
            sizes.append(exchange.world_nbytes)
        assert sizes[0] < sizes[1] == sizes[2] < sizes[3]
        return wrong

    assert together(2, work) == [[0] * 4] * 2


@pytest.mark.usefixtures("_no_names_stay")
def test_no_rank_has_a_region_where_one_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    create = Segment.create

    def refuse(nbytes: int, extra: dict[str, Any]) -> Any:
        if threading.current_thread().name.endswith("_1"):
            raise DeviceError(f"{nbytes} bytes of shared memory cannot be had")
        return create(nbytes, extra)

    def work(exchange: Exchange, device: Device) -> str:
        threading.current_thread().name = f"rank_{exchange.rank}"
        with pytest.raises(CapacityError) as error:
            meet(exchange, device)
        exchange.barrier()
        if exchange.rank == 0:
            monkeypatch.undo()
        exchange.barrier()
        assert meet(exchange, device)["wrong"] == 0
        return str(error.value)

    monkeypatch.setattr(Segment, "create", refuse)
    answers = together(2, work)
    assert all(isinstance(answer, str) and answer.startswith("rank 1 has no") for answer in answers), answers


def in_a_process(exchange: Exchange, aborted: threading.Event) -> int:
    if not os.environ.get("ON_GPUS"):
        device = Device("cpu", threads=1)
    else:
        device = Device.of(f"cuda:{exchange.rank}")
        device.use()
        fill_shared_memory(device)
    return sum(meet(exchange, device, 200)["wrong"] for _ in range(5))


def fill_shared_memory(device: Device) -> None:
    """Leave ones in the shared memory of all multiprocessors: a kernel must not read what it has not written."""
    kernel = device.xp.RawKernel(
        """extern "C" __global__ void fill(int* out) {
               extern __shared__ int words[];
               for (int i = threadIdx.x; i < 12288; i += blockDim.x) words[i] = -1;
               __syncthreads();
               out[blockIdx.x] = words[threadIdx.x];
           }""",
        "fill",
    )
    kernel((2048,), (1024,), (device.xp.empty(2048, np.int32),), shared_mem=49152)


def dies(exchange: Exchange, aborted: threading.Event) -> str:
    """Rank 1 ends while the others wait for it in a program."""
    device = Device("cpu", threads=1)
    meet(exchange, device)
    if exchange.rank == 1:
        os._exit(1)
    threading.Timer(0.2, aborted.set).start()  # as the client does when a session ends
    try:
        meet(exchange, device, 1000)
    except Aborted:
        return "aborted"
    return "not aborted"


def test_processes_meet() -> None:
    assert run_processes("peer", 2, in_a_process) == [0, 0]


def test_a_rank_that_dies_ends_the_others_wait() -> None:
    assert run_processes("peer", 3, dies, lost=[1]) == ["aborted", None, "aborted"]


# ---- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["peer", "groups-00", "groups-01", "tcp"])
def test_close_from_another_thread_ends_a_program_and_frees_its_memory(kind: str) -> None:
    device = Device("cpu", threads=1)
    with ranks(kind, 2, [lambda: False] * 2) as made, ThreadPoolExecutor(2) as pool:
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made))
        list(pool.map(lambda exchange: meet(exchange, device), made))
        running = [pool.submit(meet, exchange, device, ENDLESS) for exchange in made]
        time.sleep(0.05)
        for exchange in made:
            exchange.close()
        for run in running:
            with pytest.raises(Aborted, match="closed"):
                run.result(LIMIT)
        for own in (exchange.world(device) for exchange in made):
            assert own._region is None
            assert own._links is None or not own._links.close.alive


def test_a_child_that_is_forked_within_a_launch_closes_its_copy() -> None:
    ends, exchange, device = np.zeros(1, np.int64), Loopback(lambda: False), Device("cpu", threads=1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(meet, exchange, device, ENDLESS, ends=ends)
        until(lambda: exchange._world and exchange._world.launches)
        lock = exchange.world(device)._lock
        until(lambda: not lock.acquire(False) or lock.release())
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT)
            exchange.close()
            os._exit(0)
        ended = os.waitpid(child, 0)
        ends[0] = 1
        assert ended == (child, 0)
        assert running.result(LIMIT)["wrong"] == 0


@pytest.mark.multigpu
def test_gpus_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ON_GPUS", "1")
    assert run_processes("peer", 2, in_a_process, devices=["cuda:0", "cuda:1"]) == [0, 0]


@pytest.mark.gpu
def test_one_gpu_meets_itself() -> None:
    device = Device("cuda", 0)
    device.use()
    exchange = world_of_one()
    assert meet(exchange, device, 1000)["wrong"] == 0
    exchange.close()


def world_of_one() -> Exchange:
    from mgraph.exchange import Loopback

    return Loopback()
