"""The end of a log in shared memory, where it outlives the process before it is written to the file.

A `Spool` is an image of the bytes of a log that are not in its file yet: the byte at place p lies at p modulo the
capacity. Two words in its first page say up to which place the file has all bytes (`written`), and up to which the
spool has (`ready`). A process that is killed between the two leaves the spool, and `finish` writes to the file what the
process would have written. Until then the name stays in /dev/shm. Its lock ends with the process, however that ends.

Who puts a record here does not hash its columns: its header is sealed over no columns, and whoever writes the record to
the file hashes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mgraph.errors import DeviceError
from mgraph.exchange.segment import FOLDER, Segment
from mgraph.log.files import DISK, failed
from mgraph.log.records import HEADER, Entry, header_of, resealed

__all__ = ["Copy", "Spool", "finish", "laid"]


NAME = "mgraph.log-"
PAGE = 4096
MAGIC = int.from_bytes(b"MGSPOOL1", "little")
WRITTEN, READY, START, CAPACITY, LOG, LENGTH = 1, 2, 3, 4, 5, 6  #: words of the first page; then JSON of that length
TEXT = 64


def laid(parts: Sequence[Any], views: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, Any, int]]:
    """Pieces that lay `parts` one after another into `views`: bytes to fill, the part, and the first byte of it."""
    left = [view for view in views if len(view)]
    for part in parts:
        at = 0
        while at < part.nbytes:
            n = min(len(left[0]), part.nbytes - at)
            yield left[0][:n], part, at
            at += n
            left[0] = left[0][n:]
            if not len(left[0]):
                left.pop(0)


class Copy(Protocol):
    """Copies arrays, of the host or of a GPU, into a spool. One thread makes all calls."""

    def begin(self, parts: Sequence[Any], views: Sequence[np.ndarray]) -> None:
        """Begin to copy `parts` one after another into `views`, of the same size in all.

        Those of a GPU are what the calling thread's stream makes.
        """

    def wait(self) -> None:
        """Wait until what was begun is done."""


class Spool:
    """The spool of one rank's log. `follow`, `views` and `tell` belong to its `Segments`.

    Parameters
    ----------
    nbytes : int
        Capacity; all of it is taken at once, since a write to a page that /dev/shm cannot give would end the process.
    log : int
        See `mgraph.log.records.log_id`.
    store : str
        The folder of the store.

    Raises
    ------
    DeviceError
        /dev/shm is absent or has too little room.
    """

    def __init__(self, nbytes: int, log: int, store: str) -> None:
        _remove_orphans()
        self.path, self.capacity, self._store = f"{FOLDER}/{NAME}{log:016x}", -(-nbytes // PAGE) * PAGE, store
        try:
            self._lock = _locked(self.path, os.O_CREAT)
            try:
                os.ftruncate(self._lock.fileno(), 0)
                os.posix_fallocate(self._lock.fileno(), 0, PAGE + self.capacity)
                segment = _mapped(self.path)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise DeviceError(f"{nbytes} bytes of shared memory cannot be had in {FOLDER}: {error.strerror}") from None
        self.memory = segment  #: all of it, to be registered with a GPU
        self._words, self._ring = segment.data[:TEXT].view(np.int64), segment.data[PAGE:]
        self._words[[CAPACITY, LOG]] = self.capacity, np.uint64(log).astype(np.int64)
        self._words[0] = MAGIC

    @property
    def written(self) -> int:
        """The place up to which the file has all bytes."""
        return int(self._words[WRITTEN])

    def follow(self, path: str, place: int) -> None:
        """The log goes on at a place, where a segment begins; all before it is written."""
        self._words[[WRITTEN, READY, START]] = place
        name = {"store": self._store, "segment": os.path.relpath(path, self._store), "inode": os.stat(path).st_ino}
        text = np.frombuffer(json.dumps(name).encode(), np.uint8)
        self.memory.data[TEXT : TEXT + len(text)] = text
        self._words[LENGTH] = len(text)

    def views(self, place: int, nbytes: int) -> list[np.ndarray]:
        """Where bytes of the log lie, in one piece or two."""
        return _views(self._ring, place, nbytes)

    def tell(self, written: int, ready: int) -> None:
        """Up to which places the file and the spool have all bytes."""
        self._words[WRITTEN], self._words[READY] = written, ready

    def close(self, keep: bool = False) -> None:
        """Release the lock, and remove the name unless there is something that could not be written to the file."""
        if not keep:
            with suppress(OSError):
                os.unlink(self.path)
        self._lock.close()


def _views(ring: np.ndarray, place: int, nbytes: int) -> list[np.ndarray]:
    first = place % len(ring)
    return [ring[first : first + nbytes], ring[: max(0, first + nbytes - len(ring))]]


def _mapped(path: str) -> Segment:
    """A file in memory, by a descriptor of its own: a mapping keeps what it was made of, and with that its lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return Segment(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _locked(path: str, flags: int = 0) -> Any:
    """A spool's file, locked; `BlockingIOError` if a process has it."""
    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600))
    return DISK.lock(path)


# ---- what ended processes have left ----------------------------------------------------------------------------------


def finish(store: str) -> int:
    """Write to the logs of a store what processes of this host that were killed had not yet written; how many records.

    Call it before the store is read, where no graph may be writing it: what a process has locked is left alone.

    Raises
    ------
    StoreError
        A log cannot be written.
    """
    return sum(_finished(left, store) for left in _all_left())


class _Left:
    """A spool that a process has left behind, locked."""

    def __init__(self, path: str, lock: Any) -> None:
        self.path, self.whole = path, False
        if os.fstat(lock.fileno()).st_size <= PAGE:
            return
        self._data = _mapped(path).data
        words = self._data[:TEXT].view(np.int64)
        self.written, self.ready, self.start = (int(words[at]) for at in (WRITTEN, READY, START))
        self.log = int(words[LOG].astype(np.uint64))
        has_all = int(words[0]) == MAGIC and len(self._data) == PAGE + int(words[CAPACITY])
        if has_all and self.written < self.ready:
            self.whole = True
            about = json.loads(self._data[TEXT : TEXT + int(words[LENGTH])].tobytes())
            self.store, self.segment, self.inode = about["store"], about["segment"], about["inode"]

    def views(self, place: int, nbytes: int) -> list[np.ndarray]:
        return _views(self._data[PAGE:], place, nbytes)

    def remove(self) -> None:
        os.unlink(self.path)


def _all_left() -> Iterator[_Left]:
    """The spools on this host that no process has; each is locked until the next one. Useless ones are removed."""
    for path in sorted(Path(FOLDER).glob(f"{NAME}*")):
        with suppress(OSError), _locked(str(path)) as lock:  # else a process has it, or it is another user's
            left = _Left(str(path), lock)
            if left.whole:
                yield left
            else:
                left.remove()


def _remove_orphans() -> None:
    """Remove what is left of stores that are gone."""
    for left in _all_left():
        if not os.path.exists(left.store):
            left.remove()


def _finished(left: _Left, store: str) -> int:
    """Write what one spool has for a log of this store, and remove it; how many records. 0 if it is of another store.

    It is for the file that its process wrote, and not for a copy of it; nor for one behind which a later term goes on.
    """
    path, records = f"{store}/{left.segment}", 0
    try:
        if os.stat(path).st_ino != left.inode:
            return 0
    except OSError:
        return 0
    term = left.segment.split("/")[0]
    if all(name.split(".")[0] <= term for name in os.listdir(store) if name.startswith("term-")):
        try:
            records = _write(left, path)
        except OSError as error:
            raise failed(error, path, "what a killed process has left cannot be written to") from error
    left.remove()
    return records


def _write(left: _Left, path: str) -> int:
    place, records, file = left.written, 0, DISK.open(path)
    try:
        while place < left.ready:
            at = place - left.start
            head = b"".join(part.tobytes() for part in left.views(place, HEADER))
            entry = header_of(head, at, place, left.log, path, left.ready - left.start)
            if entry is not None:
                views = left.views(place + HEADER, entry.nbytes)
                file.write(at, [resealed(entry, views, left.log), *views])
                records += 1
            elif (entry := _in_file(path, at, place, left.log)) is None:
                break
            place = entry.end
        file.sync()
    finally:
        file.close()
    return records


def _in_file(path: str, at: int, place: int, log: int) -> Entry | None:
    """A record that its process had put into the file only."""
    head = bytearray(HEADER)
    with DISK.contents(path) as contents:
        contents.read(at, [head])
        return header_of(bytes(head), at, place, log, path, contents.size)
