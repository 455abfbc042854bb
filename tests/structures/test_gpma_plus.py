"""gpma+ passes the conformance suite, and equals its executable model slot by slot after every batch."""

from __future__ import annotations

import gc
import weakref
from itertools import product

import numpy as np
import pytest
from conformance import OptionsConformance, StructureConformance
from conformance_streams import SEED
from edge_model import BUILD, random_batch, run_of, snapshot
from pma_model import EMPTY, PmaModel

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption, UnknownVertex
from mgraph.structures import Counts, create
from mgraph.structures.gpma_plus import GpmaPlus
from mgraph.structures.pma.frame import Work
from mgraph.structures.pma.scratch import SMALL
from mgraph.structures.run import sort_batch


class TestGpmaPlus(StructureConformance):
    name = "gpma+"


@pytest.mark.options
class TestGpmaPlusNarrowLeaves(OptionsConformance):
    name = "gpma+"
    options = {"leaf": 8}


def assert_equal(s, model: PmaModel) -> None:
    leaf, host = s.leaf, Device.to_host
    counts = host(s.counts)
    assert counts.tolist() == model.counts
    assert host(s.start).tolist() == model.start
    live = (np.arange(leaf) < counts[:, None]).ravel()
    slots = np.array(model.slots)
    assert ((slots != EMPTY) == live).all()
    np.testing.assert_array_equal(host(s.slots)[live], slots[live])


def operations(s, batch: EdgeBatch) -> list[tuple[int, int, int]]:
    run = run_of(s, batch)
    keys = Device.to_host(run.keys).tolist()
    op = [1] * len(keys) if run.op is None else Device.to_host(run.op).tolist()
    last = dict(zip(keys, op, strict=True))  # of repeats the last
    return [(key >> 32, key & 0xFFFFFFFF, o) for key, o in last.items()]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("leaf", "seed"),
    [
        *product([8], range(SEED, SEED + (6 if BUILD == "plain" else 2))),
        *product([32] if BUILD == "plain" else [], (SEED + 1, SEED + 4)),
        pytest.param(128, SEED + 2, marks=(pytest.mark.options, pytest.mark.slow)),
    ],
)
def test_equals_its_model(device, leaf, seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    options = {"leaf": leaf}
    if seed % 2:  # other constants
        options |= {"leaf_density": (0.05, 1.0), "root_density": (0.25, 0.7), "fill": 0.5}
    n_rows, n_vertices = int(rng.choice([1, 2, 7, 40, 400, 3000])), int(rng.choice([3, 300, 100_000]))
    s = create("gpma+", n_vertices, n_rows=n_rows, device=device, weighted=bool(seed & 2), **options)
    model = PmaModel(n_rows, leaf, s.leaf_density, s.root_density, s.fill)
    widths, skew = [], float(rng.choice([1, 3, 8]))
    for i in range(30):
        share = float(rng.choice([0.1, 0.5, 0.9, 0.95])) if i < 25 else 0.02
        batch = random_batch(s, rng, int(rng.choice([0, 1, 3, 20, 120, 1500])), share, skew)
        if i >= 25:  # most of what is there
            csr = s.to_csr()
            row = np.repeat(np.arange(n_rows), np.diff(Device.to_host(csr.offsets)))
            gone = rng.random(len(row)) < 0.6
            batch = EdgeBatch(row[gone], Device.to_host(csr.dst)[gone], op=np.full(gone.sum(), -1, np.int8))
        widths += model.apply(operations(s, batch))
        assert s.bounds() == (model.bounds().least, model.bounds().most) or len(s.counts) != model.leaves
        s.apply(batch)
        assert_equal(s, model)
        assert s.bounds() == (model.bounds().least, model.bounds().most)
    assert widths


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("weighted", "small"), [pytest.param(False, 1 << 20, marks=pytest.mark.slow), (True, 0)])
def test_windows_of_every_width_equal_the_model(device, small, weighted, monkeypatch):
    """A dense region that moves: windows merged by lanes, tiles, blocks and in parts, several kinds in one batch.

    Each batch is prepared by several launches, or by one.
    """
    monkeypatch.setitem(SMALL, device, small)
    kinds, prepare = set(), GpmaPlus.prepare

    def watched(s, run):
        plan = prepare(s, run)
        if isinstance(plan.work, Work):
            lists = plan.work.few_windows, plan.work.block_windows, plan.work.parts
            kinds.add((plan.work.leaf_windows > 0, *(n > 0 for _, n in lists), plan.work.out_leaves > 0))
        return plan

    monkeypatch.setattr(GpmaPlus, "prepare", watched)
    rng, n, own = np.random.default_rng(1), 4000, {}
    crowded = {"leaf_density": (0.08, 0.92), "root_density": (0.3, 0.8), "fill": 0.62}
    s = create("gpma+", n, leaf=8, device=device, weighted=weighted, **crowded)
    model = PmaModel(n, 8, s.leaf_density, s.root_density, s.fill)
    for i in range(8):
        size = 6000 if i else 40_000
        src, dst = rng.integers(0, n, (2, size))
        if i:
            src[: size // 2] = rng.integers(i * 200, i * 200 + 400, size // 2)
        weight = rng.integers(0, 100, size).astype(np.float32) if weighted else None
        batch = EdgeBatch(src, dst, weight)
        own |= dict(
            zip(zip(src.tolist(), dst.tolist(), strict=True), [1.0] * size if weight is None else weight, strict=True)
        )
        model.apply(operations(s, batch))
        s.apply(batch)
        assert_equal(s, model)
    s.check_invariants()
    assert any(all(kind[:4]) and not kind[4] for kind in kinds), "every width in one batch"
    assert any(kind[4] for kind in kinds), "a resize"
    csr = s.to_csr()
    row = np.repeat(np.arange(n), np.diff(Device.to_host(csr.offsets)))
    if weighted:
        found = dict(
            zip(
                zip(row.tolist(), Device.to_host(csr.dst).tolist(), strict=True),
                Device.to_host(csr.weight),
                strict=True,
            )
        )
        assert found == own


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_leaves_with_many_rows_or_keys_equal_the_model(device, seed):
    """Empty rows by the hundred before, between and after the others, and one edge many times in a batch."""
    print(f"seed {seed}")
    rng, n = np.random.default_rng(seed), 2000
    s = create("gpma+", n, leaf=8, device=device)
    model = PmaModel(n, 8, s.leaf_density, s.root_density, s.fill)
    used = np.array([0, 3, 66, 67, 500, 501, 900, 1933, 1940, 1999])[: 10 - seed % 3]
    for i in range(60):
        size = int(rng.choice([1, 2, 5, 30]))
        src = rng.choice(used, size)
        dst = rng.integers(0, np.where(src < 500, 20, 2))  # the last rows are often empty
        op = np.where(rng.random(size) < (0.7 if i % 20 < 12 else 0.2), 1, -1).astype(np.int8)
        if i % 5 == 1:
            again = rng.choice(size, int(rng.choice([70, 1500])))
            src, dst, op = (np.concatenate([column, column[again]]) for column in (src, dst, op))
        batch = EdgeBatch(src, dst, op=op)
        model.apply(operations(s, batch))
        s.apply(batch)
        assert_equal(s, model)
    s.check_invariants()


@pytest.mark.parametrize(
    "options",
    [
        {"leaf": 12},
        {"leaf": 4},
        {"leaf": 256},
        {"fill": 0.9},
        {"fill": 0.2},
        {"fill": 0.06, "leaf": 16, "leaf_density": (0.01, 0.9), "root_density": (0.05, 0.5)},
        {"leaf_density": (0.4, 0.9)},
        {"leaf_density": (0.1, 1.1)},
    ],
)
def test_bad_options(options):
    with pytest.raises(InvalidOption, match=str(next(iter(options.values()))).strip("()").split(",")[0]):
        create("gpma+", 10, **options)


BREAKS = {
    "1": lambda s: s._degrees.__setitem__(0, 3),
    "2": lambda s: s.counts.__setitem__(slice(0, 2), [0, s.counts[0] + s.counts[1]]),
    "3": lambda s: s.start.__setitem__(1, s.start[1] - 1 - s.start[1] % s.leaf),
    "4": lambda s: s.slots.__setitem__(1, 0),
    "5": lambda s: s.groups.__setitem__(0, s.groups[0] + 1),
    "6": lambda s: s.heads.__setitem__(1, s.heads[1] + 1),
}


@pytest.mark.parametrize("number", BREAKS)
def test_check_invariants_finds(number):
    s = create("gpma+", 50, leaf=8)
    src, dst = np.divmod(np.arange(0, 2500, 7), 50)
    s.insert(EdgeBatch(src, dst))
    s.check_invariants()
    BREAKS[number](s)
    with pytest.raises(AssertionError, match=f"^{number}"):
        s.check_invariants()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ids_out_of_range_are_found_where_keys_are_located(device):
    s = create("gpma+", 100, n_rows=60, device=device, leaf=8)
    s.insert(EdgeBatch(np.arange(60), np.arange(60) + 40))
    s.check_invariants()
    before = snapshot(s)
    largest = 2**32 - 2
    for src, dst, named in (
        ([5, 60, 70], [1, 2, 3], r"src\[1\] is 60"),
        ([5, 6], [1, largest], rf"dst\[1\] is {largest}"),
    ):
        batch = EdgeBatch(src, dst)
        with pytest.raises(UnknownVertex, match=named):
            s.insert(batch)
        with pytest.raises(UnknownVertex, match="there are 60 rows and 100 vertices"):  # it does not know the batch
            s.apply_run(sort_batch(s.device, batch, 2**32, 2**32))
        assert snapshot(s) == before
    assert s.insert(EdgeBatch([59], [99])).updated == 1


def test_no_rows():
    s = create("gpma+", 5, n_rows=0)
    assert s.insert(EdgeBatch([], [])).inserted == 0
    with pytest.raises(UnknownVertex, match=r"src\[0\] is 0"):
        s.insert(EdgeBatch([0], [0]))


@pytest.mark.parametrize("leaf", [8, 32, 128])
def test_leaves_are_numbered_by_32_bits(leaf):
    s, most = create("gpma+", 1, leaf=leaf, weighted=True), (1 << 32) - 1
    edges_of_all = int(most * leaf * s.fill)
    assert most - 1 <= s.even_leaves(edges_of_all) <= most
    with pytest.raises(CapacityError, match=f"32-bit leaf numbers allow {most}"):
        s.even_leaves(edges_of_all + leaf)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["gpma+", "lpma", "lpma:strategy=top-down"])
def test_batches_of_one_launch_and_of_several_follow_each_other(name, device, monkeypatch):
    """What blocks of one launch leave in the words where they meet says nothing to the batch after it."""
    monkeypatch.setitem(SMALL, device, 100)
    rng, n = np.random.default_rng(SEED), 2000
    s = create(name, n, device=device)
    keys = np.unique(rng.integers(0, n * n, 60_000))
    s.build(EdgeBatch(*np.divmod(keys, n)))
    held = set(keys.tolist())
    for size in (50, 3000, 50, 50, 2000, 100, 101, 99):
        if s._kept is not None:  # as meetings of many blocks leave it, which a CPU has not
            assert not Device.to_host(s._kept.met)[0] & 0xFFFFFF
            s._kept.met[:] = 7 << 24
        for share in (0.0, 1.0):  # deletes that crowd no leaf, and inserts
            keys = rng.choice(n * n, size, replace=False)
            keys[: size // 2] = rng.choice(sorted(held), size // 2, replace=False)
            keys, op = np.unique(keys), 1 if share else -1
            there = sum(key in held for key in keys.tolist())
            found = s.apply(EdgeBatch(*np.divmod(keys, n), op=np.full(len(keys), op, np.int8)))
            new = len(keys) - there
            assert found == (Counts(inserted=new, updated=there) if share else Counts(deleted=there, missing=new))
            held = held | set(keys.tolist()) if share else held - set(keys.tolist())
        s.check_invariants()
    row = np.repeat(np.arange(n), np.diff(Device.to_host(s.to_csr().offsets)))
    assert (row * n + Device.to_host(s.to_csr().dst)).tolist() == sorted(held)


def test_the_search_of_one_edge_keeps_no_replaced_array_alive():
    s = GpmaPlus(50, 50, Device("cpu"), False)
    s.build(EdgeBatch([0], [1]))
    assert [s.has_edges([0], [1])[0], s.has_edges([0], [2])[0]] == [True, False]
    assert s.single is not None
    assert s.single.find(0, 1)[0]
    old = weakref.ref(s.view())
    s.insert(EdgeBatch(np.repeat(np.arange(50), 20), np.tile(np.arange(20), 50)))  # a larger array
    gc.collect()
    assert old() is None
    assert s.single is None
