"""Conformance: sizes and shapes: empty, huge, one row, one edge, the last id."""

from __future__ import annotations

import numpy as np
from edge_model import Model, check_csr, edges, random_batch, scaled, step

from mgraph.batch import MAX_VERTICES, EdgeBatch
from mgraph.device import Device
from mgraph.structures import Counts


class Shapes:
    def test_growth_from_empty_and_shrinking_to_nothing(self, make):
        n, rng = scaled(20_000), np.random.default_rng(5)
        s, total = make(5000), 0
        everything = np.zeros(0, np.uint64)
        for size in (1, 10, 100, 1000, n // 4, n):
            batch = random_batch(s, rng, size, inserts=1.0, skew=3)
            keys = batch.src.astype(np.uint64) << np.uint64(32) | batch.dst
            new = np.setdiff1d(keys, everything)
            assert s.insert(batch) == Counts(inserted=len(new), updated=len(np.unique(keys)) - len(new))
            everything = np.union1d(everything, keys)
            s.check_invariants()
        most = s.nbytes
        for keep in (0.9, 0.5, 0.01, 0.0):
            dead = rng.random(len(everything)) >= keep
            total, gone = int(dead.sum()), everything[dead]
            batch = EdgeBatch(gone >> np.uint64(32), gone & np.uint64(0xFFFFFFFF))
            assert s.delete(batch) == Counts(deleted=total)
            everything = everything[~dead]
            s.check_invariants()
            csr = s.to_csr()
            row = np.repeat(np.arange(s.n_rows, dtype=np.uint64), np.diff(Device.to_host(csr.offsets)))
            assert (np.sort(row << np.uint64(32) | Device.to_host(csr.dst)) == everything).all()
        assert s.num_edges == 0
        assert s.nbytes < most

    def test_everything_deleted_and_filled_again(self, make):
        s, model = make.full(50, 800)
        step(s, model, edges(s, list(model.edges), op=[-1] * len(model.edges)))
        assert s.num_edges == 0
        step(s, model, edges(s, [(49, 49), (0, 0)], [2, 3]))

    def test_one_vertex(self, make):
        s, model = make(1), Model()
        assert step(s, model, edges(s, [(0, 0)], [3])) == Counts(inserted=1)
        assert step(s, model, edges(s, [(0, 0)], op=[-1])) == Counts(deleted=1)

    def test_zero_vertices(self, make):
        s, model = make(0), Model()
        assert step(s, model, edges(s, [])) == Counts()
        assert s.degrees().shape == (0,)
        s.add_vertices(2)
        step(s, model, edges(s, [(1, 0)]))

    def test_self_loops(self, make):
        s, model = make(100), Model()
        step(s, model, edges(s, [(v, v) for v in range(100)]))
        step(s, model, edges(s, [(v, v) for v in range(0, 100, 3)], op=[-1] * 34))

    def test_hub(self, make):
        n = scaled(40_000)
        s = make(n)
        ids = np.random.default_rng(2).permutation(n).astype(np.uint32)
        hub = np.full(n, n // 2, np.uint32)
        assert s.insert(EdgeBatch(hub, ids)) == Counts(inserted=n)
        assert s.insert(EdgeBatch(ids, ids)) == Counts(inserted=n - 1, updated=1)
        assert s.delete(EdgeBatch(hub[: n // 2], ids[: n // 2])) == Counts(deleted=n // 2)
        loops = np.ones(n, np.int64)
        kept = np.union1d(ids[n // 2 :], [n // 2] if n // 2 not in ids[: n // 2] else [])
        loops[n // 2] = len(kept)
        dst = np.concatenate([np.arange(n // 2), kept, np.arange(n // 2 + 1, n)])
        check_csr(s, np.concatenate([[0], np.cumsum(loops)]), dst, np.ones(len(dst), np.float32))

    def test_ids_at_the_limit(self, make):
        s, model = make(MAX_VERTICES, n_rows=3), Model()
        last = MAX_VERTICES - 1
        step(s, model, edges(s, [(0, last), (2, last), (1, 0), (2, last - 1), (0, 1 << 31)]))
        assert Device.to_host(s.has_edges([2, 1, 0], [last, last, last])).tolist() == [True, False, True]
        step(s, model, edges(s, [(0, last), (1, last)], [2, 3], op=[-1, 1]))
