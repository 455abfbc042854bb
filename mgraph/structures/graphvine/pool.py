"""graphvine's pool of slots, queues of free pieces, and plans of new pools."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError
from mgraph.growing import Growables
from mgraph.kernels import Struct, constants
from mgraph.parallel_copy import copy

__all__ = ["CLASSES", "GraphVinePool", "Needs", "Queues", "Rebuild", "plan_rebuild", "quanta_of"]

Array = Any
_COUNTERS = constants("structures/graphvine/batch.cuh")
POPS, DIRECTORIES, PUSHES, FILLED = (_COUNTERS[name] for name in ("pop0", "directories", "push0", "filled"))  # words
CLASSES = DIRECTORIES - POPS  # sizes of pieces: a quarter, a half, a block; 1, 2 and 4 quanta
RING_SHARE = 32  # quanta of the pool per piece in a ring; if more are given back, the pool is rebuilt
STEP_SHARE = 32  # divisor of the pool's size: minimum step of growth in place, since each costs some launches
LEAST_STEP = 1 << 19  # minimum step in slots: the grain of a GPU's memory


def quanta_of(pieces: Sequence[int]) -> int:
    """Return the number of quanta, from the pieces of each class."""
    return sum(p << c for c, p in enumerate(pieces))


class GraphVinePool(NamedTuple):
    """Slots with weights and children. A block has ``1 << shift`` slots, a quantum a quarter."""

    shift: int
    quanta: int
    rings: Array
    grows: Growables  # owner of the slots, the weights and the children
    slots: Array
    weights: Array
    children: Array

    @classmethod
    def empty(cls, device: Device, shift: int, quanta: int, weighted: bool, tree: bool) -> GraphVinePool:
        """Allocate a pool of uninitialized slots. `CapacityError` if addresses or memory run out."""
        if quanta >= 1 << 32:
            raise CapacityError(f"{quanta} quarters of blocks of {1 << shift} edges; 32-bit addresses allow {1 << 32}")
        slots = quanta << (shift - 2)
        kinds = (np.uint32, np.float32 if weighted else None, np.uint32 if tree else None)
        grows = Growables(device, kinds, (slots, slots, _children(quanta)))
        return cls(shift, quanta, device.empty(CLASSES * _ring(quanta), np.uint32), grows, *grows.arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(a.nbytes) for a in self.arrays)

    def enlarged(self, device: Device, needs: int) -> GraphVinePool | None:
        """Allocate a pool larger by a quarter, or of `needs` quanta if a quarter is too little or too much.

        None if memory has no quarter more and this pool holds `needs`; `CapacityError` if neither pool does.
        """
        kind = (self.weights is not None, self.children is not None)
        with suppress(CapacityError):
            return GraphVinePool.empty(device, self.shift, max(self.quanta + self.quanta // 4, needs), *kind)
        return GraphVinePool.empty(device, self.shift, needs, *kind) if needs > self.quanta else None

    def longer(self, device: Device, needs: int) -> GraphVinePool | None:
        """Grow the pool in place to `needs` quanta or more; None if addresses or memory run out."""
        more = max(self.quanta // STEP_SHARE, LEAST_STEP >> (self.shift - 2))
        quanta = min(max(needs, self.quanta + more), (1 << 32) - 1)
        slots = quanta << (self.shift - 2)
        longer = self.grows.longer(self[4:], (slots, slots, _children(quanta)))
        if longer is None:
            return None
        with suppress(CapacityError):
            rings = device.empty(CLASSES * _ring(quanta), np.uint32)
            return GraphVinePool(self.shift, quanta, rings, self.grows, *longer)
        return None

    def clone(self, device: Device, used: int) -> GraphVinePool:
        """Return a copy of the pool, whose first `used` quanta hold data. `CapacityError` if memory runs out."""
        kind = self.weights is not None, self.children is not None
        pool = GraphVinePool.empty(device, self.shift, self.quanta, *kind)
        lengths = (used << (self.shift - 2),) * 2 + (_children(used), len(self.rings))
        names = ("slots", "weights", "children", "rings")
        for name, n in zip(names, lengths, strict=True):
            target, source = getattr(pool, name), getattr(self, name)
            if source is not None:
                copy(target[:n], source[:n])
        return pool

    def move(self, old: GraphVinePool, queues: Queues) -> Queues:
        """Copy all pieces of `old` to the same places; returns the queues. Allocates nothing."""
        if self.grows is not old.grows:
            for new, array in zip(self.arrays[:-1], old.arrays[:-1], strict=True):
                new[: len(array)] = array
        # Unroll each ring, so that it begins at its head.
        for c, (head, waiting) in enumerate(zip(queues.head, queues.waiting, strict=True)):
            ring, first = old.rings[c * old.ring :], min(waiting, old.ring - head)
            to = self.rings[c * self.ring :]
            to[:first], to[first:waiting] = ring[head : head + first], ring[: waiting - first]
        return Queues(waiting=queues.waiting, fresh=queues.fresh)

    @property
    def ring(self) -> int:
        """Entries per ring."""
        return len(self.rings) // CLASSES

    @property
    def arrays(self) -> list[Array]:
        """All arrays of the pool."""
        return [a for a in (self.slots, self.weights, self.children, self.rings) if a is not None]


def _ring(quanta: int) -> int:
    return max(64, quanta // RING_SHARE) if quanta else 0


def _children(quanta: int) -> int:
    return quanta // 2 + 2


@dataclass(frozen=True)
class Needs:
    """Pieces popped and pushed by a batch, by class; quanta of new directories; rows that get their first edges."""

    pops: tuple[int, ...]
    directories: int
    pushes: tuple[int, ...]
    filled: int

    @classmethod
    def read(cls, words: Sequence[int]) -> Needs:
        """Decode the counters of ``batch.cuh``."""
        pops, pushes = tuple(words[POPS:DIRECTORIES]), tuple(words[PUSHES:FILLED])
        return cls(pops, words[DIRECTORIES], pushes, words[FILLED])

    @property
    def quanta(self) -> int:
        """The number of quanta that the rows' blocks gain."""
        return quanta_of(self.pops) - quanta_of(self.pushes)


@dataclass(frozen=True)
class Queues:
    """Head and length of each ring, and the first quantum never used."""

    head: tuple[int, ...] = (0,) * CLASSES
    waiting: tuple[int, ...] = (0,) * CLASSES
    fresh: int = 0

    def missing(self, needs: Needs) -> tuple[int, ...]:
        """Return the pieces of each class that the rings lack; they are cut from fresh quanta."""
        return tuple(max(p - w, 0) for p, w in zip(needs.pops, self.waiting, strict=True))

    def after(self, needs: Needs, ring: int) -> Queues:
        """Return the queues after a batch."""
        missing = self.missing(needs)
        taken = [p - m for p, m in zip(needs.pops, missing, strict=True)]
        return Queues(
            tuple((h + t) % ring for h, t in zip(self.head, taken, strict=True)),
            tuple(w - t + p for w, t, p in zip(self.waiting, taken, needs.pushes, strict=True)),
            self.end(needs),
        )

    def fit(self, needs: Needs, pool: GraphVinePool) -> bool:
        """Return True if pool and rings suffice for a batch.

        Pieces pushed never overwrite those that the same batch pops.
        """
        room = all(w + p <= pool.ring for w, p in zip(self.waiting, needs.pushes, strict=True))
        return room and self.end(needs) <= pool.quanta

    def end(self, needs: Needs) -> int:
        """Return the first quantum unused after a batch."""
        return self.fresh + quanta_of(self.missing(needs)) + needs.directories

    def struct(self, needs: Needs, pool: GraphVinePool) -> Struct:
        """Return the queues for kernels: fresh pieces class after class, then directories."""
        (h0, h1, h2), (w0, w1, w2), (m0, m1, _) = self.head, self.waiting, self.missing(needs)
        first, second = self.fresh + m0, self.fresh + m0 + 2 * m1
        return Struct(
            rings=pool.rings, length=pool.ring, head0=h0, head1=h1, head2=h2, waiting0=w0, waiting1=w1, waiting2=w2,
            fresh0=self.fresh, fresh1=first, fresh2=second, fresh_directories=self.end(needs) - needs.directories,
        )  # fmt: skip


@dataclass
class Rebuild:
    """New pool for all rows, and each row's place in it."""

    pool: GraphVinePool
    sentinels: Array
    grown: Array  # number of positions of each row
    places: Array
    used: int  # quanta of blocks and directories
    live: int  # quanta of blocks


def plan_rebuild(s: Any, shift: int, least: int, batch: Struct | None = None, keys: int = 0) -> Rebuild:
    """Plan a new pool with all rows as they are after a batch. O(n_rows), a read-back."""
    # Count each row's positions after the batch.
    n, device, kernels, graph = s.n_rows, s.device, s.kernels["prepare"], s.view()
    sentinels, grown = device.zeros(len(s.sentinels), np.uint64), device.zeros(len(s.sentinels), np.uint32)
    words = device.zeros(n + 2, np.int64)  # each row's place, the end of all, and what directories take
    places, total = words[:-1], words[-1:]
    kernels.CopySentinels(n, graph=graph, n=n, sentinels_out=sentinels, grown=grown)
    if batch is not None:
        kernels.GrowRows(keys, graph=graph, batch=batch, sentinels_out=sentinels, grown=grown)

    # Place the rows at the prefix sums of their quanta.
    out = Struct(**{**graph.values, "shift": shift})
    kernels.CountQuanta(n, graph=out, grown=grown, n=n, places=places, total=total)
    device.cumsum(places, out=places)
    used, directories = device.to_host(words[-2:]).tolist()
    kernels.PlaceRows(n, places=places, n=n, sentinels_out=sentinels)

    # Allocate the pool, with spare room.
    quanta = max(least, used + int(used * s.spare))
    if s.share and not s.pool.quanta:
        quanta = max(quanta, int(s.share * device.memory_free) // ((8 if s.weighted else 4) << (shift - 2)))
    pool = GraphVinePool.empty(device, shift, quanta, s.weighted, not s.directory)
    return Rebuild(pool, sentinels, grown, places, used, used - directories)
