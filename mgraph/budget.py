"""Budget of host memory: refuses allocations beyond the process's limit.

This module knows neither Dask nor kernels. `mgraph.worker.memory` makes a worker's budget.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from time import monotonic
from typing import Any

from mgraph.errors import CapacityError

__all__ = ["GRAIN", "LARGE", "UNLIMITED", "Budget", "Reservation", "host_memory_limit"]

GRAIN = 1 << 20  #: allocations of this many bytes or more are taken from a budget
UNLIMITED = 1 << 62  #: the bytes left without a limit
FRESH_SECONDS = 0.002  #: time for which `lately_left` keeps its answer
LARGE = 1 << 26  #: allocations of this many bytes or more are checked against the machine's free memory too


def host_memory_limit() -> int:
    """Return the bytes of available host memory.

    The limit of this process's control group counts, if it is lower than that of the machine.
    """
    # Available memory of the machine; MemAvailable includes page cache that can be dropped.
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo") as lines:
            info = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        free = info.get("MemAvailable", free)
    except OSError:
        pass

    # Limit of the control group, version 2.
    try:
        with open("/sys/fs/cgroup/memory.max") as top, open("/sys/fs/cgroup/memory.current") as used:
            limit = top.read().strip()
            if limit != "max":
                free = min(free, int(limit) - int(used.read()))
    except OSError:
        pass
    return max(free, 0)


class Reservation:
    """Reserved bytes of a budget, until `release` or the end of its context."""

    def __init__(self, budget: Budget, nbytes: int) -> None:
        self._budget, self._nbytes = budget, nbytes

    def release(self) -> None:
        """Return the bytes to the budget. Thread-safe and idempotent."""
        self._budget._release(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class Budget:
    """The host memory that a process may still allocate.

    A worker that passes its memory limit is killed by its nanny, without an error that could be caught. So code that
    allocates `GRAIN` bytes or more reserves them first. It releases the reservation once the system has mapped the
    memory, because `left` counts mapped memory. A comm cannot refuse a message, so memory for large messages is
    reserved before they are sent.

    Parameters
    ----------
    left : callable, optional
        Returns the bytes that the process may still take; reservations are subtracted here. Without it only the
        machine's memory is a limit.
    reclaim : callable, optional
        Frees unused memory of the process. It is called before a reservation is refused.

    Attributes
    ----------
    limited : bool
        True if the budget has a limit.
    """

    def __init__(self, left: Callable[[], int] | None = None, reclaim: Callable[[], object] = lambda: None) -> None:
        self._left, self._reclaim, self.limited = left, reclaim, left is not None
        self._reserved = self._latest = 0
        self._stale = 0.0  # when `_latest` has to be asked again
        self._lock = RLock()  # reentrant, because `reclaim` may free an object that releases a reservation

    def left(self) -> int:
        """Return the bytes neither taken nor reserved; `UNLIMITED` without a limit."""
        return UNLIMITED if self._left is None else max(0, self._left() - self._reserved)

    def lately_left(self) -> int:
        """Return what `left` was at most `FRESH_SECONDS` ago."""
        if self._left is None:
            return UNLIMITED
        now = monotonic()
        if now > self._stale:
            self._latest, self._stale = self.left(), now + FRESH_SECONDS
        return self._latest

    def reserve(self, nbytes: int, what: Any) -> Reservation:
        """Reserve `nbytes` for the purpose that errors name.

        Raises
        ------
        CapacityError
            Fewer bytes are left.
        """
        with self._lock:
            # Reclaim unused memory before refusing.
            if nbytes > self._room(nbytes):
                self._reclaim()
            if nbytes > (left := self._room(nbytes)):
                where = "the worker's memory limit leaves" if self.limited else "the machine has"
                raise CapacityError(f"{nbytes} bytes are needed for {what}, and {where} {left}")
            self._reserved += nbytes
        return Reservation(self, nbytes)

    def _room(self, nbytes: int) -> int:
        """Return the bytes left for an allocation of `nbytes`.

        The operating system overcommits: it grants more than it has, and kills a process when the memory is used. So a
        `LARGE` allocation is compared with the machine's free memory too.
        """
        return min(self.left(), host_memory_limit()) if nbytes >= LARGE else self.left()

    def _release(self, reservation: Reservation) -> None:
        with self._lock:
            self._reserved -= reservation._nbytes
            reservation._nbytes = 0

    def __reduce__(self) -> tuple[type[Budget], tuple[()]]:
        """Pickle as a budget without a limit: a limit belongs to its process."""
        return Budget, ()

    def __repr__(self) -> str:
        return f"Budget({self.left()} bytes left, {self._reserved} reserved)"
