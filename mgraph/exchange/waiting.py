"""Waiting in a shard's thread by polling, with pauses so that the worker's event loop can run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["PATIENCE", "POLL", "SPIN", "wait_until"]

PATIENCE = 60.0  #: seconds that `connect` waits for another rank, by default
POLL = 0.05  #: seconds between checks of the abort flag, at most
SPIN = 200e-6  #: seconds of polling without pauses; a small message takes a tenth of it


def wait_until(done: Callable[[], bool], look: Callable[[], None]) -> None:
    """Poll until `done()` is true. Raises the errors of `done` and `look`.

    Parameters
    ----------
    done : callable
        Called repeatedly. It also makes the progress that the caller waits for.
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
        time.sleep(0)  # yields the interpreter to the event loop for some 60 us
        if now - looked > POLL / 5:
            looked = now
            look()
