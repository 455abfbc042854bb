"""Receive buffers in GPU memory, mapped by CUDA IPC.

The other ranks of a host copy their parts into them. Each buffer is a double buffer per other rank: part n goes into
half n modulo 2. That half is free, because its last part, n - 2, was read by the receiver before it sent its own part
n - 1, which this rank has received.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mgraph.device import Array, Device
from mgraph.errors import CapacityError, DeviceError

__all__ = ["BUFFER_BYTES", "IpcBuffers"]

BUFFER_BYTES = 32 << 20  #: largest copy to a rank, in bytes


class IpcBuffers:
    """A rank's receive buffer, and its mappings of the other ranks' buffers.

    Parameters
    ----------
    device : Device
        A GPU.
    rank, size : int
    nbytes : int
        The largest copy to a rank, in bytes.

    Attributes
    ----------
    handle : str
        The IPC handle for other processes and the address for this one, in hexadecimal.

    Raises
    ------
    CapacityError
        The GPU lacks ``2 * size * nbytes`` bytes. The driver allocates them: memory of a pool cannot be exported.
    """

    def __init__(self, device: Device, rank: int, size: int, nbytes: int) -> None:
        self.device, self.rank, self.size = device, rank, size
        self.nbytes = -(-nbytes // 256) * 256
        self._runtime = device.xp.cuda.runtime
        whole = 2 * size * self.nbytes
        try:
            self._base = int(self._runtime.malloc(whole))
        except self._runtime.CUDARuntimeError as error:
            raise CapacityError(f"{whole} bytes are needed for the exchange's buffer on {device}: {error}") from None
        handle = bytes(self._runtime.ipcGetMemHandle(self._base))
        self.handle = f"{handle.hex()} {self._base:x}"
        self._theirs: list[int] = [0] * size
        self._mapped: list[int] = []
        self._counts = [0] * size  # parts exchanged with each rank
        self._read = device.xp.cuda.Event(disable_timing=True)
        self._reading = False  # True while copies out of the buffer may be in flight; `_read` follows them

    def map(self, handles: Sequence[tuple[int, str]]) -> None:
        """Map the buffers of the other ranks, by the process id and the handle of each rank.

        Raises
        ------
        DeviceError
            The GPUs do not reach each other, or the processes may not share memory.
        """
        for r, (pid, handle) in enumerate(handles):
            if r == self.rank:
                continue
            exported, address = handle.split()
            if pid == os.getpid():  # a process cannot open its own handle
                self._theirs[r] = int(address, 16)
                continue
            self._theirs[r] = _open(self._runtime, exported)
            self._mapped.append(self._theirs[r])

    @staticmethod
    def try_map(pid: int, handle: str) -> None:
        """Map the buffers of another rank and unmap them.

        Raises `DeviceError` if it fails.
        """
        import cupy

        runtime = cupy.cuda.runtime
        if pid != os.getpid():
            runtime.ipcCloseMemHandle(_open(runtime, handle.split()[0]))

    def write(self, parts: Sequence[Array], ranks: Sequence[int], first: int) -> None:
        """Copy up to `nbytes` bytes of ``parts[r]``, from byte `first`, into the buffer of each rank r, and wait.

        Waits only if there is something to copy, or if the last copies out of the buffer may be in flight.
        """
        # Queue the copies.
        stream = self.device.xp.cuda.get_current_stream()
        copies = [
            self._copy(self._theirs[r] + self._place(self.rank, r), parts[r].data.ptr + first, parts[r], first, stream)
            for r in ranks
        ]

        # Wait for the last reads: after this call returns, other ranks may overwrite what they read.
        if self._reading:
            self._read.synchronize()  # on whichever stream
            self._reading = False
        if any(copies):
            stream.synchronize()

    def read(self, received: Sequence[Array], ranks: Sequence[int], first: int) -> None:
        """Copy the ranks' writes into ``received[r]`` from byte `first`, in the stream's order."""
        stream = self.device.xp.cuda.get_current_stream()
        for r in ranks:
            at = self._base + self._place(r, r)
            self._reading |= self._copy(received[r].data.ptr + first, at, received[r], first, stream)
            self._counts[r] += 1
        if self._reading:
            self._read.record(stream)

    def _place(self, writer: int, pair: int) -> int:
        """Return the offset of rank `writer`'s part in a buffer, by the parts exchanged with `pair` so far."""
        return (2 * writer + self._counts[pair] % 2) * self.nbytes

    def _copy(self, target: int, source: int, array: Array, first: int, stream: Any) -> bool:
        """Copy up to `nbytes` bytes of `array` from byte `first` on.

        Returns True if there are any.
        """
        count = min(array.nbytes - first, self.nbytes)
        if count > 0:
            self._runtime.memcpyAsync(target, source, count, self._runtime.memcpyDefault, stream.ptr)
        return bool(count > 0)

    def close(self) -> None:
        """Unmap the others' buffers and free this rank's own.

        Waits for copies in flight. May be called twice.
        """
        mapped, self._mapped = self._mapped, []
        base, self._base = self._base, 0
        if not base:
            return
        # Wait for copies in flight, unmap, then free. Errors cannot be handled here.
        self.device.use()
        with suppress(self._runtime.CUDARuntimeError):
            self._runtime.deviceSynchronize()
        for address in mapped:
            with suppress(self._runtime.CUDARuntimeError):
                self._runtime.ipcCloseMemHandle(address)
        with suppress(self._runtime.CUDARuntimeError):
            self._runtime.free(base)


def _open(runtime: Any, handle: str) -> int:
    try:
        return int(runtime.ipcOpenMemHandle(bytes.fromhex(handle)))
    except runtime.CUDARuntimeError as error:
        raise DeviceError(f"the memory of another rank's GPU cannot be mapped: {error}") from None
