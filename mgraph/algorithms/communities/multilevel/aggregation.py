"""The graph of communities: their numbers by their smallest names, and the rows of their own vertices.

A GPU writes the arcs between communities as keys, piece by piece, adds them up by sorting, and merges the pieces. A CPU
adds them up in arrays of a sum per community, one for each of a few ranges of communities. On several ranks each adds
up its own arcs, sends them to the owners of their sources, and adds up again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms import algorithm
from mgraph.algorithms.algorithm import LANES, kernels
from mgraph.algorithms.communities.multilevel.level import FILE, Level
from mgraph.device import Array, Device
from mgraph.kernels import Library, View, constants, load
from mgraph.partition import Partition
from mgraph.structures.merge import merge_in_order
from mgraph.structures.run import Run
from mgraph.structures.sort import sort_keys

__all__ = ["CoarseRows", "add_up", "next_level", "number_communities"]

SUMS_FILE = "algorithms/communities/multilevel/aggregation.cuh"
SORTING = ("cuda",)  #: devices that add up by sorting
CHUNK_KEYS = constants(SUMS_FILE, HUB_DEGREE=1024)["chunk_keys"]
PIECE = 1 << 26  #: arcs per piece, whose pairs of communities are added up at once
RANGES, SUMS = 4, 4  #: ranges of communities per thread of a CPU; most sums in them for each arc


@dataclass
class CoarseRows:
    """Rows of a graph of communities on a rank."""

    offsets: Array
    dst: Array
    weights: Array

    @property
    def num_edges(self) -> int:
        """The number of arcs."""
        return len(self.dst)

    def view(self) -> View:
        """Return the view of the rows for kernels."""
        return View("algorithms/communities/multilevel/view.cuh", "CoarseView", vars(self))


def next_level(level: Level, numbers: Array, n: int, communities: Array = None) -> Level:
    """Make vertices with equal numbers a vertex of the next level.

    Parameters
    ----------
    level : Level
    numbers : uint32[n of the level]
        The new vertex of each vertex, in the same community.
    n : int
        The number of new vertices.
    communities : uint32[n of the level], optional
        The number of each vertex's community, with which the new vertices begin; else each begins as a community.
    """
    # Weigh the new vertices, and their edges.
    device, shard = level.device, level.shard
    strengths = [level.sums_of(numbers, strength, n) for strength in level.strengths]
    partition = _ranges(device, strengths, shard.size)
    rows = _coarse(level, numbers, n, partition)

    # The weight inside of them is what is not between them.
    between = int(shard.exchange.allreduce(np.array([device.total(rows.weights)]))[0])
    loops = level.objective.total - between
    fixed = None if level.fixed is None else device.gather(numbers, level.fixed)
    following = Level(shard, [rows], partition, None, strengths, loops, level.objective, level.weights[0].unit, fixed)
    following.least = level.least

    # Start with their communities. The weight inside of fixed vertices is not known.
    if communities is None and fixed is not None:
        communities, _ = number_communities(level, level.labels)
    if communities is not None:
        labels = device.empty(n, np.uint32)
        level.kernels.CommunitiesOfParts(level.n, parts=numbers, numbers=communities, n=level.n, communities=labels)
        following.start(labels, level.inside)
    else:
        following.start(inside=loops)
    return following


def _ranges(device: Device, strengths: list[Array], size: int) -> Partition:
    """Return ranges of about equal work, for which half of a vertex's share of the strength and of the vertices counts.

    The arcs are not known yet. In a graph with hubs, ranges of equal lengths would give most of them to one rank.
    """
    n = len(strengths[0])
    if size == 1 or n == 0:
        return Partition.equal(n, size)
    work = (strengths[0] >> 2) + (strengths[-1] >> 2)
    work += int(work.sum()) // n + 1
    upto = device.empty(n, np.int64)
    device.cumsum(work, out=upto)
    total = int(upto[-1])
    marks = device.asarray(np.array([total * rank // size for rank in range(1, size)], np.int64))
    return Partition((0, *(device.to_host(device.xp.searchsorted(upto, marks)) + 1).tolist(), n))


def number_communities(level: Level, labels: Array) -> tuple[Array, Array]:
    """Number the communities of `labels`, less than 2 n, by their smallest names.

    Returns the number of each vertex's community, and the smallest name of each community.
    """
    # Find the smallest name of each community, and mark it.
    device, library, n = level.device, level.kernels, level.n
    least, marked = device.full(2 * n, 2**32 - 1, np.uint32), device.zeros(n, np.uint8)
    library.LeastNames(n, labels=labels, names=level.names, n=n, least=least)
    library.MarkNames(2 * n, least=least, n=2 * n, marked=marked)

    # Number the marked names.
    upto = device.empty(n, np.int64)
    device.cumsum(marked, out=upto)
    names = device.empty(int(upto[-1]) if n else 0, np.uint32)
    library.NumberCommunities(2 * n, least=least, upto=upto, n=2 * n, names=names)
    numbers = device.empty(n, np.uint32)
    library.NumberVertices(n, labels=labels, least=least, upto=upto, n=n, numbers=numbers)
    return numbers, names


def _coarse(level: Level, numbers: Array, n: int, partition: Partition) -> CoarseRows:
    """Return the own rows of the graph of `n` communities."""
    return (_by_sorting if level.device.kind in SORTING else _by_ranges)(level, numbers, n, partition)


# ---- sums by communities, on a CPU -----------------------------------------------------------------------------------


def _by_ranges(level: Level, numbers: Array, n: int, partition: Partition) -> CoarseRows:
    # Add up the own arcs, with a row for each of the `n` communities.
    device, shard = level.device, level.shard
    own, unit = numbers[level.first : level.first + level.rows], level.weights[0].unit
    rows = _add_rows(device, level.kernels, level.tally.sides(), own, numbers, n, unit)
    if shard.size == 1:
        return rows

    # Send the rows to their owners, and add up again: each rank sends one for each community of a range.
    ranges = [partition.range(rank) for rank in range(shard.size)]
    lengths = device.xp.diff(rows.offsets)
    ends = [rows.offsets[[first, end]].tolist() for first, end in ranges]
    parts = [lengths[a:b] for a, b in ranges], *([column[a:b] for a, b in ends] for column in (rows.dst, rows.weights))
    lengths, dst, weights = (device.concatenate(shard.exchange.alltoallv(column)) for column in parts)
    offsets = device.zeros(len(lengths) + 1, np.int64)
    device.cumsum(lengths, out=offsets[1:])
    view = CoarseRows(offsets, dst, weights).view()
    first, end = ranges[shard.rank]
    own = device.concatenate([device.arange(first, end, np.uint32)] * shard.size)
    sides = {"graph": view, "back": view, "both": 0}
    added = _add_rows(device, kernels(shard, FILE, view), sides, own, device.arange(0, n, np.uint32), n, unit)
    return CoarseRows(added.offsets[first : end + 1].copy(), added.dst, added.weights)


def _add_rows(
    device: Device, library: Library, sides: dict[str, Any], own: Array, numbers: Array, n: int, unit: float
) -> CoarseRows:
    """Add up rows by pairs of communities. Returns a row for each of `n` communities.

    `own` has the community of each row, and `numbers` that of each id in the rows.
    """
    # List the rows by community.
    begins, room = device.zeros(n + 1, np.int64), device.zeros(n + 1, np.int64)
    library.MeasureCommunities(len(own), **sides, numbers=own, n=len(own), vertices=begins[1:], arcs=room[1:])
    for counts in (begins, room):
        device.cumsum(counts, out=counts)
    rows = device.empty(len(own), np.uint32)
    library.GroupRows(len(own), numbers=own, n=len(own), places=begins[:-1].copy(), rows=rows)

    # Add up ranges of communities with about equally many arcs.
    arcs = int(room[-1])
    n_ranges = max(1, min(RANGES * device.threads, SUMS * arcs // max(n, 1)))
    inner = np.searchsorted(room, np.arange(1, n_ranges) * (arcs // n_ranges))
    ranges = device.asarray(np.array([0, *np.minimum(inner, n), n], np.int64))
    dst, weights = device.empty(arcs, np.uint32), device.empty(arcs, np.uint64)
    offsets = device.zeros(n + 1, np.int64)
    library.AddCommunities(
        n_ranges, **sides, numbers=numbers, unit=unit, rows=rows, begins=begins, room=room, ranges=ranges,
        n_ranges=n_ranges, communities=n, sums=device.zeros(n_ranges * n, np.uint64), dst=dst, weights=weights,
        counts=offsets[1:],
    )  # fmt: skip

    # Close the gaps.
    device.cumsum(offsets, out=offsets)
    m = int(offsets[-1])
    closed = CoarseRows(offsets, device.empty(m, np.uint32), device.empty(m, np.uint64))
    library.CloseUp(
        n, room=room, offsets=offsets, n=n, dst=dst, weights=weights, to_dst=closed.dst, to_weights=closed.weights
    )
    return closed


# ---- sums by sorting, on a GPU ---------------------------------------------------------------------------------------


def _by_sorting(level: Level, numbers: Array, n: int, partition: Partition) -> CoarseRows:
    # Send the pairs to the owners of their sources, and add up again.
    device, shard = level.device, level.shard
    keys, sums = _joined(device, _pairs(level, numbers))
    if shard.size > 1:
        marks = np.asarray(partition.starts[1:-1], np.uint64) << np.uint64(32)
        inner = device.xp.searchsorted(keys, device.asarray(marks))
        cuts = list(pairwise([0, *device.to_host(inner).tolist(), len(keys)]))
        parts = zip(*(shard.exchange.alltoallv([column[a:b] for a, b in cuts]) for column in (keys, sums)), strict=True)
        keys, sums = _joined(device, list(parts))

    # Rows begin where their keys do.
    first, end = partition.range(shard.rank)
    rows = device.arange(first, end + 1, np.uint64)
    rows <<= np.uint64(32)
    offsets = device.astype(device.xp.searchsorted(keys, rows), np.int64)
    return CoarseRows(offsets, device.astype(keys, np.uint32), sums)


def _pairs(level: Level, numbers: Array) -> list[tuple[Array, Array]]:
    """Return the own arcs between communities, added up in each piece: keys and weights."""
    # Count the arcs per row.
    device, rows = level.device, level.rows
    counts, offsets = device.zeros(rows, np.uint32), device.zeros(rows + 1, np.int64)
    between = {"numbers": numbers, "first": level.first, "unit": level.weights[0].unit, "counts": counts}
    between["offsets"] = offsets
    _join(level, 0, rows, {**between, "begin": 0, "keys": None, "weights": None})
    device.cumsum(counts, out=offsets[1:])
    device.fill(counts, 0)

    # Cut the rows into pieces of about `PIECE` arcs.
    marks = device.asarray(np.arange(1, -(-int(offsets[-1]) // PIECE), dtype=np.int64) * PIECE)
    inner = device.to_host(device.xp.searchsorted(offsets, marks)).tolist()
    pairs = []

    # Write the arcs of each piece, and add them up.
    for begin, end in pairwise([0, *inner, rows]):
        n = int(offsets[end] - offsets[begin])
        keys, weights = device.empty(n, np.uint64), device.empty(n, np.uint64)
        _join(level, begin, end - begin, {**between, "begin": begin, "keys": keys, "weights": weights})
        pairs.append(add_up(device, keys, weights))
    return pairs


def _join(level: Level, begin: int, rows: int, between: dict[str, Any]) -> None:
    for weights in level.weights:
        hubs = weights.hubs()
        level.kernels.JoinRows(-(-rows // LANES), graph=weights.view, begin=begin, rows=rows, between=between, **hubs)
        level.kernels.JoinHubs(weights.room, graph=weights.view, between=between, **hubs)


def add_up(device: Device, keys: Array, weights: Array) -> tuple[Array, Array]:
    """Return each different key once, ascending, with the sum of its weights. One sort, one read-back."""
    if len(keys) == 0:
        return keys, weights
    keys, places = sort_keys(device, keys, with_places=True)
    return _different(device, keys, weights, places)


def _joined(device: Device, pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Add up lists of ascending keys and weights: they are merged, not sorted."""
    some = [pair for pair in pairs if len(pair[0])] or pairs[:1]
    keys, weights = (list(column) for column in zip(*some, strict=True))
    if len(some) == 1:
        return some[0]
    ends = np.cumsum([len(part) for part in keys]).tolist()
    runs = [
        Run(part, place=device.arange(end - len(part), end, np.uint32)) for part, end in zip(keys, ends, strict=True)
    ]
    merged = merge_in_order(device, runs)
    return _different(device, merged.keys, device.concatenate(weights), merged.place)


def _different(device: Device, keys: Array, weights: Array, places: Array) -> tuple[Array, Array]:
    """Return each different one of ascending keys once, with the sum of its weights, which are at `places`."""
    if places.dtype != np.uint32:
        weights, places = device.gather(weights, places), None
    n, library = len(keys), load(device, SUMS_FILE, None, HUB_DEGREE=algorithm.HUB_DEGREE)
    chunks = -(-n // CHUNK_KEYS)
    counts, before = device.empty(chunks, np.int64), device.zeros(chunks + 1, np.int64)
    library.CountDifferent(chunks, keys=keys, n=n, counts=counts)
    device.cumsum(counts, out=before[1:])
    different = int(before[-1])
    out, sums = device.empty(different, np.uint64), device.zeros(different, np.uint64)
    library.AddEqual(chunks, keys=keys, weights=weights, places=places, n=n, before=before, out=out, sums=sums)
    return out, sums
