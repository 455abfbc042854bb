"""The exchange over Dask's comms: for CPUs, and for clusters without UCX. TLS and interfaces come with the comms.

One comm for each directed pair of ranks, opened by the sender, first in first out. A call is one coroutine on the event
loop: it queues all messages, which the loop writes in the background, and then reads from one rank after another.
Reading on demand bounds memory: what a faster rank has sent ahead, one step at most, waits in socket buffers and in the
sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from distributed.comm import Comm

from mgraph.device import Device
from mgraph.errors import Aborted, InvalidOption, WorkerLost
from mgraph.exchange.contract import Array, Exchange
from mgraph.exchange.hub import Hub, Key
from mgraph.exchange.messages import Head
from mgraph.exchange.rules import check_addresses, check_op, check_parts, reduce_ranks
from mgraph.exchange.waiting import POLL

__all__ = ["TcpExchange"]

PART_LIMIT = 64 << 20  #: bytes of one message; larger parts travel as several

_T = TypeVar("_T")


class TcpExchange(Exchange):
    """Collectives over Dask comms.

    Parameters
    ----------
    rank, size, aborted
        See `Exchange`.
    device : Device
        Where arrays live. From a GPU they go through host memory: ``get`` waits for the device's stream.
    hub : Hub
        The worker's hub. Calls run on its loop and must come from another thread.
    key : tuple of str and int
        The graph's id and the attempt; a message of another attempt is refused.
    part_limit : int
        Bytes of one message.
    connect_timeout : float
        Seconds until `connect` gives up with `WorkerLost`.

    Notes
    -----
    A part up to `messages.INLINE` bytes is copied once on each side, a longer one on neither: the sender waits until
    the kernel has taken it, the receiver keeps the buffer that was read into. A part longer than `part_limit` is copied
    once on receipt. Measured between two processes of one 2-core machine: alltoallv of 8 B 134 us, of 16 MiB 4.9 ms;
    the bare comms take 77 us and 4.3 ms of that.
    """

    name: ClassVar[str] = "tcp"

    def __init__(
        self,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        device: Device,
        *,
        hub: Hub,
        key: Key,
        part_limit: int = PART_LIMIT,
        connect_timeout: float = 10.0,
    ) -> None:
        if part_limit < 8:
            raise InvalidOption(f"part_limit is {part_limit} bytes; one item may need 8")
        super().__init__(rank, size, aborted)
        self._device, self._hub, self._key = device, hub, key
        self._host = device if device.kind == "cpu" else Device("cpu")  # whose memory may be limited
        self._part_limit, self._timeout = part_limit, connect_timeout
        self._out: dict[int, Comm] = {}
        self._step, self._over = 0, ""  # _over: why no further call is possible
        self._inbox = hub.open(key, rank, size)

    @property
    def address(self) -> bytes:
        """The worker's contact address."""
        return self._hub.address.encode()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Open a comm to every other rank and wait for theirs.

        Raises
        ------
        WorkerLost
            A rank could not be reached, or did not connect, in time.
        ExchangeError
            A rank belongs to another attempt, or its worker has no hub.
        """
        check_addresses(addresses, self.size)
        self._call(self._connect([address.decode() for address in addresses]))

    def alltoallv(self, parts: Sequence[Array]) -> list[Array]:
        """See `Exchange.alltoallv`."""
        check_parts(parts, self.size)
        host = [part if rank == self.rank else self._device.to_host(part) for rank, part in enumerate(parts)]
        return self._to_device(self._call(self._swap("alltoallv", host)))

    def allgather(self, part: Array) -> list[Array]:
        """See `Exchange.allgather`."""
        host = [self._device.to_host(part)] * self.size
        host[self.rank] = part
        return self._to_device(self._call(self._swap("allgather", host)))

    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray:
        """See `Exchange.allreduce`."""
        check_op(op)
        flat = np.ascontiguousarray(values).reshape(-1)
        return reduce_ranks(self._call(self._swap(op, [flat] * self.size)), op).reshape(np.shape(values))

    def close(self) -> None:
        """Abort the comms; from any thread, also twice. Returns once the event loop has done it, or after 5 s."""
        if not self._over:
            self._over = "was closed"
        loop = self._hub.loop
        if not loop.is_running():  # nobody is left to serve the comms
            self._release()
            return
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self._release()
            return
        with suppress(RuntimeError, TimeoutError, CancelledError):  # the loop is stopping, and closes them itself
            asyncio.run_coroutine_threadsafe(self._close(), loop).result(5)

    # ---- on the shard's thread -------------------------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run `coroutine` on the loop and wait for it; on the first failure the exchange is over."""
        if self._over or self.aborted():
            coroutine.close()
            raise Aborted(f"{self._here()} {self._over or 'was aborted'}")
        try:
            return self._wait(coroutine)
        except CancelledError:
            self._over = "lost its event loop"
            raise Aborted(f"{self._here()} {self._over}") from None
        except BaseException as error:
            self._over = self._over or f"failed before: {error}"
            raise

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._hub.loop)
        while True:
            try:
                return future.result(POLL)
            except TimeoutError:
                if future.done():  # it finished just now, or the error is its own
                    return future.result()
                if self._over or self.aborted():
                    future.cancel()
                    raise Aborted(f"{self._here()} {self._over or 'was aborted'}") from None
                if not self._hub.loop.is_running():
                    raise CancelledError from None

    def _to_device(self, arrays: list[Array]) -> list[Array]:
        own = arrays[self.rank]
        return [array if array is own else self._device.asarray(array) for array in arrays]

    def _here(self) -> str:
        return f"graph {self._key[0]}: the exchange of rank {self.rank}, step {self._step},"

    # ---- on the event loop -----------------------------------------------------------------------------------------

    async def _connect(self, addresses: list[str]) -> None:
        reaching = [asyncio.ensure_future(self._reach(rank, addresses[rank])) for rank in self._others()]
        try:
            await asyncio.gather(*reaching)
        finally:
            for task in reaching:  # the first failure leaves the others running
                task.cancel()
        try:
            await asyncio.wait_for(self._inbox.full.wait(), self._timeout)
        except TimeoutError:
            late = [f"{rank} at {addresses[rank]}" for rank in self._others() if rank not in self._inbox.comms]
            raise WorkerLost(f"rank {', '.join(late)} did not connect within {self._timeout} s") from None

    async def _reach(self, rank: int, address: str) -> None:
        connecting = self._hub.connect(address, self._key, self.rank, rank, self._timeout)
        try:
            comm = await asyncio.wait_for(connecting, self._timeout)
        except (OSError, TimeoutError) as error:
            raise WorkerLost(f"rank {rank} at {address} was not reached within {self._timeout} s: {error}") from error
        self._out[rank] = comm

    async def _swap(self, call: str, parts: list[np.ndarray]) -> list[np.ndarray]:
        """Send ``parts[r]`` to every other rank r, receive a part from each; this rank's own stays in its place."""
        mine = Head(self._key, self._step, self.rank, call, parts[self.rank].dtype.str)
        received: list[Any] = list(parts)
        rank = self.rank
        try:
            for rank in self._others():
                await self._send(rank, mine, parts[rank])
            for rank in reversed(self._others()):  # the rank before this one sends to this one first
                received[rank] = await self._receive(rank, replace(mine, source=rank))
            for rank in self._others():
                await _flushed(self._out[rank])
        except OSError:
            raise Aborted(f"{self._here()} found that rank {rank} has closed its connection") from None
        self._step += 1
        return received

    async def _send(self, rank: int, head: Head, part: np.ndarray) -> None:
        comm = self._out[rank]
        # a socket takes what it is given before this call ends; other comms hand over the very array, whenever
        for message in head.messages(part, self._part_limit, copy=not hasattr(comm, "stream")):
            await comm.write(message)

    async def _receive(self, rank: int, head: Head) -> np.ndarray:
        comm = self._inbox.comms[rank]
        total, data = head.take(await comm.read(), 0)
        if data.size == total:
            return data
        whole, at = await asyncio.to_thread(self._host.empty, total, data.dtype), data.size  # a limited host's maps it
        whole[:at] = data
        while at < total:
            _, data = head.take(await comm.read(), at)
            whole[at : at + data.size] = data
            at += data.size
        return whole

    def _others(self) -> list[int]:
        return [(self.rank + i) % self.size for i in range(1, self.size)]

    async def _close(self) -> None:
        self._release()

    def _release(self) -> None:
        self._hub.release(self._key, self.rank)
        for comm in self._out.values():
            comm.abort()


async def _flushed(comm: Comm) -> None:
    """Wait until the kernel has taken all that was queued: until then the comm holds views of the caller's arrays."""
    stream = getattr(comm, "stream", None)
    if stream is not None and stream.writing():
        await stream.write(b"")
