"""Programs that ranks run together: meetings, messages, leaving and coming back, regions, and tickets of GPUs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exchange_ranks import ranks, run_processes, run_threads
from patience import patience
from spmd import Meeting, thread_exchange

from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.errors import Aborted, CapacityError, DeviceError
from mgraph.exchange import Exchange, ExchangeError, Loopback, gpu_tickets, world
from mgraph.exchange.gpu_tickets import Tickets, Watch
from mgraph.exchange.links import CODE, LINK, RANKS, Link, Links
from mgraph.exchange.segment import Segment
from mgraph.kernels import load
from mgraph.partition import Partition

PROGRAM = str(Path(__file__).parents[1] / "support" / "meetings.cuh")
ROOM = 64
LIMIT = 60
ENDLESS = 1 << 40  #: rounds


def meet(
    exchange: Exchange, device: Device, rounds: int = 9, messages: int = 5, room: int = ROOM, bits: int = 32,
    rows: int = 100, ends: np.ndarray | None = None,
) -> dict[str, int]:  # fmt: skip
    """Run the program of meetings; its last state."""
    own = exchange.world(device)
    layout = own.layout(Partition.equal(rows * exchange.size, exchange.size), room, bits // 8, bitmap=4096)
    return own.run(
        load(device, PROGRAM, MESSAGE_BITS=bits), "Meetings", layout, 100, rounds=rounds, messages=messages,
        bitmap=layout.offsets["bitmap"], ends=device.zeros(1, np.int64) if ends is None else ends,
    )  # fmt: skip


def together(
    size: int,
    work: Callable[[Exchange, Device], Any],
    mapped: bool | str = True,
    aborted: Callable[[], bool] = lambda: False,
) -> list[Any]:
    """What `work` returned or raised on each rank, a thread each."""
    meeting, device = Meeting(size), Device("cpu", threads=2)
    exchanges = [thread_exchange(rank, size, meeting, aborted, device, mapped) for rank in range(size)]
    try:
        with ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(work, exchange, device) for exchange in exchanges]
            return [future.exception(LIMIT) or future.result() for future in futures]
    finally:
        for exchange in exchanges:
            exchange.close()


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
    assert launches > 10


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


# ---- groups of ranks, whose gateways send to each other --------------------------------------------------------------


def test_messages_that_sockets_take_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches end while a message is under way."""
    monkeypatch.setitem(world.PATIENCE, "cpu", 10_000)

    def work(exchange: Exchange, device: Device) -> tuple[int, int]:
        wrong = meet(exchange, device, 8, messages=30_001, bits=64, rows=40_000)["wrong"]
        return wrong, exchange.world(device).launches

    for wrong, launches in together(4, work, "hosts"):
        assert wrong == 0
        assert launches > 9


#: two hosts; unequal ones, one of a single rank; three, and a rank that is a gateway to several; each rank a host
HOSTS = ["groups-0011", "groups-00001", "groups-001122", "groups-0102", "groups-0123", "tcp-4"]


@pytest.mark.parametrize("hosts", HOSTS)
def test_gateways_send_within_a_launch(hosts: str) -> None:
    device = Device("cpu", threads=1)

    def work(exchange: Exchange) -> list[int]:
        wrong = [meet(exchange, device, 50, messages)["wrong"] for messages in (0, 3, 100)]
        exchange.barrier()  # the same sockets serve collectives
        wrong.append(meet(exchange, device, 10)["wrong"])
        assert exchange.world(device)._links is not None
        return wrong

    kind, _, of = hosts.partition("-")
    size = len(of) if kind == "groups" else int(of)
    assert run_threads(hosts if kind == "groups" else kind, size, work) == [[0] * 4] * size


@pytest.mark.parametrize(("mapped", "links"), [(True, 0), ("carried", 0), ("hosts", 1)])
def test_memory_for_programs_is_counted_with_that_of_links(mapped: bool | str, links: int) -> None:
    def work(exchange: Exchange, device: Device) -> list[int]:
        before, state = exchange.world_nbytes, meet(exchange, device, rows=100)
        layout = exchange.world(device).layout(Partition.equal(200, 2), 100, 4, bitmap=4096)
        return [before, exchange.world_nbytes - layout.nbytes, state["wrong"]]

    assert together(2, work, mapped) == [[0, links * 8 * LINK, 0]] * 2


def test_words_of_links_are_taken_from_the_budget() -> None:
    many = [Link([1], 0, 0, 1, lambda *_: pytest.fail("no link is used"))] * 4
    with pytest.raises(CapacityError, match=f"{4 * 8 * LINK} bytes are needed .* leaves 5"):
        Links(Device("cpu", budget=Budget(lambda: 5)), many)


@pytest.mark.parametrize("error", [CapacityError("no memory"), OSError("no descriptor")])
def test_programs_go_without_links_if_one_rank_cannot_open_them(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def opened(device: Device, links: list[Link]) -> Links:
        if 0 in links[0].ranks:
            raise error
        return Links(device, links)

    def work(exchange: Exchange, device: Device) -> list[Any]:
        return [exchange.world(device)._links, meet(exchange, device, 20, 3)["wrong"]]

    monkeypatch.setattr("mgraph.exchange.world.Links", opened)
    assert together(2, work, "hosts") == [[None, 0]] * 2


def dies_on_another_host(lost: int, exchange: Exchange, aborted: threading.Event) -> str:
    """Rank `lost` ends while the others wait for it in a program."""
    device = Device("cpu", threads=1)
    meet(exchange, device)
    if exchange.rank == lost:
        os._exit(1)
    threading.Timer(2.0, aborted.set).start()
    try:
        meet(exchange, device, 1000)
    except Aborted as error:
        return "closed" if "has closed its connection" in str(error) else "aborted"
    return "not aborted"


def test_the_end_of_a_gateway_ends_the_wait_of_the_other() -> None:
    lost, ended = [2], partial(dies_on_another_host, 2)
    assert run_processes("groups-0011", 4, ended, lost=lost) == ["closed", "aborted", None, "aborted"]


def test_the_end_of_a_mate_on_another_host_ends_the_wait_with_the_abort() -> None:
    lost, ended = [3], partial(dies_on_another_host, 3)
    first, *others = run_processes("groups-0011", 4, ended, lost=lost)
    assert first in ("aborted", "closed")  # rank 2 may be aborted before
    assert others == ["aborted", "aborted", None]


def test_a_gateway_in_another_call_is_an_error() -> None:
    def work(exchange: Exchange) -> str:
        device = Device("cpu", threads=1)
        meet(exchange, device)
        with pytest.raises((ExchangeError, Aborted)) as error:
            meet(exchange, device) if exchange.rank else exchange.allreduce(np.zeros(2, np.int64))
        return str(error.value)

    first, second = run_threads("groups-01", 2, work)
    assert "is in carry of int64 and rank 0 in allgather of uint8" in second, (first, second)


@pytest.mark.parametrize("hosts", ["groups-012", "tcp"])
def test_a_failed_link_ends_the_wait_of_all_hosts(hosts: str) -> None:
    """Ranks 0 and 1 fail at their link; rank 2 waits for rank 0, and nobody aborts."""
    ended = threading.Barrier(3)

    def work(exchange: Exchange) -> str:
        device = Device("cpu", threads=1)
        meet(exchange, device)
        if exchange.rank == 1:
            (words,) = (words for words in exchange.world(device)._links.words if words[RANKS] == 0)
            words[CODE] += 1
        late = threading.Timer(patience(5), exchange.close)
        late.start()
        with pytest.raises((ExchangeError, Aborted)) as error:
            meet(exchange, device)
        late.cancel()
        ended.wait(timeout=LIMIT)
        with pytest.raises(Aborted, match="failed before"):
            exchange.barrier()
        return str(error.value)

    *_, third = run_threads(hosts, 3, work)
    assert "found that rank 0 has closed its connection" in third


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


# ---- tickets ---------------------------------------------------------------------------------------------------------


def uuids() -> list[bytes]:
    return [b"mgraph-test-%d-%d" % (os.getpid(), i) for i in range(2)]


def test_one_graph_holds_the_tickets_at_a_time() -> None:
    first, second = Tickets(uuids()), Tickets(reversed(uuids()))
    looks = []

    def look() -> None:
        looks.append(time.monotonic())
        if len(looks) == 5:
            first.give()

    first.take(lambda: None)
    second.take(look)
    assert len(looks) == 5
    with pytest.raises(Aborted):
        first.take(aborting)
    second.give()
    first.take(lambda: None)
    for tickets in (first, second):
        tickets.close()
        tickets.close()
    clear_tickets()


def test_copies_take_tickets_after_graphs_that_wait() -> None:
    copy, other, graph = Tickets(uuids()), Tickets(uuids()), Tickets(uuids())
    copy.take(aborting, last=True)
    turns = list[str]()

    def wait(tickets: Tickets, name: str, last: bool) -> None:
        tickets.take(lambda: None, last)
        turns.append(name)
        tickets.give()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, graph, "graph", False)
        time.sleep(0.05)  # it is in the queue
        copy.give()
        wait(copy, "copy", True)
        waiting.result()
    assert turns == ["graph", "copy"]

    # A graph that has ended its wait is not in the way, nor is another copy.
    other.take(aborting, last=True)
    with pytest.raises(Aborted):
        graph.take(aborting)
    other.give()
    copy.take(aborting, last=True)
    for tickets in (copy, other, graph):
        tickets.close()
    clear_tickets()


def test_nobody_overtakes_the_first_in_the_queue() -> None:
    holder, others = Tickets(uuids()), [Tickets(uuids()[:1]), Tickets(uuids()[1:])]
    holder.take(aborting)
    assert not holder.wanted()
    turns = list[int]()

    def wait(number: int) -> None:
        others[number].take(lambda: None)
        turns.append(number)
        others[number].give()

    for number in (0, 1):  # for either of the GPUs
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait, number)
            until(holder.wanted)
            holder.give()
            holder.take(lambda: None)
            assert turns == list(range(number + 1))
            waiting.result()
    assert not holder.wanted()
    for tickets in (holder, *others):
        tickets.close()
    clear_tickets()


def test_a_watch_tells_that_another_graph_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tickets, "IDLE", 0.0)
    word = np.zeros(2, np.int64)
    holder, other, watch = Tickets(uuids()), Tickets(uuids()), Watch(uuids(), word)
    for _ in range(3):
        until(lambda: not watch._awake.is_set())  # without programs it sleeps
        holder.take(aborting)
        watch.begin()
        time.sleep(5 * gpu_tickets.STAY)
        assert word.tolist() == [0, 0]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.take, lambda: None)
            until(lambda: word[0] == 1)
            watch.end()
            holder.hand_on()
            waiting.result()
        other.give()
    watch.close()
    watch.close()
    assert not watch._thread.is_alive()
    for tickets in (holder, other):
        tickets.close()
    clear_tickets()


def until(done: Callable[[], Any]) -> None:
    """Wait until `done` returns a true value."""
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end
        time.sleep(1e-3)


def with_tickets(exchange: Exchange, device: Device) -> world.World:
    """The world of a rank whose programs hold tickets, as on GPUs."""
    own = exchange.world(device)
    own._open_tickets(uuids())
    return own


@pytest.fixture
def leaves_for_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A launch on a CPU leaves as on a GPU: only if another graph waits."""
    monkeypatch.setattr(world, "STAY_OF_CPU", 1 << 30)
    yield
    clear_tickets()


@pytest.mark.usefixtures("leaves_for_others")
def test_a_program_alone_does_not_leave() -> None:
    def work(exchange: Exchange, device: Device) -> tuple[int, int]:
        own, began = with_tickets(exchange, device), time.monotonic()
        while exchange.least(int(time.monotonic() - began < 0.3)):
            assert meet(exchange, device, 500)["wrong"] == 0
        return own.runs, own.stays

    for runs, stays in together(2, work):
        assert runs == stays


@pytest.mark.usefixtures("leaves_for_others")
def test_a_long_program_leaves_for_short_ones() -> None:
    ends = np.zeros(1, np.int64)

    def work(exchange: Exchange, device: Device) -> tuple[int, int]:
        own = with_tickets(exchange, device)
        assert meet(exchange, device, ENDLESS, ends=ends)["wrong"] == 0
        return own.runs, own.stays

    def search(exchange: Exchange, device: Device) -> list[float]:
        own, times = with_tickets(exchange, device), []
        for _ in range(20):
            time.sleep(0.02)
            began = time.monotonic()
            assert meet(exchange, device, 3)["wrong"] == 0
            times.append(time.monotonic() - began)
            exchange.barrier()
        assert own.runs == 20 <= own.stays  # on busy cores a short one stays for long, too
        return sorted(times)

    with ThreadPoolExecutor(2) as pool:
        graphs = [pool.submit(together, 2, both) for both in (work, search)]
        try:
            times = graphs[1].result()[0]
        finally:
            ends[0] = 1
        (runs, stays), (_, other_stays) = graphs[0].result()
    assert stays == other_stays > runs + 5
    assert times[10] < patience(0.06)


@pytest.mark.usefixtures("leaves_for_others")
def test_long_programs_take_turns() -> None:
    """Three of them, which begin at the same time and run until each has stayed four times."""
    begin, ends, worlds = threading.Barrier(6), np.zeros(1, np.int64), list[world.World]()

    def work(exchange: Exchange, device: Device) -> int:
        own = with_tickets(exchange, device)
        worlds.append(own)
        begin.wait(LIMIT)
        assert meet(exchange, device, ENDLESS, ends=ends)["wrong"] == 0
        return own.stays

    with ThreadPoolExecutor(3) as pool:
        graphs = [pool.submit(together, 2, work) for _ in range(3)]
        try:
            until(lambda: len(worlds) == 6 and min(own.stays for own in worlds) > 3)
        finally:
            ends[0] = 1
        for graph in graphs:
            stays, other_stays = graph.result()
            assert stays == other_stays


def test_the_tickets_of_a_process_that_ended_are_free() -> None:
    child = os.fork()
    if child == 0:
        Tickets(uuids_of(os.getppid())).take(lambda: None)
        os._exit(0)
    os.waitpid(child, 0)
    tickets = Tickets(uuids())
    tickets.take(aborting)
    tickets.close()
    clear_tickets()


def uuids_of(pid: int) -> list[bytes]:
    return [b"mgraph-test-%d-%d" % (pid, i) for i in range(2)]


def clear_tickets() -> None:
    for path in Path("/dev/shm").glob("mgraph.gpu.*"):
        if bytes.fromhex(path.name.rpartition(".")[2]) in uuids():  # others may run the same test
            path.unlink()


def aborting() -> None:
    raise Aborted("another graph holds a ticket")
