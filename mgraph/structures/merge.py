"""Merge of sorted runs, by computing each key's place instead of sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mgraph.device import Device
from mgraph.kernels import load
from mgraph.structures.run import FEW, Run

__all__ = ["merge_in_order"]

#: keys per tile: 8 per lane on a GPU; on a CPU enough to make the cost of the searches small
PIECE = {"cuda": 256, "cpu": 1 << 13}


def merge_in_order(device: Device, runs: Sequence[Run], base: int = 0) -> Run:
    """Merge sorted runs, and subtract `base` from every key.

    Equal keys keep the order of the runs. All runs have the same optional columns. A single run with base 0 is returned
    unchanged.

    Notes
    -----
    O(n log k) for k runs that are not empty. Adjacent runs are merged in pairs, in log2 k rounds with one launch per
    pair and no read-back. Measured on one core with 10M keys in total: two runs take 28 ms, with ops and weights
    63 ms; four runs take 56 and 126 ms. Concatenating and sorting them takes 3 to 10 times as long.
    """
    left = [run for run in runs if len(run)] or list(runs[:1])
    if len(left) == 1:
        return _lowered(device, left[0], base)
    if type(left[0].keys) is np.ndarray and sum(map(len, left)) <= FEW:
        return _sorted(left, base)
    if left[0].time is not None:
        return _timed(device, left, base)
    while len(left) > 1:
        by = base if len(left) == 2 else 0
        pairs = [_merged(device, left[at], left[at + 1], by) for at in range(0, len(left) - 1, 2)]
        left = [*pairs, *left[2 * len(pairs) :]]
    return left[0]


def _sorted(runs: Sequence[Run], base: int) -> Run:
    """Merge a few keys in host memory by a stable sort, which takes less time than a launch for each pair of runs."""
    keys = np.concatenate([run.keys for run in runs])
    order = keys.argsort(kind="stable")

    def column(name: str) -> np.ndarray | None:
        parts = [getattr(run, name) for run in runs]
        return None if parts[0] is None else np.concatenate(parts)[order]

    keys = keys[order]
    if base:
        keys -= np.uint64(base)
    return Run(keys, column("op"), column("weight"), place=column("place"), time=column("time"))


def _timed(device: Device, runs: Sequence[Run], base: int) -> Run:
    """Merge runs with times, which are gathered by their keys' places."""
    ends = np.cumsum([len(run) for run in runs]).tolist()
    placed = [
        replace(run, place=device.arange(end - len(run), end, np.uint32), time=None)
        for run, end in zip(runs, ends, strict=True)
    ]
    merged, times = merge_in_order(device, placed, base), device.concatenate([run.time for run in runs])
    return replace(merged, place=None, time=device.gather(times, merged.place))


def _lowered(device: Device, run: Run, base: int) -> Run:
    """Return a run with `base` subtracted from its keys."""
    if not base:
        return run
    keys = device.xp.subtract(run.keys, np.uint64(base), out=device.empty(len(run), np.uint64))
    return Run(keys, run.op, run.weight, run.unchecked, run.place, run.time, run.batch)


def _merged(device: Device, first: Run, second: Run, base: int) -> Run:
    """Merge two runs."""
    n = len(first) + len(second)
    keys = device.empty(n, np.uint64)
    op = None if first.op is None else device.empty(n, np.int8)
    weight = None if first.weight is None else device.empty(n, np.float32)
    place = None if first.place is None else device.empty(n, np.uint32)
    piece = PIECE[device.kind]
    load(device, "kernels/merge.cuh").Merge(
        -(-n // piece), first=_side(first), second=_side(second), piece=piece, base=base,
        keys=keys, op=op, weight=weight, place=place,
    )  # fmt: skip
    return Run(keys, op, weight, place=place)


def _side(run: Run) -> dict:
    return {"keys": run.keys, "op": run.op, "weight": run.weight, "place": run.place, "n": len(run)}
