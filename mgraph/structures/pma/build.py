"""First batch of a packed memory array: a run becomes the whole array, in two passes over its keys.

An empty structure has one leaf. The batch goes there, or if that is too small into an evenly filled array of the size
that an ordinary batch would choose. So the result is the same as that of an ordinary batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mgraph.kernels import Library, Struct
from mgraph.structures.first_batch import number_first_batch
from mgraph.structures.plan import Counts
from mgraph.structures.pma.scratch import TASK_ROWS
from mgraph.structures.run import Run

__all__ = ["Build", "commit_build", "prepare_build"]

Pma = Any  # the class in structure.py, which imports this module
Frame = Any

Array = Any


@dataclass
class Build:
    """Work of a plan: the numbers of the keys that act, and the new array."""

    numbers: Struct
    num_edges: int
    array: dict[str, Array]
    after: Frame


def prepare_build(s: Pma, kernels: Library, run: Run) -> tuple[Counts, Array, Build]:
    """Number the keys, and allocate their array."""
    counts, outcome, numbers = number_first_batch(s.device, kernels, run)
    total = counts.inserted
    array = s.new_array(1 if total <= s.bounds(1)[1][0] else s.even_leaves(total), blank=total == 0)
    return counts, outcome, Build(numbers, total, array, s.frame(s._spread(array), s.start, s._degrees))


def commit_build(kernels: Library, run: Run, work: Build) -> None:
    """Write the array, the row starts and the degrees, in four launches."""
    array, total, rows = work.array, work.num_edges, len(work.after.degrees)
    leaves, starts = len(array["counts"]), work.after.starts
    keys = {"numbers": work.numbers, "keys": run.keys, "leaves": leaves}
    kernels.Place(len(run), **keys, weight=run.weight, slots=array["slots"], weights=array["weights"])
    kernels.PlaceRows(rows // TASK_ROWS + 1, **keys, rows=rows, start=starts)
    kernels.CountRows(rows, start=starts, rows=rows, total=total, leaves=leaves, degrees=work.after.degrees)
    kernels.EvenCounts(
        leaves, total=total, leaves=leaves, **{name: array[name] for name in ("slots", "counts", "groups", "heads")}
    )
