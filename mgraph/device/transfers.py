"""Copies between a device and host memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mgraph.budget import GRAIN
from mgraph.device.allocator import Allocator, page_locked_memory
from mgraph.device.hardware import Array

__all__ = ["STAGED", "STAGING", "Transfers"]

STAGING = 1 << 15  #: bytes of a host array from which the caller of `Transfers.begin_copy` keeps it unchanged
STAGED = 32 << 20  #: maximum size in bytes of a GPU array that `Transfers.staged` copies through page-locked memory


class Transfers(Allocator):
    """Copies to the device, and from it to the host."""

    # ---- to the device -----------------------------------------------------------------------------------------------

    def asarray(self, array: Any, dtype: Any = None) -> Array:
        """Return `array` on this device, contiguous and aligned. Copies only if needed."""
        # To a GPU: without a copy, directly, through page-locked memory of CuPy, or with a reservation for that.
        if self.kind != "cpu":
            if type(array) is self.xp.ndarray and _is_of(array, dtype) and array.flags.c_contiguous:
                return array  # CuPy's own check takes 2 us
            if _is_plain(array) and _is_of(array, dtype):
                locked = self.page_locked(array)
                if locked or array.nbytes < STAGING:
                    copy = self._sent(array)
                    if locked:  # the driver has read other memory of this size when its call returns
                        self.xp.cuda.get_current_stream().synchronize()
                    return copy
            if getattr(array, "nbytes", 0) < GRAIN:
                return self.xp.ascontiguousarray(self.xp.asarray(array, dtype))
            with self.taking(array.nbytes, f"{array.size} {array.dtype}"):
                return self.xp.ascontiguousarray(self.xp.asarray(array, dtype))

        # To the CPU: without a copy if dtype and layout fit.
        host = array if type(array) is np.ndarray else self.to_host(array)
        flags = host.flags
        if _is_of(host, dtype) and flags.c_contiguous and flags.aligned:
            return host
        copy = self.empty(host.size, host.dtype if dtype is None else dtype).reshape(host.shape)
        np.copyto(copy, host, casting="unsafe")
        return copy

    def sent(self, array: np.ndarray) -> Array:
        """Copy a small contiguous host array, which may change after the call.

        The driver has read a few bytes of pageable memory when its call returns. CuPy would copy them to page-locked
        memory first, and record an event that tells when this memory is free again.
        """
        return array if self.kind == "cpu" else self._sent(array)

    def page_locked(self, array: Any) -> bool:
        """Return True if an array is contiguous and in page-locked host memory."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            return False
        kind = self.xp.cuda.runtime.pointerGetAttributes(array.__array_interface__["data"][0]).type
        return bool(kind == self.xp.cuda.runtime.memoryTypeHost)

    def begin_copy(self, array: Any) -> Array:
        """Return `array` on this device, contiguous and aligned, without waiting for a copy of `STAGING` bytes or more.

        The caller keeps such an array unchanged until it has waited for the current stream. CuPy would copy it to
        page-locked memory of its own first.
        """
        if self.kind != "cpu" and _is_plain(array) and array.nbytes >= STAGING:
            return self._sent(array)
        return self.asarray(array)

    def begin_joined(self, parts: Sequence[np.ndarray]) -> tuple[Array, np.ndarray]:
        """Begin to copy small host arrays of bytes to the device, one behind another.

        Returns the device's array, and host memory that the caller keeps until it has waited for the current stream.
        """
        n = sum(map(len, parts))
        memory = page_locked_memory(self.xp.cuda, n) if self.kind == "cuda" and n else None
        host = np.empty(n, np.uint8) if memory is None else np.frombuffer(memory, np.uint8, n)
        np.concatenate(parts, out=host)
        return (self.sent(host) if memory is None else self._sent(host)), host

    def _sent(self, array: np.ndarray) -> Array:
        """Begin to copy a contiguous host array. If it is page-locked, it must stay as it is for a while."""
        out, stream = self.empty(array.size, array.dtype).reshape(array.shape), self.xp.cuda.get_current_stream()
        runtime, source = self.xp.cuda.runtime, array.__array_interface__["data"][0]
        if array.nbytes:
            runtime.memcpyAsync(out.data.ptr, source, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        return out

    # ---- to the host -------------------------------------------------------------------------------------------------

    @staticmethod
    def to_host(array: Any) -> np.ndarray:
        """Return `array` as NumPy; from a GPU with a copy and a wait."""
        if type(array) is np.ndarray:
            return array
        return array.get() if hasattr(array, "get") else np.asarray(array)

    @staticmethod
    def staged(array: Any) -> np.ndarray:
        """Copy an array of a batch through reusable page-locked memory.

        The memory comes from CuPy's pinned pool, in powers of two, so the pool stays small. The driver copies at the
        link's rate, and the system maps no new pages. Without page-locked memory the copy is a plain one.
        """
        nbytes = getattr(array, "nbytes", 0)
        if type(array) is np.ndarray or not hasattr(array, "get") or array.ndim != 1 or not 0 < nbytes <= STAGED:
            return Transfers.to_host(array)
        import cupy

        memory = page_locked_memory(cupy.cuda, 1 << (nbytes - 1).bit_length())
        if memory is None:
            return Transfers.to_host(array)
        host: np.ndarray = array.get(out=np.frombuffer(memory, array.dtype, array.size))
        return host

    def joined_on_host(self, arrays: Sequence[Array]) -> np.ndarray:
        """Copy small contiguous arrays to host memory, one behind another, with one wait.

        Returns their bytes, padded to a multiple of 8. On a GPU they go to page-locked memory without a launch: for a
        few arrays that takes a quarter of the time of joining them there first.
        """
        n = sum(array.nbytes for array in arrays)
        whole = n + -n % 8
        memory = page_locked_memory(self.xp.cuda, whole) if self.kind == "cuda" else None
        out = np.empty(whole, np.uint8) if memory is None else np.frombuffer(memory, np.uint8, whole)
        at = 0
        if memory is None:
            for array in arrays:
                end = at + array.nbytes
                out[at:end], at = self.to_host(array).view(np.uint8), end
            return out
        runtime, stream = self.xp.cuda.runtime, self.xp.cuda.get_current_stream()
        for array in arrays:
            nbytes = array.nbytes
            if nbytes:
                kind = runtime.memcpyDeviceToHost
                runtime.memcpyAsync(memory.ptr + at, array.data.ptr, nbytes, kind, stream.ptr)
            at += nbytes
        stream.synchronize()
        return out

    def page_lock(self, memory: np.ndarray, owner: Any) -> None:
        """Page-lock host memory until `owner` ends, if the driver can."""
        if self.kind == "cpu":
            return
        runtime, address = self.xp.cuda.runtime, memory.ctypes.data
        # Flag 1 is "portable": page-locked in every context of the process.
        with suppress(runtime.CUDARuntimeError):
            runtime.hostRegister(address, memory.nbytes, 1)
            weakref.finalize(owner, self._unlock_pages, address).atexit = False

    def _unlock_pages(self, address: int) -> None:
        cuda = self.xp.cuda  # any thread may run this, with another device selected
        with suppress(cuda.runtime.CUDARuntimeError), cuda.Device(self.index):  # the driver may have ended before
            cuda.runtime.hostUnregister(address)

    def fetch(self, array: Array) -> np.ndarray:
        """Copy `array` to host memory taken from the budget."""
        if self.kind == "cpu" or array.nbytes < GRAIN:
            return self.to_host(array)
        # The copy maps the pages, so the budget counts them after it.
        with self.host.taking(array.nbytes, f"an array of {array.size} {array.dtype}"):
            return array.get(out=np.empty(array.size, array.dtype))

    def fetching(self, array: Array) -> Callable[[], np.ndarray]:
        """Begin to copy to host memory. The returned function waits.

        Up to `STAGED` bytes of a GPU go through page-locked memory asynchronously; more is copied before the return, as
        is all without page-locked memory.
        """
        memory = None
        if self.kind == "cuda" and 0 < array.nbytes <= STAGED:
            memory = page_locked_memory(self.xp.cuda, 1 << (array.nbytes - 1).bit_length())
        if memory is None:
            here = self.fetch(array)
            return lambda: here
        # Copy to page-locked memory on the current stream; the wait moves it to `out`.
        cuda, stream = self.xp.cuda, self.xp.cuda.get_current_stream()
        out, staged = self.host.empty(array.size, array.dtype), np.frombuffer(memory, array.dtype, array.size)
        kind, done = cuda.runtime.memcpyDeviceToHost, cuda.Event(disable_timing=True)
        cuda.runtime.memcpyAsync(memory.ptr, array.data.ptr, array.nbytes, kind, stream.ptr)
        done.record(stream)

        def fetched() -> np.ndarray:
            done.synchronize()
            np.copyto(out, staged)
            return out

        return fetched


def _is_of(array: Any, dtype: Any) -> bool:
    """Return True if an array has a dtype, or if any will do. NumPy's dtype float64 equals None, too."""
    return dtype is None or bool(array.dtype == dtype)


def _is_plain(array: Any) -> bool:
    """Return True if an array is NumPy's, contiguous, of numbers in this machine's byte order."""
    if type(array) is not np.ndarray or not array.flags.c_contiguous:
        return False
    return array.dtype.isnative and array.dtype.kind in "biuf"
