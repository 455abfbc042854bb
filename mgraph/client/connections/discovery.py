"""Discovery of published graphs: ask each worker of a cluster for its parts of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from distributed.protocol.pickle import dumps

from mgraph.client.connections.opening import reach
from mgraph.tasks import published

__all__ = ["find_published"]

Value = dict[str, Any]


async def find_published(
    addresses: Iterable[str], connection_args: Value, seconds: float, end: str | None
) -> list[Value]:
    """Return each worker's parts of published graphs, within `seconds`.

    Each part has the worker's `address`. If `end` is given, the workers first withdraw the graph of that name. Workers
    that do not answer are left out.
    """
    answers = await asyncio.gather(*(_ask(address, connection_args, seconds, end) for address in addresses))
    return [{**part, "address": address} for address, parts in answers for part in parts]


async def _ask(address: str, connection_args: Value, seconds: float, end: str | None) -> tuple[str, list[Value]]:
    try:
        async with asyncio.timeout(seconds):
            comm = await reach(address, seconds, connection_args)
            try:
                # Like `Client.run`: a worker without mgraph's plugin would not know a handler of it.
                call = {"function": dumps(published), "kwargs": dumps({"end": end})}
                await comm.write({"op": "run", **call, "wait": True, "reply": True})
                answer = await comm.read()
            finally:
                await comm.close()
    except OSError:
        # TimeoutError and Dask's CommClosedError are OSErrors.
        return address, []
    parts = answer.get("result") if isinstance(answer, dict) else None
    return address, list(parts) if isinstance(parts, list | tuple) else []  # an error if mgraph is not installed
