"""Sorted runs: what a structure takes. Keys are ``src << 32 | dst``, ascending; of equal keys the last one acts."""

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
_FIRST = np.zeros(1, np.intp)


@dataclass(slots=True, eq=False)  # frozen, it would take 2 us to make
class Run:
    """A sorted run of edge operations on one device. Its columns are not replaced.

    Parameters
    ----------
    keys : uint64[n]
        ``src << 32 | dst``, ascending; src is local to the structure (its row), dst a global id. Where keys repeat they
        are in stream order, and the last one acts: dropping the others would cost a read-back.
    op : int8[n] or None
        +1 insert, -1 delete; None means that all are inserts.
    weight : float32[n] or None
    unchecked : EdgeBatch or None
        The batch that the run was made of, while its ids have not been compared with their bounds.
    place : uint32[n] or None
        The place of each operation in its stream; ascends among equal keys. Only a run with queries has it, whose `op`
        holds kinds of `mgraph.operations`. Structures take only its updates, which `mgraph.structures.mixed_stream`
        separates.
    time : int64[n] or None
        The time of each insertion, in a graph with times; that of a deletion means nothing. Structures ignore it.
    """

    keys: Array
    op: Array = None
    weight: Array = None
    unchecked: EdgeBatch | None = None
    place: Array = None
    time: Array = None

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, part: Any) -> Run:
        """The run of a slice, a mask or ascending places."""
        columns = {name: getattr(self, name) for name in ("keys", "op", "weight", "place", "time")}
        return Run(**{name: a if a is None else a[part] for name, a in columns.items()})

    def split(self, starts: Sequence[int]) -> list[Run]:
        """Cut at the range boundaries ``starts[0] .. starts[-1]`` of src: part r has starts[r] <= src < starts[r + 1].

        No copy. One small read-back on a GPU.
        """
        xp = np if isinstance(self.keys, np.ndarray) else _cupy()
        bounds = xp.asarray(np.asarray(starts[1:-1], np.uint64) << np.uint64(32))
        cuts = (
            [0, *Device.to_host(xp.searchsorted(self.keys, bounds)).tolist(), len(self)]
            if len(starts) > 2
            else [0, len(self)]
        )
        return [self.take(slice(a, b)) for a, b in pairwise(cuts)]


def _cupy() -> Any:
    import cupy

    return cupy


def sort_run(
    device: Device,
    keys: Array = None,
    op: Array | int | None = None,
    weight: Array = None,
    time: Array = None,
    *,
    src: Array = None,
    dst: Array = None,
) -> Run:
    """Sort operations in stream order into a run; `op` may be one number for all of them. May overwrite `keys`.

    Without `keys` they are made of the columns `src` and `dst`, uint32[n]. O(n log n); no read-back. Where there are
    other columns the keys' places are sorted along: see `sort_keys`.
    """
    return _sort(device, op, weight, None, time, keys=keys, src=src, dst=dst)


def sort_few(device: Device, src: Any, dst: Any, op: Any = None, weight: Any = None, time: Any = None) -> Run:
    """`sort_run` of at most `FEW` operations, whose ends are in host memory: sorted there, and then copied to `device`.

    On a GPU that is a copy and a launch less than to copy the columns first.
    """
    n, order = len(src), _FIRST
    if n == 1:
        keys = np.array([src.item() << 32 | dst.item()], np.uint64)
    else:
        keys = src.astype(np.uint64) << np.uint64(32) | dst.astype(np.uint64)
        if weight is None and time is None and (op is None or type(op) is int):
            keys.sort()
        else:
            order = keys.argsort(kind="stable")
            keys = keys[order]
    if type(op) is int:
        op = None if op == 1 else device.sent(np.array([op], np.int8).repeat(n))
    elif op is not None:
        op = device.sent(Device.to_host(op)[order])
    if weight is not None:
        weight = device.sent(Device.to_host(weight)[order])
    if time is not None:
        time = device.sent(Device.to_host(time)[order])
    return Run(device.sent(keys), op, weight, None, None, time)


def sort_batch(device: Device, batch: EdgeBatch, n_rows: int, n_vertices: int, check: bool = True) -> Run:
    """A batch, copied to `device` where it is elsewhere, as a run; one read-back on a GPU, none without `check`.

    Raises `UnknownVertex` where a source is not below `n_rows` or a destination not below `n_vertices`. Without `check`
    whoever takes the run must check its ids, and call `check_batch` where one is out of range.
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
    **given: Array,
) -> Run:
    """The run of operations whose keys or columns are `given`, as `sort_keys` takes them."""
    ops = None if op is None or isinstance(op, int) else op
    with_places = not (ops is None and weight is None and time is None)
    keys, places = sort_keys(device, **given, with_places=with_places)
    if ops is not None:
        ops = device.gather(ops, places)
    elif op == -1:
        ops = device.full(len(keys), -1, np.int8)
    if weight is not None:
        weight = device.gather(weight, places)
    if time is not None:
        time = device.gather(time, places)
    return Run(keys, ops, weight, unchecked, None, time)


def check_batch(batch: EdgeBatch, n_rows: int, n_vertices: int) -> None:
    """Raise `UnknownVertex`, naming the first of them, where an id of a batch is not below its bound."""
    check_ids(batch.src, n_rows, "src")
    check_ids(batch.dst, n_vertices, "dst")
