"""The part of CuPy's NCCL binding that the exchange uses: a communicator, grouped sends and receives, and an event.

All work is queued on the calling thread's current stream. So NCCL's kernels run after those that compute the parts, and
before those that read the received parts. The host does not wait in these calls, unless they say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import DeviceError

__all__ = ["ID_BYTES", "Nccl", "nccl_installed"]

ID_BYTES = 128  #: the size of a communicator's unique id

_NOT_READY = 600  # cudaErrorNotReady


def nccl_installed() -> bool:
    """Whether CuPy is installed and finds NCCL. Imports CuPy if it is installed."""
    try:
        from cupy.cuda import nccl
    except Exception:  # CuPy is not installed, or cannot be loaded
        return False
    return bool(nccl.available)


class Nccl:
    """NCCL on one GPU. Construct it in the thread that uses it, with the device current.

    Parameters
    ----------
    device : Device

    Raises
    ------
    DeviceError
        `device` is no GPU, or CuPy is not installed or does not find NCCL.
    """

    def __init__(self, device: Device) -> None:
        if device.kind != "cuda" or not nccl_installed():
            raise DeviceError(
                f"NCCL cannot be used on {device}: it needs a GPU and CuPy with NCCL "
                '(pip install "dask-mgraph[cuda13]" nvidia-nccl-cu13)'
            )
        from cupy.cuda import nccl

        self._nccl, self._cuda, self._device = nccl, device.xp.cuda, device
        self._event = self._cuda.Event(disable_timing=True)
        self._pinned = np.zeros(0, np.uint8)
        self._scratch: Array = device.empty(0, np.uint8)
        self.error: type[Exception] = nccl.NcclError

    def new_id(self) -> bytes:
        """A new unique id. NCCL starts a thread in this process that listens for the ranks that will use the id."""
        return bytes(self._nccl.get_unique_id())

    def communicator(self, size: int, unique_id: bytes, rank: int) -> Any:
        """A communicator. Blocks until all ranks have called this; for ever if one does not."""
        return self._nccl.NcclCommunicator(size, unique_id, rank)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Make a new stream, which waits for no other stream, the current one of the calling thread."""
        with self._cuda.Stream(non_blocking=True):
            yield

    def swap(self, comm: Any, sends: Sequence[tuple[int, Array]], receives: Sequence[tuple[int, Array]]) -> None:
        """Queue one kernel that does all these sends and receives, given as (other rank, array). Does not wait."""
        stream = self._cuda.get_current_stream().ptr
        # All dtypes are sent as bytes. Dtype and length were compared when the counts were exchanged.
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
        """Queue an all-gather of host bytes through device memory. Does not wait.

        Parameters
        ----------
        row : uint8[n]
            The bytes of this rank; n is the same on all ranks.

        Returns
        -------
        uint8[size, n]
            The rows of all ranks, filled once `done` is true, and valid until the next call.
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
        """Record an event, so that `done` reports on the work queued on the stream up to now."""
        self._event.record(self._cuda.get_current_stream())

    def done(self) -> bool:
        """Whether the work queued before `mark` is done. Does not wait; raises if a kernel has failed."""
        status = self._cuda.runtime.eventQuery(self._event.ptr)
        if status not in (0, _NOT_READY):  # a kernel failed, so the event will never complete
            raise self._cuda.runtime.CUDARuntimeError(status)
        return bool(status == 0)

    def abort(self, comm: Any) -> None:
        """Destroy `comm` with the work that it has queued, and wait until the device is idle."""
        comm.abort()  # ends its running kernels; destroy() would wait for the other ranks
        self._cuda.runtime.deviceSynchronize()
