"""Multi-source breadth-first search on each rank: distance from the nearest source, and its label.

A length is hops << 32 | label of the source. So the least length belongs to the nearest source, and among equally near
sources to the smallest label. Every edge adds a hop: a search of `paths.near_far` with near lists alone.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.paths.near_far.search import HOPS, NearFarSearch, hop_kernels, library
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Device

__all__ = ["run", "warm"]


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    library(shard, HOPS)
    hop_kernels(shard)


def run(shard: Shard, sources: np.ndarray) -> Columns:
    """Return the distances in edges from the nearest of `sources` to the own vertices.

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
        Too little memory for the lengths and lists of `NearFarSearch` with wide words, 12 bytes per owned vertex for
        the result and 1 / 64 byte per edge for hubs' tasks.

    Notes
    -----
    O(n + m) on one rank; on several, a distance may be corrected once for each path through other ranges. The result
    does not depend on timing, order, structure or the number of ranks.
    """
    # Search from all sources at once.
    device = shard.device
    search = NearFarSearch(shard, HOPS, common=True)
    names = vertex_labels(shard)
    labels = sources if names is None else Device.to_host(device.gather(names, device.asarray(sources)))
    search.run(sources, labels.astype(np.uint64))

    # Split the words into hops and labels.
    nearest = device.empty(shard.hi - shard.lo, np.int64)
    distance, scalars = search.hops(nearest)
    return {"distance": distance, "nearest": nearest}, scalars
