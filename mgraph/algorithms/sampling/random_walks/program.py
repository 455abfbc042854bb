"""Random walks: each is at the rank that owns its vertex, and moves on to the owner of the next.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a step            3; with several ranks also a read-back                    an alltoallv of 8 bytes per walk
================= ========================================================= ===========================================
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, kernels
from mgraph.algorithms.primitives.user_ids import user_ids
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants

__all__ = ["ROW_TILES", "run", "warm"]

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
    device, library, view, size = shard.device, _library(shard), shard.out_edges.view(), shard.size
    names = None if shard.order is None else user_ids(shard)
    ranges = {"starts": device.asarray(np.asarray(shard.partition.starts, np.int64)), "owners": size}
    own = np.flatnonzero((starts >= shard.lo) & (starts < shard.hi)).astype(np.uint64)
    walks = device.asarray(own << np.uint64(32) | starts[own])
    visits = [walks]

    # Step by step: draw a neighbour, and go to its owner.
    for step in range(length):
        n = len(walks)
        least, counts = device.full(n, NONE, np.uint64), device.zeros(size, np.int64)
        parts = device.empty(size * n, np.uint64)
        at = {"at": walks, "n": n, "first": shard.lo, "seed": seed, "step": step}
        library.Draw(n * ROW_TILES, graph=view, walks=at, names=names, least=least)
        library.Move(n, graph=view, walks=at, least=least, order=shard.order, parts=parts, counts=counts, **ranges)
        walks = parts if size == 1 else _exchanged(shard, parts, n, counts)
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


def _exchanged(shard: Shard, parts: Array, room: int, counts: Array) -> Array:
    """Send each rank its part, the first `counts` of `room` walks, and return those that came: uint64."""
    ends = [rank * room + count for rank, count in enumerate(Device.to_host(counts).tolist())]
    return shard.device.concatenate(
        shard.exchange.alltoallv([parts[rank * room : end] for rank, end in enumerate(ends)])
    )
