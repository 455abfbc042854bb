"""The spool of a rank's log, and how columns get there: from a GPU by a stream of its own, from the host by threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.log.spool import Copy, Spool, laid
from mgraph.shared import copies

__all__ = ["SPOOLED", "spool_of"]

logger = logging.getLogger(__name__)

#: devices whose logs have a spool; the batches of a CPU take longer than it takes to write them to a file
SPOOLED = {"cuda"}
MOST = 1 << 30  #: bytes of a spool


def spool_of(device: Device, nbytes: int, log: int, store: str) -> tuple[Spool, Copy] | None:
    """A spool for a log of a store, of `nbytes` or `MOST`; None, and a line in the log that says why, without room."""
    try:
        spool = Spool(min(nbytes, MOST), log, store)
    except DeviceError as error:
        logger.info("%s: records are written to the log before they are acknowledged: %s", store, error)
        return None
    device.use()
    device.page_lock(spool.memory.data, spool.memory)
    return spool, _Copies(device)


class _Copies:
    """Copies one record's columns at a time; see `mgraph.log.spool.Copy`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        if device.kind == "cuda":
            cuda = device.xp.cuda
            self._stream, self._runtime = cuda.Stream(non_blocking=True), cuda.runtime
            self._begun, self._done = cuda.Event(disable_timing=True), cuda.Event(disable_timing=True)

    def __call__(self, parts: Sequence[Any], views: Sequence[np.ndarray]) -> Callable[[], None]:
        begun, remote = [], [part for part in parts if not isinstance(part, np.ndarray)]
        if remote:
            self._begun.record(self._device.xp.cuda.get_current_stream())
            self._stream.wait_event(self._begun)
        for view, part, at in laid(parts, views):
            if isinstance(part, np.ndarray):
                begun += copies(view, part.view(np.uint8)[at : at + len(view)])
            else:
                self._runtime.memcpyAsync(
                    view.ctypes.data, part.data.ptr + at, len(view), self._runtime.memcpyDeviceToHost, self._stream.ptr
                )
        if remote:
            self._done.record(self._stream)

        def wait() -> None:
            for one in begun:
                one.result()
            if remote:
                self._done.synchronize()

        return wait
