"""Limits of time that grow with the machine's load, for waits that end early and for what must not take long."""

from __future__ import annotations

import os

__all__ = ["patience"]

MOST = 10  #: times as long at most: less than what waits for a lost rank would take


def patience(seconds: float) -> float:
    """Return `seconds`, times the number of runnable threads per core if that is more than one."""
    return seconds * min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), MOST)
