"""Record of a run: JSON lines, of which the first has parameters, versions and hardware."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from mgraph.device import gpu_count
from mgraph.errors import InvalidOption

__all__ = ["Record", "environment"]

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "dask-mgraph",
    "dask",
    "distributed",
    "numpy",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "dask-cuda",
    "distributed-ucxx-cu13",
)


class Record:
    """Measurements of a run, kept, and written as JSON lines at once if a folder is given.

    Parameters
    ----------
    name : str
        First part of the file's name; the time and the process id follow.
    folder : Path, optional
        Created if missing. Raises `InvalidOption` if it cannot be.
    parameters : dict
        The user's choices, for the first line, beside `environment()`.
    """

    latest: Record | None = None  #: the latest record of this process

    def __init__(self, name: str, folder: Path | None, parameters: dict[str, Any]) -> None:
        # Create the file.
        self.lines: list[dict[str, Any]] = []
        self.path: Path | None = None
        if folder is not None:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            self.path = folder / f"{name}-{stamp}-{os.getpid()}.jsonl"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self.path.touch(exist_ok=False)
            except OSError as error:
                raise InvalidOption(f"cannot write to {folder}: {error.strerror}") from None
        # The first line.
        self.add("run", name=name, parameters=parameters, **environment())
        Record.latest = self

    def add(self, kind: str, **values: Any) -> dict[str, Any]:
        """Add a line and write it at once."""
        line = {"kind": kind, **values}
        self.lines.append(line)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return line

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of a kind, in order."""
        return [line for line in self.lines if line["kind"] == kind]


def environment() -> dict[str, Any]:
    """Return time, versions, hardware, the build of the CPU kernels and, in a git checkout, the commit."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": _versions(),
        "hardware": _hardware(),
        "host_build": os.environ.get("MGRAPH_HOST_BUILD", "plain"),
        "commit": _commit(),
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _hardware() -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": pages,
        "gpus": _gpu_names(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _gpu_names() -> list[str]:
    if not gpu_count():
        return []
    import cupy

    return [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(gpu_count())]


def _commit() -> str | None:
    """Return the checkout's commit, with "-dirty" if tracked files differ; None outside of a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip() or None
