"""gpma+ from nothing: a run becomes the whole array at once, in two passes over its keys.

An empty structure has one leaf. What a batch makes of it is what the ordinary way would make of it too: the same leaf,
or where that is too small, the leaves of a resized array, evenly filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mgraph.kernels import Library, Struct
from mgraph.structures.contract import Counts
from mgraph.structures.numbers import number_keys
from mgraph.structures.run import Run

if TYPE_CHECKING:
    from mgraph.structures.gpma_plus import GpmaPlus

__all__ = ["Build", "commit_build", "prepare_build"]

Array = Any
TASK_ROWS = 512  # as gpma_window.cuh has them


@dataclass
class Build:
    """The work of a plan: which keys act, their numbers, and the new array."""

    numbers: Struct
    num_edges: int
    array: dict[str, Array]
    levels: tuple[Array, Array]


def prepare_build(s: GpmaPlus, kernels: Library, run: Run) -> tuple[Counts, Array, Build]:
    """Number the keys, and take the array that they need."""
    counts, outcome, numbers = number_keys(s.device, kernels, run)
    total = counts.inserted
    leaves = 1 if total <= s.bounds(1)[1][0] else s.even_leaves(total)
    return counts, outcome, Build(numbers, total, s.new_array(leaves, blank=total == 0), s.level_arrays(leaves))


def commit_build(kernels: Library, run: Run, work: Build, start: Array, degrees: Array) -> None:
    """Write the array, the row starts and the degrees: four launches."""
    array, total, rows = work.array, work.num_edges, len(degrees)
    leaves = len(array["counts"])
    keys = {"numbers": work.numbers, "keys": run.keys, "leaves": leaves}
    kernels.Place(len(run), **keys, weight=run.weight, slots=array["slots"], weights=array["weights"])
    kernels.PlaceRows(rows // TASK_ROWS + 1, **keys, rows=rows, start=start)
    kernels.CountRows(rows, start=start, rows=rows, total=total, leaves=leaves, degrees=degrees)
    kernels.EvenCounts(
        leaves, total=total, leaves=leaves, **{name: array[name] for name in ("slots", "counts", "groups", "heads")}
    )
