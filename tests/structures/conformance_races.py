"""Conformance: batches in which as many lanes as can be want the same row, slot or edge; every count must be exact.

On a GPU a batch is a million operations, enough that all multiprocessors work on it at once.
"""

from __future__ import annotations

import numpy as np
from edge_model import ordered, scaled

from mgraph.batch import EdgeBatch
from mgraph.structures import Counts, Structure

GPU_EDGES, CPU_EDGES = 1_000_000, 20_000


def size(s: Structure) -> int:
    return GPU_EDGES if s.device.kind == "cuda" else scaled(CPU_EDGES)


def check_keys(s: Structure, keys: np.ndarray) -> None:
    """Assert that `s` holds just the edges of these ascending keys, and its invariants."""
    s.check_invariants()
    assert s.num_edges == len(keys)
    offsets, dst, _ = ordered(s.to_csr())
    row = np.repeat(np.arange(s.n_rows, dtype=np.uint64), np.diff(offsets))
    np.testing.assert_array_equal(row << np.uint64(32) | dst, keys)


class Races:
    def test_one_edge_a_million_times(self, make):
        s = make(9, n_rows=3)
        one, n = np.array([2 << 32 | 7], np.uint64), size(s)
        src, dst = np.full(n, 2, np.uint32), np.full(n, 7, np.uint32)
        for _ in range(2):
            assert s.insert(EdgeBatch(src, dst)) == Counts(inserted=1)
            assert s.insert(EdgeBatch(src, dst)) == Counts(updated=1)
            check_keys(s, one)
            assert s.delete(EdgeBatch(src, dst)) == Counts(deleted=1)
            assert s.delete(EdgeBatch(src, dst)) == Counts(missing=1)
            check_keys(s, one[:0])

    def test_the_same_edges_come_and_go(self, make):
        s = make(1 << 16)
        rng, n = np.random.default_rng(1), size(s)
        src, dst = (s.n_rows * rng.random(n) ** 6).astype(np.uint32), rng.integers(0, s.n_rows, n, dtype=np.uint32)
        keys = np.unique(src.astype(np.uint64) << np.uint64(32) | dst)
        for turn in range(2):
            assert s.insert(EdgeBatch(src, dst)) == Counts(inserted=len(keys))
            check_keys(s, keys)
            some = slice(turn, None, 2)  # as many go, and others come in the same batch
            gone = np.unique(src[some].astype(np.uint64) << np.uint64(32) | dst[some])
            assert s.delete(EdgeBatch(src[some], dst[some])) == Counts(deleted=len(gone))
            back = EdgeBatch(np.concatenate([src, src]), np.concatenate([dst, dst]), op=np.repeat([-1, 1], n))
            assert s.apply(back) == Counts(inserted=len(gone), updated=len(keys) - len(gone))
            check_keys(s, keys)
            assert s.delete(EdgeBatch(src, dst)) == Counts(deleted=len(keys))
            check_keys(s, keys[:0])

    def test_all_edges_in_one_row(self, make):
        s = make(1 << 21, n_rows=2)
        n = size(s)
        ids = np.random.default_rng(2).permutation(2 * n).astype(np.uint32)
        one = np.ones(2 * n, np.uint32)
        for part in np.split(np.arange(n), [1, n // 9, n // 2]):
            assert s.insert(EdgeBatch(one[part], ids[part])) == Counts(inserted=len(part))
        half = EdgeBatch(one, ids, op=np.where(ids % 2, 1, -1))  # of all ids: half of those that are there go
        there = ids[:n] % 2
        counts = Counts(n - int((there == 1).sum()), int((there == 1).sum()), int((there == 0).sum()), 0)
        missing = n - counts.deleted
        assert s.apply(half) == Counts(counts.inserted, counts.updated, counts.deleted, missing)
        odd = np.arange(1, 2 * n, 2, dtype=np.uint64)
        check_keys(s, odd | np.uint64(1 << 32))
        assert s.delete(EdgeBatch(one, ids)) == Counts(deleted=n, missing=n)
        check_keys(s, odd[:0])
