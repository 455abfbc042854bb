"""The device that a structure lives on: a GPU with CuPy, or the CPU with NumPy, behind one `xp`."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.budget import GRAIN, Budget, host_memory_limit
from mgraph.errors import CapacityError, DeviceError, InvalidOption

LINES = 128  #: bytes of two of a CPU's cache lines
PAGE = 4096
STAGED = 32 << 20  #: bytes of an array of a GPU up to which `Device.staged` uses page-locked memory
CHUNK = 1 << 16  #: items that a CPU takes at once where NumPy makes copies of what it is given

__all__ = ["STAGED", "Array", "Device", "gpu_count", "touch_pages"]

Array = Any  #: numpy.ndarray on the CPU, cupy.ndarray on a GPU


def gpu_count() -> int:
    """How many GPUs CuPy can use here; 0 without CuPy or without a driver."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no CuPy, no libcuda, no device: CuPy has an error type for each
        return 0


@lru_cache(256)
def _repeated_byte(value: Any, dtype: np.dtype) -> int | None:
    """The byte that `value` consists of, or None where they differ."""
    found = set(np.array(value, dtype).tobytes())
    return found.pop() if len(found) == 1 else None


def touch_pages(device: Device, array: np.ndarray) -> None:
    """Make the system map all pages of an array of bytes now."""
    array[::PAGE] = 0
    array[-1:] = 0


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
    budget : Budget
        Grants host memory; by default without a limit.
    touch : callable
        ``touch(device, bytes)`` writes to every page of a new array. It is called if the budget has a limit.
    """

    kind: str = "cpu"
    index: int = 0
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    budget: Budget = field(default_factory=Budget, compare=False, repr=False)
    touch: Callable[[Device, np.ndarray], None] = field(default=touch_pages, compare=False, repr=False)
    key: str = field(init=False, compare=False, repr=False)  #: the same for equal devices; a dict finds it in less time
    _put_off: dict[int, Callable[[], None]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self} {self.threads}")
        if self.kind not in ("cpu", "cuda"):
            raise InvalidOption(f'device {self.kind!r} is neither "cpu" nor "cuda"')
        if self.threads < 1:
            raise InvalidOption(f"a device with {self.threads} threads; at least 1 is needed")
        if self.kind == "cuda" and self.index >= gpu_count():
            raise DeviceError(
                f"GPU {self.index} was asked for and {gpu_count()} can be used here; a GPU needs the NVIDIA driver and "
                'CuPy (pip install "dask-mgraph[cuda13]"); device="cpu" needs neither'
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

    @cached_property
    def host(self) -> Device:
        """The host's memory as a device with the same budget: itself on the CPU."""
        return self if self.kind == "cpu" else Device("cpu", threads=self.threads, budget=self.budget)

    # ---- allocations -------------------------------------------------------------------------------------------------

    @contextmanager
    def taking(self, nbytes: int, what: Any) -> Iterator[None]:
        """A block in which at most `nbytes` are allocated for `what`; `CapacityError` if there are fewer.

        On the CPU the bytes are reserved in the budget for the time of the block. On a GPU nothing is reserved: its
        allocator raises an error when memory runs out, and asking first would take as long as the allocation.
        """
        with self.budget.reserve(nbytes, what) if self.kind == "cpu" and nbytes >= GRAIN else nullcontext():
            try:
                yield
            except MemoryError:
                raise self._refusal(nbytes, what) from None

    def _refusal(self, nbytes: int, what: Any) -> CapacityError:
        where = "the machine" if self.kind == "cpu" else f"GPU {self.index}"
        return CapacityError(f"{nbytes} bytes are needed for {what}, and {where} has {self.memory_free} left")

    def empty(self, n: int, dtype: Any) -> Array:
        """An array of n undefined elements; `CapacityError` if there is too little memory.

        If the budget has a limit, all pages are mapped at once. Without that the system would map them when they are
        written, and until then the budget would count them as free.
        """
        n = int(n)
        if self.kind != "cpu":
            try:
                return self.xp.ndarray((n,), dtype)
            except MemoryError:  # CuPy's
                raise self._refusal(n * np.dtype(dtype).itemsize, f"an array of {n} {np.dtype(dtype)}") from None
        if n < 1 << 12:
            return np.empty(n, dtype)
        need = n * np.dtype(dtype).itemsize
        if need < 1 << 16:
            return np.empty(n, dtype)
        if need < GRAIN:
            return self._lines(need).view(dtype)
        with self.taking(need, f"an array of {n} {np.dtype(dtype)}"):
            array = self._lines(need)
            if self.budget.limited:
                self.touch(self, array)
        return array.view(dtype)

    @staticmethod
    def _lines(nbytes: int) -> np.ndarray:
        """An array of bytes so aligned that a leaf or a slab of 128 bytes occupies two cache lines, not three."""
        whole = np.empty(nbytes + LINES, np.uint8)
        first = -whole.__array_interface__["data"][0] % LINES
        return whole[first : first + nbytes]

    def reserve(self, nbytes: int) -> None:
        """Allocate `nbytes` of a GPU's memory now, from which later allocations are served while they fit.

        cudaMalloc takes milliseconds for each GB, and a growing structure needs a new array in the middle of a batch.
        CuPy's pool keeps freed memory, splits it and merges it again, so one large block that is allocated and freed
        serves later allocations. It belongs to the calling thread's current stream, and is returned by
        ``free_all_blocks`` of CuPy's pool. Does nothing on the CPU.

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
            self.empty(nbytes, np.uint8)  # freed to the pool at once

    def carve(self, *shapes: tuple[int, Any]) -> list[Array]:
        """Undefined arrays of (n, dtype) each, in one allocation, which is freed with the last of them."""
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

    def address(self, array: Array) -> int:
        """Where an array's memory begins, for kernels that are given a table of such addresses."""
        return int(array.ctypes.data if self.kind == "cpu" else array.data.ptr)

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

    # ---- what NumPy would allocate by itself -------------------------------------------------------------------------

    def asarray(self, array: Any, dtype: Any = None) -> Array:
        """`array` on this device, contiguous and aligned; copies only where it is not so or of another dtype."""
        if self.kind != "cpu":
            if type(array) is self.xp.ndarray and dtype in (None, array.dtype) and array.flags.c_contiguous:
                return array  # CuPy takes 2 us to find out
            if getattr(array, "nbytes", 0) < GRAIN:
                return self.xp.ascontiguousarray(self.xp.asarray(array, dtype))
            if self.page_locked(array) and dtype in (None, array.dtype):
                return self._sent(array)
            with self.taking(array.nbytes, f"{array.size} {array.dtype}"):
                return self.xp.ascontiguousarray(self.xp.asarray(array, dtype))
        host = array if type(array) is np.ndarray else self.to_host(array)
        flags = host.flags
        if (dtype is None or host.dtype == dtype) and flags.c_contiguous and flags.aligned:
            return host
        copy = self.empty(host.size, host.dtype if dtype is None else dtype).reshape(host.shape)
        np.copyto(copy, host, casting="unsafe")
        return copy

    def sent(self, array: np.ndarray) -> Array:
        """A small contiguous array of the host's on this device, which may be changed once this has returned.

        The driver takes a few bytes of pageable memory over at once. CuPy would copy them to page-locked memory first,
        and record an event with which to find out when that is free again.
        """
        if self.kind == "cpu":
            return array
        out, cuda = self.empty(len(array), array.dtype), self.xp.cuda
        if not len(array):
            return out
        cuda.runtime.memcpyAsync(
            out.data.ptr, array.__array_interface__["data"][0], array.nbytes, cuda.runtime.memcpyHostToDevice,
            cuda.get_current_stream().ptr,
        )  # fmt: skip
        return out

    def page_locked(self, array: Any) -> bool:
        """Whether an array is one of host memory that CUDA copies from without staging, and contiguous."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            return False
        kind = self.xp.cuda.runtime.pointerGetAttributes(array.__array_interface__["data"][0]).type
        return bool(kind == self.xp.cuda.runtime.memoryTypeHost)

    def _sent(self, array: np.ndarray) -> Array:
        """A copy of a page-locked array; waits for it, since the memory may be used again after the call."""
        out, stream = self.empty(array.size, array.dtype).reshape(array.shape), self.xp.cuda.get_current_stream()
        runtime, source = self.xp.cuda.runtime, array.__array_interface__["data"][0]
        runtime.memcpyAsync(out.data.ptr, source, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()
        return out

    def astype(self, array: Array, dtype: Any) -> Array:
        """A one-dimensional array as one of another dtype."""
        if self.kind != "cpu":
            return self._made(len(array), dtype, lambda: array.astype(dtype))
        out = self.empty(len(array), dtype)
        out[...] = array
        return out

    def arange(self, start: int, end: int, dtype: Any) -> Array:
        """The numbers from `start` to `end` - 1."""
        n = max(end - start, 0)
        if self.kind != "cpu":
            return self._made(n, dtype, lambda: self.xp.arange(start, start + n, dtype=dtype))
        out = self.empty(n, dtype)
        self.count(out, start)
        return out

    def count(self, out: Array, start: int = 0) -> None:
        """Write `start`, `start` + 1 and so on."""
        if self.kind != "cpu":
            out[...] = self.arange(start, start + len(out), out.dtype)
            return
        for part in self.slices(len(out)):
            out[part] = np.arange(start + part.start, start + part.stop, dtype=out.dtype)

    def slices(self, n: int) -> Iterator[slice]:
        """Parts of an array of `n` items that are worked on one after another: on a GPU there is but one."""
        step = max(n, 1) if self.kind != "cpu" else CHUNK
        return (slice(at, min(at + step, n)) for at in range(0, n, step))

    def gather(self, array: Array, places: Array) -> Array:
        """``array[places]`` of one-dimensional arrays; `places` are in bounds."""
        if self.kind != "cpu":
            return self._made(len(places), array.dtype, lambda: array[places])
        out = self.empty(len(places), array.dtype)
        for part in self.slices(len(places)):  # NumPy makes its own integers of what it is given
            np.take(array, places[part], out=out[part], mode="clip")
        return out

    def scatter(self, array: Array, places: Array, values: Array) -> None:
        """``array[places] = values`` of one-dimensional arrays; places differ."""
        for part in self.slices(len(places)):
            array[places[part]] = values[part]

    def repeat(self, array: Array, times: int) -> Array:
        """Each element `times` times in a row."""
        if self.kind != "cpu":
            return self._made(times * len(array), array.dtype, lambda: self.xp.repeat(array, times))
        out = self.empty(times * len(array), array.dtype)
        out.reshape(len(array), times)[...] = array[:, None]
        return out

    def concatenate(self, parts: Sequence[Array]) -> Array:
        """Arrays of one dtype one after another, as a new one."""
        n, dtype = sum(map(len, parts)), parts[0].dtype
        if self.kind != "cpu":
            return self._made(n, dtype, lambda: self.xp.concatenate(parts))
        return np.concatenate(parts, out=self.empty(n, dtype))

    def cumsum(self, array: Array, out: Array) -> Array:
        """The running sums of `array` in `out`, which may be of another dtype, or `array` itself."""
        if self.kind != "cpu":
            with self.taking(out.nbytes, f"{len(out)} running sums"):
                return self.xp.cumsum(array, dtype=out.dtype, out=out)
        if array.dtype == out.dtype:
            return np.cumsum(array, dtype=out.dtype, out=out)
        before = out.dtype.type(0)
        for part in self.slices(len(array)):
            sums = np.cumsum(array[part], dtype=out.dtype, out=out[part])
            sums += before
            before = sums[-1]
        return out

    def sort(self, array: Array) -> None:
        """Sort a one-dimensional array in its place; on a GPU this takes as much again meanwhile."""
        if self.kind == "cpu":
            array.sort()
            return
        with self.taking(array.nbytes, f"the sort of {array.size} keys"):
            array.sort()

    def _made(self, n: int, dtype: Any, make: Callable[[], Array]) -> Array:
        """What a GPU's library makes of `n` elements."""
        nbytes = n * np.dtype(dtype).itemsize
        if nbytes < GRAIN:
            return make()
        with self.taking(nbytes, f"{n} {np.dtype(dtype)}"):
            return make()

    # ---- to the host and back ----------------------------------------------------------------------------------------

    @staticmethod
    def to_host(array: Any) -> np.ndarray:
        """`array` as NumPy; from a GPU this copies and waits for the device's stream."""
        if type(array) is np.ndarray:
            return array
        return array.get() if hasattr(array, "get") else np.asarray(array)

    @staticmethod
    def staged(array: Any) -> np.ndarray:
        """As `to_host`, for arrays of batches: of a GPU up to `STAGED` bytes, in page-locked memory that is used again.

        The memory comes from CuPy's pool of it, in sizes that are powers of two, so that the pool stays small. The
        driver copies there at the link's rate, and the system maps no new pages.
        """
        nbytes = getattr(array, "nbytes", 0)
        if type(array) is np.ndarray or not hasattr(array, "get") or array.ndim != 1 or not 0 < nbytes <= STAGED:
            return Device.to_host(array)
        import cupy

        memory = cupy.cuda.alloc_pinned_memory(1 << (nbytes - 1).bit_length())
        host: np.ndarray = array.get(out=np.frombuffer(memory, array.dtype, array.size))
        return host

    def page_lock(self, memory: np.ndarray, owner: Any) -> None:
        """Have the driver copy to and from host memory without staging until `owner` ends, if it can. For a GPU."""
        if self.kind == "cpu":
            return
        runtime, address = self.xp.cuda.runtime, memory.ctypes.data
        with suppress(runtime.CUDARuntimeError):
            runtime.hostRegister(address, memory.nbytes, 1)  # portable: of every context of the process
            weakref.finalize(owner, self._unlock_pages, address).atexit = False

    def _unlock_pages(self, address: int) -> None:
        cuda = self.xp.cuda  # in any thread, whose own device may be another
        with suppress(cuda.runtime.CUDARuntimeError), cuda.Device(self.index):  # the driver may have ended before
            cuda.runtime.hostUnregister(address)

    def fetch(self, array: Array) -> np.ndarray:
        """As `to_host`, but takes the host memory from the budget."""
        if self.kind == "cpu" or array.nbytes < GRAIN:
            return self.to_host(array)
        return array.get(out=self.host.empty(array.size, array.dtype))

    def fetching(self, array: Array) -> Callable[[], np.ndarray]:
        """Begin to copy an array to host memory, which is allocated now; the function waits for it and returns it.

        Up to `STAGED` bytes of a GPU go through page-locked memory, and this waits for nothing.
        """
        if self.kind == "cpu" or not 0 < array.nbytes <= STAGED:
            here = self.fetch(array)
            return lambda: here
        cuda, stream = self.xp.cuda, self.xp.cuda.get_current_stream()
        memory = cuda.alloc_pinned_memory(1 << (array.nbytes - 1).bit_length())
        out, staged = self.host.empty(array.size, array.dtype), np.frombuffer(memory, array.dtype, array.size)
        kind, done = cuda.runtime.memcpyDeviceToHost, cuda.Event(disable_timing=True)
        cuda.runtime.memcpyAsync(memory.ptr, array.data.ptr, array.nbytes, kind, stream.ptr)
        done.record(stream)

        def fetched() -> np.ndarray:
            done.synchronize()
            np.copyto(out, staged)
            return out

        return fetched

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do `work`, which raises nothing: where this thread next waits for a GPU by `synchronize`; on the CPU now."""
        if self.kind == "cuda":
            self._put_off[threading.get_ident()] = work
        else:
            work()

    def synchronize(self) -> None:
        """Wait until the device has done all that the calling thread's stream was given; nothing on the CPU.

        What was left to `meanwhile` is done first, while the device works.
        """
        if self.kind == "cuda":
            if self._put_off and (work := self._put_off.pop(threading.get_ident(), None)) is not None:
                work()
            self.xp.cuda.get_current_stream().synchronize()

    @property
    def memory_free(self) -> int:
        """Bytes that can still be allocated on this device."""
        if self.kind == "cpu":
            return min(host_memory_limit(), self.budget.left())
        pool = self.xp.get_default_memory_pool()
        return int(self.xp.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"cuda:{self.index}"
