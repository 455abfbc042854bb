"""Arrays that grow where they are: addresses are reserved once, and memory is mapped behind them as an array grows.

A copy into a larger array takes as long as the array is large, and twice its memory. To map memory behind reserved
addresses takes about a microsecond a MiB on a GPU, waits for no kernel, and is the first touch of a page on a CPU.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mgraph.budget import GRAIN
from mgraph.device import Array, Device
from mgraph.errors import CapacityError

__all__ = ["Growable", "Growables", "mapped_bytes"]

LEAST = GRAIN  #: bytes from which an array can grow where it is: a smaller one is copied as fast
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: addresses are no promise of memory


class Growable:
    """An undefined array of `n` elements that may grow where it is.

    Parameters
    ----------
    device : Device
    n : int
    dtype : numpy dtype

    Attributes
    ----------
    array : Array
        The elements. It stays valid, and the same memory, when a longer one is made.

    Raises
    ------
    CapacityError
        There is too little memory.

    Notes
    -----
    Addresses for the device's whole memory are reserved where the array has `LEAST` bytes or more. Where they cannot
    be had or the process has a limit of them (``ulimit -v``), and where CuPy's pool has a limit, which memory beside it
    would pass, the array is one that cannot grow.
    """

    def __init__(self, device: Device, n: int, dtype: Any) -> None:
        self.dtype, self._pages = np.dtype(dtype), _reserve(device, n * np.dtype(dtype).itemsize)
        self.array = self.longer(n)
        if self.array is None:  # and it is in other memory, which cannot grow
            self.array, self._pages = device.empty(n, dtype), None

    def longer(self, n: int) -> Array | None:
        """The same memory as an array of `n` elements, new ones undefined; None where addresses or memory lack.

        Allocates; what was there before is as it was, also where it fails. Waits for nothing.
        """
        if self._pages is None or not self._pages.reach(n * self.dtype.itemsize):
            return None
        return self._pages.array(n, self.dtype)


class Growables:
    """Several undefined arrays that grow together, where they are or, if they are small, by a copy.

    Parameters
    ----------
    device : Device
    dtypes : sequence of NumPy dtype or None
        None for an array that is not there.
    sizes : sequence of int
        The elements of each.

    Attributes
    ----------
    arrays : tuple of Array or None
        The arrays as they are made.

    Raises
    ------
    CapacityError
        There is too little memory.
    """

    def __init__(self, device: Device, dtypes: Sequence[Any], sizes: Sequence[int]) -> None:
        self._device = device
        self._parts = [None if k is None else Growable(device, n, k) for k, n in zip(dtypes, sizes, strict=True)]
        self.arrays = tuple(None if part is None else part.array for part in self._parts)

    def longer(self, arrays: Sequence[Any], sizes: Sequence[int]) -> list[Array | None] | None:
        """Arrays with so many elements, of which the first stays where it is, and so does each that is not small.

        One of less than a sixteenth of the first, or of less than `LEAST` bytes, is copied where it cannot grow.

        Parameters
        ----------
        arrays : sequence of Array or None
            The present ones: `arrays`, or what this returned last.
        sizes : sequence of int

        Returns
        -------
        longer : list of Array or None
            None where addresses or memory lack.
        """
        longer, small = list[Any](), max(LEAST, arrays[0].nbytes // 16)
        for array, part, n in zip(arrays, self._parts, sizes, strict=True):
            found = None if part is None else part.longer(n)
            if array is not None and found is None:
                if not longer or array.nbytes >= small:
                    return None
                try:
                    found = self._device.empty(n, array.dtype)
                except CapacityError:
                    return None
                found[: len(array)] = array
            longer.append(found)
        return longer


def mapped_bytes() -> int:
    """Bytes of GPU memory behind this process's growable arrays; CuPy's pool does not count them."""
    return MAPPED[0]


def _reserve(device: Device, nbytes: int) -> _HostPages | _DevicePages | None:
    if nbytes < LEAST:
        return None
    with suppress(OSError, ValueError, _DriverError):  # no addresses, or no such driver
        return _HostPages(device) if device.kind == "cpu" else _DevicePages(device)
    return None


class _HostPages:
    """Addresses for all of the machine's memory, whose pages the system maps when they are first written."""

    def __init__(self, device: Device) -> None:
        self._device, self._reached = device, 0
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            raise OSError("the addresses of this process have a limit, of which other memory would have less")
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._map = mmap.mmap(-1, most, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        with suppress(OSError):  # a kernel without huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)

    def reach(self, nbytes: int) -> bool:
        """Take the memory up to the byte `nbytes` from the budget; False where it does not suffice."""
        if nbytes > len(self._map):
            return False
        more = nbytes - self._reached
        if more > 0:
            try:
                with self._device.taking(more, "an array that grows"):
                    if self._device.budget.limited:
                        self._device.touch(self._device, np.frombuffer(self._map, np.uint8, more, self._reached))
            except CapacityError:
                return False
            self._reached = nbytes
        return True

    def array(self, n: int, dtype: np.dtype) -> np.ndarray:
        """The first `n` elements."""
        return np.frombuffer(self._map, dtype, n)


# ---- a GPU, through the driver ---------------------------------------------------------------------------------------


class _DriverError(Exception):
    """A call of the driver that failed."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


MAPPED = [0]  # bytes of all GPUs' memory, which no pool counts
PINNED, ON_DEVICE, READ_AND_WRITE, RECOMMENDED = 1, 1, 3, 1  # of the driver's enumerations


class _DevicePages:
    """Addresses for all of a GPU's memory, and the memory that is mapped behind the first of them."""

    def __init__(self, device: Device) -> None:
        xp, self._index = device.xp, device.index
        self._pool = xp.get_default_memory_pool()
        if self._pool.get_limit():
            raise _DriverError("CuPy's pool has a limit")
        self._cupy, self._driver = xp, ctypes.CDLL("libcuda.so.1")
        at = _Location(ON_DEVICE, device.index)
        self._kind, self._access = _Properties(PINNED, 0, at), _Access(at, READ_AND_WRITE)
        granule, address = ctypes.c_size_t(), ctypes.c_uint64()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(self._kind), RECOMMENDED)
        self._granule = granule.value
        self._most = self._whole(int(xp.cuda.runtime.memGetInfo()[1]))
        zero = ctypes.c_uint64(0)
        self._call(
            "cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(self._most), ctypes.c_size_t(0), zero, zero
        )
        self._first, self._parts = address.value, list[tuple[int, int]]()  # of memory: handle and bytes
        release = weakref.finalize(self, _release, xp, self._driver, device.index, self._first, self._most, self._parts)
        release.atexit = False  # the driver frees what a process leaves

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            raise _DriverError(f"{name}: {status}")

    def _whole(self, nbytes: int) -> int:
        return -(-nbytes // self._granule) * self._granule

    def reach(self, nbytes: int) -> bool:
        """Map memory up to the byte `nbytes`; False where the GPU or the addresses have no more."""
        mapped = sum(size for _, size in self._parts)
        if nbytes > self._most:
            return False
        if nbytes > mapped:
            try:
                self._map(mapped, self._whole(nbytes - mapped))
            except _DriverError:
                return False
        return True

    def _map(self, start: int, size: int) -> None:
        handle, nbytes, kind = ctypes.c_uint64(), ctypes.c_size_t(size), ctypes.byref(self._kind)
        at, zero = ctypes.c_uint64(self._first + start), ctypes.c_uint64(0)
        try:
            self._call("cuMemCreate", ctypes.byref(handle), nbytes, kind, zero)
        except _DriverError:
            self._pool.free_all_blocks()  # what CuPy keeps and nobody uses
            self._call("cuMemCreate", ctypes.byref(handle), nbytes, kind, zero)
        try:
            self._call("cuMemMap", at, nbytes, ctypes.c_size_t(0), handle, zero)
            self._parts.append((handle.value, size))
            MAPPED[0] += size
            self._call("cuMemSetAccess", at, nbytes, ctypes.byref(self._access), ctypes.c_size_t(1))
        except _DriverError:
            if not self._parts or self._parts[-1][0] != handle.value:
                self._driver.cuMemRelease(handle)
            else:
                self._parts.pop()
                MAPPED[0] -= size
                self._driver.cuMemUnmap(at, nbytes)
                self._driver.cuMemRelease(handle)
            raise

    def array(self, n: int, dtype: np.dtype) -> Array:
        """The first `n` elements; the memory lives as long as an array over it."""
        cuda = self._cupy.cuda
        memory = cuda.UnownedMemory(self._first, n * dtype.itemsize, self, self._index)
        return self._cupy.ndarray((n,), dtype, cuda.MemoryPointer(memory, 0))


def _release(cupy: Any, driver: Any, index: int, first: int, most: int, parts: list[tuple[int, int]]) -> None:
    """Give memory and addresses back, once the device has done what it was given: it may still read them."""
    with cupy.cuda.Device(index) as device:
        device.synchronize()
        at = first
        for handle, size in parts:
            driver.cuMemUnmap(ctypes.c_uint64(at), ctypes.c_size_t(size))
            driver.cuMemRelease(ctypes.c_uint64(handle))
            MAPPED[0] -= size
            at += size
        driver.cuMemAddressFree(ctypes.c_uint64(first), ctypes.c_size_t(most))
