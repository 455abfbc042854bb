"""The vertices within k edges of each source on each rank: 64 searches at a time, by `paths.bit_parallel_bfs`.

Each level adds a line for each search and vertex that it comes to, so memory is needed for what is found alone.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.paths.bit_parallel_bfs.search import SEARCHES, Waves, library

__all__ = ["run", "warm"]


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    library(shard)


def run(shard: Shard, sources: np.ndarray, k: int) -> Columns:
    """The own vertices within `k` edges of each of `sources`.

    Parameters
    ----------
    shard : Shard
    sources : uint32[s]
        Internal ids; the same on every rank.
    k : int
        The largest number of edges.

    Returns
    -------
    columns : dict
        A line for each source and own vertex within k edges, in any order: "vertex", int64[found], the internal id;
        "row", int64[found], the place of the source in `sources`; "hop", int32[found], the number of edges.
    scalars : dict
        ``rows``, the number of sources.

    Raises
    ------
    CapacityError
        There is too little memory for twice the result, 20 bytes a line, for what `Waves` lists and 1 / 64 byte an edge
        for hubs' tasks.
    """
    device = shard.device
    vertices, rows, hops = [device.empty(0, np.int64)], [device.empty(0, np.int64)], [device.empty(0, np.int32)]
    for first in range(0, len(sources), SEARCHES):
        waves, hop, more = Waves(shard, sources[first : first + SEARCHES]), 0, True
        while more:
            vertex, search = waves.found()
            row = device.astype(search, np.int64)
            row += first
            vertices.append(vertex)
            rows.append(row)
            hops.append(device.full(len(vertex), hop, np.int32))
            more = hop < k and waves.step()
            hop += 1
    columns = {"vertex": vertices, "row": rows, "hop": hops}
    return {name: device.concatenate(parts) for name, parts in columns.items()}, {"rows": len(sources)}
