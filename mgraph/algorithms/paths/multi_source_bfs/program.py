"""Breadth-first search from several vertices on each rank, with the nearest of them for each vertex.

A length is hops << 32 | label of the source. So the least one is that of the nearest source, and among several that of
the first in the order of what users call them. It grows by a hop along every edge: a search by near lists alone, by
`paths.near_far`.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.paths.near_far.search import HOPS, Search, library
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Device
from mgraph.kernels import Library, load

__all__ = ["run", "warm"]


def _split(shard: Shard) -> Library:
    return load(shard.device, "algorithms/paths/multi_source_bfs/split.cuh")


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    library(shard, HOPS)
    _split(shard)


def run(shard: Shard, sources: np.ndarray) -> Columns:
    """The distances of the own vertices from the nearest of `sources`, in edges.

    Parameters
    ----------
    shard : Shard
    sources : uint32[k]
        Internal ids; the same on every rank.

    Returns
    -------
    columns : dict
        "distance", int32[hi - lo] on the shard's device, -1 if there is no path; "nearest", int64[hi - lo], the
        label of the nearest source, of several the smallest, -1 if there is no path.
    scalars : dict
        ``levels``, the largest distance plus one; ``reached``, the number of vertices reached.

    Raises
    ------
    CapacityError
        There is too little memory for what `Search` lists with wide words, 12 bytes an owned vertex for the result and
        1 / 64 byte an edge for hubs' tasks.

    Notes
    -----
    O(n + m) on one rank; on several, a distance may be corrected once for each way through other ranges. The result
    does not depend on timing, order, structure or the number of ranks.
    """
    device, n = shard.device, shard.hi - shard.lo
    search = Search(shard, HOPS)
    labels = (
        sources
        if shard.by_name is None
        else Device.to_host(device.gather(vertex_labels(shard), device.asarray(sources)))
    )
    search.run(sources, labels.astype(np.uint64))
    distance, nearest = device.empty(n, np.int32), device.empty(n, np.int64)
    found = device.zeros(2, np.int64)
    words = search.length[shard.lo : shard.hi]
    _split(shard).SplitHops(n, words=words, n=n, distance=distance, nearest=nearest, found=found)
    reached, levels = Device.to_host(found).tolist()
    reached = int(shard.exchange.allreduce(np.array([reached]))[0])
    levels = int(shard.exchange.allreduce(np.array([levels]), "max")[0])
    return {"distance": distance, "nearest": nearest}, {"levels": levels, "reached": reached}
