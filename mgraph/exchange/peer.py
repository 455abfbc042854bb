"""Exchange among ranks of a host, through memory that they map: /dev/shm, and each other's GPU memory.

Every rank has a segment of shared memory, into which the others write their messages (mailbox.h). On GPUs, data go from
the sender's GPU straight into a buffer in the receiver's GPU memory (`IpcBuffers`), and messages carry their lengths
alone. A waiting rank polls for 20 us, then yields its core, and after 200 us sleeps until another rank wakes it. It
never waits inside a kernel.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import Aborted, DeviceError, ExchangeError, MgraphError, WorkerLost
from mgraph.exchange.common import SwapExchange, another_call, call_code, check_addresses
from mgraph.exchange.contract import Array
from mgraph.exchange.ipc_buffers import BUFFER_BYTES, IpcBuffers
from mgraph.exchange.segment import Place, Segment
from mgraph.exchange.waiting import PATIENCE
from mgraph.kernels import constants, load

__all__ = ["PeerExchange", "reach"]

FILE = "exchange/mailbox.h"
SLOT = 256 << 10  #: bytes of a message; longer parts are split
LOOK_NANOSECONDS = 5_000_000  #: between checks of the abort flag
LAYOUT = constants(FILE)
FINISHED, LACKING, DIFFERING = (LAYOUT.enums["Outcome"].index(name) for name in ("finished", "lacking", "differing"))
UNKNOWN = LAYOUT["unknown"]
LINE, HEAD, INBOX = LAYOUT["line_bytes"], LAYOUT["head_bytes"], LAYOUT["inbox_bytes"]
LANES, SLOTS = LAYOUT["lanes_line"], LAYOUT["slots"]


def _segment_bytes(size: int, slot: int) -> int:
    return (LANES + 2 * size) * LINE + size * SLOTS * slot


class PeerExchange(SwapExchange):
    """Collectives through shared memory.

    Parameters
    ----------
    rank, size, aborted
        As in `Exchange`.
    device : Device
        The device of the arrays. On a GPU, a part waits for the device's stream before it is announced.
    patience : float
        Seconds after which `connect` raises `WorkerLost`.
    part_limit : int
        The largest message in bytes, and on a GPU the largest copy to a rank.
    names : sequence of int, optional
        As in `Exchange`; by default 0 .. size - 1.

    Raises
    ------
    DeviceError
        This host has no shared memory left, or no compiler for the kernels of the host.
    CapacityError
        The GPU has too little memory for the buffers.

    Notes
    -----
    The segment takes ``2 * size * part_limit`` bytes of /dev/shm, up to 512 KiB per rank, and the buffers
    ``2 * size * BUFFER_BYTES`` bytes of GPU memory. A part is copied once by its sender and once by its receiver.
    """

    name: ClassVar[str] = "peer"

    def __init__(
        self,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        device: Device,
        *,
        patience: float = PATIENCE,
        part_limit: int | None = None,
        names: Sequence[int] | None = None,
    ) -> None:
        # Reserve the messages' memory.
        super().__init__(rank, size, aborted, names)
        self.mates = tuple(range(size))
        self._device, self._patience = device, patience
        host = device.host
        self._kernels = load(host, FILE)
        self._slot = HEAD + -(-min(part_limit or SLOT, SLOT) // LINE) * LINE
        nbytes = _segment_bytes(size, self._slot)
        self._buffers = IpcBuffers(device, rank, size, part_limit or BUFFER_BYTES) if device.kind == "cuda" else None
        self._lock, self._over, self._step = threading.Lock(), "", 0
        self._others = [r for r in range(size) if r != rank]
        extra: dict[str, Any] = {"pid": os.getpid()}
        try:
            if self._buffers is not None:
                extra["window"] = self._buffers.handle
            with host.taking(nbytes, "the exchange's messages"):
                self._own, self._place = Segment.create(nbytes, extra)
        except BaseException:
            self._free_buffers()
            raise

        # Bind the kernel's arguments once: arrays that every step reuses.
        self._segments: list[Segment | None] = [None] * size
        self._segments[rank] = self._own
        self._addresses = np.zeros(size, np.uint64)
        self._book = np.zeros((8, size), np.uint64)  # one row per argument of `Trade` in mailbox.h
        self._inbox = np.zeros((size, INBOX), np.uint8)
        self._outcome = np.zeros(3, np.int64)
        rows = ("out", "out_bytes", "arrivals", "in_bytes", "sent", "got", "all_sent", "all_got")
        self._blank = np.zeros((6, size), np.uint64)  # the first six rows at the start of a step
        self._blank[[1, 3]] = UNKNOWN
        bound = {
            **dict(zip(rows, self._book, strict=True)), "inbox": self._inbox.reshape(-1), "outcome": self._outcome,
            "segments": self._addresses, "rank": rank, "size": size, "slot": self._slot,
        }  # fmt: skip
        self._trade = self._kernels.Trade.bind(**bound)
        self._least_code = call_code("least", np.dtype(np.int64))
        self._least = self._kernels.Least.bind(code=self._least_code, patience=LOOK_NANOSECONDS, **bound)

    @property
    def address(self) -> bytes:
        """The place of this rank's segment, and the handle of its buffer."""
        return self._place.encode()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Map the segments of all ranks, and wait until they have mapped this rank's.

        Raises
        ------
        DeviceError
            A rank's memory cannot be mapped; `reach` says why.
        WorkerLost
            A rank has not connected in time.
        """
        check_addresses(addresses, self.size)
        with self._lock:
            self._check()
            try:
                self._map([Place.decode(address) for address in addresses])
                self._await_others()
            except BaseException as error:
                self._over = self._over or f"failed before: {error}"
                raise
            finally:
                Segment.unlink(self._place)

    def close(self) -> None:
        """Unmap all memory, from any thread.

        A running call of another thread ends at once. May be called twice.
        """
        # End the running call, then free what it used.
        self._over = self._over or "was closed"
        if (own := self._segments[self.rank]) is not None:
            with suppress(MgraphError):
                self._kernels.Stop(1, base=own.data, size=self.size, slot=self._slot)
        with self._lock:
            self.close_world()
            Segment.unlink(self._place)
            self._segments = [None] * self.size
            self._own = None  # type: ignore[assignment]
            self._free_buffers()

    def _free_buffers(self) -> None:
        if self._buffers is not None:
            self._buffers.close()

    # ---- connecting --------------------------------------------------------------------------------------------------

    def _map(self, places: list[Place]) -> None:
        for r in self._others:
            self._segments[r] = Segment.open(places[r])
        self._addresses[:] = [segment.address for segment in self._segments if segment is not None]
        if self._buffers is not None:
            self._buffers.map([(place.extra["pid"], place.extra["window"]) for place in places])
        self._kernels.Greet(self.size, segments=self._addresses, rank=self.rank, size=self.size, slot=self._slot)

    def _await_others(self) -> None:
        words = self._own.data.view(np.uint64)
        deadline = time.monotonic() + self._patience
        while missing := [r for r in self._others if not words[((LANES + 2 * r) * LINE) // 8 + 1]]:
            self._check()
            if time.monotonic() > deadline:
                raise WorkerLost(
                    f"{self._here()}: rank {self.names[missing[0]]} did not connect within {self._patience:g} s"
                )
            time.sleep(0.001)

    # ---- one step ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._over or self.aborted():
            raise Aborted(f"{self._here()}: the exchange {self._over or 'was aborted'}")

    def _here(self) -> str:
        return f"rank {self.names[self.rank]} of {self.size}, step {self._step}"

    def _swap(self, call: str, parts: Sequence[Array], on_host: bool = False) -> list[Array]:
        with self._lock:
            self._check()
            try:
                on_device = self._buffers is not None and not on_host
                received = self._by_buffer(call, parts) if on_device else self._by_host(call, parts)
            except BaseException as error:
                self._over = self._over or f"failed before: {error}"
                raise
            self._step += 1
            return received

    def least(self, value: int) -> int:
        """Implement `Exchange.least` by a kernel of its own, without arrays for the numbers."""
        with self._lock:
            self._check()
            try:
                self._least(1, step=self._step, value=value, resumes=0)
                while (outcome := self._outcome.item(0)) != FINISHED:
                    self._check_same(outcome, self._least_code)
                    self._check()
                    self._least(1, step=self._step, value=value, resumes=1)
            except BaseException as error:
                self._over = self._over or f"failed before: {error}"
                raise
            self._step += 1
            return self._outcome.item(1)

    def _check_same(self, outcome: int, code: int) -> None:
        """Raise `ExchangeError` if another rank is in another call than that of this `code`."""
        if outcome == DIFFERING:
            _, rank, theirs = self._outcome.tolist()
            raise another_call(self._here(), code, self.names[rank], theirs)

    def _by_host(self, call: str, parts: Sequence[np.ndarray]) -> list[Array]:
        dtype = parts[self.rank].dtype
        received = self._messages(call_code(call, dtype), parts, self._others, self._room(dtype))
        received[self.rank] = parts[self.rank]
        return received

    def _by_buffer(self, call: str, parts: Sequence[Array]) -> list[Array]:
        """Send device arrays: data by the buffers, lengths by messages, in as many rounds as the longest part needs."""
        assert self._buffers is not None
        buffers, dtype = self._buffers, parts[self.rank].dtype
        code, received, left = call_code(call, dtype), list(parts), list(self._others)
        lengths = [np.array([part.nbytes], np.int64) for part in parts]
        first = 0
        # One round per `buffers.nbytes` bytes.
        while left:
            buffers.write(parts, left, first)
            received_lengths = self._messages(code, lengths, left, _words)

            # The first round brings the lengths: allocate.
            if not first:
                for r in left:
                    if received_lengths[r].dtype != np.int64 or len(received_lengths[r]) != 1:
                        raise ExchangeError(f"{self._here()}: rank {r} sent no length")
                    received[r] = self._device.empty(int(received_lengths[r][0]) // dtype.itemsize, dtype)

            # Read this round's data, and drop the ranks that are done.
            buffers.read(received, left, first)
            first += buffers.nbytes
            left = [r for r in left if max(parts[r].nbytes, received[r].nbytes) > first]
        return received

    def _room(self, dtype: np.dtype) -> Callable[[int], np.ndarray]:
        return lambda nbytes: self._device.host.empty(nbytes // dtype.itemsize, dtype)

    def _messages(
        self, code: int, parts: Sequence[np.ndarray], others: list[int], room: Callable[[int], np.ndarray]
    ) -> list[Any]:
        """Send ``parts[r]``, in host memory, to each rank r of `others`.

        Receive theirs into arrays from `room`.
        """
        # Set the addresses and sizes of all parts.
        self._book[:6] = self._blank
        out, out_bytes, into, in_bytes = self._book[:4]
        for r in others:
            part = parts[r] if parts[r].flags.c_contiguous else np.ascontiguousarray(parts[r])
            out[r], out_bytes[r] = part.__array_interface__["data"][0], part.nbytes

        # Trade until all is done. The kernel stops to ask for memory, and now and then to look for an abort.
        received: list[Any] = [None] * self.size
        while True:
            self._trade(1, step=self._step, code=code, patience=LOOK_NANOSECONDS)
            if (outcome := self._outcome.item(0)) == FINISHED:
                break
            self._check_same(outcome, code)
            if outcome == LACKING:
                for r in others:
                    if in_bytes[r] != UNKNOWN and not into[r]:
                        received[r] = room(int(in_bytes[r]))
                        into[r] = received[r].__array_interface__["data"][0]
            self._check()

        # Copy the small parts out of the inbox.
        for r in others:
            if received[r] is None:
                received[r] = room(int(in_bytes[r]))
                received[r].view(np.uint8)[:] = self._inbox[r, : int(in_bytes[r])]
        return received


def _words(nbytes: int) -> np.ndarray:
    return np.empty(nbytes // 8, np.int64)


def reach(addresses: Sequence[bytes], rank: int, device: Device) -> tuple[list[int], str]:
    """Return the ranks whose memory this rank can map, itself among them, and why it cannot map another, or "".

    Parameters
    ----------
    addresses : sequence of bytes
        `PeerExchange.address` of every rank, the trial exchanges'; empty where a rank has none.
    rank : int
        This rank.
    device : Device
    """
    ranks, why = [rank], ""
    for r, address in enumerate(addresses):
        if r == rank:
            continue
        try:
            place = Place.decode(address)
            Segment.open(place)
            if device.kind == "cuda":
                IpcBuffers.try_map(place.extra["pid"], place.extra["window"])
            ranks.append(r)
        except (DeviceError, MgraphError) as error:
            why = why or str(error)
    return ranks, why
