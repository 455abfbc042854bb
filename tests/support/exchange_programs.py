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


def device_peer_dies(exchange: Exchange, aborted: threading.Event, how: int) -> tuple[float, int]:
    """The last rank gets a signal when the others' data is on its way to it, after the counts.

    They are told after 0.3 s. Seconds until they have closed the exchange, and a sum on a device that is free again.
    """
    import cupy

    exchange.barrier()
    if exchange.rank == exchange.size - 1:
        exchange._api.swap = lambda *given: os.kill(os.getpid(), how)  # type: ignore[attr-defined]
    threading.Timer(0.3, aborted.set).start()
    began = time.monotonic()
    try:
        exchange.alltoallv([cupy.zeros(1 << 24)] * exchange.size)
    except Aborted:
        exchange.close()
        return time.monotonic() - began, int(cupy.arange(1000).sum())
    raise AssertionError("nobody was missed")


def nobody_else_comes(exchange: Exchange, aborted: threading.Event) -> tuple[float, str, int]:
    """One rank of two initialises NCCL alone: seconds until it is free again, what it was told, a sum on the device."""
    import cupy

    from mgraph.device import Device
    from mgraph.errors import WorkerLost
    from mgraph.exchange.nccl import NcclExchange

    lonely = NcclExchange(0, 2, aborted.is_set, Device("cuda"), patience=2)
    began = time.monotonic()
    try:
        lonely.connect([lonely.address, lonely.address])
    except WorkerLost as error:
        lonely.close()
        return time.monotonic() - began, str(error), int(cupy.arange(1000).sum())
    raise AssertionError("somebody came")


STOPPED = signal.SIGSTOP
KILLED = signal.SIGKILL
