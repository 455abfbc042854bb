"""Reordering of the vertices by their current degrees, so that every range begins with its hubs.

Every vertex gets a new internal id. As for new ranges, every rank builds its new part of the graph beside the old one;
then all ranks vote, and all switch to the new parts or none does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from mgraph.device import Array
from mgraph.kernels import load
from mgraph.partition import Partition, degree_order
from mgraph.structures import Run
from mgraph.structures.run import sort_run
from mgraph.worker.commit.route import route
from mgraph.worker.shard.shard import Shard
from mgraph.worker.vertices.rebalance import Moved, rebuilt

__all__ = ["by_degree", "own_degrees"]

CHUNK = 1 << 20  #: ids counted at once, or the number of vertices if larger
BYTES = 72  #: upper bound of the bytes per vertex of the whole graph for a new order


def by_degree(shard: Shard) -> Moved:
    """Build the rank's part with the vertices in equal ranges by degree, as `degree_order` deals them.

    O(n log n) on every rank, and O(m log m) in total: every edge is renumbered, sorted, sent to its owner and inserted.
    Needs memory for the keys, at most 24 bytes per arc, about 40 bytes per vertex of the whole graph, and the new part
    beside the old one.

    Raises
    ------
    CapacityError
        The memory does not suffice.
    """
    partition = Partition.equal(shard.n_vertices, shard.size)
    with shard.device.taking(BYTES * shard.n_vertices, f"the order of {shard.n_vertices} vertices"):
        ids = degree_order(_all_degrees(shard), shard.size)
    moved = rebuilt(shard, partition, lambda run: route(shard, _renumbered(shard, run, ids), partition))
    return replace(moved, ids=ids, order=ids if shard.order is None else shard.device.gather(ids, shard.order))


def _all_degrees(shard: Shard) -> Array:
    """Gather the sum of out- and in-degree of every vertex, by internal id."""
    mine = own_degrees(shard)
    with shard.waiting():
        return shard.device.concatenate(shard.exchange.allgather(mine))


def own_degrees(shard: Shard) -> Array:
    """Return the sum of out- and in-degree of each own vertex. All ranks call it together."""
    degrees = shard.out_edges.degrees()
    if shard.directed:
        degrees = degrees + (_in_degrees(shard) if shard.in_edges is None else shard.in_edges.degrees())
    return degrees


def _in_degrees(shard: Shard) -> Array:
    """Return the own vertices' in-degrees, counted by the ranks that store the edges."""
    dst, counts = shard.out_edges.to_csr().dst, shard.device.zeros(shard.n_vertices, np.uint32)
    step, n = max(CHUNK, shard.n_vertices), shard.n_vertices
    with shard.device.taking(8 * min(step, len(dst)) + 12 * n, f"the degrees of {n} vertices"):
        for at in range(0, len(dst), step):  # NumPy's takes 8 bytes per id
            counts += shard.device.xp.bincount(dst[at : at + step], minlength=n).astype(np.uint32)
    with shard.waiting():
        parts = shard.exchange.alltoallv([counts[first:end] for first, end in pairwise(shard.partition.starts)])
    return sum(parts[1:], parts[0])


def _renumbered(shard: Shard, run: Run, ids: Array) -> Run:
    """Translate a run to new ids, and sort it."""
    load(shard.device, "kernels/arcs.cuh").Renumber(len(run), keys=run.keys, n=len(run), ids=ids)
    return sort_run(shard.device, run.keys, None, run.weight, run.time)
