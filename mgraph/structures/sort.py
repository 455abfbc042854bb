"""Sorts of keys, ``src << 32 | dst``, chosen by device and length."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import constants, load
from mgraph.structures.sample_sort import CONSTANTS, MOST, MOST_PLACED, sort_sampled

__all__ = ["load_sorts", "make_keys", "sort_keys", "sort_small"]

Array = Any
SMALL = 1 << 17  #: maximum of keys for `sort_small` on a GPU
TILE = constants("kernels/small_tile.cuh")["tile_keys"]  #: keys per block in shared memory
FAN = 16  #: runs merged into one per round


def load_sorts(device: Device) -> None:
    """Compile the sorts' kernels, so that the first sort is as fast as later ones."""
    load(device, "kernels/sort.cuh")
    if device.kind == "cuda":
        for constants in CONSTANTS:
            load(device, "kernels/sample_sort.cuh", None, **constants)


def make_keys(device: Device, src: Array, dst: Array, largest: Array = None) -> Array:
    """Return ``src << 32 | dst`` of two uint32 arrays; writes their maxima to `largest`, uint64[2]."""
    n = len(src)
    keys = device.empty(n, np.uint64)
    load(device, "kernels/sort.cuh").MakeKeys(n, src=src, dst=dst, n=n, keys=keys, largest=largest)
    return keys


def sort_keys(
    device: Device,
    keys: Array = None,
    src: Array = None,
    dst: Array = None,
    largest: Array = None,
    with_places: bool = False,
) -> tuple[Array, Array]:
    """Sort `keys`, or two uint32 columns, stably; also their places `with_places`.

    O(n log n), no read-back; `keys` may be overwritten. The largest id of each column goes into `largest`, uint64[2]. A
    GPU sorts few keys by tiles, more by a sample sort, which takes 16 bytes per key meanwhile (24 with places), and
    even more by CuPy.
    """
    # On a GPU: sample sort, or tiles.
    n, on_gpu = len(src if keys is None else keys), device.kind == "cuda"
    small, sampled = on_gpu and n <= SMALL, on_gpu and SMALL < n <= (MOST_PLACED if with_places else MOST)
    if sampled:
        return sort_sampled(device, keys, src, dst, largest, with_places)
    if keys is None and (largest is not None or not small):
        keys, src, dst = make_keys(device, src, dst, largest), None, None
    if small:
        return sort_small(device, keys, src, dst, with_places)

    # Otherwise the array library, or on a CPU a radix sort for places.
    if not with_places:
        if n > 1:
            device.sort(keys)
        return keys, None
    if on_gpu:
        with device.taking(24 * n, f"the sort of {n} keys"):
            places = device.xp.argsort(keys)  # CuPy's is stable
        return device.gather(keys, places), places
    return _sort_by_bytes(device, keys)


def sort_small(
    device: Device, keys: Array = None, src: Array = None, dst: Array = None, with_places: bool = False
) -> tuple[Array, Array]:
    """Sort few keys on a GPU by tiles and merges, into a new array.

    Two launches up to 16k keys, three up to 256k. One H200: 10k in 44 us, 100k in 64 and 262k in 107; CuPy's sort takes
    100, 114 and 124.
    """
    # Sort tiles, then merge FAN runs per launch.
    n = len(src if keys is None else keys)
    keys_in, keys_out = device.empty(n, np.uint64), None
    places_in, places_out = device.empty(n, np.uint32) if with_places else None, None
    kernels, width = load(device, "kernels/sort.cuh"), TILE
    kernels.SortTiles(-(-n // TILE), src=src, dst=dst, keys=keys, n=n, keys_out=keys_in, places_out=places_in)
    while width < n:
        if keys_out is None:  # the second buffer, allocated while the device works
            keys_out, places_out = device.empty(n, np.uint64), device.empty(n, np.uint32) if with_places else None
        kernels.MergeRuns(
            n, keys=keys_in, places=places_in, n=n, width=width, fan=FAN, keys_out=keys_out, places_out=places_out
        )
        keys_in, places_in, keys_out, places_out, width = keys_out, places_out, keys_in, places_in, width * FAN
    return keys_in, places_in


def _sort_by_bytes(device: Device, keys: Array) -> tuple[Array, Array]:
    """Radix sort keys by bytes, the least significant first; skips bytes in which all keys agree.

    Takes 24 bytes per key, of which the places are 4.
    """
    kernels, n = load(device, "kernels/sort.cuh"), len(keys)
    if n >> 32:  # places would exceed 32 bits
        with device.taking(16 * n, f"{n} places"):
            order = np.argsort(keys, kind="stable")
        return device.gather(keys, order), order

    # Per byte: a histogram per chunk, prefix sums, and a stable distribution into the other buffer.
    chunks = max(1, min(device.threads, n >> 14))
    counts = np.empty((256, chunks), np.int64)
    places, spare = None, (device.empty(n, np.uint64), device.empty(n, np.uint32))
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
        spare = (keys, places) if places is not None else (device.empty(n, np.uint64), device.empty(n, np.uint32))
        keys, places = out
    return keys, device.arange(0, n, np.uint32) if places is None else places
