"""The folder of compiled libraries: none is loaded that is damaged or another user's, and errors name the folder."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from patience import patience
from small_kernels import FILL

from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.kernels import cuda, libraries, load
from mgraph.kernels.cuda import compile_cuda
from mgraph.kernels.source import read_program

RUN = """
import sys
import numpy as np
from mgraph.device import Device
from mgraph.errors import DeviceError
from mgraph.kernels import load
out = np.zeros(10, np.int64)
try:
    load(Device("cpu", threads=1), sys.argv[1], VALUE=int(sys.argv[2])).Fill(10, n=10, out=out)
except DeviceError as error:
    print("DeviceError:", error)
else:
    assert (out == int(sys.argv[2])).all(), out
    print("filled")
"""
OTHER = 12345  # a user's number
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Machine:
    """A folder for libraries, and a compiler that counts what it compiles."""

    def __init__(self, tmp_path: Path, kernel: str) -> None:
        self.tmp_path, self.kernel, self.folder = tmp_path, kernel, tmp_path / "cache" / "kernels"
        self.log, self.compiler = tmp_path / "compiled", tmp_path / "c++"
        self.install("1")

    def install(self, version: str, does: str = 'exec {real} "$@"') -> None:
        real = os.environ.get("CXX", "g++")
        self.compiler.write_text(
            f'#!/bin/sh\ncase "$*" in *--version*) echo version {version}; exit;; *) echo once >> "{self.log}";; esac\n'
            + does.format(real=real)
        )
        self.compiler.chmod(0o755)

    def run(self, value: int = 7, **environment: str) -> str:
        names = {"CXX": str(self.compiler), "MGRAPH_CACHE_DIR": str(self.folder.parent)}
        done = subprocess.run(
            [sys.executable, "-c", RUN, self.kernel, str(value)], env=os.environ | names | environment,
            capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def compiled(self) -> int:
        return len(self.log.read_text().split()) if self.log.exists() else 0

    @property
    def built(self) -> Path:
        (found,) = self.folder.glob("*.so")
        return found


@pytest.fixture
def machine(tmp_path, write) -> Machine:
    return Machine(tmp_path, write(FILL))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- whole or compiled again ---

DAMAGE = {
    "emptied": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "its end is gone": lambda content: content[:-1],
    "a bit differs": lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
}


@pytest.mark.parametrize(
    "damage", ["a bit differs", *(pytest.param(how, marks=pytest.mark.slow) for how in DAMAGE if "bit" not in how)]
)
def test_damaged_library_is_compiled_again(machine, damage):
    assert machine.run() == "filled"
    machine.built.write_bytes(DAMAGE[damage](machine.built.read_bytes()))
    assert machine.run() == "filled"
    assert machine.compiled == 2
    assert machine.run() == "filled"
    assert machine.compiled == 2


def test_library_is_on_the_disk_before_it_has_its_name(machine, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, real=real: (calls.append(name), real(*given))[1])
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(machine.folder.parent))
    load(Device("cpu"), machine.kernel, VALUE=1)
    assert calls == ["fsync", "replace"]


# --- without a compiler ---


def test_warm_folder_needs_no_compiler(machine):
    assert machine.run() == "filled"
    assert machine.run(CXX="no-such-compiler") == "filled"


def test_compiler_that_does_not_run_is_none(machine):
    assert machine.run() == "filled"
    machine.compiler.write_text("#!/bin/sh\nexit 1\n")
    assert machine.run() == "filled"
    machine.compiler.write_text("no program")
    assert machine.run() == "filled"
    assert "cannot run" in machine.run(8)


def test_another_compiler_compiles_again_and_none_takes_either(machine):
    assert machine.run() == "filled"
    machine.install("2")
    assert machine.run() == "filled"
    assert machine.compiled == 2
    newer, older = sorted(machine.folder.glob("*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
    newer.write_bytes(b"")
    assert machine.run(CXX="no-such-compiler") == "filled"
    older.write_bytes(b"")
    said = machine.run(CXX="no-such-compiler")
    assert "'no-such-compiler' is not on the PATH" in said
    assert "apt install g++" in said
    assert f"{machine.folder} has no library of {machine.kernel}" in said


def test_without_a_compiler_other_sources_are_not_taken(machine):
    assert machine.run(7) == "filled"
    assert "no library" in machine.run(8, CXX="no-such-compiler")
    assert "no library" in machine.run(7, CXX="no-such-compiler", MGRAPH_HOST_BUILD="lanes")


# --- owners and modes ---


def test_folders_and_files_are_the_users_alone(machine):
    before = os.umask(0)
    try:
        assert machine.run(MGRAPH_CACHE_DIR="", XDG_CACHE_HOME=str(machine.tmp_path)) == "filled"
    finally:
        os.umask(before)
    root = machine.tmp_path / "mgraph"
    assert [mode(root), mode(root / "kernels")] == [0o700, 0o700]
    files = list((root / "kernels").iterdir())
    assert {path.suffix for path in files} == {".so", ".cpp", ".lock"}
    assert {mode(path) for path in files} == {0o600}


def test_what_is_too_open_is_closed(machine):
    assert machine.run() == "filled"
    machine.folder.chmod(0o777)
    machine.built.chmod(0o666)
    machine.folder.parent.chmod(0o755)  # the user's choice, which stays
    assert machine.run() == "filled"
    assert [mode(machine.folder), mode(machine.built), mode(machine.folder.parent)] == [0o700, 0o600, 0o755]
    assert machine.compiled == 1


@as_root
def test_another_users_folder_is_refused(machine):
    assert machine.run() == "filled"
    os.chown(machine.folder, OTHER, OTHER)
    said = machine.run()
    assert f"kernel cache {machine.folder} belongs to user {OTHER}" in said
    assert "MGRAPH_CACHE_DIR" in said


@as_root
def test_another_users_library_is_compiled_again(machine):
    assert machine.run() == "filled"
    os.chown(machine.built, OTHER, OTHER)
    assert machine.run() == "filled"
    assert machine.compiled == 2
    assert machine.built.stat().st_uid == 0


@as_root
def test_roots_folder_serves_others_unless_all_can_write(machine, monkeypatch):
    assert machine.run() == "filled"
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(machine.folder.parent))
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    machine.folder.chmod(0o755)
    assert libraries.folder() == machine.folder
    assert libraries.is_whole(machine.built)
    machine.built.chmod(0o622)
    assert not libraries.is_whole(machine.built)
    machine.folder.chmod(0o1777)
    with pytest.raises(DeviceError, match=f"{machine.folder} belongs to user 0 and has mode 1777.*MGRAPH_CACHE_DIR"):
        libraries.folder()


# --- disks that are full or read-only, and what else is refused ---


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_disk_that_refuses_is_named(machine, monkeypatch, call, code):
    def refuse(path, *_, **__):
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(machine.folder.parent))
    monkeypatch.setattr(libraries.os, call, refuse)
    with pytest.raises(DeviceError, match=f"kernel cache {machine.folder}: {os.strerror(code)}; .*MGRAPH_CACHE_DIR"):
        load(Device("cpu"), machine.kernel, VALUE=1)
    monkeypatch.undo()
    assert not list(machine.folder.glob("*.so"))
    assert not list(machine.folder.glob("*.partial"))
    assert machine.run() == "filled"


def test_compiler_without_room_is_explained(machine):
    machine.install("1", "echo 'final link failed: No space left on device' >&2; exit 1")
    said = machine.run()
    assert "final link failed" in said
    assert f"no space for the library in {machine.folder}" in said
    assert "MGRAPH_CACHE_DIR and TMPDIR" in said


def test_library_that_does_not_load_is_named(machine):
    machine.install("1", 'while [ "$1" != -o ]; do shift; done; echo no library > "$2"')
    said = machine.run()
    assert said.startswith(f"DeviceError: cannot load {machine.built}")
    assert "noexec" in said


def test_lock_that_is_never_given_back_is_named(machine, monkeypatch):
    monkeypatch.setenv("MGRAPH_CACHE_DIR", str(machine.folder.parent))
    monkeypatch.setattr(libraries, "WAIT", 0.2)
    target = libraries.folder() / "library.so"
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DeviceError, match=r"library\.lock for 0\.2 s"), libraries.locked(target):
            pass


FORK = """
import os, sys
from contextlib import nullcontext
from pathlib import Path
from mgraph.kernels import libraries
libraries.WAIT, target = 5, Path(sys.argv[1])
ready, done = os.pipe(), os.pipe()
with libraries.locked(target):
    if os.fork() == 0:  # holds a copy of the lock until its parent has ended
        os.close(done[1])
        os.write(ready[1], b"!")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
with libraries.locked(target):
    print("locked again")
"""


def test_forked_child_does_not_keep_the_lock(tmp_path):
    command = [sys.executable, "-c", FORK, str(tmp_path / "library.so")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=patience(60))
    assert done.stdout == "locked again\n"


def test_cupys_folder_that_refuses_is_named(write, monkeypatch):
    class Fake:
        index = 0

        def __init__(self) -> None:
            self.xp = SimpleNamespace(RawModule=self.module, cuda=SimpleNamespace(Device=self.entered, compiler=Errors))

        def module(self, **_):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        def entered(self, _):
            return nullcontext(SimpleNamespace(use=lambda: None, compute_capability="90"))

    class Errors:
        CompileException = ZeroDivisionError

    monkeypatch.setattr(cuda, "Device", lambda *_: Fake())
    monkeypatch.setenv("CUPY_CACHE_DIR", "/a/folder")
    program = read_program(write(FILL), "kernels/platform/cuda.cuh", (("VALUE", 1),), None)
    with pytest.raises(DeviceError, match="to /a/folder: .*Read-only file system.*CUPY_CACHE_DIR"):
        compile_cuda(program, Fake())


def test_checksum_finds_any_bit_that_differs(machine):
    assert machine.run() == "filled"
    content, rng = machine.built.read_bytes(), np.random.default_rng(1)
    assert libraries.is_whole(machine.built)
    for at in rng.integers(0, len(content), 50).tolist():
        machine.built.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        assert not libraries.is_whole(machine.built), at
