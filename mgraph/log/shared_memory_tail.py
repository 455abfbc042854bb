"""The tail of a log in shared memory, where it outlives the process before it is written to the file.

A `SharedMemoryTail` is a ring of the bytes of a log that are not in its file yet: the byte at place p lies at p modulo
the capacity. Two words in its first page hold the places up to which the file has all bytes (`written`), and the tail
has them (`ready`). If the process is killed between the two, its tail stays in /dev/shm, and `finish` writes the rest
to the file. The lock of a tail ends with its process, however that ends.

A name has random digits, because copies of a store have logs with the same number, and a graph must not touch the tail
of a copy. The first page says to which file a tail belongs.

A record is put here without a hash of its columns. The thread or process that writes it to the file hashes them.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mgraph.errors import DeviceError, StoreError
from mgraph.exchange.segment import FOLDER, Segment
from mgraph.log.files import DISK, failed, locked
from mgraph.log.records import HEADER, Entry, header_of, resealed, segment_name

__all__ = ["Copy", "SharedMemoryTail", "finish", "laid"]


NAME = "mgraph.log-"
PAGE = 4096
MAGIC = int.from_bytes(b"MGSPOOL2", "little")
#: words of the first page; `LEFT` is 1 once another process knows that the tail's own process has ended
WRITTEN, READY, START, INODE, CAPACITY, LOG, LEFT, LENGTH = 1, 2, 3, 4, 5, 6, 7, 8
TEXT = 128  #: offset of the JSON, which has `LENGTH` bytes
WAIT_SECONDS, POLL_SECONDS = 5.0, 0.02


def laid(parts: Sequence[Any], views: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, Any, int]]:
    """Lay `parts` consecutively into `views`. Yields the bytes to fill, the part, and the offset in the part."""
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
    """Copies arrays, of the host or of a GPU, into a tail. For one thread."""

    def mark(self) -> None:
        """Mark the work of the calling thread's stream: later copies wait for it."""

    def begin(self, parts: Sequence[Any], views: Sequence[np.ndarray]) -> None:
        """Begin to copy `parts` consecutively into `views`, after `mark`."""

    def wait(self) -> None:
        """Wait until the copies are done."""


class SharedMemoryTail:
    """The tail of a rank's log, which its `Segments` fill.

    Parameters
    ----------
    nbytes : int
        Capacity, allocated at once: a write to a page that /dev/shm cannot supply would end the process.
    log : int
        See `mgraph.log.records.log_id`.
    folder : str
        The folder of the log, in that of its term, in that of the store.

    Raises
    ------
    DeviceError
        /dev/shm is absent or has too little room, or the path of the folder is too long.
    """

    def __init__(self, nbytes: int, log: int, folder: str) -> None:
        # Name the file to which the tail belongs.
        store, *names = folder.rsplit("/", 2)
        text = json.dumps({"store": store, "folder": "/".join(names), "sees": _sees()}).encode()
        if len(text) > PAGE - TEXT:
            raise DeviceError(f"a path of {len(text)} bytes; shared memory has room for {PAGE - TEXT}")

        # Lock the file, and allocate all of its memory.
        _remove_leftovers()
        self.path, self.capacity = f"{FOLDER}/{NAME}{log:016x}-{secrets.token_hex(4)}", -(-nbytes // PAGE) * PAGE
        try:
            self._lock = _locked(self.path, os.O_CREAT | os.O_EXCL)
            try:
                os.posix_fallocate(self._lock.fileno(), 0, PAGE + self.capacity)
                segment = _mapped(self.path)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise DeviceError(f"{nbytes} bytes of shared memory cannot be had in {FOLDER}: {error.strerror}") from None

        # Fill the first page; the magic number comes last, and makes it complete.
        self.memory = segment  #: the whole memory, to register it with a GPU
        self._words, self._ring = segment.data[:TEXT].view(np.int64), segment.data[PAGE:]
        self._words[[CAPACITY, LOG, LENGTH]] = self.capacity, _word(log), len(text)
        segment.data[TEXT : TEXT + len(text)] = np.frombuffer(text, np.uint8)
        self._words[0] = MAGIC

    @property
    def written(self) -> int:
        """The place up to which the file has all bytes."""
        return int(self._words[WRITTEN])

    def begin_segment(self, path: str, place: int) -> None:
        """Begin a segment at a place, once all records before it are written."""
        self._words[[WRITTEN, READY, START, INODE]] = place, place, place, _word(os.stat(path).st_ino)

    def views(self, place: int, nbytes: int) -> list[np.ndarray]:
        """Return the memory of some bytes of the log, in up to two pieces."""
        return _views(self._ring, place, nbytes)

    def publish(self, written: int, ready: int) -> None:
        """Set the places up to which the file and the tail have all bytes."""
        self._words[WRITTEN], self._words[READY] = written, ready

    def close(self, keep: bool = False) -> None:
        """Release the lock, and remove the file, unless it is to `keep` records that the log lacks."""
        if not keep:
            with suppress(OSError):
                os.unlink(self.path)
        self._lock.close()


def _word(number: int) -> Any:
    """Return the int64 with the 64 bits of a number."""
    return np.uint64(number).astype(np.int64)


def _views(ring: np.ndarray, place: int, nbytes: int) -> list[np.ndarray]:
    first = place % len(ring)
    return [ring[first : first + nbytes], ring[: max(0, first + nbytes - len(ring))]]


def _mapped(path: str) -> Segment:
    """Map a file by a new descriptor: a mapping keeps its descriptor open, and would keep the lock."""
    descriptor = _opened(path)
    try:
        return Segment(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _locked(path: str, flags: int = 0) -> Any:
    """Lock a tail's file of this user; `BlockingIOError` while it is taken."""
    return locked(open(_opened(path, flags), "r+b", buffering=0))


def _opened(path: str, flags: int = 0) -> int:
    """Open a file of this user. Another user could cut it while it is mapped, which would end the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "it is another user's", path)
    return descriptor


def _sees() -> str:
    """Return a name that processes share if they see the same folders.

    Containers may share one /dev/shm.
    """
    try:
        return os.readlink("/proc/self/ns/mnt")
    except OSError:
        return ""


# ---- tails of ended processes ----------------------------------------------------------------------------------------


def finish(store: str, own: bool = False) -> int:
    """Write to a store's logs the records of killed processes of this host; return their number.

    Call it before the store is read. If this graph has locked the store, which is then its `own`, wait for tails that
    other processes hold: these are about to end, or finish the tail. Otherwise skip tails that are held.

    Raises
    ------
    StoreError
        A log cannot be written, or another process does not end.
    """
    return sum(_finished(path, store, own) for path in _paths() if _concerns(path, store))


class _LeftTail:
    """The tail of another process; `OSError` if it is gone.

    Attributes
    ----------
    known : bool
        True if it is complete and of this version. Otherwise only `useless` is set.
    useless : bool
        True if it is incomplete: a process is creating it, or ended before that was done.
    """

    def __init__(self, path: str) -> None:
        self._data = _mapped(path).data if os.stat(path).st_size > PAGE else np.zeros(PAGE, np.uint8)
        self._words = words = self._data[:TEXT].view(np.int64)
        self.known = int(words[0]) == MAGIC and len(self._data) == PAGE + int(words[CAPACITY])
        self.useless = int(words[0]) == 0
        if self.known:
            self.written, self.ready, self.start = (int(words[at]) for at in (WRITTEN, READY, START))
            self.log, self._inode = (int(words[at].astype(np.uint64)) for at in (LOG, INODE))
            self._describe(self._data[TEXT : TEXT + int(words[LENGTH])].tobytes())

    def _describe(self, text: bytes) -> None:
        """Read the JSON of the first page. `known` is False if no version writes such JSON."""
        try:
            about = json.loads(text)
            names = [about[name] for name in ("store", "folder", "sees")]
            self.known = all(isinstance(name, str) and "\0" not in name for name in names)
            self.store, self._folder, self._sees = names
            os.fsencode(self.store + self._folder)
        except (ValueError, LookupError, TypeError, RecursionError):
            self.known = False

    def views(self, place: int, nbytes: int) -> list[np.ndarray]:
        return _views(self._data[PAGE:], place, nbytes)

    @property
    def left(self) -> bool:
        """True if its process is known to have ended."""
        return bool(self._words[LEFT])

    def leave(self) -> None:
        """Mark for other processes that its process has ended."""
        self._words[LEFT] = 1

    @property
    def empty(self) -> bool:
        """True if the file has all bytes of the tail."""
        return self.written >= self.ready

    @property
    def orphan(self) -> bool:
        """True if its store is gone."""
        return self._sees == _sees() and not os.path.exists(self.store)

    def segment(self, store: str) -> str:
        """Return the file of its process in this folder."""
        return f"{store}/{self._folder}/{segment_name(self.start)}"

    def is_of(self, store: str) -> bool:
        """Return True if its process wrote this store, which may have been moved since; False for a copy."""
        now, before = _status(self.segment(store)), _status(self.segment(self.store))
        if now is None or now.st_ino != self._inode:
            return False
        return before is None or before.st_ino != self._inode or os.path.samestat(now, before)

    def is_over(self, store: str) -> bool:
        """Return True if a later term of the store has begun: the tail's log is not read any further."""
        term, names = self._folder.split("/")[0], os.listdir(store)
        return any(name.split(".")[0] > term for name in names if name.startswith("term-"))

    def is_dropped(self, store: str) -> bool:
        """Return True if it was of this folder, and a later term dropped its file."""
        now, before = _status(store), _status(self.store)
        same = now is not None and before is not None and os.path.samestat(now, before)
        return same and _status(self.segment(store)) is None and self.is_over(store)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _paths() -> list[str]:
    return sorted(str(path) for path in Path(FOLDER).glob(f"{NAME}*"))


def _seen(path: str) -> _LeftTail | None:
    """Return a tail without its lock; None if it is incomplete, or another user's."""
    with suppress(OSError):
        tail = _LeftTail(path)
        return tail if tail.known else None
    return None


def _concerns(path: str, store: str) -> bool:
    tail = _seen(path)
    return tail is not None and (tail.is_of(store) or tail.is_dropped(store))


def _remove_leftovers() -> None:
    """Remove tails that are incomplete, written, or of stores that are gone."""
    for path in _paths():
        with suppress(OSError):
            if _is_useless(path):
                with _locked(path):  # fails if a process holds it
                    if _is_useless(path):
                        os.unlink(path)


def _is_useless(path: str) -> bool:
    tail = _LeftTail(path)
    return tail.empty or tail.orphan if tail.known else tail.useless


def _finished(path: str, store: str, own: bool) -> int:
    """Write a tail to its log in this store, and remove it; return the number of records."""
    records, lock = 0, _taken(path, store, own)
    if lock is None:
        return 0
    with lock, suppress(FileNotFoundError):  # another process may have removed it
        tail = _LeftTail(path)
        tail.leave()
        if not tail.is_over(store):
            if not tail.is_of(store):
                return 0
            file = tail.segment(store)
            try:
                records = _write(tail, file)
            except OSError as error:
                raise failed(error, file, "records of a killed process cannot be written to") from error
        os.unlink(path)
    return records


def _taken(path: str, store: str, own: bool) -> Any:
    """Lock a tail's file; None if it is gone, or kept by a graph."""
    # Wait for a process that is about to end, if this graph owns the store.
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return _locked(path)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            tail = _seen(path)
            if not own and (tail is None or not tail.left):
                return None
        if time.monotonic() >= end:
            what = f"{store} is in use by a process of this host, which has {path}: wait until it has ended"
            raise StoreError(what, reason="in use")
        time.sleep(POLL_SECONDS)


def _write(left: _LeftTail, path: str) -> int:
    # Copy each record, with the hash of its columns. Skip records that are in the file.
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
    """Return a record that the process wrote to the file without staging it."""
    head = bytearray(HEADER)
    with DISK.contents(path) as contents:
        contents.read(at, [head])
        return header_of(bytes(head), at, place, log, path, contents.size)
