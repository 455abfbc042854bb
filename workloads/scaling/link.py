"""Bandwidth of the client's link to the workers: arrays go to bare Dask comms and are dropped there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Client
from distributed.comm import Comm, connect
from distributed.core import Status
from distributed.protocol import to_serialize

__all__ = ["link_rate"]

HANDLER = "workloads_sink"


def link_rate(client: Client, workers: Sequence[str], nbytes: int, messages: int) -> float:
    """Return the bytes per second from this process's memory to all of `workers` at once, over Dask's own comms.

    Each gets `messages` arrays of ``nbytes / len(workers)`` bytes, like from a pipeline of batches, after a warm-up
    message. All are distinct memory: memory that is sent again comes from the processor's cache.
    """
    client.run(_listen, workers=list(workers))
    each = max(1, nbytes // len(workers))
    whole = np.ones((messages + 1) * len(workers) * each, np.uint8)
    parts = whole.reshape(len(workers), messages + 1, each)
    return float(client.sync(_rate, client, list(workers), parts))


def _listen(dask_worker: Any) -> None:
    dask_worker.handlers[HANDLER] = _sink


async def _sink(comm: Comm) -> Status:
    """Read until the client closes. Answer each message that asks for it."""
    try:
        while True:
            message = await comm.read()
            if message["answer"]:
                await comm.write("all here")
    except OSError:
        return Status.dont_reply


async def _rate(client: Client, workers: list[str], parts: np.ndarray) -> float:
    comms = await asyncio.gather(*(connect(address, **client.connection_args) for address in workers))
    # Open the sinks, and warm up.
    try:
        for comm in comms:
            await comm.write({"op": HANDLER, "reply": False})
        await asyncio.gather(*(_send(comm, own[:1]) for comm, own in zip(comms, parts, strict=True)))

        # Send the rest to all at once.
        began = time.perf_counter()
        await asyncio.gather(*(_send(comm, own[1:]) for comm, own in zip(comms, parts, strict=True)))
        return parts[:, 1:].nbytes / (time.perf_counter() - began)
    finally:
        await asyncio.gather(*(comm.close() for comm in comms))


async def _send(comm: Comm, parts: np.ndarray) -> None:
    for at, part in enumerate(parts, 1):
        await comm.write({"answer": at == len(parts), "part": to_serialize(part)})
    await comm.read()
