"""Distances in edges from several vertices on each rank: 64 searches at a time, by `paths.bit_parallel_bfs`."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.paths.bit_parallel_bfs.search import SEARCHES, Waves, library

__all__ = ["run", "warm"]


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    library(shard)


def run(shard: Shard, sources: np.ndarray) -> Columns:
    """The distances of the own vertices from each of `sources`, in edges.

    Parameters
    ----------
    shard : Shard
    sources : uint32[k]
        Internal ids; the same on every rank.

    Returns
    -------
    columns : dict
        "distance", int32[k, hi - lo] on the shard's device, -1 if there is no path.
    scalars : dict
        None.

    Raises
    ------
    CapacityError
        There is too little memory for the result, what `Waves` lists and 1 / 64 byte an edge for hubs' tasks.

    Notes
    -----
    O(n + m) for 64 searches whose levels coincide, and at worst 64 times as much. Exact, whatever the timing.
    """
    n, device = shard.hi - shard.lo, shard.device
    distance = device.full(len(sources) * n, -1, np.int32)
    for first in range(0, len(sources), SEARCHES):
        some = sources[first : first + SEARCHES]
        Waves(shard, some, distance[first * n : (first + len(some)) * n]).run()
    return {"distance": distance.reshape(len(sources), n)}, {}
