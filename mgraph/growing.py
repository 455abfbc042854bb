"""Arrays that grow in place, in addresses reserved once.

A copy into a larger array takes time in proportion to its size, and twice its memory. Mapping memory behind reserved
addresses takes about 1 us per MiB on a GPU, waits for no kernel, and is the first touch of a page on a CPU.
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

LEAST = GRAIN  #: bytes from which an array can grow in place: a smaller one is copied as fast
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: addresses are no promise of memory


class Growable:
    """Uninitialized array of `n` elements that can grow in place.

    Parameters
    ----------
    device : Device
    n : int
    dtype : numpy dtype

    Attributes
    ----------
    array : Array
        The elements. It stays valid, in the same memory, after a call of `longer`.

    Raises
    ------
    CapacityError
        The memory does not suffice.

    Notes
    -----
    An array of `LEAST` bytes or more reserves addresses for the device's whole memory. The array cannot grow if the
    addresses are not available, if the process has a limit of them (``ulimit -v``), or if CuPy's pool has a limit,
    which memory beside the pool would evade.
    """

    def __init__(self, device: Device, n: int, dtype: Any) -> None:
        self.dtype, self._pages = np.dtype(dtype), _reserve(device, n * np.dtype(dtype).itemsize)
        self.array = self.longer(n)
        if self.array is None:  # take other memory, which cannot grow
            self.array, self._pages = device.empty(n, dtype), None

    def longer(self, n: int) -> Array | None:
        """Return the array with `n` elements; None if addresses or memory run out.

        The memory is the same, and new elements are undefined. Existing elements stay unchanged, also on failure. Waits
        for nothing.
        """
        if self._pages is None or not self._pages.reach(n * self.dtype.itemsize):
            return None
        return self._pages.array(n, self.dtype)


class Growables:
    """Several uninitialized arrays that grow together.

    Parameters
    ----------
    device : Device
    dtypes : sequence of NumPy dtype or None
        None for an absent array.
    sizes : sequence of int
        The elements of each.

    Attributes
    ----------
    arrays : tuple of Array or None
        The initial arrays.

    Raises
    ------
    CapacityError
        The memory does not suffice.
    """

    def __init__(self, device: Device, dtypes: Sequence[Any], sizes: Sequence[int]) -> None:
        self._device = device
        self._parts = [None if k is None else Growable(device, n, k) for k, n in zip(dtypes, sizes, strict=True)]
        self.arrays = tuple(None if part is None else part.array for part in self._parts)

    def longer(self, arrays: Sequence[Any], sizes: Sequence[int]) -> list[Array | None] | None:
        """Resize `arrays` to `sizes`. Large arrays grow in place; small ones are copied.

        An array is small if it has less than a sixteenth of the first one's bytes, or less than `LEAST`.

        Parameters
        ----------
        arrays : sequence of Array or None
            The current arrays: `arrays`, or the last result of this method.
        sizes : sequence of int

        Returns
        -------
        longer : list of Array or None
            None if addresses or memory run out.
        """
        longer, small = list[Any](), max(LEAST, arrays[0].nbytes // 16)
        for array, part, n in zip(arrays, self._parts, sizes, strict=True):
            grown = None if part is None else part.longer(n)
            if array is not None and grown is None:
                # It cannot grow in place: copy it if it is small.
                if not longer or array.nbytes >= small:
                    return None
                try:
                    grown = self._device.empty(n, array.dtype)
                except CapacityError:
                    return None
                grown[: len(array)] = array
            longer.append(grown)
        return longer


def mapped_bytes() -> int:
    """Return the bytes of growable GPU arrays; CuPy's pool does not count them."""
    return MAPPED[0]


def _reserve(device: Device, nbytes: int) -> _HostPages | _DevicePages | None:
    """Reserve addresses; None if the array is small, or if that fails."""
    if nbytes < LEAST:
        return None
    with suppress(OSError, ValueError, _DriverError):  # no addresses, or no such driver
        return _HostPages(device) if device.kind == "cpu" else _DevicePages(device)
    return None


class _HostPages:
    """Addresses for all of the machine's memory, mapped on first write."""

    def __init__(self, device: Device) -> None:
        self._device, self._reached = device, 0
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            raise OSError("the process has a limit of addresses, which this reservation would use up")
        # Reserve without a promise of memory, in huge pages if the kernel has them.
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._map = mmap.mmap(-1, most, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        with suppress(OSError):  # a kernel without huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)

    def reach(self, nbytes: int) -> bool:
        """Take memory up to the byte `nbytes`. False if the budget does not suffice."""
        if nbytes > len(self._map):
            return False
        more = nbytes - self._reached
        if more > 0:
            try:
                # Under a limit, touch the pages: the budget counts mapped memory.
                with self._device.taking(more, "an array that grows"):
                    if self._device.budget.limited:
                        self._device.touch(self._device, np.frombuffer(self._map, np.uint8, more, self._reached))
            except CapacityError:
                return False
            self._reached = nbytes
        return True

    def array(self, n: int, dtype: np.dtype) -> np.ndarray:
        """Return the first `n` elements."""
        return np.frombuffer(self._map, dtype, n)


# ---- a GPU, through the driver ---------------------------------------------------------------------------------------


class _DriverError(Exception):
    """Failed call of the driver."""


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


MAPPED = [0]  # bytes mapped on all GPUs, which no pool counts
PINNED, ON_DEVICE, READ_AND_WRITE, RECOMMENDED = 1, 1, 3, 1  # values of the driver's enumerations


class _DevicePages:
    """Addresses for all of a GPU's memory, and the mapped memory."""

    def __init__(self, device: Device) -> None:
        xp, self._index = device.xp, device.index
        if xp.get_default_memory_pool().get_limit():
            raise _DriverError("CuPy's pool has a limit")
        self._cupy, self._device, self._driver = xp, device, ctypes.CDLL("libcuda.so.1")
        # Describe the memory, and ask for the granularity of mappings.
        at = _Location(ON_DEVICE, device.index)
        self._kind, self._access = _Properties(PINNED, 0, at), _Access(at, READ_AND_WRITE)
        granule, address = ctypes.c_size_t(), ctypes.c_uint64()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(self._kind), RECOMMENDED)
        self._granule = granule.value
        self._most = self._whole(int(xp.cuda.runtime.memGetInfo()[1]))

        # Reserve addresses for the whole GPU.
        zero = ctypes.c_uint64(0)
        self._call(
            "cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(self._most), ctypes.c_size_t(0), zero, zero
        )
        self._first, self._parts = address.value, list[tuple[int, int]]()  # mapped memory: handles and bytes

        # Free memory and addresses with this object.
        release = weakref.finalize(self, _release, device, self._driver, self._first, self._most, self._parts)
        release.atexit = False  # the driver frees what a process leaves

    def _call(self, name: str, *arguments: Any) -> None:
        """Call the driver; `_DriverError` if it returns a status."""
        status = getattr(self._driver, name)(*arguments)
        if status:
            raise _DriverError(f"{name}: {status}")

    def _whole(self, nbytes: int) -> int:
        """Round up to whole granules."""
        return -(-nbytes // self._granule) * self._granule

    def reach(self, nbytes: int) -> bool:
        """Map memory up to the byte `nbytes`. False if the GPU is full."""
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
        """Allocate `size` bytes and map them at `start`. Undoes both on failure."""
        handle, nbytes, kind = ctypes.c_uint64(), ctypes.c_size_t(size), ctypes.byref(self._kind)
        at, zero = ctypes.c_uint64(self._first + start), ctypes.c_uint64(0)

        # Allocate; if the GPU is full, free the pools' unused memory and try again.
        try:
            self._call("cuMemCreate", ctypes.byref(handle), nbytes, kind, zero)
        except _DriverError:
            self._device.reclaim()
            self._call("cuMemCreate", ctypes.byref(handle), nbytes, kind, zero)

        # Map the memory and allow the GPU to access it.
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
        """Return the first `n` elements. The array keeps the memory alive."""
        cuda = self._cupy.cuda
        memory = cuda.UnownedMemory(self._first, n * dtype.itemsize, self, self._index)
        return self._cupy.ndarray((n,), dtype, cuda.MemoryPointer(memory, 0))


def _release(device: Device, driver: Any, first: int, most: int, parts: list[tuple[int, int]]) -> None:
    """Unmap memory and free addresses."""
    # Wait first for kernels in flight that may read the memory. Those of other graphs on the GPU run on.
    with device.xp.cuda.Device(device.index):
        device.await_streams()
        at = first
        for handle, size in parts:
            driver.cuMemUnmap(ctypes.c_uint64(at), ctypes.c_size_t(size))
            driver.cuMemRelease(ctypes.c_uint64(handle))
            MAPPED[0] -= size
            at += size
        driver.cuMemAddressFree(ctypes.c_uint64(first), ctypes.c_size_t(most))
