"""What the workers of a cluster say of the graphs that are published there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from distributed.protocol.pickle import dumps

from mgraph.client.connections.opening import reach
from mgraph.tasks import published

__all__ = ["found"]

Value = dict[str, Any]


async def found(addresses: Iterable[str], connection_args: Value, seconds: float, end: str | None) -> list[Value]:
    """What each worker says of its part of each published graph, with its `address`; within `seconds`.

    The graph with the name `end` is not published any more. Workers that do not answer are left out.
    """
    said = await asyncio.gather(*(_said(address, connection_args, seconds, end) for address in addresses))
    return [{**one, "address": address} for address, parts in said for one in parts]


async def _said(address: str, connection_args: Value, seconds: float, end: str | None) -> tuple[str, list[Value]]:
    try:
        async with asyncio.timeout(seconds):
            comm = await reach(address, seconds, connection_args)
            try:
                # as `Client.run` does: a handler of mgraph's plugin would be unknown on a worker without it
                call = {"function": dumps(published), "kwargs": dumps({"end": end})}
                await comm.write({"op": "run", **call, "wait": True, "reply": True})
                answer = await comm.read()
            finally:
                await comm.close()
    except OSError:  # TimeoutError and Dask's CommClosedError are OSErrors
        return address, []
    parts = answer.get("result") if isinstance(answer, dict) else None
    return address, list(parts) if isinstance(parts, list | tuple) else []  # an error where mgraph is not installed
