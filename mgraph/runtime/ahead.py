"""One item made ahead: a thread of its own reads and sorts the next part while the shard's thread applies the last."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from mgraph.device import Device
from mgraph.errors import Aborted

__all__ = ["Ahead"]

T = TypeVar("T")

POLL_SECONDS = 0.05
LEAVE_SECONDS = 1.0  #: how long `close` waits for an item that is being made


class Ahead(Generic[T]):
    """Calls ``make(0)``, ``make(1)`` ... in a thread, one call ahead of `next`.

    On a GPU the thread works on a stream of its own, waited for before an item is handed over. The memory of an item
    belongs to that stream: keep the item until the work of other streams on it is done.

    Parameters
    ----------
    name : str
        The thread's name.
    device : Device
        Made the thread's current one.
    stream : cupy.cuda.Stream or None
        None on the CPU. Give the same one again: CuPy's pool keeps what was freed for the stream that it was taken on.
    make : callable
        The item of a number.
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

    def __enter__(self) -> Ahead[T]:
        self._asked.put(True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End the thread; one that is in the midst of an item ends after it, unwaited for after `LEAVE_SECONDS`."""
        self._asked.put(False)
        self._thread.join(LEAVE_SECONDS)

    def next(self) -> T:
        """The next item, or what making it raised; `Aborted` where the waiting was ended from outside."""
        while not self._aborted():
            try:
                item, error = self._made.get(timeout=POLL_SECONDS)
            except Empty:
                continue
            if error is not None:
                raise error
            self._asked.put(True)
            return item  # type: ignore[return-value]  # None only beside an error
        raise Aborted("the call was aborted while it waited for its next part")

    def _run(self) -> None:
        self._device.use()
        for number in count():
            if not self._asked.get():
                return
            try:
                self._made.put((self._item(number), None))
            except BaseException as error:  # raised where the item is awaited
                self._made.put((None, error))

    def _item(self, number: int) -> T:
        if self._stream is None:
            return self._make(number)
        with self._stream:
            item = self._make(number)
        self._stream.synchronize()  # from here on another stream reads it
        return item
