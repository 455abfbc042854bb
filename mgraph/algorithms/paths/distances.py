"""Distances in edges from several vertices on each rank: 64 searches at a time, by `paths.bit_parallel_bfs`."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard, Vertices
from mgraph.algorithms.paths.bit_parallel_bfs.search import SEARCHES, search, warm

__all__ = ["ALGORITHM", "distances", "run", "warm"]


T = TypeVar("T")


def distances(self: Runs[T], sources: Any) -> T:
    """The distance of each vertex from each of `sources` in edges: int32[k, n], -1 if unreachable, on the workers.

    Parameters
    ----------
    sources : array of ints, shape (k,)
        Vertex ids; one may come several times.

    Returns
    -------
    VertexRows
        ``to_numpy()[i, v]`` is the distance of v from ``sources[i]``.

    Raises
    ------
    UnknownVertex
        A source is not a vertex of the graph.
    InvalidOption
        `sources` is empty or no array of whole numbers.
    CapacityError
        A worker has too little memory: 4 k bytes for each owned vertex for the result, and 40 bytes for each vertex of
        the whole graph.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    64 searches go at a time, and an edge is read once for all of them that are at the same place. Each level is a
    superstep, in which 16 bytes travel for each vertex that is found in another worker's range. After M. Then et al.,
    "The more the merrier: efficient multi-source graph traversal", PVLDB 8(4), 2014.

    Examples
    --------
    >>> g.insert([0, 1], [1, 2])  # of 4 vertices  # doctest: +SKIP
    >>> g.distances([0, 1]).to_numpy()  # doctest: +SKIP
    array([[ 0,  1,  2, -1],
           [-1,  0,  1, -1]], dtype=int32)
    """
    return self.run("distances", sources=sources)


def check(graph: GraphFacts, sources: Any) -> dict[str, Any]:
    """The program's arguments from the user's."""
    return {"sources": Vertices(graph.vertices(sources, "sources"))}


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
        There is too little memory for the result, what `search` lists and 1 / 64 byte an edge for hubs' tasks.

    Notes
    -----
    O(n + m) for 64 searches whose levels coincide, and at worst 64 times as much. Exact, whatever the timing.
    """
    n, device = shard.hi - shard.lo, shard.device
    distance = device.full(len(sources) * n, -1, np.int32)
    for first in range(0, len(sources), SEARCHES):
        some = sources[first : first + SEARCHES]
        search(shard, some, distance[first * n : (first + len(some)) * n])
    return {"distance": distance.reshape(len(sources), n)}, {}


ALGORITHM = Algorithm(
    name="distances",
    check=check,
    run=run,
    columns={"distance": "rows"},
    scalars=(),
    warm=warm,
)
