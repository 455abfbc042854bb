"""k-truss: removes edges with too few triangles, round by round, until all remaining edges have enough.

Edges are kept and exchanged like in a count of triangles: each at its lower end, in rows that are sent in pieces to all
ranks. The rank that owns v finds the triangles over the edge from u to v, and counts them for all three edges. Counts
of other ranks' edges are sent back to them.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
keep edges        as for triangles                                          as for triangles
a round           1 for each piece of each rank, and a scan; 3 read-backs   2 allgathers per piece: 4 bytes per edge
                                                                            left, 8 per vertex; an alltoallv of 4 bytes
                                                                            per edge left; 2 allreduces, an allgather
================= ========================================================= ===========================================
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.density.triangles import program as triangles
from mgraph.algorithms.density.triangles.program import Keeper, Kept, cuts_of, exchanged, fields_of
from mgraph.device import Array
from mgraph.kernels import Library, load

__all__ = ["run", "warm"]


def _library(shard: Shard) -> Library:
    return load(shard.device, "algorithms/density/k_truss/support.cuh")


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    triangles.warm(shard)
    _library(shard)


def run(shard: Shard, k: int) -> Columns:
    """Return the edges of the k-truss that own vertices keep.

    Returns
    -------
    columns : dict
        A line per edge: "src" and "dst", int64[rows], internal ids, in either direction.
    scalars : dict
        ``rounds``.

    Raises
    ------
    CapacityError
        Too little memory: that of `corners` of triangles, and 16 bytes per kept edge.
    """
    # Keep each edge at its lower end.
    device, rounds, gone = shard.device, 0, 1
    kept, _ = Keeper(shard, [shard.out_edges]).keep()

    # Each round: count the triangles of each edge, and remove edges with fewer than k - 2.
    while gone and k > 2:
        support, rounds = _support(shard, kept), rounds + 1
        left = support >= k - 2
        upto = device.zeros(len(left) + 1, np.int64)
        device.cumsum(left, out=upto[1:])
        here = len(left) - int(upto[-1])
        if here:
            kept = Kept(device.gather(upto, kept.offsets), kept.ids[left])
        gone = int(shard.exchange.allreduce(np.array([here]))[0])
    return {"src": _sources(shard, kept), "dst": device.astype(kept.ids, np.int64)}, {"rounds": rounds}


def _support(shard: Shard, kept: Kept) -> Array:
    """Count the triangles of each kept edge: uint32[k]."""
    # Cut the rows into pieces.
    device, library = shard.device, _library(shard)
    own, mine = fields_of(kept, shard.lo), device.zeros(len(kept.ids), np.uint32)
    cuts = cuts_of(shard, kept)
    bounds = device.to_host(device.gather(kept.offsets, device.asarray(cuts[shard.rank])))
    pieces = zip(*(pairwise(cut.tolist()) for cut in cuts), strict=True)

    # Exchange the pieces one after another, count, and send the counts back.
    for ends, (a, b) in zip(pieces, pairwise(bounds.tolist()), strict=True):
        counted = []
        for rank, piece in enumerate(exchanged(shard, kept, ends[shard.rank], a, b)):
            part = fields_of(piece, shard.partition.range(rank)[0] + ends[rank][0])
            n, theirs = len(piece.ids), device.zeros(len(piece.ids), np.uint32)
            library.Support(n, lower=part, upper=own, edges=n, theirs=theirs, mine=mine)
            counted.append(theirs)
        for part in shard.exchange.alltoallv(counted):
            mine[a:b] += part
    return mine


def _sources(shard: Shard, kept: Kept) -> Array:
    """Return the vertex that keeps each edge: int64[k]."""
    device, n = shard.device, len(kept.ids)
    with device.taking(24 * n, f"the ends of {n} edges"):
        places = device.xp.searchsorted(kept.offsets[1:], device.arange(0, n, np.int64), side="right")
        return places.astype(np.int64) + shard.lo
