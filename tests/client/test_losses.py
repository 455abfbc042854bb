"""Workers that close, fall silent or cannot be reached; comms that fail at one end. Errors name them, nothing hangs."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import dask
import pytest
from fakes import FakeWorker, LoopThread, assert_clean, fake_cluster, wait_for
from patience import patience

from mgraph import protocol
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.connections import opening, session
from mgraph.errors import GraphLost, WorkerLost
from mgraph.worker.sessions import session as worker_session

pytestmark = pytest.mark.timeout(60)


def test_worker_closes_during_a_call():
    with fake_cluster(2) as (coordinator, workers):
        threading.Timer(0.2, lambda: workers[1].thread.run(workers[1].table.close(5))).start()
        began = time.monotonic()
        with pytest.raises(WorkerLost, match=f"rank 1, the worker at {workers[1].address}"):
            coordinator.call("wait", {"ranks": [0, 1]})
        assert time.monotonic() - began < patience(3)
        assert workers[0].log[-1] == "settle"  # the survivor was released
        with pytest.raises(WorkerLost, match="rank 1"):
            coordinator.call("echo")


def test_worker_is_lost_after_another_committed():
    with fake_cluster(2) as (coordinator, workers):
        threading.Timer(0.2, lambda: workers[1].thread.run(workers[1].table.close(5))).start()
        with pytest.raises(WorkerLost, match="rank 1"):
            coordinator.call("vote", {"committed": [0], "doubting": [1]})
        with pytest.raises(GraphLost, match="last epoch acknowledged by all is 0"):
            coordinator.call("echo")


def test_worker_closes_after_its_answer_while_another_waits_for_what_it_sent():
    with fake_cluster(2) as (coordinator, workers):
        threading.Timer(0.2, lambda: workers[1].thread.run(workers[1].table.close(5))).start()
        with pytest.raises(WorkerLost, match="rank 1"):
            coordinator.call("wait", {"ranks": [0]})
        assert workers[0].log[-1] == "settle"


def test_worker_falls_silent_during_a_call():
    with fake_cluster(2, patience=1.0) as (coordinator, workers):
        workers[1].freeze(2.5)
        began = time.monotonic()
        with pytest.raises(WorkerLost, match="rank 1.*has not answered for 1 s"):
            coordinator.call("wait", {"ranks": [0, 1]})
        assert time.monotonic() - began < patience(1 + protocol.ABORT_SECONDS)


def test_a_slow_rank_is_not_a_lost_one(monkeypatch):
    monkeypatch.setattr(worker_session, "BEAT_SECONDS", 0.2)
    with fake_cluster(2, patience=1.0) as (coordinator, _):
        assert coordinator.call("deaf", {"ranks": [0], "seconds": 1.8}) == [{}, {}]


def test_a_client_that_was_held_up_does_not_call_its_workers_lost(monkeypatch):
    monkeypatch.setattr(worker_session, "BEAT_SECONDS", 0.2)
    with fake_cluster(2, patience=1.0) as (coordinator, _):
        coordinator.runner.loop.call_soon_threadsafe(time.sleep, 1.8)
        assert coordinator.call("deaf", {"ranks": [0], "seconds": 0.5}) == [{}, {}]


def test_one_worker_cannot_be_reached_and_no_session_stays_open():
    """A refused connection is loss at once, whatever the patience."""
    worker, client, began = FakeWorker(0), LoopThread("fake-client"), time.monotonic()
    try:
        with pytest.raises(WorkerLost, match="tcp://127.0.0.1:9 .rank 1. cannot be reached from this process"):
            Coordinator("g", LoopRunner(client.loop), [worker.address, "tcp://127.0.0.1:9"], {}, patience=60.0).open()
        assert time.monotonic() - began < patience(10)
        assert_clean([worker])
    finally:
        worker.stop()
        client.stop()


def test_a_worker_that_is_silent_when_its_session_is_opened_is_lost_after_the_patience():
    client, began = LoopThread("fake-client"), time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system connects, and nobody answers
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        try:
            with pytest.raises(WorkerLost, match=f"{address} .rank 0. cannot be reached .*no answer"):
                Coordinator("g", LoopRunner(client.loop), [address], {}, patience=1.5).open()
            assert 1.4 < time.monotonic() - began < patience(10)
        finally:
            client.stop()


def connected_to(worker: FakeWorker, sock: socket.socket) -> bool:
    try:
        return sock.family == socket.AF_INET and worker.address == "tcp://{}:{}".format(*sock.getpeername())
    except OSError:  # it is closed, or it listens
        return False


def test_a_client_that_is_held_up_connects_once():
    """Connections of attempts that were given up would stay open until the loop ends."""
    worker, client = FakeWorker(0), LoopThread("fake-client")

    async def hold_up() -> None:
        for _ in range(10):
            time.sleep(0.1)
            await asyncio.sleep(0)

    try:
        coordinator = Coordinator("g", LoopRunner(client.loop), [worker.address], {})
        held_up = asyncio.run_coroutine_threadsafe(hold_up(), client.loop)
        coordinator.open()
        held_up.result(patience(10))
        assert sum(connected_to(worker, one) for one in gc.get_objects() if isinstance(one, socket.socket)) == 1
        coordinator.close()
        assert_clean([worker])
    finally:
        worker.stop()
        client.stop()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats and warnings come sooner."""
    monkeypatch.setattr(worker_session, "BEAT_SECONDS", 0.1)
    for module in (session, opening):
        monkeypatch.setattr(module, "SILENCE_SECONDS", 0.5)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The package's messages. On a busy machine other workers are silent for a moment, too."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("mgraph.")]


def call_while_silent(coordinator: Coordinator, worker: FakeWorker, seconds: float) -> list[dict[str, Any]]:
    """A call in which a user's function holds the worker's event loop up."""
    threading.Timer(0.5, worker.freeze, [seconds]).start()
    return coordinator.call("deaf", {"ranks": [1], "seconds": seconds + 0.5, "busy": "parse (step 3)"})


def test_silence_is_a_warning_that_names_the_worker_and_what_it_runs(quick, caplog):
    caplog.set_level(logging.INFO, "mgraph")
    with fake_cluster(2) as (coordinator, workers):
        assert call_while_silent(coordinator, workers[1], 1.2) == [{}, {}]
        who = f"graph g: rank 1, the worker at {workers[1].address},"
        silent = f"{who} has not answered for 0.5 s while it runs the user's function parse (step 3); it counts as lost"
        told = [f"{silent} after 60 s", f"{who} answers again"]
        assert wait_for(lambda: [message for message in warnings(caplog) if message in told][-2:] == told)
        levels = {record.getMessage(): record.levelno for record in caplog.records}
        assert [levels[message] for message in told] == [logging.WARNING, logging.INFO]


def test_silence_before_a_beat_says_what_runs_names_the_function_of_the_call(quick, caplog):
    with fake_cluster(2) as (coordinator, workers):
        workers[1].freeze(1.0)  # a function that takes the GIL at once
        source = {"kind": "function", "name": "parse"}
        coordinator.call("deaf", {"ranks": [1], "seconds": 0, "sources": [source]})
        told = "has not answered for 0.5 s in an ingest that calls the user's function parse();"
        assert any(told in message for message in warnings(caplog))
        workers[1].freeze(1.0)  # later silence is not the function's
        coordinator.call("deaf", {"ranks": [1], "seconds": 0})  # answered by the channel, whatever the event loop does
        told = "rank 1, the worker at .*, has not answered for 0.5 s; it counts as lost"
        assert wait_for(lambda: any(re.search(told, message) for message in warnings(caplog)))


def test_silence_past_the_patience_is_loss_that_says_what_the_worker_ran(quick, caplog):
    with fake_cluster(2, patience=1.5) as (coordinator, workers):
        lost = r"rank 1, the worker at .*, has not answered for 1.5 s while it runs the user's function parse"
        with pytest.raises(WorkerLost, match=lost):
            call_while_silent(coordinator, workers[1], 3.0)
        assert any("rank 1" in message and "user's function parse" in message for message in warnings(caplog))


def test_silence_while_a_session_is_opened_is_a_warning_too(quick, caplog):
    worker, client = FakeWorker(0), LoopThread("fake-client")
    try:
        worker.freeze(1.5)
        coordinator = Coordinator("g", LoopRunner(client.loop), [worker.address], {})
        coordinator.open()
        told = f"the worker at {worker.address} (rank 0) has not answered for 0.5 s; it counts as lost after 60 s"
        assert f"graph g: {told}" in warnings(caplog)
        coordinator.close()
        assert_clean([worker])
    finally:
        worker.stop()
        client.stop()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such timeout")
@pytest.mark.parametrize(("patience", "kept"), [(200.0, 200_000), (5.0, 30_000)])
def test_the_system_keeps_a_connection_as_long_as_the_patience_and_no_shorter_than_dask_has_it(patience, kept):
    with dask.config.set({"distributed.comm.timeouts.tcp": "30s"}), fake_cluster(1, patience) as (coordinator, workers):
        for comm in (coordinator.sessions.all[0]._comm, workers[0].session.comm):
            assert comm.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == kept


# ---- memory that runs out --------------------------------------------------------------------------------------------


@pytest.fixture
def by_comm():
    """Send the calls by the comms, as to workers of other hosts."""
    with dask.config.set({opening.OPTION: False}):
        yield


def no_room(*args: Any, **kwargs: Any) -> Any:
    raise MemoryError("no room")


def no_room_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, which finds no room at its first call."""
    rest = iter([no_room])
    return lambda *args, **kwargs: next(rest, method)(*args, **kwargs)


@pytest.mark.usefixtures("by_comm")
@pytest.mark.parametrize("method", ["read", "write"])
def test_the_client_has_no_memory_to(quick, method):
    with fake_cluster(2) as (coordinator, workers):
        setattr(coordinator.sessions.all[1]._comm, method, no_room)
        what = {"read": "read from", "write": "written to"}[method]
        lost = f"rank 1, the worker at {workers[1].address}, cannot be {what} any more: MemoryError: no room"
        for _ in range(2):
            with pytest.raises(WorkerLost, match=lost):
                coordinator.call("wait", {"ranks": [0]})
        assert workers[0].log[-1] == "settle"  # the survivor was released


@pytest.mark.usefixtures("by_comm")
def test_the_client_has_no_memory_to_write_one_call_and_the_graph_stays_usable():
    with fake_cluster(2) as (coordinator, workers):
        comm = coordinator.sessions.all[1]._comm
        comm.write = no_room_once(comm.write)
        with pytest.raises(MemoryError, match="no room"):
            coordinator.call("wait", {"ranks": [0]})
        assert workers[1].log == ["settle"]
        assert len(coordinator.call("echo")) == 2


@pytest.mark.usefixtures("by_comm")
@pytest.mark.parametrize("method", ["read", "write"])
def test_a_worker_has_no_memory_to(method, caplog):
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo")
        setattr(workers[1].session.comm, method, no_room)
        for _ in range(2):
            with pytest.raises(WorkerLost, match="rank 1"):
                coordinator.call("wait", {"ranks": [0]})
        assert workers[0].log[-1] == "settle"
        assert wait_for(lambda: not workers[1].table.sessions)
        assert "the session of graph g, rank 1, ended: MemoryError: no room" in warnings(caplog)


@pytest.mark.usefixtures("by_comm")
def test_a_worker_has_no_memory_to_write_one_answer_and_the_graph_stays_usable():
    with fake_cluster(2) as (coordinator, workers):
        comm = workers[1].session.comm
        comm.write = no_room_once(comm.write)
        with pytest.raises(MemoryError, match="no room"):
            coordinator.call("echo")
        assert len(coordinator.call("echo")) == 2
