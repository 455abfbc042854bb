"""Sorts of keys, ``src << 32 | dst``: `sort_keys` chooses by the device and by how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import load
from mgraph.structures.sample_sort import CONSTANTS, MOST, MOST_PLACED, sort_sampled

__all__ = ["load_sorts", "make_keys", "sort_keys", "sort_small"]

Array = Any
SMALL = 1 << 17  #: keys up to which a GPU sorts by `sort_small`
TILE, FAN = 1024, 16  #: keys a tile, as sort.cuh has it; runs that become one in a round


def load_sorts(device: Device) -> None:
    """Compile what sorts on this device run, so that the first one is as fast as the others."""
    load(device, "sort.cuh")
    if device.kind == "cuda":
        for constants in CONSTANTS:
            load(device, "sample_sort.cuh", None, **constants)


def make_keys(device: Device, src: Array, dst: Array, largest: Array = None) -> Array:
    """``src << 32 | dst`` of two uint32 arrays on `device`, as a new array; the largest of each into uint64[2]."""
    keys = device.empty(len(src), np.uint64)
    load(device, "sort.cuh").MakeKeys(len(src), src=src, dst=dst, n=len(src), keys=keys, largest=largest)
    return keys


def sort_keys(
    device: Device,
    keys: Array = None,
    src: Array = None,
    dst: Array = None,
    largest: Array = None,
    with_places: bool = False,
) -> tuple[Array, Array]:
    """Keys, or those of two uint32 columns, ascending; and where each stood, in stable order, or None.

    O(n log n), no read-back; `keys` may be overwritten. The largest id of each column goes into `largest`, uint64[2].
    A GPU sorts by tiles, by a sample, which takes 16 bytes a key while it runs, 24 with places, or as CuPy does.
    """
    n, on_gpu = len(src if keys is None else keys), device.kind == "cuda"
    small, sampled = on_gpu and n <= SMALL, on_gpu and SMALL < n <= (MOST_PLACED if with_places else MOST)
    if sampled:
        return sort_sampled(device, keys, src, dst, largest, with_places)
    if keys is None and (largest is not None or not small):
        keys, src, dst = make_keys(device, src, dst, largest), None, None
    if small:
        return sort_small(device, keys, src, dst, with_places)
    if not with_places:
        keys.sort()
        return keys, None
    if on_gpu:
        places = device.xp.argsort(keys)  # CuPy's is stable
        return keys[places], places
    return _sort_by_bytes(device, keys)


def sort_small(
    device: Device, keys: Array = None, src: Array = None, dst: Array = None, with_places: bool = False
) -> tuple[Array, Array]:
    """As `sort_keys`, into a new array; for a GPU and not too many keys.

    Two launches up to 16k keys, three up to 256k. One H200: 10k in 44 us, 100k in 64 and 262k in 107; CuPy's sort takes
    100, 114 and 124.
    """
    n = len(src if keys is None else keys)
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


def _sort_by_bytes(device: Device, keys: Array) -> tuple[Array, Array]:
    """Least byte first, over the bytes that differ."""
    kernels, n = load(device, "sort.cuh"), len(keys)
    if n >> 32:  # its places are 32 bits
        order = np.argsort(keys, kind="stable")
        return keys[order], order
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
