"""slabgraph's pool of slabs: a new one, and what moves from the old one into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError
from mgraph.kernels import Library

__all__ = ["MOST_SLABS", "PIECE_BUCKETS", "Move", "Pool"]

Array = Any
MOST_SLABS = (1 << 32) - 2  # their numbers are 32 bits; the last one stands for none
PIECE_BUCKETS = 4  # of a table, for one tile; as slabgraph_table.cuh has it


class Pool(NamedTuple):
    """Room for slabs.

    Attributes
    ----------
    words : uint32[slabs * words_of_slab]
    weights : float32, as many, or None
    free : uint32[slabs]
        Room for the numbers of slabs that were given back.
    """

    words: Array
    weights: Array
    free: Array

    @classmethod
    def empty(cls, device: Device, slabs: int, words_of_slab: int, weighted: bool) -> Pool:
        """A pool of undefined slabs; `CapacityError` where memory does not suffice."""
        n = slabs * words_of_slab
        words, weights = _aligned(device, n, np.uint32), _aligned(device, n, np.float32) if weighted else None
        return cls(words, weights, device.empty(slabs, np.uint32))

    @property
    def slabs(self) -> int:
        """How many slabs it has."""
        return len(self.free)

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays."""
        return sum(int(a.nbytes) for a in self if a is not None)


@dataclass
class Move:
    """To another pool, with all that moving takes.

    Attributes
    ----------
    pool : Pool
        Where to.
    tail, free : int
        How many slabs are copied as they are, with the list of those given back; 0 and 0 where they are compacted.
    table, pieces, state : arrays or None
        Of a compaction: the new tables of rows, its pieces, and the supply's state after it.
    """

    pool: Pool
    tail: int = 0
    free: int = 0
    table: Array = None
    pieces: Array = None
    state: Array = None

    @classmethod
    def plan(
        cls,
        old: Pool,
        device: Device,
        needs: int,
        words_of_slab: int,
        table: Array | None,
        tail: int = 0,
        free: int = 0,
    ) -> Move:
        """To a pool of `needs` slabs and some more: 1 / 16 for the first one, 1 / 8 for one that grew.

        Compacting, where `table` is given.
        """
        if needs > MOST_SLABS:
            raise CapacityError(f"{needs} slabs of {4 * words_of_slab} bytes; their 32-bit numbers allow {MOST_SLABS}")
        slabs = min(needs + needs // (8 if old.slabs else 16), MOST_SLABS)
        pool = Pool.empty(device, slabs, words_of_slab, old.weights is not None)
        if table is None:
            return cls(pool, tail, free)
        pieces = device.empty(len(table) + slabs // PIECE_BUCKETS, np.uint64)
        return cls(pool, 0, 0, device.empty(len(table), np.uint64), pieces, device.zeros(3, np.int64))

    def run(self, kernels: Library, old: Pool, table: Array, words_of_slab: int) -> None:
        """Move what `old` and `table` hold; allocates nothing, asynchronous on a GPU."""
        new = self.pool
        kernels.Grow(
            new.slabs * words_of_slab // 4, words=old.words, weights=old.weights, free=old.free, used=self.tail,
            n_free=self.free, words_out=new.words, weights_out=new.weights, free_out=new.free, n=new.slabs,
        )  # fmt: skip
        if self.table is None:
            return
        kernels.MoveTables(
            -(-len(table) // 256), table=table, n=len(table), table_out=self.table, pieces=self.pieces,
            state_out=self.state,
        )  # fmt: skip
        kernels.MoveSlabs(
            len(self.pieces), table=table, table_out=self.table, words=old.words, weights=old.weights,
            words_out=new.words, weights_out=new.weights, pieces=self.pieces, state_out=self.state,
        )  # fmt: skip


def _aligned(device: Device, n: int, dtype: Any) -> Array:
    """Undefined elements from a multiple of 128 bytes on, so that no slab lies on more cache lines than it must."""
    if device.kind != "cpu":
        return device.empty(n, dtype)  # always so aligned
    array = device.empty(n + 32, dtype)
    at = -array.ctypes.data % 128 // array.itemsize
    return array[at : at + n]
