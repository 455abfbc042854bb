"""The memory budget of a worker process, under the limit that its nanny enforces."""

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

MARGIN = 16 << 20  #: bytes below the limit that are kept free for allocations smaller than a budget's `GRAIN`


def resident_bytes() -> int:
    """Bytes of memory that this process occupies, as its nanny measures them."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def budget_under(limit: int | None) -> Budget:
    """The budget of a process with a limit of `limit` bytes, or without a limit for None. All its graphs share it."""
    return Budget() if limit is None else Budget(partial(_left_under, limit - MARGIN), _reclaim)


def _left_under(limit: int) -> int:
    return max(0, limit - resident_bytes())


def _reclaim() -> None:
    """Collect garbage, and return to the system the free memory that pyarrow and the C library keep."""
    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def map_pages(device: Device, array: np.ndarray) -> None:
    """Make the system map all pages of an array of bytes now, using the threads of a CPU device."""
    load(device, "kernels/prefault.cuh").Prefault(-(-len(array) // PAGE), bytes=array, n=len(array), page=PAGE)
