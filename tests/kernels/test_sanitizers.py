"""The sanitizers' builds find what they are for: a bug planted in a kernel ends the process, and is named."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

PLANTED = """
struct Planted {
    static constexpr int lanes = 1;
    i64 n;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) BUG;
    }
};
"""
RUN = """
import sys
import numpy as np
from mgraph.device import Device
from mgraph.kernels import load
load(Device("cpu", threads=4), sys.argv[1]).Planted(100_000, n=100_000, out=np.zeros(100_000, np.int64))
"""
BUGS = {  # by the build that finds them, and what it says; nothing where there is nothing to find
    "none, address": ("out[i] = i", ""),
    "past the end, address": ("out[i + (i == n - 1)] = i", "heap-buffer-overflow"),
    "before the start, address": ("out[i - (i == 0)] = i", "heap-buffer-overflow"),
    "shift past the width, address": ("out[i] = 1 << (i + 32)", "runtime error: shift exponent"),
    "overflow, address": ("out[i] = (int)i * 2147483647", "signed integer overflow"),
    "none, thread": ("out[i] = i", ""),
    "race, thread": ("out[0] += i", "data race"),
    "relaxed, thread": ("atomic_add(out, i)", ""),
    "read beside a write, thread": ("out[i] = i ? out[i - 1] : 0", "data race"),
}
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}


@pytest.mark.parametrize("bug", BUGS)
def test_finds(write, bug):
    (statement, says), build = BUGS[bug], bug.split(", ")[1]
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), f"-print-file-name={RUNTIMES[build]}"]
    library = subprocess.run(compiler, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip(f"{compiler[0]} has no {RUNTIMES[build]}")
    env = os.environ | {
        "MGRAPH_HOST_BUILD": build,
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=66",
        "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", RUN, write(PLANTED.replace("BUG", statement))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    if says:
        assert done.returncode != 0
        assert says in done.stderr
    else:
        assert done.returncode == 0, done.stderr
