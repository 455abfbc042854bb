"""Copies and scans by several threads: as by one, whatever the sizes and layouts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph import threads as module
from mgraph.threads import copies, largest

FORK = """
import os, signal
import numpy as np
from mgraph.threads import largest
array = np.arange(2_000_000)
assert largest(array) == 1_999_999
if not (child := os.fork()):
    signal.alarm(20)
    os._exit(0 if largest(array) == 1_999_999 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 1000)


@pytest.mark.parametrize("n", [0, 1, 124, 125, 126, 12_345])
def test_copies(n):
    source, target = np.arange(n), np.zeros(n, np.int64)
    copying = copies(target, source)
    assert bool(copying) == (source.nbytes > 1000)
    for one in copying:
        one.result(10)
    np.testing.assert_array_equal(target, source)


def test_the_largest_wherever_it_is():
    rng = fresh_rng()
    for kind in ("u4", "u8", "i2"):
        for n in (1, 2, 499, 500, 1001, 20_000):
            array = rng.integers(0, 30_000, n).astype(kind)
            at = int(rng.choice([0, n - 1, rng.integers(n)]))
            array[at] = 32_000
            assert (
                largest(array) == 32_000 and largest(array[::2]) == array[::2].max() and largest(array[at:]) == 32_000
            )


def test_a_forked_process_has_threads_of_its_own():
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
