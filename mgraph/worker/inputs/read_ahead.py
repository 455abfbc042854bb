"""Read-ahead: a separate thread reads and sorts the next part while the shard's thread applies the last."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from mgraph.device import Device
from mgraph.errors import Aborted

__all__ = ["ReadAhead"]

T = TypeVar("T")

POLL_SECONDS = 0.05  #: between two checks of `aborted` in `next`
LEAVE_SECONDS = 1.0  #: how long the end of the ``with`` block waits for an unfinished item


class ReadAhead(Generic[T]):
    """Thread that calls ``make(0)``, ``make(1)``, ..., one call ahead of `next`.

    On a GPU the thread uses its own stream, which is done with an item when `next` returns it. The memory of an item
    belongs to that stream: keep the item until other streams have finished their work on it.

    Parameters
    ----------
    name : str
        The thread's name.
    device : Device
        The device that the thread makes current.
    stream : cupy.cuda.Stream or None
        None on the CPU. Pass the same stream each time: CuPy's pool reuses freed memory only on the stream on which it
        was allocated.
    make : callable
        Makes the item of a number.
    aborted : callable
        Polled while `next` waits.
    """

    def __init__(
        self, name: str, device: Device, stream: Any, make: Callable[[int], T], aborted: Callable[[], bool]
    ) -> None:
        self._device, self._stream, self._make, self._aborted = device, stream, make, aborted
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._made: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> ReadAhead[T]:
        self._asked.put(True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End the thread after its current item; waits at most `LEAVE_SECONDS`."""
        self._asked.put(False)
        self._thread.join(LEAVE_SECONDS)

    def next(self) -> T:
        """Return the next item, or raise its error, or `Aborted`."""
        while not self._aborted():
            try:
                item, error = self._made.get(timeout=POLL_SECONDS)
            except Empty:
                continue
            if error is not None:
                raise error
            self._asked.put(True)
            return item  # type: ignore[return-value]  # None only with an error
        raise Aborted("the call was aborted while it waited for its next part")

    def _run(self) -> None:
        """Make an item per request, until the end."""
        self._device.use()
        for number in count():
            if not self._asked.get():
                return
            try:
                self._made.put((self._item(number), None))
            except BaseException as error:  # raised by `next`
                self._made.put((None, error))

    def _item(self, number: int) -> T:
        """Make an item on the thread's stream, and wait for that."""
        if self._stream is None:
            return self._make(number)
        with self._stream:
            item = self._make(number)
        self._stream.synchronize()  # after this, another stream reads the item
        return item
