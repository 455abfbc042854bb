"""Tails of logs on a device: from a GPU, columns are copied by a stream of its own, from the host by threads."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.log.shared_memory_tail import Copy, SharedMemoryTail, laid
from mgraph.parallel_copy import begin_copy

__all__ = ["TAILED", "tail_of"]

logger = logging.getLogger(__name__)

#: devices whose logs have a tail; on a CPU, a batch takes longer than its write to a file
TAILED = {"cuda"}
MOST = 1 << 30  #: maximum bytes of a tail


def tail_of(device: Device, nbytes: int, log: int, folder: str) -> tuple[SharedMemoryTail, Copy] | None:
    """Make a tail for a log in a folder, for a lag of `nbytes`.

    Returns None without room, and logs why.
    """
    try:
        tail = SharedMemoryTail(min(nbytes + nbytes // 4, MOST), log, folder)
    except DeviceError as error:
        logger.info("%s: records are written to the log before they are acknowledged: %s", folder, error)
        return None
    device.use()
    device.page_lock(tail.memory.data, tail.memory)
    return tail, _Copies(device)


class _Copies:
    """Copies by the device's stream and by threads."""

    def __init__(self, device: Device) -> None:
        self._of_host: list[Future[None]] = []
        self._gpu, self._of_gpu = device.kind == "cuda", False
        if self._gpu:
            cuda, self._runtime = device.xp.cuda, device.xp.cuda.runtime
            self._stream, self._current = cuda.Stream(non_blocking=True), cuda.get_current_stream
            self._made = cuda.Event(disable_timing=True)

    def mark(self) -> None:
        if self._gpu:
            self._made.record(self._current())

    def begin(self, parts: Sequence[Any], views: Sequence[np.ndarray]) -> None:
        for view, part, at in laid(parts, views):
            if isinstance(part, np.ndarray):
                self._of_host += begin_copy(view, part.view(np.uint8)[at : at + len(view)])
                continue
            if not self._of_gpu:
                self._of_gpu = True
                self._stream.wait_event(self._made)
            to, source = view.__array_interface__["data"][0], part.data.ptr + at
            self._runtime.memcpyAsync(to, source, len(view), self._runtime.memcpyDeviceToHost, self._stream.ptr)

    def wait(self) -> None:
        copies, self._of_host = self._of_host, []
        for copy in copies:
            copy.result()
        if self._of_gpu:
            self._of_gpu = False
            self._stream.synchronize()
