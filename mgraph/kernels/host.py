"""Compilation with the host's C++ compiler into a shared library, once per machine and text.

A wheel may carry libraries for two levels of CPUs; programs among them are not compiled.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from glob import escape
from pathlib import Path

from mgraph.errors import DeviceError
from mgraph.kernels import libraries
from mgraph.kernels.source import Program

__all__ = ["LEVELS", "carry", "compile_carried", "compile_host", "host_platform", "simulates_lanes"]

# Hide all symbols but the entries. Otherwise g++ shares the static buffers of inline functions among all libraries (as
# STB_GNU_UNIQUE), but two programs of a file with different constants have buffers of different sizes.
COMMON = ["-std=c++17", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
WARNINGS = ["-Wall", "-Wno-unknown-pragmas"]
BUILDS = {  # values of MGRAPH_HOST_BUILD: tests use the others to find errors that the plain build hides
    "plain": ["-O3"],
    "quick": ["-Og", "-DDEVICE=inline"],  # tests: compiles in 40% of the time
    "lanes": ["-O1", "-U_FORTIFY_SOURCE", "-DMGRAPH_LANES"],  # tiles have 32 lanes, as fibers that switch by longjmp
    "address": ["-O0", "-g1", "-DDEVICE=inline", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-O0", "-g1", "-DDEVICE=inline", "-DMGRAPH_OWN_THREADS", "-fsanitize=thread"],
}


_V3 = ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
#: levels of CPUs, the best first, and the kernel's names of the features that each adds to the level below
LEVELS = {
    "x86-64-v4": (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": _V3,
}
ALONE = ["-static-libstdc++", "-static-libgcc"]  # a carried library needs only the machine's C library


def _build() -> str:
    """Return the chosen build of the host's kernels."""
    build = os.environ.get("MGRAPH_HOST_BUILD", "plain")
    if build not in BUILDS:
        raise DeviceError(f"MGRAPH_HOST_BUILD is {build!r}; it must be one of {', '.join(BUILDS)}")
    return build


def simulates_lanes() -> bool:
    """Return True if tiles of the chosen build have several lanes. Otherwise a tile is a thread."""
    return _build() == "lanes"


def host_platform() -> str:
    """Return the platform header of the chosen build."""
    return "kernels/platform/simulated_lanes.h" if simulates_lanes() else "kernels/platform/host.h"


def _entries(program: Program) -> str:
    """Return the text of the kernels' entry points, a C function per struct."""
    lines = []
    for kernel in program.kernels:
        kind = kernel.kind(program.view)
        fields = f"*(const {kind}*)fields"
        run = kernel.entry or "launch"
        call = f"launch_persistent({fields})" if kernel.persistent else f"{run}({fields}, items, threads)"
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) '
            f"void mgraph_{kernel.name}(const void* fields, i64 items, int threads) "
            f"{{ static_assert(sizeof({kind}) == {kernel.nbytes}); "
            f"{call}; }}\n"
        )
    return "".join(lines)


@cache
def _cpu() -> str:
    """Return the CPU's model and features, on which the binary depends."""
    if not os.path.exists("/proc/cpuinfo"):
        return ""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].split("\n")
    return "\n".join(line for line in lines if line.startswith(("model", "flags", "Features", "CPU part")))


def _compiler() -> tuple[str, ...]:
    """Return the compiler's command; `DeviceError` if it cannot be found."""
    named = os.environ.get("CXX", "g++")
    try:
        command = tuple(shlex.split(named))
    except ValueError as error:
        raise DeviceError(f"CXX is {named!r}, which is no command: {error}") from None
    if not command or shutil.which(command[0]) is None:
        raise DeviceError(
            f"the CPU kernels need a C++17 compiler and {' '.join(command) or 'CXX'!r} is not on the PATH; "
            "install one (Debian: apt install g++) or set CXX to its path"
        )
    return command


@cache
def _version(compiler: tuple[str, ...]) -> str:
    """Return the compiler and its version, on which the binary depends."""
    done = _run([*compiler, "--version"], 60)
    if done.returncode:
        raise DeviceError(f"{shlex.join(compiler)} --version failed; set CXX to another compiler:\n{done.stderr}")
    return f"{compiler} {done.stdout.splitlines()[:1]}"


def _run(command: list[str], limit: int) -> subprocess.CompletedProcess[str]:
    """Run a command for at most `limit` seconds."""
    environment = os.environ | {"LC_ALL": "C"}
    # The interpreter preloads the sanitizer, with which the compiler would take twice as long.
    if _build() in ("address", "thread"):
        environment.pop("LD_PRELOAD", None)
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"{shlex.join(command)} did not finish within {limit} s") from None
    except OSError as error:
        raise DeviceError(f"cannot run {shlex.join(command)}: {error}; set CXX to another compiler") from None


def _compile(command: list[str], text: str, target: Path, pack: Callable[[bytes], bytes] | None = None) -> None:
    """Compile `text` to `target`, packed. Concurrent processes wait for the lock, and one compiles."""
    source, partial = target.with_suffix(".cpp"), target.with_suffix(".partial")
    command = [*command, "-o", str(partial), str(source)]
    try:
        # Under the lock, another process may have compiled it already.
        with libraries.locked(target):
            if libraries.is_whole(target):
                return
            try:
                libraries.write(source, text)
                done = _run(command, 600)
                if done.returncode:
                    raise DeviceError(
                        f"{shlex.join(command)} failed:\n{done.stderr[-4000:]}{_space(done.stderr, target)}"
                    )
                if pack is not None:
                    partial.write_bytes(pack(partial.read_bytes()))
                libraries.seal(partial, target)
            finally:
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise libraries.unusable(target.parent, error) from None


def _space(said: str, target: Path) -> str:
    """Return advice if the compiler's output names a full or read-only disk, else ""."""
    if not any(os.strerror(code) in said for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)):
        return ""
    return (
        f"there is no space for the library in {target.parent}, or for the compiler's own files in "
        f"{tempfile.gettempdir()}; set MGRAPH_CACHE_DIR and TMPDIR to other folders"
    )


def _library(program: Program) -> Path:
    """Return the program's library, from the wheel, the cache or the compiler.

    Without a compiler, a cached library of any compiler is used, if it has the same source, flags and CPU.
    """
    if (library := _carried(program)) is not None:
        return library
    # The name in the cache depends on text, flags, CPU and compiler.
    flags, text = BUILDS[_build()], program.text + _entries(program)
    name = f"{Path(program.name).stem}-{libraries.digest(text, *COMMON, *flags, _cpu())[:24]}"
    folder = libraries.folder()
    try:
        compiler = _compiler()
        version = _version(compiler)
    except DeviceError as error:
        cached = libraries.newest(folder, f"{escape(name)}-*.so")
        if cached is None:
            raise DeviceError(f"{error} ({folder} has no library of {program.name} for this source and CPU)") from None
        return cached

    # Compile it if it is missing or damaged.
    target = folder / f"{name}-{libraries.digest(version)[:8]}.so"
    if not libraries.is_whole(target):
        _compile([*compiler, *COMMON, *flags, *WARNINGS], text, target)
    return target


# ---- libraries in a wheel --------------------------------------------------------------------------------------------


def _flags_for(level: str) -> list[str]:
    """Return the compiler's flags for CPUs of a level."""
    return [flag.replace("native", level) for flag in COMMON] + BUILDS["plain"] + ALONE


def _place(program: Program, level: str, folder: Path) -> Path:
    """Return the path of a program's library for a level of CPUs."""
    return libraries.place(folder / level, program.name, ".so", program.text, _entries(program), *_flags_for(level))


def _carried(program: Program) -> Path | None:
    """Return the wheel's library of a program for this CPU, if any."""
    folder = libraries.CARRIED
    if not folder.is_dir() or _build() != "plain":
        return None
    supported = set(_cpu().split())
    places = (_place(program, level, folder) for level, features in LEVELS.items() if supported.issuperset(features))
    return next((place for place in places if libraries.content(place) is not None), None)


def carry(program: Program, level: str, folder: Path = libraries.CARRIED) -> Path:
    """Compile the program's library for a level of CPUs into a wheel's folder."""
    command = [*_compiler(), *_flags_for(level), *WARNINGS]
    return compile_carried(command, program.text + _entries(program), _place(program, level, folder))


def compile_carried(command: list[str], text: str, target: Path, pack: Callable[[bytes], bytes] | None = None) -> Path:
    """Compile `text` to `target`, a library in a wheel's folder; ``pack(library)`` returns what is written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _compile(command, text, target, pack)
    for left in (".cpp", ".lock"):
        target.with_suffix(left).unlink(missing_ok=True)
    return target


@cache
def compile_host(program: Program) -> dict[str, Callable[[bytes, int, int], None]]:
    """Compile a program and return its kernels by name.

    A kernel is called as ``function(packed fields, items, threads)``; with -n it has n threads of the background. The
    call waits for the kernel, without the GIL.

    Raises
    ------
    DeviceError
        The compiler is missing, it rejects the program, or the library cannot be written or loaded.
    """
    target = _library(program)
    try:
        library = ctypes.CDLL(str(target))
    except OSError as error:
        raise DeviceError(
            f"cannot load {target}: {error}; if its file system is mounted noexec, set MGRAPH_CACHE_DIR to another "
            "folder, else remove the file"
        ) from None
    functions = {}
    for kernel in program.kernels:
        function = getattr(library, f"mgraph_{kernel.name}")
        function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_longlong, ctypes.c_int], None
        functions[kernel.name] = function
    return functions
