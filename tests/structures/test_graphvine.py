"""graphvine passes the conformance suite, and does with its blocks, queues and trees what its module says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from conformance import OptionsConformance, StructureConformance
from conformance_streams import SEED
from edge_model import BUILD, Model, check, edges, random_batch, scaled, step

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.structures import Counts, create
from mgraph.structures.graphvine.pool import GraphVinePool
from mgraph.structures.run import sort_batch

PLAIN = {"fine": False, "compact": False, "directory": False, "split": False}  # the paper's version, less its queue


class TestGraphVine(StructureConformance):
    name = "graphvine"


@pytest.mark.options
class TestGraphVineSmallBlocks(OptionsConformance):
    name = "graphvine"
    options = {"block": 4, "spare": 0.02}


@pytest.mark.slow  # the streams below have these options
@pytest.mark.paper
class TestGraphVinePlain(OptionsConformance):
    name = "graphvine"
    options = PLAIN


OPTIONS = {name: {name: False} for name in PLAIN} | {"all": {}, "plain": PLAIN, "wide": {"block": 128}}
TRIED = [*OPTIONS] if BUILD == "plain" else ["all"]  #: the other builds are slow


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return Device.of(request.param)


@pytest.mark.parametrize(
    "options",
    [pytest.param(name, marks=() if name in ("all", "wide") else pytest.mark.slow) for name in TRIED],
)
@pytest.mark.parametrize("seed", range(SEED, SEED + (2 if BUILD == "plain" else 1)))
def test_streams_in_one_pool(device, options, seed):
    """Few long rows in a pool with room, so that blocks and directories come and go one by one and not by a rebuild."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    s = create("graphvine", 20_000, n_rows=40, device=device, weighted=bool(seed & 1), spare=16, **OPTIONS[options])
    model = Model()
    step(s, model, random_batch(s, rng, 4000, inserts=1.0, skew=2))
    slots, waited = s.pool.slots, 0
    for _ in range(12):
        share = float(rng.choice([0.1, 0.5, 0.9]))
        batch = random_batch(s, rng, int(rng.choice([1, 30, 800])), share, skew=float(rng.choice([1, 8])))
        if share < 0.5 and model.edges:  # edges that are there
            pairs = list(model.edges)
            batch = edges(s, [pairs[i] for i in rng.integers(0, len(pairs), 300)], op=np.full(300, -1))
        step(s, model, batch)
        waited += sum(s.queues.waiting)
    assert s.pool.slots is slots, "a rebuild"
    assert waited or not s.compact, "nothing was given back"


def test_a_hub_grows_and_shrinks_in_one_pool(device):
    n = scaled(40_000)
    for options in ({}, {"directory": False}):
        s = create("graphvine", n, n_rows=5, device=device, block=8, spare=16, **options)
        s.insert(EdgeBatch(np.repeat([1, 2, 3], n // 4), np.tile(np.arange(n // 4), 3)))
        slots, ids = s.pool.slots, np.random.default_rng(1).permutation(n).astype(np.uint32)
        hub = np.full(n, 1, np.uint32)
        for part in np.array_split(np.arange(n), 3):
            s.insert(EdgeBatch(hub[part], ids[part]))
            s.check_invariants()
        assert s.delete(EdgeBatch(hub[: n - 100], ids[: n - 100])) == Counts(deleted=n - 100)
        s.check_invariants()
        blocks = s.queues.waiting[2]
        assert blocks >= (n - 200) // 8, "the hub's blocks wait for others"
        fresh = s.queues.fresh
        assert s.insert(EdgeBatch(np.zeros(n // 2, np.uint32), ids[: n // 2])).inserted == n // 2
        s.check_invariants()
        assert s.pool.slots is slots
        assert s.queues.waiting[2] < blocks - n // 16 + 1
        assert s.queues.fresh - fresh <= n // 8, "a directory, and no blocks"
        assert sorted(Device.to_host(s.neighbors([1]).dst).tolist()) == sorted(ids[n - 100 :].tolist())


def test_memory_follows_the_edges():
    """What each option saves after half of the edges were deleted, against the paper's version."""
    n, rng = 50_000, np.random.default_rng(3)
    src, dst = (2000 * rng.random(n) ** 4).astype(np.uint32), rng.integers(0, 5000, n, dtype=np.uint32)
    gone = rng.random(n) < 0.7
    bytes_per_edge = {}
    for name in ("all", "fine", "compact", "plain"):
        s = create("graphvine", 5000, **OPTIONS[name])
        s.insert(EdgeBatch(src, dst))
        full = s.nbytes / s.num_edges
        s.delete(EdgeBatch(src[gone], dst[gone]))
        s.check_invariants()
        bytes_per_edge[name] = full, s.nbytes / s.num_edges
    print(bytes_per_edge)
    assert bytes_per_edge["all"][0] < bytes_per_edge["fine"][0]
    assert bytes_per_edge["all"][1] < 2 * bytes_per_edge["all"][0]
    assert bytes_per_edge["compact"][1] > 3 * bytes_per_edge["compact"][0]
    assert bytes_per_edge["plain"][1] > 1.5 * bytes_per_edge["all"][1]


def test_a_plan_is_outdated_by_a_rebuild():
    s, rng = create("graphvine", 500), np.random.default_rng(1)
    src, dst = rng.integers(0, 500, (2, 20_000))
    s.insert(EdgeBatch(src, dst))
    s.delete(EdgeBatch(src[:3000], dst[:3000]))
    plan = s.prepare(sort_batch(s.device, EdgeBatch(src[5000:5500], dst[5000:5500], op=-1), 500, 500))
    s.rebuild()
    with pytest.raises(InvalidOption, match="the structure has changed"):
        s.commit(plan)
    s.check_invariants()


def test_block_size_follows_the_mean_degree():
    s, fixed = create("graphvine", 1000), create("graphvine", 1000, fine=False)
    for t in (s, fixed):
        t.insert(EdgeBatch([1, 2], [3, 4]))
        assert t.pool.shift == 2
    src, dst = np.divmod(np.arange(40_000), 40)
    for t in (s, fixed):
        t.insert(EdgeBatch(src, dst))
        t.check_invariants()
    assert (s.pool.shift, fixed.pool.shift) == (6, 2)  # 40 edges: a block of 64; the paper keeps the first batch's


@pytest.mark.parametrize(("weighted", "options"), [(False, "all"), (False, "plain"), (True, "all")])
def test_vertices_deleted_at_once(device, weighted, options):
    s, model = create("graphvine", 3000, device=device, weighted=weighted, **{"block": 8, **OPTIONS[options]}), Model()
    rng = np.random.default_rng(4)
    step(s, model, random_batch(s, rng, 30_000, inserts=1.0, skew=8))
    assert Device.to_host(s.degrees()).max() > 1024, "a row for a block"
    for n in (1, 200, 0, 2800):
        ids = rng.integers(0, 3000, n)
        assert s.delete_vertices(ids).deleted == model.delete_vertices(ids.tolist())
        check(s, model)
        step(s, model, random_batch(s, rng, 500, inserts=0.9))
        step(s, model, random_batch(s, rng, 500, inserts=0.3, skew=4))


def test_pieces_that_find_their_ring_full_wait_for_the_next_pool(device):
    n = scaled(40_000)
    s = create("graphvine", n, device=device, block=16, spare=0.01)
    src, dst = np.divmod(np.arange(16 * n), 16)
    dying = n - 8 + np.arange(8)
    s.insert(EdgeBatch(src, np.where((dst < 8) | (src % 2 == 0), dst, dying[dst % 8])))
    assert s.delete_vertices(dying).deleted == 8 * (n // 2 - 4) + 16 * 8
    assert s.queues.waiting[1] == s.pool.ring, "half a block of every second row came back"
    s.check_invariants()
    before = s.nbytes
    assert s.delete_vertices(np.arange(n // 4, n)).deleted == 12 * (n - 8 - n // 4)
    s.check_invariants()
    assert s.nbytes < before / 2


def test_dictionary_doubles():
    s, model = create("graphvine", 5), Model()
    assert len(s.sentinels) == 8
    s.add_vertices(3)
    assert len(s.sentinels) == 8
    s.add_vertices(1)
    assert len(s.sentinels) == 16
    step(s, model, edges(s, [(8, 8), (0, 8)]))


def test_queries_of_long_and_short_rows(device):
    s, model = create("graphvine", 3000, device=device), Model()
    rng = np.random.default_rng(4)
    step(s, model, random_batch(s, rng, 20_000, inserts=1.0, skew=6))
    known = np.array(list(model.edges), np.uint32)
    others = rng.integers(0, 3000, (5000, 2), dtype=np.uint32)
    src, dst = rng.permutation(np.concatenate([known, known[:500], others])).T
    found = Device.to_host(s.has_edges(src, dst))
    assert found.tolist() == [edge in model.edges for edge in zip(src.tolist(), dst.tolist(), strict=True)]
    assert (~found).any()
    assert Device.to_host(s.degrees()).max() > 512
    check(s, model)


@pytest.mark.parametrize("options", [{}, pytest.param(PLAIN, marks=pytest.mark.paper)], ids=["ours", "plain"])
def test_a_queue_of_a_share_of_memory_grows_by_a_quarter(device, options, monkeypatch):
    monkeypatch.setattr(Device, "memory_free", 1 << 16)
    s, model = create("graphvine", 3000, device=device, weighted=True, share=0.5, block=8, **options), Model()
    rng, sizes = np.random.default_rng(6), []
    for share in [1.0] * 25 + [0.4] * 6:
        step(s, model, random_batch(s, rng, 150, share, skew=4))
        sizes.append(s.pool.quanta)
        assert s.queues.fresh <= s.pool.quanta
    assert sizes[0] == (1 << 15) // 16
    grown = [(a, b) for a, b in pairwise(sizes) if b != a]
    assert len(grown) > 2
    assert all(b == a + a // 4 for a, b in grown)


def test_a_queue_takes_what_is_left_and_then_refuses(monkeypatch):
    monkeypatch.setattr(Device, "memory_free", 1 << 16)
    s, model = create("graphvine", 3000, share=0.5, block=8), Model()
    step(s, model, random_batch(s, np.random.default_rng(1), 1000, 1.0))

    def refuse(*_):
        raise CapacityError("no more")

    quanta, rng = s.pool.quanta, np.random.default_rng(2)
    monkeypatch.setattr(GraphVinePool, "empty", refuse)
    while s.queues.fresh <= 0.8 * quanta:
        step(s, model, random_batch(s, rng, 100, 1.0))
    with pytest.raises(CapacityError, match="no more"):
        s.insert(random_batch(s, np.random.default_rng(3), 3000, 1.0))
    check(s, model)
    assert s.pool.quanta == quanta
    monkeypatch.undo()
    step(s, model, random_batch(s, np.random.default_rng(3), 3000, 1.0))


@pytest.mark.parametrize(
    "options", [{"block": 12}, {"block": 2}, {"block": 256}, {"spare": 0}, {"spare": 17}, {"share": 0.95}]
)
def test_bad_options(options):
    name, value = next(iter(options.items()))
    with pytest.raises(InvalidOption, match=f"{name} of {value}"):
        create("graphvine", 10, **options)


BREAKS = {
    "1": lambda s: s.sentinels.__setitem__(0, s.sentinels[0] + np.uint64(1 << 32)),
    "2": lambda s: s.sentinels.__setitem__(0, s.sentinels[1]),
    "4": lambda s: s.pool.slots.__setitem__(int(s.sentinels[40] & np.uint64(0xFFFFFFFF)) << (s.pool.shift - 2), 1),
    "5": lambda s: s.pool.slots.__setitem__(int(s.sentinels[1] & np.uint64(0xFFFFFFFF)) << (s.pool.shift - 2), 3),
    "6": lambda s: s.pool.slots.__setitem__(
        int(s.sentinels[1] & np.uint64(0xFFFFFFFF)) << (s.pool.shift - 2), 2**32 - 1
    ),
    "7": lambda s: setattr(s, "live", s.live + 1),
    "8": lambda s: s.pool.weights.__setitem__(
        int(s.sentinels[1] & np.uint64(0xFFFFFFFF)) << (s.pool.shift - 2), np.nan
    ),
}


@pytest.mark.parametrize("number", BREAKS)
def test_check_invariants_finds(number):
    s = create("graphvine", 50, weighted=True, block=8)
    row = np.repeat(np.arange(50), 5)
    s.insert(EdgeBatch(np.append(row, [40] * 30), np.append(np.tile([1, 3, 5, 7, 9], 50), np.arange(20, 50))))
    s.check_invariants()
    BREAKS[number](s)
    with pytest.raises(AssertionError, match=f"^{number}"):
        s.check_invariants()
