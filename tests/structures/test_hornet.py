"""hornet passes the conformance suite, and does with its blocks, arrays and pools what its module says."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import StructureConformance
from conformance_streams import SEED
from edge_model import BUILD, WEIGHTS, Model, check, edges, random_batch, run_of, scaled, step

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.structures import Counts, Structure, create
from mgraph.structures.hornet import pool, structure

BARE = pool.BARE


class TestHornet(StructureConformance):
    name = "hornet"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return Device.of(request.param)


def kinds(s: Structure) -> np.ndarray:
    return Device.to_host(s.pool.kinds).copy()


@pytest.mark.parametrize("array", [32, 128, None])
@pytest.mark.parametrize("seed", range(SEED, SEED + (2 if BUILD == "plain" else 1)))
def test_streams_in_one_pool(device, array, seed):
    """Blocks are taken from arrays and given back one by one; rows of up to 64 arrays come and go."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    s = create("hornet", 20_000, n_rows=300, device=device, weighted=bool(seed & 1), spare=16, array=array)
    model = Model()
    step(s, model, random_batch(s, rng, 9000, inserts=1.0, skew=4))
    slots, opened, closed = s.pool.slots, 0, 0
    for _ in range(12):
        share = float(rng.choice([0.1, 0.5, 0.9]))
        batch = random_batch(s, rng, int(rng.choice([1, 30, 800])), share, skew=float(rng.choice([1, 8])))
        if share < 0.5 and model.edges:  # edges that are there
            pairs = list(model.edges)
            batch = edges(s, [pairs[i] for i in rng.integers(0, len(pairs), 300)], op=np.full(300, -1))
        before = kinds(s)
        step(s, model, batch)
        opened += int(((before == BARE) & (kinds(s) != BARE)).sum())
        closed += int(((before != BARE) & (kinds(s) == BARE)).sum())
    assert s.pool.slots is slots, "a new pool"
    assert opened, "no array was opened"
    assert closed or array is None, "no array was given back"


@pytest.mark.parametrize("weighted", WEIGHTS)
@pytest.mark.parametrize("huge", [64, None])
def test_rows_of_all_sizes_change_where_they_lie_and_on_their_way(device, weighted, huge, monkeypatch):
    """Rows of one edge to many for a whole block of lanes; inserts, deletes and updates, also of one row in one batch.

    With `huge`, rows of more edges are merged in pieces of a sixteenth of that.
    """
    if huge:
        monkeypatch.setitem(structure.SIZES, "HUGE_EDGES", huge)
    sizes = [1, 2, 3, 4, 7, 8, 9, 31, 33, 64, 65, 100, 1000, 4095, 4096, 4097]
    n, rng, model = 2 * sizes[-1], np.random.default_rng(9), Model()
    s = create("hornet", n, n_rows=len(sizes), device=device, weighted=weighted, spare=16)
    rows = [rng.permutation(n)[:size].tolist() for size in sizes]
    step(s, model, edges(s, [(r, d) for r, row in enumerate(rows) for d in row]))
    for gone_most, come_most in ((1, 1), (2, 2), (40, 40), (0, 40), (40, 0), (3000, 3000)):
        pairs, op, ends = [], [], [[] for _ in sizes]
        for u, d in model.edges:
            ends[u].append(d)
        for r in range(len(sizes)):
            gone = rng.permutation(ends[r])[: int(rng.integers(0, gone_most + 1))].tolist()
            come = rng.integers(0, n, int(rng.integers(0, come_most + 1))).tolist()
            pairs += [(r, d) for d in (*gone, *come)]
            op += [-1] * len(gone) + [1] * len(come)
        order = rng.permutation(len(pairs))
        batch = edges(s, np.array(pairs)[order], rng.random(len(pairs)), op=np.array(op, np.int8)[order])
        step(s, model, batch)


@pytest.mark.parametrize("weighted", WEIGHTS)
def test_a_huge_row(device, weighted, monkeypatch):
    """In pieces: it changes in its block, in a new pool, and on its way into a larger or a smaller block."""
    n, rng = scaled(400_000), np.random.default_rng(5)
    if n < 400_000:  # pieces as small as in the test above
        monkeypatch.setitem(structure.SIZES, "HUGE_EDGES", 64)
    s = create("hornet", n, n_rows=2, device=device, weighted=weighted, spare=0.5)
    have = np.zeros(n, bool)
    for size, share in ((100_000, 1.0), (1000, 0.5), (20_000, 1.0), (200, 0.0), (100_000, 0.9), (350_000, 0.1)):
        size = size * n // 400_000
        dst, op = rng.permutation(n)[:size], np.where(rng.random(size) < share, 1, -1)
        batch = EdgeBatch(np.ones(size, np.uint32), dst, dst.astype(np.float32) if weighted else None, op)
        gone, come = dst[op < 0], dst[op > 0]
        assert s.apply(batch) == Counts(int((~have[come]).sum()), int(have[come].sum()), int(have[gone].sum()),
                                        int((~have[gone]).sum()))  # fmt: skip
        have[come], have[gone] = True, False
        s.check_invariants()
        row = s.neighbors([1])
        np.testing.assert_array_equal(Device.to_host(row.dst), np.flatnonzero(have))
        if weighted:
            np.testing.assert_array_equal(Device.to_host(row.weight), np.flatnonzero(have).astype(np.float32))


def test_a_hub_grows_and_shrinks_in_one_pool(device):
    n = scaled(40_000)
    s = create("hornet", n, n_rows=5, device=device, array=64, spare=16)
    s.insert(EdgeBatch(np.repeat([1, 2, 3], n // 4), np.tile(np.arange(n // 4), 3)))
    slots, ids = s.pool.slots, np.random.default_rng(1).permutation(n).astype(np.uint32)
    hub = np.full(n, 1, np.uint32)
    for part in np.array_split(np.arange(n), 3):
        s.insert(EdgeBatch(hub[part], ids[part]))
        s.check_invariants()
    in_use = int((kinds(s) != BARE).sum())
    assert s.delete(EdgeBatch(hub[: n - 100], ids[: n - 100])) == Counts(deleted=n - 100)
    s.check_invariants()
    assert s.pool.slots is slots
    assert in_use - int((kinds(s) != BARE).sum()) >= n // 64 - 2, "the hub's arrays are bare"
    assert Device.to_host(s.neighbors([1]).dst).tolist() == sorted(ids[n - 100 :].tolist())


def test_arrays_are_filled_before_others_are_opened(device):
    s, rng = create("hornet", 5000, device=device, array=32, spare=16), np.random.default_rng(2)
    for part in np.split(rng.permutation(5000), [1000, 1500, 1600, 4000]):
        s.insert(EdgeBatch(np.repeat(part, 3), rng.integers(0, 5000, 3 * len(part))))
        s.check_invariants()
        for slots, (used, _, arrays) in s.fill().classes.items():
            assert arrays == -(-used * slots // 32)
    gone = rng.permutation(5000)[:4500]
    s.delete_vertices(gone)
    s.check_invariants()
    used, free, arrays = s.fill().classes[1]
    s.insert(EdgeBatch(gone[: free + 33], gone[: free + 33]))
    assert s.fill().classes[1] == (used + free + 33, 31, arrays + 2), "free blocks first, then two arrays for the rest"


def test_fill_is_the_share_of_edges(device):
    s = create("hornet", 1000, device=device, array=32)
    row = np.repeat(np.arange(64), 3)
    s.insert(EdgeBatch(row, np.arange(len(row))))  # 64 rows of 3 edges in blocks of 4, 8 to an array
    fill = s.fill()
    assert (fill.blocks, fill.arrays, fill.pool) == (0.75, 1.0, 0.5)
    assert fill.classes == {4: (64, 0, 8)}
    assert fill.memory == (8 * 1001 + 4 * 192) / s.nbytes
    s.delete(EdgeBatch(row[:96], np.arange(96)))
    assert s.fill().classes == {4: (32, 0, 4)}
    s.delete(EdgeBatch(row[96:98], np.arange(96, 98)))  # a row of one edge: its block is another one
    assert s.fill().classes == {1: (1, 31, 1), 4: (31, 1, 4)}
    assert s.fill().arrays == 125 / 160
    empty = create("hornet", 10, device=device).fill()
    assert (empty.blocks, empty.arrays, empty.pool, empty.classes) == (1, 1, 1, {})


def test_memory_follows_the_edges():
    n, rng = 50_000, np.random.default_rng(3)
    src, dst = (2000 * rng.random(n) ** 4).astype(np.uint32), rng.integers(0, 5000, n, dtype=np.uint32)
    s = create("hornet", 5000)
    s.insert(EdgeBatch(src, dst))
    full, gone = s.nbytes, rng.random(n) < 0.8
    s.delete(EdgeBatch(src[gone], dst[gone]))
    s.check_invariants()
    assert s.nbytes < 0.6 * full


def test_a_pool_that_is_too_large_stays_where_memory_has_no_room_for_another(monkeypatch):
    s, model = create("hornet", 500), Model()
    src, dst = np.random.default_rng(1).integers(0, 500, (2, 20_000))
    step(s, model, EdgeBatch(src, dst))
    slots, real = s.pool.slots, pool.HornetPool.empty

    def refuse(*_):
        raise CapacityError("no more")

    monkeypatch.setattr(pool.HornetPool, "empty", refuse)
    step(s, model, EdgeBatch(src[:19_000], dst[:19_000], op=np.full(19_000, -1)))
    assert s.pool.slots is slots
    with pytest.raises(CapacityError, match="no more"):
        s.insert(EdgeBatch(np.repeat(np.arange(500), 500), np.tile(np.arange(500), 500)))
    check(s, model)
    monkeypatch.setattr(pool.HornetPool, "empty", real)
    step(s, model, EdgeBatch(src[19_000:19_001], dst[19_000:19_001], op=[-1]))
    assert len(s.pool.slots) < len(slots)


def test_larger_units_where_addresses_do_not_suffice(device, monkeypatch):
    """Addresses of 12 bits: a pool of more slots has units of 2, 4 and more, the least blocks being as large."""
    monkeypatch.setattr(pool, "ADDRESSES", 1 << 12)
    s, model = create("hornet", 3000, device=device, weighted=True), Model()
    rng, units = np.random.default_rng(8), set()
    for size, share in ((500, 1.0), (3000, 1.0), (8000, 1.0), (8000, 0.6), (300, 0.5), (30_000, 0.02)):
        if share < 0.1:
            pairs = list(model.edges)
            step(s, model, edges(s, pairs[: len(pairs) - 200], op=[-1] * (len(pairs) - 200)))
        else:
            step(s, model, random_batch(s, rng, size, share, skew=2))
        units.add(s.pool.unit)
    assert len(units) > 2, units
    assert s.pool.unit == 0
    monkeypatch.setattr(pool, "ADDRESSES", 16)
    with pytest.raises(CapacityError, match="slots"):
        s.insert(random_batch(s, rng, 30_000, 1.0))
    check(s, model)


def test_a_plan_is_outdated_by_a_rebuild(device):
    s, model = create("hornet", 5000, device=device, weighted=True), Model()
    rng = np.random.default_rng(1)
    step(s, model, random_batch(s, rng, 20_000, inserts=1.0, skew=12))
    assert Device.to_host(s.degrees()).max() > 1024, "a row that is copied in parts"
    step(s, model, random_batch(s, rng, 3000, inserts=0.2, skew=12))
    plan = s.prepare(run_of(s, random_batch(s, rng, 500)))
    s.rebuild()
    with pytest.raises(InvalidOption, match="the structure has changed"):
        s.commit(plan)
    check(s, model)


@pytest.mark.parametrize("options", [{"spare": 0}, {"spare": 17}, {"array": 16}, {"array": 96}, {"array": 1 << 27}])
def test_bad_options(options):
    name, value = next(iter(options.items()))
    with pytest.raises(InvalidOption, match=f"{name} of {value}"):
        create("hornet", 10, **options)


def set_bit(array: np.ndarray, at: int, bit: int) -> None:
    array[at] ^= np.uint32(1 << bit)


BREAKS = {  # rows 0 to 49 have 5 edges, in blocks of 8, 4 to an array; row 50 has 40, in two arrays; row 51 has one
    "1: words": lambda s: setattr(s, "rows", s.rows[:-1]),
    "1: degrees": lambda s: s.rows.__setitem__(51, s.rows[51] + np.uint64(1 << 32)),
    "1: a row": lambda s: s.rows.__setitem__(55, np.uint64(3)),
    "2: class": lambda s: s.pool.kinds.__setitem__(s.rows[0] >> np.uint64(5) & np.uint64(0x7FFFFFF), 2),
    "2: a block": lambda s: s.rows.__setitem__(0, s.rows[0] + np.uint64(1)),
    "2: the rest": lambda s: s.pool.kinds.__setitem__(-1, pool._SOURCE["rest"]),
    "3: two rows": lambda s: s.rows.__setitem__(0, s.rows[1]),
    "3: free": lambda s: set_bit(s.pool.leaves, int(s.rows[0] & np.uint64(0xFFFFFFFF)) >> 5, 0),
    "4: nodes": lambda s: set_bit(s.pool.nodes, int(s.rows[0] & np.uint64(0xFFFFFFFF)) >> 5, 0),
    "4: free": lambda s: s.pool.frees.__setitem__(int(s.rows[0] & np.uint64(0xFFFFFFFF)) >> 5, 1),
    "5: slots": lambda s: setattr(s, "used", s.used + 1),
    "6: a row": lambda s: s.pool.slots.__setitem__(int(s.rows[0] & np.uint64(0xFFFFFFFF)), 9),
    "6: dst": lambda s: s.pool.slots.__setitem__(int(s.rows[51] & np.uint64(0xFFFFFFFF)), 60),
    "7: room": lambda s: setattr(s, "pool", s.pool._replace(weights=s.pool.weights[1:])),
    "7: a weight": lambda s: s.pool.weights.__setitem__(int(s.rows[51] & np.uint64(0xFFFFFFFF)), np.nan),
}


@pytest.mark.parametrize("message", BREAKS)
def test_check_invariants_finds(message):
    s = create("hornet", 60, weighted=True, array=32)
    row = np.repeat(np.arange(50), 5)
    s.insert(EdgeBatch(np.append(row, [50] * 40 + [51]), np.concatenate([np.tile([1, 3, 5, 7, 9], 50), np.arange(41)])))
    s.check_invariants()
    BREAKS[message](s)
    with pytest.raises(AssertionError, match=f"^{message}"):
        s.check_invariants()
