"""What every exchange promises, run for every one of them: the contract of mgraph/exchange/contract.py."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from exchange_ranks import LIMIT, ranks, run_threads, running_loop
from patience import patience

from mgraph.device import Device
from mgraph.errors import Aborted, DeviceError, InvalidOption, WorkerLost
from mgraph.exchange import Exchange, ExchangeError
from mgraph.exchange.columns import join_columns, split_columns
from mgraph.exchange.ucx import UcxExchange
from mgraph.exchange.ucxx_api import ucx_installed

DTYPES = ["uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64"]
needs_ucx = pytest.mark.skipif(not ucx_installed(), reason="UCXX is not installed")

CASES = [
    pytest.param("loopback", 1, id="loopback-1"),
    *[pytest.param(kind, 2, id=f"{kind}-2", marks=pytest.mark.slow) for kind in ("tcp", "peer")],
    *[pytest.param(kind, 3, id=f"{kind}-3") for kind in ("tcp", "peer")],
    pytest.param("tcp", 1, id="tcp-1", marks=pytest.mark.slow),
    pytest.param("peer", 1, id="peer-1"),
    pytest.param("comms", 3, id="comms-3", marks=pytest.mark.slow),
    pytest.param("inproc", 3, id="inproc-3"),
    pytest.param("buffers", 1, id="peer-buffers-1", marks=pytest.mark.slow),
    pytest.param("buffers", 3, id="peer-buffers-3", marks=pytest.mark.slow),
    pytest.param("groups-001", 3, id="groups-001", marks=pytest.mark.slow),
    pytest.param("groups-01102", 5, id="groups-01102"),
    *[pytest.param("ucx", size, id=f"ucx-{size}", marks=needs_ucx) for size in (1, 2, 3)],
    pytest.param("ucx-tcp", 2, id="ucx-tcp-2", marks=needs_ucx),
]
SEVERAL = [case for case in CASES if case.values[1] > 1]
#: for tests of what is copied: buffers are peers in everything else
BUFFERS = pytest.param("buffers", 3, id="peer-buffers-3")
every_copy = pytest.mark.parametrize(
    ("kind", "size"), [BUFFERS if case.values == BUFFERS.values else case for case in CASES]
)
every_exchange = pytest.mark.parametrize(("kind", "size"), CASES)
every_exchange_of_several = pytest.mark.parametrize(("kind", "size"), SEVERAL)

#: of each kind one with several ranks, for tests that wait
each_kind = pytest.mark.parametrize(
    ("kind", "size"), list({str(case.values[0]).partition("-0")[0]: case for case in SEVERAL}.values())
)


def part(source: int, target: int, n: int, dtype: str = "uint32", step: int = 0) -> np.ndarray:
    """What rank `source` sends to rank `target`: every rank can tell."""
    return (np.arange(n) * 7 + source * 31 + target * 3 + step).astype(dtype)


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    assert got.ndim == 1
    assert got.flags.writeable
    assert got.flags.aligned
    assert np.array_equal(got, want)


def check_alltoallv(exchange: Exchange, lengths: np.ndarray, dtype: str, step: int = 0) -> None:
    """One alltoallv of ``lengths[source, target]`` items."""
    me = exchange.rank
    parts = [part(me, r, int(lengths[me, r]), dtype, step) for r in range(exchange.size)]
    got = exchange.alltoallv(parts)
    assert got[me] is parts[me]
    for r in range(exchange.size):
        assert_same(got[r], part(r, me, int(lengths[r, me]), dtype, step))


@pytest.mark.parametrize("dtype", DTYPES)
@every_copy
def test_every_dtype(kind: str, size: int, dtype: str) -> None:
    lengths = np.arange(size * size).reshape(size, size) * 13

    def program(exchange: Exchange) -> None:
        check_alltoallv(exchange, lengths, dtype)
        mine = part(exchange.rank, 0, 5 * exchange.rank, dtype)
        gathered = exchange.allgather(mine)
        assert gathered[exchange.rank] is mine
        for r in range(size):
            assert_same(gathered[r], part(r, 0, 5 * r, dtype))
        total = exchange.allreduce(np.array([1, exchange.rank + 1], dtype))
        assert total.dtype == dtype
        assert total.tolist() == [size, size * (size + 1) // 2]

    run_threads(kind, size, program)


@each_kind
def test_columns_that_travel_together_are_aligned(kind: str, size: int) -> None:
    dtypes = {"keys": np.dtype("u8"), "weight": np.dtype("f4"), "op": np.dtype("i1")}

    def columns(source: int, target: int) -> list[np.ndarray]:
        return [part(source, target, 3 + source + 5 * target, dtype.str) for dtype in dtypes.values()]

    def program(exchange: Exchange) -> None:
        sent = [join_columns(Device("cpu"), columns(exchange.rank, r)) for r in range(size)]
        for r, data in enumerate(exchange.alltoallv(sent)):
            for got, want in zip(split_columns(data, dtypes).values(), columns(r, exchange.rank), strict=True):
                assert_same(got, want)
        for r, data in enumerate(exchange.allgather(sent[0])):
            for got, want in zip(split_columns(data, dtypes).values(), columns(r, 0), strict=True):
                assert_same(got, want)

    run_threads(kind, size, program)


@every_copy
def test_empty_parts(kind: str, size: int) -> None:
    def program(exchange: Exchange) -> None:
        check_alltoallv(exchange, np.zeros((size, size), int), "uint64")
        check_alltoallv(exchange, np.eye(size, k=1, dtype=int) * 9, "uint64")
        assert [len(p) for p in exchange.allgather(np.zeros(0, np.float32))] == [0] * size
        assert exchange.allreduce(np.zeros(0)).shape == (0,)

    run_threads(kind, size, program)


@each_kind
def test_parts_past_the_limit_of_a_message_are_split(kind: str, size: int) -> None:
    def program(lengths: tuple[int, ...], exchange: Exchange) -> None:
        for n in lengths:
            check_alltoallv(exchange, np.full((size, size), n), "uint64")

    run_threads(kind, size, partial(program, (127, 128, 129, 12_501)), part_limit=1024)
    run_threads(kind, size, partial(program, (12_500, 12_501, 40_000, 100_003)), part_limit=100_001)


@every_copy
def test_many_steps_of_random_sizes_against_a_model(kind: str, size: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")

    def program(exchange: Exchange) -> None:
        same = np.random.default_rng(seed)  # the same draws on every rank
        for step in range(120):
            call = same.integers(4)
            dtype = DTYPES[same.integers(len(DTYPES))]
            scale = same.choice([1, 10, 1000, 50_000])
            lengths = same.integers(0, scale + 1, (size, size))
            if call == 0:
                values = same.integers(0, 10, (size, 3))
                assert exchange.allreduce(values[exchange.rank], "min").tolist() == values.min(0).tolist()
            elif call == 1:
                mine = part(exchange.rank, 1, int(lengths[0, exchange.rank]), dtype, step)
                for r, got in enumerate(exchange.allgather(mine)):
                    assert_same(got, part(r, 1, int(lengths[0, r]), dtype, step))
            else:
                check_alltoallv(exchange, lengths, dtype, step)

    run_threads(kind, size, program, part_limit=64 << 10)


@every_exchange
def test_allreduce_is_the_same_on_every_rank_and_every_time(kind: str, size: int) -> None:
    values = np.random.default_rng(5).standard_normal((size, 1000)) * 10.0 ** np.arange(1000).clip(0, 30)
    in_rank_order = values[0].copy()
    for row in values[1:]:
        in_rank_order += row

    def program(exchange: Exchange) -> list[bytes]:
        sums = []
        for i in range(10):
            time.sleep(0.002 * ((exchange.rank + i) % size))  # ranks arrive in changing order
            sums.append(exchange.allreduce(values[exchange.rank]).tobytes())
        return sums

    for sums in run_threads(kind, size, program):
        assert set(sums) == {in_rank_order.tobytes()}


@every_exchange
def test_allreduce_ops_shapes_and_fresh_results(kind: str, size: int) -> None:
    def program(exchange: Exchange) -> None:
        mine = np.array([[exchange.rank, -exchange.rank]], np.int64)
        assert exchange.allreduce(mine, "max").tolist() == [[size - 1, 0]]
        assert exchange.allreduce(mine, "min").tolist() == [[0, 1 - size]]
        assert exchange.least(exchange.rank + 7) == 7
        assert exchange.least(2**62 - exchange.rank) == 2**62 - size + 1
        assert exchange.least(-exchange.rank) == 1 - size
        result = exchange.allreduce(mine)
        result += 100
        assert mine.tolist() == [[exchange.rank, -exchange.rank]]
        assert exchange.allreduce(np.float64(1.5)).shape == ()
        long = np.full(5000, exchange.rank)  # past what fits into one small message
        assert exchange.allreduce(long).tolist() == [size * (size - 1) // 2] * 5000
        exchange.barrier()
        with pytest.raises(InvalidOption, match="'mean'"):
            exchange.allreduce(mine, "mean")

    run_threads(kind, size, program)


@each_kind
def test_barrier_waits_for_the_last(kind: str, size: int) -> None:
    def program(exchange: Exchange) -> tuple[float, float]:
        time.sleep(0.1 * exchange.rank)
        came = time.monotonic()
        exchange.barrier()
        return came, time.monotonic()

    times = run_threads(kind, size, program)
    assert min(left for _, left in times) >= max(came for came, _ in times)


@every_exchange_of_several
def test_sent_arrays_may_be_changed_at_once(kind: str, size: int) -> None:
    def program(exchange: Exchange) -> None:
        parts = [np.full(300_000, exchange.rank, np.uint64) for _ in range(size)]
        for _ in range(5):
            if exchange.rank == 0:
                time.sleep(0.01)  # the receiver is late
            received = exchange.alltoallv(parts)
            for p in parts:
                p[:] = 99
            for r, got in enumerate(received):
                assert r == exchange.rank or (got == r).all()
            for p in parts:
                p[:] = exchange.rank

    run_threads(kind, size, program)


@every_exchange
def test_wrong_parts_are_named(kind: str, size: int) -> None:
    def program(exchange: Exchange) -> None:
        with pytest.raises(ExchangeError, match=f"{size + 1} parts were given for {size} ranks"):
            exchange.alltoallv([np.zeros(1)] * (size + 1))
        if size > 1:
            with pytest.raises(ExchangeError, match="float32 and that for rank 0 has float64"):
                exchange.alltoallv([np.zeros(1)] + [np.zeros(1, np.float32)] * (size - 1))
        exchange.barrier()  # nothing was sent, nothing is broken

    run_threads(kind, size, program)


@every_exchange_of_several
@pytest.mark.parametrize("differ", ["call", "dtype", "least"])
def test_ranks_that_make_different_calls_get_an_error(kind: str, size: int, differ: str) -> None:
    def program(exchange: Exchange) -> None:
        odd = exchange.rank == 0
        with pytest.raises((ExchangeError, Aborted)) as raised:
            if differ == "call" and odd:
                exchange.allgather(np.zeros(3))
            elif differ == "dtype" and odd:
                exchange.alltoallv([np.zeros(3, np.int64)] * size)
            elif differ == "least" and odd:
                exchange.least(0)
            else:
                exchange.alltoallv([np.zeros(3)] * size)
        if odd:
            assert raised.type is ExchangeError
        with pytest.raises(Aborted):  # it is over after the first failure
            exchange.barrier()

    run_threads(kind, size, program)


CALLS = {
    "barrier": lambda exchange: exchange.barrier(),
    "least": lambda exchange: exchange.least(1),
    "alltoallv": lambda exchange: exchange.alltoallv([np.zeros(1 << 20)] * exchange.size),
}


@pytest.mark.parametrize("call", CALLS)
@every_exchange
def test_abort_releases_a_waiting_rank_within_a_second(kind: str, size: int, call: str) -> None:
    abort = threading.Event()
    with ranks(kind, size, [abort.is_set] * size) as made, ThreadPoolExecutor(size) as pool:
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        waiting = [pool.submit(CALLS[call], exchange) for exchange in made[:-1]]  # for the last rank
        time.sleep(0.2)
        assert not any(future.done() for future in waiting)
        began = time.monotonic()
        abort.set()
        for future in waiting:
            with pytest.raises(Aborted, match="rank"):
                future.result(patience(1))
        with pytest.raises(Aborted):  # nothing but close works from then on
            CALLS[call](made[-1])
        assert time.monotonic() - began < patience(1)


@each_kind
def test_event_loops_live_while_a_rank_waits(kind: str, size: int) -> None:
    """Polling must leave the interpreter to the worker's event loop, on which heartbeats and pings depend."""
    abort = threading.Event()
    with (
        ranks(kind, size, [abort.is_set] * size) as made,
        ThreadPoolExecutor(size) as pool,
        running_loop() as loop,
    ):
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        waiting, interval = pool.submit(made[0].barrier), sys.getswitchinterval()
        try:
            sys.setswitchinterval(0.1)  # after which the interpreter takes its lock from a thread that keeps it
            turns = asyncio.run_coroutine_threadsafe(turns_in(0.5), loop).result(LIMIT)
        finally:
            sys.setswitchinterval(interval)
        assert not waiting.done()
        abort.set()
        with pytest.raises(Aborted):
            waiting.result(patience(1))
    assert turns > 10  # where polling keeps the interpreter there are 5; 400 or so are possible


async def turns_in(seconds: float) -> int:
    """How often a task that sleeps for a millisecond at a time gets its turn."""
    end, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        await asyncio.sleep(0.001)
        turns += 1
    return turns


@every_exchange
def test_close_twice_and_then_nothing_works(kind: str, size: int) -> None:
    with ranks(kind, size, [lambda: False] * size) as made, ThreadPoolExecutor(size) as pool:
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        for exchange in made:
            began = time.monotonic()
            exchange.close()
            exchange.close()
            assert time.monotonic() - began < patience(1)
            with pytest.raises(Aborted, match="closed"):
                exchange.barrier()


@every_exchange_of_several
def test_close_from_another_thread_releases_the_waiting_one(kind: str, size: int) -> None:
    with ranks(kind, size, [lambda: False] * size) as made, ThreadPoolExecutor(size) as pool:
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        waiting = pool.submit(made[0].barrier)
        time.sleep(0.1)
        assert not waiting.done()
        made[0].close()
        with pytest.raises(Aborted, match="rank 0"):
            waiting.result(patience(1))


@every_exchange_of_several
def test_never_connected_closes(kind: str, size: int) -> None:
    with ranks(kind, size, [lambda: False] * size) as made:
        assert len({exchange.address for exchange in made}) == size


@each_kind
def test_a_rank_that_never_connects_is_named(kind: str, size: int) -> None:
    last = size - 1
    limit = patience(0.5)
    with ranks(kind, size, [lambda: False] * size, patience=limit) as made, ThreadPoolExecutor(size) as pool:
        addresses = [exchange.address for exchange in made]
        began = time.monotonic()
        named = f"rank {last} .*did not (connect|answer)"
        for future in [pool.submit(exchange.connect, addresses) for exchange in made[:last]]:
            with pytest.raises(WorkerLost, match=named):
                future.result(patience(5))
        assert time.monotonic() - began < limit + patience(1.5)


@each_kind
def test_abort_during_connect(kind: str, size: int) -> None:
    abort = threading.Event()
    with ranks(kind, size, [abort.is_set] * size) as made:
        threading.Timer(0.2, abort.set).start()
        began = time.monotonic()
        with pytest.raises(Aborted, match="rank 0"):
            made[0].connect([exchange.address for exchange in made])
        assert time.monotonic() - began < patience(1.2)


@pytest.mark.skipif(ucx_installed(), reason="UCXX is installed")
def test_without_ucxx_the_error_says_what_to_install() -> None:
    with pytest.raises(DeviceError, match="mgraph.cuda13"):
        UcxExchange(0, 1, lambda: False, Device("cpu"))


@every_exchange
def test_addresses_must_be_one_a_rank(kind: str, size: int) -> None:
    with ranks(kind, size, [lambda: False] * size) as made, pytest.raises(InvalidOption, match=f"{size + 1} addresses"):
        made[0].connect([b""] * (size + 1))


@each_kind
def test_nothing_stays_behind(kind: str, size: int) -> None:
    """Sockets, threads and files, over many lives; the harness counts tasks and comms."""

    def left() -> tuple[int, int]:
        gc.collect()  # Dask's servers and Tornado's loops are cycles
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    run_threads(kind, size, lambda exchange: exchange.barrier())
    before = left()
    for _ in range(3):
        run_threads(kind, size, lambda exchange: exchange.barrier())
    after = left()
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 2  # not one more a life
