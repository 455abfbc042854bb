"""Regions of memory of all ranks of a graph, which programs that run together read and write.

A region has the inboxes of a rank and the arrays of a program. Ranks map each other's regions: segments of /dev/shm on
CPUs, CUDA IPC memory on GPUs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import CapacityError, DeviceError
from mgraph.exchange.links import Link
from mgraph.exchange.segment import Place, Segment
from mgraph.kernels import Struct, constants

__all__ = ["Layout", "gather_bytes", "open_region"]

WORDS = constants("kernels/world_common.cuh")
SLOT, SLOTS_OFFSET, SHARES = WORDS["slot_words"], WORDS["slots_offset"], WORDS["share_words"]
ALIGNED = 256  #: bytes to which arrays of a region are aligned
HANDLE_BYTES = 1024  #: maximum bytes of a region's name
BLOCK = 2 << 20  #: bytes that CUDA maps at once
ALREADY_MAPPED = 208  # cudaErrorAlreadyMapped
CLOSING = 2.0  #: seconds that another graph of this process may take to unmap its regions


class Collectives(Protocol):
    """Collective calls that a world needs of an `Exchange`."""

    rank: int
    size: int
    mates: tuple[int, ...]
    aborted: Callable[[], bool]

    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray: ...
    def barrier(self) -> None: ...
    def carry(self, words: np.ndarray, cargo: Any) -> list[np.ndarray]: ...
    def least(self, value: int) -> int: ...
    def links(self) -> list[Link] | None: ...


def gather_bytes(exchange: Collectives, data: bytes) -> list[bytes]:
    """All-gather at most `HANDLE_BYTES` bytes per rank."""
    table = np.zeros((exchange.size, HANDLE_BYTES), np.int32)
    table[exchange.rank, 0] = len(data)
    table[exchange.rank, 1 : len(data) + 1] = np.frombuffer(data, np.uint8)
    every = exchange.allreduce(table.reshape(-1)).reshape(table.shape)
    return [every[r, 1 : every[r, 0] + 1].astype(np.uint8).tobytes() for r in range(exchange.size)]


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNED) * ALIGNED


class Layout:
    """Offsets of a program's inboxes and arrays in the region of each rank.

    Attributes
    ----------
    world : Struct
        The field ``World world`` of the program.
    offsets : dict of str to int
        The byte offset of each array.
    told : int
        The offset of what a rank tells the gateways of its group.
    inboxes, outboxes : int
        The offsets of the inboxes, one per parity of the meeting and rank, and of the messages to each rank whose
        memory is not mapped, if there are such ranks.
    box : int
        The bytes of an inbox and of an outbox.
    sizes : list of int
        The bytes of each rank's region.
    common : bool
        True if there are arrays of all ranks.
    """

    def __init__(
        self, size: int, room: int, message: int, apart: bool, arrays: Mapping[str, int], common: Mapping[str, int]
    ) -> None:
        self.room, self.message, self.box = room, message, room * message
        self.told = aligned(SLOTS_OFFSET + 2 * size * SLOT * 8)
        self.inboxes = aligned(self.told + 8 * (size + SHARES))
        self.outboxes = aligned(self.inboxes + 2 * size * self.box)
        at = aligned(self.outboxes + size * self.box) if apart else self.outboxes
        self.offsets = {}
        for name, nbytes in arrays.items():
            self.offsets[name], at = at, aligned(at + nbytes)
        self.sizes, self.starts = [at] * size, tuple[int, ...]()
        # Arrays of all ranks come last, because they are in the region of rank 0 alone.
        for name, nbytes in common.items():
            self.offsets[name], at = at, aligned(at + nbytes)
        self.sizes[0], self.common = at, bool(common)
        self.world = Struct()


class OwnRegion:
    """Region that no other rank maps, for a rank without mates."""

    name = b"own"

    def __init__(self, device: Device, rank: int, size: int, nbytes: int) -> None:
        self.device, self.addresses = device, [0] * size
        self._bytes = device.zeros(nbytes, np.uint8)
        self.addresses[rank] = device.address(self._bytes)

    def open(self, names: Mapping[int, bytes]) -> None: ...

    def opened(self) -> None: ...

    def unmap(self) -> None: ...

    def free(self) -> None:
        self._bytes = None

    def array(self, offset: int, n: int, dtype: Any, rank: int | None = None) -> Array:
        """Return n elements of the region of a mate, by default of the own one."""
        return self._bytes[offset : offset + n * np.dtype(dtype).itemsize].view(dtype)


class HostRegion(OwnRegion):
    """Segment of /dev/shm, which all ranks of the host map."""

    def __init__(self, device: Device, rank: int, size: int, nbytes: int) -> None:
        self.device, self.rank, self.addresses = device, rank, [0] * size
        with device.taking(nbytes, "the exchange of programs"):
            own, self._place = Segment.create(nbytes, {"pid": os.getpid()})
        self._segments: list[Segment | None] = [None] * size
        self._segments[self.rank] = own
        self.addresses[self.rank] = own.address
        self.name = self._place.encode()

    def open(self, names: Mapping[int, bytes]) -> None:
        """Map the segments of other ranks."""
        for r, name in names.items():
            self._segments[r] = segment = Segment.open(Place.decode(name))
            self.addresses[r] = segment.address

    def array(self, offset: int, n: int, dtype: Any, rank: int | None = None) -> Array:
        segment = self._segments[self.rank if rank is None else rank]
        assert segment is not None
        return segment.data[offset : offset + n * np.dtype(dtype).itemsize].view(dtype)

    def opened(self) -> None:
        """Remove the segment's name: all ranks have mapped it."""
        Segment.unlink(self._place)

    def unmap(self) -> None:
        Segment.unlink(self._place)
        self._segments = []


class DeviceRegion(OwnRegion):
    """Memory from the driver, which other processes map by CUDA IPC; a pool's memory cannot be mapped.

    CUDA maps blocks of 2 MiB, each once in a process. So a region has blocks of its own.
    """

    def __init__(self, device: Device, rank: int, size: int, nbytes: int) -> None:
        nbytes = -(-nbytes // BLOCK) * BLOCK
        self.device, self.rank, self.addresses = device, rank, [0] * size
        self._runtime = device.xp.cuda.runtime
        try:
            self._base = int(self._runtime.malloc(nbytes))
        except self._runtime.CUDARuntimeError as error:
            raise CapacityError(f"{nbytes} bytes of {device} are needed to run programs together: {error}") from None
        self._runtime.memset(self._base, 0, nbytes)
        handle = bytes(self._runtime.ipcGetMemHandle(self._base)).hex()
        self.name = json.dumps({"pid": os.getpid(), "handle": handle, "address": self._base}).encode()
        self.addresses[self.rank], self._nbytes = self._base, nbytes
        self._mapped: list[int] = []

    def open(self, names: Mapping[int, bytes]) -> None:
        """Map the regions of other processes; regions of this process have addresses already."""
        self._runtime.deviceSynchronize()  # the region is cleared before others write to it
        for r, name in names.items():
            place = json.loads(name)
            if place["pid"] == os.getpid():
                self.addresses[r] = place["address"]
                continue
            try:
                self.addresses[r] = self._open(bytes.fromhex(place["handle"]))
            except self._runtime.CUDARuntimeError as error:
                raise DeviceError(f"the memory of rank {r}'s GPU cannot be mapped: {error}") from None
            self._mapped.append(self.addresses[r])

    def _open(self, handle: bytes) -> int:
        """Map the memory of a handle, and return its address."""
        # A graph that is being closed here may not have unmapped yet what was at this address before.
        end = time.monotonic() + CLOSING
        while True:
            try:
                return int(self._runtime.ipcOpenMemHandle(handle))
            except self._runtime.CUDARuntimeError as error:
                if error.status != ALREADY_MAPPED or time.monotonic() > end:
                    raise
            time.sleep(CLOSING / 1000)

    def unmap(self) -> None:
        with suppress(self._runtime.CUDARuntimeError):
            self._runtime.deviceSynchronize()
        for address in self._mapped:
            with suppress(self._runtime.CUDARuntimeError):
                self._runtime.ipcCloseMemHandle(address)
        self._mapped = []

    def free(self) -> None:
        base, self._base = self._base, 0
        if base:
            with suppress(self._runtime.CUDARuntimeError):
                self._runtime.free(base)

    def array(self, offset: int, n: int, dtype: Any, rank: int | None = None) -> Array:
        cuda = self.device.xp.cuda
        base = self._base if rank is None else self.addresses[rank]
        memory = cuda.UnownedMemory(base, self._nbytes, self, self.device.index)
        return self.device.xp.ndarray((n,), dtype, cuda.MemoryPointer(memory, offset))


REGIONS = {"own": OwnRegion, "cpu": HostRegion, "cuda": DeviceRegion}


def open_region(exchange: Collectives, device: Device, mates: Sequence[int], sizes: Sequence[int]) -> OwnRegion:
    """Allocate regions of `sizes` bytes, one per rank, and map those of `mates`; return the own region. Collective.

    Raises
    ------
    CapacityError
        A rank has too little memory for its region. No rank has one then.
    """
    region, why = None, ""
    try:
        make = REGIONS[device.kind if len(mates) > 1 else "own"]
        region = make(device, exchange.rank, exchange.size, sizes[exchange.rank])
    except (CapacityError, DeviceError) as error:
        why = str(error)
    # All ranks or none: a rank without memory tells the others.
    names = gather_bytes(exchange, region.name if region is not None else b"")
    lacking = [r for r, name in enumerate(names) if not name]
    try:
        if region is None or lacking:
            reason, nbytes = f": {why}" if why else "", sizes[lacking[0]]
            raise CapacityError(f"rank {lacking[0]} has no {nbytes} bytes for the exchange of programs{reason}")
        # Map the regions of the others.
        region.open({r: names[r] for r in mates if r != exchange.rank})
        exchange.barrier()
    except BaseException:
        if region is not None:
            region.unmap()
            region.free()
        raise
    region.opened()
    return region
