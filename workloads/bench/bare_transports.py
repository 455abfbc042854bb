"""All-to-alls on the bare transports: the baseline of the exchanges.

Buffers are allocated once and reused, both sides know the lengths, nothing is checked, and nothing can be aborted. A
silent peer ends a run after `LIMIT` seconds; over NCCL, the cluster does.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import WorkerLost
from mgraph.exchange import Exchange
from mgraph.exchange.ucxx_api import Ucxx

__all__ = ["RAW", "RawNccl", "RawTcp", "RawUcx"]

LIMIT = 60.0  #: seconds without progress after which a peer counts as gone
SETTLE = 0.2  #: seconds of polling after the last message of a series
RANK = struct.Struct("<i")


class RawTcp:
    """Plain TCP sockets between host buffers, one per pair of ranks, without Nagle's delay.

    Parameters
    ----------
    exchange : Exchange
        Connected; carries the ports.
    device : Device
    hosts : sequence of str
        The host of each rank's process.
    """

    what = "plain sockets, host memory"

    def __init__(self, exchange: Exchange, device: Device, hosts: Sequence[str]) -> None:
        self.rank, self.size = exchange.rank, exchange.size
        self.sockets: dict[int, socket.socket] = {}
        # Share the ports, connect to higher ranks, accept from lower ones.
        with socket.create_server((hosts[self.rank], 0), backlog=self.size) as server:
            server.settimeout(LIMIT)
            ports = np.zeros(self.size, np.int64)
            ports[self.rank] = server.getsockname()[1]
            ports = exchange.allreduce(ports, "max")
            for peer in range(self.rank + 1, self.size):
                self._keep(peer, socket.create_connection((hosts[peer], int(ports[peer])), LIMIT))
                self.sockets[peer].sendall(RANK.pack(self.rank))
            for _ in range(self.rank):
                connection, _ = server.accept()
                connection.settimeout(LIMIT)
                self._keep(RANK.unpack(connection.recv(RANK.size, socket.MSG_WAITALL))[0], connection)
        for connection in self.sockets.values():
            connection.setblocking(False)

    def _keep(self, peer: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sockets[peer] = connection

    def prepare(self, nbytes: int) -> Callable[[], None]:
        """Return a function that sends `nbytes` to every other rank and receives as many from each."""
        out = {peer: memoryview(bytearray(nbytes)) for peer in self.sockets}
        into = {peer: memoryview(bytearray(nbytes)) for peer in self.sockets}
        return lambda: self._swap(dict(out), dict(into))

    def _swap(self, out: dict[int, memoryview], into: dict[int, memoryview]) -> None:
        while out or into:
            moved = sum(self._move(peer, out, self.sockets[peer].send) for peer in list(out))
            moved += sum(self._move(peer, into, self.sockets[peer].recv_into) for peer in list(into))
            if not moved:
                reads, writes = ([self.sockets[peer] for peer in part] for part in (into, out))
                if not any(select.select(reads, writes, [], LIMIT)):
                    raise WorkerLost(f"rank {self.rank}: the plain sockets moved no data for {LIMIT} s")

    def _move(self, peer: int, left: dict[int, memoryview], call: Callable[[memoryview], int]) -> int:
        try:
            n = call(left[peer])
        except BlockingIOError:
            return 0
        if n == 0:
            raise WorkerLost(f"rank {self.rank}: rank {peer} closed its plain socket")
        left[peer] = left[peer][n:]
        if not len(left[peer]):
            del left[peer]
        return n

    def settle(self) -> None:
        """Do nothing: the system sends accepted data by itself."""

    def close(self) -> None:
        """Close the sockets."""
        for connection in self.sockets.values():
            connection.close()


class RawUcx:
    """UCXX endpoints between device buffers: tagged sends and receives of known length, polled."""

    what = "UCXX endpoints, device memory"

    def __init__(self, exchange: Exchange, device: Device, hosts: Sequence[str]) -> None:
        self.rank, self.size, self.device = exchange.rank, exchange.size, device
        self.api, self.round = Ucxx(), 0
        self.worker = self.api.worker({})
        mine = np.frombuffer(self.worker.address.tobytes(), np.uint8)
        addresses = [device.to_host(part).tobytes() for part in exchange.allgather(device.asarray(mine))]
        others = [(self.rank + i) % self.size for i in range(1, self.size)]
        self.endpoints = {peer: self.api.endpoint(self.worker, addresses[peer]) for peer in others}
        self.prepare(8)()  # UCX connects with the first messages
        self.settle()

    def prepare(self, nbytes: int) -> Callable[[], None]:
        """Return a function that sends `nbytes` to every other rank and receives as many from each."""
        out: dict[int, Array] = {peer: self.device.full(nbytes, 1, np.uint8) for peer in self.endpoints}
        into: dict[int, Array] = {peer: self.device.zeros(nbytes, np.uint8) for peer in self.endpoints}
        self.device.synchronize()  # UCX reads and writes device memory in no stream's order
        sends, receives = ({peer: self.api.array(a) for peer, a in part.items()} for part in (out, into))
        return lambda: self._swap(sends, receives)

    def _swap(self, sends: dict[int, Any], receives: dict[int, Any]) -> None:
        # Post all receives and sends.
        self.round += 1
        pending = [self.worker.tag_recv(a, self.api.tag(self.round << 16 | peer)) for peer, a in receives.items()]
        mine = self.api.tag(self.round << 16 | self.rank)
        pending += [self.endpoints[peer].tag_send(a, mine) for peer, a in sends.items()]

        # Poll until all are complete.
        deadline = time.monotonic() + LIMIT
        while pending:
            self.worker.progress()
            while pending and pending[-1].completed:
                pending.pop().check_error()
            if time.monotonic() > deadline:
                raise WorkerLost(f"rank {self.rank}: bare UCXX moved no data for {LIMIT} s")

    def settle(self) -> None:
        """Poll on for `SETTLE` seconds: a completed send may not have left yet, and a peer may wait for it."""
        end = time.monotonic() + SETTLE
        while time.monotonic() < end:
            self.worker.progress()

    def close(self) -> None:
        """Free endpoints and worker."""
        self.endpoints.clear()
        self.worker = None


class RawNccl:
    """NCCL by CuPy between device buffers: a group of sends and receives per call, then a synchronised stream."""

    what = "NCCL by CuPy, device memory"

    @staticmethod
    def installed() -> bool:
        """Return True if CuPy is installed and finds NCCL."""
        try:
            from cupy.cuda import nccl
        except Exception:  # CuPy is not installed, or cannot be loaded
            return False
        return bool(nccl.available)

    def __init__(self, exchange: Exchange, device: Device, hosts: Sequence[str]) -> None:
        from cupy.cuda import nccl

        self.rank, self.size, self.device, self.nccl = exchange.rank, exchange.size, device, nccl
        mine = bytes(nccl.get_unique_id()) if self.rank == 0 else bytes(128)
        unique = exchange.allreduce(np.frombuffer(mine, np.uint8).astype(np.int64))
        self.comm = nccl.NcclCommunicator(self.size, bytes(unique.tolist()), self.rank)
        self.peers = [(self.rank + i) % self.size for i in range(1, self.size)]

    def prepare(self, nbytes: int) -> Callable[[], None]:
        """Return a function that sends `nbytes` to every other rank and receives as many from each."""
        out: dict[int, Array] = {peer: self.device.full(nbytes, 1, np.uint8) for peer in self.peers}
        into: dict[int, Array] = {peer: self.device.zeros(nbytes, np.uint8) for peer in self.peers}
        return lambda: self._swap(out, into, nbytes)

    def _swap(self, out: dict[int, Array], into: dict[int, Array], nbytes: int) -> None:
        byte, stream = self.nccl.NCCL_UINT8, self.device.xp.cuda.get_current_stream().ptr
        self.nccl.groupStart()
        for peer in self.peers:
            self.comm.send(out[peer].data.ptr, nbytes, byte, peer, stream)
            self.comm.recv(into[peer].data.ptr, nbytes, byte, peer, stream)
        self.nccl.groupEnd()
        self.device.synchronize()

    def settle(self) -> None:
        """Do nothing: a synchronised stream has sent all data."""

    def close(self) -> None:
        """Destroy the communicator."""
        self.comm.destroy()


RAW: dict[str, Any] = {"tcp": RawTcp, "ucx": RawUcx, "nccl": RawNccl}  #: the bare transports by name
