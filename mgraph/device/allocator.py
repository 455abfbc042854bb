"""Allocations on a device, and page-locked host memory that a GPU maps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.budget import GRAIN
from mgraph.device.hardware import OUT_OF_MEMORY, Array, Hardware
from mgraph.errors import CapacityError, InvalidOption

__all__ = ["Allocator", "page_locked_memory"]

LINES = 128  #: bytes of two cache lines of a CPU


@lru_cache(256)
def _repeated_byte(value: Any, dtype: np.dtype) -> int | None:
    """Return the byte that `value` repeats, or None if its bytes differ."""
    distinct = set(np.array(value, dtype).tobytes())
    return distinct.pop() if len(distinct) == 1 else None


def page_locked_memory(cuda: Any, nbytes: int) -> Any:
    """Allocate host memory in the page-locked pool of ``cupy.cuda``, or return None if the system has none left."""
    try:
        return cuda.alloc_pinned_memory(nbytes)
    except cuda.runtime.CUDARuntimeError as error:
        if error.status != OUT_OF_MEMORY:
            raise
    return None


class Allocator(Hardware):
    """Arrays on the hardware, on the CPU from a budget."""

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
