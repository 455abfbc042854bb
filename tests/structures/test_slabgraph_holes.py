"""slabgraph lays tables in the holes that outgrown tables left, and lists each of their slabs once."""

from __future__ import annotations

import numpy as np
import pytest
from edge_model import random_batch, scaled

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.structures import Counts, create
from mgraph.structures.run import sort_batch
from mgraph.structures.slabgraph import pool

pytestmark = [
    pytest.mark.options,
    pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]),
]
N = 10_000


def row_of(row: int, first: int, end: int) -> EdgeBatch:
    """The edges of one row to `first` to `end` - 1."""
    return EdgeBatch(np.full(end - first, row), np.arange(first, end))


def with_hole(device: str, others: int = 1000, **options):
    """A graph in which row 1 outgrew a table of 48 slabs of 30 slots, and the last rows have an edge each."""
    s = create("slabgraph", N, device=device, slab=128, **options)
    s.insert(EdgeBatch(np.arange(N - others, N), np.arange(others)))
    s.insert(row_of(1, 0, 1000))
    s.insert(row_of(1, 1000, 1500))
    assert holes_of(s) == 48
    return s


def holes_of(s) -> int:
    """How many slabs are in holes."""
    return int(s.supply[2])


@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_tables_are_laid_in_the_hole_that_another_left(device, weighted):
    s = with_hole(device, weighted=weighted)
    tail = int(s.supply[1])
    for row, left in ((2, 33), (3, 18), (4, 0)):
        s.insert(row_of(row, 0, 300))  # 15 slabs; the last 3 become free ones
        assert holes_of(s) == left
    s.insert(row_of(5, 0, 300))
    assert holes_of(s) == 0
    assert int(s.supply[1]) - tail in range(15, 25), "one table, and what is chained"
    s.check_invariants()
    assert Device.to_host(s.degrees())[:6].tolist() == [0, 1500, 300, 300, 300, 300]


def test_tables_of_one_batch_share_a_hole_and_the_tail(device):
    s = with_hole(device)
    row, dst = np.divmod(np.arange(20 * 100), 100)  # 5 slabs each, and one hole: the first that asks gets it
    s.insert(EdgeBatch(row + 2, dst))
    s.check_invariants()
    assert holes_of(s) == 43
    assert Device.to_host(s.has_edges(row + 2, dst)).all()


def test_a_graph_that_grows_is_not_compacted(device, monkeypatch):
    rng, n = np.random.default_rng(7), scaled(40_000)
    s = create("slabgraph", 1 << 15, device=device)
    s.insert(random_batch(s, rng, n, inserts=1.0, skew=4))
    monkeypatch.setattr(pool.Move, "compact", None)
    for _ in range(20):
        s.insert(random_batch(s, rng, n // 20, inserts=1.0, skew=4))
        s.check_invariants()
    found = s.chains()
    assert 8 * found.free < found.slabs


def test_a_compaction_takes_the_hole_of_a_table_of_the_same_batch(device):
    s = with_hole(device, others=0)
    singles = np.arange(1000, 1100)
    src, dst = np.r_[np.full(300, 2), singles], np.r_[np.arange(300), singles]
    plan = s.prepare(sort_batch(s.device, EdgeBatch(src, dst), N, N))
    assert plan.work.before.rows is not None
    assert plan.work.seen.runs == 15
    assert s.commit(plan) == Counts(inserted=400)
    s.check_invariants()
    assert holes_of(s) == 0
    assert Device.to_host(s.has_edges(src, dst)).all()


def test_a_discarded_plan_takes_no_hole(device):
    s = with_hole(device)
    before = s.supply.tolist()
    for _ in range(2):
        s.discard(s.prepare(sort_batch(s.device, row_of(2, 0, 300), N, N)))
    assert s.supply.tolist() == before
    s.insert(row_of(2, 0, 300))
    assert holes_of(s) == 33
    s.check_invariants()


def test_slabs_without_room_among_holes_are_free(device, monkeypatch):
    monkeypatch.setattr(pool, "HOLES", 0)
    s = create("slabgraph", N, device=device, slab=32)
    s.insert(EdgeBatch(np.arange(2000, N), np.arange(2000, N)))
    s.insert(row_of(1, 0, 5000))  # 1191 buckets: of a class that has no entry in a pool of this size
    s.insert(row_of(1, 5000, 9000))
    assert int(s.supply[0]) >= 1191
    assert holes_of(s) == 0
    s.check_invariants()
    tail = int(s.supply[1])
    s.insert(EdgeBatch(np.arange(2, 1000), np.arange(2, 1000)))
    assert int(s.supply[1]) == tail
    s.check_invariants()


def test_few_slabs_are_free_ones_where_hardly_any_is(device):
    s = create("slabgraph", N, device=device, slab=128)
    s.insert(EdgeBatch(np.arange(2000, N), np.arange(2000, N)))
    s.insert(row_of(1, 0, 100))
    s.insert(row_of(1, 100, 200))
    assert holes_of(s) == 0
    assert int(s.supply[0]) >= 5
    s.check_invariants()


def test_deleted_vertices_leave_holes(device):
    s = with_hole(device, others=6000)
    for row in (2, 3):
        s.insert(row_of(row, 0, 1600))  # 77 slabs
    tail, holes = int(s.supply[1]), holes_of(s)
    s.delete_vertices([2, 3, 2])
    s.check_invariants()
    assert (int(s.supply[1]), holes_of(s)) == (tail, holes + 2 * 77)
    s.insert(row_of(4, 0, 1200))  # 58
    assert holes_of(s) == holes + 2 * 77 - 58
    s.check_invariants()


def test_the_pool_grows_by_what_is_needed_where_a_step_has_no_room(device, monkeypatch):
    s = create("slabgraph", N, device=device)
    s.insert(EdgeBatch(np.arange(5000), np.arange(5000)))
    slabs, asked = s.pool.slabs, []

    def longer(self, arrays, sizes):
        asked.append(sizes[2])
        if sizes[2] > slabs + 100:
            return None
        found = [None if a is None else s.device.empty(n, a.dtype) for a, n in zip(arrays, sizes, strict=True)]
        for old, new in zip(arrays, found, strict=True):
            if new is not None:
                new[: len(old)] = old
        return found

    monkeypatch.setattr(pool.Growables, "longer", longer)
    n = slabs - int(s.supply[1]) + 20
    s.insert(EdgeBatch(np.arange(5000, 5000 + n), np.arange(n)))
    assert asked == [slabs + slabs // 32, slabs + 20]
    assert s.pool.slabs == slabs + 20
    s.check_invariants()
