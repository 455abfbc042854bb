"""Invariants of slabgraph, numbered as in ``structure.py``, asserted on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.kernels import constants
from mgraph.structures.slabgraph.pool import ROW

__all__ = ["check_slabgraph"]

SlabGraph = Any  # the class in structure.py, which imports this module

_SOURCE = constants("structures/slabgraph/view.cuh")
NONE, HEADER = _SOURCE["no_edge"], _SOURCE["header"]


def mix(ids: np.ndarray) -> np.ndarray:
    """Hash integers below 2**32 like ``mix`` of ``view.cuh``: uint32[n]."""
    x = ids.astype(np.uint32)
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D)
    x = (x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B)
    return x ^ x >> np.uint32(16)


def most_edges(rows: np.ndarray, buckets: np.ndarray, slots: int, limit: int) -> np.ndarray:
    """Return the capacity in edges of each row's table, at the load factor of a rebuild."""
    percent = limit - 8 + (mix(rows) & 15).astype(np.int64)
    return np.where(buckets == 1, slots, buckets * slots * percent // 100)


@dataclass
class _Host:
    """Structure on the host: words as a matrix; each bucket's row, number there and first slab."""

    words: np.ndarray
    degrees: np.ndarray
    buckets: np.ndarray
    row: np.ndarray
    number: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, s: SlabGraph) -> _Host:
        table, buckets, degrees = s.device.to_host(s.rows).reshape(-1, ROW).T.astype(np.int64)
        row = np.repeat(np.arange(s.n_rows), buckets)
        number = np.arange(len(row)) - np.repeat(np.cumsum(buckets) - buckets, buckets)
        first = table[row] + number
        return cls(s.device.to_host(s.pool.words).reshape(-1, s.words), degrees, buckets, row, number, first)

    def chains(self, tail: int) -> tuple[np.ndarray, np.ndarray]:
        """Return every chained slab and its bucket, the first slabs first."""
        slab, bucket = self.first, np.arange(len(self.first))
        slabs, buckets, n = [slab], [bucket], len(slab)
        while len(slab):  # one link of every chain at a time
            assert slab.max() < tail, "2: a chain past the tail"
            assert n <= tail, "2: a chain without end"
            more = self.words[slab, 0] != NONE
            slab, bucket = self.words[slab[more], 0].astype(np.int64), bucket[more]
            slabs.append(slab)
            buckets.append(bucket)
            n += len(slab)
        return np.concatenate(slabs), np.concatenate(buckets)


def check_slabgraph(s: SlabGraph) -> None:
    """Assert every invariant of `s`. O(n_rows + slabs)."""
    # Totals.
    host, to_host = _Host.of(s), s.device.to_host
    degrees, (n_free, tail, n_holes, *lengths) = host.degrees, to_host(s.supply).tolist()
    assert degrees.sum(dtype=np.int64) == s.num_edges, "1: degrees and edges"
    assert (degrees <= most_edges(np.arange(s.n_rows), host.buckets, s.slots, s.limit)).all(), "1: degree and table"
    assert 0 <= n_free <= tail <= s.pool.slabs == len(host.words), "2: sizes"
    assert host.buckets.sum() == s.buckets, "2: buckets"

    # Every slab below the tail is in a chain, free, or in a hole.
    slab, bucket = host.chains(tail)
    holes = _holes(to_host(s.pool.holes), lengths)
    assert len(holes) == n_holes, "2: slabs in holes"
    free = np.concatenate([to_host(s.pool.free)[:n_free].astype(np.int64), holes])
    assert np.array_equal(np.sort(np.concatenate([slab, free])), np.arange(tail)), "2: a slab is lost, or in two places"

    # Contents: edges in their buckets, free slabs clear.
    live = host.words[slab, HEADER:] != NONE
    assert (host.words[slab, 1] == NONE).all(), "4: an edge waits"
    assert (host.words[free] == NONE).all(), "5: a free slab is not clear"
    assert (host.words[tail:] == NONE).all(), "5: past the tail"
    _check_edges(s, host, host.words[slab, HEADER:][live], np.repeat(bucket, live.sum(1)), degrees)
    assert (s.pool.weights is not None) == s.weighted, "6: weights"
    if s.pool.weights is not None:
        assert s.pool.weights.shape == s.pool.words.shape, "6: length"
        weights = to_host(s.pool.weights).reshape(-1, s.words)
        assert not np.isnan(weights[slab, HEADER:][live]).any(), "6: NaN"


def _holes(entries: np.ndarray, lengths: list[int]) -> np.ndarray:
    """Return all slabs of the holes, after a check of their sizes."""
    assert lengths[0] == 0, "2: holes of class 0"
    slabs = [np.zeros(0, np.int64)]
    for c, n in enumerate(lengths):
        if c > 0:
            holes = entries[(1 << c - 1) - 1 :: 1 << c][:n]
            assert len(holes) == n, "2: more holes than there is room for"
            first, size = (holes >> np.uint64(32)).astype(np.int64), (holes & np.uint64(0xFFFFFFFF)).astype(np.int64)
            assert ((size >> c) == 1).all(), "2: a hole of another class"
            slabs.append(np.repeat(first - np.cumsum(size) + size, size) + np.arange(size.sum()))
    return np.concatenate(slabs)


def _check_edges(s: SlabGraph, host: _Host, dst: np.ndarray, bucket: np.ndarray, degrees: np.ndarray) -> None:
    row = host.row[bucket]
    assert not len(dst) or dst.max() < s.n_vertices, "3: dst"
    assert len(np.unique(row.astype(np.uint64) << np.uint64(32) | dst)) == len(dst), "3: an edge twice"
    assert (np.bincount(row, minlength=s.n_rows) == degrees).all(), "3: degrees"
    wanted = mix(dst).astype(np.uint64) * host.buckets[row].astype(np.uint64) >> np.uint64(32)
    assert (wanted == host.number[bucket].astype(np.uint64)).all(), "3: an edge in another's bucket"
