"""Copies and scans by several threads: as by NumPy, whatever the sizes and layouts, in forks and without a compiler."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from patience import patience
from plain_graph import fresh_rng

from mgraph import parallel_copy as module
from mgraph.parallel_copy import begin_copy, copied, copy, gathered, largest, widened

FORK = """
import os, signal
import numpy as np
from mgraph import parallel_copy
ids, out = np.arange(2_000_000, dtype=np.uint32), np.zeros(2_000_000, np.uint32)


def works():
    for one in parallel_copy.begin_copy(out, ids):
        one.result(20)
    return parallel_copy.largest(out) == 1_999_999


assert works()
parallel_copy._kernel_lock.now.acquire()  # by a thread that the child has not
if not (child := os.fork()):
    signal.alarm(20)
    os._exit(0 if works() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.fixture(params=["kernels", "no compiler"], autouse=True)
def way(request, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 1000)
    if request.param == "no compiler":
        monkeypatch.setattr(module, "load_kernels", lambda: None)
    else:
        assert module.load_kernels() is not None


@pytest.mark.parametrize("n", [0, 1, 124, 125, 126, 12_345])
def test_copies_of_its_own(n):
    ids = fresh_rng().integers(0, 2**32, n, np.uint32)
    ids.flags.writeable = False
    for one, dtype in ((copied(ids), np.uint32), (widened(ids), np.int64)):
        np.testing.assert_array_equal(one, ids)
        assert one.dtype == dtype
        assert one.flags.writeable


@pytest.mark.parametrize("kind", ["int32", "float32", "int64", "float64", "datetime64[s]", "uint8", "object", "rows"])
def test_gathered(kind):
    rng = fresh_rng()
    values = rng.integers(0, 100, (2, 5000) if kind == "rows" else 5000).astype("int64" if kind == "rows" else kind)
    for n in (0, 10, 5000):
        for given in (values, values[..., ::-1]):
            places = rng.integers(0, 5000, n, np.uint32)
            out = gathered(given, places)
            np.testing.assert_array_equal(out, given[..., places])
            assert out.dtype == values.dtype


@pytest.mark.parametrize("n", [0, 1, 124, 125, 126, 12_345])
def test_copies(n):
    source, whole = np.arange(n + 1).view(np.uint8)[3 : 3 + 8 * n], np.zeros(8 * n + 9, np.uint8)
    source.flags.writeable = False
    for first in (0, 4, 9):  # aligned or not
        whole[:] = 0
        target = whole[first : first + 8 * n]
        copy(target, source)
        np.testing.assert_array_equal(target, source)
        target[:] = 0
        begun = begin_copy(target, source)
        assert bool(begun) == (8 * n >= 1000)
        for one in begun:
            one.result(10)
        np.testing.assert_array_equal(target, source)
        target[:] = 0
        assert not whole.any()


def test_the_largest_wherever_it_is():
    rng = fresh_rng()
    for n in (1, 2, 249, 250, 1001, 40_000):
        ids = rng.integers(0, 2**32 - 2, n, np.uint32)
        ids[at := int(rng.choice([0, n - 1, rng.integers(n)]))] = 2**32 - 2
        assert largest(ids) == largest(ids[at:]) == 2**32 - 2
        assert largest(ids[::2]) == ids[::2].max() and largest(ids[:1]) == ids[0]


def test_a_forked_process_goes_on():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=patience(60)
    )
    assert ran.returncode == 0, ran.stderr
