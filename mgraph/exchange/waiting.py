"""How a shard's thread waits: by polling, in turns short enough that the event loop beside it lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["POLL", "SPIN", "wait_until"]

POLL = 0.05  #: seconds between two looks at the abort flag, at most
SPIN = 200e-6  #: seconds of polling without a pause; a small message takes a tenth of that


def wait_until(done: Callable[[], bool], look: Callable[[], None]) -> None:
    """Return once `done()` is true; ends otherwise only by what `done` or `look` raises.

    Parameters
    ----------
    done : callable
        Asked again and again; does what makes it come true.
    look : callable
        Called every `POLL` / 5 once the first `SPIN` is over; raises where waiting no longer makes sense.
    """
    began = looked = 0.0
    while not done():
        now = time.monotonic()
        began = began or now
        if now - began < SPIN:
            os.sched_yield()  # a rank on the same core may be the one that this one waits for
            continue
        time.sleep(0)  # gives the interpreter to the event loop for some 60 us
        if now - looked > POLL / 5:
            looked = now
            look()
