"""Arrays handed over between a client and a worker of one host, in memory that both have mapped.

The client makes a `Segment` of two parts. It writes arrays into the first, and the worker into the second. A message
has in the place of such an array where it lies. The receiver reads it there, and says where it has done so (`Freed`).
An array that finds no room is sent by the comm, so nothing waits for ever for room.
"""

from __future__ import annotations

import os
import threading
import weakref
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.errors import MgraphError
from mgraph.exchange.segment import Place, Segment

__all__ = ["LARGE", "Shared", "Tell", "copies", "is_large"]

LARGE = 1 << 16  #: bytes from which on an array is handed over
PAGE = 1 << 12
PIECE = 2 << 20  #: bytes that a thread copies at once
THREADS = 8  #: of a process that copy, at most
ROOM_SECONDS = 0.25  #: for which an array waits for room; then it goes by the comm
AT = "mgraph shared"  #: the one key of the dict that stands for an array

Tell = Callable[[tuple[int, ...]], None]


class Shared:
    """One end of the memory that a client and a worker share. Any thread may use it.

    Parameters
    ----------
    segment : Segment
    ours : (int, int)
        This end writes the bytes from the first to before the second.
    loop : AbstractEventLoop
    tell : callable
        ``tell(places)``, called on `loop`, sends the other end the places of its arrays that were read here.
    """

    def __init__(self, segment: Segment, ours: tuple[int, int], loop: AbstractEventLoop, tell: Tell) -> None:
        self._segment, self._loop, self._tell = segment, loop, tell
        self._most = ours[1] - ours[0]
        self._room = _Room(*ours)
        self._changed = threading.Condition()
        self._hopeful, self._closed, self._pinned = True, False, False
        self._read: deque[int] = deque()  # places that the other end is to be told of

    @classmethod
    def make(cls, nbytes: int) -> tuple[Segment, Place]:
        """A segment of this size; `DeviceError` if /dev/shm has not so much."""
        return Segment.create(-(-nbytes // PAGE) * PAGE, {})

    @classmethod
    def of_client(cls, segment: Segment, loop: AbstractEventLoop, tell: Tell) -> Shared:
        """The client's end of a segment."""
        return cls(segment, (PAGE, _middle(segment)), loop, tell)

    @classmethod
    def of_worker(cls, place: bytes, loop: AbstractEventLoop, tell: Tell) -> Shared:
        """The worker's end of the segment at `place`; `DeviceError` if it cannot be mapped here."""
        segment = Segment.open(Place.decode(place))
        return cls(segment, (_middle(segment), len(segment.data)), loop, tell)

    # ---- out ---------------------------------------------------------------------------------------------------------

    def put(self, values: Mapping[str, Any], wait: bool) -> dict[str, Any]:
        """`values` with its large arrays written here, or as it is if there is no room for all of them.

        With `wait` it waits for room, `ROOM_SECONDS` at most. Arrays of a GPU are copied by the calling thread's
        stream, which this waits for.
        """
        large = {name: value for name, value in values.items() if is_large(value)}
        places = self._take([array.nbytes for array in large.values()], wait)
        if places is None:
            return dict(values)
        found = dict(values)
        try:
            for (name, array), first in zip(large.items(), places, strict=True):
                _fill(self._segment.data[first : first + array.nbytes], array)
                found[name] = {AT: [first, array.dtype.str, array.shape]}
        except BaseException:
            self.free(places)
            raise
        return found

    def take_back(self, values: Mapping[str, Any]) -> None:
        """Free the places of what `put` returned, which is not sent."""
        self.free(value[AT][0] for value in values.values() if isinstance(value, dict) and AT in value)

    def _take(self, sizes: list[int], wait: bool) -> list[int] | None:
        """Places for arrays of these sizes in bytes; None if there is no room for all, now or soon."""
        if sum(-(-n // PAGE) * PAGE for n in sizes) > self._most:
            return None
        places: list[int] | None = None

        def found() -> bool:
            nonlocal places
            places = self._room.take(sizes)
            return places is not None or self._closed

        with self._changed:
            # where it has waited in vain, it waits again only when something has come free meanwhile
            self._hopeful = self._changed.wait_for(found, ROOM_SECONDS if wait and self._hopeful else 0)
        return places

    def free(self, places: Iterable[int]) -> None:
        """The other end has read the arrays that were put at these places."""
        with self._changed:
            for place in places:
                self._room.give(place)
            self._hopeful = True
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits for room. The memory is unmapped with the last array that lies in it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # ---- in ----------------------------------------------------------------------------------------------------------

    def view(self, value: Any) -> Any:
        """The array that the other end has put, where it lies, not to be written to; any other value as it is.

        Its place comes free when nothing refers to the array any more.
        """
        if not isinstance(value, dict) or AT not in value:
            return value
        first, kind, shape = value[AT]
        dtype = np.dtype(kind)
        slot = _Slot(self._segment, first, dtype.itemsize * prod(shape))
        weakref.finalize(slot, self._gone, first).atexit = False
        return np.asarray(slot).view(dtype).reshape(shape)

    def _gone(self, first: int) -> None:
        """The array at this place was read. Called by any thread, also in a finalizer."""
        self._read.append(first)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell_read)

    def _tell_read(self) -> None:
        if not self._closed and (places := tuple(self._read.popleft() for _ in range(len(self._read)))):
            self._tell(places)

    def pin(self, device: Device) -> None:
        """Register the memory with CUDA, once, so that copies to and from the GPU need no staging.

        If the driver refuses, copies are staged. Nothing on the CPU.
        """
        if not self._pinned:
            self._pinned = True
            device.page_lock(self._segment.data, self._segment)


class _Slot:
    """The memory of one array that was put. What is made of it by NumPy refers to it, so it ends with the last view."""

    def __init__(self, segment: Segment, first: int, nbytes: int) -> None:
        if not 0 <= first <= first + nbytes <= len(segment.data):
            raise MgraphError(f"{nbytes} bytes at {first} are not in a segment of {len(segment.data)}")
        self._segment = segment
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (segment.address + first, True),
        }  # fmt: skip


class _Room:
    """The free ranges of bytes between `first` and `end`."""

    def __init__(self, first: int, end: int) -> None:
        self._free, self._taken = [(first, end)], dict[int, int]()

    def take(self, sizes: list[int]) -> list[int] | None:
        """Where ranges of these sizes are now taken; None, and nothing is taken, if there is no room for all."""
        places: list[int] = []
        for size in sizes:
            need = -(-size // PAGE) * PAGE
            at = next((i for i, (first, end) in enumerate(self._free) if end - first >= need), None)
            if at is None:
                for place in places:
                    self.give(place)
                return None
            first, end = self._free[at]
            self._free[at : at + 1] = [(first + need, end)] if end - first > need else []
            self._taken[first] = first + need
            places.append(first)
        return places

    def give(self, first: int) -> None:
        """Free what was taken at `first`; nothing if it is free."""
        if first not in self._taken:
            return
        merged: list[tuple[int, int]] = []
        for one in sorted([*self._free, (first, self._taken.pop(first))]):
            if merged and merged[-1][1] == one[0]:
                one = merged.pop()[0], one[1]
            merged.append(one)
        self._free = merged


def is_large(value: Any) -> bool:
    """Whether a value is an array that is handed over, of the host or of a GPU."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind != "" and kind in "biufmM" and getattr(value, "nbytes", 0) >= LARGE


def copies(target: np.ndarray, source: np.ndarray) -> list[Future[None]]:
    """Copy `source` into `target`, both contiguous and of one size in bytes, by several threads if it is large.

    Returns what is to be waited for, empty if it is done.
    """
    to, of = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
    if len(to) <= PIECE:
        to[:] = of
        return []
    return [_pool().submit(np.copyto, to[at : at + PIECE], of[at : at + PIECE]) for at in range(0, len(to), PIECE)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(THREADS, len(os.sched_getaffinity(0))), "copies")


def _fill(target: np.ndarray, array: Any) -> None:
    """Write an array, of any layout and from wherever it is, into bytes."""
    if hasattr(array, "get"):
        array.get(out=target.view(array.dtype).reshape(array.shape))
    elif array.flags.c_contiguous:
        for one in copies(target, array):
            one.result()
    else:
        target.view(array.dtype).reshape(array.shape)[...] = array


def _middle(segment: Segment) -> int:
    """Where the client's part ends: batches are larger than the parts of results."""
    return len(segment.data) * 3 // 4 // PAGE * PAGE
