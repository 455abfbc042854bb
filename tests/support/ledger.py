"""What was granted by budgets, beside what NumPy took: an allocation that nobody asked for shows as the difference."""

from __future__ import annotations

import sys
import traceback
import tracemalloc
import weakref
from threading import RLock
from types import TracebackType
from typing import Any

import numpy as np

from mgraph.budget import Budget, Reservation
from mgraph.device import Device

__all__ = ["Ledger"]


class Ledger:
    """Keeps the books while it is entered; everything is traced, so that it is slow.

    Granted are the arrays that came from `Device.empty`, while they live, and what is reserved. Between two grants the
    peak of what Python and NumPy have taken is compared with them, and with arrays that were freed in between.

    Between an entry in the books and the allocation that it is about no other thread may run, or it would compare the
    one without the other. So threads take turns only where they wait: what is compared and entered together is under a
    lock, and Python does not interrupt a thread that has just freed an array.

    Attributes
    ----------
    gaps : list of (int, str)
        The bytes by which what was taken exceeded what was granted, and between which two grants: the largest first.
    granted, peak : int
        Bytes that were granted in all, and the most at a time.
    """

    def __init__(self) -> None:
        self.gaps: list[tuple[int, str]] = []
        self.granted = self.peak = 0
        self._live = self._most = 0
        self._lock = RLock()
        self._where = "the beginning"

    def __enter__(self) -> Ledger:
        self._lines, self._reserve, self._release = Device._lines, Budget.reserve, Budget._release
        ledger = self

        def lines(nbytes: int) -> np.ndarray:
            with ledger._lock:
                ledger._compare()
                array = ledger._lines(nbytes)
                ledger._add(nbytes)
            weakref.finalize(array if array.base is None else array.base, ledger._add, -nbytes)
            return array

        def reserve(budget: Budget, nbytes: int, what: Any) -> Reservation:
            ledger._compare()
            reservation = ledger._reserve(budget, nbytes, what)
            ledger._add(nbytes)
            return reservation

        def release(budget: Budget, reservation: Reservation) -> None:
            with ledger._lock:
                ledger._compare()
                nbytes = reservation._nbytes
                ledger._release(budget, reservation)
                ledger._add(-nbytes)
                ledger._most = ledger._live

        Device._lines, Budget.reserve, Budget._release = staticmethod(lines), reserve, release  # type: ignore
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(60)
        tracemalloc.start(1)
        self._base = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._compare()
        tracemalloc.stop()
        sys.setswitchinterval(self._interval)
        Device._lines, Budget.reserve, Budget._release = staticmethod(self._lines), self._reserve, self._release  # type: ignore
        self.gaps.sort(reverse=True)

    def _add(self, nbytes: int) -> None:
        with self._lock:
            self._live += nbytes
            self.granted += max(nbytes, 0)
            self._most += max(nbytes, 0)
            self.peak = max(self.peak, self._live)

    def _compare(self) -> None:
        """Look at the peak since the last time."""
        with self._lock:
            here = " < ".join(
                f"{frame.name}:{frame.lineno}"
                for frame in traceback.StackSummary.extract(traceback.walk_stack(None), limit=9, lookup_lines=False)
                if "ledger" not in frame.filename and "contextlib" not in frame.filename
            )
            taken = tracemalloc.get_traced_memory()[1] - self._base
            self.gaps.append((taken - self._most, f"{self._where} -- {here}"))
            tracemalloc.reset_peak()
            self._most, self._where = self._live, here
