"""The host memory that a worker may take, under the limit that its nanny enforces."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from functools import partial
from typing import Any

import numpy as np

from mgraph.budget import Budget
from mgraph.device import PAGE, Device
from mgraph.kernels import load

__all__ = ["budget_under", "map_pages", "resident_bytes"]

MARGIN = 16 << 20  #: bytes that are left for what is not worth asking for: allocations below a budget's grain


def resident_bytes() -> int:
    """Bytes of memory that this process takes, as the nanny sees it."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def budget_under(limit: int | None) -> Budget:
    """The budget of a process that may have `limit` bytes, which all graphs there share; without a limit for None."""
    return Budget() if limit is None else Budget(partial(_left_under, limit - MARGIN), _reclaim)


def _left_under(limit: int) -> int:
    return max(0, limit - resident_bytes())


def _reclaim() -> None:
    """Free what only cycles refer to, and what the C library keeps for later."""
    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def map_pages(device: Device, array: np.ndarray) -> None:
    """Have the system give all memory of an array of bytes now, by the threads of a CPU device."""
    load(device, "kernels/pages.cuh").MapPages(-(-len(array) // PAGE), bytes=array, n=len(array), page=PAGE)
