"""Facts of a machine that can be found without starting a cluster: GPUs, their links, UCX, versions, the host."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

from cluster.choice import Machine
from mgraph.budget import host_memory_limit

__all__ = ["gpus", "host", "links", "ucx", "versions"]

LOOK_SECONDS = 30.0  #: how long a compiler, or UCX in its own process, has to answer
PACKAGES = (
    "dask-mgraph", "dask", "distributed", "numpy", "dask-cuda", "distributed-ucxx-cu13", "distributed-ucxx-cu12",
    "ucxx-cu13", "ucxx-cu12", "libucx-cu13", "libucx-cu12", "cupy-cuda13x", "cupy-cuda12x", "rmm-cu13", "rmm-cu12",
    "nvidia-ml-py",
)  # fmt: skip


def _nvml() -> Any:
    """NVML, initialised; None without pynvml or without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, no library, no driver: NVML has an error type for each
        return None
    return pynvml


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def gpus() -> list[dict[str, Any]]:
    """The driver's GPUs in its order: name, memory_bytes, driver, uuid; CuPy's list where there is no NVML.

    NVML shows all GPUs of the machine, also those that CUDA_VISIBLE_DEVICES hides.
    """
    nvml = _nvml()
    if nvml is None:
        return _gpus_of_cupy()
    driver, found = _text(nvml.nvmlSystemGetDriverVersion()), []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        found.append(
            {
                "name": _text(nvml.nvmlDeviceGetName(handle)),
                "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                "driver": driver,
                "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
            }
        )
    return found


def _gpus_of_cupy() -> list[dict[str, Any]]:
    here = Machine.here().gpus
    if not here:
        return []
    from cupy.cuda import runtime

    found = [runtime.getDeviceProperties(index) for index in range(len(here))]
    driver = f"CUDA {runtime.driverGetVersion()}"
    return [
        {"name": _text(one["name"]), "memory_bytes": int(one["totalGlobalMem"]), "driver": driver, "uuid": "unknown"}
        for one in found
    ]


def links(count: int) -> list[dict[str, Any]]:
    """How each pair of `count` GPUs is linked: {"gpus": [i, j], "link": "NVLink x18" | "PCIe ..." | "unknown"}."""
    nvml = _nvml()
    return [{"gpus": [i, j], "link": "unknown" if nvml is None else _link(nvml, i, j)} for i, j in _pairs(count)]


def _pairs(count: int) -> list[tuple[int, int]]:
    return list(combinations(range(count), 2))


def _link(nvml: Any, i: int, j: int) -> str:
    """NVLink, direct or through a switch, where peers reach each other by it; else their nearest common bridge."""
    try:
        one, other = nvml.nvmlDeviceGetHandleByIndex(i), nvml.nvmlDeviceGetHandleByIndex(j)
        if nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK:
            return f"NVLink, {min(_active(nvml, one), _active(nvml, other))} links a GPU"
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    except nvml.NVMLError:
        return "unknown"
    named = {
        nvml.NVML_TOPOLOGY_SINGLE: "PCIe, one switch",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PCIe, several switches",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PCIe, one host bridge",
        nvml.NVML_TOPOLOGY_NODE: "PCIe, one NUMA node",
        nvml.NVML_TOPOLOGY_SYSTEM: "PCIe, across NUMA nodes",
    }
    return named.get(level, "PCIe")


def _active(nvml: Any, handle: Any) -> int:
    """How many NVLinks of a GPU are up."""
    up = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            up += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
        except nvml.NVMLError:  # the GPU has fewer
            break
    return up


def ucx() -> dict[str, Any]:
    """UCX as a graph's workers would find it: version, ucxx, transports, and cuda (whether one moves GPU memory).

    {"why": ...} where UCX cannot be loaded. A process of its own looks at it, because UCX prints and may abort.
    """
    command = [sys.executable, "-m", "cluster.transports"]
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LOOK_SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else None
    except subprocess.TimeoutExpired:
        return {"why": f"UCX did not answer within {LOOK_SECONDS:g} s"}
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"why": f"UCX failed: {(done.stderr or done.stdout).strip()[-300:]}"}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter; those that are not installed are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def host(machine: Machine) -> dict[str, Any]:
    """Cores and memory that this process may use, and the compiler of the CPU kernels."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": machine.cores,
        "memory_bytes": machine.memory,
        "memory_free_bytes": host_memory_limit(),
        **_compiler(),
    }


def _compiler() -> dict[str, Any]:
    command = shlex.split(os.environ.get("CXX", "g++"))
    if not command or shutil.which(command[0]) is None:
        name = " ".join(command) or "CXX"
        return {"compiler": None, "compiler_why": f"{name!r} is not on the PATH; CPU workers need a C++17 compiler"}
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=LOOK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return {"compiler": None, "compiler_why": f"{' '.join(command)!r} does not run: {error}"}
    return {"compiler": done.stdout.splitlines()[0] if done.stdout else " ".join(command)}
