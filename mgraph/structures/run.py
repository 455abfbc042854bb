"""Sorted runs: the input of structures. Keys are ``src << 32 | dst``, ascending; of equal keys the last acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch, check_ids
from mgraph.device import Device
from mgraph.structures.sort import sort_keys

__all__ = ["FEW", "Run", "check_batch", "sort_batch", "sort_few", "sort_run"]

Array = Any
FEW = 1 << 10  #: operations that the host sorts as fast as a device
_FIRST, _DELETED = np.zeros(1, np.intp), np.full(FEW, -1, np.int8)


@dataclass(slots=True, eq=False)  # frozen, it would take 2 us to make
class Run:
    """Sorted run of edge operations on a device, with constant columns.

    Parameters
    ----------
    keys : uint64[n]
        ``src << 32 | dst``, ascending; src is local to the structure (its row), dst a global id. Equal keys are in
        stream order, and the last one acts: dropping the others would cost a read-back.
    op : int8[n] or None
        +1 insert, -1 delete; None if all are inserts.
    weight : float32[n] or None
    unchecked : EdgeBatch or None
        The batch of the run, while its ids are unchecked.
    place : uint32[n] or None
        The place of each operation in its stream; ascends among equal keys. Only runs with queries have it; their `op`
        holds kinds of `mgraph.operations`. Structures take only their updates, separated by
        `mgraph.structures.mixed_stream`.
    time : int64[n] or None
        The time of each insertion, in a graph with times; not used for deletions. Structures ignore it.
    batch : uint32[n] or None
        The number of each operation's batch in a run of several; ascends among equal keys. Structures ignore it.
    counted : (tuple of int, list of int) or None
        Rows, and the `cuts` at them, if the host has counted these.
    """

    keys: Array
    op: Array = None
    weight: Array = None
    unchecked: EdgeBatch | None = None
    place: Array = None
    time: Array = None
    batch: Array = None
    counted: tuple[tuple[int, ...], list[int]] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, part: Any) -> Run:
        """Return the run of a slice, a mask or ascending indices."""
        columns = self.keys, self.op, self.weight, None, self.place, self.time, self.batch
        return Run(*[column if column is None else column[part] for column in columns])

    def split(self, starts: Sequence[int]) -> list[Run]:
        """Cut the run by src: part r has starts[r] <= src < starts[r + 1].

        No copy. On a GPU one small read-back, as `cuts`.
        """
        ends = 0, *self.cuts(starts[1:-1]), len(self)
        return [self.take(slice(a, b)) for a, b in pairwise(ends)]

    def cuts(self, rows: Sequence[int]) -> list[int]:
        """Return, for each of ascending `rows`, the number of keys of lower rows.

        One small read-back on a GPU, unless they are `counted`.
        """
        if self.counted is not None and self.counted[0] == rows:
            return self.counted[1]
        bounds = np.array(rows, np.uint64) << np.uint64(32)
        if type(self.keys) is np.ndarray:
            indices: list[int] = self.keys.searchsorted(bounds).tolist()
            return indices
        xp = _cupy()
        return Device.to_host(xp.searchsorted(self.keys, xp.asarray(bounds))).tolist() if len(bounds) else []


def _cupy() -> Any:
    import cupy

    return cupy


def sort_run(
    device: Device,
    keys: Array = None,
    op: Array | int | None = None,
    weight: Array = None,
    time: Array = None,
    batch: Array = None,
    *,
    src: Array = None,
    dst: Array = None,
) -> Run:
    """Sort operations in stream order into a run; `op` may be a single number. May overwrite `keys`.

    Without `keys` they are made of the columns `src` and `dst`, uint32[n]. O(n log n); no read-back. With other columns
    the keys' places are sorted along, by `sort_keys`.
    """
    return _sort(device, op, weight, None, time, batch, keys=keys, src=src, dst=dst)


def sort_few(
    device: Device,
    src: Any,
    dst: Any,
    op: Any = None,
    weight: Any = None,
    time: Any = None,
    batch: Any = None,
    *,
    both_ways: bool = False,
    rows: tuple[int, int] | None = None,
) -> Run:
    """Sort at most `FEW` operations in host memory, and copy the run to `device`.

    On a GPU this saves a copy and a launch over copying the columns first. With `both_ways`, each is two consecutive
    arcs, there and back. Of the `rows` from the first to before the second alone, the run has local rows.
    """
    # Sort the keys, stably if other columns follow them.
    n, order = len(src), _FIRST
    if both_ways:
        # A key is two words in memory, the destination first.
        n, keys = 2 * n, np.array((dst, src, src, dst)).T.ravel().view(np.uint64)
        op, weight, time, batch = (a.repeat(2) if isinstance(a, np.ndarray) else a for a in (op, weight, time, batch))
    elif n == 1:
        # Without a search among the rows.
        row, (lo, hi) = src.item(), rows or (0, 1 << 32)
        keys = np.empty(1, np.uint64)  # filled in a third of the time of `np.array`
        if lo <= row < hi:
            keys[0] = row - lo << 32 | dst.item()
        else:
            keys, order = keys[:0], order[:0]
        if weight is op is time is batch is None:
            return Run(device.sent(keys))
        rows = None
    else:
        keys = src.astype(np.uint64) << np.uint64(32) | dst.astype(np.uint64)
    if n != 1:
        if weight is time is batch is None and (op is None or type(op) is int):
            keys.sort()
        else:
            order = keys.argsort(kind="stable")
            keys = keys[order]

    if rows is not None:
        part = slice(*Run(keys).cuts(rows))
        keys, order = keys[part], order[part]
        if rows[0]:
            keys = keys - np.uint64(rows[0] << 32)

    # Send the other columns in the order of the keys.
    if type(op) is int:
        op = None if op == 1 else device.sent(_DELETED[: len(keys)])
    elif op is not None:
        op = device.sent(Device.to_host(op)[order])
    if weight is not None:
        weight = device.sent(Device.to_host(weight)[order])
    if time is not None:
        time = device.sent(Device.to_host(time)[order])
    if batch is not None:
        batch = device.sent(batch[order])
    return Run(device.sent(keys), op, weight, None, None, time, batch)


def sort_batch(device: Device, batch: EdgeBatch, n_rows: int, n_vertices: int, check: bool = True) -> Run:
    """Sort a batch into a run on `device`; one read-back on a GPU, none without `check`.

    Raises `UnknownVertex` if a source is not below `n_rows` or a destination not below `n_vertices`. Without `check`
    the run's user must check its ids, and call `check_batch` if one is out of range.
    """
    src, dst = device.asarray(batch.src), device.asarray(batch.dst)
    op = batch.op if batch.op is None or isinstance(batch.op, int) else device.asarray(batch.op)
    weight = None if batch.weight is None else device.asarray(batch.weight)
    largest = device.zeros(2, np.uint64) if check else None
    run = _sort(device, op, weight, None if check else batch, src=src, dst=dst, largest=largest)
    if check:
        most_src, most_dst = device.to_host(largest).tolist()
        if most_src >= n_rows or most_dst >= n_vertices:
            check_batch(batch, n_rows, n_vertices)
    return run


def _sort(
    device: Device,
    op: Array | int | None,
    weight: Array,
    unchecked: EdgeBatch | None = None,
    time: Array = None,
    batch: Array = None,
    **columns: Array,
) -> Run:
    """Sort operations, given for `sort_keys`, into a run."""
    # Other columns follow the places of the keys.
    ops = None if op is None or isinstance(op, int) else op
    with_places = not (ops is weight is time is batch is None)
    keys, places = sort_keys(device, **columns, with_places=with_places)
    if ops is not None:
        ops = device.gather(ops, places)
    elif op == -1:
        ops = device.full(len(keys), -1, np.int8)
    if weight is not None:
        weight = device.gather(weight, places)
    if time is not None:
        time = device.gather(time, places)
    if batch is not None:
        batch = device.gather(batch, places)
    return Run(keys, ops, weight, unchecked, None, time, batch)


def check_batch(batch: EdgeBatch, n_rows: int, n_vertices: int) -> None:
    """Raise `UnknownVertex` for the first id of a batch that is not below its bound."""
    check_ids(batch.src, n_rows, "src")
    check_ids(batch.dst, n_vertices, "dst")
