"""The exchange over UCX, through UCXX's core API: GPU buffers by NVLink or InfiniBand, host buffers by shared memory.

A shard has a UCX context and a worker of its own and polls the worker in its own thread while it waits, beside no event
loop. Each step, every rank sends every other one message: its part, of any length, zero included. No length is sent
ahead: the receiver probes for the message, which tells its length and its tag, takes memory and receives. A tag is

    step (32 bits) | call and dtype (16 bits) | source (16 bits)

and is probed for without the middle, so that a rank that makes another call is found out. Device arrays of up to
`staged` bytes travel as host messages; the length tells the receiver which of the two a message is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import Aborted, WorkerLost
from mgraph.exchange.contract import Array, Exchange
from mgraph.exchange.rules import (
    CODE_BITS,
    another_call,
    call_code,
    check_addresses,
    check_op,
    check_parts,
    reduce_ranks,
)
from mgraph.exchange.staging import Staging
from mgraph.exchange.ucxx_api import Ucxx
from mgraph.exchange.waiting import wait_until

__all__ = ["UcxExchange"]

SLOT = 4096  #: bytes up to which a host message is received into memory that is there
STAGED = 8 << 10  #: bytes up to which a device array goes through host memory: by measurement on two H200s
FLUSH = 0.1  #: seconds that `close` gives the last messages to leave
IDLE = 0.02  #: seconds between two polls while no call is running

_SOURCE_BITS = 16
_STEPS = (1 << 32) - 1
_ANY_CODE = (1 << 64) - 1 ^ ((1 << CODE_BITS) - 1) << _SOURCE_BITS
_NOTHING = np.zeros(0, np.uint8)


class UcxExchange(Exchange):
    """Collectives over UCXX endpoints.

    Parameters
    ----------
    rank, size, aborted
        See `Exchange`.
    device : Device
        Where arrays live. Construct in the shard's thread: the device's CUDA context must be current there.
    connect_timeout : float
        Seconds until `connect` gives up with `WorkerLost`.
    staged : int
        Bytes up to which a device array goes through host memory; the same on every rank. 0: only empty ones.
    config : mapping, optional
        UCX options without their prefix, such as ``{"TLS": "tcp"}``; the UCX_* environment otherwise.

    Raises
    ------
    DeviceError
        UCXX is not installed or does not load.

    Notes
    -----
    Endpoints are made without error handling, which would switch off the fast transports; so a dead peer may go
    unnoticed, and waiting ends by `aborted`. Between calls a thread polls every `IDLE` seconds: a message counts as
    sent once a transport has it, which may be before it has left, and the rank that waits for it must not wait for
    the next call here. Measured between two processes of one 2-core machine over shared memory: alltoallv of 8 B in
    7 us, of 64 KiB in 17 us, of 16 MiB in 0.8 ms; UCXX itself, lengths known ahead, takes 4 us for the first and 11 us
    for the second.
    """

    name: ClassVar[str] = "ucx"

    def __init__(
        self,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        device: Device,
        *,
        connect_timeout: float = 30.0,
        staged: int = STAGED,
        config: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(rank, size, aborted)
        self._device, self._timeout = device, connect_timeout
        self._host = device if device.kind == "cpu" else Device("cpu")  # whose memory may be limited
        self._step, self._over = 0, ""  # _over: why no further call is possible
        self._lock = threading.Lock()  # held by the running call; close() waits for it
        self._others = [(rank + i) % size for i in range(1, size)]
        self._on_gpu, self._staged = device.kind != "cpu", staged
        device.use()
        device.synchronize()  # creates the CUDA context, which UCX looks for when its worker is made
        self._staging = Staging(device, size, staged) if self._on_gpu else None
        self._api = Ucxx()
        self._worker = self._api.worker(dict(config or {}))
        self._endpoints: dict[int, Any] = {}
        self._any_code = self._api.mask(_ANY_CODE)
        self._inbox = np.zeros((size, max(SLOT, staged if self._on_gpu else 0)), np.uint8)
        self._slots = [self._api.array(slot) for slot in self._inbox]
        # What UCX is at work on. Both outlive a failed step: UCX may write to the buffers until the worker is gone.
        self._requests: list[tuple[int, Any]] = []
        self._buffers: list[Any] = []
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"ucx-idle-{rank}", daemon=True)

    @property
    def address(self) -> bytes:
        """The UCX worker's address."""
        if self._worker is None:
            raise Aborted(f"{self._here()} was closed")
        return self._worker.address.tobytes()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Make an endpoint to every other rank and wait until all have: UCX connects with the first messages.

        Raises
        ------
        WorkerLost
            A rank did not answer in time.
        """
        check_addresses(addresses, self.size)
        for rank in self._others:
            self._endpoints[rank] = self._api.endpoint(self._worker, addresses[rank])
        self._keeper.start()
        self._swap("max", [np.zeros(1, np.int8)] * self.size, on_host=True, timeout=self._timeout)

    def alltoallv(self, parts: Sequence[Array]) -> list[Array]:
        """See `Exchange.alltoallv`; waits for the calling thread's stream."""
        check_parts(parts, self.size)
        return self._swap("alltoallv", parts)

    def allgather(self, part: Array) -> list[Array]:
        """See `Exchange.allgather`; waits for the calling thread's stream."""
        return self._swap("allgather", [part] * self.size)

    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray:
        """See `Exchange.allreduce`; host memory only, the device is not touched."""
        check_op(op)
        flat = np.ascontiguousarray(values).reshape(-1)
        return reduce_ranks(self._swap(op, [flat] * self.size, on_host=True), op).reshape(np.shape(values))

    def close(self) -> None:
        """Free endpoints, worker and context; also twice. Ends a call that another thread waits in, at its next poll.

        After a regular end, what was sent last gets `FLUSH` seconds to leave; after an abort nothing is waited for.
        """
        regular = not self._over and not self.aborted()
        self._over = self._over or "was closed"
        self._ended.set()
        if self._keeper.is_alive():
            self._keeper.join(5)
        if not self._lock.acquire(timeout=5):  # a call is stuck outside of our polling: leave it what it works on
            return
        try:
            if self._worker is not None:
                self._free(regular)
        finally:
            self._lock.release()

    def _free(self, regular: bool) -> None:
        if regular:
            self._flush()
        elif self._on_gpu:
            # copies between GPUs that UCX has begun run on streams of its own, to their end: wait for them before the
            # pool gets the buffers back
            self._device.xp.cuda.runtime.deviceSynchronize()
        self._requests.clear()
        self._endpoints.clear()
        self._worker = None
        self._buffers.clear()
        self._slots.clear()

    # ---- one step --------------------------------------------------------------------------------------------------

    def _swap(
        self, call: str, parts: Sequence[Array], on_host: bool = False, timeout: float | None = None
    ) -> list[Array]:
        """Send ``parts[r]`` to every other rank r, receive a part from each; this rank's own stays in its place."""
        with self._lock:
            if self._over or self.aborted():
                raise Aborted(f"{self._here()} {self._over or 'was aborted'}")
            try:
                received = self._step_once(call, parts, self._on_gpu and not on_host, timeout)
            except BaseException as error:
                self._over = self._over or f"failed before: {error}"
                raise
            self._step += 1
            return received

    def _step_once(self, call: str, parts: Sequence[Array], on_gpu: bool, timeout: float | None) -> list[Array]:
        deadline = None if timeout is None else time.monotonic() + timeout
        dtype = parts[self.rank].dtype
        code = call_code(call, dtype)
        self._post_sends(code, self._leaving(parts) if on_gpu else parts)
        received, missing = list(parts), list(self._others)
        small: list[tuple[int, int]] = []  # rank and bytes of what came into the inbox
        receive = partial(self._receive, code, dtype, on_gpu, received, small)
        wait_until(partial(self._turn, missing, receive), partial(self._look, missing, deadline))
        for r, nbytes in small:
            data = self._inbox[r, :nbytes].view(dtype)
            received[r] = self._staging.into(data) if on_gpu and self._staging else data.copy()
        self._buffers.clear()
        return received

    def _leaving(self, parts: Sequence[Array]) -> list[Array]:
        """What UCX is to send for device arrays; complete when this returns."""
        short = [r for r in self._others if 0 < parts[r].nbytes <= self._staged]
        staged = self._staging.out(parts, short) if self._staging and short else {}
        # UCX reads and writes device memory by itself, in no stream's order: what computes the parts must be done, and
        # the copies to the host, and what last used the memory that the pool is about to hand out for receiving.
        self._device.synchronize()
        return [staged.get(r, part) for r, part in enumerate(parts)]

    def _post_sends(self, code: int, parts: Sequence[Array]) -> None:
        tag = self._api.tag((self._step & _STEPS) << 32 | code << _SOURCE_BITS | self.rank)
        part = buffer = None
        for r in self._others:
            if parts[r] is not part:
                part = parts[r]
                # an empty device array has no address
                buffer = self._api.array(part if part.size else _NOTHING)
                self._buffers.append(buffer)  # a request does not keep what it reads from or writes to
            self._post(r, self._endpoints[r].tag_send(buffer, tag))

    def _post(self, rank: int, request: Any) -> None:
        """Check `request` at once where it is complete, as small ones are, and watch it otherwise."""
        if request.completed:
            self._check(rank, request)
        else:
            self._requests.append((rank, request))

    def _turn(self, missing: list[int], receive: Callable[[int, Any], None]) -> bool:
        """Poll once: receive what is there from the ranks in `missing`; whether nothing is under way any more."""
        self._worker.progress()
        for r in missing[:]:
            found = self._worker.tag_probe(self._api.tag((self._step & _STEPS) << 32 | r), self._any_code)
            if found.matched:
                missing.remove(r)
                receive(r, found)
        requests = self._requests
        while requests and requests[-1][1].completed:
            self._check(*requests.pop())
        return not missing and not requests

    def _receive(
        self,
        code: int,
        dtype: np.dtype,
        on_gpu: bool,
        received: list[Array],
        small: list[tuple[int, int]],
        rank: int,
        found: Any,
    ) -> None:
        """Take the message `found` of `rank`: into its slot of the inbox, or into a new array of `received`."""
        tag, nbytes = found.sender_tag, found.length
        theirs = tag.value >> _SOURCE_BITS & (1 << CODE_BITS) - 1
        if theirs != code:
            raise another_call(self._here(), code, rank, theirs)
        if nbytes <= (self._staged if on_gpu else SLOT):
            small.append((rank, nbytes))
            buffer = self._slots[rank]
        else:
            received[rank] = (self._device if on_gpu else self._host).empty(nbytes // dtype.itemsize, dtype)
            buffer = self._api.array(received[rank])
            self._buffers.append(buffer)
        self._post(rank, self._worker.tag_recv(buffer, tag))

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _look(self, missing: Sequence[int], deadline: float | None) -> None:
        """Whether waiting still makes sense: raises where it does not."""
        if self._over or self.aborted():
            raise Aborted(f"{self._here()} {self._over or 'was aborted'}")
        for rank, request in self._requests:
            if request.completed:
                self._check(rank, request)
        if deadline is not None and time.monotonic() > deadline:
            late = sorted({*missing, *(rank for rank, request in self._requests if not request.completed)})
            raise WorkerLost(f"rank {', '.join(map(str, late))} did not answer over UCX within {self._timeout} s")

    def _check(self, rank: int, request: Any) -> None:
        try:
            request.check_error()
        except Exception as error:  # UCXX has one class an error code
            raise Aborted(f"{self._here()} lost its connection to rank {rank}: {error}") from None

    def _keep(self) -> None:
        self._device.use()
        while not self._ended.wait(IDLE):
            if self._lock.acquire(blocking=False):
                try:
                    if self._worker is not None:
                        self._worker.progress()
                finally:
                    self._lock.release()

    def _flush(self) -> None:
        closing = [endpoint.close() for endpoint in self._endpoints.values()]
        end = time.monotonic() + FLUSH
        while not all(request.completed for request in closing) and time.monotonic() < end:
            self._worker.progress()

    def _here(self) -> str:
        return f"the exchange of rank {self.rank}, step {self._step},"
