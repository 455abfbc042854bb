"""What ranks in processes of their own do: at module level, so that a spawned process finds it."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

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


def timings(exchange: Exchange, aborted: threading.Event, sizes: list[int], device: str = "cpu") -> dict[Any, float]:
    """Median seconds of an alltoallv of so many bytes to each rank, and of an allreduce of 8 B."""
    import importlib

    xp = importlib.import_module("numpy" if device == "cpu" else "cupy")
    times: dict[Any, float] = {}
    for n in sizes:
        parts = [xp.full(n, exchange.rank, np.uint8) for _ in range(exchange.size)]
        times[n] = median(lambda parts=parts: exchange.alltoallv(parts), exchange, 200 if n < 1 << 16 else 12)
    times["allreduce"] = median(lambda: exchange.allreduce(np.ones(1)), exchange, 200)
    return times


def median(call: Callable[[], Any], exchange: Exchange, repeats: int) -> float:
    """Median seconds of `call`, which is a collective, after five calls that do not count."""
    for _ in range(5):
        call()
    exchange.barrier()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    exchange.barrier()
    return statistics.median(taken)


def table(title: str, times: list[dict[Any, float]], size: int) -> str:
    """The slowest rank's medians as a table: microseconds, and GB/s sent by each rank to the others."""
    lines = [title]
    for what in times[0]:
        seconds = max(rank[what] for rank in times)
        rate = f"{what * (size - 1) / seconds / 1e9:10.2f} GB/s" if isinstance(what, int) else ""
        name = f"alltoallv, {what} B a rank" if isinstance(what, int) else "allreduce, 8 B"
        lines.append(f"  {name:32s}{seconds * 1e6:12.1f} us{rate}")
    return "\n".join(lines)


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
