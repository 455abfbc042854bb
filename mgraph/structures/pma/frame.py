"""A packed memory array's arrays as kernels take them, and what a commit needs beside them."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any

from mgraph.kernels import Library, Struct, View
from mgraph.structures.pma.scratch import Scratch

__all__ = ["Frame", "Work"]

Array = Any


@dataclass(eq=False)
class Frame:
    """A structure's arrays as kernels take them, packed once for all launches until one of them is replaced.

    Parameters
    ----------
    arrays : dict
        The structure's own arrays by their attributes' names; counts, groups and heads among them.
    start, degrees : int64[n_rows + 1], uint32[n_rows]
    bounds : (int64[levels], int64[levels])
        Least and most items of a full window by level, on the device.
    array, starts : Struct
        What the structure's view.cuh declares as Array and Starts.
    view : View
    kernels : Library
        Of the commit.
    """

    arrays: dict[str, Any]
    start: Array
    degrees: Array
    bounds: tuple[Array, Array]
    array: Struct
    starts: Struct
    view: View
    kernels: InitVar[Library]

    def __post_init__(self, kernels: Library) -> None:
        counts, groups = self.arrays["counts"], self.arrays["groups"]
        self.leaves = Struct(counts=counts, groups=groups, before=None, within=None, leaves=len(counts))
        merged = {"leaves": self.leaves, "array": self.array}
        self.merge_leaves = kernels.MergeLeaves.bind(**merged)
        self.merges = [k.bind(**merged, start=self.starts) for k in (kernels.MergeFew, kernels.MergeBlocks)]
        self.update_rows = kernels.UpdateRows.bind(
            leaves=self.leaves, start=self.starts, degrees=self.degrees, rows=len(self.degrees)
        )


@dataclass(eq=False)
class Work:
    """What a commit needs: the located batch, the windows by width, and the memory that it will write."""

    frame: Frame  # the arrays that are written; others than now where a level was appended
    scratch: Scratch
    batch: Struct
    leaves: Struct  # where windows are wide, with the sums before each task's leaves; valid until leaves are written
    num_edges: int
    leaf_windows: tuple[Array, int]  # by their first keys, with those that a wider window covers
    few_windows: tuple[Array, int]
    block_windows: tuple[Array, int]
    parts: tuple[Array, int]
    rows: tuple[Array, int]
    cuts: Array  # where the batch is cut for each part
    out: dict[str, Array] | None  # the copy of wide windows, or the new array
    after: Frame | None  # of the new array; None where the array stays

    @property
    def out_leaves(self) -> int:
        """How many leaves the new array has; 0 where the array stays."""
        return 0 if self.after is None else int(self.after.leaves.values["leaves"])
