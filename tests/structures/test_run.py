"""Sorted runs: a batch's operations by (src, dst), equal keys in stream order."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.errors import UnknownVertex
from mgraph.structures.run import Run, sort_batch, sort_run


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
