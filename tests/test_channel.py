"""Channels between two processes of a host."""

from __future__ import annotations

import select
import threading

import numpy as np
import pytest

from mgraph import channel as channels
from mgraph import plain
from mgraph.channel import MOST_BYTES, Channel, ChannelClosed, Listener, pack, unpack
from mgraph.plain import NotPlain
from mgraph.protocol import Call, Failure, Result, ShardState


def pair() -> tuple[Channel, Channel]:
    """The two ends of a channel."""
    listener = Listener()
    there, why = Channel.connect(listener.name)
    here = listener.accept()
    listener.close()
    assert here is not None
    assert there is not None
    assert why == ""
    return here, there


def test_messages_keep_their_order_and_their_boundaries():
    here, there = pair()
    assert there.receive() is None
    for data in (b"a", b"bc", b"d" * MOST_BYTES):
        assert here.send(data)
    assert [there.receive() for _ in range(4)] == [b"a", b"bc", b"d" * MOST_BYTES, None]


def test_a_full_socket_takes_no_more_and_does_not_wait():
    here, there = pair()
    taken = 0
    while here.send(b"x" * MOST_BYTES):
        taken += 1
        assert taken < 1000
    assert all(there.receive() for _ in range(taken))
    assert here.send(b"y")


@pytest.mark.parametrize("end", ["shut", "collected"])
def test_the_end_of_one_side_wakes_the_other(end):
    here, there = pair()
    poll = select.poll()
    poll.register(there, select.POLLIN)
    if end == "shut":
        threading.Timer(0.05, here.shut).start()
    else:
        del here
    assert poll.poll(20_000)
    with pytest.raises(ChannelClosed):
        there.receive()
    with pytest.raises(ChannelClosed):
        there.send(b"x")


def test_nobody_listens_at_a_name():
    listener = Listener()
    listener.close()
    channel, why = Channel.connect(listener.name)
    assert channel is None
    assert "cannot reach the client by a Unix socket: Connection refused" in why


def test_processes_of_other_users_are_refused_at_both_ends(monkeypatch):
    listener = Listener()
    monkeypatch.setattr(channels, "_same_user", lambda sock: False)
    channel, why = Channel.connect(listener.name)
    assert channel is None
    assert "belongs to another user" in why
    assert listener.accept() is None
    listener.close()


@pytest.mark.parametrize("value", [object(), b"x" * MOST_BYTES, np.zeros(MOST_BYTES)])
def test_large_messages_and_odd_values_go_by_the_comm(value):
    assert pack(Call(1, 0, "gather", {"value": value})) is None


STATE = ShardState(3, 4, edges=np.int64(6), broken="rank 1: the commit failed")


@pytest.mark.parametrize(
    "message",
    [
        Call(7, 2, "update", {"op": None, "nested": {"a": (1, 2.5)}}, ("r1",), (4096,)),
        Result(7, {"epoch": 4}, STATE, (0, 8192)),
        Failure(7, b"error", STATE),
    ],
    ids=lambda message: type(message).__name__,
)
def test_calls_and_answers_arrive_as_they_were(message):
    data = pack(message)
    found = unpack(data)
    assert type(found) is type(message)
    assert found == message
    if not isinstance(message, Call):
        assert type(found.state) is ShardState
    for end in range(len(data)):
        with pytest.raises(NotPlain):
            unpack(data[:end])


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        (),
        (0,),
        (3, 1, 2, 3, 4),
        (0, 1, 0, "bfs"),
        (1, 1, {}),
        (1, 1, {}, 5),
        (1, 1, {}, (0,) * 20),
        ("0", 1),
        {},
    ],
    ids=str,
)
def test_other_values_are_no_messages(value):
    with pytest.raises(NotPlain, match="no message"):
        unpack(plain.pack_message(value))


@pytest.mark.parametrize("cpus", [1, 64])
def test_polling_awake_finds_what_comes_before_and_after_it_sleeps(monkeypatch: pytest.MonkeyPatch, cpus: int) -> None:
    monkeypatch.setattr(channels, "_CPUS", cpus)
    here, there = pair()
    poll = select.poll()
    poll.register(there, select.POLLIN)
    assert channels.poll_awake(poll, 5) == []
    here.send(b"a")
    assert channels.poll_awake(poll) == [(there.fileno(), select.POLLIN)]
    there.receive()
    threading.Timer(10 * channels.AWAKE_SECONDS, lambda: here.send(b"b")).start()
    assert channels.poll_awake(poll) == [(there.fileno(), select.POLLIN)]
