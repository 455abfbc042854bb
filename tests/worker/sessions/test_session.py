"""The worker's end of a session by itself: a client by hand on a real comm, and fake shards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import FakeServant, FakeWorker, HandClient, assert_clean, wait_for
from gc_callbacks import in_allocations

from mgraph import protocol
from mgraph.batch import TOLD
from mgraph.channel import Channel, Listener, pack
from mgraph.errors import MgraphError
from mgraph.failures import decode_error
from mgraph.metrics import of_rank
from mgraph.protocol import Abort, Beat, Call, Close, Failure, Hello, Part, Result, ShardState, Welcome
from mgraph.worker.sessions import session, thread
from mgraph.worker.sessions.inbox import Inbox
from mgraph.worker.sessions.meter import Meter
from mgraph.worker.sessions.session_table import SessionTable
from mgraph.worker.sessions.thread import Asked, ShardThread

pytestmark = pytest.mark.timeout(60)


@contextmanager
def opened(hello: Hello | None = None) -> Iterator[tuple[HandClient, FakeWorker]]:
    """A session that a worker has answered, and that is gone afterwards."""
    worker = FakeWorker(0)
    client = HandClient(worker.address)
    try:
        client.open(hello or Hello("g", 0, 1))
        yield client, worker
    finally:
        client.stop()
        assert_clean([worker])
        worker.stop()


def error_of(message: Any) -> BaseException:
    assert isinstance(message, Failure)
    return decode_error(message.error)


def test_a_call_is_answered_with_its_value_and_the_state_after_it():
    with opened() as (client, worker):
        assert client.hear() == Welcome()
        client.say(Call(7, 0, "update", {"epoch": 1}, ("r1",)))
        counts = {**dict.fromkeys(TOLD, 0), "inserted": 1}
        assert client.hear() == Result(7, {**counts, "epoch": 1}, ShardState(epoch=1, changes=1, edges=10, nbytes=100))
        assert worker.log == ["free r1", "update", "begin 1"]


def test_a_call_that_fails_is_answered_with_the_error_and_the_state():
    with opened() as (client, _):
        client.hear()
        client.say(Call(1, 0, "update", {"epoch": 1}))
        client.hear()
        client.say(Call(2, 0, "update", {"epoch": 3}))
        failed = client.hear()
        assert isinstance(error_of(failed), MgraphError)
        assert (failed.seq, failed.state) == (2, ShardState(epoch=1, changes=1, edges=10, nbytes=100))


def test_the_servant_is_made_from_the_hello_and_so_knows_the_patience(monkeypatch):
    made: list[Hello] = []
    monkeypatch.setattr(FakeServant, "__init__", lambda self, hello, *rest: made.append(hello))
    monkeypatch.setattr(FakeServant, "close", lambda self: None)
    with opened(Hello("g", 2, 3, patience=12.5)) as (client, _):
        assert client.hear() == Welcome()
        assert wait_for(lambda: made == [Hello("g", 2, 3, patience=12.5)])


def test_large_arrays_come_in_parts_and_the_rest_after_them(monkeypatch):
    monkeypatch.setattr(protocol, "PART_BYTES", 1000)
    with opened() as (client, _):
        client.hear()
        client.say(Call(1, 0, "big", {"n": 251}))
        parts = [client.hear() for _ in range(3)]
        assert [(type(part), part.name, len(part.array)) for part in parts] == [
            (Part, "array", n) for n in (125, 125, 1)
        ]
        np.testing.assert_array_equal(np.concatenate([part.array for part in parts]), np.arange(251))
        assert client.hear().value == {"n": 251}


@pytest.mark.parametrize(("fresh", "repeats"), [(3600.0, True), (0.0, False)])
def test_reads_of_rows_repeat_the_shards_state_while_it_is_fresh(monkeypatch, fresh, repeats):
    """Other calls, and reads that free results, send it anew."""
    numbers = count(1)
    monkeypatch.setattr(thread, "FRESH_SECONDS", fresh)
    monkeypatch.setattr(FakeServant, "state", property(lambda self: ShardState(next(numbers))))
    monkeypatch.setattr(FakeServant, "degrees", lambda self, attempt: {}, raising=False)
    with opened() as (client, _):
        client.hear()
        epochs = []
        for seq, (method, free) in enumerate([("echo", ()), ("degrees", ()), ("degrees", ("r",)), ("echo", ())]):
            client.say(Call(seq, 0, method, {}, free))
            epochs.append(client.hear().state.epoch)
        assert epochs == ([1, 1, 2, 3] if repeats else [1, 2, 3, 4])


def test_an_abort_releases_what_waits_and_refuses_what_comes_late():
    with opened() as (client, worker):
        client.hear()
        client.say(Call(1, 4, "wait", {"ranks": [0]}))
        assert wait_for(lambda: worker.log == ["wait"])
        client.say(Abort(2, 4))
        client.say(Call(3, 4, "echo", {}))
        assert "was told to" in str(error_of(client.hear()))
        assert client.hear() == Result(2, {}, ShardState())
        assert "mgraph-g-0: echo came with attempt 4, which was aborted" in str(error_of(client.hear()))
        client.say(Call(4, 5, "echo", {}))
        assert client.hear().value == {"rank": 0, "attempt": 5}


def test_close_is_answered_once_the_shard_is_freed():
    with opened() as (client, worker):
        client.hear()
        client.say(Close(9))
        assert client.hear() == Result(9, {}, ShardState())
        assert worker.log == ["close"]


def test_the_socket_of_a_channel_is_closed_with_the_session(monkeypatch):
    """At once, without a garbage collection."""
    connect, sockets = Channel.connect, []

    def noted(name: bytes) -> tuple[Channel | None, str]:
        channel, why = connect(name)
        sockets.append(channel._sock)
        return channel, why

    monkeypatch.setattr(Channel, "connect", noted)
    listener = Listener()
    gc.disable()
    try:
        with opened(Hello("g", 0, 1, channel=listener.name)) as (client, _):
            assert client.hear() == Welcome()
            channel = listener.accept()
            channel.send(pack(Call(1, 0, "update", {"epoch": 1})))
            assert wait_for(lambda: channel.receive() is not None)
            client.say(Close(2))
            assert wait_for(lambda: sockets[0].fileno() == -1)
    finally:
        gc.enable()
        listener.close()


def test_beats_say_which_function_of_the_user_runs(monkeypatch):
    monkeypatch.setattr(session, "BEAT_SECONDS", 0.1)
    with opened() as (client, _):
        client.hear(beats=True)
        assert client.hear(beats=True) == Beat()
        client.say(Call(1, 0, "deaf", {"ranks": [0], "seconds": 0.5, "busy": "parse"}))
        beats = []
        while isinstance(message := client.hear(beats=True), Beat):
            beats.append(message)
        assert message.seq == 1
        assert beats[-1] == Beat("parse")
        assert client.hear(beats=True) == Beat()


# ---- what does not belong there --------------------------------------------------------------------------------------


def test_a_client_of_another_version_is_refused_whatever_else_it_says():
    with opened() as (client, worker):
        other = HandClient(worker.address)
        other.open({"type": "hello", "version": 2, "graph": "h", "rank": 0, "colour": "blue"})
        assert "client version 2" in str(error_of(other.hear()))
        other.stop()
        assert client.hear() == Welcome()


STRANGE = {"beat": Beat(), "type": {"type": "nonsense"}, "field": {"type": "call", "sequence": 1}, "str": "no dict"}


@pytest.mark.parametrize("message", STRANGE.values(), ids=STRANGE)
def test_what_is_no_message_of_a_client_ends_the_session(message, caplog):
    with opened() as (client, worker):
        client.hear()
        client.say(message)
        assert wait_for(lambda: not worker.table.sessions)
        assert worker.log == ["close"]
        assert "the session of graph g, rank 0, ended" in caplog.text


def test_an_answer_that_does_not_serialize_fails_its_call_and_no_other():
    with opened() as (client, _):
        client.hear()
        client.say(Call(1, 0, "unsendable", {}))
        assert isinstance(error_of(client.hear()), TypeError)
        client.say(Call(2, 0, "echo", {}))
        assert client.hear().value == {"rank": 0, "attempt": 0}


@pytest.mark.parametrize("method", ["read", "write"])
@pytest.mark.parametrize("running", [False, True], ids=["idle", "during a call"])
def test_no_memory_to(method, running, caplog):
    def no_room(*args: Any, **kwargs: Any) -> Any:
        raise MemoryError("no room")

    with opened() as (client, worker):
        client.hear()
        setattr(worker.session.comm, method, no_room)
        client.say(Call(1, 0, "wait", {"ranks": [0]}) if running else Call(1, 0, "echo", {}))
        assert wait_for(lambda: not worker.table.sessions)  # the next read, the answer or a beat finds no room
        assert worker.log[-1] == "close"
        assert "the session of graph g, rank 0, ended: MemoryError: no room" in caplog.text


def test_the_comm_closes_during_a_call():
    with opened() as (client, worker):
        client.hear()
        client.say(Call(1, 0, "wait", {"ranks": [0]}))
        assert wait_for(lambda: worker.log == ["wait"])
        client.stop()
        assert wait_for(lambda: not worker.table.sessions)
        assert worker.log == ["wait", "close"]


# ---- the thread and the meter ----------------------------------------------------------------------------------------


@contextmanager
def left() -> Iterator[tuple[session.Session, Inbox]]:
    """A session that leaves a published graph, and the requests to the shard's thread, which runs meanwhile."""
    left, requests = object.__new__(session.Session), Inbox()
    left._published, left._shards = object(), SimpleNamespace(leave=lambda *_: False)
    left.thread = SimpleNamespace(abort=list, requests=requests)
    left._under_way, left._results = {}, set()
    yield left, requests


def test_a_client_leaves_while_its_results_are_noted():
    with left() as (session, requests):
        session._results.update(map(str, range(30)))
        with in_allocations(lambda: session._results.add(str(len(session._results)))):
            for _ in range(20):
                assert not session._leave()
        assert [{*map(str, range(30))} <= {*request.request.free} for request in requests._queue] == [True] * 20


def test_a_client_leaves_while_its_last_call_is_answered():
    with left() as (session, requests):
        with in_allocations(session._under_way.clear):
            for _ in range(20):
                session._under_way[1] = 0
                assert not session._leave()
        assert len(requests) < 20


def test_the_thread_forgets_the_arguments_of_a_call_that_is_answered():
    """They may be gigabytes, and the next call may be long in coming."""
    posted: list[Any] = []
    thread = ShardThread("mgraph-t-0", lambda aborted: FakeServant(Hello("t", 0, 1), aborted, []), list)
    thread.start()
    gone = threading.Event()
    array = Watched(gone.set)
    thread.requests.put(Asked(Call(1, 0, "echo", {"array": array}), posted.append))
    assert wait_for(lambda: len(posted) == 1)
    posted.clear()
    del array
    assert gone.wait(5)
    thread.stop()
    thread.join(5)


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_call_is_announced_if_it_is_known(monkeypatch, fails):
    """And goes on if it cannot make that ready."""
    told: list[tuple[str | None, int]] = []

    def prefetch(servant: FakeServant, call: Call | None) -> None:
        told.append((call and call.method, len(servant.log)))
        if fails:
            raise ValueError("no memory")

    monkeypatch.setattr(FakeServant, "prefetch", prefetch)
    posted: list[Any] = []
    log: list[str] = []
    thread = ShardThread("mgraph-t-0", lambda aborted: FakeServant(Hello("t", 0, 1), aborted, log), list)
    for request in (Call(0, 0, "echo", {}), Call(1, 0, "have", {"left": 1}), Abort(2, 0), Call(3, 1, "echo", {})):
        thread.requests.put(Asked(request, posted.append))
    thread.start()
    assert wait_for(lambda: len(posted) == 4)
    thread.requests.put(Asked(Call(4, 1, "have", {"left": 1}), posted.append))
    assert wait_for(lambda: len(posted) == 5)
    assert [message.seq for message in posted] == [0, 1, 2, 3, 4]
    assert told == [("have", 0), (None, 1), ("echo", 2), (None, 3), (None, 4)]  # and how many calls had begun
    thread.stop()
    thread.join(5)
    assert not thread.is_alive()


class Watched:
    """Says when it is gone."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone = gone

    def __del__(self) -> None:
        self._gone()


def test_the_meter_is_read_while_the_event_loop_opens_sessions():
    table = SessionTable(lambda *_: None)
    table.sessions["g", 0] = table.published["p", 0] = SimpleNamespace(thread=None)

    def opens() -> None:
        for shards in (table.sessions, table.published):
            shards["g", len(shards)] = SimpleNamespace(thread=None)

    with in_allocations(opens):
        sizes = [len(Meter(table).threads()) for _ in range(20)]
    assert sizes == sorted(sizes)


def test_the_meter_adds_up_what_the_shards_last_said():
    with opened() as (client, worker):
        now = [0.0]
        meter = Meter(worker.table, lambda: now[0])
        client.hear()
        assert meter.read() == {"graphs": 1, "edges": 0, "bytes": 0, "epoch": 0, "batch_rate": 0.0}
        for epoch in (1, 2):
            client.say(Call(epoch, 0, "update", {"epoch": epoch}))
            client.hear()
        assert wait_for(lambda: meter.shards()[0]["doing"] == "")  # the thread answers first
        (shard,) = meter.shards()
        assert shard.pop("since") >= 0
        counted = of_rank(ShardState(epoch=2, edges=20, operations=60, seconds=0.25, nbytes=200))
        assert shard == {"graph": "g", "rank": 0, **counted, "copy_of": "", "queued": 0, "doing": ""}
        now[0] = 4.0
        # A graph's first epoch over 0 says nothing of batches: a copy begins at that of its graph.
        assert meter.read() == {"graphs": 1, "edges": 20, "bytes": 200, "epoch": 2, "batch_rate": 0.0}
        for epoch in (3, 4):
            client.say(Call(epoch, 0, "update", {"epoch": epoch}))
            client.hear()
        now[0] = 8.0
        assert meter.read() == {"graphs": 1, "edges": 40, "bytes": 400, "epoch": 4, "batch_rate": 0.5}
        client.stop()
        assert wait_for(lambda: meter.read()["graphs"] == 0)
