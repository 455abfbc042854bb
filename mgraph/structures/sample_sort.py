"""A GPU's sort of keys, alone or with their places, by a sample: a few launches and two passes over the keys."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import load
from mgraph.kernels.launch import Struct

__all__ = ["CONSTANTS", "MOST", "MOST_PLACED", "sort_sampled"]

Array = Any
TILE, PLACED_TILE = 8192, 4096  #: keys that a block sorts in shared memory, as tile_sort.cuh has it
CONSTANTS: tuple[dict[str, int], ...] = (  #: of sample_sort.cuh, for keys alone and with places, which states the bytes
    {"PLACED": 0, "TILE_BYTES": 69632, "FEW_BYTES": 65552, "MANY": 16384, "MANY_BYTES": 213008},
    {"PLACED": 1, "TILE_BYTES": 55296, "FEW_BYTES": 81936, "MANY": 12288, "MANY_BYTES": 213008},
)
MOST, MOST_PLACED = 16384 * TILE // 2, 12288 * PLACED_TILE // 2  #: keys that can be sorted, alone and with places
DEAL = 4096  #: keys that a block deals at once; twice as many into more than FEW buckets
FEW = 4096
BLOCKS = 264  #: that deal: each makes a table of the splitters first
FAN = 16  #: sorted tiles of the sample that become one run in a launch


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
    """Keys, or those of two uint32 columns, ascending, as a new array; and where each stood, uint32, or None.

    Three launches up to 131k keys, four up to 16M, five for more; no read-back. While it runs it takes 16 bytes a key,
    24 with places. One key in 128 (of those with places in 64) is a sample, whose splitters cut the keys into buckets
    of `bucket` on average; each has a slot for `room` of them. A bucket of 4096 is larger than 8192 once in 100,000;
    then it is sorted where it belongs, slower. The largest id of each column goes into `largest`, uint64[2].
    """
    n = len(src if keys is None else keys)
    tile = PLACED_TILE if with_places else TILE
    bucket, room = bucket or min(max(n >> 8, 512), tile // 2), room or tile
    buckets, every = max(2, -(-n // bucket)), max(8, 64 * bucket // tile)
    samples = buckets * every
    part = next((t for t in (1024, 2048, 4096) if t * FAN >= samples), tile)
    rounds = next(r for r in range(9) if part * FAN**r >= samples)
    sizes = [buckets + 1, samples, samples if rounds else 0, buckets * room]  # in words of 8 bytes
    starts = [0, *accumulate(sizes + [m // 2 + 1 for m in sizes[1:] if with_places])]
    (first, second, slots), (*places, slot_places) = starts[1:4], starts[4:7] if with_places else (0, 0, 0)
    scratch = device.empty(starts[-1], np.uint64)  # one array: each takes the host 2 us
    out, out_places = device.empty(n, np.uint64), device.empty(n, np.uint32) if with_places else None
    sort = Struct(
        src=src, dst=dst, keys=keys, n=n, scratch=scratch, sample=(first, second)[rounds % 2],
        sample_places=places[rounds % 2], slots=slots, slot_places=slot_places, every=every, tile=part, buckets=buckets,
        room=room,
    )  # fmt: skip
    kernels = load(device, "sample_sort.cuh", None, **CONSTANTS[with_places])
    kernels.SortSample(-(-samples // part), sorting=sort, to=first, places_to=places[0])
    if rounds:
        keys_of = [scratch[at : at + samples] for at in (first, second)]
        places_of = [scratch[at:].view(np.uint32)[:samples] if with_places else None for at in places]
        for r in range(rounds):
            load(device, "sort.cuh").MergeRuns(
                samples, keys=keys_of[r % 2], places=places_of[r % 2], n=samples, width=part * FAN**r, fan=FAN,
                keys_out=keys_of[1 - r % 2], places_out=places_of[1 - r % 2],
            )  # fmt: skip
    if buckets <= FEW:
        kernels.DealToFew(min(-(-n // DEAL), BLOCKS), sort=sort, largest=largest)
    else:
        kernels.DealToMany(min(-(-n // (2 * DEAL)), BLOCKS // 2), sort=sort, largest=largest)
    kernels.SortBuckets(buckets, sorting=sort, keys=out, places=out_places)
    return out, out_places
