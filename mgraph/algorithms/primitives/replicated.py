"""Replicated arrays: one value per vertex of the graph, on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.algorithms.primitives.transpose import CsrRows, transposed
from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.partition import Partition
from mgraph.structures import Structure

__all__ = ["PART", "all_gather", "sides", "sum_to_owners", "total"]

PART = 1 << 22  #: values per exchange and rank, enough for nearly full bandwidth


def sides(shard: Shard, what: str) -> list[Structure | CsrRows]:
    """Return the edges to all neighbours of own vertices: out-edges, and in-edges of a directed graph.

    In-edges that the graph does not store are made for the call. Raises `CapacityError` on every rank, naming `what`,
    if a rank has too little memory for that.
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


def _parts(shard: Shard, partition: Partition | None = None) -> Iterator[list[tuple[int, int]]]:
    """Yield each exchange's vertices per rank, as first and end."""
    ranges = [(partition or shard.partition).range(rank) for rank in range(shard.size)]
    for at in range(0, (partition or shard.partition).widest, PART):
        yield [(min(first + at, end), min(first + at + PART, end)) for first, end in ranges]


def all_gather(shard: Shard, own: Array, whole: Array = None, partition: Partition | None = None) -> Array:
    """Gather the values of all vertices from each rank's own ones.

    Returns `own` itself on one rank. Writes to `whole`, or to a new array. `partition` has other ranges than the
    shard's. An allgather per `PART` vertices of the largest range.
    """
    if shard.size == 1:
        return own
    partition = partition or shard.partition
    lo = partition.range(shard.rank)[0]
    whole = shard.device.empty(partition.n_vertices, own.dtype) if whole is None else whole
    # Exchange part by part, which bounds the buffers.
    for ranges in _parts(shard, partition):
        first, end = ranges[shard.rank]
        parts = shard.exchange.allgather(own[first - lo : end - lo])
        for (begin, stop), part in zip(ranges, parts, strict=True):
            whole[begin:stop] = part
    return whole


def sum_to_owners(shard: Shard, whole: Array, least: bool = False) -> Array:
    """Sum the own vertices' values in `whole` over all ranks, or take the smallest.

    Returns a view of it. An alltoallv per `PART` vertices of the largest range.
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
    """Sum a few device numbers over all ranks, to host memory.

    A read-back, an allreduce.
    """
    return shard.exchange.allreduce(shard.device.to_host(values))
