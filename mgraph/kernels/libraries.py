"""Cache of compiled libraries: a private folder, shared by processes, with checksums.

A library ends with a checksum of its content, tested before each use. A library that is incomplete after a crash or on
a full disk, or owned by another user, is compiled again. ``MGRAPH_CACHE_DIR`` sets the folder; the default is
``mgraph`` in the user's cache folder.

A wheel carries libraries with the same checksums in `CARRIED`, in a folder for each level of CPUs and each
architecture of GPUs. They are trusted like the code, whoever owns the files.
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

__all__ = [
    "CARRIED",
    "content",
    "digest",
    "folder",
    "is_whole",
    "locked",
    "newest",
    "place",
    "seal",
    "unusable",
    "write",
]

CARRIED = Path(__file__).parent / "carried"  #: folder of a wheel's libraries
WAIT = 900  #: seconds to wait for another process's lock, more than any compilation takes
MARK = b"mgraph sha256 "
TRAILER = len(MARK) + hashlib.sha256().digest_size
ADVICE = "name a folder of your own, with space, in MGRAPH_CACHE_DIR"


def unusable(path: Path, error: OSError) -> DeviceError:
    """Return the error for a cache folder that cannot be written."""
    return DeviceError(f"cannot write the kernel cache {path}: {error.strerror or error}; {ADVICE}")


def folder() -> Path:
    """Return the private cache folder, created if it does not exist.

    It belongs to the user or root. A user's folder to which others can write is made private.

    Raises
    ------
    DeviceError
        The folder cannot be created, belongs to another user, or is root's and others can write to it.
    """
    named = os.environ.get("MGRAPH_CACHE_DIR")
    root = Path(named or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mgraph"))
    path = root / "kernels"
    # Create it, and make the user's own folders private.
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        for mine in (path,) if named else (root, path):
            _refuse(mine, _closed(mine, 0o700))
    except OSError as error:
        raise unusable(path, error) from None
    return path


def _closed(path: Path | int, most: int) -> os.stat_result:
    """Remove other users' permissions from the user's own file, and return its state."""
    state = os.stat(path)
    if state.st_uid == os.geteuid() and state.st_mode & 0o077:
        with suppress(OSError):  # a read-only file system, or one without modes: the state shows the result
            os.chmod(path, stat.S_IMODE(state.st_mode) & most)
        state = os.stat(path)
    return state


def _trusted(state: os.stat_result) -> bool:
    """Return True if only the user or root can have written a file."""
    return state.st_uid in (os.geteuid(), 0) and not state.st_mode & 0o022


def _refuse(path: Path, state: os.stat_result) -> None:
    """Raise `DeviceError` for a folder that other users can write."""
    if _trusted(state):
        return
    mode = f"{stat.S_IMODE(state.st_mode):04o}"
    raise DeviceError(
        f"the kernel cache {path} belongs to user {state.st_uid} and has mode {mode}: users other than {os.geteuid()} "
        f"and root could change what is loaded from there; {ADVICE}"
    )


def is_whole(library: Path) -> bool:
    """Return True if a library exists, is trusted, and has a valid checksum."""
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


def content(library: Path) -> bytes | None:
    """Return a library without its checksum, whoever wrote it; None if it is missing or damaged."""
    try:
        sealed = library.read_bytes()
    except OSError:
        return None
    return sealed[:-TRAILER] if _is_sealed(sealed) else None


def digest(*parts: str) -> str:
    """Return the hash of texts, on which a library depends."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def place(folder: Path, program: str, suffix: str, *parts: str) -> Path:
    """Return the path of a carried library, which depends on `parts`."""
    return folder / f"{Path(program).stem}-{digest(*parts)[:24]}{suffix}"


def newest(path: Path, pattern: str) -> Path | None:
    """Return the newest whole library that matches `pattern`, or None."""
    return max(filter(is_whole, path.glob(pattern)), key=lambda library: library.stat().st_mtime, default=None)


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the compilation lock of `target`; `DeviceError` after `WAIT` seconds."""
    lock, path, end = -1, target.with_suffix(".lock"), time.monotonic() + WAIT
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        # Poll, since a blocking lock has no time limit.
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
    """Append the checksum to a library, sync it, and rename it to `target`."""
    with open(partial, "r+b") as file:
        file.write(MARK + hashlib.sha256(file.read()).digest())
        file.flush()
        os.chmod(file.fileno(), 0o600)
        os.fsync(file.fileno())
    os.replace(partial, target)
