"""Sorted runs: what a structure takes. Keys are ``src << 32 | dst``, ascending; of equal keys the last one acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch, check_ids
from mgraph.device import Device
from mgraph.kernels import load
from mgraph.structures.sample_sort import MOST, MOST_PLACED, sort_sampled

__all__ = ["Run", "check_batch", "make_keys", "merge_runs", "sort_batch", "sort_run", "sort_small", "sort_with_places"]

Array = Any
SMALL = 1 << 17  #: keys up to which a GPU sorts by `sort_small`
TILE, FAN = 1024, 16  #: keys a tile, as sort.cuh has it; runs that become one in a round


@dataclass(frozen=True)
class Run:
    """A sorted run of edge operations on one device.

    Parameters
    ----------
    keys : uint64[n]
        ``src << 32 | dst``, ascending; src is local to the structure (its row), dst a global id. Where keys repeat they
        are in stream order, and the last one acts: dropping the others would cost a read-back.
    op : int8[n] or None
        +1 insert, -1 delete; None means that all are inserts.
    weight : float32[n] or None
    unchecked : EdgeBatch or None
        The batch that it was made of, where nobody has compared the ids with their bounds yet.
    """

    keys: Array
    op: Array = None
    weight: Array = None
    unchecked: EdgeBatch | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, part: Any) -> Run:
        """The run of a slice, a mask or ascending places."""
        return Run(*(None if a is None else a[part] for a in (self.keys, self.op, self.weight)))

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


def make_keys(device: Device, src: Array, dst: Array, largest: Array = None) -> Array:
    """``src << 32 | dst`` of two uint32 arrays on `device`, as a new array; the largest of each into uint64[2]."""
    keys = device.empty(len(src), np.uint64)
    load(device, "sort.cuh").MakeKeys(len(src), src=src, dst=dst, n=len(src), keys=keys, largest=largest)
    return keys


def _is_small(device: Device, n: int) -> bool:
    return device.kind == "cuda" and n <= SMALL


def _is_sampled(device: Device, n: int, most: int = MOST) -> bool:
    return device.kind == "cuda" and SMALL < n <= most


def sort_small(
    device: Device, n: int, keys: Array = None, src: Array = None, dst: Array = None, with_places: bool = False
) -> tuple[Array, Array]:
    """As `sort_with_places`, of keys or of two columns; places only where asked for. For a GPU and not too many keys.

    Two launches up to 16k keys, three up to 256k. One H200: 10k in 44 us, 100k in 64 and 262k in 107; CuPy's sort takes
    100, 114 and 124.
    """
    shapes = [(n, np.uint64), (n, np.uint32)] if with_places else [(n, np.uint64)]
    parts = device.carve(*shapes, *shapes)  # to sort into in turn
    (keys_in, places_in), (keys_out, places_out) = (parts[:2], parts[2:]) if with_places else ((p, None) for p in parts)
    kernels, width = load(device, "sort.cuh"), TILE
    kernels.SortTiles(-(-n // TILE), src=src, dst=dst, keys=keys, n=n, keys_out=keys_in, places_out=places_in)
    while width < n:
        kernels.MergeRuns(
            n, keys=keys_in, places=places_in, n=n, width=width, fan=FAN, keys_out=keys_out, places_out=places_out
        )
        keys_in, places_in, keys_out, places_out, width = keys_out, places_out, keys_in, places_in, width * FAN
    return keys_in, places_in


def sort_with_places(device: Device, keys: Array) -> tuple[Array, Array]:
    """Ascending keys and where each stood, stably: (uint64[n], integer[n])."""
    if _is_small(device, len(keys)):
        return sort_small(device, len(keys), keys, with_places=True)
    if _is_sampled(device, len(keys), MOST_PLACED):
        return sort_sampled(device, len(keys), keys, with_places=True)
    if device.kind == "cuda":
        places = device.xp.argsort(keys)  # CuPy's is stable
        return keys[places], places
    kernels, n = load(device, "sort.cuh"), len(keys)
    chunks = max(1, min(device.threads, n >> 14))
    counts = np.empty((256, chunks), np.int64)
    places, spare = None, (np.empty(n, np.uint64), np.empty(n, np.uint32))
    for shift in range(0, 64, 8):
        kernels.Digits(chunks, keys=keys, n=n, shift=shift, chunks=chunks, counts=counts)
        if n == 0 or (counts.sum(axis=1) == n).any():  # every key has the same byte here
            continue
        offsets = np.cumsum(counts.ravel()) - counts.ravel()
        out = spare
        kernels.Deal(
            chunks, keys=keys, places=places, n=n, shift=shift, chunks=chunks, offsets=offsets,
            keys_out=out[0], places_out=out[1],
        )  # fmt: skip
        spare = (keys, places) if places is not None else (np.empty(n, np.uint64), np.empty(n, np.uint32))
        keys, places = out
    return keys, np.arange(n, dtype=np.uint32) if places is None else places


def sort_run(device: Device, keys: Array, op: Array | int | None = None, weight: Array = None) -> Run:
    """Sort operations in stream order into a run; `op` may be one number for all of them. Takes `keys` over.

    O(n log n); no read-back. Keys alone go through a sort by a sample on a GPU, which takes 16 bytes a key while it
    runs, or the array library's sort. With a column beside them they take their places along: a stable radix sort,
    over the bytes that differ on the CPU.
    """
    if (op is None or isinstance(op, int)) and weight is None:
        deletes = device.full(len(keys), op, np.int8) if op == -1 else None
        if _is_small(device, len(keys)):
            keys, _ = sort_small(device, len(keys), keys)
        elif _is_sampled(device, len(keys)):
            keys, _ = sort_sampled(device, len(keys), keys)
        else:
            keys.sort()
        return Run(keys, deletes)
    ops: Array = device.full(len(keys), op, np.int8) if isinstance(op, int) else op
    ordered, places = sort_with_places(device, keys)
    return Run(ordered, None if ops is None else ops[places], None if weight is None else weight[places])


def sort_batch(device: Device, batch: EdgeBatch, n_rows: int, n_vertices: int, check: bool = True) -> Run:
    """A batch, copied to `device` where it is elsewhere, as a run; one read-back on a GPU, none without `check`.

    Raises `UnknownVertex` where a source is not below `n_rows` or a destination not below `n_vertices`; without `check`
    whoever takes the run has to look, and to call `check_batch` where an id is not.
    """
    src, dst = device.asarray(batch.src), device.asarray(batch.dst)
    op = batch.op if batch.op is None or isinstance(batch.op, int) else device.asarray(batch.op)
    weight = None if batch.weight is None else device.asarray(batch.weight)
    alone = weight is None and (op is None or isinstance(op, int))
    largest = device.zeros(2, np.uint64) if check else None
    if alone and _is_sampled(device, len(src)):
        keys, _ = sort_sampled(device, len(src), src=src, dst=dst, largest=largest)  # which makes them
    elif alone and not check and _is_small(device, len(src)):
        keys, _ = sort_small(device, len(src), src=src, dst=dst)
    else:
        keys, alone = make_keys(device, src, dst, largest), False
    if check:
        most_src, most_dst = device.to_host(largest).tolist()
        if most_src >= n_rows or most_dst >= n_vertices:
            check_batch(batch, n_rows, n_vertices)
    if alone:
        run = Run(keys, device.full(len(src), op, np.int8) if op == -1 else None)
    else:
        run = sort_run(device, keys, op, weight)
    return run if check else Run(run.keys, run.op, run.weight, batch)


def check_batch(batch: EdgeBatch, n_rows: int, n_vertices: int) -> None:
    """Raise `UnknownVertex`, naming the first of them, where an id of a batch is not below its bound."""
    check_ids(batch.src, n_rows, "src")
    check_ids(batch.dst, n_vertices, "dst")


def merge_runs(device: Device, runs: Sequence[Run]) -> Run:
    """One run of several; where they share a key the later run wins. All have the same optional columns."""
    full = [run for run in runs if len(run)] or list(runs[:1])
    if len(full) == 1:
        return full[0]
    xp = device.xp
    columns = zip(*((run.keys, run.op, run.weight) for run in full), strict=True)
    return sort_run(device, *(None if parts[0] is None else xp.concatenate(parts) for parts in columns))
