"""Renewing the order of the vertices while the graph lives: hubs first in every range, by the degrees of now.

Every vertex gets a new internal id. As when ranges move, every rank makes its part of the graph anew beside the old
one, then all vote, and switch or do not.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from mgraph.device import Array
from mgraph.kernels import load
from mgraph.partition import Partition, degree_order
from mgraph.runtime.rebalance import Moved, leaving, rebuilt
from mgraph.runtime.shard import Shard
from mgraph.runtime.update import route, waiting
from mgraph.structures import Run
from mgraph.structures.run import sort_run

__all__ = ["by_degree"]

CHUNK = 1 << 20  #: ids counted at once, or as many as there are vertices


def by_degree(shard: Shard) -> Moved:
    """The part of the graph that is this rank's by descending degree, dealt to ranges of equal lengths.

    O(n log n) on every rank alike, and O(m log m) in all: every edge is renumbered, sorted, sent to its owner and built
    in. Takes memory for the keys, 24 bytes an arc at most, some 40 bytes a vertex of the whole graph, and the new part
    beside the old one.

    Raises
    ------
    CapacityError
        There is no room for it.
    """
    partition = Partition.equal(shard.n_vertices, shard.size)
    ids = degree_order(_all_degrees(shard), shard.size)
    moved = rebuilt(shard, partition, lambda old: route(shard, _renumbered(shard, leaving(shard, old), ids), partition))
    return replace(moved, order=ids if shard.order is None else ids[shard.order])


def _all_degrees(shard: Shard) -> Array:
    """The degree of every vertex of the graph, out and in, by internal id."""
    mine = shard.out_edges.degrees()
    if shard.directed:
        mine = mine + (_in_degrees(shard) if shard.in_edges is None else shard.in_edges.degrees())
    with waiting(shard):
        return shard.device.xp.concatenate(shard.exchange.allgather(mine))


def _in_degrees(shard: Shard) -> Array:
    """Of the own vertices, counted by the ranks that hold the edges to them."""
    dst, counts = shard.out_edges.to_csr().dst, shard.device.zeros(shard.n_vertices, np.uint32)
    step = max(CHUNK, shard.n_vertices)
    for at in range(0, len(dst), step):  # NumPy's takes 8 bytes an id
        counts += shard.device.xp.bincount(dst[at : at + step], minlength=shard.n_vertices).astype(np.uint32)
    with waiting(shard):
        parts = shard.exchange.alltoallv([counts[first:end] for first, end in pairwise(shard.partition.starts)])
    return sum(parts[1:], parts[0])


def _renumbered(shard: Shard, run: Run, ids: Array) -> Run:
    load(shard.device, "arcs.cuh").Renumber(len(run), keys=run.keys, n=len(run), ids=ids)
    return sort_run(shard.device, run.keys, None, run.weight)
