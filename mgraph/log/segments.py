"""Files of a rank's log: each is a segment, named by the place at which it begins.

A segment is synced before the next one is made, so only the last one can have a torn end. Room is allocated before a
record is written, so a full disk refuses a record and never tears one. `RESERVE` bytes behind the record are kept for
its refusal, which must be written even then.

With a `SharedMemoryTail` a record is staged there before it is written: by `stage`, and then `put`, in other threads
than `claim`. The thread of `put` also allocates room ahead, and the thread of `sync` begins new segments, so that
`claim` need not wait.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mgraph.log.files import File, Files, failed
from mgraph.log.records import HEADER, Draft, draft, segment_name
from mgraph.log.shared_memory_tail import SharedMemoryTail, laid

__all__ = ["SEGMENT", "Segments", "placed", "size_of"]

SEGMENT = 256 << 20  #: bytes after which a new segment is begun
PATIENT = 8  #: maximum size of a segment, in times `SEGMENT`, while a new one could not begin without a wait
CHUNK = 4 << 20  #: bytes that are allocated at a time, since a file that grows takes longer to sync
RESERVE = 4096  #: bytes kept for a refusal and for marks
APART = 1 << 20  #: bytes of columns that are hashed during their write; their header is written last


def placed(records: Sequence[Draft], place: int) -> Iterator[tuple[Draft, int]]:
    """Yield records that follow one another from a place on, each with its own place."""
    for record in records:
        yield record, place
        place += record.size


def size_of(records: Sequence[Draft]) -> int:
    """Return the bytes of records that follow one another."""
    return sum([record.size for record in records])


class Segments:
    """Log of records in segment files.

    Records of changes that are decided together have one claim, and one write.

    `claim` is called by a single thread; `stage`, `put`, `sync` and `append` by others too.

    Parameters
    ----------
    files : Files
    folder : str
        Made if it does not exist.
    log : int
        The id of the log in its records, from `mgraph.log.records.log_id`.
    segment : int
        Bytes after which a new segment is begun.

    Attributes
    ----------
    end : int
        The offset behind the last record.
    last : int
        The offset behind the last change.
    synced : int
        The offset up to which all records are on the disk.
    apart : int
        Columns of at least so many bytes are hashed while they are written; by default `APART`.
    """

    apart = APART

    def __init__(self, files: Files, folder: str, log: int, segment: int = SEGMENT) -> None:
        self._files, self.folder, self._log, self._limit = files, folder, log, segment
        self.end = self.synced = self.last = 0
        self._lock, self._appending, self._syncing = threading.Lock(), threading.Lock(), threading.Lock()
        self._start, self._allocated, self._unsyncable = 0, 0, False
        # Places of claimed records, ascending: not yet written, and not yet staged either.
        self._unwritten, self._unstaged = OrderedDict[int, None](), OrderedDict[int, None]()
        self._unappended: dict[int, Draft] = {}  # records that `append` could not write, by place
        self._tail: SharedMemoryTail | None = None
        # Make the first segment: a log without records has it, too.
        try:
            files.folder(folder)
            self._file = self._create_segment(0)
        except OSError as error:
            raise failed(error, folder, "a log cannot be made in") from error

    def _create_segment(self, start: int) -> File:
        path = f"{self.folder}/{segment_name(start)}"
        file = self._files.open(path)
        try:
            # Its room and its name are durable before its first record.
            self._allocate(file, RESERVE + (0 if self._tail is None else self._tail.capacity))
            file.sync()
            self._files.sync_folder(self.folder)
        except BaseException:
            file.close()
            with suppress(OSError):
                self._files.remove(path)
            raise
        return file

    @property
    def path(self) -> str:
        """The segment that is written."""
        return f"{self.folder}/{segment_name(self._start)}"

    # ---- places ------------------------------------------------------------------------------------------------------

    def claim(self, size: int, records: int = 1) -> int:
        """Return the place of records of `size` bytes.

        `OSError` without room for them and for their refusals.
        """
        with self._lock:
            self._room(self.end - self._start + size + RESERVE + (records - 1) * HEADER)
            self.last = self.end + size
            return self._next(size)

    def _next(self, size: int) -> int:
        place, self.end = self.end, self.end + size
        self._unwritten[place] = self._unstaged[place] = None
        return place

    @property
    def full(self) -> bool:
        """True if the next record should begin a segment, even if it waits for the disk."""
        return self.end - self._start >= self._limit * (1 if self._tail is None else PATIENT)

    def _room(self, end: int) -> None:
        if end > self._allocated:
            self._allocate(self._file, end)

    def _allocate(self, file: File, end: int) -> None:
        try:
            chunks = -(-end // CHUNK) * CHUNK
            file.allocate(chunks)
            self._allocated = chunks
        except OSError:  # not so much: then what is needed
            file.allocate(end)
            self._allocated = end

    # ---- bytes -------------------------------------------------------------------------------------------------------

    def put(self, records: Sequence[Draft], place: int, hasher: Executor | None = None) -> None:
        """Write records from their place on, with columns from the tail if they have none.

        A long record that is alone is hashed by `hasher` meanwhile.
        """
        buffers: list[Any] = []
        staged, synced, begin = False, self.synced, place - self._start
        if len(records) > 1 or records[0].nbytes < self.apart:
            hasher = None
        for record, at in placed(records, place):
            parts = record.parts
            if len(parts) == 0 < record.nbytes:
                parts, staged = self._views(at, record), True
            what = (synced, at, self._log, parts)
            if hasher is None:
                buffers += [record.packed(*what), *parts]
            else:  # the header comes last
                head = hasher.submit(record.packed, *what)
                self._file.write(begin + HEADER, parts)
                buffers = [head.result()]
        self._file.write(begin, buffers)
        if staged:
            self._allocate_ahead()
        self._settle(self._unwritten, self._unstaged, place=place)

    def _settle(self, *lacking: OrderedDict[int, None], place: int) -> None:
        """Note that records are written or staged, and publish the places."""
        with self._lock:
            for places in lacking:
                places.pop(place, None)
            if self._tail is not None:
                self._tail.publish(next(iter(self._unwritten), self.end), next(iter(self._unstaged), self.end))

    # ---- a tail -----------------------------------------------------------------------------------------------------

    def attach(self, tail: SharedMemoryTail) -> None:
        """Stage later records in a tail, which is closed with the segments."""
        # Records that are being written are in the file only.
        tail.begin_segment(self.path, self._start)
        with self._lock:
            self._unstaged |= self._unwritten
            self._tail = tail
        self._allocate_ahead()
        self._settle(place=-1)

    def _allocate_ahead(self) -> None:
        """Allocate room for all that the tail can hold.

        Without room, `claim` waits for the disk.
        """
        assert self._tail is not None
        end = self.end - self._start + self._tail.capacity + RESERVE
        if end > self._allocated:
            with suppress(OSError):  # the claim finds out
                self._file.allocate(end + self._tail.capacity // 4)
                self._allocated = end + self._tail.capacity // 4

    def rotate_if_due(self) -> None:
        """Begin a new segment if it is due and no write is under way.

        The syncing thread calls it.
        """
        with self._lock:
            if self._tail is not None and self.end - self._start >= self._limit and not self._unwritten:
                try:
                    self.rotate()
                except OSError as error:  # without room it is tried again, at the latest once `full`
                    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                        raise

    def has_room(self, end: int) -> bool:
        """Return True if the tail has room up to a claimed place."""
        return self._tail is not None and end - self._tail.written <= self._tail.capacity

    @property
    def pressed(self) -> bool:
        """True if three quarters of the tail are taken."""
        return self._tail is not None and 4 * (self.end - self._tail.written) > 3 * self._tail.capacity

    def stage(self, records: Sequence[Draft], place: int, copy: Callable[[Sequence[Any], Sequence[Any]], None]) -> None:
        """Begin to copy records to the tail, which has room."""
        assert self._tail is not None
        for record, own in placed(records, place):
            head = memoryview(record.packed(self.synced, own, self._log, ()))
            for view, part, at in laid([head], self._tail.views(own, HEADER)):
                view[:] = part[at : at + len(view)]
            copy(record.parts, self._views(own, record))

    def mark_staged(self, place: int) -> None:
        """Note that the tail has all records of a claim: they reach the file even if this process ends."""
        self._settle(self._unstaged, place=place)

    def has_all_before(self, place: int) -> bool:
        """Return True if the tail or the file has all records before a claimed place."""
        with self._lock:
            return next(iter(self._unstaged), place) >= place

    def _views(self, place: int, record: Draft) -> Sequence[Any]:
        assert self._tail is not None
        return self._tail.views(place + HEADER, record.nbytes)

    # ---- the file ----------------------------------------------------------------------------------------------------

    def overwrite(self, place: int, records: Sequence[Draft], refusals: Sequence[Draft]) -> None:
        """Overwrite records that could not be written with their refusals."""
        for (record, at), refused in zip(placed(records, place), refusals, strict=True):
            empty = replace(refused, nbytes=record.nbytes)
            self._file.write(at - self._start, [empty.packed(self.synced, at, self._log)])
        self._settle(self._unwritten, self._unstaged, place=place)

    def sync(self) -> None:
        """Sync the written records, and append a mark, which tells a torn end from a broken middle."""
        with self._lock:
            upto = next(iter(self._unwritten), self.end)
        self._sync_file()
        self.synced = max(self.synced, upto)
        self.append(draft("mark", {"synced": upto}, 0, 0))

    def _sync_file(self) -> None:
        """Sync the segment, one thread at a time. After a failure every later sync fails.

        The system reports a failure only once, so a later or concurrent sync would hide the loss.
        """
        with self._syncing:
            if self._unsyncable:
                raise OSError(errno.EIO, "an earlier sync has failed")
            try:
                self._file.sync()
            except BaseException:
                self._unsyncable = True
                raise

    def append(self, record: Draft) -> None:
        """Append a record without columns, in the room that is reserved."""
        with self._appending:
            # Claim the next place: `RESERVE` bytes are kept for it.
            with self._lock:
                place = self._next(record.size)
            if self.has_room(place + record.size):
                self.stage([record], place, lambda parts, views: None)
                self.mark_staged(place)
            try:
                self.put([record], place)
            except BaseException:  # MemoryError, too
                self._unappended[place] = record
                raise

    def await_appended(self) -> None:
        """Wait until the records that other threads append are in the file. `OSError` if one cannot be written."""
        with self._appending:
            self.check_appended()

    def check_appended(self) -> None:
        """Raise `OSError` if a record of `append` could not be written: a reader stops at its place."""
        if self._unappended:
            raise OSError(errno.EIO, f"the record at place {next(iter(self._unappended))} could not be written")

    def rotate(self) -> None:
        """Begin a new segment, unless this one is empty.

        No write may be under way.

        Raises
        ------
        OSError
            It cannot be begun, or a record in this one could not be written.
        """
        if self._unwritten:
            raise OSError(errno.EIO, f"the record at place {next(iter(self._unwritten))} could not be written")
        self._sync_file()
        self.synced = start = self.end
        if start == self._start:
            return

        # Make the new segment; without room the log goes on in this one.
        file, allocated = self._file, self._allocated
        self._allocated = 0
        try:
            segment = self._create_segment(start)
        except BaseException:
            self._allocated = allocated
            raise

        # Give back what this one has allocated, and go on in the new one.
        file.truncate(start - self._start)
        file.close()
        self._file, self._start = segment, start
        if self._tail is not None:
            self._tail.begin_segment(self.path, start)

    def close(self) -> None:
        """Sync, free the room that was not used, and close."""
        try:
            # Try again what could not be appended: acknowledged changes may be behind it.
            for place, record in self._unappended.items():
                self.put([record], place)
            if self.synced < self.last:
                self.sync()
            self._file.truncate(self.end - self._start)
            self._sync_file()
            self.synced = max(self.synced, next(iter(self._unwritten), self.end))
        finally:
            self._file.close()
            if self._tail is not None:
                self._tail.close(keep=bool(self._unwritten))
                self._tail = None  # frees its memory, even if the log is still referred to
