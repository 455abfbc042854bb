"""Threads of this process that copy and scan large host arrays together: NumPy's loops let other threads run."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import numpy as np

__all__ = ["copies", "largest"]

PIECE = 1 << 20  #: bytes that a thread takes at least
THREADS = 16  #: at most


def copies(target: np.ndarray, source: np.ndarray) -> list[Future[None]]:
    """Copy `source` into `target`, both contiguous and of one size in bytes, by several threads if it is large.

    Returns what is to be waited for, empty if it is done.
    """
    to, of = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
    if len(to) <= PIECE:
        to[:] = of
        return []
    return [_pool().submit(np.copyto, to[part], of[part]) for part in _parts(len(to), 1)]


def largest(array: np.ndarray) -> int:
    """The largest of some integers, one-dimensional and at least one, by several threads if there are many. O(n)."""
    if array.nbytes <= 2 * PIECE:
        return int(array.max())
    parts = [array[part] for part in _parts(len(array), array.itemsize)]
    return max(int(most) for most in _pool().map(np.max, parts))


def _parts(n: int, itemsize: int) -> list[slice]:
    """Parts of `n` items for the threads, as equal as can be, of `PIECE` bytes or more but for the last."""
    step = -(-max(PIECE, -(-n * itemsize // _count())) // itemsize)
    return [slice(at, at + step) for at in range(0, n, step)]


def _count() -> int:
    return min(THREADS, len(os.sched_getaffinity(0)))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_count(), "copies")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of the threads
