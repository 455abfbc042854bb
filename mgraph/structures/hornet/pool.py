"""hornet's pool: slots cut into block arrays with trees of free blocks, and plans of new pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError
from mgraph.growing import Growables
from mgraph.kernels import Struct, View, constants
from mgraph.parallel_copy import copy
from mgraph.structures.contract import HUB_DEGREE

__all__ = ["CLASSES", "LEAST_BITS", "MOST_BITS", "HornetPool", "Needs", "Rebuild", "plan_build", "plan_rebuild"]

Array = Any
Hornet = Any  # the class in structure.py, which imports this module

_SOURCE = constants("structures/hornet/layout.cuh", HUB_DEGREE=HUB_DEGREE)
CLASSES = _SOURCE["classes"]
BARE = _SOURCE["bare"]
CHUNK_ROWS = _SOURCE["chunk_rows"]
PIECE = 2048  #: rows per tile in the search of their keys
UNITS = 8  #: number of units: 1 to 128 slots
ADDRESSES = 1 << 32  #: blocks and units of slots have numbers of 32 bits
LEAST_BITS, MOST_BITS = 5, 26  #: log2 of an array's slots; it has at least a word of leaf bits
ARRAYS = 12  #: log2 of a pool's approximate number of arrays: each batch that allocates reads every array's root
LEAST_SPARE = 256  #: minimum of slots in a new pool's bare arrays
STEP_SHARE = 32  #: divisor of the arrays: minimum step of growth in place, since each costs some launches
MOST_ARRAYS = 4 << ARRAYS  #: maximum for growth in place; a new pool has larger and fewer arrays


class HornetPool(NamedTuple):
    """Slots, cut into block arrays of ``1 << bits`` slots (``arrays.cuh``)."""

    bits: int
    unit: int
    grows: Growables  # owner of the six arrays
    slots: Array
    weights: Array
    kinds: Array
    frees: Array
    leaves: Array
    nodes: Array

    @classmethod
    def empty(cls, device: Device, bits: int, unit: int, count: int, weighted: bool) -> HornetPool:
        """Allocate a pool of uninitialized arrays. `CapacityError` if memory runs out."""
        kinds = (np.uint32, np.float32 if weighted else None, *(np.uint32,) * 4)
        grows = Growables(device, kinds, _sizes(bits, unit, count))
        return cls(bits, unit, grows, *grows.arrays)

    def longer(self, device: Device, lack: int) -> HornetPool | None:
        """Grow the pool in place by at least `lack` bare arrays; None if addresses or memory run out."""
        count = self.arrays + max(lack, self.arrays // STEP_SHARE)
        if count > MOST_ARRAYS or count << self.bits >> self.unit > ADDRESSES:
            return None
        old, new = (_sizes(self.bits, self.unit, n) for n in (self.arrays, count))
        longer = self.grows.longer(self[3:], new)
        if longer is None:
            return None

        # The new arrays are bare.
        pool = HornetPool(self.bits, self.unit, self.grows, *longer)
        pool.kinds[self.arrays :] = device.asarray(np.full(count - self.arrays, BARE, np.uint32))
        device.fill(pool.frees[self.arrays :], 0)
        device.fill(pool.leaves[old[4] :], 0)
        device.fill(pool.nodes[old[5] :], 0)
        return pool

    def clone(self, device: Device) -> HornetPool:
        """Return a copy of the pool. `CapacityError` if memory runs out."""
        pool = HornetPool.empty(device, self.bits, self.unit, self.arrays, self.weights is not None)
        for target, source in zip(pool[3:], self[3:], strict=True):
            if source is not None:
                copy(target, source)
        return pool

    @property
    def arrays(self) -> int:
        """The number of block arrays."""
        return len(self.kinds)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(a.nbytes) for a in self if hasattr(a, "nbytes"))

    def struct(self) -> Struct:
        """Return the block arrays for kernels."""
        return Struct(
            kinds=self.kinds, frees=self.frees, leaves=self.leaves, nodes=self.nodes,
            count=self.arrays, bits=self.bits, unit=self.unit,
        )  # fmt: skip


def _sizes(bits: int, unit: int, count: int) -> tuple[int, ...]:
    """Return the lengths of slots, weights, kinds, frees, leaves and nodes of `count` arrays."""
    words = 1 << (bits - unit - 5)
    return (count << bits, count << bits, count, count, count * words, count * -(-words // 32))


class Needs(NamedTuple):
    """Blocks and arrays needed by a batch, and the pool's totals."""

    taken: int  # blocks
    slots: int  # gained by the rows' blocks
    opens: int  # bare arrays to open
    spans: int  # consecutive bare arrays for larger blocks
    bare: int
    end: int  # one past the last array in use

    def lack(self, pool: HornetPool) -> int:
        """Return the number of bare arrays that the pool must gain behind its last."""
        return max(self.spans - (pool.arrays - self.end), self.spans + self.opens - self.bare, 0)


class Layout(NamedTuple):
    """Starts of a new pool's classes."""

    bits: int
    unit: int
    first: np.ndarray  # first array, by class; at the end, the number in use
    smaller: np.ndarray  # rows of lower classes; at the end, all
    slots: int  # slots of all rows' blocks

    @classmethod
    def of(cls, rows: np.ndarray, bits: int | None, unit: int) -> Layout:
        """Return the layout for the number of rows by class."""
        slots = int((rows << np.arange(CLASSES)).sum())
        if bits is None:
            bits = min(max(slots.bit_length() - ARRAYS, LEAST_BITS + unit), MOST_BITS)
        bits = max(bits, LEAST_BITS + unit)
        classes = np.arange(CLASSES)
        blocks = 1 << np.maximum(bits - classes, 0)
        arrays = -(-rows // blocks) << np.maximum(classes - bits, 0)
        return cls(bits, unit, _before(arrays), _before(rows), slots)


def _before(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@dataclass
class Rebuild:
    """New pool for all rows, their words in it, and data to fill it."""

    pool: HornetPool
    rows: Array
    used: int  # slots of the rows' blocks
    changed: Array = None  # bitmap of rows that a batch changes
    tasks: Array = None
    n_tasks: Array = None
    numbers: Struct | None = None  # only for a first batch
    starts: Array = None

    def target(self) -> Struct:
        """Return the pool for kernels that fill it."""
        return Struct(rows=self.rows, ids=self.pool.slots, weights=self.pool.weights, unit=self.pool.unit)


def plan_rebuild(s: Hornet, graph: View, batch: Struct | None = None) -> Rebuild:
    """Plan a new pool with all rows as they are after a batch. O(n_rows), a read-back."""
    device, kernels, rows = s.device, s.kernels["layout"], s.n_rows
    degrees, changed = device.empty(rows, np.uint32), None
    kernels.CopyDegrees(rows, graph=graph, rows=rows, degrees=degrees)
    if batch is not None:
        changed = device.zeros(rows // 32 + 1, np.uint32)
        kernels.ChangeDegrees(batch.values["n"], batch=batch, degrees=degrees, changed=changed)
    new = _lay_out(s, degrees)
    new.changed = changed
    new.tasks, new.n_tasks = device.empty(2 * s.num_edges // HUB_DEGREE, np.uint64), device.zeros(1, np.int64)
    return new


def plan_build(s: Hornet, run: Any, numbers: Struct) -> Rebuild:
    """Plan the pool of an empty structure's first batch. O(n_rows), a read-back."""
    device, kernels, rows = s.device, s.kernels["layout"], s.n_rows
    starts, degrees = device.empty(rows + 1, np.int64), device.empty(rows, np.uint32)
    kernels.FirstDegrees(
        -(-(rows + 1) // PIECE), numbers=numbers, keys=run.keys, entries=rows + 1, piece=PIECE, starts=starts
    )
    kernels.SubtractStarts(rows, starts=starts, rows=rows, degrees=degrees)
    new = _lay_out(s, degrees)
    new.numbers, new.starts = numbers, starts
    return new


def _lay_out(s: Hornet, degrees: Array) -> Rebuild:
    """Return a new pool with a block for each row."""
    # Count the rows of each class, with the smallest unit whose 32-bit addresses suffice.
    device, kernels, rows = s.device, s.kernels["layout"], s.n_rows
    chunks, bits = -(-rows // CHUNK_ROWS), s.array and s.array.bit_length() - 1
    counts, words = device.empty(CLASSES * chunks + 1, np.uint32), device.empty(rows, np.uint64)
    for unit in range(UNITS):
        device.fill(counts, 0)
        kernels.CountRows(chunks, degrees=degrees, rows=rows, unit=unit, chunks=chunks, counts=counts[1:])
        device.cumsum(counts, out=counts)
        ends = device.to_host(counts[:: max(chunks, 1)]).astype(np.int64) if chunks else np.zeros(CLASSES + 1, np.int64)
        layout = Layout.of(np.diff(ends), bits, unit)
        used = int(layout.first[-1])
        count = used + max(int(used * s.spare), 1, LEAST_SPARE >> layout.bits)
        if count << layout.bits >> unit <= ADDRESSES:
            break
    else:
        raise CapacityError(
            f"blocks of {layout.slots} slots; 32-bit addresses allow {ADDRESSES << (UNITS - 1)} at most"
        )

    # Allocate the pool, place the rows, and mark the arrays in use.
    pool = HornetPool.empty(device, layout.bits, unit, count, s.weighted)
    where = {"first": device.asarray(layout.first), "smaller": device.asarray(layout.smaller)}
    kernels.PlaceRows(
        chunks, degrees=degrees, rows=rows, chunks=chunks, counts=counts, **where, bits=layout.bits, unit=unit,
        words=words,
    )  # fmt: skip
    kernels.SetArrays(count, arrays=pool.struct(), **where)
    return Rebuild(pool, words, layout.slots)
