"""Tickets of a host's GPUs, held while kernels on several of them wait for each other.

Two graphs whose kernels were launched in crossed order on the same GPUs would wait for each other. So a graph takes
the tickets of all its GPUs first, in the order of their UUIDs. A ticket is the lock of a file in /dev/shm, per user
and GPU; the system takes it back from a process that ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from mgraph.errors import DeviceError

__all__ = ["Tickets"]

FOLDER = "/dev/shm"
SOON = 200e-6  #: seconds for which a held ticket is asked for again without a pause
PAUSE = 1e-3  #: the longest pause between two tries


class Tickets:
    """Tickets of some GPUs.

    Parameters
    ----------
    uuids : sequence of bytes
        The GPUs.

    Raises
    ------
    DeviceError
        /dev/shm cannot hold the files.
    """

    def __init__(self, uuids: Sequence[bytes]) -> None:
        self._files: list[int] = []
        try:
            for uuid in sorted(set(uuids)):
                path = os.path.join(FOLDER, f"mgraph.gpu.{os.geteuid()}.{uuid.hex()}")
                self._files.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.close()
            raise DeviceError(f"the tickets of GPUs cannot be kept in {FOLDER}: {error.strerror}") from None

    def take(self, look: Callable[[], None]) -> None:
        """Take all tickets. `look` is called while waiting, and raises if that is pointless."""
        # Give back the tickets of a failed try.
        taken = 0
        try:
            for file in self._files:
                self._take(file, look)
                taken += 1
        except BaseException:
            for file in self._files[:taken]:
                fcntl.flock(file, fcntl.LOCK_UN)
            raise

    def _take(self, file: int, look: Callable[[], None]) -> None:
        began = time.monotonic()
        while True:
            # Try again at once at first, then with longer and longer pauses.
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                look()
                waited = time.monotonic() - began
                time.sleep(0 if waited < SOON else min(waited / 4, PAUSE))

    def give(self) -> None:
        """Give all tickets back."""
        for file in self._files:
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the tickets back, and close their files. Idempotent."""
        files, self._files = self._files, []
        for file in files:
            with suppress(OSError):
                os.close(file)
