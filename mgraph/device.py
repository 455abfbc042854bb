"""The device that a structure lives on: a GPU with CuPy, or the CPU with NumPy, behind one `xp`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.errors import CapacityError, DeviceError, InvalidOption

LINE = 64  #: bytes of a CPU's cache line

__all__ = ["Array", "Device", "gpu_count", "host_memory_limit"]

Array = Any  #: numpy.ndarray on the CPU, cupy.ndarray on a GPU


def gpu_count() -> int:
    """How many GPUs CuPy can use here; 0 without CuPy or without a driver."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no CuPy, no libcuda, no device: CuPy has an error type for each
        return 0


def host_memory_limit() -> int:
    """Bytes of host memory that this process may still take: what is free, or what its control group leaves."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo") as lines:
            info = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        free = info.get("MemAvailable", free)
    except OSError:
        pass
    try:
        with open("/sys/fs/cgroup/memory.max") as top, open("/sys/fs/cgroup/memory.current") as used:
            limit = top.read().strip()
            if limit != "max":
                free = min(free, int(limit) - int(used.read()))
    except OSError:
        pass
    return max(free, 0)


@lru_cache(256)
def _repeated_byte(value: Any, dtype: np.dtype) -> int | None:
    """The byte that `value` consists of, or None where they differ."""
    found = set(np.array(value, dtype).tobytes())
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class Device:
    """One device and the few things that differ between machines.

    Parameters
    ----------
    kind : "cpu" | "cuda"
    index : int
        Which GPU; 0 on the CPU.
    threads : int
        Host threads that a CPU kernel uses. Given explicitly, because Dask's nannies set OMP_NUM_THREADS to 1.
    """

    kind: str = "cpu"
    index: int = 0
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __post_init__(self) -> None:
        if self.kind not in ("cpu", "cuda"):
            raise InvalidOption(f'device {self.kind!r} is neither "cpu" nor "cuda"')
        if self.threads < 1:
            raise InvalidOption(f"a device with {self.threads} threads; at least 1 is needed")
        if self.kind == "cuda" and self.index >= gpu_count():
            raise DeviceError(
                f"GPU {self.index} was asked for and {gpu_count()} can be used here; a GPU needs the NVIDIA driver and "
                'CuPy (pip install "mgraph[cuda13]"); device="cpu" needs neither'
            )

    @classmethod
    def of(cls, device: Device | str) -> Device:
        """`device` itself, or the device of a name: "cpu", "cuda", "cuda:1"."""
        if isinstance(device, Device):
            return device
        kind, _, index = str(device).partition(":")
        if index and not (kind == "cuda" and index.isdigit()):
            raise InvalidOption(f'device {device!r} is not "cpu", "cuda" or "cuda:INDEX"')
        return cls(kind, int(index or 0))

    @cached_property
    def xp(self) -> Any:
        """The array module: numpy or cupy."""
        if self.kind == "cpu":
            return np
        import cupy

        return cupy

    def use(self) -> None:
        """Make this the calling thread's device; CuPy keeps the current device per thread."""
        if self.kind == "cuda":
            self.xp.cuda.Device(self.index).use()

    def empty(self, n: int, dtype: Any) -> Array:
        """An array of n undefined elements; `CapacityError` where memory does not suffice."""
        if self.kind == "cpu":
            need, free = int(n) * np.dtype(dtype).itemsize, 1 << 62
            if need < 1 << 16:
                return np.empty(int(n), dtype)
            if need > 1 << 26:  # the kernel overcommits: only a check tells before the process is killed
                free = host_memory_limit()
            if need > free:
                raise CapacityError(f"{need} bytes were asked for and {free} bytes of host memory are left")
            whole = np.empty(
                need + LINE, np.uint8
            )  # where a leaf of 128 bytes begins with a line, it has two, not three
            first = -whole.__array_interface__["data"][0] % LINE
            return whole[first : first + need].view(dtype)
        try:
            return self.xp.empty(int(n), dtype)
        except self.xp.cuda.memory.OutOfMemoryError as error:
            raise CapacityError(f"GPU {self.index}: {error}") from None

    def reserve(self, nbytes: int) -> None:
        """Take `nbytes` from a GPU now, for later: what is allocated from here on is cut out of them while it fits.

        cudaMalloc takes milliseconds for each GB, and a growing structure asks for a new array in the middle of a
        batch. CuPy's pool keeps what it has, cuts it and joins it again, so that one block taken early answers that.
        It belongs to the calling thread's current stream, and goes back with ``free_all_blocks`` of CuPy's pool.
        Nothing happens on the CPU.

        Raises
        ------
        InvalidOption
            A negative number.
        CapacityError
            The GPU has less.
        """
        if nbytes < 0:
            raise InvalidOption(f"{nbytes} bytes cannot be reserved; 0 or more can")
        if self.kind == "cuda" and nbytes > 0:
            self.empty(nbytes, np.uint8)  # freed at once, to the pool

    def carve(self, *shapes: tuple[int, Any]) -> list[Array]:
        """Undefined arrays of (n, dtype) each, in one allocation: it lives as long as any of them does."""
        ends = list(accumulate(-(-int(n) * np.dtype(dtype).itemsize // 256) * 256 for n, dtype in shapes))
        whole = self.empty(ends[-1], np.uint8)
        parts = []
        for (n, dtype), first in zip(shapes, [0, *ends], strict=False):
            where = {"buffer": whole, "offset": first} if self.kind == "cpu" else {"memptr": whole.data + first}
            parts.append(self.xp.ndarray((int(n),), dtype, **where))
        return parts

    def fill(self, array: Array, value: Any) -> None:
        """Set all elements; on a GPU by the driver where the value's bytes are alike, at a third of the host's time."""
        byte = _repeated_byte(value, array.dtype) if self.kind == "cuda" else None
        if byte is None:
            array.fill(value)
        else:
            array.data.memset_async(byte, array.nbytes)

    def full(self, n: int, value: Any, dtype: Any) -> Array:
        """An array of n elements, all `value`."""
        array = self.empty(n, dtype)
        self.fill(array, value)
        return array

    def zeros(self, n: int, dtype: Any) -> Array:
        """An array of n zeros."""
        return self.full(n, 0, dtype)

    def mailbox(self, n: int) -> tuple[np.ndarray, Array]:
        """`n` int64 words of the host's that kernels write: for the host, once it has synchronised, and the device.

        On a GPU that saves the copy that `to_host` makes: 10 us in place of 16 for a kernel and its few words.
        """
        if self.kind == "cpu":
            words = np.zeros(n, np.int64)
            return words, words
        cuda = self.xp.cuda
        memory = cuda.alloc_pinned_memory(8 * n)
        words = np.frombuffer(memory, np.int64, n)
        mapped = cuda.UnownedMemory(words.ctypes.data, 8 * n, memory, self.index)
        return words, self.xp.ndarray((n,), np.int64, cuda.MemoryPointer(mapped, 0))

    def asarray(self, array: Any, dtype: Any = None) -> Array:
        """`array` on this device; copies only where it is elsewhere or of another dtype."""
        if self.kind == "cpu":
            return np.ascontiguousarray(self.to_host(array), dtype)
        return self.xp.ascontiguousarray(self.xp.asarray(array, dtype))

    @staticmethod
    def to_host(array: Any) -> np.ndarray:
        """`array` as NumPy; from a GPU this copies and waits for the device's stream."""
        return array.get() if hasattr(array, "get") else np.asarray(array)

    def synchronize(self) -> None:
        """Wait until the device has done all that the calling thread's stream was given; nothing on the CPU."""
        if self.kind == "cuda":
            self.xp.cuda.get_current_stream().synchronize()

    @property
    def memory_free(self) -> int:
        """Bytes that could still be taken on this device."""
        if self.kind == "cpu":
            return host_memory_limit()
        pool = self.xp.get_default_memory_pool()
        return int(self.xp.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"cuda:{self.index}"
