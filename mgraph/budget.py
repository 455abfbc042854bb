"""How much host memory a process may still take. It knows neither Dask nor kernels; a worker says what its limit is."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any

from mgraph.errors import CapacityError

__all__ = ["GRAIN", "Budget", "Reservation", "host_memory_limit"]

GRAIN = 1 << 20  #: bytes from which an allocation is taken from a budget
LARGE = 1 << 26  #: bytes from which the machine is asked too whether it has them


def host_memory_limit() -> int:
    """Bytes of host memory that this process may still take: what is free, or what its control group leaves."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo") as lines:
            info = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        free = info.get("MemAvailable", free)
    except OSError:
        pass
    try:
        with open("/sys/fs/cgroup/memory.max") as top, open("/sys/fs/cgroup/memory.current") as used:
            limit = top.read().strip()
            if limit != "max":
                free = min(free, int(limit) - int(used.read()))
    except OSError:
        pass
    return max(free, 0)


class Reservation:
    """Bytes of a budget that nobody else may take, until `release`; a context manager, which releases them."""

    def __init__(self, budget: Budget, nbytes: int) -> None:
        self._budget, self._nbytes = budget, nbytes

    def release(self) -> None:
        """Give the bytes back; from any thread, also twice."""
        self._budget._release(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class Budget:
    """What may still be taken of host memory. Past a worker's limit its nanny kills it, with no error to catch.

    Who allocates `GRAIN` bytes or more reserves them first, and releases them once the system has given the memory:
    from then on `left` knows of it. What cannot be refused any more when it comes, such as what a comm reads, is
    reserved before it is sent.

    Parameters
    ----------
    left : callable, optional
        Bytes that the process may still take, reserved or not; without it there is no limit but the machine's.
    reclaim : callable, optional
        Gives back what the process does not use; called before anything is refused.
    """

    def __init__(self, left: Callable[[], int] | None = None, reclaim: Callable[[], object] = lambda: None) -> None:
        self._left, self._reclaim = left, reclaim
        self._reserved = 0
        self._lock = RLock()  # what is reclaimed may release a reservation

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self._left is not None

    def left(self) -> int:
        """Bytes that nobody has taken or reserved; 2**62 without a limit. With one it takes some 10 us."""
        return 1 << 62 if self._left is None else max(0, self._left() - self._reserved)

    def reserve(self, nbytes: int, what: Any) -> Reservation:
        """Keep `nbytes` for `what`, which the error names.

        Raises
        ------
        CapacityError
            There are not so many left.
        """
        with self._lock:
            if nbytes > self._room(nbytes):
                self._reclaim()
            if nbytes > (left := self._room(nbytes)):
                where = "the worker's memory limit leaves" if self.limited else "the machine has"
                raise CapacityError(f"{nbytes} bytes are needed for {what}, and {where} {left}")
            self._reserved += nbytes
        return Reservation(self, nbytes)

    def _room(self, nbytes: int) -> int:
        """Bytes that may be taken; what is `LARGE` has to fit the machine too, which overcommits."""
        return min(self.left(), host_memory_limit()) if nbytes >= LARGE else self.left()

    def _release(self, reservation: Reservation) -> None:
        with self._lock:
            self._reserved -= reservation._nbytes
            reservation._nbytes = 0

    def __reduce__(self) -> tuple[type[Budget], tuple[()]]:
        """In another process there is another limit, or none."""
        return Budget, ()

    def __repr__(self) -> str:
        return f"Budget({self.left()} bytes left, {self._reserved} reserved)"
