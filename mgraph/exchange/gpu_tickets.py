"""Tickets of a host's GPUs, held while kernels on several of them wait for each other.

Two graphs whose kernels were launched in crossed order on the same GPUs would wait for each other. So a graph takes
the tickets of all its GPUs first, in the order of their UUIDs. A ticket is the lock of a file in /dev/shm, per user
and GPU; the system takes it back from a process that ends.

A graph that waits for a ticket shares the lock of another file, the queue. The programs of copies give their tickets
back after each stay of 2 ms, and take them again only when nobody is in a queue. So copies yield to graphs, and to each
other by chance.
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
        self._files, self._queues = list[int](), list[int]()
        try:
            for uuid in sorted(set(uuids)):
                for files, kind in ((self._files, "gpu"), (self._queues, "gpu.queue")):
                    path = os.path.join(FOLDER, f"mgraph.{kind}.{os.geteuid()}.{uuid.hex()}")
                    files.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.close()
            raise DeviceError(f"the tickets of GPUs cannot be kept in {FOLDER}: {error.strerror}") from None

    def take(self, look: Callable[[], None], last: bool = False) -> None:
        """Take all tickets; with `last` only once no other graph waits for them.

        `look` is called during a wait, and raises an error to end it.
        """
        try:
            if last:
                for queue in self._queues:
                    self._lock(queue, look)
                    fcntl.flock(queue, fcntl.LOCK_UN)
            for file, queue in zip(self._files, self._queues, strict=True):
                self._lock(file, look, None if last else queue)
        except BaseException:
            self.give()
            raise

    def _lock(self, file: int, look: Callable[[], None], queue: int | None = None) -> None:
        """Lock a file. While another graph has the lock, stay in `queue`."""
        began = time.monotonic()
        while not _try_to_lock(file, fcntl.LOCK_EX):
            look()
            if queue is not None:
                _try_to_lock(queue, fcntl.LOCK_SH)
            # Try again at once at first, then with longer and longer pauses.
            waited = time.monotonic() - began
            time.sleep(0 if waited < SOON else min(waited / 4, PAUSE))
        if queue is not None:
            fcntl.flock(queue, fcntl.LOCK_UN)

    def give(self) -> None:
        """Give all tickets back, and leave the queues."""
        for file in (*self._files, *self._queues):
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the tickets back, and close their files. Idempotent."""
        files, self._files, self._queues = [*self._files, *self._queues], [], []
        for file in files:
            with suppress(OSError):
                os.close(file)


def _try_to_lock(file: int, how: int) -> bool:
    """Return True if the file is locked now."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
