"""Sample sort of keys on a GPU, alone or with places: a few launches, two passes over the keys."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import constants, load
from mgraph.kernels.launch import Struct

__all__ = ["CONSTANTS", "MOST", "MOST_PLACED", "sort_sampled"]

Array = Any
CONSTANTS: tuple[dict[str, int], ...] = ({"PLACED": 0}, {"PLACED": 1})  #: macros for keys alone, and with places
_ALONE, _PLACED = (constants("kernels/sample_sort.cuh", **kind) for kind in CONSTANTS)
TILE, PLACED_TILE = _ALONE["TileSort::most"], _PLACED["TileSort::most"]  #: keys per block in shared memory
MOST, MOST_PLACED = _ALONE["many_buckets"] * TILE // 2, _PLACED["many_buckets"] * PLACED_TILE // 2  #: maximum of keys
FEW = _ALONE["few_buckets"]  #: maximum of buckets for DealToFew; more are for DealToMany
DEAL = _ALONE["DealToFew::lanes"] * _ALONE["Dealer::some"]  #: keys per block and step
DEAL_TO_MANY = _ALONE["DealToMany::lanes"] * _ALONE["Dealer::some"]
BLOCKS = 264  #: maximum of distributing blocks, since each first makes a table of the splitters
SMALL_TILE = constants("kernels/small_tile.cuh")["tile_keys"]  #: keys of the sample per block
FAN = 16  #: runs merged into one per launch


def sort_sampled(
    device: Device,
    keys: Array = None,
    src: Array = None,
    dst: Array = None,
    largest: Array = None,
    with_places: bool = False,
    bucket: int | None = None,
    room: int | None = None,
) -> tuple[Array, Array]:
    """Sort `keys`, or two uint32 columns, into a new array; also their places `with_places`.

    Three to six launches, more for larger samples; no read-back. Takes 16 bytes per key meanwhile, 24 with places. One
    key in 128 is sampled, with places one in 64. Splitters from the sample cut the keys into buckets of `bucket` keys
    on average, each with room for `room`. A bucket of 4096 on average outgrows 8192 once in 100,000; it is then sorted
    in its place in the output, which is slower. The largest id of each column goes into `largest`, uint64[2].
    """
    # Choose the number of buckets and the size of the sample.
    n = len(src if keys is None else keys)
    tile = PLACED_TILE if with_places else TILE
    bucket, room = bucket or min(max(n >> 8, 512), tile // 2), room or tile
    buckets, every = max(2, -(-n // bucket)), max(8, 64 * bucket // tile)
    samples = buckets * every
    rounds = next(r for r in range(9) if SMALL_TILE * FAN**r >= samples)

    # One allocation for all scratch, since each takes the host 2 us.
    sizes = [buckets + 1, samples, samples if rounds else 0, buckets * room]  # words of 8 bytes
    starts = [0, *accumulate(sizes + [m // 2 + 1 for m in sizes[1:] if with_places])]
    (first, second, slots), (*places, slot_places) = starts[1:4], starts[4:7] if with_places else (0, 0, 0)
    scratch = device.empty(starts[-1], np.uint64)
    out, out_places = device.empty(n, np.uint64), device.empty(n, np.uint32) if with_places else None
    sort = Struct(
        src=src, dst=dst, keys=keys, n=n, scratch=scratch, sample=(first, second)[rounds % 2],
        sample_places=places[rounds % 2], slots=slots, slot_places=slot_places, every=every, buckets=buckets, room=room,
    )  # fmt: skip

    # Sort the sample, by tiles and then by merges.
    kernels = load(device, "kernels/sample_sort.cuh", None, **CONSTANTS[with_places])
    kernels.SortSample(-(-samples // SMALL_TILE), sorting=sort, to=first, places_to=places[0])
    if rounds:
        keys_of = [scratch[at : at + samples] for at in (first, second)]
        places_of = [scratch[at:].view(np.uint32)[:samples] if with_places else None for at in places]
        for r in range(rounds):
            load(device, "kernels/sort.cuh").MergeRuns(
                samples, keys=keys_of[r % 2], places=places_of[r % 2], n=samples, width=SMALL_TILE * FAN**r, fan=FAN,
                keys_out=keys_of[1 - r % 2], places_out=places_of[1 - r % 2],
            )  # fmt: skip

    # Distribute the keys to the buckets, and sort each bucket.
    if buckets <= FEW:
        kernels.DealToFew(min(-(-n // DEAL), BLOCKS), sort=sort, largest=largest)
    else:
        kernels.DealToMany(min(-(-n // DEAL_TO_MANY), BLOCKS // 2), sort=sort, largest=largest)
    kernels.SortBuckets(buckets, sorting=sort, keys=out, places=out_places)
    return out, out_places
