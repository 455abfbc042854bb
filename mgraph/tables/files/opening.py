"""Open files: check paths, decompress up to a limit, and name the file in errors."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from mgraph.budget import host_memory_limit
from mgraph.errors import CapacityError, InvalidBatch, MgraphError, ReadError
from mgraph.facade import type_name

__all__ = ["COMPRESSED", "blamed", "body_of", "check_path", "guarded", "head_of", "opened", "suffix_of"]

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")  #: suffixes of the files that are decompressed
MESSAGE = 300  #: letters of a library's message that are shown, since some have much of a damaged file
HEAD = 1 << 14  #: bytes in which a format is looked for
#: a file may grow to so many times its size, and to `FREE` bytes in any case: gzip's best is 1032, of a file of zeros
RATIO, FREE = 250, 1 << 26
#: how compressed files begin, with the name and the suffix of their format
_MAGIC = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"BZh": ("bzip2", ".bz2"),
    b"\xfd7zXZ\x00": ("xz", ".xz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", ".zst"),
    b"\x04\x22\x4d\x18": ("LZ4", ".lz4"),
}
_MARK = b"\xef\xbb\xbf"  #: the byte order mark with which some programs begin UTF-8


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a file's name in lower case, without its compression's suffix.

    For "roads.MTX.gz" it is ".mtx".
    """
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if suffix in COMPRESSED else suffix


def check_path(path: str | os.PathLike[str]) -> str:
    """Return the path of a file as text, with ``~`` expanded; `ReadError` if it is no file."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(
            f"a file's path is a str or a Path, got {type_name(path)}; stream and ingest take lists of files, "
            "from_pandas takes frames"
        )
    file = os.path.expanduser(os.fsdecode(path))
    try:
        is_folder = os.path.isdir(file) if os.stat(file) else False
    except (OSError, ValueError) as error:  # for example a path that is too long, a loop of links, or a NUL
        if getattr(error, "errno", None) in (errno.ENOENT, errno.ENOTDIR):
            raise ReadError(f"{file}: there is no such file on this machine") from None
        raise ReadError(f"{file[:200]!r}: {getattr(error, 'strerror', None) or error}") from None
    if is_folder:
        raise ReadError(f"{file}: it is a folder; DynamicGraph.open and load take those of stores and of save")
    return file


@contextmanager
def blamed(file: str) -> Iterator[None]:
    """Convert `InvalidBatch` and `ReadError` to a `ReadError` that names the file."""
    try:
        yield
    except (InvalidBatch, ReadError) as error:
        raise error if str(error).startswith(f"{file}: ") else ReadError(f"{file}: {error}") from None


@contextmanager
def guarded(file: str) -> Iterator[None]:
    """Convert errors of reading to a `ReadError` that names the file, and a `MemoryError` to a `CapacityError`.

    Libraries raise errors of many types for a damaged file: of zipfile, zlib, struct, pyarrow, expat, KeyError.
    """
    try:
        with blamed(file):
            yield
    except ImportError as error:
        raise ReadError(f"{file}: reading it needs {error.name or error}: pip install {error.name or error}") from None
    except (MgraphError, Warning):
        raise
    except OSError as error:
        raise ReadError(f"{file}: {error.strerror or error}") from None
    except MemoryError as error:
        raise CapacityError(f"{file}: {error or 'there is no memory for what it announces'}") from None
    except Exception as error:
        raise ReadError(f"{file}: {str(error)[:MESSAGE] or type(error).__name__}") from None


class _Limited(io.RawIOBase):
    """Decompressed file with a limit, past which reading fails."""

    def __init__(self, inner: Any, most: int) -> None:
        self._inner, self._left, self._most = inner, most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._inner.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise ReadError(
                f"it grows past {self._most} bytes, over {RATIO} times its size, when it is decompressed; decompress "
                "it first if it is what you expect"
            )
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._inner.close()
        super().close()


@contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed as its first bytes say.

    Raises
    ------
    ReadError
        Its name says that it is compressed, and its contents do not; or, while it is read, it grows too large.
    """
    # The first bytes say how the file is compressed, if it is.
    with open(file, "rb") as raw:
        start = raw.read(6)
    suffix = os.path.splitext(file.lower())[1]
    for magic, (name, usual) in _MAGIC.items():
        if start.startswith(magic):
            with _decompressed(file, usual) as inner:
                most = max(FREE, min(RATIO * os.path.getsize(file), host_memory_limit() // 2))
                try:
                    with io.BufferedReader(_Limited(inner, most), 1 << 20) as stream:
                        yield _without_mark(stream)
                except (EOFError, lzma.LZMAError) as error:
                    raise ReadError(f"its contents in {name} are damaged: {error}") from None
            return
    # Any other file is read as it is, unless its name says otherwise.
    if suffix in COMPRESSED:
        name = next(name for name, usual in _MAGIC.values() if usual == suffix)
        raise ReadError(f"its name says that it is compressed by {name}, and its contents are not")
    with open(file, "rb") as stream:
        yield _without_mark(stream)


def _decompressed(file: str, suffix: str) -> Any:
    openers: dict[str, Callable[[str], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    if suffix in openers:
        return openers[suffix](file)
    import pyarrow as pa

    return pa.input_stream(file, compression={".zst": "zstd", ".lz4": "lz4"}[suffix])


def _without_mark(stream: Any) -> Any:
    if stream.peek(3)[:3] == _MARK:
        stream.read(3)
    return stream


def head_of(file: str) -> bytes:
    """Return the first `HEAD` bytes of a file, decompressed."""
    with opened(file) as stream:
        return stream.read(HEAD)


def body_of(file: str) -> bytes:
    """Return a file's bytes, decompressed. O(bytes)."""
    with opened(file) as stream:
        return stream.read()
