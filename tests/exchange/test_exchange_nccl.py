"""NCCL alone, with a stand-in for it: when it is called, how it begins and ends, and what it does about failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from exchange_ranks import KEY, LIMIT, hub_on, ranks, running_loop
from pretend_gpu import PretendGpu, PretendNcclModule, on_gpu
from pretend_nccl import PretendCommunicator, PretendError, PretendNccl

from mgraph.device import Device
from mgraph.errors import Aborted, DeviceError, WorkerLost
from mgraph.exchange import ExchangeError
from mgraph.exchange.nccl import NcclExchange
from mgraph.exchange.nccl_api import Nccl, nccl_installed
from mgraph.exchange.tcp import TcpExchange

CPU = Device("cpu")


@contextmanager
def connected(
    kind: str = "pretend", size: int = 2, aborted: Any = lambda: False
) -> Iterator[tuple[list[NcclExchange], ThreadPoolExecutor]]:
    """Ranks that are ready, and threads to use them in."""
    with ranks(kind, size, [aborted] * size) as made, ThreadPoolExecutor(size) as pool:
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        yield made, pool  # type: ignore[misc]
    assert not PretendCommunicator.living, "communicators were left"


def test_empty_parts_start_no_kernel() -> None:
    with connected(size=3) as (made, pool):
        before = [exchange._api.groups for exchange in made]
        for got in pool.map(lambda e: e.alltoallv([np.zeros(0, np.uint32)] * 3), made, timeout=LIMIT):
            assert [p.size for p in got] == [0, 0, 0]
        assert [exchange._api.groups for exchange in made] == before
        list(pool.map(lambda e: e.alltoallv([np.zeros(5)] * 3), made, timeout=LIMIT))
        assert [exchange._api.groups for exchange in made] == [n + 1 for n in before]


def test_own_part_does_not_travel() -> None:
    with connected() as (made, pool):
        before = [exchange._api.groups for exchange in made]
        own = [[np.ones(3 if r == e.rank else 0) for r in range(2)] for e in made]
        for rank, got in enumerate(pool.map(lambda e: e.alltoallv(own[e.rank]), made, timeout=LIMIT)):
            assert got[rank] is own[rank][rank]
        assert [exchange._api.groups for exchange in made] == before


def test_peer_is_lost_between_counts_and_data() -> None:
    abort = threading.Event()
    with connected(aborted=abort.is_set) as (made, pool):
        made[1]._api.swap = lambda comm, sends, receives: None  # type: ignore[method-assign]
        made[1]._api.done = lambda: True  # type: ignore[method-assign]
        waiting = pool.submit(made[0].alltoallv, [np.zeros(9)] * 2)
        pool.submit(made[1].alltoallv, [np.zeros(9)] * 2).result(LIMIT)
        time.sleep(0.1)
        assert not waiting.done()
        abort.set()
        with pytest.raises(Aborted, match="rank 0, step 0, was aborted"):
            waiting.result(1)


def test_nccl_reports_a_lost_peer() -> None:
    with connected() as (made, pool):
        made[1]._api.swap = lambda comm, sends, receives: None  # type: ignore[method-assign]
        made[1]._api.done = lambda: True  # type: ignore[method-assign]
        waiting = pool.submit(made[0].alltoallv, [np.zeros(9)] * 2)
        pool.submit(made[1].alltoallv, [np.zeros(9)] * 2).result(LIMIT)
        made[0]._comm.error = "remote process exited"
        with pytest.raises(Aborted, match="rank 0, step 0, lost another rank: remote process exited"):
            waiting.result(1)
        with pytest.raises(Aborted, match="failed before"):
            made[0].barrier()


def test_counts_travel_alike_on_all_ranks() -> None:
    with running_loop() as loop, hub_on(loop) as hub, ExitStack() as stack:
        small = TcpExchange(0, 2, lambda: False, CPU, hub=hub, key=KEY)
        made = [
            NcclExchange(0, 2, lambda: False, CPU, small=small, api=PretendNccl()),  # type: ignore[arg-type]
            NcclExchange(1, 2, lambda: False, CPU, api=PretendNccl()),  # type: ignore[arg-type]
        ]
        for exchange in made:
            stack.callback(exchange.close)
        with pytest.raises(ExchangeError, match="rank 1 sends its counts over nccl and rank 0 over tcp"):
            made[0].connect([exchange.address for exchange in made])


def test_nccl_refuses() -> None:
    class Refusing(PretendNccl):
        def communicator(self, size: int, unique_id: bytes, rank: int) -> Any:
            raise PretendError("Duplicate GPU detected")

    exchange = NcclExchange(0, 1, lambda: False, CPU, api=Refusing())  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="rank 0 on cpu: NCCL failed: Duplicate GPU .*a GPU of its own"):
        exchange.connect([exchange.address])
    exchange.close()


@pytest.mark.parametrize("how", ["aborted", "late"])
def test_a_communicator_that_nobody_waits_for_any_more_is_destroyed(how: str) -> None:
    came, abort = threading.Event(), threading.Event()

    class Slow(PretendNccl):
        def communicator(self, size: int, unique_id: bytes, rank: int) -> Any:
            came.wait(LIMIT)
            return super().communicator(size, unique_id, rank)

    exchange = NcclExchange(0, 1, abort.is_set, CPU, patience=0.2, api=Slow())  # type: ignore[arg-type]
    if how == "aborted":
        abort.set()
    with pytest.raises(Aborted if how == "aborted" else WorkerLost, match="rank 0"):
        exchange.connect([exchange.address])
    began = time.monotonic()
    exchange.close()
    assert time.monotonic() - began < 1
    came.set()
    for thread in threading.enumerate():
        if thread.name == "nccl-start-0":
            thread.join(LIMIT)
    assert not PretendCommunicator.living


def test_a_rank_that_closes_lets_the_others_finish() -> None:
    """The last step of a rank may end before that of another: closing must not take its memory away from under it."""
    with connected() as (made, pool):
        list(pool.map(lambda e: e.alltoallv([np.ones(5)] * 2), made, timeout=LIMIT))
        began = time.monotonic()
        made[0].close()  # the other does not close: waits for it no longer than it must
        assert 0.05 < time.monotonic() - began < 1
        with pytest.raises(Aborted):
            made[1].barrier()
    with connected() as (made, pool):
        began = time.monotonic()
        list(pool.map(lambda e: e.close(), made, timeout=LIMIT))
        assert time.monotonic() - began < 1


@pytest.mark.skipif(nccl_installed(), reason="NCCL is here")
def test_without_nccl_the_error_says_what_to_install() -> None:
    with pytest.raises(DeviceError, match="nvidia-nccl"):
        NcclExchange(0, 1, lambda: False, CPU)


def test_the_companion_is_closed_where_nccl_cannot_be_had() -> None:
    with running_loop() as loop, hub_on(loop) as hub:
        with pytest.raises(DeviceError):
            NcclExchange(0, 1, lambda: False, CPU, small=TcpExchange(0, 1, lambda: False, CPU, hub=hub, key=KEY))
        assert len(hub) == 0


def test_without_a_gpu_the_error_says_so() -> None:
    with pytest.raises(DeviceError, match="NCCL cannot be used on cpu"):
        Nccl(CPU)


def _binding(module: PretendNcclModule) -> Nccl:
    """`Nccl` over a stand-in for CuPy."""
    api, gpu = Nccl.__new__(Nccl), PretendGpu()
    api._nccl, api._cuda, api._device = module, gpu.xp.cuda, gpu  # type: ignore[assignment]
    api._pinned, api._scratch = np.zeros(0, np.uint8), gpu.empty(0, np.uint8)
    return api


def test_sends_and_receives_are_bytes_in_one_group() -> None:
    module = PretendNcclModule()
    comm = SimpleNamespace(
        send=lambda *given: module.calls.append(("send", *given)),
        recv=lambda *given: module.calls.append(("recv", *given)),
    )
    out, into = on_gpu(np.zeros(3, np.uint64)), on_gpu(np.zeros(5, np.float32))
    _binding(module).swap(comm, [(2, out)], [(1, into)])
    sent, got = ("send", out.ctypes.data, 24, 1, 2, 7), ("recv", into.ctypes.data, 20, 1, 1, 7)
    assert module.calls == [("start",), sent, got, ("end",)]


def test_a_group_ends_even_where_a_send_fails() -> None:
    module = PretendNcclModule()

    def refuse(*given: Any) -> None:
        raise PretendError("no")

    with pytest.raises(PretendError):
        _binding(module).swap(SimpleNamespace(send=refuse), [(1, on_gpu(np.zeros(1)))], [])
    assert module.calls == [("start",), ("end",)]


def test_rows_go_through_the_device_and_come_back() -> None:
    def all_gather(source: int, target: int, n: int, kind: int, stream: int) -> None:
        assert (kind, stream, target) == (1, 7, source + n)
        gathered = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (3 * n)).from_address(source))
        gathered[n : 2 * n], gathered[2 * n :] = gathered[:n], gathered[:n] + 1

    api = _binding(PretendNcclModule())
    for n in (4, 100, 8):
        rows = api.gather(SimpleNamespace(allGather=all_gather), 2, np.arange(n, dtype=np.uint8))
        assert not rows.any() or n == 8  # nothing has come back yet
        api._device.synchronize()
        assert rows.tolist() == [list(range(n)), list(range(1, n + 1))]


@pytest.mark.parametrize(("status", "means"), [(0, True), (600, False)])
def test_the_event_is_asked_for(status: int, means: bool) -> None:
    api = _binding(PretendNcclModule())
    api._event = SimpleNamespace(ptr=3)
    api._cuda.runtime.eventQuery = {3: status}.get
    assert api.done() is means


def test_a_failed_kernel_ends_the_wait() -> None:
    api = _binding(PretendNcclModule())
    api._event = SimpleNamespace(ptr=3)
    api._cuda.runtime.eventQuery, api._cuda.runtime.CUDARuntimeError = {3: 700}.get, PretendError
    with pytest.raises(PretendError, match="700"):
        api.done()
