"""slabgraph's pool of slabs, and moves to another pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError
from mgraph.growing import Growables
from mgraph.kernels import Library, Struct, constants
from mgraph.parallel_copy import copy

__all__ = ["HOLE_CLASSES", "MOST_SLABS", "PIECE_BUCKETS", "ROW", "STATE", "Move", "SlabPool"]

Array = Any
MOST_SLABS = (1 << 32) - 64  # numbers are 32 bits; the highest means no slab, and readers step past the last one
_SOURCE = constants("structures/slabgraph/pool.cuh")
PIECE_BUCKETS = _SOURCE["piece_buckets"]  # buckets of a table per tile
HOLE_CLASSES, STATE = _SOURCE["hole_classes"], _SOURCE["state_words"]
BLOCK_ROWS = _SOURCE["MoveTables::lanes"]  # per block
ROW = _SOURCE.size("Row") // 4  # words of a row: first slab, buckets, degree
# Entries for holes: HOLES, and one per HOLE_SHARE slabs. The first class has half of them, the next one a quarter, and
# so on; the slabs of a hole without an entry are listed one by one.
HOLES, HOLE_SHARE = 256, 32
STEP_SHARE = 32  # divisor of the slabs: minimum step of growth in place, since each costs some launches


class SlabPool(NamedTuple):
    """Memory for slabs.

    Attributes
    ----------
    grows : Growables
        Owner of the arrays.
    words : uint32[slabs * words_of_slab]
    weights : float32, as many, or None
    free : uint32[slabs]
        Room for the numbers of freed slabs.
    holes : uint64[HOLES + slabs // HOLE_SHARE]
        Room for the holes of outgrown tables of several buckets: first slab << 32 | slabs (``holes.cuh``).
    """

    grows: Growables
    words: Array
    weights: Array
    free: Array
    holes: Array

    @classmethod
    def empty(cls, device: Device, slabs: int, words_of_slab: int, weighted: bool) -> SlabPool:
        """Allocate a pool of uninitialized slabs. `CapacityError` if memory runs out."""
        kinds = (np.uint32, np.float32 if weighted else None, np.uint32, np.uint64)
        grows = Growables(device, kinds, _sizes(slabs, words_of_slab))
        return cls(grows, *grows.arrays)

    def longer(self, needs: int, words_of_slab: int) -> SlabPool | None:
        """Grow the pool in place to `needs` slabs or more; None if addresses or memory run out."""
        step = min(self.slabs + self.slabs // STEP_SHARE, MOST_SLABS)
        for slabs in sorted({max(needs, step), needs}, reverse=True):  # a full device may have no room for a step
            longer = self.grows.longer(self[1:], _sizes(slabs, words_of_slab)) if needs <= MOST_SLABS else None
            if longer is not None:
                return SlabPool(self.grows, *longer)
        return None

    def clone(self, device: Device, words_of_slab: int) -> SlabPool:
        """Return a copy of the pool. `CapacityError` if memory runs out."""
        pool = SlabPool.empty(device, self.slabs, words_of_slab, self.weights is not None)
        for target, source in zip(pool[1:], self[1:], strict=True):
            if source is not None:
                copy(target, source)
        return pool

    def supply(self, state: Array, status: Array) -> Struct:
        """Return the pool for kernels that use or free slabs."""
        return Struct(free=self.free, holes=self.holes, entries=len(self.holes), state=state, status=status)

    @property
    def slabs(self) -> int:
        """The number of slabs."""
        return len(self.free)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(a.nbytes) for a in self[1:] if a is not None)


@dataclass
class Move:
    """Move to another pool, with all memory for it.

    Attributes
    ----------
    pool : SlabPool
        The new pool.
    tail, free : int
        The number of slabs to copy unchanged, and of freed ones in the list; 0 and 0 for a compaction, or growth in
        place.
    first : int
        The first slab of the new pool to clear; all after it are cleared too.
    rows, pieces, state : arrays or None
        For a compaction: the new rows, the pieces of tables, and the supply's state after it.
    """

    pool: SlabPool
    tail: int
    free: int
    first: int
    rows: Array = None
    pieces: Array = None
    state: Array = None

    @classmethod
    def grow(cls, old: SlabPool, device: Device, needs: int, words_of_slab: int, tail: int, free: int) -> Move:
        """Return a move to a larger pool of `needs` slabs and some more; slabs keep their numbers."""
        return cls(_larger(old, device, needs, needs // (8 if old.slabs else 16), words_of_slab), tail, free, tail)

    @classmethod
    def compact(
        cls, old: SlabPool, device: Device, needs: int, more: int, words_of_slab: int, rows: Array, buckets: int
    ) -> Move:
        """Return a compaction into a pool of `needs` + `more` slabs, without free slabs and gaps in chains.

        All tables' buckets come first, then the slabs chained to them.
        """
        pool = _larger(old, device, needs, more, words_of_slab)
        pieces = device.empty(len(rows) // ROW + pool.slabs // PIECE_BUCKETS, np.uint64)
        return cls(pool, 0, 0, buckets, device.empty(len(rows), np.uint32), pieces, device.zeros(3, np.int64))

    def run(self, kernels: Library, old: SlabPool, rows: Array, words_of_slab: int) -> None:
        """Move all slabs and rows; allocates nothing, asynchronous on a GPU."""
        # Copy and clear.
        new = self.pool
        kernels.Grow(
            max(self.tail, new.slabs - self.first) * words_of_slab // 4, words=old.words, weights=old.weights,
            free=old.free, holes=old.holes, used=self.tail, first=self.first, n_free=self.free,
            n_holes=len(old.holes) if self.tail else 0, words_out=new.words, weights_out=new.weights,
            free_out=new.free, holes_out=new.holes, n=new.slabs,
        )  # fmt: skip
        if self.rows is None:
            return

        # Compact: tables by blocks of rows, slabs by pieces.
        n = len(rows) // ROW
        kernels.MoveTables(
            -(-n // BLOCK_ROWS), rows=rows, n=n, rows_out=self.rows, pieces=self.pieces,
            state_out=self.state,
        )  # fmt: skip
        kernels.MoveSlabs(
            len(self.pieces), rows=rows, rows_out=self.rows, words=old.words, weights=old.weights,
            words_out=new.words, weights_out=new.weights, pieces=self.pieces, state_out=self.state,
        )  # fmt: skip


def _sizes(slabs: int, words_of_slab: int) -> tuple[int, int, int, int]:
    n = slabs * words_of_slab
    return n, n, slabs, HOLES + slabs // HOLE_SHARE


def _larger(old: SlabPool, device: Device, needs: int, more: int, words_of_slab: int) -> SlabPool:
    if needs > MOST_SLABS:
        raise CapacityError(f"{needs} slabs of {4 * words_of_slab} bytes; their 32-bit numbers allow {MOST_SLABS}")
    return SlabPool.empty(device, min(needs + more, MOST_SLABS), words_of_slab, old.weights is not None)
