"""Memory in which a packed memory array prepares a batch, and the kernels bound to it."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Library, Struct, constants
from mgraph.structures.run import Run
from mgraph.structures.shift_sums import chunk_shift

__all__ = ["GROUP", "PART_SLOTS", "TASK_ROWS", "TASK_SLOTS", "PmaScratch"]

Array = Any
_STATUS = constants("structures/pma/locate.cuh").enums["Status"]
STATUS = _STATUS[:-1]  # names of words; the last enumerator is their number
Status: Any = namedtuple("Status", STATUS)  # type: ignore[misc]  # as the kernel declares it
_SIZES = constants("structures/pma/window.cuh")
TASK_ROWS, INLINE_ROWS, LEAF_KEYS, FEW_KEYS = (_SIZES[s] for s in ("task_rows", "inline_rows", "leaf_keys", "few_keys"))
FEW_SLOTS, BLOCK_SLOTS, TASK_SLOTS, PART_SLOTS = (_SIZES[f"{of}_slots"] for of in ("few", "block", "task", "part"))
GROUP = _SIZES["group_leaves"]
WINDOW = _SIZES.size("Window") // 4  # words
AT_ONCE = 1023  #: maximum operations prepared and written by one launch
SMALL = {"cpu": 1023, "cuda": 1 << 17}  #: maximum operations prepared by one launch; on a CPU by one thread


class PmaScratch:
    """Memory for a batch of `capacity` operations, some 90 bytes each.

    Parameters
    ----------
    device : Device
    capacity : int
        Operations.
    leaves, leaf, n_rows : int
        The array's size.
    bounds : (int64[levels], int64[levels])
        Minimum and maximum items of a full window by level, on the device.

    Attributes
    ----------
    most_small : int
        The largest batch, in operations, that is prepared and written by few launches.
    at_once : int
        The largest batch, in operations, for `apply`.
    key, op : uint64[1], int8[1]
        The edge and the operation of a batch of one without a weight, for `apply`; in host memory.
    """

    def __init__(
        self, device: Device, capacity: int, leaves: int, leaf: int, n_rows: int, bounds: tuple[Array, Array]
    ) -> None:
        # Sizes: a bitmap of windows, sums of groups, and lists of windows.
        self.device, self.capacity = device, capacity
        self.shift = chunk_shift(capacity)
        height = (leaves - 1).bit_length()
        nodes = (1 << height) // 32 + 1  # words of 32 bits: windows of two leaves and more
        sums = (2 << height) // GROUP + 1  # sums of nodes above groups
        lists = _most_windows(capacity, leaves, leaf, n_rows)

        # One allocation for all.
        (
            zeroed, self.located, self.chunks, self.crowded, self.before, self.outcome, self.leaf_list,
            self.few_list, self.block_list, self.wide_list, self.row_list,
        ) = device.carve(
            (len(STATUS) + 4 + (nodes + 1) // 2 + sums, np.int64), (capacity, np.int64),
            ((capacity >> self.shift) + 1, np.uint64), (min(capacity, leaves), np.uint64), (capacity + 1, np.uint32),
            (capacity, np.uint8), (min(capacity, leaves), np.uint32), *((WINDOW * most, np.uint32) for most in lists),
        )  # fmt: skip

        # Words that are zero before a batch: the status, counters of blocks, marks and sums.
        self.zeroed, self.status, words = zeroed, zeroed[: len(STATUS)], zeroed[len(STATUS) :].view(np.uint64)
        self.met, self.arrived = words[1:2], words[2:4]  # barrier of blocks; finished blocks of Locate and Select
        self._cleared = False  # True if all of `zeroed` except the barrier is 0
        mail, mapped = device.mailbox(len(STATUS) + 2)
        self.mail, self.mailbox = mail[:-2], mapped[:-2]
        (self.key, self.op), self._one = (
            (both[-2:-1].view(np.uint64), both[-1:].view(np.int8)[:1]) for both in (mail, mapped)
        )
        self.most_small, self.at_once = SMALL[device.kind], min(capacity, AT_ONCE)
        self.levels = Struct(
            least=bounds[0],
            most=bounds[1],
            height=height,
            marked=words[4 : 4 + (nodes + 1) // 2].view(np.uint32),
            used=words[:1],
            sums=zeroed[len(STATUS) + 4 + (nodes + 1) // 2 :],
        )

    def bind(self, kernels: Library, frame: Any, rows: int, vertices: int) -> None:
        """Bind the kernels to this memory and to the array."""
        # Common fields.
        self.frame, status, arrived = frame, self.status, self.arrived
        array = {"leaves": frame.leaves, "levels": self.levels}
        lists = {
            "few_list": self.few_list, "block_list": self.block_list, "wide_list": self.wide_list,
            "row_list": self.row_list, "status": status,
        }  # fmt: skip
        batch = {"located": self.located, "before": self.before, "chunks": self.chunks, "shift": self.shift}
        located = {**batch, "graph": frame.view, "rows": rows, "vertices": vertices, "outcome": self.outcome}

        # Small batches: one kernel prepares, one writes, one does both.
        prepared = {
            **located, **array, **lists, "start": frame.starts, "leaf_list": self.leaf_list, "crowded": self.crowded,
            "arrived": arrived[:1], "met": self.met, "mailbox": self.mailbox,
        }  # fmt: skip
        self._prepare = kernels.Prepare.bind(**prepared)
        written, (key, op) = {**prepared, "array": frame.array, "degrees": frame.degrees}, self._one
        self._apply = kernels.Apply.bind(**written)
        self._apply_one = kernels.Apply.bind(**written, keys=key, op=op, n=1, weight=None)
        self.write_leaves = kernels.WriteLeaves.bind(
            **batch, **array, first_keys=self.leaf_list, array=frame.array, start=frame.starts,
            degrees=frame.degrees, rows=rows, met=self.met,
        )  # fmt: skip

        # Other batches: a kernel per phase.
        self._locate = kernels.Locate.bind(**located, arrived=arrived[:1], status=status)
        self._pick = kernels.PickLeaves.bind(
            **array, start=frame.starts, rows=rows, leaf_list=self.leaf_list, crowded=self.crowded, status=status
        )
        asking = {"crowded": self.crowded, "status": status}
        self._ask = [kernels.Climb.bind(**array, **asking)]
        if hasattr(kernels, "Descend"):  # lpma's
            self._ask.append(kernels.Descend.bind(leaf_list=self.leaf_list, **array, **asking))
        self._select = kernels.Select.bind(
            **array, **lists, crowded=self.crowded, start=frame.starts, rows=rows, arrived=arrived[1:],
            mailbox=self.mailbox,
        )  # fmt: skip

    def batch(self, run: Run) -> Struct:
        """Return the located batch for kernels; valid until the next batch."""
        return Struct(
            keys=run.keys, located=self.located, before=self.before, chunks=self.chunks, shift=self.shift,
            n=len(run.keys),
        )  # fmt: skip

    def apply(self, run: Run | None) -> Any:
        """Locate a batch of at most `at_once` operations, and write it; return the status, as `locate` does.

        None is the operation `op` with the edge `key`, whose launch is packed already. The batch is not written if a
        window has several leaves, an id is unknown, or an edge gets a new weight.
        """
        if not self._cleared:
            self.device.fill(self.zeroed, 0)
        if run is None:
            self._apply_one(1)
        else:
            n = len(run.keys)
            self._apply((n >> self.shift) + 1, keys=run.keys, op=run.op, n=n, weight=run.weight)
        if self.device.kind != "cpu":
            self.device.synchronize()
        status: Any = tuple.__new__(Status, self.mail.tolist())
        self._cleared = not status.crowded_leaves
        return status

    def locate(self, run: Run, top_down: bool) -> Any:
        """Locate the keys and choose the windows; return the status, after the batch's only wait for the device."""
        n = len(run.keys)
        if not self._cleared:
            self.device.fill(self.zeroed, 0)
        small = n <= self.most_small and not top_down
        if small:
            self._prepare((n >> self.shift) + 1, keys=run.keys, op=run.op, n=n)
        else:
            # A large batch takes a launch per phase.
            batch = self.batch(run)
            self._locate((n >> self.shift) + 1, keys=run.keys, op=run.op, n=n)
            self._pick(n, batch=batch)
            self._ask[top_down](n, batch=batch)
            self._select(n, batch=batch, all_leaves=int(top_down))
        self.device.synchronize()
        status: Any = tuple.__new__(Status, self.mail.tolist())
        self._cleared = small and not status.crowded_leaves  # otherwise windows are marked
        return status


def _most_windows(n: int, leaves: int, leaf: int, n_rows: int) -> list[int]:
    """Return upper bounds of windows of few leaves, of a block, parts of wide ones, and row tasks."""
    wide = leaves * leaf // BLOCK_SLOTS
    return [
        min(n, leaves // 2 + n_rows // INLINE_ROWS + n // LEAF_KEYS + 1),
        min(n, leaves * leaf // FEW_SLOTS + n // FEW_KEYS + 1),
        (leaves * leaf + n) // PART_SLOTS + wide + 1,
        n_rows // TASK_ROWS + min(n, n_rows // INLINE_ROWS + wide) + 1,
    ]
