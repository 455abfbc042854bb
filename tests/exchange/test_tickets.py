"""Tickets of GPUs: graphs take turns, nobody overtakes, and a process that ends gives its tickets back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from patience import patience
from worlds import ENDLESS, LIMIT, meet, together, until

from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.exchange import Exchange, gpu_tickets, world
from mgraph.exchange.gpu_tickets import Tickets, Watch


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
