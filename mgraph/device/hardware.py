"""Hardware: a GPU or the CPU, with its streams and its free memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from mgraph.budget import Budget, host_memory_limit
from mgraph.errors import DeviceError, InvalidOption

__all__ = ["PAGE", "Array", "Hardware", "gpu_count", "touch_pages"]

Array = Any  #: numpy.ndarray on the CPU, cupy.ndarray on a GPU

PAGE = 4096
PRIORITY = -1  #: priority of a graph's stream on a GPU; that of the background is 0, the lowest
AHEAD = -2  #: priority of streams for work ahead of the graph's stream
RELEASE_THRESHOLD, RESERVED, USED = 4, 5, 7  # attributes of CUDA's memory pools
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


def gpu_count() -> int:
    """Return the number of usable GPUs; 0 without CuPy or a driver."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no CuPy, no libcuda, no device: CuPy has an error type for each
        return 0


_NOTHING = nullcontext()


def touch_pages(device: Hardware, array: np.ndarray) -> None:
    """Write to every page of an array, so that the system maps it."""
    array[::PAGE] = 0
    array[-1:] = 0


@dataclass(frozen=True)
class Hardware:
    """GPU or CPU, its streams and its free memory. `Device` says what the fields are."""

    kind: str = "cpu"
    index: int = 0
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    budget: Budget = field(default_factory=Budget, compare=False, repr=False)
    touch: Callable[[Any, np.ndarray], None] = field(default=touch_pages, compare=False, repr=False)
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
    def of(cls, device: Self | str) -> Self:
        """Return `device` itself, or the device named "cpu", "cuda" or "cuda:1"."""
        if isinstance(device, cls):
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

    def with_stream(self) -> Self:
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
    def host(self) -> Self:
        """Host memory as a device with the same budget."""
        if self.kind == "cpu":
            return self
        return type(self)("cpu", threads=self.threads, budget=self.budget, background=self.background)

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

    # ---- memory ------------------------------------------------------------------------------------------------------

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
