"""Waiting in a shard's thread by polling, with pauses so that the worker's event loop can run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["PATIENCE", "POLL", "SPIN", "wait_until"]

PATIENCE = 60.0  #: seconds that `connect` waits for another rank, unless the exchange was given another `patience`
POLL = 0.05  #: the most seconds between two checks of the abort flag
SPIN = 200e-6  #: seconds of polling without pauses; a small message takes a tenth of that


def wait_until(done: Callable[[], bool], look: Callable[[], None]) -> None:
    """Return once `done()` is true; or raise what `done` or `look` raises.

    Parameters
    ----------
    done : callable
        Called repeatedly. It also makes the progress that is waited for.
    look : callable
        Called every ``POLL / 5`` seconds after the first `SPIN` seconds. It raises if waiting is pointless.
    """
    began = looked = 0.0
    while not done():
        now = time.monotonic()
        began = began or now
        if now - began < SPIN:
            os.sched_yield()  # the rank that this one waits for may run on the same core
            continue
        time.sleep(0)  # lets the event loop have the interpreter for some 60 us
        if now - looked > POLL / 5:
            looked = now
            look()
