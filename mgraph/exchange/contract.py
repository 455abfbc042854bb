"""The one contract of worker-to-worker communication; DESIGN calls an implementation an exchange.

An exchange belongs to one shard and is used by the shard's thread alone; its calls block that thread. All ranks make
the same calls in the same order (SPMD), or get `ExchangeError`. Arrays are one-dimensional, contiguous and on the
exchange's device; the dtype of a call is the same on every rank. Counts travel with the data or ahead of it as host
memory, never as a device read-back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from mgraph.errors import MgraphError

__all__ = ["Array", "Exchange", "ExchangeError"]

Array = Any  #: a NumPy array, or a CuPy array where the exchange's device is a GPU


class ExchangeError(MgraphError, RuntimeError):
    """The ranks did not make the same call with the same dtype in the same step, or belong to different attempts."""


class Exchange(ABC):
    """Collectives among the ranks of one graph.

    Life: construct (may open a transport, contacts nobody), hand `address` to every other rank by whatever means,
    `connect` with everybody's, use, `close`. Each wait polls `aborted` at least every 50 ms and raises `Aborted`; after
    that only `close` may be called, and buffers given to a call may be reused once `close` has returned.

    Attributes
    ----------
    rank, size : int
        This rank's number, 0 .. size - 1, and how many there are.
    """

    name: ClassVar[str]
    rank: int
    size: int

    def __init__(self, rank: int, size: int, aborted: Callable[[], bool]) -> None:
        self.rank, self.size, self.aborted = rank, size, aborted

    @property
    @abstractmethod
    def address(self) -> bytes:
        """What the other ranks need in order to reach this one."""

    @abstractmethod
    def connect(self, addresses: Sequence[bytes]) -> None:
        """Reach every other rank; `addresses` is in rank order and includes this rank's own."""

    @abstractmethod
    def alltoallv(self, parts: Sequence[Array]) -> list[Array]:
        """Send ``parts[r]`` to rank r; returns what each rank sent here, in rank order, of any length, zero included.

        This rank's own part comes back as the same array. Device buffers are complete before they leave: the
        implementation waits for the device's stream where its transport is not ordered by it, and says so.
        """

    @abstractmethod
    def allgather(self, part: Array) -> list[Array]:
        """Every rank's `part`, in rank order; lengths may differ. This rank's own comes back as the same array."""

    @abstractmethod
    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray:
        """Elementwise "sum", "min" or "max" of a small host array over the ranks; the same on every rank, bit for bit.

        Reduced in rank order, so float sums do not depend on timing.
        """

    def barrier(self) -> None:
        """Return once every rank has called this."""
        self.allreduce(np.zeros(1, np.int8), "max")

    @abstractmethod
    def close(self) -> None:
        """Free the transport; callable at any time, also twice. Never waits for another rank."""
