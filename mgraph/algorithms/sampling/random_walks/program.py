"""Random walks: each is at the rank that owns its vertex, and moves on to the owner of the next.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a step            3; with several ranks also a sort and a read-back         an alltoallv of 8 bytes per walk
================= ========================================================= ===========================================
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, kernels
from mgraph.algorithms.primitives.user_ids import user_ids
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants

__all__ = ["ROW_TILES", "run", "to_owners", "warm"]

NONE = 2**64 - 1  #: no draw
ROW_TILES = constants("kernels/random_draws.cuh")["row_tiles"]  #: tiles of a GPU that read a row together


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
        A line per visit of an own vertex: "vertex", int64[rows], the internal id, and "place", int64[rows], the walk's
        number times ``length + 1`` plus the step's.
    scalars : dict
        ``walks`` and ``length``.
    """
    # Walks begin at the owners of their first vertices.
    device, library, view = shard.device, _library(shard), shard.out_edges.view()
    names = None if shard.order is None else user_ids(shard)
    own = np.flatnonzero((starts >= shard.lo) & (starts < shard.hi)).astype(np.uint64)
    walks = device.asarray(own << np.uint64(32) | starts[own])
    visits = [walks]

    # Step by step: draw a neighbour, and go to its owner.
    for step in range(length):
        after, n = device.full(len(walks), NONE, np.uint64), len(walks)
        common = {"graph": view, "walks": {"at": walks, "n": n, "first": shard.lo, "seed": seed, "step": step}}
        library.Draw(n * ROW_TILES, names=names, least=after, **common)
        library.Move(n, order=shard.order, next=after, **common)
        walks = to_owners(shard, after)
        visits.append(walks)

    # Give each visit its place in the result.
    places = [_places(device, walks, step, length) for step, walks in enumerate(visits)]
    vertices = device.astype(device.astype(device.concatenate(visits), np.uint32), np.int64)
    return {"vertex": vertices, "place": device.concatenate(places)}, {"walks": len(starts), "length": length}


def _places(device: Device, walks: Array, step: int, length: int) -> Array:
    places = device.astype(walks >> np.uint64(32), np.int64)
    places *= length + 1
    places += step
    return places


def to_owners(shard: Shard, keys: Array) -> Array:
    """Send keys, each with a vertex in its low 32 bits, to the owners of these.

    An alltoallv and a read-back.
    """
    if shard.size == 1:
        return keys
    device, xp = shard.device, shard.device.xp
    inner = device.asarray(np.asarray(shard.partition.starts[1:-1], np.int64))
    with device.taking(32 * len(keys), f"the owners of {len(keys)} vertices"):
        owner = xp.searchsorted(inner, device.astype(keys, np.uint32).astype(np.int64), side="right")
        order = xp.argsort(owner, kind="stable")
        cuts = Device.to_host(xp.searchsorted(owner[order], device.arange(0, shard.size + 1, np.int64))).tolist()
        dealt = device.gather(keys, order)
    parts = [dealt[first:end] for first, end in pairwise(cuts)]
    return device.concatenate(shard.exchange.alltoallv(parts))
