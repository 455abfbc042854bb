"""Arrays that grow where they are, and the structures whose pools do."""

from __future__ import annotations

import mmap
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph import growing
from mgraph.batch import EdgeBatch
from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.growing import Growable
from mgraph.structures import create
from mgraph.structures.run import sort_batch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
N = 1 << 20


@pytest.mark.parametrize("kind", DEVICES)
def test_a_longer_array_is_the_same_memory(kind):
    device = Device(kind)
    grows = Growable(device, N, np.float32)
    grows.array[:] = 7
    longer = grows.longer(40 * N)
    assert device.address(longer) == device.address(grows.array)
    assert len(longer) == 40 * N
    longer[N:] = 8
    assert (float(longer[:N].min()), float(longer[:N].max()), float(longer[-1])) == (7, 7, 8)
    assert grows.longer(1 << 50) is None
    assert len(grows.longer(3 * N)) == 3 * N
    del grows
    assert float(longer[N - 1]) == 7  # an array keeps its memory


def taken(device: Device) -> int:
    """Bytes of addresses of this process, or of the GPU's memory, that are taken."""
    if device.kind == "cuda":
        return -device.memory_free
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


@pytest.mark.parametrize("kind", DEVICES)
def test_memory_is_given_back(kind):
    device = Device(kind)
    for _ in range(10 if kind == "cuda" else 1):  # meanwhile other processes take and free memory of the same GPU
        before = taken(device)
        grows = Growable(device, N, np.uint32)
        array = grows.longer(64 * N)
        device.fill(array, 1)
        held = [taken(device) - before]
        del grows
        held.append(taken(device) - before)
        del array
        left = taken(device) - before
        if min(held) >= 256 * N and left < 64 * N:
            return
    pytest.fail(f"{held} bytes were taken, and {left} at the end")


def test_small_arrays_and_those_without_addresses_do_not_grow(monkeypatch):
    device = Device("cpu")
    assert Growable(device, 1000, np.uint32).longer(2000) is None
    monkeypatch.setattr(growing.mmap, "mmap", lambda *_, **__: (_ for _ in ()).throw(OSError(12, "no addresses")))
    grows = Growable(device, N, np.uint32)
    assert len(grows.array) == N
    assert grows.longer(2 * N) is None


def test_where_addresses_have_a_limit_none_are_reserved(monkeypatch):
    monkeypatch.setattr(growing.resource, "getrlimit", lambda _: (1 << 40, 1 << 40))
    assert Growable(Device("cpu"), N, np.uint32).longer(2 * N) is None


def test_an_array_for_which_no_memory_could_be_mapped_does_not_grow(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(growing._HostPages, "reach", lambda *_: False)
        grows = Growable(Device("cpu"), N, np.uint32)
    assert len(grows.array) == N
    assert grows.longer(2 * N) is None  # it would be other memory


def test_what_an_array_grows_by_is_taken_from_the_budget():
    left = [16 * N]
    touched = []
    device = Device("cpu", budget=Budget(lambda: left[0]), touch=lambda _, array: touched.append(array.nbytes))
    grows = Growable(device, N, np.uint32)
    assert grows.longer(3 * N) is not None
    assert touched == [4 * N, 8 * N]
    left[0] = 4 * N - 1
    assert grows.longer(4 * N) is None
    assert grows.longer(3 * N) is not None
    left[0] = 4 * N
    assert grows.longer(4 * N) is not None


@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize(
    ("name", "weighted"),
    [("slabgraph", False), *(pytest.param(name, True, marks=pytest.mark.slow) for name in ("graphvine", "hornet"))],
)
def test_a_pool_grows_where_it_is(name, weighted, kind):
    """Batches that grow a graph by half mostly move nothing; what they leave is what a dict says."""
    rng, device, n = fresh_rng(), Device(kind), 4_000 if name == "slabgraph" else 20_000
    s = create(name, n, device=device, weighted=weighted)
    keys, weights, places = [], [], []
    for step in range(12):
        drawn = rng.integers(0, n * n, 600_000 if step == 0 else 30_000)
        src, dst = (device.asarray(a.astype(np.uint32)) for a in (drawn // n, drawn % n))
        weight = rng.random(len(drawn), np.float32)
        batch = EdgeBatch(src, dst, device.asarray(weight) if weighted else None)
        s.apply_run(sort_batch(device, batch, n, n))
        keys.append(drawn)
        weights.append(weight)
        column = s.pool.words if name == "slabgraph" else s.pool.slots
        places.append((device.address(column), len(column)))
    changes = [(a[0] == b[0], a[1] != b[1]) for a, b in pairwise(places)]
    assert (True, True) in changes, places  # longer, where it is
    assert sum(not same for same, _ in changes) <= 1, places
    s.check_invariants()
    expected = dict(zip(np.concatenate(keys).tolist(), np.concatenate(weights).tolist(), strict=True))
    found = s.to_csr()
    offsets, dst = device.to_host(found.offsets), device.to_host(found.dst)
    rows = np.repeat(np.arange(n), np.diff(offsets)) * n + dst
    order = np.argsort(rows)
    assert np.array_equal(rows[order], np.sort(list(expected)))
    if weighted:
        assert np.array_equal(
            device.to_host(found.weight)[order], np.array([expected[key] for key in rows[order].tolist()], np.float32)
        )
