"""Copies between host memory and a GPU, on a pretended one or on a GPU."""

from __future__ import annotations

import ctypes
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mgraph import parallel_copy
from mgraph.device import STAGING, Device
from mgraph.parallel_copy import begin_upload, fetched


class Gpu:
    """Stands for a `Device` of kind "cuda": copies happen when the stream, or an event behind them, is waited for."""

    kind = "cuda"
    begin_copy, _sent = Device.begin_copy, Device._sent
    host = Device("cpu")

    def __init__(self, locked: bool = True) -> None:
        self.locked, self.queued, self.staged, self.pinned = locked, deque(), 0, 0
        stream = SimpleNamespace(ptr=7, synchronize=self.synchronize)
        runtime = SimpleNamespace(memcpyHostToDevice=1, memcpyDeviceToHost=2, memcpyAsync=self._copy)
        cuda = SimpleNamespace(
            runtime=runtime, get_current_stream=lambda: stream, alloc_pinned_memory=self._pinned,
            Event=lambda disable_timing: Event(self),
        )  # fmt: skip
        self.xp = SimpleNamespace(cuda=cuda)

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        self.queued.append((target, source, nbytes))

    def _pinned(self, nbytes: int) -> Any:
        class Memory(np.ndarray):
            ptr = property(lambda array: array.ctypes.data)

        self.pinned += 1
        return np.zeros(nbytes, np.uint8).view(Memory)

    def page_locked(self, array: np.ndarray) -> bool:
        return self.locked and array.flags.c_contiguous

    def asarray(self, array: np.ndarray) -> np.ndarray:
        self.staged += 1
        return np.array(array)

    def empty(self, n: int, dtype: np.dtype) -> np.ndarray:
        class OnGpu(np.ndarray):
            data = property(lambda array: SimpleNamespace(ptr=array.ctypes.data))

        return np.zeros(n, dtype).view(OnGpu)

    def synchronize(self, left: int = 0) -> None:
        while len(self.queued) > left:
            ctypes.memmove(*self.queued.popleft())


class Event:
    """Event of a pretended stream."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def record(self, stream: Any) -> None:
        self.last = self.gpu.queued[-1]

    def synchronize(self) -> None:
        if self.last in self.gpu.queued:
            self.gpu.synchronize(len(self.gpu.queued) - 1 - self.gpu.queued.index(self.last))


@pytest.fixture
def pieces(monkeypatch):
    """Make pieces of 4,000 bytes."""
    monkeypatch.setattr(parallel_copy, "LARGE", 1000)
    monkeypatch.setattr(parallel_copy, "PIECE", 4000)


def test_a_host_column_is_copied_directly_and_without_a_wait():
    gpu, columns = Gpu(), [np.arange(n, dtype=np.uint32) for n in (STAGING // 4, 100_000)]
    copies = [gpu.begin_copy(column) for column in columns]
    assert (gpu.staged, len(gpu.queued)) == (0, 2)
    gpu.synchronize()
    assert all((copy == column).all() for copy, column in zip(copies, columns, strict=True))


@pytest.mark.parametrize(
    ("kind", "step", "n"), [("<u4", 2, STAGING), (">u4", 1, STAGING), ("<u4", 1, STAGING // 4 - 1)]
)
def test_small_columns_and_other_layouts_are_staged(kind, step, n):
    gpu, column = Gpu(), np.arange(step * n, dtype=kind)[::step]
    assert (gpu.begin_copy(column) == column).all()
    assert (gpu.staged, len(gpu.queued)) == (1, 0)


@pytest.mark.parametrize("n", [250, 999, 1000, 1001, 2000, 12_345])
def test_a_large_pageable_column_goes_and_comes_in_pieces(pieces, n):
    gpu, column = Gpu(locked=False), np.random.default_rng(n).integers(0, 2**32, n, np.uint32)
    there = begin_upload(gpu, column)
    assert (len(gpu.queued), gpu.staged, gpu.pinned) == (0, 0, 2)
    assert there.tolist() == column.tolist()
    assert fetched(gpu, there).tolist() == column.tolist()
    assert (len(gpu.queued), gpu.pinned) == (0, 4)


def test_nothing_is_copied_to_page_locked_memory_after_an_error(pieces, monkeypatch):
    def stop(target, source):
        raise KeyboardInterrupt

    gpu = Gpu(locked=False)
    there = begin_upload(gpu, np.arange(5000, dtype=np.uint32))
    monkeypatch.setattr(parallel_copy, "copy", stop)
    with pytest.raises(KeyboardInterrupt):
        fetched(gpu, there)
    assert not gpu.queued


def test_a_column_of_the_cpu_is_not_copied():
    column = np.arange(100_000)
    assert Device("cpu").begin_copy(column) is column


class Converted(np.ndarray):
    """Stands for an array of CuPy."""


@pytest.mark.parametrize("dtype", [np.float64, np.dtype(np.float64), "float64", np.int64, None])
def test_an_array_on_a_gpu_is_converted_unless_it_has_the_dtype(dtype):
    """NumPy's dtype float64 equals None."""
    xp = SimpleNamespace(ndarray=Converted, asarray=np.asarray, ascontiguousarray=np.ascontiguousarray)
    given = np.arange(5).view(Converted)
    there = Device.asarray(SimpleNamespace(kind="cuda", xp=xp), given, dtype)
    assert there.dtype == (np.int64 if dtype is None else dtype) and there.tolist() == list(range(5))
    assert (there is given) == (there.dtype == np.int64)


@pytest.mark.gpu
def test_a_copy_that_was_begun_has_the_columns_values():
    import cupyx

    device = Device("cuda")
    for n in (STAGING // 4 - 1, STAGING // 4, 3_000_001):
        column = cupyx.empty_pinned(n, np.uint32)
        column[:] = np.random.default_rng(n).integers(0, 2**32, n, np.uint32)
        for given in (column, np.array(column)):
            there = begin_upload(device, given)
            assert there.dtype == column.dtype and (there.get() == column).all()
            back = fetched(device, there)
            assert type(back) is np.ndarray and back.dtype == column.dtype and (back == column).all()
            assert (fetched(device, there[::2]) == column[::2]).all()


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_small_arrays_are_joined_on_their_way_to_the_host_and_back(kind):
    device, rng = Device(kind), np.random.default_rng(3)
    sizes = (80, "u8"), (0, "f4"), (40, "f4"), (11, "u1")
    columns = [rng.integers(0, 255, n, np.uint8).view(dtype) for n, dtype in sizes]
    joined = device.joined_on_host([device.asarray(column) for column in columns])
    assert (len(joined), joined.dtype) == (136, np.uint8)
    assert joined[:131].tobytes() == b"".join(column.tobytes() for column in columns)
    back, sending = device.begin_joined([joined[:100], joined[100:]])
    assert device.to_host(back).tobytes() == sending.tobytes() == joined.tobytes()
