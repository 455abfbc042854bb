"""The client's memory that it shares with a worker on its host; see `mgraph.shared`.

To find out if a worker is on this host, the client makes a segment and asks the worker to map it. The segment's name is
removed after the worker's answer. If a client is killed before that, the next client that makes a segment removes its
files from /dev/shm.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import dask.config
import numpy as np
from dask.utils import parse_bytes

from mgraph.channel import MOST_BYTES
from mgraph.errors import DeviceError, WorkerLost
from mgraph.exchange.segment import Place, Segment
from mgraph.parallel_copy import begin_copy
from mgraph.protocol import SHARE_SEQ, Answer, Call, Part, Share
from mgraph.shared import LARGE, Common, Shared, Tell, is_large

__all__ = ["LocalMemory", "SplitArray", "large_bytes", "open_common", "shared_bytes"]

logger = logging.getLogger(__name__)

OPTION, BYTES = "mgraph.shared-memory", "512 MiB"  #: an option of Dask's configuration, and its default
LEAST = 128 << 20  #: bytes to share, if the option allows it; more if batches are larger than usual
BATCHES = 6  #: batches as large as the first for which memory is made
WORTH = 4 << 20  #: bytes of large arrays from which sharing memory pays
COMMON_BYTES = 16 << 20  #: bytes that all workers map, for several of the largest batches that go whole to each
OPEN_SECONDS = 2.0  #: time for the worker's answer; after that arrays go by the comm


def shared_bytes(address: str) -> int:
    """Return the most bytes that a session with a worker may share; 0 within copy process."""
    return 0 if address.startswith("inproc:") else int(parse_bytes(dask.config.get(OPTION, BYTES)))


def large_bytes(values: Mapping[str, Any], least: int = LARGE) -> int:
    """Return the bytes of the arrays of `least` bytes and more among `values`."""
    total = 0
    for value in values.values():  # most are small: `is_large` is not called for them
        if getattr(value, "nbytes", 0) >= least and is_large(value, least):
            total += int(value.nbytes)
    return total


class LocalMemory:
    """A session's shared memory.

    All methods except `put`, `views` and `take_back` run on the client's event loop.

    Parameters
    ----------
    who : str
        The session's name in messages.
    nbytes : int
        The most bytes to share; 0 for none.
    ask : callable
        Sends the worker a request at once and returns its answer.
    tell : callable
        ``tell(places)`` frees arrays of the worker in `shared` that were read.

    Attributes
    ----------
    shared : Shared or None
        Set before the worker is asked to map it: its answers may be there before its agreement arrives.
    due : bool
        True if the next call should open memory, since sharing pays by now.
    """

    def __init__(self, who: str, nbytes: int, ask: Callable[[Share], Awaitable[Answer]], tell: Tell) -> None:
        self.shared: Shared | None = None
        self._who, self._nbytes, self._ask, self._tell = who, nbytes, ask, tell
        self._passed, self._agreed, self.due = 0, False, False
        self._view: Callable[..., Any] | None = None  # kept after `close`, for answers that came before

    def passed(self, nbytes: int) -> None:
        """Count `nbytes` of arrays that go by the comm. Once sharing pays, the next call opens memory."""
        self._passed += nbytes
        self.due = self._nbytes > 0 and self._passed >= WORTH

    async def packed(self, call: Call, wait: bool, nbytes: int | None = None) -> Call:
        """Return `call` with its large arrays in shared memory, or unchanged; with `wait` it waits a moment for room.

        The session sends nothing else meanwhile. With few `nbytes` no array is large.
        """
        large = 0 if nbytes is not None and nbytes < LARGE else large_bytes(call.args)
        if not self._agreed:
            # Several smaller arrays may be too large for a channel together.
            self.passed(large or (nbytes if nbytes is not None and nbytes > MOST_BYTES else 0))
            if self.due:
                await self._open(large)
        if self.shared is None or not self._agreed or not large:
            return call
        return call._replace(args=await asyncio.to_thread(self.shared.put, call.args, wait))

    def put(self, args: dict[str, Any], least: int = LARGE) -> dict[str, Any] | None:
        """Return `args` with arrays of `least` bytes and more in shared memory, from any thread; None without room."""
        if (shared := self.agreed) is None:
            return None
        packed = shared.put(args, wait=False, least=least)
        return None if large_bytes(packed, least) else packed

    def views(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return an answer's values with views of the arrays in shared memory, from any thread.

        The next call reports those that were read, or the event loop's next tick.
        """
        view = self._view
        if view is None or dict not in map(type, values.values()):
            return values
        return {name: view(value, soon=False) if type(value) is dict else value for name, value in values.items()}

    @property
    def agreed(self) -> Shared | None:
        """The memory if the worker has mapped it."""
        return self.shared if self._agreed else None

    def take_back(self, call: Call) -> None:
        """Free the room of a packed call that cannot be sent."""
        if self.shared is not None:
            self.shared.take_back(call.args)

    def close(self) -> None:
        """Stop sharing, and free the memory."""
        shared, self.shared = self.shared, None
        if shared is not None:
            shared.close()

    async def _open(self, large: int) -> None:
        """Share memory for calls with `large` bytes, or log the reason against it. Tried once."""
        nbytes, self._nbytes, self.due = min(self._nbytes, max(LEAST, BATCHES * large)), 0, False

        try:
            async with _new_segment(nbytes) as (segment, place):
                self.shared = Shared.of_client(segment, asyncio.get_running_loop(), self._tell)
                self._view = self.shared.view
                why = (await self._ask(Share(SHARE_SEQ, place.encode()))).value["why"]
            if why:
                self.shared = None
        except DeviceError as error:
            logger.warning("%s: arrays go by the comm: %s", self._who, error)
            return
        except TimeoutError:
            why = f"it has not answered for {OPEN_SECONDS:g} s"

        # Use it only if the worker has mapped it.
        self._agreed = not why
        if why:
            logger.info("%s: arrays go by the comm; the worker shares no memory with this process: %s", self._who, why)


async def open_common(who: str, workers: int, ask: Callable[[Share], Awaitable[list[Answer]]]) -> Common | None:
    """Make memory that all `workers` map, for arrays that go to all of them. None, and a line in the log, if one fails.

    All of them have agreed to share memory. `ask` returns their answers.
    """
    try:
        async with _new_segment(COMMON_BYTES) as (segment, place):
            answers = await ask(Share(SHARE_SEQ, place.encode(), common=True))
        why = next((answer.value["why"] for answer in answers if answer.value["why"]), "")
    except (DeviceError, WorkerLost) as error:
        why = str(error)
    except TimeoutError:
        why = f"a worker has not answered for {OPEN_SECONDS:g} s"
    if why:
        logger.info("%s: arrays for all workers are written for each of them: %s", who, why)
        return None
    return Common(segment, workers)


@asynccontextmanager
async def _new_segment(nbytes: int) -> AsyncIterator[tuple[Segment, Place]]:
    """Make a segment for a block of `OPEN_SECONDS` at most, in which workers map it. Its name is removed then."""
    making = _Making()
    try:
        segment = await asyncio.to_thread(making.make, nbytes)  # this may take long
        async with asyncio.timeout(OPEN_SECONDS):
            yield segment
    finally:
        making.end()


def _make_segment(nbytes: int) -> tuple[Segment, Place]:
    """Make a segment of `nbytes`, or of `LEAST` if memory is short; `DeviceError` if that fails too."""
    try:
        return Shared.make(nbytes)
    except DeviceError:
        if nbytes <= LEAST:
            raise
    return Shared.make(LEAST)


class _Making:
    """A segment that another thread makes. Its name is removed even if nobody waits for it any more."""

    def __init__(self) -> None:
        self._lock, self._over = threading.Lock(), False
        self._place: Place | None = None

    def make(self, nbytes: int) -> tuple[Segment, Place]:
        """Make a segment of at most `nbytes`."""
        segment = _make_segment(nbytes)
        with self._lock:
            self._place, over = segment[1], self._over
        if over:
            self.end()
        return segment

    def end(self) -> None:
        """Remove the name, now or once it exists."""
        with self._lock:
            self._over = True
        if self._place is not None:
            Segment.unlink(self._place)


class SplitArray:
    """An array that arrives in parts.

    Other threads copy each part to its place.

    Parameters
    ----------
    first : Part
    array : array
        The values of the first part.
    """

    def __init__(self, first: Part, array: np.ndarray) -> None:
        self.array = np.empty((first.total, *array.shape[1:]), array.dtype)
        self._copies: list[Future[None]] = []

    def add(self, part: Part, array: np.ndarray) -> None:
        """Start to copy a part."""
        rows = self.array[part.first : part.first + len(array)]
        self._copies += begin_copy(rows, np.ascontiguousarray(array))

    @property
    def pending(self) -> list[Future[None]]:
        """The copies that have not ended."""
        return [copy for copy in self._copies if not copy.done()]

    def result(self) -> np.ndarray:
        """Return the array, or raise the error of a copy."""
        for copy in self._copies:
            copy.result()
        return self.array
