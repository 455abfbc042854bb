"""A worker's device: the device as structures know it, under the memory limit that the worker's nanny enforces."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.kernels import load

__all__ = ["WorkerDevice", "left_under", "resident_bytes", "unlimited"]

SMALL = 1 << 22  #: bytes below which an allocation is not worth a look at the limit
PAGE = 4096


def resident_bytes() -> int:
    """Bytes of memory that this process takes, as the nanny sees it."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def unlimited() -> int:
    """What is left where nothing limits it."""
    return 1 << 62


def left_under(limit: int) -> int:
    """Bytes that this process may take until it has `limit`."""
    return max(0, limit - resident_bytes())


@dataclass(frozen=True)
class WorkerDevice(Device):
    """A device whose host memory is limited: past the limit a nanny would kill the process, with no error to catch.

    Parameters
    ----------
    memory_left : callable
        Bytes that this process may still take.
    """

    memory_left: Callable[[], int] = field(default=unlimited, compare=False)

    def empty(self, n: int, dtype: Any) -> Array:
        """As `Device.empty`; `CapacityError` past the worker's limit too.

        Host memory is mapped at once, not when it is written: so the next one who asks what is left is told the truth.
        """
        need = int(n) * self.xp.dtype(dtype).itemsize
        if need <= SMALL or self.kind != "cpu" or self.memory_left is unlimited:
            return super().empty(n, dtype)
        self.check_memory(need)
        array = super().empty(n, dtype)
        load(self, "pages.cuh").MapPages(-(-need // PAGE), bytes=array.view(np.uint8), n=need, page=PAGE)
        return array

    @property
    def memory_free(self) -> int:
        """As `Device.memory_free`; what the worker's limit leaves, where that is less."""
        return min(super().memory_free, self.memory_left()) if self.kind == "cpu" else super().memory_free

    def check_memory(self, need: int) -> None:
        """`CapacityError` where `need` more bytes of host memory would have this process killed."""
        if self.kind == "cpu" and need > (left := self.memory_left()):
            raise CapacityError(f"{need} bytes are needed and the worker's memory limit leaves {left}")
