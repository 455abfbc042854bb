"""The sanitizers' builds find what they are for: a bug planted in a kernel ends the process, and is named."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

SCRIPT = Path(__file__).parents[1] / "sanitize_gpu.sh"

PLANTED = """
struct Planted {
    static constexpr int lanes = 1;
    static constexpr int persistent = PERSISTENT;
    i64 n;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        BODY;
    }
};
"""
EACH = "for (i64 i : grid.items(n)) BUG"
STAYING = """u64 goal = 0;
        for (i64 i : grid.items(n)) out[i] = i;
        BUG;
        i64 sum = 0;
        for (i64 i = 0; i < n; ++i) sum += out[i];
        grid.meet(nullptr, goal);
        for (i64 i : grid.items(1)) out[i] = sum"""
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
    "blocks that meet, thread": ("grid.meet(nullptr, goal)", ""),
    "blocks that do not meet, thread": ("", "data race"),
}
#: much like others
ALIKE = (
    "none, address",
    "none, thread",
    "before the start, address",
    "overflow, address",
    "relaxed, thread",
    "read beside a write, thread",
    "blocks that meet, thread",
    "blocks that do not meet, thread",
    "shift past the width, address",
)
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=pytest.mark.slow) if bug in ALIKE else bug for bug in BUGS])
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
    persistent = bug.startswith("blocks")
    body = (STAYING if persistent else EACH).replace("BUG", statement)
    command = [
        sys.executable,
        "-c",
        RUN,
        write(PLANTED.replace("PERSISTENT", str(int(persistent))).replace("BODY", body)),
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    if says:
        assert done.returncode != 0
        assert says in done.stderr
    else:
        assert done.returncode == 0, done.stderr


FAKE = """#!/bin/sh
case "$*" in
  *under_sanitizer.py*) echo "$PLANTED"; exit 66;;
  *racecheck*) echo "12 passed, 3 skipped in 4.50s"; echo "$RACES"; exit $STATUS;;
  *) echo "$TESTS"; echo "========= ERROR SUMMARY: 0 errors";;
esac
"""
FAKE_PYTHON = """#!/bin/sh
echo "$ALONE"
"""
CLEAN = {
    "ALONE": "40 passed in 1.00s",
    "PLANTED": "========= ERROR SUMMARY: 1 error",
    "TESTS": "31 passed in 2.00s",
    "RACES": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
    "STATUS": "0",
}
VERDICTS = {  # by what differs from a clean run: what the line of which tool says
    "": ({}, {}),
    "races": ({"RACES": CLEAN["RACES"].replace("0", "2")}, {"racecheck": "FAILED: 2 findings"}),
    "no summary": ({"RACES": "killed"}, {"racecheck": "FAILED: no summary"}),
    "tests fail": ({"STATUS": "1"}, {"racecheck": "FAILED: status 1"}),
    "no tests": ({"TESTS": "31 skipped in 2.00s"}, dict.fromkeys(["memcheck", "synccheck"], "FAILED: no test ran")),
    "blind": (
        {"PLANTED": "========= ERROR SUMMARY: 0 errors"},
        dict.fromkeys(["memcheck", "racecheck", "synccheck"], "FAILED: it does not find a planted bug"),
    ),
}


def run_script(tmp_path: Path, says: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in (("compute-sanitizer", FAKE), ("python", FAKE_PYTHON)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    paths = {"COMPUTE_SANITIZER": "compute-sanitizer", "PYTHON": "python", "LOGS": "logs"}
    env = os.environ | {name: str(tmp_path / path) for name, path in paths.items()} | says
    return subprocess.run([SCRIPT], env=env, capture_output=True, text=True, timeout=patience(60))


@pytest.mark.parametrize("case", VERDICTS)
def test_gpu_script_tells_findings_from_none(tmp_path, case):
    """With a program in place of compute-sanitizer that prints what it would."""
    differs, lines = VERDICTS[case]
    done = run_script(tmp_path, CLEAN | differs)
    clean = {
        "no tool": "40 passed",
        "memcheck": "clean: 31 passed",
        "racecheck": "clean: 12 passed",
        "synccheck": "clean: 31 passed",
    }
    for (tool, says), line in zip((clean | lines).items(), done.stdout.splitlines(), strict=True):
        assert line.startswith(tool)
        assert says in line
    assert done.returncode == (1 if lines else 0), done.stderr


def test_gpu_script_uses_no_tool_where_no_test_runs_without(tmp_path):
    done = run_script(tmp_path, CLEAN | {"ALONE": "31 skipped in 2.00s"})
    assert done.returncode == 1
    assert done.stdout == ""
    assert "no test ran" in done.stderr


def test_gpu_script_names_the_program_that_is_missing(tmp_path):
    env = os.environ | {"COMPUTE_SANITIZER": str(tmp_path / "none")}
    done = subprocess.run([SCRIPT], env=env, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 2
    assert str(tmp_path / "none") in done.stderr


def test_gpu_script_runs_tests_in_turns_until_the_time_is_over(tmp_path):
    test = "import pytest\n@pytest.mark.parametrize('k', range(3))\ndef test_a(k): pass\ndef test_b(): pass\n"
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "under_sanitizer", "-p", "no:cacheprovider", str(tmp_path)]

    def ran(seconds: str) -> list[list[str]]:
        env = os.environ | {"PYTHONPATH": str(SCRIPT.parent), "MGRAPH_TEST_SECONDS": seconds}
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=patience(60))
        return [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("test_")]

    order = ["a[0]", "a[0]", "b", "b", "a[1]", "a[1]", "a[2]", "a[2]"]
    names = [f"test_{('one', 'two')[i % 2]}.py::test_{name}" for i, name in enumerate(order)]
    for seconds, outcome in (("60", "PASSED"), ("0", "SKIPPED")):
        assert ran(seconds) == [[name, outcome] for name in names]
