"""Arrays of a packed memory array for kernels, and the memory of a commit."""

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
    """Arrays of a structure for kernels, packed once until any is replaced.

    Parameters
    ----------
    arrays : dict
        The structure's arrays by their attributes' names, including counts, groups and heads.
    start, degrees : int64[n_rows + 1], uint32[n_rows]
    bounds : (int64[levels], int64[levels])
        Minimum and maximum items of a full window by level, on the device.
    array, starts : Struct
        Array and Starts of the structure's view.cuh.
    view : View
    kernels : dict of str to Library
        The structure's kernels, by part.
    """

    arrays: dict[str, Any]
    start: Array
    degrees: Array
    bounds: tuple[Array, Array]
    array: Struct
    starts: Struct
    view: View
    kernels: InitVar[dict[str, Library]]

    def __post_init__(self, kernels: dict[str, Library]) -> None:
        counts, groups = self.arrays["counts"], self.arrays["groups"]
        self.leaves = Struct(counts=counts, groups=groups, before=None, within=None, leaves=len(counts))
        merged = {"leaves": self.leaves, "array": self.array}
        leaves, windows = kernels["prepare"], kernels["commit"]
        self.merge_leaves = leaves.MergeLeaves.bind(**merged)
        self.merges = [k.bind(**merged, start=self.starts) for k in (windows.MergeFew, windows.MergeBlocks)]
        self.update_rows = leaves.UpdateRows.bind(
            leaves=self.leaves, start=self.starts, degrees=self.degrees, rows=len(self.degrees)
        )


Windows = tuple[Array, int]
_NONE: Windows = (None, 0)


class Work:
    """Data of a commit: the located batch, the windows by width, and the memory to write.

    Most small batches have only windows of one leaf, and only the parameters below.

    Parameters
    ----------
    frame : Frame
        The arrays to write; new ones if a level was appended.
    scratch : PmaScratch
        With the located batch.
    run : Run
    num_edges : int
        Afterwards.
    leaf_windows : int
        The number of windows of one leaf, including those covered by a wider window.
    """

    wider = False  # True if any of the following is set
    few_windows: Windows = _NONE
    block_windows: Windows = _NONE
    parts: Windows = _NONE
    rows: Windows = _NONE
    cuts: Array = None  # the batch's cut for each part
    out: dict[str, Array] | None = None  # the copy of wide windows, or the new array
    after: Frame | None = None  # frame of the new array; None if the array stays
    leaves: Struct  # leaves of wide windows, with the sums before each task; valid until leaves are written

    def __init__(self, frame: Frame, scratch: PmaScratch, run: Run, num_edges: int, leaf_windows: int) -> None:
        self.frame, self.scratch, self.run, self.num_edges = frame, scratch, run, num_edges
        self.leaf_windows = leaf_windows

    def widen(self, status: Any) -> None:
        """Adopt the scratch's windows of several leaves."""
        lists = self.scratch
        self.wider, self.leaves = True, self.frame.leaves
        self.few_windows, self.block_windows = (
            (lists.few_list, status.few_windows),
            (lists.block_list, status.block_windows),
        )
        self.parts, self.rows = (lists.wide_list, status.wide_parts), (lists.row_list, status.row_tasks)

    @cached_property
    def batch(self) -> Struct:
        """The located batch for kernels."""
        return self.scratch.batch(self.run)

    @property
    def out_leaves(self) -> int:
        """The number of leaves of the new array; 0 if the array stays."""
        return 0 if self.after is None else int(self.after.leaves.values["leaves"])
