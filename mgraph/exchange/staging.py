"""Staging of small device arrays in host memory, for the UCX exchange.

To send device memory, UCX first asks the receiver and then copies on its own streams, which costs more than sending a
small array. A copy to the host is a short command on the stream, for which the exchange waits anyway, and a small
message from host memory is sent at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mgraph.device import Array, Device, page_locked_memory
from mgraph.errors import CapacityError

__all__ = ["Staging"]


class Staging:
    """Copies between a GPU and the host on the calling thread's current stream.

    Parameters
    ----------
    device : Device
    size : int
        The largest number of parts in a call.
    limit : int
        The largest number of bytes in a part.

    Raises
    ------
    CapacityError
        The system has too little page-locked memory.
    """

    def __init__(self, device: Device, size: int, limit: int) -> None:
        self._device, self._runtime = device, device.xp.cuda.runtime
        # pinned, so that copies to it are queued without waiting for each
        nbytes = max(1, size * limit)
        pinned = page_locked_memory(device.xp.cuda, nbytes)
        if pinned is None:
            raise CapacityError(f"{nbytes} bytes of page-locked memory are needed for the exchange's messages")
        self._slots = np.frombuffer(pinned, np.uint8, size * limit).reshape(size, limit)

    def out(self, parts: Sequence[Array], ranks: Iterable[int]) -> dict[int, np.ndarray]:
        """Copy the bytes of ``parts[r]`` to host memory, for each rank r of `ranks`.

        They are complete once the stream is done, and valid until the next call. An array that is the part of several
        ranks, as in an allgather, is copied once.
        """
        stream = self._device.xp.cuda.get_current_stream().ptr
        copies: dict[int, np.ndarray] = {}
        staged: dict[int, np.ndarray] = {}
        for rank in ranks:
            part = parts[rank]
            slot = copies.get(id(part))
            if slot is None:
                slot = copies[id(part)] = self._slots[rank, : part.nbytes]
                self._runtime.memcpyAsync(
                    slot.ctypes.data, part.data.ptr, part.nbytes, self._runtime.memcpyDeviceToHost, stream
                )
            staged[rank] = slot
        return staged

    def into(self, data: np.ndarray) -> Array:
        """Copy `data` to a new device array, in the stream's order.

        `data` may be changed as soon as this returns.
        """
        array = self._device.empty(data.size, data.dtype)
        if not data.size:
            return array
        # `data` must be in pageable memory: then the driver has read all of it when this call returns, without waiting
        # for the stream.
        stream = self._device.xp.cuda.get_current_stream().ptr
        self._runtime.memcpyAsync(
            array.data.ptr, data.ctypes.data, data.nbytes, self._runtime.memcpyHostToDevice, stream
        )
        return array
