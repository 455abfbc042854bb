"""Small device arrays on their way through host memory.

UCX moves device memory by asking the receiver first and by copies on streams of its own, which costs more than the data
where there is little of it. A copy to the host is one short command on the stream that must be waited for anyway, and
from there a small message leaves at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mgraph.device import Array, Device

__all__ = ["Staging"]


class Staging:
    """Copies between one GPU and the host, in the order of the calling thread's stream.

    Parameters
    ----------
    device : Device
    size : int
        Of how many parts one call has at most.
    limit : int
        Bytes of one part at most.
    """

    def __init__(self, device: Device, size: int, limit: int) -> None:
        self._device, self._runtime = device, device.xp.cuda.runtime
        # pinned: the copies out are queued and not waited for one by one
        pinned = device.xp.cuda.alloc_pinned_memory(max(1, size * limit))
        self._slots = np.frombuffer(pinned, np.uint8, size * limit).reshape(size, limit)

    def out(self, parts: Sequence[Array], ranks: Iterable[int]) -> dict[int, np.ndarray]:
        """Host bytes of ``parts[r]`` for each of `ranks`; filled once the stream is done, good until the next call.

        One copy for each different array: an allgather gives the same one to all ranks.
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
        """`data` as a new device array, in the stream's order; `data` may be changed at once."""
        array = self._device.empty(data.size, data.dtype)
        if not data.size:
            return array
        # Out of pageable memory, such as `data` must be: the driver has taken what is to be copied when this returns,
        # and does not wait for the stream.
        stream = self._device.xp.cuda.get_current_stream().ptr
        self._runtime.memcpyAsync(
            array.data.ptr, data.ctypes.data, data.nbytes, self._runtime.memcpyHostToDevice, stream
        )
        return array
