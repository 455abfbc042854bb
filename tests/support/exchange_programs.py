"""What ranks in processes of their own do: at module level, so that a spawned process finds it."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np

from mgraph.errors import Aborted
from mgraph.exchange import Exchange


def die_then_wait(exchange: Exchange, aborted: threading.Event, how: int, tell: bool) -> tuple[float, str]:
    """The last rank gets a signal; the others wait for it: seconds until `Aborted` and its message.

    Where the exchange cannot notice by itself, `tell` sets the abort flag after 0.3 s, as a coordinator does.
    """
    exchange.barrier()
    if exchange.rank == exchange.size - 1:
        os.kill(os.getpid(), how)
    if tell:
        threading.Timer(0.3, aborted.set).start()
    began = time.monotonic()
    try:
        for _ in range(3):  # what is small may be sent to the dead once more
            exchange.alltoallv([np.zeros(1 << 20)] * exchange.size)
    except Aborted as error:
        waited = time.monotonic() - began
        exchange.close()
        return waited + (time.monotonic() - began - waited), str(error)
    raise AssertionError("nobody was missed")


def parts_of_all_sizes(exchange: Exchange, aborted: threading.Event) -> None:
    """Parts of a few bytes, of a message and of several messages arrive as they were sent, and numbers are added up."""
    me, size = exchange.rank, exchange.size
    for n in (8, 1 << 20, 16 << 20):
        got = exchange.alltoallv([np.full(n, 10 * me + r, np.uint8) for r in range(size)])
        assert [(len(part), np.unique(part).tolist()) for part in got] == [(n, [10 * r + me]) for r in range(size)]
        assert exchange.allreduce(np.array([n + me])).tolist() == [size * n + size * (size - 1) // 2]


STOPPED = signal.SIGSTOP
KILLED = signal.SIGKILL
