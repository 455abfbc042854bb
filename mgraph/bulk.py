"""Large arrays of the host, copied and scanned by several threads, which do not hold Python's lock meanwhile.

NumPy's own loops in several threads take that lock between pieces, and wait for whatever else Python does: for the
client of two GPUs that took longer than the copies. Without a compiler for the kernels, NumPy does it in one thread.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.kernels import load

__all__ = ["begin_copy", "copy", "largest", "load_kernels"]

FILE = "kernels/bulk.cuh"
LARGE = 1 << 20  #: bytes from which on several threads are worth it
THREADS = 12  #: at most; with 32 cores four were slower, and eight as fast


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copy `source` into `target`, both contiguous and of one size in bytes."""
    to, of = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
    kernels = load_kernels() if len(to) >= LARGE else None
    if kernels is None:
        to[:] = of
        return
    with _turns.now:
        kernels.CopyBytes(len(to), to=to, of=of, n=len(to))


def begin_copy(target: np.ndarray, source: np.ndarray) -> list[Future[None]]:
    """`copy` by another thread if it is large; what is to be waited for then, and nothing if it is done."""
    if target.nbytes < LARGE:
        copy(target, source)
        return []
    return [_copier().submit(copy, target, source)]


def largest(ids: np.ndarray) -> int:
    """The largest of some ids, uint32[n], at least one. O(n)."""
    if ids.size == 1:
        return int(ids.item())  # for which NumPy's scan takes 2 us
    kernels = load_kernels() if ids.nbytes >= LARGE and ids.flags.c_contiguous else None
    if kernels is None:
        return int(ids.max())
    found = np.zeros(1, np.uint64)
    with _turns.now:
        kernels.Largest(len(ids), ids=ids, n=len(ids), largest=found)
    return int(found[0])


@cache
def load_kernels() -> Any:
    """The kernels, compiled if need be; None without a compiler."""
    try:
        return load(Device("cpu", threads=min(THREADS, len(os.sched_getaffinity(0)))), FILE)
    except DeviceError:
        return None


class _Turns:
    """The lock for the threads that help kernels: a call that found them at work for another would be alone."""

    def __init__(self) -> None:
        self.now = threading.Lock()


_turns = _Turns()


@cache
def _copier() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "copies")


os.register_at_fork(after_in_child=_turns.__init__)  # type: ignore[misc]  # a child has none of the threads
os.register_at_fork(after_in_child=_copier.cache_clear)
