"""Prefetch of the next batch's columns to a GPU, while the batch before it is applied."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import CapacityError

__all__ = ["Prefetch"]

MOST = 256 << 20  #: maximum bytes of a prefetched batch
LINE = 256  #: alignment of a column in bytes


class Prefetch:
    """Double buffer on the GPU, for the running call and the next.

    The copies run on their own stream. Only arrays in page-locked memory are prefetched. Not thread-safe: it belongs to
    the shard's thread. A buffer grows to the largest batch, and is kept.

    Parameters
    ----------
    device : Device
        A GPU.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._stream = device, device.xp.cuda.Stream(non_blocking=True)
        self._now, self._next = _Buffer(device), _Buffer(device)

    def swap(self, columns: Sequence[np.ndarray]) -> None:
        """Swap the buffers and start copying `columns`, those of the call after this one.

        Waits only if its buffer grows, for earlier unused copies.
        """
        if not (columns or self._now.columns or self._next.columns):
            return
        self._now, self._next = self._next, self._now
        self._next.columns = []
        nbytes = sum(_lines(column.nbytes) for column in columns)
        if 0 < nbytes <= MOST and all(map(self._device.page_locked, columns)):
            self._copy(self._next, columns, nbytes)

    def find(self, column: Any) -> Array | None:
        """Return the prefetched copy of a column of the running call, or None.

        It is valid on the calling thread's stream until the call ends, and returned only once. The column must live
        until the stream has used the copy.
        """
        now = self._now
        for at, (host, here) in enumerate(now.columns):
            if host is column:
                self._device.xp.cuda.get_current_stream().wait_event(now.arrived)
                del now.columns[at]
                return here
        return None

    def _copy(self, buffer: _Buffer, columns: Sequence[np.ndarray], nbytes: int) -> None:
        """Start copying columns into a buffer, which grows if needed."""
        xp, stream = self._device.xp, self._stream
        if nbytes > buffer.memory.nbytes:
            stream.synchronize()
            try:
                buffer.memory = self._device.empty(nbytes, np.uint8)
            except CapacityError:  # when the call runs, its columns may fit
                return

        # Copy after the kernels that used the memory before.
        stream.wait_event(xp.cuda.get_current_stream().record())
        firsts = [0, *accumulate(_lines(column.nbytes) for column in columns)]
        for column, first in zip(columns, firsts, strict=False):
            here = buffer.memory[first : first + column.nbytes].view(column.dtype)
            here.data.copy_from_host_async(column.__array_interface__["data"][0], column.nbytes, stream)
            buffer.columns.append((column, here))
        buffer.arrived.record(stream)


class _Buffer:
    """GPU memory, pairs of columns and their copies in it, and the event after the copies."""

    def __init__(self, device: Device) -> None:
        self.memory = device.empty(0, np.uint8)
        self.columns: list[tuple[np.ndarray, Array]] = []
        self.arrived = device.xp.cuda.Event(disable_timing=True)


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE
