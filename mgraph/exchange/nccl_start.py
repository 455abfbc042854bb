"""The creation of an NCCL communicator in a separate thread, which can be abandoned if it blocks."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.exchange.nccl_api import Nccl

__all__ = ["Start"]

TURN = 0.001  #: seconds between two polls of the first transfers


class Start(threading.Thread):
    """A thread that makes a communicator and all connections that it needs.

    NCCL connects two ranks when the first send between them is queued, and blocks until they are connected. This thread
    sends one byte to every rank, so that no later call blocks.

    Attributes
    ----------
    ended : threading.Event
        Set when there is a communicator or an error.
    """

    def __init__(self, api: Nccl, device: Device, rank: int, size: int, unique_id: bytes) -> None:
        super().__init__(name=f"nccl-start-{rank}", daemon=True)
        self._api, self._device, self._rank, self._size, self._unique_id = api, device, rank, size, unique_id
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._given_up = False
        self._comm: Any = None
        self._error: BaseException | None = None
        self._held: Any = None  # the buffers that NCCL may still read and write

    def run(self) -> None:
        """Initialise and connect; destroy the communicator if `give_up` was called meanwhile."""
        comm: Any = None
        try:
            self._device.use()
            comm = self._api.communicator(self._size, self._unique_id, self._rank)
            self._touch(comm)
        except BaseException as error:
            self._error = error
        with self._lock:
            unwanted = comm if self._given_up or self._error else None
            self._comm = None if unwanted else comm
            self.ended.set()
        self._abort(unwanted)

    def result(self) -> Any:
        """The communicator, after `ended` was set; raises the error that prevented it."""
        if self._error is not None:
            raise self._error
        return self._comm

    def give_up(self) -> None:
        """Destroy the communicator, now or as soon as it is made. Never waits for another rank."""
        with self._lock:
            self._given_up = True
            comm, self._comm = self._comm, None
        self._abort(comm)

    def _touch(self, comm: Any) -> None:
        """Send a byte to every rank and receive one from each, on a new stream."""
        others = [r for r in range(self._size) if r != self._rank]
        with self._api.side_stream():
            sent, got = (self._device.zeros(self._size, np.uint8) for _ in range(2))
            self._held = sent, got
            self._api.swap(comm, [(r, sent[r : r + 1]) for r in others], [(r, got[r : r + 1]) for r in others])
            self._api.mark()
            while not self._api.done() and not self._given_up:
                time.sleep(TURN)

    def _abort(self, comm: Any) -> None:
        if comm is not None:
            with suppress(Exception):
                self._api.abort(comm)
