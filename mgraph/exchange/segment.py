"""Shared memory among processes of a host: a file of /dev/shm, unlinked once all have mapped it.

The creator of a segment holds a lock on its file until its process ends, in whatever way. So a file that a killed
process left has no lock, and the next creator removes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import secrets
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.errors import DeviceError

__all__ = ["FOLDER", "Place", "Segment"]

FOLDER = "/dev/shm"
CAUSES = {  #: explanations of error numbers, for messages
    errno.ENOENT: "; its creator is on another host, or in a container with a /dev/shm of its own",
    errno.EACCES: "; its creator is another user",
}
LEFT_SECONDS = 60.0  #: age from which a file without a lock is a leftover; creators have locked it by then
TOKEN_BYTES = 16  #: the first bytes of a segment, unique


@dataclass(frozen=True)
class Place:
    """Location of a rank's segment, for the other ranks.

    Attributes
    ----------
    path : str
        The file's path.
    token : str
        The segment's first bytes, in hexadecimal: another host may have a file of the same path.
    nbytes : int
        The size of the segment.
    extra : dict
        Further facts, from the rank to the others.
    """

    path: str
    token: str
    nbytes: int
    extra: dict[str, Any]

    def encode(self) -> bytes:
        """Return the place as bytes."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Place:
        """Return the place of the bytes from `encode`; `DeviceError` for other bytes."""
        try:
            place = cls(**json.loads(data))
            kinds = [type(place.path), type(place.token), type(place.nbytes), type(place.extra)]
        except (ValueError, TypeError, RecursionError):
            kinds = []
        if kinds != [str, str, int, dict]:
            raise DeviceError(f"{bytes(data[:100])!r} is no place of shared memory")
        return place


class Segment:
    """A mapping of a segment, as bytes.

    Attributes
    ----------
    data : uint8[nbytes]
    """

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self.data = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
        self.address = int(self.data.__array_interface__["data"][0])

    @classmethod
    def create(cls, nbytes: int, extra: dict[str, Any]) -> tuple[Segment, Place]:
        """Create a segment of `nbytes` zeros after its token, readable and writable by this user alone.

        All memory is allocated at once: a write to a page that /dev/shm cannot supply would kill the process.

        Raises
        ------
        DeviceError
            /dev/shm is absent, read-only or has too little space.
        """
        # Create, lock and fill the file. Without any of the three, remove it.
        token = secrets.token_bytes(TOKEN_BYTES)
        path = os.path.join(FOLDER, f"mgraph-{token.hex()}")
        _remove_left()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                os.posix_fallocate(descriptor, 0, nbytes)
                segment = cls(descriptor, nbytes)
            except BaseException:
                os.unlink(path)
                os.close(descriptor)
                raise
            weakref.finalize(segment, os.close, descriptor)
        except OSError as error:
            raise DeviceError(f"{nbytes} bytes of shared memory cannot be had in {FOLDER}: {error.strerror}") from None
        segment.data[:TOKEN_BYTES] = np.frombuffer(token, np.uint8)
        return segment, Place(path, token.hex(), nbytes, extra)

    @classmethod
    def open(cls, place: Place) -> Segment:
        """Map the segment of another rank of this host.

        Raises
        ------
        DeviceError
            It is absent: the rank is on another host, in another container or of another user. Or it is no segment:
            a file elsewhere, or one of another user, who could cut it while it is mapped, which ends the process.
        """
        named = os.path.dirname(place.path) == FOLDER and place.path.isascii() and "\0" not in place.path
        if not named or place.nbytes < TOKEN_BYTES:
            raise DeviceError(f"{place.path!r} is no segment of {place.nbytes} bytes in {FOLDER}")
        # Map the file, unless it is too short.
        try:
            descriptor = os.open(place.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid():
                    raise PermissionError(errno.EACCES, "it is another user's")
                short = status.st_size < place.nbytes
                segment = None if short else cls(descriptor, place.nbytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            where = CAUSES.get(error.errno or 0, "")
            raise DeviceError(f"{place.path} cannot be mapped: {error.strerror}{where}") from None

        # The token shows that it is the right segment.
        if segment is None or segment.data[:TOKEN_BYTES].tobytes().hex() != place.token:
            raise DeviceError(f"{place.path} is not the segment that its rank made")
        return segment

    @staticmethod
    def unlink(place: Place) -> None:
        """Remove the name of a segment.

        Its memory lives as long as a mapping of it. Ignores a missing name.
        """
        with suppress(FileNotFoundError):
            os.unlink(place.path)


def _remove_left() -> None:
    """Remove the files of segments whose creators have ended."""
    for path in Path(FOLDER).glob("mgraph-*"):
        with suppress(OSError):  # another user's, gone meanwhile, or its maker has the lock
            if time.time() - path.stat().st_mtime < LEFT_SECONDS:
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)
