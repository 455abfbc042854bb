"""The kernels of maintained communities for the rows of a level."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import kernels
from mgraph.algorithms.communities.multilevel import Level
from mgraph.device import Array, Device
from mgraph.kernels import Library

__all__ = ["FILE", "count_edges", "level_kernels"]

FILE = "algorithms/communities/dynamic/dynamic.cuh"


def level_kernels(level: Level) -> Library:
    """Return the kernels of `FILE` for the rows of a level: those of the structure, or a copy of them."""
    return kernels(level.shard, FILE, level.weights[0].view)


def count_edges(level: Level, rows: Array, degrees: Array = None) -> int:
    """Return the number of edges of listed rows, and write that of each to `degrees`, int64. One read-back."""
    views, total = level.tally.views, level.device.zeros(1, np.int64)
    level_kernels(level).CountDegrees(
        len(rows), graph=views[0], back=views[-1], both=len(views) - 1, rows=rows, n=len(rows), degrees=degrees,
        sum=total,
    )  # fmt: skip
    return int(Device.to_host(total)[0])
