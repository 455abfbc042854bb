"""The cache of compiled libraries: a private folder, shared by processes; libraries are checked before each use.

A library ends with a checksum of its content. One that a crash or a full disk has cut short is compiled again, and so
is one that another user owns. ``MGRAPH_CACHE_DIR`` sets the folder; the default is ``mgraph`` in the user's cache
folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mgraph.errors import DeviceError

__all__ = ["folder", "is_sealed", "is_whole", "locked", "newest", "seal", "unusable", "write"]

WAIT = 900  #: seconds to wait for another process's lock, more than any compilation takes
MARK = b"mgraph sha256 "
TRAILER = len(MARK) + hashlib.sha256().digest_size
ADVICE = "name a folder of your own, with space, in MGRAPH_CACHE_DIR"


def unusable(path: Path, error: OSError) -> DeviceError:
    """The error to raise if the file system does not allow writing under `path`."""
    return DeviceError(f"cannot write the kernel cache {path}: {error.strerror or error}; {ADVICE}")


def folder() -> Path:
    """The folder, created if it does not exist. It belongs to the user or root, and no other user can write to it.

    A folder of the user's to which others can write is made private.

    Raises
    ------
    DeviceError
        It cannot be created, belongs to another user, or is root's and others can write to it.
    """
    named = os.environ.get("MGRAPH_CACHE_DIR")
    root = Path(named or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mgraph"))
    path = root / "kernels"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        for mine in (path,) if named else (root, path):
            _refuse(mine, _closed(mine, 0o700))
    except OSError as error:
        raise unusable(path, error) from None
    return path


def _closed(path: Path | int, most: int) -> os.stat_result:
    """The state of a file or folder, after removing other users' permissions if it is the user's own."""
    found = os.stat(path)
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        with suppress(OSError):  # a read-only file system, or one without modes: the state shows the result
            os.chmod(path, stat.S_IMODE(found.st_mode) & most)
        found = os.stat(path)
    return found


def _trusted(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022


def _refuse(path: Path, found: os.stat_result) -> None:
    if _trusted(found):
        return
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    raise DeviceError(
        f"the kernel cache {path} belongs to user {found.st_uid} and has mode {mode}: users other than {os.geteuid()} "
        f"and root could change what is loaded from there; {ADVICE}"
    )


def is_whole(library: Path) -> bool:
    """Whether a library exists, only the user or root can have written it, and its checksum is right."""
    try:
        with open(library, "rb") as file:
            if not _trusted(_closed(file.fileno(), 0o600)):
                return False
            content = file.read()
    except OSError:
        return False
    return _is_sealed(content)


def _is_sealed(content: bytes) -> bool:
    return content[-TRAILER:] == MARK + hashlib.sha256(content[:-TRAILER]).digest()


def is_sealed(library: Path) -> bool:
    """Whether a library exists and its checksum is right, whoever wrote it."""
    try:
        return _is_sealed(library.read_bytes())
    except OSError:
        return False


def newest(path: Path, pattern: str) -> Path | None:
    """The most recently compiled of the whole libraries that match `pattern`, or None."""
    return max(filter(is_whole, path.glob(pattern)), key=lambda library: library.stat().st_mtime, default=None)


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of `target`, so that no other process or thread compiles it; `DeviceError` after `WAIT` seconds."""
    lock, path, end = -1, target.with_suffix(".lock"), time.monotonic() + WAIT
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise DeviceError(f"another process has held {path} for {WAIT} s; end it, or {ADVICE}") from None
                time.sleep(0.02)
        yield
    finally:
        if lock >= 0:
            fcntl.flock(lock, fcntl.LOCK_UN)  # explicit, since a child process forked meanwhile has a copy of `lock`
            os.close(lock)


def write(path: Path, text: str) -> None:
    """Write a text to `path`, readable and writable by the user only."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def seal(partial: Path, target: Path) -> None:
    """Append the checksum to a library, flush it to the disk, and then rename it to `target`."""
    with open(partial, "r+b") as file:
        file.write(MARK + hashlib.sha256(file.read()).digest())
        file.flush()
        os.chmod(file.fileno(), 0o600)
        os.fsync(file.fileno())
    os.replace(partial, target)
