"""File operations of a store. Tests replace them by operations that crash."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from mgraph.errors import StoreError

__all__ = ["DISK", "PIECE", "Contents", "File", "Files", "failed", "locked", "pieces", "reading"]

VECTORS = 512  #: buffers for one call of readv or writev; the system takes 1024
PIECE = 4 << 20  #: bytes per read of a file that is read in pieces


def _moved(call: Callable[[int, list[memoryview], int], int], fd: int, at: int, parts: Sequence[Any]) -> int:
    """Read or write buffers consecutively from an offset.

    Returns the bytes moved: fewer where a file ends.
    """
    # Go on after a short read or write, with the rest of the buffer in which it ended.
    views, begin = [memoryview(part).cast("B") for part in parts if len(part)], at
    while views and (done := call(fd, views[:VECTORS], at)):
        at += done
        while views and done >= len(views[0]):
            done -= len(views.pop(0))
        if views and done:
            views[0] = views[0][done:]
    return at - begin


class File:
    """A file for writing.

    Several threads may call its methods, for parts that do not overlap.

    Parameters
    ----------
    path : str
        Created if it does not exist.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._room = os.fstat(self._fd).st_size

    def allocate(self, end: int) -> None:
        """Reserve room up to the offset `end`; `OSError` if the disk is full."""
        if end > self._room:  # new bytes only: systems without this call emulate it by writing zeros
            os.posix_fallocate(self._fd, self._room, end - self._room)
            self._room = end

    def write(self, at: int, parts: Sequence[Any]) -> None:
        """Write buffers consecutively from the offset `at`."""
        _moved(os.pwritev, self._fd, at, parts)

    def sync(self) -> None:
        """Return once the written bytes are on the disk."""
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._fd, size)
        self._room = size

    def close(self) -> None:
        """Close the file; twice too."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Contents:
    """Reads the bytes of a file. They are not mapped: a failing disk, or a file that is cut, would end the process.

    Parameters
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def size(self) -> int:
        """The length of the file, now."""
        return os.fstat(self._fd).st_size

    def read(self, at: int, parts: Sequence[Any]) -> int:
        """Fill buffers consecutively from the offset `at`; return the number of bytes.

        Any thread may call it.
        """
        try:
            return _moved(os.preadv, self._fd, at, parts)
        except OSError as error:
            error.filename = self.path
            raise

    def close(self) -> None:
        """Close the file; twice too."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Contents:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def pieces(contents: Contents, at: int, end: int) -> Iterator[np.ndarray]:
    """Yield the bytes between two offsets, or up to the end of the file, uint8[up to `PIECE`]: each until the next."""
    buffer = np.empty(min(PIECE, max(0, end - at)), np.uint8)
    while at < end and (n := contents.read(at, [buffer[: end - at]])):
        yield buffer[:n]
        at += n


class Files:
    """Operations on this machine's file system."""

    def open(self, path: str) -> File:
        """Open a file for writing; create it if it does not exist. Its name is durable after `sync_folder`."""
        return File(path)

    def folder(self, path: str) -> None:
        """Make a folder and those above it, durably."""
        # Make the missing folders from the top down, each name durable before the next.
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            try:
                os.mkdir(folder)  # not makedirs: another rank may have removed the parent after a failed sync
            except FileExistsError:
                if not os.path.isdir(folder):
                    raise
            try:
                self.sync_folder(os.path.dirname(folder))
            except BaseException:
                # A later sync may return without the lost name, so the next call must make the folder again.
                with suppress(OSError):
                    os.rmdir(folder)
                raise

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none without the folder."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def contents(self, path: str) -> Contents:
        """Open a file for reading."""
        return Contents(path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return Path(path).read_bytes()

    def exists(self, path: str) -> bool:
        """Return True if the file or folder exists; `OSError` if that cannot be told."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def replace(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace the content of a file; without `durable`, a crash may bring back the old content.

        After a crash it has the old content or `data`, whole.
        """
        # Write a draft durably, and rename it in one step.
        draft = f"{path}.tmp"
        file = self.open(draft)
        try:
            file.truncate(0)
            file.write(0, [data])
            file.sync()
        finally:
            file.close()
        self.rename(draft, path)
        if durable:
            self.sync_folder(os.path.dirname(path))

    def rename(self, path: str, new: str) -> None:
        """Rename a file, in place of the file with the new name."""
        os.replace(path, new)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)

    def sync_folder(self, path: str) -> None:
        """Return once the names in a folder are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def touch_folder(self, path: str) -> None:
        """Change a folder, so that its next sync writes it; after a failed sync, the next may write nothing."""
        draft, name = tempfile.mkstemp(prefix=".mgraph-", dir=path)
        os.close(draft)
        os.remove(name)

    def lock(self, path: str) -> Any:
        """Lock a file until the result is closed, or this process ends.

        `BlockingIOError` if another process has it.
        """
        return locked(open(path, "a+b", buffering=0))


DISK = Files()

_LOCKS: WeakSet[Any] = WeakSet()


def locked(file: Any) -> Any:
    """Lock an open file until it is closed, or this process ends. Forked children do not hold the lock.

    If another process has the lock, the file is closed, and `BlockingIOError` raised.
    """
    _LOCKS.add(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EAGAIN):
            raise BlockingIOError(*error.args) from None
        raise
    return file


def _close_locks() -> None:
    for file in list(_LOCKS):
        file.close()


os.register_at_fork(after_in_child=_close_locks)  # otherwise children would keep the locks


def failed(error: OSError, path: str, what: str) -> StoreError:
    """Return the `StoreError` for an error of the file system, with advice."""
    advice = {
        errno.ENOSPC: "the disk is full: make room and repeat the call",
        errno.EDQUOT: "the quota is used up: make room and repeat the call",
        errno.EACCES: "give the workers' user the right to write there",
        errno.EPERM: "give the workers' user the right to write there",
        errno.EEXIST: "a file is where a folder is needed",
        errno.ENOTDIR: "a file is where a folder is needed",
        errno.EROFS: "the file system is read-only: choose another folder",
    }.get(error.errno or 0, "look at the disk")
    return StoreError(f"{what} {path}: {error.strerror or error}; {advice}")


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Return a block in which errors of the file system become `StoreError`, by default for `path`."""
    try:
        yield
    except OSError as error:
        raise failed(error, error.filename or path, "the store cannot be read:") from error
