"""Arrays with a value for each vertex of the graph, of which every rank has a copy: gathered, and summed by owner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.algorithms.primitives.transpose import Rows, transposed
from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.structures import Structure

__all__ = ["PART", "share", "sides", "sum_to_owners", "total"]

PART = 1 << 22  #: values that a rank sends at once, with which exchanges come near their full bandwidth


def sides(shard: Shard, what: str) -> list[Structure | Rows]:
    """The edges from which a rank sees all neighbours of its vertices: out-edges, and in-edges of a directed graph.

    In-edges that the graph does not store are made for the call. `CapacityError` on every rank, naming `what` needs
    them, if a rank has too little memory for that.
    """
    if shard.in_edges is shard.out_edges:
        return [shard.out_edges]
    back = transposed(shard) if shard.in_edges is None else shard.in_edges
    if back is None:
        raise CapacityError(
            f"{what} needs the in-edges of a directed graph, and a worker has too little memory to make them; create "
            "the graph with reverse=True, or on more workers"
        )
    return [shard.out_edges, back]


def _parts(shard: Shard) -> Iterator[list[tuple[int, int]]]:
    """For each exchange, the vertices of each rank that it is about, as first and end."""
    ranges = [shard.partition.range(rank) for rank in range(shard.size)]
    for at in range(0, max(end - first for first, end in ranges), PART):
        yield [(min(first + at, end), min(first + at + PART, end)) for first, end in ranges]


def share(shard: Shard, own: Array, whole: Array = None) -> Array:
    """The values of all vertices, from each rank's values of its own; `own` itself on one rank.

    Written to `whole`, or to a new array. An allgather for each `PART` vertices of the largest range.
    """
    if shard.size == 1:
        return own
    whole = shard.device.empty(shard.n_vertices, own.dtype) if whole is None else whole
    for ranges in _parts(shard):
        first, end = ranges[shard.rank]
        parts = shard.exchange.allgather(own[first - shard.lo : end - shard.lo])
        for (begin, stop), part in zip(ranges, parts, strict=True):
            whole[begin:stop] = part
    return whole


def sum_to_owners(shard: Shard, whole: Array, least: bool = False) -> Array:
    """The sums over all ranks of the own vertices' values in `whole`, or the least ones, as a view of it.

    An alltoallv for each `PART` vertices of the largest range.
    """
    own = whole[shard.lo : shard.hi]
    if shard.size == 1:
        return own
    for ranges in _parts(shard):
        first, end = ranges[shard.rank]
        for rank, part in enumerate(shard.exchange.alltoallv([whole[a:b] for a, b in ranges])):
            if rank != shard.rank:
                mine = whole[first:end]
                (shard.device.xp.minimum if least else shard.device.xp.add)(mine, part, out=mine)
    return own


def total(shard: Shard, values: Array) -> np.ndarray:
    """The sums over all ranks of a few numbers that lie on the device, in host memory. A read-back, an allreduce."""
    return shard.exchange.allreduce(shard.device.to_host(values))
