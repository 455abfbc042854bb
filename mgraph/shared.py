"""Shared memory for arrays between a client and a worker of a host.

The client makes a `Segment` with two parts, one written by each end. A message carries the offset of a large array in
its place. The receiver reads the array in place, and reports the offset with `Freed`. An array that does not fit is
sent by the comm, so no sender waits forever.

An array for all workers is written once, into a segment that all of them map (`Common`). Its offsets begin at `COMMON`.
"""

from __future__ import annotations

import threading
import weakref
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.errors import MgraphError
from mgraph.exchange.segment import Place, Segment
from mgraph.parallel_copy import copy
from mgraph.plain import plain_dtype

__all__ = ["LARGE", "Common", "Shared", "Tell", "is_large"]

LARGE = 1 << 15  #: bytes from which an array goes through shared memory
LEAST = 1 << 12  #: the same, in a message that would be too large for a channel
PAGE = 1 << 12
COMMON = 1 << 48  #: first offset of the common segment, past every other segment
ROOM_SECONDS = 0.25  #: how long an array waits for space; then it goes by the comm
TELL_SECONDS = 0.005  #: delay of a worker's `Freed`, which an answer within it makes unnecessary
AT = "mgraph shared"  #: the only key of the dict that replaces an array

Tell = Callable[[tuple[int, ...]], None]


class Common:
    """Client's end of the memory that several workers map, for arrays that go to all of them. Thread-safe.

    Parameters
    ----------
    segment : Segment
    readers : int
        The number of workers. The space of an array is free once all of them have reported it.
    """

    def __init__(self, segment: Segment, readers: int) -> None:
        self._segment, self._readers = segment, readers
        self._room, self._unread = _Room(PAGE, len(segment.data)), dict[int, int]()
        # Ctrl-C may come within the lock's own methods: `ChannelCalls` defers it.
        self._lock = threading.Lock()

    def put(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Copy the large arrays of `values`, and return the values with offsets in their places. None without space."""
        large = {name: value for name, value in values.items() if is_large(value)}
        with self._lock:
            places = self._room.take([array.nbytes for array in large.values()])
            if places is None:
                return None
            self._unread.update(dict.fromkeys(places, self._readers))
        try:
            return {**values, **_placed(self._segment, large, places, COMMON)}
        except BaseException:
            for place in places * self._readers:
                self.free(place)
            raise

    def free(self, place: int) -> None:
        """Note that a worker has read the array at an offset within the segment."""
        with self._lock:
            if place in self._unread:
                self._unread[place] -= 1
                if not self._unread[place]:
                    del self._unread[place]
                    self._room.give(place)


class Shared:
    """End of the memory that a client and a worker share. Thread-safe.

    Parameters
    ----------
    segment : Segment
    ours : (int, int)
        The half-open range of bytes that this end writes.
    loop : AbstractEventLoop
    tell : callable
        ``tell(places)``, called on `loop`, sends the other end the offsets of its arrays that were read here.
    delay : float
        Seconds until `tell` reports offsets that `take_read` has not returned by then.

    Attributes
    ----------
    common : Common or None
        The client's memory for arrays that go to all workers.
    """

    def __init__(
        self, segment: Segment, ours: tuple[int, int], loop: AbstractEventLoop, tell: Tell, delay: float = 0
    ) -> None:
        self._segment, self._loop, self._tell, self._delay = segment, loop, tell, delay
        self.common: Common | None = None
        self._common: Segment | None = None  # on the worker: its mapping of the client's `Common`
        self._most = ours[1] - ours[0]
        self._room = _Room(*ours)
        # Ctrl-C may come within a Condition's own `__enter__` and `__exit__`, so they would leave the lock held.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._hopeful, self._closed = True, False
        self._unpinned = [segment]
        self._read: deque[int] = deque()  # offsets to report to the other end
        self._telling = False  # True while a report is scheduled on the loop

    @classmethod
    def make(cls, nbytes: int) -> tuple[Segment, Place]:
        """Create a segment of `nbytes`; `DeviceError` if /dev/shm has too little space."""
        return Segment.create(-(-nbytes // PAGE) * PAGE, {})

    @classmethod
    def of_client(cls, segment: Segment, loop: AbstractEventLoop, tell: Tell) -> Shared:
        """Return the client's end of a segment."""
        return cls(segment, (PAGE, _middle(segment)), loop, tell)

    @classmethod
    def of_worker(cls, place: bytes, loop: AbstractEventLoop, tell: Tell) -> Shared:
        """Return the worker's end of the segment at `place`."""
        segment = Segment.open(Place.decode(place))
        return cls(segment, (_middle(segment), len(segment.data)), loop, tell, TELL_SECONDS)

    def map_common(self, place: bytes) -> None:
        """Map the segment of the client's `Common`; `DeviceError` if that fails."""
        self._common = Segment.open(Place.decode(place))
        self._unpinned.append(self._common)

    # ---- out ---------------------------------------------------------------------------------------------------------

    def put(self, values: Mapping[str, Any], wait: bool, least: int = LARGE) -> dict[str, Any]:
        """Copy the arrays of `least` bytes and more into shared memory. Returns `values` unchanged if they do not fit.

        With `wait` it waits for space, `ROOM_SECONDS` at most. Arrays of a GPU are copied by the calling thread's
        stream, and this method waits for it.
        """
        # Allocate space for all large arrays, or for none.
        large = {name: value for name, value in values.items() if is_large(value, least)}
        places = self._take([array.nbytes for array in large.values()], wait)
        if places is None:
            return dict(values)
        # Copy them, and put their offsets in their places.
        try:
            return {**values, **_placed(self._segment, large, places)}
        except BaseException:
            self.free(places)
            raise

    def take_back(self, values: Mapping[str, Any]) -> None:
        """Free the space of values from `put` that are not sent."""
        self.free(value[AT][0] for value in values.values() if isinstance(value, dict) and AT in value)

    def _take(self, sizes: list[int], wait: bool) -> list[int] | None:
        """Return offsets for arrays of these sizes; None if not all fit."""
        if sum(-(-n // PAGE) * PAGE for n in sizes) > self._most:
            return None
        places: list[int] | None = None

        def allocated() -> bool:
            nonlocal places
            places = self._room.take(sizes)
            return places is not None or self._closed

        # After a wait in vain, wait again only once some space was freed.
        with self._lock:
            self._hopeful = self._changed.wait_for(allocated, ROOM_SECONDS if wait and self._hopeful else 0)
        return places

    def free(self, places: Iterable[int]) -> None:
        """Free the arrays at these offsets, which the other end has read."""
        with self._lock:
            for place in places:
                if place < COMMON:
                    self._room.give(place)
                elif self.common is not None:
                    self.common.free(place - COMMON)
            self._hopeful = True
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits for space. The memory lives as long as its arrays."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    # ---- in ----------------------------------------------------------------------------------------------------------

    def view(self, value: Any, soon: bool = True) -> Any:
        """Return the array that the other end put, read-only; other values unchanged.

        Its space is freed when the last reference to the array is gone: `soon`, or once `take_read` or `tell_read` is
        called.
        """
        if not isinstance(value, dict) or AT not in value:
            return value
        first, kind, shape = value[AT]
        dtype = plain_dtype(kind)  # bytes are no objects, whose addresses they would be
        # The finalizer of the slot reports that no view is left.
        segment, base = (self._segment, 0) if self._common is None or first < COMMON else (self._common, COMMON)
        slot = _Slot(segment, first - base, dtype.itemsize * prod(shape))
        weakref.finalize(slot, self._free_place if soon else self._read.append, first).atexit = False
        return np.asarray(slot).view(dtype).reshape(shape)

    def _free_place(self, first: int) -> None:
        """Report that the array at this offset was read. Safe in a finalizer."""
        self._read.append(first)
        if self._telling:
            return
        self._telling = True
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell_soon)

    def _tell_soon(self) -> None:
        # An answer within the delay takes the report along.
        if self._delay:
            self._loop.call_later(self._delay, self.tell_read)
        else:
            self.tell_read()

    def tell_read(self) -> None:
        """Report the arrays that were read. Called on the loop."""
        self._telling = False  # first, so that arrays read from now on schedule a new report
        if not self._closed and (places := self.take_read()):
            self._tell(places)

    def take_read(self) -> tuple[int, ...]:
        """Return the offsets to report to the other end, from any thread."""
        if not self._read:
            return ()
        places = []
        with suppress(IndexError):  # none are left
            while self._read:
                places.append(self._read.popleft())
        return tuple(places)

    def put_back(self, places: tuple[int, ...]) -> None:
        """Report offsets from `take_read` soon, since the message that had them was not sent."""
        for place in places:
            self._free_place(place)

    def pin(self, device: Device) -> None:
        """Page-lock the memory once, so that GPU copies need no staging.

        If the driver refuses, copies are staged. Does nothing on the CPU.
        """
        while self._unpinned:
            segment = self._unpinned.pop()
            device.page_lock(segment.data, segment)


class _Slot:
    """Memory of one array, alive until its last view is gone."""

    def __init__(self, segment: Segment, first: int, nbytes: int) -> None:
        if not 0 <= first <= first + nbytes <= len(segment.data):
            raise MgraphError(f"{nbytes} bytes at {first} are not in a segment of {len(segment.data)}")
        self._segment = segment
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (segment.address + first, True),
        }  # fmt: skip


class _Room:
    """Free ranges of bytes between `first` and `end`."""

    def __init__(self, first: int, end: int) -> None:
        self._free, self._taken = [(first, end)], dict[int, int]()

    def take(self, sizes: list[int]) -> list[int] | None:
        """Allocate ranges of these sizes; None, without effect, if not all fit."""
        places: list[int] = []
        # First fit, in whole pages.
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
        """Free the range at `first`, and merge it with its neighbours."""
        if first not in self._taken:
            return
        # Merge adjacent free ranges.
        merged: list[tuple[int, int]] = []
        for piece in sorted([*self._free, (first, self._taken.pop(first))]):
            if merged and merged[-1][1] == piece[0]:
                piece = merged.pop()[0], piece[1]
            merged.append(piece)
        self._free = merged


def is_large(value: Any, least: int = LARGE) -> bool:
    """Return True for an array that goes through shared memory."""
    return getattr(value, "nbytes", 0) >= least and getattr(getattr(value, "dtype", None), "kind", "-") in "biufmM"


def _placed(
    segment: Segment, arrays: Mapping[str, Any], places: Iterable[int], base: int = 0
) -> dict[str, dict[str, Any]]:
    """Copy arrays to places in a segment, and return what a message carries for each; its offsets begin at `base`."""
    placed = {}
    for (name, array), first in zip(arrays.items(), places, strict=True):
        _fill(segment.data[first : first + array.nbytes], array)
        placed[name] = {AT: [base + first, array.dtype.str, array.shape]}
    return placed


def _fill(target: np.ndarray, array: Any) -> None:
    """Copy an array of any layout, from host or GPU, into bytes."""
    if hasattr(array, "get"):
        array.get(out=target.view(array.dtype).reshape(array.shape))
    elif array.flags.c_contiguous:
        copy(target, array)
    else:
        target.view(array.dtype).reshape(array.shape)[...] = array


def _middle(segment: Segment) -> int:
    """Return the end of the client's part: three quarters, since batches are larger than answers."""
    return len(segment.data) * 3 // 4 // PAGE * PAGE
