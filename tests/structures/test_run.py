"""Sorted runs: a batch's operations by (src, dst), equal keys in stream order."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.batch import EdgeBatch
from mgraph.device import STAGING, Device
from mgraph.errors import UnknownVertex
from mgraph.structures.run import FEW, Run, sort_batch, sort_few, sort_run


@pytest.fixture(params=["cpu", "cpu, one thread", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> Device:
    return Device("cpu", threads=1) if "," in request.param else Device.of(request.param)


def host(run: Run) -> tuple:
    return tuple(None if a is None else Device.to_host(a) for a in (run.keys, run.op, run.weight))


@pytest.mark.parametrize("columns", [(), ("op",), ("weight",), ("op", "weight")])
def test_runs_are_stable(device, columns):
    n, rng = 5000, np.random.default_rng(len(columns))
    src, dst = rng.integers(0, 20, n), rng.integers(0, 20, n)
    given = {"op": np.where(rng.random(n) < 0.5, 1, -1).astype(np.int8), "weight": rng.random(n, dtype=np.float32)}
    given = {name: column if name in columns else None for name, column in given.items()}
    keys, op, weight = host(sort_batch(device, EdgeBatch(src, dst, **given), 20, 20))
    order = np.argsort(src << 32 | dst, kind="stable")
    np.testing.assert_array_equal(keys, (src << 32 | dst)[order])
    for name, column in (("op", op), ("weight", weight)):
        if given[name] is None:
            assert column is None
        else:
            np.testing.assert_array_equal(column, given[name][order])


def test_one_op_for_all(device):
    keys = np.array([5, 3, 5, 1], np.uint64)
    weight = np.array([1, 2, 3, 4], np.float32)
    assert host(sort_run(device, device.asarray(keys.copy()), op=1))[1] is None
    got = host(sort_run(device, device.asarray(keys.copy()), op=-1))
    assert (got[0].tolist(), got[1].tolist()) == ([1, 3, 5, 5], [-1] * 4)
    got = host(sort_run(device, device.asarray(keys.copy()), op=-1, weight=device.asarray(weight)))
    assert (got[1].tolist(), got[2].tolist()) == ([-1] * 4, [4, 2, 1, 3])


@pytest.mark.parametrize("n", [0, 1, 2, 100, FEW])
@pytest.mark.parametrize("columns", [(), ("op",), ("weight", "time"), ("op", "weight", "time")])
@pytest.mark.parametrize("all_are", [None, 1, -1])
def test_few_operations_are_sorted_as_many_are(device, n, columns, all_are):
    rng = fresh_rng()
    src, dst = rng.integers(0, 1 << 32, (2, n), np.uint32)
    src[n // 2 :], dst[n // 2 :] = src[: n - n // 2], dst[: n - n // 2]  # repeats
    given = {"op": all_are, "weight": rng.random(n, np.float32), "time": rng.integers(-9, 9, n)}
    if "op" in columns:
        given["op"] = np.where(rng.random(n) < 0.5, 1, -1).astype(np.int8)
    given = {name: c if name in columns or name == "op" else None for name, c in given.items()}
    before = {name: c.copy() for name, c in given.items() if isinstance(c, np.ndarray)}
    few = sort_few(device, src, dst, **given)
    there = {name: c if c is None or isinstance(c, int) else device.asarray(c) for name, c in given.items()}
    many = sort_run(device, src=device.asarray(src), dst=device.asarray(dst), **there)
    for name in ("keys", "op", "weight", "time"):
        got, want = (getattr(run, name) for run in (few, many))
        assert (got is None) == (want is None)
        if want is not None:
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(device.to_host(got), device.to_host(want))
    if few.weight is not None:
        few.weight[...] = 7  # as `combined` may; the user's own column stays
    for name, c in before.items():
        np.testing.assert_array_equal(given[name], c)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("copy", "n", "locked"),
    [
        *(("sent", n, False) for n in (1, 7, FEW)),
        *(("asarray", n, locked) for n in (1, STAGING // 8 - 1, STAGING // 8) for locked in (False, True)),
    ],
)
def test_what_was_sent_may_be_changed_at_once(copy, n, locked):
    device, source = Device("cuda"), np.arange(1, n + 1, dtype=np.uint64)
    if locked:
        import cupyx

        source = cupyx.empty_pinned(n, np.uint64)
        source[:] = np.arange(1, n + 1)
    busy = device.zeros(1 << 26, np.float64)
    for _ in range(20):  # the copy has to wait for these
        busy += 1
    here = getattr(device, copy)(source)
    source[:] = 0
    assert device.to_host(here).tolist() == list(range(1, n + 1))


def test_unknown_vertices_are_named(device):
    batch = EdgeBatch([0, 9, 1], [3, 3, 8])
    with pytest.raises(UnknownVertex, match=r"src\[1\] is 9"):
        sort_batch(device, batch, 9, 9)
    with pytest.raises(UnknownVertex, match=r"dst\[2\] is 8"):
        sort_batch(device, batch, 10, 8)
    assert len(sort_batch(device, batch, 10, 9)) == 3


@pytest.mark.parametrize("op", [None, -1, [1, -1, 1]])
def test_an_unchecked_batch_is_sorted_as_it_is_and_remembered(device, op):
    batch = EdgeBatch([0, 9, 1], [3, 3, 8], op=op)
    run = sort_batch(device, batch, 2, 2, check=False)
    assert run.unchecked is batch
    keys, ops, _ = host(run)
    assert keys.tolist() == [3, 1 << 32 | 8, 9 << 32 | 3]
    assert (None if ops is None else ops.tolist()) == {None: None, -1: [-1] * 3}.get(
        op if op != [1, -1, 1] else 0, [1, 1, -1]
    )
    assert sort_batch(device, batch, 10, 10).unchecked is None


def test_split_at_boundaries(device):
    keys = np.array([0, 5 << 32, 5 << 32 | 9, 6 << 32, 9 << 32 | 1], np.uint64)
    run = Run(device.asarray(keys), device.asarray(np.array([1, -1, 1, -1, 1], np.int8)))
    parts = [host(part) for part in run.split([0, 5, 5, 6, 10])]
    assert [p[0].tolist() for p in parts] == [keys[:1].tolist(), [], keys[1:3].tolist(), keys[3:].tolist()]
    assert [p[1].tolist() for p in parts] == [[1], [], [-1, 1], [-1, 1]]
    assert [len(part) for part in run.split([0, 10])] == [5]


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("n", [1, 2, 100, FEW // 2])
def test_few_operations_of_some_rows(device, n, plain, both_ways):
    """They are those of a run of all rows, and their rows are local."""
    rng = fresh_rng()
    src, dst = rng.integers(0, 9, (2, n), np.uint32)
    columns = {} if plain else {"op": -1, "weight": rng.random(n, np.float32)}
    for lo, hi in (0, 9), (0, 4), (4, 9), (2, 2), (3, 7):
        every = sort_few(device, src, dst, **columns, both_ways=both_ways)
        own = sort_few(device, src, dst, **columns, both_ways=both_ways, rows=(lo, hi))
        part = host(every.split((0, lo, hi, 9))[1])
        part[0][:] -= np.uint64(lo << 32)
        for got, want in zip(host(own), part, strict=True):
            assert (None if got is None else got.tolist()) == (None if want is None else want.tolist())
