"""Access to a worker's Dask data from a shard's thread."""

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
    """A worker's data by key, for other threads.

    A look-up runs on the worker's event loop, which owns the mapping. Spilled data are read back there, as for a task,
    if they fit into memory.

    Parameters
    ----------
    data : mapping
        The worker's data.
    loop : asyncio.AbstractEventLoop
        The worker's event loop.
    budget : Budget
    nbytes : callable
        Returns the size of a key's value in memory, as Dask measures it.
    """

    def __init__(
        self, data: Mapping[str, Any], loop: asyncio.AbstractEventLoop, budget: Budget, nbytes: Callable[[str], int]
    ) -> None:
        self._store, self._loop, self._budget, self._nbytes = data, loop, budget, nbytes

    def get(self, key: str, aborted: Callable[[], bool]) -> Any:
        """Return the value of a key.

        Raises
        ------
        WorkerLost
            The value is no longer on this worker.
        CapacityError
            The value was spilled and does not fit into memory.
        Aborted
            `aborted` became true during the wait.
        """
        # Poll, so that an aborted call ends.
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
        """Return a key's value; memory for a spilled one is reserved first."""
        if key in getattr(self._store, "fast", self._store):
            return self._store[key]
        with self._budget.reserve(self._nbytes(key), f"the part {key!r}, which Dask has spilled"):
            return self._store[key]
