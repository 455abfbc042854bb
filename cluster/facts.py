"""Facts of a machine that need no cluster: GPUs, their links, UCX, versions, the host."""

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

LOOK_SECONDS = 30.0  #: time limit of a compiler, and of UCX in its own process
PACKAGES = (
    "dask-mgraph", "dask", "distributed", "numpy", "dask-cuda", "distributed-ucxx-cu13", "distributed-ucxx-cu12",
    "ucxx-cu13", "ucxx-cu12", "libucx-cu13", "libucx-cu12", "cupy-cuda13x", "cupy-cuda12x", "rmm-cu13", "rmm-cu12",
    "nvidia-ml-py",
)  # fmt: skip


def _nvml() -> Any:
    """Return NVML, initialised; None without pynvml or without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, no library, no driver: NVML has an error type for each
        return None
    return pynvml


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def gpus() -> list[dict[str, Any]]:
    """Return the driver's GPUs in its order: name, memory_bytes, driver, uuid.

    Without NVML, CuPy's list. NVML shows all GPUs of the machine, also those that CUDA_VISIBLE_DEVICES hides.
    """
    nvml = _nvml()
    if nvml is None:
        return _gpus_of_cupy()
    driver, gpus = _text(nvml.nvmlSystemGetDriverVersion()), []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpus.append(
            {
                "name": _text(nvml.nvmlDeviceGetName(handle)),
                "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                "driver": driver,
                "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
            }
        )
    return gpus


def _gpus_of_cupy() -> list[dict[str, Any]]:
    names = Machine.here().gpus
    if not names:
        return []
    from cupy.cuda import runtime

    properties = [runtime.getDeviceProperties(index) for index in range(len(names))]
    driver = f"CUDA {runtime.driverGetVersion()}"
    return [
        {"name": _text(gpu["name"]), "memory_bytes": int(gpu["totalGlobalMem"]), "driver": driver, "uuid": "unknown"}
        for gpu in properties
    ]


def links(count: int) -> list[dict[str, Any]]:
    """Return the link of each pair of `count` GPUs.

    Each is {"gpus": [i, j], "link": "NVLink x18" | "PCIe ..." | "unknown"}.
    """
    nvml = _nvml()
    return [{"gpus": [i, j], "link": "unknown" if nvml is None else _link(nvml, i, j)} for i, j in _pairs(count)]


def _pairs(count: int) -> list[tuple[int, int]]:
    return list(combinations(range(count), 2))


def _link(nvml: Any, i: int, j: int) -> str:
    """Return the link of two GPUs: NVLink, direct or through a switch, or their nearest common bridge."""
    try:
        first, second = nvml.nvmlDeviceGetHandleByIndex(i), nvml.nvmlDeviceGetHandleByIndex(j)
        if nvml.nvmlDeviceGetP2PStatus(first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK:
            return f"NVLink, {min(_active(nvml, first), _active(nvml, second))} links per GPU"
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(first, second)
    except nvml.NVMLError:
        return "unknown"
    # Without NVLink: the nearest common bridge.
    bridges = {
        nvml.NVML_TOPOLOGY_SINGLE: "PCIe, one switch",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PCIe, several switches",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PCIe, one host bridge",
        nvml.NVML_TOPOLOGY_NODE: "PCIe, one NUMA node",
        nvml.NVML_TOPOLOGY_SYSTEM: "PCIe, across NUMA nodes",
    }
    return bridges.get(level, "PCIe")


def _active(nvml: Any, handle: Any) -> int:
    """Count the active NVLinks of a GPU."""
    up = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            up += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
        except nvml.NVMLError:  # the GPU has fewer
            break
    return up


def ucx() -> dict[str, Any]:
    """Return UCX as a graph's workers would load it: version, ucxx, transports, and cuda.

    `cuda` is True if a transport moves GPU memory. Without UCX, {"why": ...}. A separate process loads UCX, because it
    prints and may abort.
    """
    # The process finds this package, whatever the current folder is.
    command = [sys.executable, "-m", "cluster.transports"]
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))

    # Its last line of output is the answer.
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LOOK_SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        answer = json.loads(process.stdout.splitlines()[-1]) if process.stdout else None
    except subprocess.TimeoutExpired:
        return {"why": f"UCX did not answer within {LOOK_SECONDS:g} s"}
    except ValueError:
        answer = None
    return (
        answer
        if isinstance(answer, dict)
        else {"why": f"UCX failed: {(process.stderr or process.stdout).strip()[-300:]}"}
    )


def versions() -> dict[str, str]:
    """Return the versions of Python and of the relevant packages, where installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def host(machine: Machine) -> dict[str, Any]:
    """Return this process's cores and memory, and the compiler of the CPU kernels."""
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
        process = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=LOOK_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"compiler": None, "compiler_why": f"{' '.join(command)!r} does not run: {error}"}
    return {"compiler": process.stdout.splitlines()[0] if process.stdout else " ".join(command)}
