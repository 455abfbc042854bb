"""A hash of a set of edges that does not depend on their order: the sum of the hashes of the edges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.device import Array, Device
from mgraph.kernels import load
from mgraph.splitmix import mix64
from mgraph.structures import Csr, Structure
from mgraph.worker.shard.shard import Shard

__all__ = ["edge_hash", "fingerprint"]

#: the most and the fewest edges hashed at once, from 8 times as many rows at most; a longer row is hashed at once, too
CHUNK, LEAST = 1 << 24, 1 << 13
BYTES = 80  #: an upper bound of the bytes that an edge of a chunk needs


def edge_hash(structure: Structure, lo: int = 0, names: Array = None, hashes: Array = None) -> int:
    """The sum of ``mix64(src << 32 | dst)`` over a structure's edges, modulo 2**64.

    With `hashes` it is the sum of ``mix64(hashes[src] + mix64(hashes[dst]))``.

    O(n_rows + m), with one or two read-backs for each chunk. Needs about 60 bytes an edge of a chunk, and 16 bytes a
    row. Chunks are smaller if there is little memory.

    Parameters
    ----------
    structure : Structure
    lo : int
        The id of row 0.
    names : uint32[n_vertices], optional
        The id to hash in place of each id.
    hashes : uint64[n_vertices], optional
        A hash of each vertex's key, by the id that `names` gives.
    """
    device, total = structure.device, 0
    chunk = min(CHUNK, max(LEAST, device.memory_free // (2 * BYTES)))
    for at in range(0, structure.n_rows, 8 * chunk):
        rows = device.arange(at, min(at + 8 * chunk, structure.n_rows), np.uint32)
        for first, end in pairwise(_cuts(structure, rows, chunk)):
            csr = structure.neighbors(rows[first:end])
            with device.taking(BYTES * len(csr.dst), f"the hashes of {len(csr.dst)} edges"):
                total += _hashed(device, csr, lo + at + first, names, hashes)
    return total % 2**64


def _cuts(structure: Structure, rows: Array, chunk: int) -> list[int]:
    """Where ascending rows are cut, so that each part has about `chunk` edges, or one row."""
    device, degrees = structure.device, structure.degrees(rows)
    ends = device.cumsum(degrees, out=device.empty(len(rows), np.int64))
    goals = device.asarray(np.arange(chunk, int(ends[-1]), chunk))
    cuts = device.to_host(device.xp.searchsorted(ends, goals)).tolist()
    return np.unique([0, *cuts, len(rows)]).tolist()


def _hashed(device: Device, csr: Csr, lo: int, names: Array, hashes: Array) -> int:
    """The sum of the hashes of the edges of rows from `lo` on."""
    n, keys = len(csr.dst), device.empty(len(csr.dst), np.uint64)
    load(device, "kernels/arcs.cuh").RowKeys(
        n, offsets=csr.offsets, dst=csr.dst, n=n, rows=len(csr.offsets) - 1, lo=lo, keys=keys
    )
    if names is not None:
        keys = names[keys >> np.uint64(32)].astype(np.uint64) << np.uint64(32) | names[csr.dst]
    if hashes is not None:
        keys = hashes[keys >> np.uint64(32)] + mix64(hashes[keys & np.uint64(0xFFFFFFFF)])
    return int(mix64(keys).sum(dtype=np.uint64))


def fingerprint(shard: Shard, hashes: np.ndarray | None = None) -> int:
    """`edge_hash` of the shard's arcs, by users' ids, or by the `hashes` of their keys."""
    names = None
    if shard.order is not None:
        names = shard.device.empty(shard.n_vertices, np.uint32)
        ids = shard.device.arange(0, shard.n_vertices, np.uint32)
        shard.device.scatter(names, shard.order, ids)
    return edge_hash(shard.out_edges, shard.lo, names, None if hashes is None else shard.device.asarray(hashes))
