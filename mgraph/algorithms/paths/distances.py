"""Hop distances from several sources: up to 64 bit-parallel searches at a time (`paths.bit_parallel_bfs`)."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard, Vertices
from mgraph.algorithms.paths.bit_parallel_bfs.search import SEARCHES, BitParallelBfs, warm

__all__ = ["ALGORITHM", "distances", "run", "warm"]


T = TypeVar("T")


def distances(self: Runs[T], sources: Any) -> T:
    """Return the distance in edges from each of `sources` to every vertex.

    The result is int32[k, n], -1 if unreachable, and stays on the workers.

    Parameters
    ----------
    sources : array-like, shape (k,)
        Vertices, by id or key; repeats are allowed.

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
    64 searches run at a time, and all searches that are at the same vertex share each read of an edge. Each level is a
    superstep, which sends 16 bytes per vertex found in another worker's range. The algorithm is that of M. Then et al.,
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
    """Convert the user's arguments to the program's."""
    return {"sources": Vertices(graph.vertices(sources, "sources"))}


def run(shard: Shard, sources: np.ndarray) -> Columns:
    """Return the distances in edges from each of `sources` to the own vertices.

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
        Too little memory for the result, the words and lists of `BitParallelBfs`, and 1 / 64 byte per edge for hubs'
        tasks.

    Notes
    -----
    O(n + m) for 64 searches whose levels coincide, and at worst 64 times as much. The distances are exact and do not
    depend on timing.
    """
    n, device = shard.hi - shard.lo, shard.device
    # Each batch of 64 sources writes its own slice of the distances.
    distance = device.full(len(sources) * n, -1, np.int32)
    for first in range(0, len(sources), SEARCHES):
        batch = sources[first : first + SEARCHES]
        BitParallelBfs(shard, batch, distance[first * n : (first + len(batch)) * n]).run(shard.n_vertices)
    return {"distance": distance.reshape(len(sources), n)}, {}


ALGORITHM = Algorithm(
    name="distances",
    check=check,
    run=run,
    columns={"distance": "rows"},
    scalars=(),
    warm=warm,
)
