"""A GPU made of host memory, with the little of CuPy that exchanges use: their code for GPUs runs where there is none.

Copies to the host happen when the stream is waited for and not before, so that what does not wait reads old bytes.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np

from mgraph.device import Device


class PretendArray(np.ndarray):
    """A NumPy array with the address that a CuPy array has."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)


def on_gpu(array: Any) -> Any:
    return np.ascontiguousarray(array).view(PretendArray)


class PretendGpu:
    """Stands for a `Device` of kind "cuda"; thread by thread, as streams are."""

    kind, index = "cuda", 0

    def __init__(self) -> None:
        self.queued: list[tuple[int, int, int]] = []
        self.copies = self.waits = 0
        runtime = SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyAsync=self._copy,
            deviceSynchronize=self.synchronize,
        )
        cuda = SimpleNamespace(
            runtime=runtime,
            get_current_stream=lambda: SimpleNamespace(ptr=7),
            alloc_pinned_memory=bytearray,
        )
        self.xp = SimpleNamespace(cuda=cuda)
        self.host = Device("cpu")

    def use(self) -> None:
        pass

    def empty(self, n: int, dtype: Any) -> Any:
        array = np.empty(n, dtype).view(PretendArray)
        array.view(np.uint8)[:] = 0xEE
        return array

    def synchronize(self) -> None:
        self.waits += 1
        for target, source, nbytes in self.queued:
            ctypes.memmove(target, source, nbytes)
        self.queued.clear()

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        assert stream == 7
        assert nbytes > 0
        self.copies += 1
        if kind == 2:
            self.queued.append((target, source, nbytes))
        else:  # out of pageable memory: taken at once
            ctypes.memmove(target, source, nbytes)
