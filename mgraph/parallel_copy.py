"""Copies and scans of large host arrays by several threads without the GIL, also on their way to a GPU and back.

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

from mgraph.device import Array, Device, page_locked_memory
from mgraph.errors import DeviceError
from mgraph.kernels import load

__all__ = [
    "begin_copy",
    "begin_upload",
    "cloned",
    "copied",
    "copy",
    "fetched",
    "gathered",
    "largest",
    "load_kernels",
    "widened",
]

FILE = "kernels/parallel_copy.cuh"
LARGE = 1 << 20  #: bytes from which several threads pay off
THREADS = 12  #: maximum; with 32 cores 4 were slower, and 8 as fast
PIECE = 4 << 20  #: bytes that are copied to page-locked memory, or from it, while a GPU copies the piece before


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


def begin_upload(device: Device, array: Any) -> Array:
    """Return `array` on `device`, as `Device.begin_copy`; a large one of pageable memory goes to a GPU in pieces.

    Several threads copy a piece to page-locked memory, while the GPU copies the one before. The driver copies pageable
    memory in one thread.
    """
    pageable = type(array) is np.ndarray and array.nbytes >= LARGE and device.kind == "cuda"
    if not pageable or not array.flags.c_contiguous or device.page_locked(array):
        return device.begin_copy(array)
    if (buffers := _buffers(device)) is None:
        return device.begin_copy(array)
    out, cuda = device.empty(array.size, array.dtype), device.xp.cuda
    source, stream, done = array.reshape(-1).view(np.uint8), cuda.get_current_stream(), list[Any]()
    for number, first in enumerate(range(0, len(source), PIECE)):
        if number > 1:
            done[number - 2].synchronize()
        part, buffer = source[first : first + PIECE], buffers[number % 2]
        copy(np.frombuffer(buffer, np.uint8, len(part)), part)
        to_gpu = cuda.runtime.memcpyHostToDevice
        cuda.runtime.memcpyAsync(out.data.ptr + first, buffer.ptr, len(part), to_gpu, stream.ptr)
        done.append(_recorded(cuda, stream))
    done[-1].synchronize()  # the buffers are free again
    return out.reshape(array.shape)


def fetched(device: Device, array: Array) -> np.ndarray:
    """Copy a 1-d array to host memory, as `Device.fetch`; a large one of a GPU in pieces, as `begin_upload`."""
    if type(array) is np.ndarray:
        return array
    if array.nbytes < LARGE or not array.flags.c_contiguous or (buffers := _buffers(device)) is None:
        return device.fetch(array)
    cuda, n = device.xp.cuda, array.nbytes
    stream, from_gpu, pieces = cuda.get_current_stream(), cuda.runtime.memcpyDeviceToHost, range(0, n, PIECE)

    def begin(number: int) -> Any:
        first = pieces[number]
        nbytes, buffer = min(PIECE, n - first), buffers[number % 2]
        cuda.runtime.memcpyAsync(buffer.ptr, array.data.ptr + first, nbytes, from_gpu, stream.ptr)
        return _recorded(cuda, stream)

    with device.host.taking(n, f"an array of {array.size} {array.dtype}"):
        out = np.empty(array.size, array.dtype)
        whole, done = out.view(np.uint8), list[Any]()
        try:
            done += [begin(number) for number in range(min(2, len(pieces)))]
            for number, first in enumerate(pieces):
                done[number].synchronize()
                part = whole[first : first + PIECE]
                copy(part, np.frombuffer(buffers[number % 2], np.uint8, len(part)))
                if number + 2 < len(pieces):
                    done.append(begin(number + 2))
        finally:  # after Ctrl-C the GPU may still write to the buffers
            for copied_there in done:
                copied_there.synchronize()
    return out


def _buffers(device: Device) -> list[Any] | None:
    """Return page-locked memory for two pieces; None if the system has none left, or without kernels."""
    if load_kernels() is None:
        return None
    buffers = [page_locked_memory(device.xp.cuda, PIECE) for _ in range(2)]
    return None if any(buffer is None for buffer in buffers) else buffers


def _recorded(cuda: Any, stream: Any) -> Any:
    event = cuda.Event(disable_timing=True)
    event.record(stream)
    return event


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
