"""slabgraph passes the conformance suite; its tables, chains and pool follow the edges; broken invariants are found."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import OptionsConformance, StructureConformance
from edge_model import Model, check, edges, random_batch, scaled, step

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.structures import Counts, contract, create
from mgraph.structures.run import sort_batch
from mgraph.structures.slabgraph import pool, scratch, structure
from mgraph.structures.slabgraph.check import mix
from mgraph.structures.slabgraph.scratch import LATE, STATUS

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class TestSlabGraph(StructureConformance):
    name = "slabgraph"


@pytest.mark.slow
@pytest.mark.paper
class TestSlabGraphPlain(OptionsConformance):
    name = "slabgraph"
    options = {"slab": 128}


@pytest.mark.options
class TestSlabGraphShortSlabs(OptionsConformance):
    name = "slabgraph"
    options = {"slab": 32, "load_factor": 0.9, "limit": 1.5}


def colliding(bucket: int, buckets: int, n: int) -> np.ndarray:
    """`n` ids that one bucket of so many gets."""
    ids = np.arange((4 * n + 100) * buckets, dtype=np.uint32)  # of which each gets 4 n + 100, give or take
    return ids[(mix(ids).astype(np.uint64) * np.uint64(buckets) >> np.uint64(32)) == bucket][:n]


def fresh(device: str | Device, n: int = 1000, slab: int = 128, **options):  # of 30 slots, by which the tests count
    return create("slabgraph", n, device=device, slab=slab, **options)


def buckets_of(s) -> np.ndarray:
    """How many buckets each row's table has."""
    return Device.to_host(s.rows).reshape(-1, 3)[:, 1]


@pytest.mark.options
@pytest.mark.parametrize("device", DEVICES)
class TestTables:
    def test_rows_have_tables_by_their_degrees(self, device):
        s = fresh(device)
        degrees = [0, 1, 30, 31, 210, 1000]
        row = np.repeat(np.arange(len(degrees)), degrees)
        dst = np.concatenate([np.random.default_rng(0).permutation(1000)[:d] for d in degrees])
        s.insert(EdgeBatch(row, dst))
        s.check_invariants()
        buckets = buckets_of(s)
        assert buckets[: len(degrees) + 1].tolist() == [0, 1, 1, 2, 10, 48, 0]
        assert Device.to_host(s.degrees())[: len(degrees)].tolist() == degrees

    def test_rows_outgrow_and_shrink(self, device):
        s, model = fresh(device), Model()
        ids, sizes = np.random.default_rng(1).permutation(1000), []
        for n in (5, 40, 41, 300, 900):
            step(s, model, edges(s, [(3, int(d)) for d in ids[:n]]))
            sizes.append(buckets_of(s)[3])
        for n in (900, 400, 100, 20, 1):
            step(s, model, edges(s, [(3, int(d)) for d in ids[n:]], op=np.full(1000 - n, -1)))
            sizes.append(buckets_of(s)[3])
        assert sizes == [1, 2, 2, 15, 43, 43, 43, 5, 1, 1]
        step(s, model, edges(s, [(3, int(ids[0]))], op=[-1]))
        assert s.chains().slabs == 0

    def test_a_bucket_that_all_keys_want_is_chained(self, device):
        n = scaled(3000)
        s, model = fresh(device, 1 << 19), Model()
        ids = colliding(7, -(-n * 10 // 210), n)  # all in one bucket of the row's table
        step(s, model, edges(s, [(5, int(d)) for d in ids]))
        assert s.chains().lengths[-1] == 1
        assert buckets_of(s)[5] == -(-n * 10 // 210)
        assert Device.to_host(s.has_edges(np.full(n, 5), ids)).all()
        step(s, model, edges(s, [(5, int(d)) for d in ids[::2]], op=np.full(-(-n // 2), -1)))
        more = colliding(7, -(-n * 10 // 210), n + 40)[n:]
        step(s, model, edges(s, [(5, int(d)) for d in more]))  # into holes: no slab more
        step(s, model, edges(s, [(5, int(d)) for d in ids], op=np.full(n, -1)))

    def test_deleted_slots_are_used_again(self, device):
        s = fresh(device)
        row, dst = np.divmod(np.arange(20_000), 20)
        s.insert(EdgeBatch(row, dst))
        before = s.chains()
        for i in range(12):  # a window that slides
            dead = EdgeBatch(row, dst + 20 * i, op=-1)
            assert s.apply(dead) == Counts(deleted=20_000)
            assert s.insert(EdgeBatch(row, dst + 20 * (i + 1))) == Counts(inserted=20_000)
            s.check_invariants()
        assert s.chains().slabs == before.slabs

    def test_a_packed_pool_has_room_for_what_the_batch_chains(self, device):
        """Half of a row's buckets have two slabs, half empty since edges left, and get one: packed, none has room."""
        buckets, row, n = 1000, 7, 1 << 22
        s, ids = fresh(device, n, slab=64), np.arange(1 << 17, dtype=np.uint32)
        bucket = (mix(ids).astype(np.uint64) * np.uint64(buckets) >> np.uint64(32)).astype(int)
        ids, bucket = ids[np.argsort(bucket, kind="stable")], np.sort(bucket)
        place = np.arange(len(ids)) - np.searchsorted(bucket, bucket)  # in its bucket
        full = bucket < buckets // 2
        held = ids[(full & (place < 18)) | (~full & (place < 1))]
        held = np.concatenate([held, ids[~full & (place == 1)][: 9800 - len(held)]])  # 1000 buckets by the load factor
        s.insert(EdgeBatch(np.full(len(held), row), held))
        gone = ids[full & (place >= 14) & (place < 18)]
        s.delete(EdgeBatch(np.full(len(gone), row), gone))
        new = ids[full & (place == 20)]
        plan = s.prepare(sort_batch(s.device, EdgeBatch(np.full(len(new), row), new), n, n))
        assert plan.work.looked
        assert s.commit(plan) == Counts(inserted=len(new))
        assert int(s.supply[1]) <= s.pool.slabs
        s.check_invariants()
        assert Device.to_host(s.has_edges(np.full(len(new), row), new)).all()

    def test_edges_wait_where_a_batch_packs_chains_first(self, device, monkeypatch):
        """More operations than scratch is kept for, none of which would chain a slab, had the pool not to be moved."""
        for module in (contract, structure, scratch):
            monkeypatch.setattr(module, "KEPT", 5000)
        n, row, buckets = 200_000, 7, 1000
        s = fresh(device, n, slab=64)
        of_first = colliding(0, buckets, 60)
        full, new = of_first[:42], of_first[50:55]  # three slabs; and what goes there when two are left, full
        few = np.arange(200_000, dtype=np.uint32)
        few = few[(mix(few).astype(np.uint64) * np.uint64(buckets) >> np.uint64(32)) > 0]
        order = np.argsort(mix(few), kind="stable")  # by buckets, of which each gets some 10
        held = np.concatenate([full, few[order][:: len(few) // 9758][:9758]])  # 9800: 1000 buckets by the load factor
        singles = np.arange(1000, 6000, dtype=np.uint32)  # rows of an edge each
        s.insert(EdgeBatch(np.r_[np.full(len(held), row), singles], np.r_[held, singles]))
        s.delete(EdgeBatch(np.r_[np.full(14, row), singles[:1500]], np.r_[full[28:], singles[:1500]]))
        more = np.arange(100_000, 115_000, dtype=np.uint32)
        src, dst = np.r_[np.full(5, row), more], np.r_[new, more]
        plan = s.prepare(sort_batch(s.device, EdgeBatch(src, dst), n, n))
        assert plan.work.before.rows is not None
        assert plan.work.seen.chained == 0
        assert s.commit(plan) == Counts(inserted=len(src))
        waited = int(plan.scratch.status[STATUS - 1])
        assert 0 < LATE * waited <= len(plan.scratch.late)
        assert Device.to_host(s.has_edges(src, dst)).all()
        s.check_invariants()

    @pytest.mark.parametrize(
        ("load_factor", "limit"),
        [(3.5, 4.0), *(pytest.param(*loads, marks=pytest.mark.slow) for loads in ((1.0, 1.1), (1.1, 1.5), (1.5, 2.0)))],
    )
    def test_loads_of_more_than_a_slab(self, device, load_factor, limit):
        s, model = create("slabgraph", 400, device=device, load_factor=load_factor, limit=limit), Model()
        pairs = [(r, d) for r in range(100) for d in range(r % 40)]
        step(s, model, edges(s, pairs))
        step(s, model, edges(s, pairs[::3], op=[-1] * len(pairs[::3])))
        for seed in range(4):
            step(s, model, random_batch(s, np.random.default_rng(seed), 2000, inserts=0.7))
        check(s, model)

    def test_insert_after_delete_leaves_no_duplicate(self, device):
        s, model = fresh(device), Model()
        pairs = [(1, d) for d in range(25)]
        step(s, model, edges(s, pairs))
        for _ in range(3):
            step(s, model, edges(s, pairs[::2], op=np.full(13, -1)))
            step(s, model, edges(s, pairs))

    def test_memory_follows_the_edges(self, device):
        n, rng = scaled(100_000), np.random.default_rng(3)
        s = fresh(device, 2000)
        batch = random_batch(s, rng, n, inserts=1.0, skew=2)
        s.insert(batch)
        full = s.nbytes
        for _ in range(8):  # what grows row by row leaves slabs behind, which compaction takes back
            s.insert(random_batch(s, rng, n // 8, inserts=1.0, skew=2))
            s.check_invariants()
        assert s.nbytes < 3 * full
        csr = s.to_csr()
        row = np.repeat(np.arange(2000), np.diff(Device.to_host(csr.offsets)))
        s.delete(EdgeBatch(row[100:], Device.to_host(csr.dst)[100:]))
        s.check_invariants()
        assert s.num_edges == 100
        assert s.nbytes < full // 4

    def test_compaction_closes_gaps_in_chains(self, device):
        n = scaled(3000)
        s, model, buckets = fresh(device, 1 << 22, n_rows=16), Model(), -(-n * 10 // 210)
        ids = colliding(7, buckets, n)  # all in one bucket of the row's table
        step(s, model, edges(s, [(5, int(d)) for d in ids]))
        assert s.chains().slabs == buckets - 1 + -(-n // 30)
        step(s, model, edges(s, [(5, int(d)) for d in ids[::2]], op=np.full(-(-n // 2), -1)))
        assert s.chains().slabs == buckets - 1 + -(-n // 30)
        assert s.chains().lengths[-1] == 1
        step(s, model, edges(s, [(5, int(ids[1]))], op=[-1]))  # the deletions have paid for it by now
        assert s.chains().slabs == buckets - 1 + -(-(n // 2 - 1) // 30)
        assert s.pool.slabs < s.chains().slabs * 17 // 16

    def test_pool_is_tight_after_growth_and_deletions(self, device):
        rng = np.random.default_rng(5)
        s, n = fresh(device, 3000), scaled(100_000)
        s.insert(random_batch(s, rng, n, inserts=1.0, skew=3))
        for _ in range(2):
            batches = [random_batch(s, rng, n // 20, inserts=1.0, skew=3) for _ in range(10)]
            for batch in batches:
                s.insert(batch)
            for batch in batches:
                s.delete(batch)
                s.check_invariants()
        found = s.chains()
        assert 8 * s.pool.slabs <= 9 * found.slabs + 9 * found.slabs // 8, "an eighth, and what the last batches left"

    def test_a_batch_that_replaces_all_rows_moves_the_pool_twice(self, device):
        s, model, n = fresh(device), Model(), 300
        old = [(row, dst) for row in range(60) for dst in range(n)]
        new = [(row + 500, dst) for row, dst in old]
        step(s, model, edges(s, old))
        plan = s.prepare(sort_batch(s.device, edges(s, old + new, op=np.repeat([-1, 1], len(old))), 1000, 1000))
        assert plan.work.before is not None
        assert plan.work.after is not None
        assert s.commit(plan) == model.apply(edges(s, old + new, op=np.repeat([-1, 1], len(old))))
        check(s, model)

    def test_more_slabs_than_numbers_for_them(self, device, monkeypatch):
        s, model = fresh(device), Model()
        step(s, model, edges(s, [(row, 1) for row in range(40)]))
        monkeypatch.setattr(pool, "MOST_SLABS", 50)
        step(s, model, edges(s, [(row, 1) for row in range(50)]))
        with pytest.raises(CapacityError, match=r"51 slabs of 128 bytes.* 50"):
            s.insert(edges(s, [(50, 1)]))
        assert s.pool.slabs == 50
        check(s, model)


@pytest.mark.options
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weighted", [False, True])
def test_vertices_deleted_at_once(device, weighted):
    s, model = fresh(device, 400, weighted=weighted, **TestSlabGraphShortSlabs.options), Model()
    rng = np.random.default_rng(4)
    step(s, model, random_batch(s, rng, 20_000, inserts=1.0, skew=4))  # some rows are of many pieces
    for n in (1, 60, 0, 300):
        ids = rng.integers(0, 400, n)
        assert s.delete_vertices(ids).deleted == model.delete_vertices(ids.tolist())
        check(s, model)
        step(s, model, random_batch(s, rng, 300, inserts=0.9))


def test_a_plan_from_before_vertices_left_is_refused():
    s = fresh("cpu")
    s.insert(EdgeBatch([1, 2], [2, 3]))
    plan = s.prepare(s.incident(np.array([1], np.uint32)))
    s.delete_vertices([2])
    with pytest.raises(InvalidOption, match="plan"):
        s.commit(plan)


@pytest.mark.parametrize(
    "options", [{"slab": 48}, {"slab": 256}, {"load_factor": 0.05}, {"limit": 0.75}, {"limit": 5.0}]
)
def test_bad_options(options):
    with pytest.raises(InvalidOption, match=str(next(iter(options.values())))):
        fresh("cpu", **options)


BREAKS = {
    "1: degrees and edges": lambda s: s.rows.__setitem__(2, 3),
    "1: degree and table": lambda s: s.rows.__setitem__(7, 0),
    "2: a slab": lambda s: s.supply.__setitem__(1, s.supply[1] + 1),
    "2: slabs in holes": lambda s: s.supply.__setitem__(2, 1),
    "2: holes of class 0": lambda s: s.supply.__setitem__(3, 1),
    "2: more holes": lambda s: s.supply.__setitem__(4, 1 << 40),
    "2: a hole of another": lambda s: (s.supply.__setitem__(4, 1), s.pool.holes.__setitem__(0, 1)),
    "2: a chain without end": lambda s: s.pool.words.__setitem__(0, 0),
    "3: an edge twice": lambda s: s.pool.words.__setitem__(3, s.pool.words[2]),
    "3: an edge in another's": lambda s: s.pool.words.__setitem__(2, 999),
    "3: dst": lambda s: s.pool.words.__setitem__(2, 1001),
    "4: an edge waits": lambda s: s.pool.words.__setitem__(1, s.pool.words[1] - 1),
    "5: past": lambda s: s.pool.words.__setitem__(-1, 0),
    "6: NaN": lambda s: s.pool.weights.__setitem__(2, np.nan),
}


@pytest.mark.parametrize("message", BREAKS)
def test_check_invariants_finds(message):
    s = fresh(Device("cpu", threads=1), weighted=True)  # one thread lays the first row's table into the first slabs
    row, dst = np.divmod(np.arange(0, 40_000, 7), 1000)
    s.insert(EdgeBatch(row, dst))
    s.check_invariants()
    BREAKS[message](s)
    with pytest.raises(AssertionError, match=f"^{message}"):
        s.check_invariants()
