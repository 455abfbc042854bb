"""Interface of worker-to-worker communication. An implementation is an *exchange*.

An exchange belongs to one shard and is used by the shard's thread only; its calls block that thread. All ranks make the
same calls in the same order (SPMD), or get `ExchangeError`. Arrays are one-dimensional, contiguous and on the
exchange's device; the dtype of a call is the same on every rank. The lengths of parts are sent with the data or before
it from host memory, and are never read back from a device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.exchange.cargo import Cargo, swap_cargo
from mgraph.exchange.links import Link
from mgraph.exchange.world import World

__all__ = ["Array", "Exchange"]

_REDUCE = {"sum": np.add, "min": np.minimum, "max": np.maximum}
Array = Any  #: a NumPy array, or a CuPy array where the exchange's device is a GPU


class Exchange(ABC):
    """Collectives among the ranks of a graph.

    Use: construct it, which may open a transport but contacts no rank; send `address` to every other rank; call
    `connect` with the addresses of all ranks; call collectives; `close` it. Every wait polls `aborted` at least every
    50 ms and raises `Aborted` if it is true. After that only `close` may be called; buffers given to a call may be
    reused once `close` has returned.

    Attributes
    ----------
    rank, size : int
        This rank's number, 0 .. size - 1, and the number of ranks.
    mates : tuple of int
        The ranks that map each other's memory, of which this rank is one.
    names : sequence of int
        The numbers of the ranks in messages to users.
    """

    name: ClassVar[str]
    rank: int
    size: int
    mates: tuple[int, ...]
    _world: World | None = None

    def __init__(self, rank: int, size: int, aborted: Callable[[], bool], names: Sequence[int] | None = None) -> None:
        self.rank, self.size, self.aborted, self.mates = rank, size, aborted, (rank,)
        self.names = names or range(size)

    @property
    @abstractmethod
    def address(self) -> bytes:
        """The address with which other ranks `connect` to this one."""

    @abstractmethod
    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect to every other rank.

        `addresses` is in rank order and includes this rank's own.
        """

    @abstractmethod
    def alltoallv(self, parts: Sequence[Array], lengths: np.ndarray | None = None) -> list[Array]:
        """Send ``parts[r]`` to each rank r, and return the parts for this rank in rank order of their senders.

        Parts may have any length, including zero. The own part is returned as the same array. If all ranks know the
        lengths of all parts, ``lengths[sender, receiver]`` may save a message. Parts on a device are sent once their
        data are complete: an implementation whose transport does not follow the device's stream waits for the stream.
        """

    @abstractmethod
    def allgather(self, part: Array) -> list[Array]:
        """Return every rank's `part`, in rank order. Lengths may differ; the own part is the same array."""

    @abstractmethod
    def gather_values(self, values: np.ndarray, call: str) -> list[np.ndarray]:
        """Return every rank's small host array, in rank order; the own one is the same array.

        Lengths may differ. `call` is the collective's name, the same on every rank. Does not wait for the device.
        """

    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray:
        """Return the elementwise "sum", "min" or "max" of a small host array over all ranks, equal on every rank.

        The reduction is in rank order, so sums of floats do not depend on timing.
        """
        if op not in _REDUCE:
            raise InvalidOption(f"allreduce op {op!r} is none of {', '.join(_REDUCE)}")
        flat, total = np.ascontiguousarray(values).reshape(-1), None
        for theirs in self.gather_values(flat, op):
            total = theirs.copy() if total is None else _REDUCE[op](total, theirs, out=total)
        assert total is not None
        return total.reshape(np.shape(values))

    def least(self, value: int) -> int:
        """Return the smallest `value` of all ranks. Values are below 2**63."""
        values = np.empty(1, np.int64)  # an allreduce of arrays takes 10 us longer
        values[0] = value
        return min([theirs.item() for theirs in self.gather_values(values, "min")])

    def barrier(self) -> None:
        """Wait for every rank to call this."""
        self.allreduce(np.zeros(1, np.int8), "max")

    def swap_values(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Send the small host array ``parts[r]`` to each rank r. Does not wait for the device. uint8."""
        return self.alltoallv(parts)

    def carry(self, words: np.ndarray, cargo: Cargo) -> list[np.ndarray]:
        """Return the words of every rank, int64[k], and carry the cargo of a meeting to ranks that are no mates.

        Cargo is loaded once all mates have finished their writes, and is unloaded on return. One message per pair of
        groups of mates; without groups, each rank is a group.
        """
        every = swap_cargo(self, [(r,) for r in range(self.size)], {self.rank: words}, cargo)
        return [every[r] for r in range(self.size)]

    def links(self) -> list[Link] | None:
        """Return this rank's links to other groups of mates, in the order of their use.

        None if programs cannot use its connections; `carry` is called then.
        """
        return None

    def world(self, device: Device) -> World:
        """Return the `World` in which programs run on all ranks together.

        The first call creates it, on all ranks. Every rank calls it with its own device, once the exchange is
        connected.
        """
        if self._world is None:
            self._world = World(self, device)
        return self._world

    @property
    def world_nbytes(self) -> int:
        """The bytes of this rank's memory for programs: its region, and the words of its links to other groups."""
        return 0 if self._world is None else self._world.nbytes

    def close_world(self) -> None:
        """Free the world."""
        if self._world is not None:
            self._world.close()

    @abstractmethod
    def close(self) -> None:
        """Free the transport.

        May be called at any time, also twice; never waits for another rank.
        """
