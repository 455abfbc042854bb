"""Speed of the disk alone, the baseline of a store's logs, snapshots and openings.

Files are written with `write` and `fdatasync` and read with `read`, through the page cache. Before a cold read the
file's pages are dropped with `posix_fadvise`; the host of a virtual machine may keep them all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mgraph.budget import host_memory_limit

__all__ = [
    "PIECE",
    "drop_cached",
    "file_system",
    "files_in",
    "read_seconds",
    "size_of",
    "touch_memory",
    "write_seconds",
]

PIECE = 8 << 20  #: bytes per write or read
DRAWN = 64 << 20  #: random bytes that a file repeats: too many for a disk to compress


def touch_memory(nbytes: int) -> float:
    """Use `nbytes` of the free memory once, up to half of it, and free them.

    Returns the seconds. A virtual machine gets its memory at the first use, at 0.3 to 4 s per GB, which the first files
    would pay.
    """
    began, threads = time.perf_counter(), len(os.sched_getaffinity(0))
    part = min(nbytes, host_memory_limit() // 2) // threads + 1
    parts = [np.empty(part, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_touch, parts))
    return time.perf_counter() - began


def _touch(part: np.ndarray) -> None:
    part[::4096] = 1


def write_seconds(path: Path, nbytes: int, sync_every: int | None = None) -> float:
    """Return the seconds of writing a file of `nbytes` to the disk, synced once, or every `sync_every` bytes."""
    data = memoryview(np.random.default_rng(1).bytes(min(nbytes, DRAWN)))
    step = min(sync_every or PIECE, len(data))
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for at in range(0, nbytes, step):
            begin = at % (len(data) - step + 1)
            _write(file.fileno(), data[begin : begin + min(step, nbytes - at)])
            if sync_every is not None:
                os.fdatasync(file.fileno())
        os.fdatasync(file.fileno())
        return time.perf_counter() - began


def _write(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def read_seconds(paths: Iterable[Path]) -> float:
    """Return the seconds of reading files into memory, one after another."""
    buffer = bytearray(PIECE)
    buffer[:] = bytes(PIECE)  # touch its pages
    began = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - began


def drop_cached(paths: Iterable[Path]) -> None:
    """Ask the system to drop the cached pages of some files."""
    for path in paths:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())  # only clean pages are dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def files_in(folder: Path) -> list[Path]:
    """Return all files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def size_of(paths: Iterable[Path]) -> int:
    """Return the total bytes of files."""
    return sum(path.stat().st_size for path in paths)


def file_system(path: Path) -> str:
    """Return the type of a path's file system, such as "ext4"; "unknown" if the system does not tell."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    mounts_of_path = [(len(where), kind) for _, where, kind, *_ in mounts if path.resolve().is_relative_to(where)]
    return max(mounts_of_path, default=(0, "unknown"))[1]
