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
BUGS = {
    "none": ("out[i] = i", {}),
    "past the end": ("out[i + (i == n - 1)] = i", {"address": "heap-buffer-overflow"}),
    "before the start": ("out[i - (i == 0)] = i", {"address": "heap-buffer-overflow"}),
    "shift past the width": ("out[i] = 1 << (i + 32)", {"address": "runtime error: shift exponent"}),
    "overflow": ("out[i] = (int)i * 2147483647", {"address": "signed integer overflow"}),
    "race": ("out[0] += i", {"thread": "data race"}),
    "relaxed": ("atomic_add(out, i)", {}),
    "read beside a write": ("out[i] = i ? out[i - 1] : 0", {"thread": "data race"}),
}
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}


@pytest.mark.parametrize("build", RUNTIMES)
@pytest.mark.parametrize("bug", BUGS)
def test_finds(write, build, bug):
    statement, found_by = BUGS[bug]
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
    if build in found_by:
        assert done.returncode != 0
        assert found_by[build] in done.stderr
    else:
        assert done.returncode == 0, done.stderr
