"""Programs of ranks on several hosts: gateways send to each other within a launch, and what fails ends all waits."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from exchange_ranks import run_processes, run_threads
from patience import patience
from worlds import LIMIT, meet, together

from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.errors import Aborted, CapacityError
from mgraph.exchange import Exchange, ExchangeError, world
from mgraph.exchange.links import CODE, LINK, RANKS, Link, Links
from mgraph.partition import Partition


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
        return [before, exchange.world_nbytes - layout.sizes[exchange.rank], state["wrong"]]

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
