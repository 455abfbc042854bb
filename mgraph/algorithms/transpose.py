"""In-edges for one call: the out-edges of all ranks, turned round and sorted into rows of the own vertices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.contract import Shard
from mgraph.device import Array, Device
from mgraph.kernels import View, load
from mgraph.structures import Run

__all__ = ["Rows", "some_rows", "transposed"]

ROOM = 32  #: bytes an arc while its keys are sorted, with the sort's own and what the rows were read from


@dataclass(frozen=True)
class Rows:
    """Rows of the own vertices as a plain CSR: what the kernels of an algorithm need of a structure.

    Attributes
    ----------
    offsets : int64[hi - lo + 1]
    ids : uint32[num_edges]
        The sources of each vertex's in-edges, ascending.
    """

    offsets: Array
    ids: Array
    sorted_rows = True

    @property
    def num_edges(self) -> int:
        """How many in-edges."""
        return len(self.ids)

    def view(self) -> View:
        """What kernels read."""
        return View("csr_view.cuh", "CsrView", {"offsets": self.offsets, "dst": self.ids, "weights": None})


def transposed(shard: Shard) -> Rows | None:
    """The in-edges of the own vertices; None, on every rank alike, where some rank has no room to make them.

    O(m log m): one sort of 8 bytes an arc, on several ranks an alltoallv and another (529M arcs, one H200: 59 ms).
    Needs 32 bytes an arc meanwhile, keeps 4 an arc and 8 an owned vertex.
    """
    if not _fits(shard, ROOM * shard.out_edges.num_edges):
        return None
    keys = _turned(_keys(shard))
    if shard.size > 1:
        parts = [part.keys for part in Run(keys).split(shard.partition.starts)]
        coming = shard.exchange.allreduce(np.array([len(part) for part in parts], np.int64))
        if not _fits(shard, ROOM * int(coming[shard.rank])):
            return None
        keys = shard.device.xp.concatenate(shard.exchange.alltoallv(parts))
        keys.sort()
    return _rows(shard.device, keys, shard.lo, shard.hi)


def some_rows(device: Device) -> Rows:
    """Rows of one vertex, made as any are: so that what makes them is compiled, and kernels for them can be."""
    return _rows(device, _turned(device.zeros(1, np.uint64)), 0, 1)


def _fits(shard: Shard, nbytes: int) -> bool:
    """Whether every rank has so much memory left; an allreduce."""
    left = shard.exchange.allreduce(np.array([shard.device.memory_free - nbytes], np.int64), "min")
    return int(left[0]) >= 0


def _keys(shard: Shard) -> Array:
    """The keys of the own out-edges: uint64[m], ``src << 32 | dst``."""
    csr, device = shard.out_edges.to_csr(), shard.device
    keys = device.empty(len(csr.dst), np.uint64)
    load(device, "arcs.cuh").RowKeys(
        len(keys), offsets=csr.offsets, dst=csr.dst, n=len(keys), rows=shard.hi - shard.lo, lo=shard.lo, keys=keys
    )
    return keys


def _turned(keys: Array) -> Array:
    """`keys` as seen from their destinations, ``dst << 32 | src``, sorted, in their place."""
    sources = keys >> np.uint64(32)
    keys <<= np.uint64(32)
    keys |= sources
    del sources
    keys.sort()
    return keys


def _rows(device: Device, keys: Array, lo: int, hi: int) -> Rows:
    first = device.xp.arange(lo, hi + 1, dtype=np.uint64) << np.uint64(32)
    return Rows(device.xp.searchsorted(keys, first).astype(np.int64, copy=False), keys.astype(np.uint32))
