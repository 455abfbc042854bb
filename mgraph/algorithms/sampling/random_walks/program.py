"""Random walks: each is at the rank that owns its vertex, and moves on to the owner of the next.

All steps are one program that all ranks run together (`walk.cuh`, `mgraph.exchange.world`). A step is a message of 8
bytes per walk, one meeting of the ranks and two of the own blocks. Walks depend on no other walk, so of many walks some
are made at a time: inboxes and lists have room for all of these at any rank.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, kernels, task_room
from mgraph.kernels import Library

__all__ = ["run", "warm"]

WALKS, VISITS = 1 << 20, 1 << 25  #: most walks at a time, and most visits of several walks
ROOM = 1 << 12  #: least room of an inbox in walks, so that regions seldom grow
PIECES = 1 << 22  #: most pieces of the rows of present walks


def _library(shard: Shard) -> Library:
    return kernels(shard, "algorithms/sampling/random_walks/walk.cuh", shard.out_edges.view())


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    _library(shard)


def run(shard: Shard, starts: np.ndarray, length: int, seed: int) -> Columns:
    """Return the visits of all walks to own vertices.

    Parameters
    ----------
    shard : Shard
    starts : uint32[k]
        The first vertex of each walk, an internal id; equal on every rank.
    length : int
        The number of steps.
    seed : int

    Returns
    -------
    columns : dict
        An entry per visit of an own vertex: "vertex", uint32[rows], its user's id; "place", int64[rows], the place of
        the visit in the table of all walks, walk by walk.
    scalars : dict
        ``walks`` and ``length``.
    """
    # Inboxes and lists have room for as many walks as are made at a time.
    device, edges, k = shard.device, shard.out_edges, len(starts)
    most = min(k, WALKS, max(VISITS // (length + 1), 1))
    world = shard.exchange.world(device)
    layout = world.layout(shard.partition, max(ROOM, 1 << (most - 1).bit_length()), message=8)
    vertex, walk = (device.empty(most, np.uint32) for _ in range(2))
    visited, places = (device.empty(most * (length + 1), dtype) for dtype in (np.uint32, np.int64))
    pieces = max(min(PIECES // most, task_room(edges)), 1)
    tasks, least = (device.empty(n if pieces > 1 else 0, np.uint64) for n in (most * pieces, most))

    # Make the walks.
    every, parts = device.asarray(starts), []
    for first in range(0, k, most):
        some = every[first : first + most]
        state = world.run(
            _library(shard), "Walking", layout, len(some) + task_room(edges), graph=edges.view(), starts=some,
            walks=len(some), first_walk=first, length=length, seed=seed, names=shard.names, order=shard.order,
            vertex=vertex, walk=walk, visited=visited, places=places, tasks=tasks, most_pieces=pieces, least=least,
        )  # fmt: skip
        n = state["first"] + state["here"]
        if most == k:
            return {"vertex": visited[:n], "place": places[:n]}, {"walks": k, "length": length}
        parts.append([device.concatenate([visited[:n]]), device.concatenate([places[:n]])])

    # Join those that were made one after another.
    columns = [device.concatenate(some) for some in zip(*parts, strict=True)]
    return dict(zip(("vertex", "place"), columns, strict=True)), {"walks": k, "length": length}
