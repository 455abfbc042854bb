"""Write-behind: records that were acknowledged from shared memory are written to the file when no change comes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from mgraph.log.records import Draft
from mgraph.log.segments import Segments, size_of
from mgraph.log.shared_memory_tail import Copy

__all__ = ["WriteBehind"]

CALM_SECONDS = 0.002  #: time without a change after which the staged records are written
LONG_SECONDS = 0.016  #: longest time between two checks for new changes: each check takes the GIL


class WriteBehind:
    """Stages records in the tail of some segments, and queues their writes.

    To wake a thread costs more than a record, because the thread takes the GIL. So records are queued for a thread that
    stays awake while there are any.

    Parameters
    ----------
    segments : Segments
        The log's segments, which have a tail.
    copy : Copy
    writer : Executor
        One thread, which writes the records.
    put : callable
        ``put(records, place)`` writes the records of a claim, whose columns are in the tail.
    """

    def __init__(
        self, segments: Segments, copy: Copy, writer: Executor, put: Callable[[Sequence[Draft], int], None]
    ) -> None:
        self._segments, self._copy, self._writer, self._put = segments, copy, writer, put
        self._lock, self._haste = threading.Lock(), threading.Event()
        self._queue: deque[tuple[Sequence[Draft], int]] = deque()
        self._job: Future[None] | None = None
        self._working, self._last = False, 0.0

    def mark(self) -> None:
        """Mark the work of the calling thread's stream, for later copies."""
        self._copy.mark()

    def begin(self, records: Sequence[Draft], place: int) -> bool:
        """Begin to copy records to the tail, after `mark`. Returns False if the tail has no room."""
        if not self._segments.has_room(place + size_of(records)):
            self.hurry()
            return False
        self._haste.clear()
        self._segments.stage(records, place, self._copy.begin)
        return True

    def enqueue(self, records: Sequence[Draft], place: int) -> Future[None]:
        """Wait until the tail has the records, queue their write, and return its future."""
        self._copy.wait()
        for record in records:
            record.parts = ()  # the columns are free now
        self._segments.mark_staged(place)
        self._last = time.monotonic()
        with self._lock:
            self._queue.append((records, place))
            if not self._working:
                self._working, self._job = True, self._writer.submit(self._work)
        assert self._job is not None
        return self._job

    def hurry(self) -> None:
        """Write the queue without waiting for calm."""
        self._haste.set()

    def _work(self) -> None:
        while True:
            # Wait for calm: until no change comes for a while, the tail fills, or somebody hurries.
            pause = CALM_SECONDS
            while self._last > time.monotonic() - CALM_SECONDS and not self._segments.pressed:
                if self._haste.wait(pause):
                    break
                pause = min(2 * pause, LONG_SECONDS)

            # Write the oldest records.
            with self._lock:
                if not self._queue:
                    self._working = False
                    return
                records, place = self._queue.popleft()
            try:
                self._put(records, place)
            except BaseException:
                with self._lock:
                    self._queue.clear()
                    self._working = False
                raise
