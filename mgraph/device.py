"""Devices: a GPU with CuPy, or the CPU with NumPy."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.budget import GRAIN, Budget, host_memory_limit
from mgraph.errors import CapacityError, DeviceError, InvalidOption

LINES = 128  #: bytes of two cache lines of a CPU
PAGE = 4096
STAGED = 32 << 20  #: maximum size in bytes of a GPU array that `Device.staged` copies through page-locked memory
CHUNK = 1 << 16  #: items per step on a CPU where NumPy would copy its arguments
PRIORITY = -1  #: priority of a graph's stream on a GPU; that of the background is 0, the lowest
AHEAD = -2  #: priority of streams for work ahead of the graph's stream
RELEASE_THRESHOLD, RESERVED, USED = 4, 5, 7  # attributes of CUDA's memory pools
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation

__all__ = ["STAGED", "Array", "Device", "gpu_count", "page_locked_memory", "touch_pages"]

Array = Any  #: numpy.ndarray on the CPU, cupy.ndarray on a GPU


def gpu_count() -> int:
    """Return the number of usable GPUs; 0 without CuPy or a driver."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no CuPy, no libcuda, no device: CuPy has an error type for each
        return 0


_NOTHING = nullcontext()


@lru_cache(256)
def _repeated_byte(value: Any, dtype: np.dtype) -> int | None:
    """Return the byte that `value` repeats, or None if its bytes differ."""
    distinct = set(np.array(value, dtype).tobytes())
    return distinct.pop() if len(distinct) == 1 else None


def touch_pages(device: Device, array: np.ndarray) -> None:
    """Write to every page of an array, so that the system maps it."""
    array[::PAGE] = 0
    array[-1:] = 0


def page_locked_memory(cuda: Any, nbytes: int) -> Any:
    """Allocate host memory in the page-locked pool of ``cupy.cuda``, or return None if the system has none left."""
    try:
        return cuda.alloc_pinned_memory(nbytes)
    except cuda.runtime.CUDARuntimeError as error:
        if error.status != OUT_OF_MEMORY:
            raise
    return None


@dataclass(frozen=True)
class Device:
    """GPU or CPU: arrays, memory, and copies to the host.

    Parameters
    ----------
    kind : "cpu" | "cuda"
    index : int
        Which GPU; 0 on the CPU.
    threads : int
        Host threads per CPU kernel. Explicit, because Dask's nannies set OMP_NUM_THREADS to 1.
    budget : Budget
        Grants host memory; by default without a limit.
    touch : callable
        ``touch(device, bytes)`` writes to every page of a new array. It is called if the budget has a limit.
    background : bool
        True if other devices of the same hardware go first. On a CPU, kernels use a second set of helper threads, so
        that the first set is free for others. On a GPU, kernels whose blocks meet use a part of the GPU, and end after
        a while; memory is mapped and unmapped by CUDA's stream-ordered pool, because cudaFree waits for all running
        kernels.
    stream : cupy.cuda.Stream or None
        The stream of this device's work on a GPU; None for the calling thread's current one. `with_stream` makes it.
    """

    kind: str = "cpu"
    index: int = 0
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    budget: Budget = field(default_factory=Budget, compare=False, repr=False)
    touch: Callable[[Device, np.ndarray], None] = field(default=touch_pages, compare=False, repr=False)
    background: bool = False
    stream: Any = field(default=None, compare=False, repr=False)
    key: str = field(init=False, compare=False, repr=False)  #: the same for equal devices; hashes faster than a device
    _put_off: dict[int, Callable[[], None]] = field(default_factory=dict, init=False, compare=False, repr=False)
    _ahead: list[Any] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self} {self.threads}{' background' if self.background else ''}")
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
        """Return `device` itself, or the device named "cpu", "cuda" or "cuda:1"."""
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
        """Make this the calling thread's current device, which CuPy keeps per thread."""
        if self.kind == "cuda":
            self.xp.cuda.Device(self.index).use()

    # ---- streams -----------------------------------------------------------------------------------------------------

    def with_stream(self) -> Device:
        """Return this device with a stream of its own on a GPU; a CPU unchanged.

        Streams of the background have the lowest priority, and wait for no other stream. The others wait for the null
        stream, and it for them, so that users' CuPy code may use arrays without further waits.
        """
        if self.kind == "cpu":
            return self
        cuda = self.xp.cuda
        with cuda.Device(self.index):
            stream = cuda.Stream(non_blocking=self.background, priority=0 if self.background else PRIORITY)
            if self.background:  # keep freed memory until `release_unused`
                pool = cuda.runtime.deviceGetMemPool(self.index)
                cuda.runtime.memPoolSetAttribute(pool, RELEASE_THRESHOLD, self.memory_total)
        return replace(self, stream=stream)

    def stream_ahead(self) -> Any:
        """Return a new stream of the GPU, for work that is ahead of the device's stream."""
        cuda = self.xp.cuda
        with cuda.Device(self.index):
            self._ahead.append(cuda.Stream(non_blocking=True, priority=0 if self.background else AHEAD))
        return self._ahead[-1]

    def selected(self) -> AbstractContextManager[Any]:
        """Select the device in a block of the calling thread: on a GPU with its stream, or the null stream.

        In the background, CuPy's allocations of the block come from CUDA's stream-ordered pool.
        """
        if self.kind == "cpu":
            return _NOTHING
        cuda, stream = self.xp.cuda, self.xp.cuda.Stream.null if self.stream is None else self.stream
        if not self.background and cuda.runtime.getDevice() == self.index:
            return _NOTHING if cuda.get_current_stream() == stream else stream
        blocks = ExitStack()
        blocks.enter_context(cuda.Device(self.index))
        blocks.enter_context(stream)
        if self.background:
            blocks.enter_context(cuda.using_allocator(self._allocate_mapped))
        return blocks

    def _allocate_mapped(self, nbytes: int) -> Any:
        """Allocate in CUDA's stream-ordered pool, for CuPy; `MemoryError` if the GPU is full."""
        cuda = self.xp.cuda
        for again in (True, False):
            try:
                return cuda.malloc_async(max(nbytes, 1))
            except cuda.runtime.CUDARuntimeError as error:
                if error.status != OUT_OF_MEMORY:
                    raise
                if not again:
                    raise MemoryError(f"{nbytes} bytes of {self}") from None
                self.reclaim()
        raise AssertionError("the second failure raises")

    def release_unused(self) -> None:
        """Return the unused memory of the device's own pool to the driver. Does nothing on a CPU."""
        if self.background and self.kind == "cuda":
            self.await_streams()  # memory is unused once the frees before are done
            self._trim_mapped()
        elif self.kind == "cuda":
            self.xp.get_default_memory_pool().free_all_blocks()

    def reclaim(self) -> None:
        """Return the unused memory of all of the process's pools to the driver, once the GPU has none left."""
        self.xp.get_default_memory_pool().free_all_blocks()
        with suppress(self.xp.cuda.runtime.CUDARuntimeError):  # a GPU without such pools
            self._trim_mapped()

    def _trim_mapped(self) -> None:
        runtime = self.xp.cuda.runtime
        runtime.memPoolTrimTo(runtime.deviceGetMemPool(self.index), 0)

    def await_streams(self) -> None:
        """Wait for all work of this device's streams; of a GPU without its own stream, for all work."""
        if self.stream is not None:
            for stream in (self.stream, *self._ahead):
                stream.synchronize()
        elif self.kind == "cuda":
            with self.xp.cuda.Device(self.index) as gpu:
                gpu.synchronize()

    @cached_property
    def host(self) -> Device:
        """Host memory as a device with the same budget."""
        if self.kind == "cpu":
            return self
        return Device("cpu", threads=self.threads, budget=self.budget, background=self.background)

    # ---- allocations -------------------------------------------------------------------------------------------------

    @contextmanager
    def taking(self, nbytes: int, what: Any) -> Iterator[None]:
        """Reserve `nbytes` for `what` during a block, or raise `CapacityError`.

        On a GPU nothing is reserved: its allocator raises an error when memory runs out, and asking first would take as
        long as the allocation.
        """
        with self.budget.reserve(nbytes, what) if self.kind == "cpu" and nbytes >= GRAIN else nullcontext():
            try:
                yield
            except MemoryError:
                raise self._refusal(nbytes, what) from None

    def check_room(self, nbytes: int, what: Any) -> None:
        """Raise `CapacityError` if `nbytes` for `what` would not fit now."""
        if self.kind == "cpu":
            self.budget.reserve(nbytes, what).release()
        elif nbytes > self.memory_free:
            raise self._refusal(nbytes, what)

    def _refusal(self, nbytes: int, what: Any) -> CapacityError:
        where = "the machine" if self.kind == "cpu" else f"GPU {self.index}"
        return CapacityError(f"{nbytes} bytes are needed for {what}, and {where} has {self.memory_free} left")

    def empty(self, n: int, dtype: Any) -> Array:
        """Return an uninitialized array of `n` elements, or raise `CapacityError`.

        If the budget has a limit, all pages are mapped at once. Otherwise the budget would count them as free until
        they are written.
        """
        # On a GPU the allocator knows the limit.
        n = int(n)
        if self.kind != "cpu":
            with suppress(MemoryError):  # CuPy's
                return self.xp.ndarray((n,), dtype)
            self.reclaim()
            try:
                return self.xp.ndarray((n,), dtype)
            except MemoryError:
                raise self._refusal(n * np.dtype(dtype).itemsize, f"an array of {n} {np.dtype(dtype)}") from None

        # On the CPU, small arrays come from NumPy, larger ones are aligned, and from GRAIN on they are budgeted.
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
        """Return bytes aligned to two cache lines."""
        # A leaf or a slab of 128 bytes then occupies two cache lines, not three.
        whole = np.empty(nbytes + LINES, np.uint8)
        first = -whole.__array_interface__["data"][0] % LINES
        return whole[first : first + nbytes]

    def reserve(self, nbytes: int) -> None:
        """Preallocate `nbytes` of GPU memory in CuPy's pool.

        cudaMalloc takes milliseconds per GB, and a growing structure needs a new array in the middle of a batch. The
        pool keeps freed memory, splits it and merges it again, so one large block that is allocated and freed serves
        later allocations. It belongs to the calling thread's current stream, and is returned by ``free_all_blocks`` of
        CuPy's pool. Does nothing on the CPU.

        Raises
        ------
        InvalidOption
            `nbytes` is negative.
        CapacityError
            The GPU has less memory.
        """
        if nbytes < 0:
            raise InvalidOption(f"{nbytes} bytes cannot be reserved; 0 or more can")
        # CuPy's pool keeps the freed block.
        if self.kind == "cuda" and nbytes > 0:
            self.empty(nbytes, np.uint8)

    def carve(self, *shapes: tuple[int, Any]) -> list[Array]:
        """Allocate uninitialized arrays of (n, dtype) in a common block."""
        # Offsets in the block: prefix sums of the sizes, rounded up to 256 bytes.
        ends = list(accumulate(-(-int(n) * np.dtype(dtype).itemsize // 256) * 256 for n, dtype in shapes))
        whole = self.empty(ends[-1], np.uint8)
        parts = []
        for (n, dtype), first in zip(shapes, [0, *ends], strict=False):
            where = {"buffer": whole, "offset": first} if self.kind == "cpu" else {"memptr": whole.data + first}
            parts.append(self.xp.ndarray((int(n),), dtype, **where))
        return parts

    def fill(self, array: Array, value: Any) -> None:
        """Set all elements to `value`."""
        # A GPU uses memset if all bytes are equal, which takes a third of the host's time.
        byte = _repeated_byte(value, array.dtype) if self.kind == "cuda" else None
        if byte is None:
            array.fill(value)
        else:
            array.data.memset_async(byte, array.nbytes)

    def full(self, n: int, value: Any, dtype: Any) -> Array:
        """Return an array of `n` elements equal to `value`."""
        array = self.empty(n, dtype)
        self.fill(array, value)
        return array

    def zeros(self, n: int, dtype: Any) -> Array:
        """Return an array of `n` zeros."""
        return self.full(n, 0, dtype)

    def address(self, array: Array) -> int:
        """Return the address of an array's memory, for kernels with tables of addresses."""
        return int(array.ctypes.data if self.kind == "cpu" else array.data.ptr)

    def mailbox(self, n: int) -> tuple[np.ndarray, Array]:
        """Return `n` int64 words of mapped host memory, for host and device.

        The words are 0. Kernels write them; the host reads them after it has synchronised. On a GPU this saves the copy
        of `to_host`: 10 us instead of 16 for a kernel and a few words.

        Raises
        ------
        CapacityError
            The system has too little page-locked memory.
        """
        if self.kind == "cpu":
            words = np.zeros(n, np.int64)
            return words, words
        # Page-locked memory has the same address on host and device.
        cuda = self.xp.cuda
        memory = page_locked_memory(cuda, 8 * n)
        if memory is None:
            raise self.host._refusal(8 * n, "page-locked words")
        words = np.frombuffer(memory, np.int64, n)
        words[:] = 0  # the pool's memory may have been used before
        mapped = cuda.UnownedMemory(words.ctypes.data, 8 * n, memory, self.index)
        return words, self.xp.ndarray((n,), np.int64, cuda.MemoryPointer(mapped, 0))

    # ---- NumPy's operations, with budgeted memory --------------------------------------------------------------------

    def asarray(self, array: Any, dtype: Any = None) -> Array:
        """Return `array` on this device, contiguous and aligned. Copies only if needed."""
        # To a GPU: without a copy, by CuPy, from page-locked memory, or with a reservation for its staging.
        if self.kind != "cpu":
            if type(array) is self.xp.ndarray and dtype in (None, array.dtype) and array.flags.c_contiguous:
                return array  # CuPy's own check takes 2 us
            if getattr(array, "nbytes", 0) < GRAIN:
                return self.xp.ascontiguousarray(self.xp.asarray(array, dtype))
            if self.page_locked(array) and dtype in (None, array.dtype):
                return self._sent(array)
            with self.taking(array.nbytes, f"{array.size} {array.dtype}"):
                return self.xp.ascontiguousarray(self.xp.asarray(array, dtype))

        # To the CPU: without a copy if dtype and layout fit.
        host = array if type(array) is np.ndarray else self.to_host(array)
        flags = host.flags
        if (dtype is None or host.dtype == dtype) and flags.c_contiguous and flags.aligned:
            return host
        copy = self.empty(host.size, host.dtype if dtype is None else dtype).reshape(host.shape)
        np.copyto(copy, host, casting="unsafe")
        return copy

    def sent(self, array: np.ndarray) -> Array:
        """Copy a small contiguous host array, which may change after the call.

        The driver has read a few bytes of pageable memory when its call returns. CuPy would copy them to page-locked
        memory first, and record an event that tells when this memory is free again.
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
        """Return True if an array is contiguous and in page-locked host memory."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            return False
        kind = self.xp.cuda.runtime.pointerGetAttributes(array.__array_interface__["data"][0]).type
        return bool(kind == self.xp.cuda.runtime.memoryTypeHost)

    def _sent(self, array: np.ndarray) -> Array:
        """Copy a page-locked array and wait for the copy."""
        out, stream = self.empty(array.size, array.dtype).reshape(array.shape), self.xp.cuda.get_current_stream()
        runtime, source = self.xp.cuda.runtime, array.__array_interface__["data"][0]
        runtime.memcpyAsync(out.data.ptr, source, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()
        return out

    def astype(self, array: Array, dtype: Any) -> Array:
        """Convert a 1-d array to another dtype."""
        if self.kind != "cpu":
            return self._allocated(len(array), dtype, lambda: array.astype(dtype))
        out = self.empty(len(array), dtype)
        out[...] = array
        return out

    def arange(self, start: int, end: int, dtype: Any) -> Array:
        """Return the numbers `start` to `end` - 1."""
        n = max(end - start, 0)
        if self.kind != "cpu":
            return self._allocated(n, dtype, lambda: self.xp.arange(start, start + n, dtype=dtype))
        out = self.empty(n, dtype)
        self.count(out, start)
        return out

    def count(self, out: Array, start: int = 0) -> None:
        """Write `start`, `start` + 1, ... to `out`."""
        if self.kind != "cpu":
            out[...] = self.arange(start, start + len(out), out.dtype)
            return
        for part in self.slices(len(out)):
            out[part] = np.arange(start + part.start, start + part.stop, dtype=out.dtype)

    def slices(self, n: int) -> Iterator[slice]:
        """Return slices that cover `n` items: chunks on the CPU, one on a GPU."""
        step = max(n, 1) if self.kind != "cpu" else CHUNK
        return (slice(at, min(at + step, n)) for at in range(0, n, step))

    def gather(self, array: Array, places: Array) -> Array:
        """Return ``array[places]`` of 1-d arrays; `places` are in bounds."""
        if self.kind != "cpu":
            return self._allocated(len(places), array.dtype, lambda: array[places])
        out = self.empty(len(places), array.dtype)
        for part in self.slices(len(places)):  # NumPy copies the indices to int64
            np.take(array, places[part], out=out[part], mode="clip")
        return out

    def scatter(self, array: Array, places: Array, values: Array) -> None:
        """Assign ``array[places] = values`` of 1-d arrays; places are distinct."""
        for part in self.slices(len(places)):
            array[places[part]] = values[part]

    def repeat(self, array: Array, times: int) -> Array:
        """Repeat each element `times` times."""
        if self.kind != "cpu":
            return self._allocated(times * len(array), array.dtype, lambda: self.xp.repeat(array, times))
        out = self.empty(times * len(array), array.dtype)
        out.reshape(len(array), times)[...] = array[:, None]
        return out

    def concatenate(self, parts: Sequence[Array]) -> Array:
        """Concatenate arrays of one dtype."""
        n, dtype = sum(map(len, parts)), parts[0].dtype
        if self.kind != "cpu":
            return self._allocated(n, dtype, lambda: self.xp.concatenate(parts))
        return np.concatenate(parts, out=self.empty(n, dtype))

    def cumsum(self, array: Array, out: Array) -> Array:
        """Write the prefix sums of `array` to `out`, and return it."""
        if self.kind != "cpu":
            with self.taking(out.nbytes, f"{len(out)} running sums"):
                return self.xp.cumsum(array, dtype=out.dtype, out=out)
        if array.dtype == out.dtype:
            return np.add.accumulate(array, dtype=out.dtype, out=out)
        # NumPy would convert the whole array to another dtype first: sum it in chunks.
        for at in range(0, len(array), CHUNK):
            part = slice(at, at + CHUNK)
            sums = np.add.accumulate(array[part], dtype=out.dtype, out=out[part])
            if at:
                sums += out[at - 1]
        return out

    def total(self, values: Array) -> int:
        """Return the sum of whole numbers, or how many of `values` are True. One read-back.

        CuPy compiles sums to another dtype, `any` and `all` anew for several lengths, which takes 5 seconds each time.
        Sums of 64 bits it has at hand.
        """
        if self.kind == "cpu":
            return int(values.sum(dtype=np.int64))
        wide = values.view(np.int64) if values.dtype.itemsize == 8 else self.astype(values, np.int64)
        return int(wide.sum())

    def sort(self, array: Array) -> None:
        """Sort a 1-d array in place. A GPU needs as much memory again."""
        if self.kind == "cpu":
            array.sort()
            return
        with self.taking(array.nbytes, f"the sort of {array.size} keys"):
            array.sort()

    def _allocated(self, n: int, dtype: Any, make: Callable[[], Array]) -> Array:
        """Run `make`, which allocates `n` elements in a GPU library."""
        nbytes = n * np.dtype(dtype).itemsize
        if nbytes < GRAIN:
            return make()
        with self.taking(nbytes, f"{n} {np.dtype(dtype)}"):
            return make()

    # ---- to the host and back ----------------------------------------------------------------------------------------

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
            return Device.to_host(array)
        import cupy

        memory = page_locked_memory(cupy.cuda, 1 << (nbytes - 1).bit_length())
        if memory is None:
            return Device.to_host(array)
        host: np.ndarray = array.get(out=np.frombuffer(memory, array.dtype, array.size))
        return host

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
        cuda = self.xp.cuda  # in any thread, whose own device may be another
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

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Run `work` before this thread next waits for a GPU by `synchronize`; at once on the CPU."""
        if self.kind == "cuda":
            self._put_off[threading.get_ident()] = work
        else:
            work()

    def synchronize(self) -> None:
        """Run the deferred work, then wait for the thread's stream."""
        if self.kind == "cuda":
            # The deferred work overlaps with the device's.
            if self._put_off and (work := self._put_off.pop(threading.get_ident(), None)) is not None:
                work()
            self.xp.cuda.get_current_stream().synchronize()

    @property
    def memory_free(self) -> int:
        """Bytes that can still be allocated on this device."""
        if self.kind == "cpu":
            return min(host_memory_limit(), self.budget.left())
        return int(self.xp.cuda.runtime.memGetInfo()[0]) + self.memory_unused

    @property
    def memory_unused(self) -> int:
        """Bytes that the process's pools keep for later allocations; 0 on a CPU."""
        if self.kind == "cpu":
            return 0
        unused = int(self.xp.get_default_memory_pool().free_bytes())
        if self.background:
            runtime = self.xp.cuda.runtime
            pool = runtime.deviceGetMemPool(self.index)
            unused += int(runtime.memPoolGetAttribute(pool, RESERVED)) - int(runtime.memPoolGetAttribute(pool, USED))
        return unused

    @property
    def memory_total(self) -> int:
        """Bytes of the GPU's memory."""
        return int(self.xp.cuda.runtime.memGetInfo()[1])

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"cuda:{self.index}"
