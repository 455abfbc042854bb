"""A packed memory array's arrays as kernels take them, and what a commit needs beside them."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any

from mgraph.kernels import Library, Struct, View
from mgraph.structures.pma.scratch import PmaScratch
from mgraph.structures.run import Run

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
        The kernels of the commit.
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


Windows = tuple[Array, int]
_NONE: Windows = (None, 0)


class Work:
    """What a commit needs: the located batch, the windows by width, and the memory that it will write.

    Most small batches have windows of one leaf only, and take no more than these.

    Parameters
    ----------
    frame : Frame
        The arrays that are written; others than now where a level was appended.
    scratch : PmaScratch
        With the batch that it has located.
    run : Run
    num_edges : int
        Afterwards.
    leaf_windows : int
        The number of windows of one leaf, with those that a wider window covers.
    """

    wider = False  # whether any of what follows is there
    few_windows: Windows = _NONE
    block_windows: Windows = _NONE
    parts: Windows = _NONE
    rows: Windows = _NONE
    cuts: Array = None  # where the batch is cut for each part
    out: dict[str, Array] | None = None  # the copy of wide windows, or the new array
    after: Frame | None = None  # of the new array; None where the array stays
    leaves: Struct  # where windows are wide, with the sums before each task's leaves; valid until leaves are written

    def __init__(self, frame: Frame, scratch: PmaScratch, run: Run, num_edges: int, leaf_windows: int) -> None:
        self.frame, self.scratch, self.run, self.num_edges = frame, scratch, run, num_edges
        self.leaf_windows = leaf_windows

    def widen(self, found: Any) -> None:
        """Take the windows of several leaves that the scratch has found."""
        lists = self.scratch
        self.wider, self.leaves = True, self.frame.leaves
        self.few_windows, self.block_windows = (
            (lists.few_list, found.few_windows),
            (lists.block_list, found.block_windows),
        )
        self.parts, self.rows = (lists.wide_list, found.wide_parts), (lists.row_list, found.row_tasks)

    @cached_property
    def batch(self) -> Struct:
        """The located batch as kernels take it."""
        return self.scratch.batch(self.run)

    @property
    def out_leaves(self) -> int:
        """How many leaves the new array has; 0 where the array stays."""
        return 0 if self.after is None else int(self.after.leaves.values["leaves"])
