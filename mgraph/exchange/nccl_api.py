"""The little of NCCL that is used here, as CuPy binds it: a communicator, grouped sends and receives, one event.

Everything goes to the calling thread's current stream: NCCL's kernels stand behind those that compute the parts and
before those that read what arrived. The host waits for nothing in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import DeviceError

__all__ = ["ID_BYTES", "Nccl", "nccl_installed"]

ID_BYTES = 128  #: of a communicator's unique id

_NOT_READY = 600  # cudaErrorNotReady


def nccl_installed() -> bool:
    """Whether CuPy is here and finds NCCL; imports CuPy where it is."""
    try:
        from cupy.cuda import nccl
    except Exception:  # no CuPy, or one that does not load
        return False
    return bool(nccl.available)


class Nccl:
    """NCCL on one GPU; construct in the thread that uses it, with the device current.

    Parameters
    ----------
    device : Device

    Raises
    ------
    DeviceError
        CuPy is not here, or does not find NCCL.
    """

    def __init__(self, device: Device) -> None:
        if device.kind != "cuda" or not nccl_installed():
            raise DeviceError(
                f"NCCL cannot be used on {device}: it needs a GPU and CuPy with NCCL "
                '(pip install "mgraph[cuda13]" nvidia-nccl-cu13)'
            )
        from cupy.cuda import nccl

        self._nccl, self._cuda, self._device = nccl, device.xp.cuda, device
        self._event = self._cuda.Event(disable_timing=True)
        self._pinned = np.zeros(0, np.uint8)
        self._scratch: Array = device.empty(0, np.uint8)
        self.error: type[Exception] = nccl.NcclError

    def new_id(self) -> bytes:
        """A new unique id; a thread of NCCL's listens in this process for the ranks that will use it."""
        return bytes(self._nccl.get_unique_id())

    def communicator(self, size: int, unique_id: bytes, rank: int) -> Any:
        """A communicator; blocks until all ranks call this, for ever where one does not."""
        return self._nccl.NcclCommunicator(size, unique_id, rank)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """A stream of its own for the calling thread, which waits for no other."""
        with self._cuda.Stream(non_blocking=True):
            yield

    def swap(self, comm: Any, sends: Sequence[tuple[int, Array]], receives: Sequence[tuple[int, Array]]) -> None:
        """Queue one kernel that sends and receives all of these, given with the other rank; returns at once."""
        stream = self._cuda.get_current_stream().ptr
        # NCCL's sends know no types: bytes serve them all. Type and length were compared with the counts.
        byte = self._nccl.NCCL_UINT8
        self._nccl.groupStart()
        try:
            for rank, part in sends:
                comm.send(part.data.ptr, part.nbytes, byte, rank, stream)
            for rank, part in receives:
                comm.recv(part.data.ptr, part.nbytes, byte, rank, stream)
        finally:
            self._nccl.groupEnd()

    def gather(self, comm: Any, size: int, row: np.ndarray) -> np.ndarray:
        """Queue an all-gather of host bytes through device memory; the rows, filled once `done`, good until the next.

        Parameters
        ----------
        row : uint8[n]
            This rank's; n is the same on all ranks.
        """
        n, runtime = row.size, self._cuda.runtime
        if self._scratch.size < n * (size + 1):
            pinned = self._cuda.alloc_pinned_memory(n * (size + 1))
            self._pinned = np.frombuffer(pinned, np.uint8, n * (size + 1))
            self._scratch = self._device.empty(n * (size + 1), np.uint8)
        stream, there, here = self._cuda.get_current_stream().ptr, self._scratch.data.ptr, self._pinned
        here[:n] = row
        runtime.memcpyAsync(there, here.ctypes.data, n, runtime.memcpyHostToDevice, stream)
        comm.allGather(there, there + n, n, self._nccl.NCCL_UINT8, stream)
        runtime.memcpyAsync(here.ctypes.data + n, there + n, n * size, runtime.memcpyDeviceToHost, stream)
        return here[n : n * (size + 1)].reshape(size, n)

    def mark(self) -> None:
        """Start watching: `done` asks for what the stream has been given up to here."""
        self._event.record(self._cuda.get_current_stream())

    def done(self) -> bool:
        """Whether it has done that; never waits."""
        status = self._cuda.runtime.eventQuery(self._event.ptr)
        if status not in (0, _NOT_READY):  # a kernel failed: the event will never come
            raise self._cuda.runtime.CUDARuntimeError(status)
        return bool(status == 0)

    def abort(self, comm: Any) -> None:
        """Destroy `comm` with all that it has queued, and wait until the device is idle."""
        comm.abort()  # its kernels see this and end; destroy() would wait for the other ranks
        self._cuda.runtime.deviceSynchronize()
