"""gapbs as a peer: its programs, built by the user, run on the very same graph."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np

from mgraph.errors import InvalidOption, MgraphError
from workloads.gap.graphs import GapGraph
from workloads.gap.kernels import Kernel

__all__ = ["check", "milliseconds", "write_serialized"]

LIMIT_SECONDS = 3600


def check(folder: Path, kernels: list[Kernel]) -> None:
    """Raise `InvalidOption` if a program is missing in the user's folder."""
    missing = [k.name for k in kernels if not os.access(folder / k.name, os.X_OK)]
    if missing:
        raise InvalidOption(f"--gapbs {folder} has no program {', '.join(missing)}; build gapbs and name its folder")


def write_serialized(graph: GapGraph, path: Path, weighted: bool) -> None:
    """Write gapbs's serialized format: ``.sg``, or ``.wsg`` with weights.

    A byte 0 (undirected), the number of arcs and of vertices as int64, the offsets as int64, and per arc its end as
    int32, followed by its weight as int32 in a ``.wsg``. Rows ascend. O(m log m) on the device.
    """
    # Sort the arcs of both directions.
    xp, n = graph.device.xp, graph.n_vertices
    lesser, greater, weight = graph.columns()
    src, dst = xp.concatenate([lesser, greater]), xp.concatenate([greater, lesser])
    order = xp.argsort(src.astype(np.uint64) << np.uint64(32) | dst)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(graph.device.to_host(graph.degrees), out=offsets[1:])
    arcs = np.empty((len(order), 1 + weighted), np.int32)
    arcs[:, 0] = graph.device.to_host(dst[order])
    if weighted:
        arcs[:, 1] = graph.device.to_host(xp.concatenate([weight, weight])[order])

    # Write the header, the offsets and the arcs.
    with path.open("wb") as file:
        file.write(b"\0")
        for part in (np.array([len(order), n], np.int64), offsets, arcs):
            part.tofile(file)


def milliseconds(folder: Path, kernel: Kernel, graph: Path, trials: int, threads: int) -> list[float]:
    """Return the time of each trial of a program.

    Raises `MgraphError` if it fails, or prints other than gapbs does.
    """
    command = [str(folder / kernel.name), "-f", str(graph), "-n", str(trials), *kernel.flags]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MgraphError(f"{' '.join(command)}: {error}") from None
    times = [float(seconds) * 1e3 for seconds in re.findall(r"^Trial Time:\s+(\S+)$", process.stdout, re.MULTILINE)]
    if process.returncode or len(times) != trials:
        output = (process.stderr or process.stdout).strip()[-200:]
        raise MgraphError(f"{' '.join(command)}: exit status {process.returncode}, {len(times)} trial times: {output}")
    return times
