"""A shortest path on each rank: a search with predecessors from the source, and a walk back from the target.

Without weights the search is `paths.bfs`, with weights `paths.sssp` in float64. In the walk
each rank follows the predecessors of its own vertices until they leave its range: one launch and one read-back, then an
allreduce of two numbers, for each time that the path goes from one range to another.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.paths import bfs, sssp
from mgraph.algorithms.paths.sssp.program import Paths
from mgraph.device import Array, Device
from mgraph.errors import NoPath
from mgraph.kernels import Library, load

__all__ = ["run", "warm"]


def _library(shard: Shard) -> Library:
    return load(shard.device, "algorithms/paths/shortest_path/walk.cuh")


def warm(shard: Shard) -> None:
    """Compile what a walk and a search without weights run on this shard."""
    bfs.ALGORITHM.warm(shard)
    sssp.ALGORITHM.warm(shard)
    _library(shard)


def run(shard: Shard, source: int, target: int, names: tuple[int, int], weight: bool = False) -> Columns:
    """A shortest path from `source` to `target`.

    Parameters
    ----------
    shard : Shard
    source, target : int
        Internal ids; the same on every rank.
    names : (int, int)
        Their users' ids, for the message of an error.
    weight : bool
        Whether lengths are sums of weights, in float64; else numbers of edges.

    Returns
    -------
    columns : dict
        The parts of the path in the own range: "path", int64[k], internal ids, and "place", int64[k], how many edges
        each vertex is away from the end of the path.
    scalars : dict
        ``edges``, the number of edges of the path.

    Raises
    ------
    NoPath
        There is none; raised on every rank.
    InvalidOption
        An edge has a negative weight.
    CapacityError
        There is too little memory for the search with predecessors, and 4 bytes an owned vertex.
    """
    if weight:
        predecessors, _ = Paths(shard, source, "float64").predecessors()
    else:
        predecessors = bfs.ALGORITHM.run(shard, source=source, predecessors=True)[0]["predecessors"]
    path, place, end, length = _walk(shard, predecessors, target)
    if end != source:
        raise NoPath(f"there is no path from {names[0]!r} to {names[1]!r}")
    return {"path": path, "place": place}, {"edges": length - 1}


def _walk(shard: Shard, predecessors: Array, target: int) -> tuple[Array, Array, int, int]:
    """The own vertices on the way back from `target`, their places, the vertex where it ends, and its length."""
    device, n = shard.device, shard.hi - shard.lo
    path, found = device.empty(n, np.uint32), device.zeros(2, np.int64)
    paths, places, at, end, length = [], [], target, target, 0
    while at >= 0:
        step = np.array([-1, 0, -1], np.int64)  # the next vertex, how many this range has, the last one of them
        if shard.lo <= at < shard.hi:
            _library(shard).WalkBack(1, predecessors=predecessors, first=shard.lo, n=n, at=at, path=path, found=found)
            step[:2] = Device.to_host(found)
            part = Device.to_host(path[: int(step[1])]).astype(np.int64)
            step[2] = part[-1]
            paths.append(part)
            places.append(length + np.arange(len(part)))
        at, more, end = shard.exchange.allreduce(step, "max").tolist()
        length += more
    none = [np.empty(0, np.int64)]
    mine, where = np.concatenate([*none, *paths]), np.concatenate([*none, *places])
    return device.asarray(mine), device.asarray(where), end, length
