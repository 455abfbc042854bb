"""Memory budget of a worker process, under the limit that its nanny enforces."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from functools import cache, partial
from typing import Any

import numpy as np

from mgraph.budget import Budget
from mgraph.device import PAGE, Device
from mgraph.kernels import load

__all__ = ["budget_under", "map_pages", "resident_bytes"]

SYSTEM_PAGE = os.sysconf("SC_PAGE_SIZE")  #: bytes
MARGIN = 16 << 20  #: bytes kept free below the limit, for allocations smaller than a budget's `GRAIN`


def resident_bytes() -> int:
    """Return the resident memory of this process, as its nanny measures it."""
    return int(os.pread(_statm(os.getpid()), 128, 0).split(None, 2)[1]) * SYSTEM_PAGE


@cache
def _statm(process: int) -> int:
    """Open the page counts of this process: to open them takes 20 us, and each answer of a worker reads them."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def budget_under(limit: int | None) -> Budget:
    """Return the budget of a process with this limit in bytes, None for no limit."""
    return Budget() if limit is None else Budget(partial(_left_under, limit - MARGIN), _reclaim)


def _left_under(limit: int) -> int:
    return max(0, limit - resident_bytes())


def _reclaim() -> None:
    """Collect garbage, and return the free memory of pyarrow and the C library to the system."""
    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def map_pages(device: Device, array: np.ndarray) -> None:
    """Map all pages of an array now, by the threads of a CPU device."""
    load(device, "kernels/prefault.cuh").Prefault(-(-len(array) // PAGE), bytes=array, n=len(array), page=PAGE)
