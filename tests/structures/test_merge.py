"""The kernels of the batch path by themselves: merging, keys of arcs, counts, and the generator."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.kernels import load
from mgraph.sources.rmat import Rmat
from mgraph.structures import Run, merge
from mgraph.structures.merge import merge_in_order


@pytest.fixture(params=["chosen", "lanes", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """The CPU in the chosen build, the CPU with tiles of 32 lanes, a GPU; thread counts keep the builds apart."""
    if request.param == "cuda":
        return Device("cuda")
    if request.param == "lanes":
        monkeypatch.setenv("MGRAPH_HOST_BUILD", "lanes")
        return Device("cpu", threads=7)
    return Device("cpu", threads=3)


def random_runs(rng, device, k, n, keys, op, weight):
    """Sorted runs with many repeats within and among them."""
    runs = []
    for number in range(k):
        m = int(rng.integers(0, n + 1))
        column = np.sort(rng.integers(0, keys, m).astype(np.uint64) + np.uint64(5 << 32))
        runs.append(
            Run(
                device.asarray(column),
                device.asarray(rng.choice([-1, 1], m).astype(np.int8)) if op else None,
                device.asarray((np.arange(m) + 1000 * number).astype(np.float32)) if weight else None,
            )
        )
    return runs


@pytest.mark.parametrize("op", [False, True])
@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("piece", [1, 3, 64, None])
def test_merging_is_a_stable_sort_of_runs_one_after_another(device, op, weight, piece, monkeypatch):
    if piece:
        monkeypatch.setitem(merge.PIECE, device.kind, piece)
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for k, n, keys in [(1, 9, 5), (2, 200, 20), (2, 300, 1 << 40), (3, 100, 9), (5, 90, 1000), (2, 0, 1), (4, 1, 2)]:
        runs = random_runs(rng, device, k, n, keys, op, weight)
        merged = merge_in_order(device, runs, base=5 << 32)
        columns = [[device.to_host(c) for c in (r.keys, r.op, r.weight) if c is not None] for r in runs]
        joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        joined[0] = joined[0] - np.uint64(5 << 32)
        found = [device.to_host(c) for c in (merged.keys, merged.op, merged.weight) if c is not None]
        for want, got in zip(joined, found, strict=True):
            np.testing.assert_array_equal(got, want[order])


def test_one_run_is_not_copied():
    device = Device()
    run, empty = Run(np.arange(5, dtype=np.uint64)), Run(np.empty(0, np.uint64))
    assert merge_in_order(device, [run]) is run
    assert merge_in_order(device, [empty, run, empty]) is run
    assert merge_in_order(device, [run], base=0).keys is run.keys


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("permuted", [False, True])
def test_keys_of_arcs(device, stride, permuted):
    rng = np.random.default_rng(stride)
    n, vertices = 500, 300
    src, dst = rng.integers(0, vertices, (2, n), dtype=np.uint32)
    order = rng.permutation(vertices).astype(np.uint32) if permuted else None
    src[7], dst[9] = 1000, 2000  # past the vertices: told, and not looked up
    keys, largest = device.empty(n * stride, np.uint64), device.zeros(2, np.uint64)
    load(device, "kernels/arcs.cuh").Arcs(
        n, src=device.asarray(src), dst=device.asarray(dst), order=None if order is None else device.asarray(order),
        n=n, vertices=vertices, stride=stride, keys=keys, largest=largest,
    )  # fmt: skip
    assert device.to_host(largest).tolist() == [1000, 2000]
    found = device.zeros(2, np.uint64)
    load(device, "kernels/arcs.cuh").LargestIds(n, src=device.asarray(src), dst=device.asarray(dst), n=n, largest=found)
    assert device.to_host(found).tolist() == [1000, 2000]
    known = (src < vertices) & (dst < vertices)
    a, b = (
        ids[known].astype(np.uint64) if order is None else order[ids[known]].astype(np.uint64) for ids in (src, dst)
    )
    both = np.stack([a << np.uint64(32) | b, b << np.uint64(32) | a], axis=1)[:, :stride]
    np.testing.assert_array_equal(device.to_host(keys).reshape(n, stride)[known], both)


def test_keys_of_rows_and_forward_counts(device):
    rng = np.random.default_rng(1)
    degrees = rng.integers(0, 6, 200) * rng.integers(0, 2, 200)
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    m, lo = int(offsets[-1]), 50
    dst = rng.integers(0, 300, m, dtype=np.uint32)
    keys, counts = device.empty(m, np.uint64), device.zeros(5, np.int64)
    kernels = load(device, "kernels/arcs.cuh")
    kernels.RowKeys(m, offsets=device.asarray(offsets), dst=device.asarray(dst), n=m, rows=200, lo=lo, keys=keys)
    src = np.repeat(np.arange(200, dtype=np.uint64), degrees) + np.uint64(lo)
    np.testing.assert_array_equal(device.to_host(keys), src << np.uint64(32) | dst)
    outcome = rng.integers(0, 5, m).astype(np.uint8)
    load(device, "structures/counts.cuh").CountForward(
        m, keys=device.asarray(device.to_host(keys) - np.uint64(lo << 32)), outcome=device.asarray(outcome), n=m, lo=lo,
        counts=counts,
    )  # fmt: skip
    assert device.to_host(counts).tolist() == np.bincount(outcome[src <= dst], minlength=5).tolist()


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("scale", [1, 9, 31])
def test_the_generator_draws_what_the_workloads_draw(device, scale, shuffled):
    generators = pytest.importorskip("workloads.inputs.generators")
    oracle = generators.Generator(scale, 1, seed=3, shuffled=shuffled)
    rmat = Rmat(scale, 100, seed=3, shuffled=shuffled)
    for rank, step in [(0, 0), (1, 0), (0, 1), (1, 5)]:
        first = (step * 2 + rank) * 100
        for got, want in zip(rmat(rank, 2, step, device), oracle.edges(first, first + 100), strict=True):
            np.testing.assert_array_equal(device.to_host(got), want)


@pytest.mark.parametrize("wrong", [{"scale": 0}, {"scale": 32}, {"batch": -1}, {"quadrants": (1, 1, 1, 1)}], ids=str)
def test_a_generator_of_nothing(wrong):
    with pytest.raises(InvalidOption):
        Rmat(**{"scale": 4, "batch": 10, **wrong})
