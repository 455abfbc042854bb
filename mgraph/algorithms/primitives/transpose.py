"""In-edges for a call: the out-edges of all ranks, reversed, sent to the owners of their destinations and sorted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array, Device
from mgraph.kernels import View, load
from mgraph.structures import Run, Structure

__all__ = ["CsrRows", "alike", "sample_rows", "transposed"]

ROOM = 32  #: bytes per arc while the keys are sorted: keys, the sort's buffers, and the CSR that they come from


@dataclass(frozen=True)
class CsrRows:
    """Edges of the own vertices as a CSR, with the structure's interface for kernels.

    Attributes
    ----------
    offsets : int64[hi - lo + 1]
        Row i is ``ids[offsets[i] : offsets[i + 1]]``.
    ids : uint32[num_edges]
        The other ends of each vertex's edges.
    weights : float32[num_edges] or None
    sorted_rows : bool
        True if the ids of a row ascend.
    """

    offsets: Array
    ids: Array
    weights: Array = None
    sorted_rows: bool = True

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return len(self.ids)

    def view(self) -> View:
        """Return the view of the rows for kernels."""
        fields = {"offsets": self.offsets, "dst": self.ids, "weights": self.weights}
        return View("structures/csr/view.cuh", "CsrView", fields)


def alike(shard: Shard, edges: list[Structure | CsrRows]) -> list[Structure | CsrRows]:
    """Return the edges in the same kind of rows: in-edges that were made for the call are a CSR."""
    if len({side.view().type for side in edges}) == 1:
        return edges
    csr = shard.out_edges.to_csr()
    return [side if isinstance(side, CsrRows) else CsrRows(csr.offsets, csr.dst) for side in edges]


def transposed(shard: Shard) -> CsrRows | None:
    """Return the in-edges of the own vertices; None on every rank if any rank has too little memory.

    O(m log m): a sort of 8 bytes per arc; on several ranks also an alltoallv and a second sort (529M arcs on one H200:
    59 ms). Needs 32 bytes per arc while it runs. The result takes 4 bytes per arc and 8 bytes per owned vertex.
    """
    # Reverse and sort the own arcs.
    if not _fits(shard, ROOM * shard.out_edges.num_edges):
        return None
    keys = _turned(shard.device, _keys(shard))

    # Send them to the owners of their destinations, and sort again.
    if shard.size > 1:
        parts = [part.keys for part in Run(keys).split(shard.partition.starts)]
        coming = shard.exchange.allreduce(np.array([len(part) for part in parts], np.int64))
        if not _fits(shard, ROOM * int(coming[shard.rank])):
            return None
        keys = shard.device.concatenate(shard.exchange.alltoallv(parts))
        shard.device.sort(keys)
    return _rows(shard.device, keys, shard.lo, shard.hi)


def sample_rows(device: Device) -> CsrRows:
    """Return the rows of a graph of one vertex.

    This compiles the launches of `transposed`, and gives a view.
    """
    return _rows(device, _turned(device, device.zeros(1, np.uint64)), 0, 1)


def _fits(shard: Shard, nbytes: int) -> bool:
    """Return True if every rank has the memory it needs, `nbytes` on this one.

    An allreduce.
    """
    left = shard.exchange.allreduce(np.array([shard.device.memory_free - nbytes], np.int64), "min")
    return int(left[0]) >= 0


def _keys(shard: Shard) -> Array:
    """Return the own out-edges' keys ``src << 32 | dst``: uint64[m]."""
    csr, device = shard.out_edges.to_csr(), shard.device
    keys = device.empty(len(csr.dst), np.uint64)
    load(device, "kernels/arcs.cuh").RowKeys(
        len(keys), offsets=csr.offsets, dst=csr.dst, n=len(keys), rows=shard.hi - shard.lo, lo=shard.lo, keys=keys
    )
    return keys


def _turned(device: Device, keys: Array) -> Array:
    """Swap source and destination of `keys`, and sort: ``dst << 32 | src``, in place."""
    sources = device.xp.right_shift(keys, np.uint64(32), out=device.empty(len(keys), np.uint64))
    keys <<= np.uint64(32)
    keys |= sources
    del sources
    device.sort(keys)
    return keys


def _rows(device: Device, keys: Array, lo: int, hi: int) -> CsrRows:
    offsets = device.empty(hi + 1 - lo, np.int64)
    for part in device.slices(len(offsets)):
        first = device.arange(lo + part.start, lo + part.stop, np.uint64)
        first <<= np.uint64(32)
        with device.taking(first.nbytes, f"the places of {len(first)} rows"):
            offsets[part] = device.xp.searchsorted(keys, first)
    return CsrRows(offsets, device.astype(keys, np.uint32))
