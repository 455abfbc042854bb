"""Copies and scans of large host arrays by several threads without the GIL.

NumPy's loops in several threads take the GIL between pieces and wait for other Python threads. For the client of two
GPUs that took longer than the copies. Without a compiler for the kernels, NumPy runs in one thread.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import DeviceError
from mgraph.kernels import load

__all__ = ["begin_copy", "cloned", "copied", "copy", "gathered", "largest", "load_kernels", "widened"]

FILE = "kernels/parallel_copy.cuh"
LARGE = 1 << 20  #: bytes from which several threads pay off
THREADS = 12  #: maximum; with 32 cores 4 were slower, and 8 as fast


def copy(target: Array, source: Array) -> None:
    """Copy `source` into `target`. Both are contiguous, of equal size in bytes, and on one device."""
    if type(target) is not np.ndarray:
        target[...] = source
        return
    to, of = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
    kernels = load_kernels() if len(to) >= LARGE else None
    # Small arrays, and machines without a compiler.
    if kernels is None:
        to[:] = of
        return
    with _kernel_lock.now:
        kernels.CopyBytes(len(to), to=to, of=of, n=len(to))


def cloned(device: Device, array: Array) -> Array:
    """Return a copy of a 1-d array in new memory of `device`; None for None."""
    if array is None:
        return None
    out = device.empty(len(array), array.dtype)
    copy(out, array)
    return out


def copied(array: np.ndarray) -> np.ndarray:
    """Return a copy of a contiguous host array."""
    out = np.empty(array.shape, array.dtype)
    copy(out, array)
    return out


def widened(ids: np.ndarray) -> np.ndarray:
    """Return contiguous `ids`, uint32[n], as int64[n]."""
    out = np.empty(len(ids), np.int64)
    kernels = load_kernels() if out.nbytes >= LARGE else None
    if kernels is None:
        out[:] = ids
        return out
    with _kernel_lock.now:
        kernels.WidenIds(len(ids), to=out, of=ids, n=len(ids))
    return out


def gathered(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return ``values[..., places]``. The places are in bounds."""
    fits = values.itemsize in (4, 8) and values.ndim == 1 and values.dtype != object and places.dtype == np.uint32
    worth = fits and places.nbytes >= LARGE and all(a.flags.c_contiguous and a.flags.aligned for a in (values, places))
    kernels = load_kernels() if worth else None
    if kernels is None:
        return values[..., places]
    # NumPy would convert all places first.
    out, words = np.empty(len(places), values.dtype), np.uint32 if values.itemsize == 4 else np.uint64
    kernel = kernels.GatherWords if words is np.uint32 else kernels.GatherLongs
    with _kernel_lock.now:
        kernel(len(places), to=out.view(words), of=values.view(words), places=places, n=len(places))
    return out


def begin_copy(target: np.ndarray, source: np.ndarray) -> list[Future[None]]:
    """Copy, in the background if large. Returns futures to wait for."""
    if target.nbytes < LARGE:
        copy(target, source)
        return []
    return [_copier().submit(copy, target, source)]


def largest(ids: np.ndarray) -> int:
    """Return the largest of `ids`, uint32[n] with n >= 1. O(n)."""
    if ids.size == 1:
        return int(ids.item())  # NumPy's scan would take 2 us
    kernels = load_kernels() if ids.nbytes >= LARGE and ids.flags.c_contiguous else None
    if kernels is None:
        return int(np.maximum.reduce(ids))  # takes two thirds of the time of `max`
    maximum = np.zeros(1, np.uint64)
    with _kernel_lock.now:
        kernels.Largest(len(ids), ids=ids, n=len(ids), largest=maximum)
    return int(maximum[0])


@cache
def load_kernels() -> Any:
    """Return the kernels, compiled on first use; None without a compiler."""
    try:
        return load(Device("cpu", threads=min(THREADS, len(os.sched_getaffinity(0)))), FILE)
    except DeviceError:
        return None


class _KernelLock:
    """Lock of the helper threads, which serve one kernel at a time."""

    def __init__(self) -> None:
        self.now = threading.Lock()


_kernel_lock = _KernelLock()


@cache
def _copier() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "copies")


os.register_at_fork(after_in_child=_kernel_lock.__init__)  # type: ignore[misc]  # a child has none of the threads
os.register_at_fork(after_in_child=_copier.cache_clear)
