"""Dask data that lie on a worker, read by a shard's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any

from mgraph.errors import Aborted, WorkerLost

__all__ = ["DaskData"]

POLL_SECONDS = 0.05


class DaskData:
    """Looks keys up in a worker's data.

    The look-up runs on the worker's event loop, because the mapping belongs to it; what was spilled is read back there,
    as for any task.
    """

    def __init__(self, data: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = data, loop

    def get(self, key: str, aborted: Callable[[], bool]) -> Any:
        """The value of a key; `WorkerLost` where it is not here any more, `Aborted` where the waiting was ended."""
        future = asyncio.run_coroutine_threadsafe(self._get(key), self._loop)
        while not aborted():
            try:
                return future.result(POLL_SECONDS)
            except KeyError:
                raise WorkerLost(f"the part {key!r} is not on its worker any more") from None
            except TimeoutError:
                if not self._loop.is_running():
                    break
            except CancelledError:
                break
        future.cancel()
        raise Aborted(f"the call was aborted while it waited for the part {key!r}")

    async def _get(self, key: str) -> Any:
        return self._store[key]
