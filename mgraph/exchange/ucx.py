"""Exchange over UCX, by UCXX's core API: GPU buffers by NVLink or InfiniBand, host buffers by shared memory.

A shard has its own UCX context and worker. While it waits, it polls the worker in its own thread, without an event
loop. In each step, every rank sends one message to every other rank: its part, which may be empty. Lengths are not sent
ahead: the receiver probes for the message, which gives its length and tag, then allocates memory and receives. A tag is

    step (32 bits) | call and dtype (16 bits) | source (16 bits)

The probe ignores the middle field, so that a rank in another call is detected. Device arrays of up to `staged` bytes
are sent from host memory; the receiver recognises these by their length.
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
from mgraph.exchange.common import (
    CODE_BITS,
    SwapExchange,
    another_call,
    call_code,
    check_addresses,
)
from mgraph.exchange.contract import Array
from mgraph.exchange.staging import Staging
from mgraph.exchange.ucxx_api import Ucxx
from mgraph.exchange.waiting import PATIENCE, wait_until

__all__ = ["UcxExchange"]

SLOT = 4096  #: bytes of the preallocated receive buffer for a host message
STAGED = 8 << 10  #: bytes up to which a device array is staged in host memory: measured on two H200s
FLUSH = 0.1  #: seconds that `close` waits for the last messages to leave
IDLE = 0.02  #: seconds between polls between calls

_SOURCE_BITS = 16
_STEPS = (1 << 32) - 1
_ANY_CODE = (1 << 64) - 1 ^ ((1 << CODE_BITS) - 1) << _SOURCE_BITS
_NOTHING = np.zeros(0, np.uint8)


class UcxExchange(SwapExchange):
    """Collectives over UCXX endpoints.

    Parameters
    ----------
    rank, size, aborted
        As in `Exchange`.
    device : Device
        The device of the arrays. Construct the exchange in the shard's thread: the device's CUDA context must be
        current.
    patience : float
        Seconds after which `connect` raises `WorkerLost`.
    staged : int
        Device arrays of up to this many bytes are sent through host memory; the same on every rank. With 0, only empty
        ones are.
    config : mapping, optional
        UCX options without their prefix, such as ``{"TLS": "tcp"}``; by default those of the UCX_* environment.
    names : sequence of int, optional
        As in `Exchange`; by default 0 .. size - 1.

    Raises
    ------
    DeviceError
        UCXX is not installed or cannot be loaded.

    Notes
    -----
    Endpoints are created without error handling, which would disable the fast transports. So UCX may not report a dead
    peer; `aborted` ends a wait for it. Between calls a thread polls every `IDLE` seconds, because UCX calls a message
    sent when a transport has accepted it, which may be before it has left; its receiver must not wait until this rank's
    next call. Measured between two processes on a 2-core machine over shared memory: an alltoallv takes 7 us for 8 B,
    17 us for 64 KiB and 0.8 ms for 16 MiB. UCXX alone, with known lengths, takes 4 us and 11 us for the first two.
    """

    name: ClassVar[str] = "ucx"

    def __init__(
        self,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        device: Device,
        *,
        patience: float = PATIENCE,
        staged: int = STAGED,
        config: Mapping[str, str] | None = None,
        names: Sequence[int] | None = None,
    ) -> None:
        super().__init__(rank, size, aborted, names)
        # State: the step, the reason of the end, the order of sends.
        self._device, self._patience = device, patience
        self._step, self._over = 0, ""  # _over: the reason why no call is possible any more
        self._lock = threading.Lock()  # held by the running call; close() waits for it
        self._others = [(rank + i) % size for i in range(1, size)]
        self._on_gpu, self._staged = device.kind != "cpu", staged
        device.use()
        device.synchronize()  # creates the CUDA context, which a new UCX worker looks for
        self._staging = Staging(device, size, staged) if self._on_gpu else None

        # UCX's objects, and the receive buffers of small messages.
        self._api = Ucxx()
        self._worker = self._api.worker(dict(config or {}))
        self._endpoints: dict[int, Any] = {}
        self._any_code = self._api.mask(_ANY_CODE)
        self._inbox = np.zeros((size, max(SLOT, staged if self._on_gpu else 0)), np.uint8)
        self._slots = [self._api.array(slot) for slot in self._inbox]
        # The requests in progress and their buffers. Kept after a failed step, because UCX may write to the buffers
        # until the worker is gone.
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
        """Create an endpoint to every other rank, and exchange a first message, with which UCX connects.

        Raises
        ------
        WorkerLost
            A rank did not answer in time.
        """
        check_addresses(addresses, self.size)
        for rank in self._others:
            self._endpoints[rank] = self._api.endpoint(self._worker, addresses[rank])
        self._keeper.start()
        self._swap("max", [np.zeros(1, np.int8)] * self.size, on_host=True, timeout=self._patience)

    def close(self) -> None:
        """Free endpoints, worker and context.

        Ends another thread's call at its next poll. May be called twice. After a regular end, it waits up to `FLUSH`
        seconds for the last messages to leave. After an abort, it waits only for UCX's copies on the GPU.
        """
        regular = not self._over and not self.aborted()
        self._over = self._over or "was closed"
        self._ended.set()
        if self._keeper.is_alive():
            self._keeper.join(5)
        if not self._lock.acquire(timeout=5):  # a call is stuck and does not poll: leave it its buffers
            return
        try:
            if self._worker is not None:
                self._free(regular)
            self.close_world()
        finally:
            self._lock.release()

    def _free(self, regular: bool) -> None:
        if regular:
            self._flush()
        elif self._on_gpu:
            # UCX cannot end the copies that it has begun on its own streams: wait for them before the buffers return to
            # the pool
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
        # Post the sends.
        self._post_sends(code, self._leaving(parts) if on_gpu else parts)

        # Receive each part when the probe finds it.
        received, missing = list(parts), list(self._others)
        small: list[tuple[int, int]] = []  # rank and bytes of each message in the inbox
        receive = partial(self._receive, code, dtype, on_gpu, received, small)
        wait_until(partial(self._turn, missing, receive), partial(self._look, missing, deadline))

        # Copy the small parts out of the inbox.
        for r, nbytes in small:
            data = self._inbox[r, :nbytes].view(dtype)
            received[r] = self._staging.into(data) if on_gpu and self._staging else data.copy()
        self._buffers.clear()
        return received

    def _leaving(self, parts: Sequence[Array]) -> list[Array]:
        """Return the buffers to send for device arrays: host copies of short ones.

        Complete on return.
        """
        short = [r for r in self._others if 0 < parts[r].nbytes <= self._staged]
        staged = self._staging.out(parts, short) if self._staging and short else {}
        # UCX ignores streams. So these must be done: the kernels that compute the parts, the copies to the host, and
        # the last use of the memory that the pool will return for receiving.
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
                self._buffers.append(buffer)  # a request does not keep its buffer alive
            self._post(r, self._endpoints[r].tag_send(buffer, tag))

    def _post(self, rank: int, request: Any) -> None:
        """Check `request` now if it is complete, as small ones are; else keep it for later."""
        if request.completed:
            self._check(rank, request)
        else:
            self._requests.append((rank, request))

    def _turn(self, missing: list[int], receive: Callable[[int, Any], None]) -> bool:
        """Poll once, and receive the messages of ranks in `missing`.

        Returns True if all transfers are complete.
        """
        self._worker.progress()
        for r in missing[:]:
            probe = self._worker.tag_probe(self._api.tag((self._step & _STEPS) << 32 | r), self._any_code)
            if probe.matched:
                missing.remove(r)
                receive(r, probe)
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
        probe: Any,
    ) -> None:
        """Receive the message `probe` of `rank`, into its slot of the inbox or into a new array in `received`."""
        # The tag has the sender's call.
        tag, nbytes = probe.sender_tag, probe.length
        theirs = tag.value >> _SOURCE_BITS & (1 << CODE_BITS) - 1
        if theirs != code:
            raise another_call(self._here(), code, self.names[rank], theirs)

        # Receive: short messages into the inbox.
        if nbytes <= (self._staged if on_gpu else SLOT):
            small.append((rank, nbytes))
            buffer = self._slots[rank]
        else:
            received[rank] = (self._device if on_gpu else self._device.host).empty(nbytes // dtype.itemsize, dtype)
            buffer = self._api.array(received[rank])
            self._buffers.append(buffer)
        self._post(rank, self._worker.tag_recv(buffer, tag))

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _look(self, missing: Sequence[int], deadline: float | None) -> None:
        """Raise if waiting is pointless: the exchange has ended, a transfer has failed, or `deadline` is over."""
        if self._over or self.aborted():
            raise Aborted(f"{self._here()} {self._over or 'was aborted'}")
        for rank, request in self._requests:
            if request.completed:
                self._check(rank, request)
        if deadline is not None and time.monotonic() > deadline:
            late = sorted({*missing, *(rank for rank, request in self._requests if not request.completed)})
            ranks = ", ".join(str(self.names[r]) for r in late)
            raise WorkerLost(f"rank {ranks} did not answer over UCX within {self._patience:g} s")

    def _check(self, rank: int, request: Any) -> None:
        try:
            request.check_error()
        except Exception as error:  # UCXX has a class for each error code
            raise Aborted(f"{self._here()} lost its connection to rank {self.names[rank]}: {error}") from None

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
        return f"the exchange of rank {self.names[self.rank]}, step {self._step},"
