"""gpma+ from nothing: a run becomes the whole array at once, in two passes over its keys.

An empty structure has one leaf. What a batch makes of it is what the ordinary way would make of it too: the same leaf,
or where that is too small, the leaves of a resized array, evenly filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Library, Struct
from mgraph.structures.contract import Counts
from mgraph.structures.run import Run

if TYPE_CHECKING:
    from mgraph.structures.gpma_plus import GpmaPlus

__all__ = ["Build", "commit_build", "prepare_build"]

Array = Any
WORD_KEYS, TASK_ROWS = 32, 512  # as gpma_build.cuh and gpma_window.cuh have them


@dataclass
class Build:
    """The work of a plan: which keys act, their numbers, and the new array."""

    numbers: Struct
    num_edges: int
    array: dict[str, Array]
    levels: tuple[Array, Array]


def prepare_build(s: GpmaPlus, kernels: Library, run: Run) -> tuple[Counts, Array, Build]:
    """Number the keys that act; one launch, a scan and a read-back, two where the run has ops."""
    n, device = len(run), s.device
    words = -(-n // WORD_KEYS)
    outcome, acts, before = device.carve((n, np.uint8), (words, np.uint32), (words + 1, np.uint32))
    misses = device.zeros(1, np.int64)
    kernels.Mark(words, keys=run.keys, op=run.op, n=n, outcome=outcome, acts=acts, before=before, misses=misses)
    device.xp.cumsum(before, dtype=np.uint32, out=before)
    total = int(before[-1])
    missing = 0 if run.op is None else int(Device.to_host(misses)[0])
    leaves = 1 if total <= s.bounds(1)[1][0] else s.even_leaves(total)
    array = s.new_array(leaves, blank=total == 0)
    work = Build(Struct(acts=acts, before=before, n=n, total=total), total, array, s.level_arrays(leaves))
    return Counts(inserted=total, missing=missing), outcome, work


def commit_build(kernels: Library, run: Run, work: Build, start: Array, degrees: Array) -> None:
    """Write the array, the row starts and the degrees: four launches."""
    array, total, rows = work.array, work.num_edges, len(degrees)
    leaves = len(array["counts"])
    keys = {"numbers": work.numbers, "keys": run.keys, "leaves": leaves}
    kernels.Place(len(run), **keys, weight=run.weight, slots=array["slots"], weights=array["weights"])
    kernels.PlaceRows(rows // TASK_ROWS + 1, **keys, rows=rows, start=start)
    kernels.CountRows(rows, start=start, rows=rows, total=total, leaves=leaves, degrees=degrees)
    kernels.EvenCounts(leaves, total=total, leaves=leaves, counts=array["counts"], groups=array["groups"])
