"""Order-independent hash of a set of edges: the sum of the edges' hashes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.device import Array, Device
from mgraph.kernels import load
from mgraph.splitmix import mix64
from mgraph.structures import Csr, Structure
from mgraph.worker.shard.shard import Shard

__all__ = ["edge_hash", "fingerprint"]

#: maximum and minimum of edges per chunk, of at most 8 times as many rows; a longer row is a chunk of its own
CHUNK, LEAST = 1 << 24, 1 << 13
BYTES = 80  #: upper bound of the bytes per edge of a chunk


def edge_hash(structure: Structure, lo: int = 0, names: Array = None, hashes: Array = None) -> int:
    """Return the sum of ``mix64(src << 32 | dst)`` over a structure's edges, modulo 2**64.

    With `hashes` it is the sum of ``mix64(hashes[src] + mix64(hashes[dst]))``.

    O(n_rows + m), with one or two read-backs per chunk. Needs about 60 bytes per edge of a chunk, and 16 bytes per row.
    Chunks are smaller if memory is scarce.

    Parameters
    ----------
    structure : Structure
    lo : int
        The id of row 0.
    names : uint32[n_vertices], optional
        The id to hash instead of each id.
    hashes : uint64[n_vertices], optional
        A hash of each vertex's key, by the ids in `names`.
    """
    # Hash chunks of rows of bounded size.
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
    """Return where to cut ascending rows, so that each part has about `chunk` edges."""
    device, degrees = structure.device, structure.degrees(rows)
    ends = device.cumsum(degrees, out=device.empty(len(rows), np.int64))
    goals = device.asarray(np.arange(chunk, int(ends[-1]), chunk))
    cuts = device.to_host(device.xp.searchsorted(ends, goals)).tolist()
    return np.unique([0, *cuts, len(rows)]).tolist()


def _hashed(device: Device, csr: Csr, lo: int, names: Array, hashes: Array) -> int:
    """Return the sum of the hashes of the edges in rows from `lo` on."""
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
    """Hash the shard's arcs with `edge_hash`, by users' ids or by `hashes` of their keys."""
    names = None
    if shard.order is not None:
        names = shard.device.empty(shard.n_vertices, np.uint32)
        ids = shard.device.arange(0, shard.n_vertices, np.uint32)
        shard.device.scatter(names, shard.order, ids)
    return edge_hash(shard.out_edges, shard.lo, names, None if hashes is None else shard.device.asarray(hashes))
