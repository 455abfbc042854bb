"""Compiles a program with the host's C++ compiler into a shared library, once per machine and content."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mgraph.errors import DeviceError
from mgraph.kernels.source import Program

__all__ = ["compile_host", "host_platform"]

# Hidden, but for the entries: g++ shares an inline function's static buffers among all libraries that export it (as
# STB_GNU_UNIQUE), and two programs of one file, compiled with other constants, have buffers of other sizes.
COMMON = ["-std=c++17", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
WARNINGS = ["-Wall", "-Wno-unknown-pragmas"]
BUILDS = {  # MGRAPH_HOST_BUILD: how the tests look for what the plain build hides
    "plain": ["-O3"],
    "lanes": ["-O1", "-U_FORTIFY_SOURCE", "-DMGRAPH_LANES"],  # 32-lane tiles as fibers, between which long jumps go
    "address": ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-O0", "-g1", "-DMGRAPH_STD_THREADS", "-fsanitize=thread"],
}


def _build() -> str:
    build = os.environ.get("MGRAPH_HOST_BUILD", "plain")
    if build not in BUILDS:
        raise DeviceError(f"MGRAPH_HOST_BUILD is {build!r}; it is one of {', '.join(BUILDS)}")
    return build


def host_platform() -> str:
    """The platform header of the chosen build."""
    return "platform_lanes.h" if _build() == "lanes" else "platform_host.h"


def _entries(program: Program) -> str:
    lines = []
    for kernel in program.kernels:
        kind = f"{kernel.name}<{program.view}>" if kernel.template else kernel.name
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) '
            f"void mgraph_{kernel.name}(const void* fields, i64 items, int threads) "
            f"{{ static_assert(sizeof({kind}) == {kernel.nbytes}); "
            f"launch(*(const {kind}*)fields, items, threads); }}\n"
        )
    return "".join(lines)


@cache
def _machine() -> str:
    """What the binary depends on besides source and flags: the compiler's version and the CPU's model and features."""
    compiler = _compiler()
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    cpu = ""
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].split("\n")
        cpu = "\n".join(line for line in lines if line.startswith(("model", "flags", "Features", "CPU part")))
    return f"{compiler} {version} {cpu}"


def _compiler() -> list[str]:
    command = shlex.split(os.environ.get("CXX", "g++"))
    if not command or shutil.which(command[0]) is None:
        raise DeviceError(
            f"the CPU kernels need a C++17 compiler and {' '.join(command) or 'CXX'!r} is not on the PATH; "
            "install one (Debian: apt install g++) or name it in CXX"
        )
    return command


def _cache_dir() -> Path:
    root = os.environ.get("MGRAPH_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mgraph"
    )
    path = Path(root) / "kernels"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeviceError(f"cannot write the kernel cache {path}: {error}; name a folder in MGRAPH_CACHE_DIR") from None
    return path


def _compile(text: str, flags: list[str], target: Path) -> None:
    """Write `target` from `text`; many processes may try at once: one compiles, the rest wait for its lock."""
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        source, partial = target.with_suffix(".cpp"), target.with_suffix(".partial")
        source.write_text(text)
        try:
            command = [*_compiler(), *COMMON, *WARNINGS, *flags, "-o", str(partial), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            raise DeviceError(f"the compiler did not finish {source} within 600 s") from None
        if done.returncode:
            raise DeviceError(f"{shlex.join(command)} failed:\n{done.stderr[-4000:]}")
        os.replace(partial, target)


@cache
def compile_host(program: Program) -> dict[str, Callable[[bytes, int, int], None]]:
    """Kernel name -> function(packed fields, items, threads); runs without the GIL, returns when the kernel has."""
    flags = BUILDS[_build()]
    text = program.text + _entries(program)
    key = hashlib.sha256("\0".join([text, *COMMON, *flags, _machine()]).encode()).hexdigest()[:24]
    target = _cache_dir() / f"{Path(program.name).stem}-{key}.so"
    if not target.exists():
        _compile(text, flags, target)
    library = ctypes.CDLL(str(target))
    functions = {}
    for kernel in program.kernels:
        function = getattr(library, f"mgraph_{kernel.name}")
        function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_longlong, ctypes.c_int], None
        functions[kernel.name] = function
    return functions
