"""Shortest path on each rank: search with predecessors from the source, then walk back from the target.

Without weights the search is `paths.bfs`, with weights `paths.sssp` in float64. In the walk, the rank that owns the
current vertex follows predecessors until they leave its range. Each part of the path within a range costs a launch, a
read-back and an allreduce.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.paths.bfs import program as bfs
from mgraph.algorithms.paths.sssp.program import Paths
from mgraph.device import Array, Device
from mgraph.errors import NoPath
from mgraph.kernels import Library, load

__all__ = ["run", "warm"]


def _library(shard: Shard) -> Library:
    return load(shard.device, "algorithms/paths/shortest_path/walk.cuh")


def warm(shard: Shard) -> None:
    """Compile the kernels of a search by edges with predecessors, and of the walk."""
    bfs.warm(shard, predecessors=True)
    _library(shard)


def run(shard: Shard, source: int, target: int, names: tuple[int, int], weight: bool = False) -> Columns:
    """Return the own part of a shortest path from `source` to `target`.

    Parameters
    ----------
    shard : Shard
    source, target : int
        Internal ids; the same on every rank.
    names : (int, int)
        The user's ids of both, for error messages.
    weight : bool
        Measure paths by sums of weights, in float64, instead of numbers of edges.

    Returns
    -------
    columns : dict
        The parts of the path in the own range: "path", int64[k], internal ids, and "place", int64[k], the number of
        edges from each vertex to the end of the path.
    scalars : dict
        ``edges``, the number of edges of the path.

    Raises
    ------
    NoPath
        No path leads from `source` to `target`; raised on every rank.
    InvalidOption
        An edge has a negative weight.
    CapacityError
        Too little memory for the search with predecessors, and 4 bytes per owned vertex.
    """
    if weight:
        predecessors = Paths(shard, source, "float64").predecessors()
    else:
        predecessors = bfs.run(shard, source, predecessors=True)[0]["predecessors"]
    path, place, end, length = _walk(shard, predecessors, target)
    if end != source:
        raise NoPath(f"there is no path from {names[0]!r} to {names[1]!r}")
    return {"path": path, "place": place}, {"edges": length - 1}


def _walk(shard: Shard, predecessors: Array, target: int) -> tuple[Array, Array, int, int]:
    """Walk back from `target`; return the own vertices, their places, the last vertex and the number of vertices."""
    device, n = shard.device, shard.hi - shard.lo
    path, result = device.empty(n, np.uint32), device.zeros(2, np.int64)
    paths, places, at, end, length = [], [], target, target, 0
    while at >= 0:
        # The owner of `at` follows predecessors until they leave its range.
        step = np.array([-1, 0, -1], np.int64)  # the next vertex, the number of vertices in this range, their last
        if shard.lo <= at < shard.hi:
            _library(shard).WalkBack(1, predecessors=predecessors, first=shard.lo, n=n, at=at, path=path, found=result)
            step[:2] = Device.to_host(result)
            part = Device.to_host(path[: int(step[1])]).astype(np.int64)
            step[2] = part[-1]
            paths.append(part)
            places.append(length + np.arange(len(part)))

        # Tell all ranks where the walk goes on.
        at, more, end = shard.exchange.allreduce(step, "max").tolist()
        length += more

    # Join the own parts.
    none = [np.empty(0, np.int64)]
    mine, where = np.concatenate([*none, *paths]), np.concatenate([*none, *places])
    return device.asarray(mine), device.asarray(where), end, length
