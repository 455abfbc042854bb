"""Unix sockets for calls from a client's thread to a shard's thread on the same host.

A call of a few kilobytes and its answer go from thread to thread, without an event loop on either side. Everything
else goes by the session's comm: large arrays that are not in shared memory, objects that are not plain values, and all
calls to workers of other hosts.

The client listens at a random name of the abstract namespace, which leaves no file behind, and sends the name with
`Hello`. A worker of this host connects. Both ends check that the other process belongs to the same user.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
import time
import weakref
from contextlib import suppress

from mgraph import plain
from mgraph.errors import MgraphError
from mgraph.plain import MOST_BYTES, NotPlain
from mgraph.protocol import Call, Failure, Result, ShardState

__all__ = ["MOST_BYTES", "Bell", "Channel", "ChannelClosed", "Listener", "pack", "poll_awake", "unpack"]

#: how long a thread polls before it sleeps, on hosts of at least so many CPUs: waking it takes 50 us and more there
AWAKE_SECONDS, AWAKE_CPUS = 1e-3, 8

_KINDS = Call, Result, Failure  # kinds of messages
_CODES = {kind: code for code, kind in enumerate(_KINDS)}
_FIELDS = [len(kind._fields) for kind in _KINDS]
_STATE_FIELDS = len(ShardState._fields)

# Made here, since flags of an enum take 3 us to join.
_SEND, _RECEIVE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL), int(socket.MSG_DONTWAIT)

_PEER = struct.Struct("3i")  # pid, uid and gid of the process at the other end


class ChannelClosed(MgraphError):
    """Raised if the other end closed the channel, or its process ended."""


class Bell:
    """Wakes a thread that polls several descriptors. Any thread may ring."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self._descriptor, 1)

    def silence(self) -> None:
        """Make it unreadable again."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, for `poll`."""
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


def poll_awake(poll: select.poll, timeout: float | None = None) -> list[tuple[int, int]]:
    """Poll without sleep for `AWAKE_SECONDS`, where CPUs are free for that, and then for `timeout` milliseconds."""
    if _CPUS >= AWAKE_CPUS:
        end = time.perf_counter() + AWAKE_SECONDS
        while time.perf_counter() < end:
            if events := poll.poll(0):
                return events
    return poll.poll(timeout)


_CPUS = len(os.sched_getaffinity(0))


class Channel:
    """End of a channel. Any thread may send; a single thread receives at a time.

    Messages keep their boundaries and their order.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(False)
        weakref.finalize(self, sock.close).atexit = False  # a thread may wait for a message when the channel ends

    @classmethod
    def connect(cls, name: bytes) -> tuple[Channel | None, str]:
        """Connect to the client at `name`. Return the channel, or None and the reason."""
        # Both ends must belong to the same user.
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.setblocking(False)
            sock.connect(b"\0" + name)
            if not _same_user(sock):
                raise OSError("the client's process belongs to another user")
        except OSError as error:
            sock.close()
            return None, f"the worker cannot reach the client by a Unix socket: {error.strerror or error}"
        return cls(sock), ""

    def send(self, data: bytes) -> bool:
        """Send a packed message. Return False if the socket is full.

        It fills up if the other end reads nothing.

        Raises
        ------
        ChannelClosed
        """
        try:
            self._sock.send(data, _SEND)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        return True

    def receive(self) -> bytes | None:
        """Return the next message, or None if none has come.

        Raises
        ------
        ChannelClosed
        """
        try:
            data = self._sock.recv(2 * MOST_BYTES, _RECEIVE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        if not data:
            raise ChannelClosed("the other end has closed the channel")
        return data

    def fileno(self) -> int:
        """Return the socket's descriptor, for `poll`."""
        return self._sock.fileno()

    def shut(self) -> None:
        """End the channel, and wake a thread that waits for a message.

        The descriptor lives as long as this object.
        """
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class Listener:
    """End of a client before a worker has connected."""

    def __init__(self) -> None:
        self.name = b"mgraph-" + secrets.token_hex(16).encode()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        # A name that begins with NUL is abstract: no file is left behind.
        self._sock.bind(b"\0" + self.name)
        self._sock.listen(4)

    def accept(self) -> Channel | None:
        """Return a channel to a process of this user; None if none has connected."""
        # Drop connections of other users.
        while True:
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return None
            if _same_user(sock):
                return Channel(sock)
            sock.close()

    def close(self) -> None:
        """Stop listening; the name is gone."""
        self._sock.close()


def _same_user(sock: socket.socket) -> bool:
    _, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(uid == os.geteuid())


def pack(message: Call | Result | Failure) -> bytes | None:
    """Return a message as bytes; None if it is too large or not plain."""
    try:
        data = plain.pack_message((_CODES[type(message)], *message))
    except NotPlain:
        return None
    return data if len(data) <= MOST_BYTES else None


def unpack(data: bytes) -> Call | Result | Failure:
    """Return the message of packed bytes.

    Raises
    ------
    NotPlain
        `data` is no message.
    """
    fields = plain.unpack(data)
    try:
        code, *values = fields
        if len(values) != _FIELDS[code]:
            raise ValueError(f"{len(values)} values")
        new = tuple.__new__  # half the time of its own constructor
        if code:
            values[2] = state = new(ShardState, values[2])
            if len(state) != _STATE_FIELDS:
                raise ValueError(f"a state of {len(state)} values")
        message: Call | Result | Failure = new(_KINDS[code], values)  # type: ignore[assignment]
    except (TypeError, ValueError, IndexError) as error:
        raise NotPlain(f"no message: {error}") from None
    return message
