"""Tickets of a host's GPUs, held while kernels on several of them wait for each other.

Two graphs whose kernels were launched in crossed order on the same GPUs would wait for each other. So a graph takes
the tickets of all its GPUs first, in the order of their UUIDs. A ticket is the lock of a file in /dev/shm, per user
and GPU; the system takes it back from a process that ends.

The lock of a second file, the queue, belongs to the graph that gets the ticket next, so nobody overtakes it. If a
graph holds the queue, the running program gives its tickets back after a stay of `STAY` seconds, and asks again after
all waiting graphs. Programs of copies give their tickets back after each stay of 2 ms, and take them without queueing.
So copies yield to graphs, and to each other by chance.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from mgraph.errors import DeviceError

__all__ = ["Tickets", "Watch"]

FOLDER = "/dev/shm"
SOON = 200e-6  #: seconds of tries without a pause, for a ticket that another graph holds
PAUSE = 1e-3  #: the longest pause between two tries
STAY = 5e-3  #: seconds of a stay, and between two checks of the queues
IDLE = 1.0  #: seconds without programs after which a watch sleeps until the next one


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
        """Take all tickets; with `last` without a place in the queues.

        `look` is called during a wait, and raises an error to end it.
        """
        try:
            for file, queue in zip(self._files, self._queues, strict=True):
                self._lock(queue, look)
                if last:
                    fcntl.flock(queue, fcntl.LOCK_UN)
                self._lock(file, look)
                fcntl.flock(queue, fcntl.LOCK_UN)
        except BaseException:
            self.give()
            for queue in self._queues:
                fcntl.flock(queue, fcntl.LOCK_UN)
            raise

    def _lock(self, file: int, look: Callable[[], None]) -> None:
        """Lock a file. Try again at once at first, then with longer and longer pauses."""
        began = time.monotonic()
        while not _try_to_lock(file):
            look()
            waited = time.monotonic() - began
            time.sleep(0 if waited < SOON else min(waited / 4, PAUSE))

    def wanted(self) -> bool:
        """Return True if another graph waits for one of the tickets. The caller holds them."""
        for queue in self._queues:
            if not _try_to_lock(queue):
                return True
            fcntl.flock(queue, fcntl.LOCK_UN)
        return False

    def hand_on(self) -> None:
        """Give all tickets back. If graphs wait for them, pause until these have asked before this one."""
        wanted = self.wanted()
        self.give()
        if wanted:
            time.sleep(3 * PAUSE)  # the first one takes the ticket, and another one its place in the queue

    def give(self) -> None:
        """Give all tickets back."""
        for file in self._files:
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the tickets back, and close their files. Idempotent."""
        files, self._files, self._queues = [*self._files, *self._queues], [], []
        for file in files:
            with suppress(OSError):
                os.close(file)


class Watch:
    """Thread that sets a word while other graphs wait for tickets that this one holds.

    Parameters
    ----------
    uuids : sequence of bytes
        The GPUs.
    word : numpy.ndarray
        Its first element is set to 1.
    """

    def __init__(self, uuids: Sequence[bytes], word: np.ndarray) -> None:
        # A lock belongs to an opened file: with files of its own, the thread cannot unlock what another one locks.
        self._tickets, self._word = Tickets(uuids), word
        self._awake, self._holds, self._ends, self._began = threading.Event(), False, False, 0.0
        self._thread = threading.Thread(target=self._run, name="mgraph-tickets", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Clear the word, and watch the queues once a stay is over. The tickets have been taken."""
        self._word[0], self._began, self._holds = 0, time.monotonic(), True
        self._awake.set()

    def end(self) -> None:
        """Watch no longer."""
        self._holds = False

    def _run(self) -> None:
        while self._awake.wait() and not self._ends:
            time.sleep(STAY)
            stayed = time.monotonic() - self._began
            if self._holds:
                if stayed > STAY and self._tickets.wanted():
                    self._word[0] = 1
            elif stayed > IDLE:
                self._awake.clear()
                if self._holds or self._ends:  # said before that
                    self._awake.set()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._ends = True
        self._awake.set()
        self._thread.join()
        self._tickets.close()


def _try_to_lock(file: int) -> bool:
    """Return True if the file is locked now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
