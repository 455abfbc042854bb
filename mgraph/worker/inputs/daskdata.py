"""Reading a worker's Dask data from a shard's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any

from mgraph.budget import Budget
from mgraph.errors import Aborted, WorkerLost

__all__ = ["DaskData"]

POLL_SECONDS = 0.05  #: between two checks of `aborted`


class DaskData:
    """The data of a worker by key, for other threads.

    A look-up runs on the worker's event loop, which owns the mapping. Spilled data are read back there, as for a task,
    if there is memory for them.

    Parameters
    ----------
    data : mapping
        The worker's data.
    loop : asyncio.AbstractEventLoop
        The worker's event loop.
    budget : Budget
    nbytes : callable
        Returns the bytes that a key's value takes in memory, as Dask measures them.
    """

    def __init__(
        self, data: Mapping[str, Any], loop: asyncio.AbstractEventLoop, budget: Budget, nbytes: Callable[[str], int]
    ) -> None:
        self._store, self._loop, self._budget, self._nbytes = data, loop, budget, nbytes

    def get(self, key: str, aborted: Callable[[], bool]) -> Any:
        """The value of a key.

        Raises
        ------
        WorkerLost
            It is no longer on this worker.
        CapacityError
            It was spilled, and there is too little memory to read it back.
        Aborted
            `aborted` became true while it waited.
        """
        future = asyncio.run_coroutine_threadsafe(self._get(key), self._loop)
        while not aborted():
            try:
                return future.result(POLL_SECONDS)
            except KeyError:
                raise WorkerLost(f"the part {key!r} is no longer on its worker; was a worker lost?") from None
            except TimeoutError:
                if not self._loop.is_running():
                    break
            except CancelledError:
                break
        future.cancel()
        raise Aborted(f"the call was aborted while it waited for the part {key!r}")

    async def _get(self, key: str) -> Any:
        if key in getattr(self._store, "fast", self._store):
            return self._store[key]
        with self._budget.reserve(self._nbytes(key), f"the part {key!r}, which Dask has spilled"):
            return self._store[key]
