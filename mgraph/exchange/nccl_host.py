"""Collectives of host arrays through NCCL and small device buffers, for an exchange without a second transport."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from mgraph.errors import Aborted
from mgraph.exchange.contract import Array, Exchange, ExchangeError
from mgraph.exchange.rules import call_code, check_op, reduce_ranks, said
from mgraph.exchange.waiting import wait_until

__all__ = ["HostOverNccl"]

ROW = 1024  #: bytes that each rank sends in the first round

_HEAD = struct.Struct("<Qq")  # the code of the call, the number of items


class Owner(Protocol):
    """The attributes of an `NcclExchange` that `HostOverNccl` uses."""

    rank: int
    size: int
    _api: Any
    _comm: Any

    @property
    def aborted(self) -> Callable[[], bool]:
        """A function that waits poll; see `Exchange`."""


class HostOverNccl(Exchange):
    """`allgather` and `allreduce` of host arrays of equal lengths, over the communicator of an `NcclExchange`.

    In a first round each rank sends `ROW` bytes: a head, and the array if it fits. Longer arrays are sent in a second
    round. A round is a copy to the device, an all-gather and a copy back, on the calling thread's current stream.
    """

    name: ClassVar[str] = "nccl"

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner.rank, owner.size, owner.aborted)
        self._owner = owner

    @property
    def address(self) -> bytes:
        """The rank; the owner's communicator needs nothing else."""
        return str(self.rank).encode()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Do nothing, since the owner connects the communicator."""

    def alltoallv(self, parts: Sequence[Array]) -> list[Array]:
        """Raise `ExchangeError`: not available for host arrays."""
        raise ExchangeError("an alltoallv of host arrays is not available over NCCL")

    def allgather(self, part: Array) -> list[Array]:
        """See `Exchange.allgather`; all ranks must have the same length, else `ExchangeError` is raised."""
        return self._rows("allgather", part)

    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray:
        """See `Exchange.allreduce`."""
        check_op(op)
        flat = np.ascontiguousarray(values).reshape(-1)
        return reduce_ranks(self._rows(op, flat), op).reshape(np.shape(values))

    def close(self) -> None:
        """Do nothing, since the owner destroys the communicator."""

    def _rows(self, call: str, part: np.ndarray) -> list[np.ndarray]:
        code, data = call_code(call, part.dtype), part.view(np.uint8)
        row = np.zeros(ROW, np.uint8)
        row[: _HEAD.size] = np.frombuffer(_HEAD.pack(code, part.size), np.uint8)
        inside = _HEAD.size + part.nbytes <= ROW
        if inside:
            row[_HEAD.size : _HEAD.size + part.nbytes] = data
        rows = self._gather(row)
        for rank in range(self.size):
            theirs, items = _HEAD.unpack_from(rows[rank])
            if (theirs, items) != (code, part.size):
                raise ExchangeError(
                    f"rank {self.rank} is in {said(code)} of {part.size} items and rank {rank} in {said(theirs)} "
                    f"of {items}"
                )
        rows = rows[:, _HEAD.size : _HEAD.size + part.nbytes] if inside else self._gather(data)
        return [np.ascontiguousarray(r).view(part.dtype) for r in rows.copy()]

    def _gather(self, row: np.ndarray) -> np.ndarray:
        owner = self._owner
        rows = owner._api.gather(owner._comm, self.size, row)
        owner._api.mark()
        wait_until(owner._api.done, self._look)
        return rows

    def _look(self) -> None:
        if self.aborted():
            raise Aborted(f"rank {self.rank} was aborted while it waited for the other ranks' counts or values")
        self._owner._comm.check_async_error()
