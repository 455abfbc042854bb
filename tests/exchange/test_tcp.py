"""The exchange over Dask comms alone: what it refuses, what it copies, and how it meets servers that fail."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed.core import Server
from distributed.protocol import Serialized, serialize
from distributed.security import Security
from exchange_ranks import KEY, LIMIT, dispatcher_on, ranks, running_loop
from patience import patience

from mgraph.device import Device
from mgraph.errors import Aborted, WorkerLost
from mgraph.exchange import ExchangeError
from mgraph.exchange.comm_dispatcher import CommDispatcher
from mgraph.exchange.messages import own
from mgraph.exchange.tcp import TcpExchange

CPU = Device("cpu")


def never() -> bool:
    return False


@contextmanager
def pair(aborted: Any = never, **options: Any) -> Iterator[list[TcpExchange]]:
    """Two connected ranks."""
    with ranks("comms", 2, [aborted, aborted], **options) as made, ThreadPoolExecutor(2) as pool:
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        yield made  # type: ignore[misc]


def send_raw(exchange: TcpExchange, target: int, message: Any) -> None:
    writing = exchange._out[target].write(message)
    asyncio.run_coroutine_threadsafe(writing, exchange._dispatcher.loop).result(LIMIT)


GOOD = {"key": KEY, "step": 0, "source": 0, "call": "max", "dtype": "|i1", "items": 1, "at": 0, "data": b"\x07"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": 7}, "step 7 instead of 0"),
        ({"key": ("graph", 1)}, r"key \('graph', 1\) instead of \('graph', 0\)"),
        ({"source": 5}, "source 5 instead of 0"),
        ({"call": "sum"}, "call 'sum' instead of 'max'"),
        ({"dtype": "<f4"}, "dtype '<f4' instead of"),
        ({"at": 3}, "at 3 instead of 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_message_that_is_not_due_is_an_error(change: dict[str, Any], said: str) -> None:
    with pair() as (first, second):
        send_raw(first, 1, {**GOOD, **change})
        with pytest.raises(ExchangeError, match=f"a message from rank 0 has {said}"):
            second.barrier()
        with pytest.raises(Aborted, match="failed before"):
            second.barrier()


def test_a_message_that_is_none_is_an_error() -> None:
    with pair() as (first, second):
        send_raw(first, 1, "hello")
        with pytest.raises(ExchangeError, match="step None instead of 0"):
            second.barrier()


def test_the_message_that_is_due_is_taken() -> None:
    with pair() as (first, second):
        send_raw(first, 1, GOOD)
        assert second.allreduce(np.array([3], np.int8), "max").tolist() == [7]


def test_another_attempt_is_refused() -> None:
    with running_loop() as loop, dispatcher_on(loop) as here, dispatcher_on(loop) as there:
        new = TcpExchange(0, 2, never, CPU, dispatcher=here, key=("graph", 1))
        old = TcpExchange(1, 2, never, CPU, dispatcher=there, key=("graph", 0))
        with pytest.raises(ExchangeError, match="refused rank 0: .* has no rank 1 of graph graph, attempt 1"):
            new.connect([new.address, old.address])
        new.close()
        old.close()


def test_a_second_hello_is_refused() -> None:
    with pair() as (first, second):
        again = first._dispatcher.connect(second.address.decode(), KEY, 0, 1, 5)
        with pytest.raises(ExchangeError, match="second hello from rank 0"):
            asyncio.run_coroutine_threadsafe(again, first._dispatcher.loop).result(LIMIT)
        odd = first._dispatcher.connect(second.address.decode(), KEY, 9, 1, 5)
        with pytest.raises(ExchangeError, match="rank 1 of 2 got a hello from rank 9"):
            asyncio.run_coroutine_threadsafe(odd, first._dispatcher.loop).result(LIMIT)


def test_a_rank_has_one_exchange() -> None:
    with running_loop() as loop, dispatcher_on(loop) as dispatcher:
        first = TcpExchange(0, 1, never, CPU, dispatcher=dispatcher, key=KEY)
        with pytest.raises(ExchangeError, match="rank 0 has an exchange on"):
            TcpExchange(0, 1, never, CPU, dispatcher=dispatcher, key=KEY)
        first.close()
        TcpExchange(0, 1, never, CPU, dispatcher=dispatcher, key=KEY).close()


def test_a_worker_without_a_dispatcher_is_named() -> None:
    with running_loop() as loop, dispatcher_on(loop) as here, dispatcher_on(loop) as there:
        exchange = TcpExchange(0, 2, never, CPU, dispatcher=here, key=KEY)
        plain = Server({}, needs_workdir=False)
        asyncio.run_coroutine_threadsafe(plain.listen("tcp://127.0.0.1:0"), loop).result(LIMIT)
        with pytest.raises(ExchangeError, match="its worker has no comm dispatcher"):
            exchange.connect([exchange.address, plain.address.encode()])
        exchange.close()
        asyncio.run_coroutine_threadsafe(plain.close(), loop).result(LIMIT)
        assert len(there) == 0


def test_an_unreachable_rank_is_named() -> None:
    with running_loop() as loop, dispatcher_on(loop) as dispatcher:
        exchange = TcpExchange(0, 2, never, CPU, dispatcher=dispatcher, key=KEY, patience=0.5)
        began = time.monotonic()
        with pytest.raises(WorkerLost, match="rank 1 at tcp://127.0.0.1:1 was not reached within 0.5 s"):
            exchange.connect([exchange.address, b"tcp://127.0.0.1:1"])
        assert time.monotonic() - began < patience(3)
        exchange.close()


def test_a_connection_that_is_made_just_as_the_exchange_closes_is_closed_too(monkeypatch: Any) -> None:
    class Made:
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    async def close_in_between() -> None:
        connected = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(dispatcher, "connect", lambda *_: connected)
        reaching = asyncio.create_task(exchange._reach(1, "tcp://127.0.0.1:1"))
        await asyncio.sleep(0)
        connected.set_result(comm)  # `_reach` hears of it in the next turn
        exchange.close()
        reaching.cancel()
        await asyncio.wait([reaching])

    with running_loop() as loop, dispatcher_on(loop) as dispatcher:
        exchange, comm = TcpExchange(0, 2, never, CPU, dispatcher=dispatcher, key=KEY), Made()
        asyncio.run_coroutine_threadsafe(close_in_between(), loop).result(LIMIT)
        assert comm.aborted


needs_user_timeout = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system closes no connection that is not read from"
)


@needs_user_timeout
@pytest.mark.parametrize(("patience", "kept"), [(200.0, 200_000), (5.0, 30_000)])
def test_the_system_keeps_a_connection_as_long_as_the_patience_and_no_shorter_than_dask_has_it(
    patience: float, kept: int
) -> None:
    with dask.config.set({"distributed.comm.timeouts.tcp": "30s"}), pair(patience=patience) as made:
        for exchange, other in zip(made, reversed(made), strict=True):
            for comm in (exchange._out[other.rank], exchange._inbox.comms[other.rank]):
                assert comm.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == kept


@needs_user_timeout
@pytest.mark.parametrize("patience", [30.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_rank_that_reads_nothing_for_longer_than_dask_allows(patience: float, monkeypatch: Any) -> None:
    """As where a user's code holds Python's GIL: the data that were on the way are lost with the connection."""

    def one_second(stream: Any) -> None:
        stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)

    monkeypatch.setattr("distributed.comm.tcp.set_tcp_timeout", one_second)
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        loops = [stack.enter_context(running_loop()) for _ in range(2)]
        dispatchers = [stack.enter_context(dispatcher_on(loop)) for loop in loops]
        made = [
            TcpExchange(r, 2, never, CPU, dispatcher=dispatcher, key=KEY, patience=patience)
            for r, dispatcher in enumerate(dispatchers)
        ]
        for exchange in made:
            stack.callback(exchange.close)
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        loops[1].call_soon_threadsafe(time.sleep, 4)
        sent = np.arange(2_000_000)  # more than sockets hold
        first, second = (pool.submit(exchange.allgather, sent) for exchange in made)
        if patience > 4:
            assert all(np.array_equal(g, sent) for future in (first, second) for g in future.result(LIMIT))
        else:
            with pytest.raises(Aborted, match="rank 0 has closed its connection"):
                second.result(LIMIT)
            first.exception(LIMIT)


def test_peer_closes_during_exchange() -> None:
    with pair() as (first, second), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.alltoallv, [np.zeros(1 << 20)] * 2)
        time.sleep(0.1)
        assert not waiting.done()
        first.close()
        with pytest.raises(Aborted, match="rank 1, step 0, found that rank 0 has closed its connection"):
            waiting.result(patience(1))


def test_the_last_messages_of_a_rank_that_closes_arrive() -> None:
    with pair() as (first, second), ThreadPoolExecutor(1) as pool:
        sent = np.arange(100_000)
        ahead = pool.submit(first.alltoallv, [sent, sent])
        received = second.alltoallv([sent, sent])
        ahead.result(LIMIT)
        first.close()
        assert np.array_equal(received[0], sent)
        with pytest.raises(Aborted):
            second.barrier()


def test_dispatcher_closes_during_exchange() -> None:
    with pair() as (first, second), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.barrier)
        time.sleep(0.1)
        second._dispatcher.loop.call_soon_threadsafe(second._dispatcher.close)
        with pytest.raises(Aborted):
            waiting.result(patience(1))
        with pytest.raises(Aborted):
            first.barrier()


def test_event_loop_stops_during_exchange() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    dispatcher = CommDispatcher("tcp://127.0.0.1:1", loop)
    exchange = TcpExchange(0, 2, never, CPU, dispatcher=dispatcher, key=KEY)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(exchange._call, exchange._inbox.full.wait())  # any wait will do
        time.sleep(0.1)
        pending = asyncio.run_coroutine_threadsafe(_all_tasks(), loop).result(LIMIT)
        loop.call_soon_threadsafe(loop.stop)
        with pytest.raises(Aborted, match="lost its event loop"):
            waiting.result(patience(1))
    thread.join(LIMIT)
    began = time.monotonic()
    exchange.close()
    assert time.monotonic() - began < patience(1)
    assert len(dispatcher) == 0
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()


async def _all_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_server_closes_while_an_exchange_is_open() -> None:
    with running_loop() as loop, ExitStack() as stack:
        began = time.monotonic()
        made = [
            TcpExchange(
                rank, 2, never, CPU, dispatcher=stack.enter_context(_dispatcher_that_closes_first(loop)), key=KEY
            )
            for rank in range(2)
        ]
        with ThreadPoolExecutor(2) as pool:
            addresses = [exchange.address for exchange in made]
            list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
            waiting = pool.submit(made[0].barrier)
            stack.close()
            with pytest.raises(Aborted):
                waiting.result(patience(1))
        for exchange in made:
            exchange.close()
        assert time.monotonic() - began < patience(5)


@contextmanager
def _dispatcher_that_closes_first(loop: asyncio.AbstractEventLoop) -> Iterator[CommDispatcher]:
    async def start() -> tuple[Server, CommDispatcher]:
        server = Server({}, needs_workdir=False)
        await server.listen("tcp://127.0.0.1:0")
        dispatcher = CommDispatcher(server.address, loop)
        server.handlers["mgraph_exchange"] = dispatcher.accept
        return server, dispatcher

    server, dispatcher = asyncio.run_coroutine_threadsafe(start(), loop).result(LIMIT)
    yield dispatcher
    asyncio.run_coroutine_threadsafe(server.close(), loop).result(LIMIT)


def test_long_parts_are_received_where_they_stay() -> None:
    """The buffer that the socket was read into comes out: nothing is copied on the way."""
    with pair() as (first, second), ThreadPoolExecutor(1) as pool:
        parts = [np.arange(1 << 17), np.arange(1 << 17)]
        waiting = pool.submit(first.alltoallv, parts)
        got = second.alltoallv(parts)[0]
        waiting.result(LIMIT)
        assert not got.flags.owndata
        assert got.flags.aligned
        assert got.flags.writeable


@pytest.mark.parametrize("bad", ["misaligned", "read-only", "bytes", "packed"])
def test_buffers_that_cannot_stay_are_copied(bad: str) -> None:
    want = np.arange(10, dtype=np.int64)
    if bad == "misaligned":
        data: Any = np.zeros(81, np.uint8)[1:].view(np.int64)
        data[:] = want
        assert not data.flags.aligned
    elif bad == "read-only":
        data = want.copy()
        data.flags.writeable = False
    elif bad == "bytes":
        data = want.tobytes()
    else:
        data = Serialized(*serialize(want))
    got = own(data, want.dtype)
    assert got.flags.aligned
    assert got.flags.writeable
    assert np.array_equal(got, want)


def test_servers_that_do_not_deserialize() -> None:
    with (
        running_loop() as loop,
        dispatcher_on(loop, deserialize=False) as here,
        dispatcher_on(loop, deserialize=False) as there,
    ):
        made = [TcpExchange(r, 2, never, CPU, dispatcher=h, key=KEY) for r, h in enumerate((here, there))]
        with ThreadPoolExecutor(2) as pool:
            addresses = [exchange.address for exchange in made]
            list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
            sent = np.arange(50_000)
            for got in pool.map(lambda exchange: exchange.allgather(sent), made, timeout=LIMIT):
                assert all(np.array_equal(g, sent) for g in got)
        for exchange in made:
            exchange.close()


def test_read_only_parts_are_sent() -> None:
    with pair() as made, ThreadPoolExecutor(2) as pool:
        sent = np.arange(50_000)
        sent.flags.writeable = False
        for rank, got in enumerate(pool.map(lambda exchange: exchange.allgather(sent), made, timeout=LIMIT)):
            assert got[1 - rank].flags.writeable
            assert np.array_equal(got[1 - rank], sent)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_over_tls(tmp_path: Path) -> None:
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=LIMIT)
    security = Security(tls_ca_file=cert, tls_worker_cert=cert, tls_worker_key=key, require_encryption=True)
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop())
        dispatchers = [
            stack.enter_context(dispatcher_on(loop, "tls://127.0.0.1:0", security=security)) for _ in range(2)
        ]
        made = [
            TcpExchange(r, 2, never, CPU, dispatcher=dispatcher, key=KEY) for r, dispatcher in enumerate(dispatchers)
        ]
        with ThreadPoolExecutor(2) as pool:
            addresses = [exchange.address for exchange in made]
            assert all(address.startswith(b"tls://") for address in addresses)
            list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
            sent = np.arange(500_000)
            for got in pool.map(lambda exchange: exchange.allgather(sent), made, timeout=LIMIT):
                assert all(np.array_equal(g, sent) for g in got)
        for exchange in made:
            exchange.close()
