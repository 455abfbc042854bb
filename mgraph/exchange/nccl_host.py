"""Host collectives through NCCL and small device buffers, for an exchange that has no second transport."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mgraph.errors import Aborted
from mgraph.exchange.contract import Array, Exchange, ExchangeError
from mgraph.exchange.rules import call_code, check_op, reduce_ranks, said
from mgraph.exchange.waiting import wait_until

if TYPE_CHECKING:
    from mgraph.exchange.nccl import NcclExchange

__all__ = ["HostOverNccl"]

ROW = 1024  #: bytes that each rank puts into the first round

_HEAD = struct.Struct("<Qq")  # code of the call, items


class HostOverNccl(Exchange):
    """`allgather` and `allreduce` of host arrays, all of the same length, over the communicator of an `NcclExchange`.

    One round of `ROW` bytes a rank, the head and as much as fits; a second one for longer arrays. A round is a copy to
    the device, an all-gather and a copy back, in the order of the calling thread's stream.
    """

    name: ClassVar[str] = "nccl"

    def __init__(self, owner: NcclExchange) -> None:
        super().__init__(owner.rank, owner.size, owner.aborted)
        self._owner = owner

    @property
    def address(self) -> bytes:
        """The rank: nothing else is needed to reach it."""
        return str(self.rank).encode()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Nothing: the communicator is the owner's."""

    def alltoallv(self, parts: Sequence[Array]) -> list[Array]:
        """Not for host arrays."""
        raise ExchangeError("an alltoallv of host arrays does not go over NCCL")

    def allgather(self, part: Array) -> list[Array]:
        """See `Exchange.allgather`; lengths may not differ here."""
        return self._rows("allgather", part)

    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray:
        """See `Exchange.allreduce`."""
        check_op(op)
        flat = np.ascontiguousarray(values).reshape(-1)
        return reduce_ranks(self._rows(op, flat), op).reshape(np.shape(values))

    def close(self) -> None:
        """Nothing: the communicator is the owner's."""

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
