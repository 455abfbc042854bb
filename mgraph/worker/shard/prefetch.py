"""Prefetch of the next batch's columns to a GPU, while the batch before it is applied."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import CapacityError

__all__ = ["Prefetch"]

MOST = 256 << 20  #: bytes of a batch's columns that are copied ahead; those of a larger one wait for their turn
LINE = 256  #: bytes on which a column begins


class Prefetch:
    """Two buffers on the GPU, used in turn: one for the call that runs, and one for the call after it.

    The copies have a stream of their own. Arrays lie in page-locked memory, or they are not copied ahead. The shard's
    thread alone uses it. A buffer grows to the largest batch, and is kept.

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

        Waits for nothing but, where its buffer grows, for copies that nobody has asked for.
        """
        self._now, self._next = self._next, self._now
        self._next.columns = []
        nbytes = sum(_lines(column.nbytes) for column in columns)
        if 0 < nbytes <= MOST and all(map(self._device.page_locked, columns)):
            self._copy(self._next, columns, nbytes)

    def find(self, column: Any) -> Array | None:
        """The copy of a column of the call that runs, for the calling thread's stream; None if there is none.

        It lasts until the call ends, and the column has to last until the stream has used the copy. Found once.
        """
        now = self._now
        for at, (host, here) in enumerate(now.columns):
            if host is column:
                self._device.xp.cuda.get_current_stream().wait_event(now.arrived)
                del now.columns[at]
                return here
        return None

    def _copy(self, buffer: _Buffer, columns: Sequence[np.ndarray], nbytes: int) -> None:
        xp, stream = self._device.xp, self._stream
        if nbytes > buffer.memory.nbytes:
            stream.synchronize()
            try:
                buffer.memory = self._device.empty(nbytes, np.uint8)
            except CapacityError:  # the call may have room for them, when it comes
                return
        stream.wait_event(xp.cuda.get_current_stream().record())  # what used the memory before
        firsts = [0, *accumulate(_lines(column.nbytes) for column in columns)]
        for column, first in zip(columns, firsts, strict=False):
            here = buffer.memory[first : first + column.nbytes].view(column.dtype)
            here.data.copy_from_host_async(column.__array_interface__["data"][0], column.nbytes, stream)
            buffer.columns.append((column, here))
        buffer.arrived.record(stream)


class _Buffer:
    """Memory of the GPU, the columns copied there with where they came from, and the event that follows the copies."""

    def __init__(self, device: Device) -> None:
        self.memory = device.empty(0, np.uint8)
        self.columns: list[tuple[np.ndarray, Array]] = []
        self.arrived = device.xp.cuda.Event(disable_timing=True)


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE
