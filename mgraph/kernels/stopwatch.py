"""Seconds of a computation, without those of compiling and loading its kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mgraph.device import Device

__all__ = ["Stopwatch", "loading"]


class _Loading(threading.local):
    """Seconds that the thread has waited for kernels so far, and its CPU time meanwhile."""

    wall = cpu = 0.0
    nested = False


_loading = _Loading()


@contextmanager
def loading() -> Iterator[None]:
    """Leave the block, which compiles or loads kernels, out of the thread's stopwatches."""
    if _loading.nested:
        yield
        return
    wall, cpu, _loading.nested = time.perf_counter(), time.thread_time(), True
    try:
        yield
    finally:
        _loading.nested = False
        _loading.wall += time.perf_counter() - wall
        _loading.cpu += time.thread_time() - cpu


class Stopwatch:
    """Seconds of the calling thread since the stopwatch was made.

    On a CPU a rank that is `alone` counts the thread's CPU time: other processes do not lengthen it, and helper threads
    share the work evenly. Otherwise the thread waits for a GPU or for other ranks, so time counts.
    """

    def __init__(self, device: Device, alone: bool) -> None:
        self._cpu = alone and device.kind == "cpu"
        self._began = self._now()

    def _now(self) -> float:
        return time.thread_time() - _loading.cpu if self._cpu else time.perf_counter() - _loading.wall

    def seconds(self) -> float:
        """Return the seconds so far. The caller has synchronized the device."""
        return self._now() - self._began
