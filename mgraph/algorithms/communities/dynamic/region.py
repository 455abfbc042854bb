"""A region of the graph: some communities that are improved on all levels, while all others stay as they are.

The rows of the region are copied to a separate graph, in which each community outside is one vertex. That vertex has no
row and does not move, but vertices of the region may move to it. So an iteration on the copy takes time with the arcs
of the region, and each gain on the copy is a gain on the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES
from mgraph.algorithms.communities.dynamic.level_kernels import count_edges, level_kernels
from mgraph.algorithms.communities.multilevel import Hierarchy, Level, number_communities
from mgraph.algorithms.communities.multilevel.aggregation import CoarseRows
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.device import Array, Device
from mgraph.partition import Partition

__all__ = ["improve_region"]

NOWHERE = 2**32 - 1


def improve_region(level: Level, chosen: Array, descend: Callable[[Hierarchy], Any]) -> None:
    """Let `descend` improve the communities of `level` whose labels are 1 in `chosen`, uint8[n].

    The labels of `level` may be at most n. O(n) and the work on the region's arcs. On several ranks an allgather of the
    communities near the region, besides the exchanges of the method.
    """
    # List the region's vertices, and the communities near them.
    device, shard, xp, n = level.device, level.shard, level.device.xp, level.n
    members = device.astype(xp.flatnonzero(device.gather(chosen, level.labels)), np.uint32)
    k, places = len(members), device.full(n, NOWHERE, np.uint32)
    device.scatter(places, members, device.arange(0, k, np.uint32))
    bounds = np.array([*level.partition.starts], np.int64)
    starts = Device.to_host(xp.searchsorted(members, device.asarray(bounds.astype(np.uint32)))).tolist()
    begin, end = starts[shard.rank], starts[shard.rank + 1]
    rows = members[begin:end] - np.uint32(level.first)
    near = device.zeros(n, np.uint8)
    copy = {"labels": level.labels, "places": places, "first": level.first, "begin": begin, "near": near}
    copy |= {"unit": level.weights[0].unit, **dict.fromkeys(("ranks", "offsets", "counts", "dst", "weights"))}
    _visit(level, rows, copy)
    outside = device.astype(xp.flatnonzero(near), np.uint32)
    if shard.size > 1:
        near[device.concatenate(shard.exchange.allgather(outside))] = 1
        outside = device.astype(xp.flatnonzero(near), np.uint32)

    # Copy the rows.
    degrees = device.empty(len(rows), np.int64)
    count_edges(level, rows, degrees)
    last = len(outside) if shard.rank == shard.size - 1 else 0
    offsets = device.zeros(len(rows) + last + 1, np.int64)
    device.cumsum(degrees, out=offsets[1 : len(rows) + 1])
    m = int(offsets[len(rows)])
    offsets[len(rows) + 1 :] = m
    inside = device.astype(xp.flatnonzero(chosen), np.uint32)
    ranks, total = device.empty(n, np.uint32), k + len(outside)
    device.scatter(ranks, inside, device.arange(0, len(inside), np.uint32))
    device.scatter(ranks, outside, device.arange(k, total, np.uint32))
    dst, weights = device.empty(m, np.uint32), device.empty(m, np.uint64)
    more = {"ranks": ranks, "offsets": offsets, "counts": device.zeros(len(rows), np.uint32), "near": None}
    _visit(level, rows, {**copy, **more, "dst": dst, "weights": weights})
    level.visited += 2 * m

    # Describe the level of the copy. Its vertices have names in the order of those of the graph.
    names = None
    if level.names is not None:
        names = device.empty(total, np.uint32)
        device.scatter(names, xp.argsort(device.gather(level.names, members)), device.arange(0, k, np.uint32))
        names[k:] = device.arange(k, total, np.uint32)
    strengths = [
        device.concatenate([device.gather(strength, members), device.gather(sums, outside)])
        for strength, sums in zip(level.strengths, level.sums, strict=True)
    ]
    partition = Partition((*starts[:-1], total))
    region = Level(
        shard, [CoarseRows(offsets, dst, weights)], partition, names, strengths, 0, level.objective,
        level.weights[0].unit, fixed=device.arange(k, total, np.uint32),
    )  # fmt: skip
    arcs = shard.exchange.allreduce(np.array([m, sum(weights.num_edges for weights in level.weights)], np.int64))
    region.least *= float(arcs[0] / max(arcs[1], 1))
    own = device.gather(ranks, device.gather(level.labels, members))
    region.start(device.concatenate([own, device.arange(k, total, np.uint32)]), level.inside)

    # Improve it, and label the communities: with members outside as before, others by their least members.
    levels = Hierarchy(region)
    descend(levels)
    numbers, _ = number_communities(levels.level, levels.level.labels)
    numbers = all_gather(shard, device.gather(numbers, levels.members), partition=partition)
    least = device.full(total, NOWHERE, np.uint32)
    by_name = members if level.names is None else device.gather(level.names, members)
    level.kernels.LeastNames(k, labels=numbers, names=by_name, n=k, least=least)
    device.scatter(least, numbers[k:], outside)
    labels = level.labels.copy()
    device.scatter(labels, members, device.gather(least, numbers[:k]))
    level.start(labels, levels.level.inside)


def _visit(level: Level, rows: Array, copy: dict[str, Any]) -> None:
    library = level_kernels(level)
    for weights in level.weights:
        hubs = weights.hubs()
        library.CopyRegion(
            -(-len(rows) // LANES), graph=weights.view, rows={"rows": rows}, n=len(rows), copy=copy, **hubs
        )
        library.CopyRegionHubs(weights.room, graph=weights.view, copy=copy, **hubs)
