"""Copies between host memory and a GPU, on a pretended one or on a GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from mgraph.device import STAGING, Device


class Gpu:
    """Stands for a `Device` of kind "cuda": copies from page-locked memory happen when the stream is waited for."""

    kind = "cuda"
    begin_copy, _sent = Device.begin_copy, Device._sent

    def __init__(self, locked: bool) -> None:
        self.locked, self.waits, self.queued, self.staged = locked, 0, [], 0
        stream = SimpleNamespace(ptr=7, synchronize=self.synchronize)
        runtime = SimpleNamespace(memcpyHostToDevice=1, memcpyAsync=lambda *copy: self.queued.append(copy[:3]))
        self.xp = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, get_current_stream=lambda: stream))

    def page_locked(self, array: np.ndarray) -> bool:
        return self.locked and array.flags.c_contiguous

    def asarray(self, array: np.ndarray) -> np.ndarray:
        self.staged += 1
        return np.array(array)

    def empty(self, n: int, dtype: np.dtype) -> np.ndarray:
        class OnGpu(np.ndarray):
            data = property(lambda array: SimpleNamespace(ptr=array.ctypes.data))

        return np.zeros(n, dtype).view(OnGpu)

    def synchronize(self) -> None:
        self.waits += 1
        for target, source, nbytes in self.queued:
            ctypes.memmove(target, source, nbytes)
        self.queued.clear()


def test_a_page_locked_column_is_copied_directly_and_without_a_wait():
    gpu, columns = Gpu(locked=True), [np.arange(n, dtype=np.uint32) for n in (STAGING // 4, 100_000)]
    copies = [gpu.begin_copy(column) for column in columns]
    assert (gpu.waits, gpu.staged, len(gpu.queued)) == (0, 0, 2)
    gpu.synchronize()
    assert all((copy == column).all() for copy, column in zip(copies, columns, strict=True))


@pytest.mark.parametrize(
    ("locked", "step", "n"), [(False, 1, STAGING), (True, 2, STAGING), (True, 1, STAGING // 4 - 1)]
)
def test_other_columns_and_small_ones_are_staged(locked, step, n):
    gpu, column = Gpu(locked), np.arange(step * n, dtype=np.uint32)[::step]
    assert (gpu.begin_copy(column) == column).all()
    assert (gpu.staged, gpu.queued) == (1, [])


def test_a_column_of_the_cpu_is_not_copied():
    column = np.arange(100_000)
    assert Device("cpu").begin_copy(column) is column


@pytest.mark.gpu
def test_a_copy_that_was_begun_has_the_columns_values():
    import cupyx

    device = Device("cuda")
    for n in (STAGING // 4 - 1, STAGING // 4, 3_000_001):
        column = cupyx.empty_pinned(n, np.uint32)
        column[:] = np.random.default_rng(n).integers(0, 2**32, n, np.uint32)
        copy = device.begin_copy(column)
        assert copy.dtype == column.dtype and (copy.get() == column).all()


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
