"""The peer exchange as it is on GPUs, with host memory in their place: for ranks that are threads of one process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.exchange.contract import Array
from mgraph.exchange.peer import PeerExchange

__all__ = ["IpcBuffersOfHostMemory"]


class GpuArray(np.ndarray):
    """An array that says where it is as CuPy's do."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


class Runtime:
    """The functions of CUDA's runtime that buffers use."""

    CUDARuntimeError = OSError
    memcpyDefault = 4

    def __init__(self) -> None:
        self.taken: dict[int, Any] = {}

    def malloc(self, nbytes: int) -> int:
        memory = (ctypes.c_char * nbytes)()
        self.taken[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free(self, address: int) -> None:
        del self.taken[address]

    def ipcGetMemHandle(self, address: int) -> bytes:
        assert address in self.taken
        return b"handle"

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def deviceSynchronize(self) -> None:
        pass


class Event:
    def __init__(self, disable_timing: bool) -> None:
        assert disable_timing

    def record(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


class HostAsGpu:
    """A device of kind "cuda" whose memory is the host's."""

    kind = "cuda"

    def __init__(self) -> None:
        self.host = Device("cpu", threads=1)
        stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
        cuda = SimpleNamespace(runtime=Runtime(), get_current_stream=lambda: stream, Event=Event)
        self.xp = SimpleNamespace(cuda=cuda)

    def use(self) -> None:
        pass

    def empty(self, n: int, dtype: Any) -> Array:
        return np.empty(n, dtype).view(GpuArray)


class IpcBuffersOfHostMemory(PeerExchange):
    def __init__(self, rank: int, size: int, aborted: Callable[[], bool], **options: Any) -> None:
        self.gpu = HostAsGpu()
        super().__init__(rank, size, aborted, self.gpu, **options)  # type: ignore[arg-type]

    def alltoallv(self, parts: Sequence[Array]) -> list[Array]:
        return self._plain(parts, super().alltoallv([part.view(GpuArray) for part in parts]))

    def allgather(self, part: Array) -> list[Array]:
        return self._plain([part] * self.size, super().allgather(part.view(GpuArray)))

    def _plain(self, parts: Sequence[Array], received: list[Array]) -> list[Array]:
        found = [array.view(np.ndarray) for array in received]
        found[self.rank] = parts[self.rank]
        return found

    def close(self) -> None:
        super().close()
        assert not self.gpu.xp.cuda.runtime.taken
