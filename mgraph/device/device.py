"""Devices: a GPU with CuPy, or the CPU with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.budget import GRAIN
from mgraph.device.hardware import Array
from mgraph.device.transfers import Transfers

__all__ = ["Device"]

CHUNK = 1 << 16  #: items per step on a CPU where NumPy would copy its arguments


@dataclass(frozen=True)
class Device(Transfers):
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

    # ---- NumPy's operations, with budgeted memory --------------------------------------------------------------------

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
