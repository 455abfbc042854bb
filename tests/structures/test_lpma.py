"""lpma passes the conformance suite, equals its executable model slot by slot, and grows without moving an edge."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from conformance import OptionsConformance, StructureConformance
from conformance_streams import SEED
from edge_model import BUILD, Model, check, edges, random_batch, run_of, scaled, step
from lpma_model import LpmaModel
from pma_model import EMPTY

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.structures import create
from mgraph.structures.lpma import structure
from mgraph.structures.lpma.structure import STRATEGIES
from mgraph.structures.pma.structure import NOBODY


class TestLpma(StructureConformance):
    name = "lpma"
    weighted = OptionsConformance.weighted  # without weights its kernels are as gpma+'s


@pytest.mark.slow
@pytest.mark.options
class TestLpmaTopDownNarrowLeaves(OptionsConformance):
    name = "lpma"
    options = {"leaf": 8, "strategy": "top-down"}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return Device.of(request.param)


def operations(s, batch: EdgeBatch) -> list[tuple[int, int, int]]:
    run = run_of(s, batch)
    keys = Device.to_host(run.keys).tolist()
    op = [1] * len(keys) if run.op is None else Device.to_host(run.op).tolist()
    return [(key >> 32, key & 0xFFFFFFFF, o) for key, o in dict(zip(keys, op, strict=True)).items()]


def assert_equal(s, model: LpmaModel) -> None:
    assert Device.to_host(s.counts).tolist() == model.counts
    assert len(s.levels) == model.height + 1
    np.testing.assert_array_equal(
        s.in_order().astype(np.int64), np.where(np.array(model.slots) == EMPTY, NOBODY, model.slots)
    )
    assert s.places(Device.to_host(s.start)).tolist() == model.start


@pytest.mark.parametrize(
    ("strategy", "leaf", "seed"),
    [*product(STRATEGIES, [8], range(SEED, SEED + (2 if BUILD == "plain" else 1))), ("hybrid", 32, SEED)],
)
def test_equals_its_model(device, strategy, leaf, seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    n_rows, n_vertices = int(rng.choice([1, 2, 7, 40, 400, 3000])), int(rng.choice([30, 300, 100_000]))
    s = create(f"lpma:strategy={strategy}:pi=0.5", n_vertices, n_rows=n_rows, device=device, leaf=leaf, weighted=True)
    model, skew, heights = (
        LpmaModel(n_rows, leaf, s.leaf_density, s.root_density, s.fill),
        float(rng.choice([1, 3, 8])),
        set(),
    )
    for i in range(30):
        share = float(rng.choice([0.5, 0.9, 0.95])) if i < 25 else 0.02
        batch = random_batch(s, rng, int(rng.choice([0, 1, 3, 20, 120, 400])), share, skew)
        if i >= 25:  # most of what is there
            csr = s.to_csr()
            row = np.repeat(np.arange(n_rows), np.diff(Device.to_host(csr.offsets)))
            gone = rng.random(len(row)) < 0.6
            batch = EdgeBatch(row[gone], Device.to_host(csr.dst)[gone], op=np.full(gone.sum(), -1, np.int8))
        model.top_down = strategy == "top-down" or (strategy == "hybrid" and s.num_edges > 0.5 * s.leaves * leaf)
        model.apply(operations(s, batch))
        s.apply(batch)
        assert_equal(s, model)
        heights.add(model.height)
    assert len(heights) > 1 or n_rows * n_vertices < 1000, "levels are appended"


def test_windows_of_every_width_equal_the_model(device):
    """A dense region that moves, in an array that has grown: windows of every width, where leaves are empty."""
    rng, n = np.random.default_rng(1), 4000
    s = create("lpma", n, leaf=8, device=device, weighted=True)
    model = LpmaModel(n, 8, s.leaf_density, s.root_density, s.fill)
    widths, levels = [], []
    for i in range(6):
        src, dst = rng.integers(0, n, (2, 3000 if i else 20_000))
        if i:
            src[:2000] = rng.integers(i * 200, i * 200 + 300, 2000)
        widths += model.apply(operations(s, EdgeBatch(src, dst)))
        s.apply(EdgeBatch(src, dst))
        assert_equal(s, model)
        levels.append(len(s.levels))
    s.check_invariants()
    assert {1, 2}.issubset(widths)
    assert any(w > 4096 // 8 for w in widths), "copied and copied back"
    assert max(levels) > 1


def test_growth_moves_no_edge_and_asks_for_little_memory(device, monkeypatch):
    rng, n = np.random.default_rng(3), 20_000
    s, model = create("lpma", n, device=device, weighted=True), Model()
    step(s, model, random_batch(s, rng, 40_000, 1.0))
    taken, real = [0], Device.empty

    def empty(device, n, dtype):
        taken[0] += n * np.dtype(dtype).itemsize
        return real(device, n, dtype)

    while len(s.levels) == 1:
        batch, before, held, taken[0] = random_batch(s, rng, 500, 1.0), s.levels, s.nbytes, 0
        slots, start = (Device.to_host(a).copy() for a in (s.levels[0]["slots"], s.start))
        with monkeypatch.context() as patch:
            patch.setattr(Device, "empty", empty)
            plan = s.prepare(run_of(s, batch))
        assert s.commit(plan) == model.apply(batch)
    check(s, model)
    assert s.levels[0]["slots"] is before[0]["slots"], "it stays where it is"
    changed = (Device.to_host(s.levels[0]["slots"]) != slots).reshape(-1, s.leaf).any(1).mean()
    assert changed < 0.3, "only windows around the batch are written"
    assert (Device.to_host(s.start) == start).mean() > 0.5, "row starts are addresses"
    assert held + taken[0] < 1.15 * s.nbytes + 200 * 1024, "and 100 bytes an operation, twice"


def test_a_large_level_is_made_by_the_batches_before_it(device, monkeypatch):
    """The batch that appends it takes no memory, and the array is the one whose level was made at once."""
    rng, n = np.random.default_rng(7), 20_000
    s, other = (create("lpma", n, device=device, weighted=True) for _ in range(2))
    first, taken, real = random_batch(s, rng, 40_000, 1.0), [], Device.empty
    for one in (s, other):
        one.insert(first)
    built = s.nbytes

    def empty(device, n, dtype):
        taken.append(n * np.dtype(dtype).itemsize)
        return real(device, n, dtype)

    while len(s.levels) == 1:
        batch = random_batch(s, rng, 500, 1.0)
        other.apply(batch)
        run, ahead = run_of(s, batch), s._ahead
        with monkeypatch.context() as patch:
            patch.setattr(structure, "LARGE", 1)
            patch.setattr(Device, "empty", empty)
            s.discard(s.prepare(run))
            taken.clear()
            plan = s.prepare(run)
        assert (s.nbytes > built) == (s._ahead is not None)
        s.commit(plan)
    assert ahead is not None
    assert sum(taken) < built / 4, "scratch alone, since the one made ahead was the first plan's"
    assert (s.in_order() == other.in_order()).all()
    assert s._ahead is None
    assert s.nbytes == other.nbytes
    s.check_invariants()


def test_a_level_ahead_is_given_back_and_may_find_no_memory(device, monkeypatch):
    monkeypatch.setattr(structure, "LARGE", 1)
    rng, n = np.random.default_rng(8), 20_000
    s = create("lpma", n, device=device)
    s.insert(random_batch(s, rng, 40_000, 1.0))
    while s._ahead is None:
        s.insert(random_batch(s, rng, 500, 1.0))
    csr, built = s.to_csr(), s._nbytes
    row = np.repeat(np.arange(n), np.diff(Device.to_host(csr.offsets)))
    gone = rng.random(len(row)) < 0.3
    s.delete(EdgeBatch(row[gone], Device.to_host(csr.dst)[gone]))
    assert (s._ahead, s.nbytes) == (None, built)

    def no_level(self, leaves, blank=True):
        raise CapacityError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(type(s), "flat", no_level)
        with pytest.raises(CapacityError, match="no memory"):
            while len(s.levels) == 1:
                s.insert(random_batch(s, rng, 500, 1.0))
        assert s._ahead_refused
    while len(s.levels) == 1:
        s.insert(random_batch(s, rng, 500, 1.0))
    s.check_invariants()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_around_empty_leaves(device, strategy):
    """One row over many leaves, empty rows and deleted rows beside it, before and after the array has grown twice."""
    s, model = create("lpma", 3000, leaf=8, device=device, weighted=True, strategy=strategy), Model()
    rng = np.random.default_rng(5)
    step(s, model, edges(s, [(7, d) for d in range(0, 1200, 4)] + [(9, 1), (9, 5), (2990, 3)]))
    heights = set()
    for i in range(40):
        row, low = int(rng.choice([0, 6, 7, 8, 9, 2999])), int(rng.integers(0, 2900))
        pairs = [(row, d) for d in range(low, low + int(rng.choice([1, 20, 90])))]
        step(s, model, edges(s, pairs, [0.0, -1.5, *[2.0] * len(pairs)][: len(pairs)]))
        if i % 5 == 4:
            gone = [e for e in model.edges if e[0] == row]
            step(s, model, edges(s, gone, op=[-1] * len(gone)))
        heights.add(len(s.levels))
        found = Device.to_host(s.has_edges(np.full(3000, 7), np.arange(3000)))
        assert np.flatnonzero(found).tolist() == sorted(d for r, d in model.edges if r == 7)
    assert max(heights) >= 3


def test_far_too_large_or_far_too_small_is_written_as_one_level(device):
    s, model, rng = create("lpma", 5000, device=device, weighted=True), Model(), np.random.default_rng(4)
    step(s, model, random_batch(s, rng, 1000, 1.0))
    step(s, model, random_batch(s, rng, scaled(20_000), 1.0))
    assert len(s.levels) == 1
    while len(s.levels) == 1:
        step(s, model, random_batch(s, rng, 3000, 1.0))
    gone = list(model.edges)[100:]
    step(s, model, edges(s, gone, op=[-1] * len(gone)))
    assert (len(s.levels), s.leaves) == (1, s.even_leaves(100))
    step(s, model, edges(s, list(model.edges), op=[-1] * 100))
    assert (s.num_edges, s.leaves) == (0, 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lpma:strategy=upward", {}, "'upward' of lpma is none of 'bottom-up', 'top-down', 'hybrid'"),
        ("lpma:pi=1.5", {}, "pi of lpma is 1.5"),
        ("lpma:pi=high", {}, "'high' is no number"),
        ("lpma", {"root_density": (0.4, 0.775)}, "0.4 and 0.775"),
        ("lpma:leaf=12", {}, "12"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(InvalidOption, match=message):
        create(name, 10, **options)


BREAKS = {
    "1": lambda s: s._degrees.__setitem__(0, 3),
    "2": lambda s: s.levels[1]["slots"].__setitem__(7, 1),
    "3": lambda s: s.start.__setitem__(1, np.flatnonzero(s.levels[0]["slots"] == NOBODY)[-1]),
    "4": lambda s: s.levels[0]["slots"].__setitem__(1, 0),
    "5": lambda s: s.groups.__setitem__(0, s.groups[0] + 1),
    "6": lambda s: s.heads.__setitem__(1, 5),
}


@pytest.mark.parametrize("number", BREAKS)
def test_check_invariants_finds(number):
    s = create("lpma", 50, leaf=8, weighted=True)
    for first in (0, 1, 2):
        s.insert(EdgeBatch(*np.divmod(np.arange(first, 2500, 9), 50)))
    assert len(s.levels) == 2
    s.check_invariants()
    BREAKS[number](s)
    with pytest.raises(AssertionError, match=f"^{number}"):
        s.check_invariants()
