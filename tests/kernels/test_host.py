"""The host's compiler and its cache: found again by content, safe among processes, clear when something is missing."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from patience import patience
from small_kernels import COUNT, FILL

from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.kernels import host, libraries, load
from mgraph.kernels.source import read_program

RUN = """
import sys
import numpy as np
from mgraph.device import Device
from mgraph.kernels import host, load
from mgraph.kernels.source import read_program
out = np.zeros(1000, np.int64)
load(Device("cpu", threads=1), sys.argv[1], VALUE=int(sys.argv[2])).Fill(1000, n=1000, out=out)
assert (out == int(sys.argv[2])).all(), out
print("filled")
"""


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """An empty cache, and a compiler that notes in a file each time that it compiles."""
    log, compiler = tmp_path / "compiled", tmp_path / "c++"
    real = os.environ.get("CXX", "g++")
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) echo once >> "{log}";; esac\nexec {real} "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return lambda: len(log.read_text().split()) if log.exists() else 0


def start(path: str, value: int) -> subprocess.Popen:
    command = [sys.executable, "-c", RUN, path, str(value)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> None:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert out == "filled\n"


def test_cache_is_found_again_by_content(write, counted):
    path = write(FILL)
    finish(start(path, 7))
    assert counted() == 1
    finish(start(path, 7))
    assert counted() == 1
    finish(start(path, 8))  # another constant
    assert counted() == 2
    write(FILL.replace("= VALUE", "= VALUE + 0"))
    finish(start(path, 7))  # another source
    assert counted() == 3


@pytest.mark.parametrize(("build", "seen"), [("plain", "libother.so"), ("address", ""), ("thread", "")])
def test_the_compiler_runs_without_the_sanitizer_of_the_interpreter(monkeypatch, build, seen):
    monkeypatch.setenv("MGRAPH_HOST_BUILD", build)
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert (
        host._run([sys.executable, "-c", "import os; print(os.environ.get('LD_PRELOAD', ''))"], 20).stdout
        == f"{seen}\n"
    )


def test_eight_processes_compile_once(write, counted, tmp_path):
    path = write(FILL)
    processes = [start(path, 5) for _ in range(8)]
    for process in processes:
        finish(process)
    assert counted() == 1
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1
    assert not list((tmp_path / "cache").rglob("*.partial"))


def test_a_compiler_that_was_killed_leaves_nothing_that_is_loaded(write, counted, tmp_path):
    path = write(FILL)
    cache = tmp_path / "cache" / "kernels"
    finish(start(path, 5))
    (library,) = cache.glob("*.so")
    library.rename(library.with_suffix(".partial"))  # as if the compiler had died halfway
    library.with_suffix(".partial").write_bytes(b"half")
    finish(start(path, 5))
    assert counted() == 2


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("no-such-compiler -O9", r"no-such-compiler -O9.*apt install g\+\+.*CXX"),
        ("'g++", 'CXX is "\'g\\+\\+", which is no command: No closing quotation'),
    ],
)
def test_missing_compiler(write, monkeypatch, tmp_path, named, message):
    monkeypatch.setenv("CXX", named)
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(tmp_path))
    with pytest.raises(DeviceError, match=message):
        load(Device("cpu"), write(FILL), VALUE=1)


def test_compile_error_shows_what_the_compiler_said(write):
    with pytest.raises(DeviceError, match="nonsense_value"):
        load(Device("cpu"), write(FILL), VALUE="nonsense_value")


def test_failed_compilation_is_tried_again(write):
    path = write(FILL)
    for _ in range(2):
        with pytest.raises(DeviceError, match="failed"):
            load(Device("cpu"), path, VALUE="nonsense_value")


def test_unwritable_cache(write, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(DeviceError, match="kernel cache .*MGRAPH_CACHE_DIR"):
        load(Device("cpu"), write(FILL), VALUE=1)


def test_unknown_build(write, monkeypatch):
    monkeypatch.setenv("MGRAPH_HOST_BUILD", "fast")
    with pytest.raises(DeviceError, match="'fast'.*plain, quick, lanes, address, thread"):
        load(Device("cpu"), write(FILL), VALUE=1)


def test_import_compiles_nothing_and_needs_no_cupy(tmp_path):
    code = """
        import sys
        sys.modules["cupy"] = None  # importing it fails
        import mgraph.kernels, mgraph.structures
    """
    env = os.environ | {"CXX": "no-such-compiler", "MGRAPH_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, check=True, timeout=patience(60))
    assert not (tmp_path / "cache").exists()


SHARES = """
DEVICE void put(i64* out, i64 n) {
    SHARED(i64, buffer, SIZE);
    for (i64 i = 0; i < SIZE; ++i) buffer[i] = i;
    for (i64 i = 0; i < n; ++i) out[i] = buffer[i];
}
struct Put {
    static constexpr int lanes = 1;
    i64 n;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(1)) put(out + i, n);
    }
};
"""


def exported(library: Path) -> str:
    return subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout


def test_programs_share_no_buffers(write, monkeypatch, tmp_path):
    """Two programs of one file, with buffers of other sizes: a smaller one must not serve both."""
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(tmp_path))
    for size in (100_000, 8):
        out = np.zeros(size, np.int64)
        load(Device("cpu", threads=1), write(SHARES), SIZE=size).Put(1, n=size, out=out)
        np.testing.assert_array_equal(out, np.arange(size))
    for library in tmp_path.rglob("*.so"):
        symbols = [line.split()[-1] for line in exported(library).splitlines()]
        assert "mgraph_Put" in symbols
        assert not [line for line in exported(library).splitlines() if line.split()[-2] in "uVW" and "buffer" in line]


def test_kernels_of_several_threads_at_once(write):
    """The helpers serve one kernel at a time; the others run alone."""
    kernel, n, times = load(Device("cpu", threads=3), write(COUNT)).Count, 20_000, 20
    outs = [np.zeros(n, np.int64) for _ in range(6)]

    def work(out: np.ndarray) -> None:
        for _ in range(times):
            kernel(n, n=n, out=out)

    team = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join(60)
    for out in outs:
        np.testing.assert_array_equal(out, np.arange(n) * times)


HELPERS = """
import os, sys
import numpy as np
from mgraph.device import Device
from mgraph.kernels import host, load
from mgraph.kernels.source import read_program
kernels = [load(Device("cpu", threads=3), path).Count for path in sys.argv[1:]]
before = len(os.listdir("/proc/self/task"))
for kernel in 2 * kernels:
    kernel(100_000, n=100_000, out=np.zeros(100_000, np.int64))
print(len(os.listdir("/proc/self/task")) - before)
"""


WAITS = """
struct Wait {
    static constexpr int lanes = 1;
    i64* words;  // whether it has begun, and whether it may end
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            if (i == 0) {
                __atomic_store_n(words, 1, __ATOMIC_SEQ_CST);
                while (!__atomic_load_n(words + 1, __ATOMIC_SEQ_CST)) {}
            }
        }
    }
};
"""
PAIRS = """
struct Pairs {
    static constexpr int lanes = 1;
    i64* words;  // whether the last item was met, and whether the first item saw that
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            if (i == n - 1) __atomic_store_n(words, 1, __ATOMIC_SEQ_CST);
            if (i == 0)
                for (i64 k = 0; k < 4000000000 && !words[1]; ++k) words[1] = __atomic_load_n(words, __ATOMIC_SEQ_CST);
        }
    }
};
"""


def test_kernels_of_the_background_leave_the_others_their_helpers(write):
    """While a long kernel of the background runs, the first and the last item of another one run at the same time."""
    if host._build() in ("lanes", "thread"):
        pytest.skip("these builds have no helpers")
    words, met, n = np.zeros(2, np.int64), np.zeros(2, np.int64), 100_000
    wait = load(Device("cpu", threads=3, background=True), write(WAITS, "wait")).Wait
    pairs = load(Device("cpu", threads=3), write(PAIRS, "pairs")).Pairs
    thread = threading.Thread(target=lambda: wait(n, words=words, n=n))
    thread.start()
    try:
        end = time.monotonic() + patience(20)
        while not words[0] and time.monotonic() < end:
            time.sleep(0.001)
        assert words[0]
        pairs(n, words=met, n=n)
        assert met.tolist() == [1, 1]
        assert thread.is_alive()
    finally:
        words[1] = 1
        thread.join(60)


def test_all_kernels_share_their_helpers(write):
    other = write(COUNT.replace("out[i] += i", "out[i] += 2 * i"), "another")
    command = [sys.executable, "-c", HELPERS, write(COUNT), other]
    environment = {**os.environ, "MGRAPH_HOST_BUILD": "plain", "LD_PRELOAD": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.stdout.strip() == "2", done.stderr


def test_a_carried_library_needs_no_compiler(write, tmp_path, monkeypatch):
    if not set(host._cpu().split()).issuperset(host.LEVELS["x86-64-v3"]):
        pytest.skip("the CPU is below x86-64-v3")
    monkeypatch.setenv("MGRAPH_HOST_BUILD", "plain")
    path, defines = write(FILL), (("VALUE", 7),)
    program = read_program(str(path), host.host_platform(), defines, None)
    target = host.carry(program, "x86-64-v3", tmp_path / "carried")
    assert [file.name for file in target.parent.iterdir()] == [target.name]
    monkeypatch.setattr(libraries, "CARRIED", tmp_path / "carried")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    out = np.zeros(10, np.int64)
    load(Device("cpu", threads=1), path, VALUE=7).Fill(10, n=10, out=out)
    assert (out == 7).all()
    assert not (tmp_path / "cache").exists()
    with pytest.raises(DeviceError, match="'no-such-compiler' is not on the PATH"):
        load(Device("cpu", threads=1), path, VALUE=8)  # another program
    damaged = target.read_bytes()[:-1]
    target.unlink()  # this process has mapped the file: what is written into it would end the process at its exit
    target.write_bytes(damaged)
    with pytest.raises(DeviceError, match="'no-such-compiler' is not on the PATH"):
        host._library(program)


def test_levels_of_cpus():
    assert set(host.LEVELS["x86-64-v3"]) < set(host.LEVELS["x86-64-v4"])
    for level in host.LEVELS:
        assert f"-march={level}" in host._flags_for(level)
        assert "-march=native" not in host._flags_for(level)
