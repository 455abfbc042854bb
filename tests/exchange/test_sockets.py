"""The exchange over sockets alone: it needs no event loop, carries TLS, and ends when either side closes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from distributed.security import Security
from exchange_ranks import KEY, LIMIT, dispatcher_on, running_loop
from patience import patience
from worlds import meet

from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.exchange import ExchangeError, sockets
from mgraph.exchange.common import call_code
from mgraph.exchange.sockets import HEAD, SocketExchange

CPU = Device("cpu")


@contextmanager
def pair(listen: str = "tcp://127.0.0.1:0", security: Security | None = None) -> Iterator[list[SocketExchange]]:
    """Two connected ranks."""
    with running_loop() as loop, ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        places = [stack.enter_context(dispatcher_on(loop, listen, security=security)) for _ in range(2)]
        made = [SocketExchange(r, 2, lambda: False, CPU, dispatcher=place, key=KEY) for r, place in enumerate(places)]
        for exchange in made:
            stack.callback(exchange.close)
        addresses = [exchange.address for exchange in made]
        list(pool.map(lambda exchange: exchange.connect(addresses), made, timeout=LIMIT))
        assert all(exchange._into for exchange in made), "comms have sockets"
        yield made


def swap(first: SocketExchange, second: SocketExchange) -> None:
    """Send more both ways at the same time than sockets hold, and little things before and after."""
    big = np.random.default_rng(1).integers(0, 1 << 60, 1_500_000)
    with ThreadPoolExecutor(2) as pool:
        for parts in ([np.arange(3), np.arange(5)], [big[:-7], big], [big[:0], np.arange(2)]):
            futures = [pool.submit(exchange.alltoallv, parts) for exchange in (first, second)]
            (_, from_second), (from_first, _) = (future.result(LIMIT) for future in futures)
            assert np.array_equal(from_second, parts[0])
            assert np.array_equal(from_first, parts[1])


def test_both_send_at_the_same_time() -> None:
    with pair() as (first, second):
        swap(first, second)


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make a certificate")
def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mgraph"]
    subprocess.run([*make, "-keyout", key, "-out", cert], check=True, capture_output=True)
    security = Security(tls_ca_file=cert, tls_worker_cert=cert, tls_worker_key=key, require_encryption=True)
    with pair("tls://127.0.0.1:0", security) as made, ThreadPoolExecutor(2) as pool:
        swap(*made)
        # Programs send within a launch, more than sockets take at once.
        for messages in (3, 30_000):
            futures = [pool.submit(meet, end, CPU, 9, messages, bits=64, rows=40_000) for end in made]
            assert [future.result(LIMIT)["wrong"] for future in futures] == [0, 0]
        assert all(end.world(CPU)._links for end in made)
        swap(*made)
        # Sockets encrypt until the end: another thread may be sending.
        versions = list[str | None]()
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "shutdown", lambda end, how: versions.append(end.version()))
            made[0].close()
        assert len(versions) == 2
        assert all(versions)
        with pytest.raises(Aborted, match="found that rank 0 has closed its connection"):
            meet(made[1], CPU)


def test_an_error_of_a_transfer_within_a_launch_reaches_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    fails, transfer = list[bool](), sockets._transfer

    def failing(out: socket.socket, into: socket.socket, sends: bool, data: memoryview) -> int:
        if fails and threading.current_thread().name == "first":
            raise MemoryError("no room to encrypt")
        return transfer(out, into, sends, data)

    # As over TLS.
    monkeypatch.setattr(sockets, "_transfer", failing)
    monkeypatch.setattr(sockets.ssl, "SSLSocket", socket.socket)
    with pair() as made, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda end: meet(end, CPU), made))
        fails.append(True)

        def run(end: SocketExchange) -> None:
            threading.current_thread().name = "first" if end.rank == 0 else "second"
            meet(end, CPU)

        first, second = (pool.submit(run, end) for end in made)
        late = threading.Timer(patience(5), made[1].close)
        late.start()
        with pytest.raises(MemoryError, match="no room to encrypt"):
            first.result(LIMIT)
        with pytest.raises(Aborted, match="found that rank 0 has closed its connection"):
            second.result(LIMIT)
        late.cancel()
        with pytest.raises(Aborted, match="failed before: no room"):
            made[0].barrier()


def test_a_program_ends_when_its_worker_closes_the_comms() -> None:
    with pair() as made, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda end: meet(end, CPU), made))
        waiting, dispatcher = pool.submit(meet, made[1], CPU), made[1]._dispatcher
        time.sleep(0.1)
        assert not waiting.done()
        dispatcher.loop.call_soon_threadsafe(dispatcher.close)
        with pytest.raises(Aborted, match="closed"):
            waiting.result(patience(1))


def test_a_busy_event_loop_delays_nothing() -> None:
    with pair() as (first, second):
        stop = threading.Event()
        first._dispatcher.loop.call_soon_threadsafe(stop.wait, LIMIT)
        swap(first, second)
        stop.set()


@pytest.mark.parametrize(
    ("step", "call", "said"),
    [(7, "max", "got a message of rank 0, step 7"), (0, "sum", "is in max of int8 and rank 0 in sum of int8")],
)
def test_a_message_that_is_not_due_is_an_error(step: int, call: str, said: str) -> None:
    with pair() as (first, second):
        assert first._into is not None
        first._into[1].socket.send(HEAD.pack(step, call_code(call, np.dtype(np.int8)), 0))
        with pytest.raises(ExchangeError, match=said):
            second.barrier()
        with pytest.raises(Aborted, match="failed before"):
            second.barrier()


@pytest.mark.parametrize("closes", [0, 1])
def test_the_end_of_a_rank_ends_a_call(closes: int) -> None:
    with pair() as made, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(made[1].alltoallv, [np.zeros(1 << 20)] * 2)
        time.sleep(0.1)
        assert not waiting.done()
        made[closes].close()
        with pytest.raises(Aborted, match="was closed" if closes else "found that rank 0 has closed its connection"):
            waiting.result(patience(1))
        with pytest.raises(Aborted):
            made[1].barrier()
