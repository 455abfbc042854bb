"""A hash of a set of edges that does not depend on their order: the sum of each edge's own hash."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.device import Array
from mgraph.kernels import load
from mgraph.runtime.shard import Shard
from mgraph.structures import Structure

__all__ = ["edge_hash", "fingerprint", "mix"]

CHUNK, LEAST = 1 << 24, 1 << 16  #: edges hashed at once, or those of one row where it has more
BYTES = 80  #: an edge of a chunk takes less


def mix(keys: Array) -> Array:
    """SplitMix64's finaliser: uint64 to uint64, one to one, every bit depending on every bit."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def edge_hash(structure: Structure, lo: int = 0, names: Array = None) -> int:
    """The sum of ``mix(src << 32 | dst)`` over a structure's edges, modulo 2**64.

    O(n_rows + m), a read-back a chunk; takes some 60 bytes an edge of a chunk, which is smaller where memory is short.

    Parameters
    ----------
    structure : Structure
    lo : int
        The id of its row 0.
    names : uint32[n_vertices], optional
        What each id is to be called.
    """
    device, total = structure.device, 0
    xp, ends = device.xp, device.xp.cumsum(structure.degrees(), dtype=np.int64)
    chunk = min(CHUNK, max(LEAST, device.memory_free // (2 * BYTES)))
    goals = device.asarray(np.arange(chunk, structure.num_edges, chunk))
    cuts = np.unique([0, *device.to_host(xp.searchsorted(ends, goals)).tolist(), structure.n_rows]).tolist()
    for first, end in pairwise(cuts):
        csr = structure.neighbors(xp.arange(first, end, dtype=np.uint32))
        n, keys = len(csr.dst), device.empty(len(csr.dst), np.uint64)
        load(device, "arcs.cuh").RowKeys(
            n, offsets=csr.offsets, dst=csr.dst, n=n, rows=end - first, lo=lo + first, keys=keys
        )
        if names is not None:
            keys = names[keys >> np.uint64(32)].astype(np.uint64) << np.uint64(32) | names[csr.dst]
        total += int(mix(keys).sum(dtype=np.uint64))
    return total % 2**64


def fingerprint(shard: Shard) -> int:
    """`edge_hash` of the shard's arcs in users' ids."""
    names = None
    if shard.order is not None:
        names = shard.device.empty(shard.n_vertices, np.uint32)
        names[shard.order] = shard.device.xp.arange(shard.n_vertices, dtype=np.uint32)
    return edge_hash(shard.out_edges, shard.lo, names)
