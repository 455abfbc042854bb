"""A program of meetings, and ranks as threads that run it together."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from spmd import Meeting, thread_exchange

from mgraph.device import Device
from mgraph.exchange import Exchange
from mgraph.kernels import load
from mgraph.partition import Partition

PROGRAM = str(Path(__file__).with_name("meetings.cuh"))
ROOM = 64
LIMIT = 60
ENDLESS = 1 << 40  #: rounds


def meet(
    exchange: Exchange, device: Device, rounds: int = 9, messages: int = 5, room: int = ROOM, bits: int = 32,
    rows: int = 100, ends: np.ndarray | None = None, common: int = 0,
) -> dict[str, int]:  # fmt: skip
    """Run the program of meetings, with `common` bytes of an array of all ranks; its last state."""
    own, partition = exchange.world(device), Partition.equal(rows * exchange.size, exchange.size)
    layout = own.layout(partition, room, bits // 8, {"common": common} if common else {}, bitmap=4096)
    return own.run(
        load(device, PROGRAM, MESSAGE_BITS=bits), "Meetings", layout, 100, rounds=rounds, messages=messages,
        bitmap=layout.offsets["bitmap"], ends=device.zeros(1, np.int64) if ends is None else ends,
    )  # fmt: skip


def together(
    size: int,
    work: Callable[[Exchange, Device], Any],
    mapped: bool | str = True,
    aborted: Callable[[], bool] = lambda: False,
) -> list[Any]:
    """What `work` returned or raised on each rank, a thread each."""
    meeting, device = Meeting(size), Device("cpu", threads=2)
    exchanges = [thread_exchange(rank, size, meeting, aborted, device, mapped) for rank in range(size)]
    try:
        with ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(work, exchange, device) for exchange in exchanges]
            return [future.exception(LIMIT) or future.result() for future in futures]
    finally:
        for exchange in exchanges:
            exchange.close()


def until(done: Callable[[], Any]) -> None:
    """Wait until `done` returns a true value."""
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end
        time.sleep(1e-3)
