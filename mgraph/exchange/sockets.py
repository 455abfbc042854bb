"""Exchange over the sockets of Dask's comms, on the shard's own thread.

Dask's comms connect, with the cluster's TLS and interfaces, and the other worker's event loop finds the rank. Then each
side takes the sockets from its event loop, and its shard's thread reads and writes them. So a message wakes one thread
per side. Through comms it wakes two, and passes through two more queues.

A message has a head, the numbers of its step, its call and its bytes (u64 each), and then the data. A connection
carries messages in one direction.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np
from distributed.comm import Comm

from mgraph.errors import Aborted, ExchangeError, WorkerLost
from mgraph.exchange.common import another_call, call_code
from mgraph.exchange.groups import Groups
from mgraph.exchange.links import CLOSED, UNFIT, Link
from mgraph.exchange.tcp import TcpExchange
from mgraph.exchange.waiting import POLL

__all__ = ["SocketExchange"]

HEAD = struct.Struct("<QQQ")
JOINED = 64 << 10  #: largest data, in bytes, that are copied behind the head, so that one packet may hold both
READY = b"\1"  #: sent by an accepted socket once its event loop no longer reads it
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SocketExchange(TcpExchange):
    """Collectives over sockets.

    Parameters
    ----------
    rank, size, aborted, device, dispatcher, key, patience, names
        As in `TcpExchange`.

    Notes
    -----
    If a comm has no socket (within a process, or over UCX), all data go through comms, as in `TcpExchange`. The
    receiver knows the size before it reads, and raises `CapacityError` if its memory does not suffice.
    """

    name: ClassVar[str] = "tcp"

    _into: dict[int, Sender] | None = None
    _from: dict[int, Receiver]

    async def _connect(self, addresses: list[str]) -> None:
        await super()._connect(addresses)
        if not all(hasattr(comm, "stream") for comm in (*self._out.values(), *self._inbox.comms.values())):
            return
        # Take the accepted sockets, then send READY. Until then the event loop might read the other rank's data.
        self._from = {rank: Receiver(_take_socket(comm)) for rank, comm in self._inbox.comms.items()}
        for receiver in self._from.values():
            receiver.socket.send(READY)
        # Take the opened sockets once the other rank is ready.
        late = self.rank
        try:
            async with asyncio.timeout(self._patience):
                for rank, comm in self._out.items():
                    late = rank
                    await comm.stream.read_bytes(len(READY))
        except (OSError, TimeoutError) as error:
            raise WorkerLost(f"rank {self.names[late]} did not connect within {self._patience:g} s: {error}") from None
        self._into = {rank: Sender(_take_socket(comm)) for rank, comm in self._out.items()}

    def close(self) -> None:
        """Close the sockets, from any thread. A running call of another thread ends at once. May be called twice."""
        self._over = self._over or "was closed"
        self._shut_down()
        super().close()

    def _shut_down(self) -> None:
        for end in (*(self._into or {}).values(), *(self._from.values() if self._into else ())):
            with suppress(OSError):
                # That of an SSLSocket ends the encryption first: a running call would go on in clear.
                socket.socket.shutdown(end.socket, socket.SHUT_RDWR)

    def links(self) -> list[Link] | None:
        """Implement `Exchange.links`."""
        if self._into is None:
            return None
        links, code = [], call_code("carry", np.dtype(np.int64))
        for rank in Groups(tuple(range(self.size)), self.name).partners(self.rank):
            out, into = self._into[rank].socket, self._from[rank].socket
            transfer = partial(_transfer, out, into) if isinstance(out, ssl.SSLSocket) else None
            fail = partial(self._fail, rank, code)
            closed = partial(_any_closed, out, into)
            links.append(Link([rank], out.fileno(), into.fileno(), code, fail, transfer, closed))
        return links

    def _fail(self, rank: int, code: int, theirs: int, error: BaseException | None) -> NoReturn:
        """Implement `Link.fail`. Sockets to all ranks are shut down, so that none waits for this one."""
        if self._over or self.aborted():
            raise Aborted(f"{self._here()} {self._over or 'was aborted'}")
        here, other = self._here(), self.names[rank]
        if error is None:
            if theirs == CLOSED:
                error = self._closed(rank)
            elif theirs == UNFIT:
                error = ExchangeError(f"{here} got a message of rank {other} that does not fit the program")
            else:
                error = another_call(here, code, other, theirs)
        self._over = f"failed before: {error}"
        self._shut_down()
        raise error

    def _closed(self, rank: int) -> Aborted:
        return Aborted(f"{self._here()} found that rank {self.names[rank]} has closed its connection")

    def _trade(self, call: str, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self._into is None:
            return super()._trade(call, parts)
        if self._over or self.aborted():
            raise Aborted(f"{self._here()} {self._over or 'was aborted'}")
        try:
            received = self._swap_now(call, parts)
        except BaseException as error:
            self._over = self._over or f"failed before: {error}"
            raise
        self._step += 1
        return received

    def _swap_now(self, call: str, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        assert self._into is not None
        dtype, received = parts[self.rank].dtype, list(parts)
        code = call_code(call, dtype)
        # Send and receive what is possible; wait only if nothing is.
        sending = {r: self._into[r] for r in self._others()}
        receiving = {r: self._from[r] for r in self._others()}
        for r, sender in sending.items():
            sender.begin(HEAD.pack(self._step, code, parts[r].nbytes), parts[r])
        rank = self.rank
        try:
            while True:
                for rank, sender in list(sending.items()):
                    if sender.go_on():
                        del sending[rank]
                for rank, receiver in list(receiving.items()):
                    if receiver.go_on(lambda head, rank=rank: self._room(head, code, rank)):
                        received[rank] = receiver.take(dtype)
                        del receiving[rank]
                if not sending and not receiving:
                    return received
                self._await([*sending.values(), *receiving.values()])
        except (OSError, ValueError, EOFError) as error:
            if self._over:
                raise Aborted(f"{self._here()} {self._over}") from None
            raise self._closed(rank) from error

    def _room(self, head: bytes, code: int, rank: int) -> np.ndarray:
        """Return memory for the data of a message."""
        step, theirs, nbytes = HEAD.unpack(head)
        if theirs != code:
            raise another_call(self._here(), code, self.names[rank], theirs)
        if step != self._step:
            raise ExchangeError(f"{self._here()} got a message of rank {self.names[rank]}, step {step}")
        return self._device.host.empty(nbytes, np.uint8)

    def _await(self, ends: Sequence[Sender | Receiver]) -> None:
        """Wait until one of the sockets can go on."""
        poll = select.poll()
        for end in ends:
            poll.register(end.socket, end.events)
        while not poll.poll(1000 * POLL):
            if self._over or self.aborted():
                raise Aborted(f"{self._here()} {self._over or 'was aborted'}")


class Sender:
    """Socket to another rank."""

    events = select.POLLOUT

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self._left = sock, list[memoryview]()

    def begin(self, head: bytes, data: np.ndarray) -> None:
        """Begin a message."""
        view = np.ascontiguousarray(data).view(np.uint8).data
        self._left = [memoryview(head), view] if len(view) > JOINED else [memoryview(head + view.tobytes())]

    def go_on(self) -> bool:
        """Send as much as the socket accepts now. Return True once the message is sent."""
        with suppress(*NOT_NOW):
            while self._left:
                sent = self.socket.send(self._left[0])
                self._left[0] = self._left[0][sent:]
                if not len(self._left[0]):
                    self._left.pop(0)
        return not self._left


class Receiver:
    """Socket from another rank."""

    events = select.POLLIN

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self._head = sock, bytearray(HEAD.size)
        self._data: np.ndarray | None = None
        self._at = 0

    def go_on(self, room: Any) -> bool:
        """Receive the available data, into ``room(head)``. Return True once a message is complete."""
        with suppress(*NOT_NOW):
            if self._data is None:
                if not self._fill(memoryview(self._head)):
                    return False
                self._data, self._at = room(bytes(self._head)), 0
            return self._fill(self._data.data)
        return False

    def _fill(self, view: memoryview) -> bool:
        while self._at < len(view):
            n = self.socket.recv_into(view[self._at :])
            if not n:
                raise EOFError
            self._at += n
        return True

    def take(self, dtype: np.dtype) -> np.ndarray:
        """Return the data of the complete message, and begin the next one."""
        data, self._data, self._at = self._data, None, 0
        assert data is not None
        return data.view(dtype)


def _transfer(out: socket.socket, into: socket.socket, sends: bool, data: memoryview) -> int:
    """Implement `Link.transfer`."""
    try:
        return out.send(data) if sends else into.recv_into(data)
    except NOT_NOW:
        return -1
    except (OSError, ValueError):  # closed
        return 0


def _any_closed(*ends: socket.socket) -> bool:
    """Implement `Link.closed`."""
    return any(end.fileno() < 0 for end in ends)


def _take_socket(comm: Comm) -> socket.socket:
    """Remove the socket of a comm from its event loop, and return it."""
    stream: Any = comm.stream
    stream.io_loop.remove_handler(stream.fileno())
    return stream.socket
