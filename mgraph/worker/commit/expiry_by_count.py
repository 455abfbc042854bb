"""Window of a number of edges: each batch removes the oldest edges above it.

Edges are ordered by time, and edges of one time by source and destination: by their keys, or by users' ids in a graph
without keys. So the removed edges depend neither on the number of ranks nor on the order of the vertices. The ranks
find the last removed edge together: each offers as many of its oldest edges as must leave. Then each structure of each
rank deletes its arcs up to that edge. Rank 0 has the keys, and orders the vertices of edges of the last time by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mgraph.device import Array
from mgraph.distinct import distinct
from mgraph.structures import Run
from mgraph.structures.merge import merge_in_order
from mgraph.worker.shard.edge_expiry import EdgeExpiry
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.shard.shard import Shard
from mgraph.worker.shard.times import NEVER, completed, deletions, is_in, last_of_keys

__all__ = ["expire_by_count"]

HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


class _Order(NamedTuple):
    """An order of vertices: the users' `ids` of some, ascending, and the place of each."""

    ids: Array
    places: Array


class _Last(NamedTuple):
    """The last edge that leaves: its time, the edge as `_edges` has it, and the order of the vertices of this time."""

    time: int
    edge: int
    order: _Order | None


def expire_by_count(
    shard: Shard,
    runs: Sequence[Run],
    expiry: EdgeExpiry | None,
    keys: KeyLog | None = None,
    brought: np.ndarray | None = None,
) -> tuple[list[Run], EdgeExpiry | None]:
    """Add the deletions of expired edges to a batch in local rows, and remove its late insertions.

    Returns the runs unchanged without such a window. Otherwise all ranks call it together: two small exchanges, and one
    of the oldest edges if some leave.

    Parameters
    ----------
    keys : KeyLog or None
        The keys of the vertices, on rank 0.
    brought : uint8[bytes] or None
        The keys that the batch brings, on rank 0.
    """
    most = None if shard.clock is None else shard.clock.window_edges
    if shard.clock is None or most is None or expiry is None:
        return list(runs), expiry
    # Count the edges of all ranks after the batch.
    named = [_last(shard, run) for run in runs]
    has_keys = keys is not None and shard.clock.by_key and (keys.n > 0 or brought is not None)
    with shard.device.taking(64 * sum(map(len, runs)), "the edges of a window"), shard.waiting():
        total, by_key = shard.exchange.allreduce(np.array([_total(shard, named[0]), has_keys], np.int64)).tolist()
    if total <= most:
        return list(runs), expiry

    # Find the last edge to remove, and cut each structure's run there.
    arcs, times = _oldest(shard, named[0], total - most)
    if by_key:
        last = _last_by_key(shard, arcs, times, total - most, keys if has_keys else None, brought)
    else:
        last = _last_by_id(shard, arcs, times, total - most)
    cut = [_cut(shard, number, run, named[number], last) for number, run in enumerate(runs)]
    _, late, expired = cut[0]
    return [run for run, _, _ in cut], replace(expiry, late=late, expired=expired)


def _last(shard: Shard, run: Run) -> Run:
    """Return the last operation on each edge of a run, with its time."""
    return completed(shard.device, run.take(last_of_keys(shard.device, run.keys)), False, ops=True)


def _total(shard: Shard, named: Run) -> int:
    """Return the number of edges that this rank counts after a batch."""
    assert shard.clock is not None
    present = shard.clock.times[0].find(named.keys) != NEVER
    counted = _counted(shard, named.keys)
    return shard.num_edges + shard.device.total(counted & (named.op > 0)) - shard.device.total(counted & present)


def _counted(shard: Shard, keys: Array) -> Array:
    """Return a mask of the arcs that count as edges: bool[n]."""
    if shard.directed:
        return shard.device.xp.ones(len(keys), bool)
    return (keys >> HALF) + np.uint64(shard.lo) <= keys & LOW


def _edges(shard: Shard, number: int, keys: Array, order: _Order | None = None) -> Array:
    """Return the edges of arcs, ``src << 32 | dst``, the same for both arcs of one: by users' ids, or their places.

    Arcs of vertices that the `order` does not have get any number.
    """
    xp = shard.device.xp
    rows, ends = _ends(shard, keys)
    if order is not None:
        rows, ends = (
            order.places[xp.minimum(xp.searchsorted(order.ids, side), len(order.ids) - 1)].astype(np.uint64)
            for side in (rows, ends)
        )
    if not shard.directed:
        rows, ends = xp.minimum(rows, ends), xp.maximum(rows, ends)
    return rows << HALF | ends if number == 0 else ends << HALF | rows


def _ends(shard: Shard, keys: Array) -> tuple[Array, Array]:
    """Return the users' ids of the rows and of the ends of arcs."""
    rows, ends = (keys >> HALF) + np.uint64(shard.lo), keys & LOW
    if (names := shard.names) is None:
        return rows, ends
    return names[rows].astype(np.uint64), names[ends].astype(np.uint64)


def _oldest(shard: Shard, named: Run, n: int) -> tuple[Array, np.ndarray]:
    """Return the arcs of at least the `n` oldest edges that this rank counts after a batch, and their times."""
    assert shard.clock is not None
    device, times = shard.device, shard.clock.times[0]
    # This rank's candidates: old edges that the batch leaves alone, and its insertions.
    old = times.oldest(n + len(named), lambda keys: _counted(shard, keys))
    stay = ~is_in(device, old.keys, named.keys)
    new = named.op > 0
    keys = device.concatenate([old.keys[stay], named.keys[new]])
    time = device.concatenate([old.time[stay], named.time[new]])
    mine = _counted(shard, keys)
    return keys[mine], device.to_host(time[mine])


def _gathered(shard: Shard, column: np.ndarray) -> np.ndarray:
    """Concatenate a column of all ranks."""
    device = shard.device
    with shard.waiting():
        return device.to_host(device.concatenate(shard.exchange.allgather(device.asarray(column))))


def _last_by_id(shard: Shard, arcs: Array, time: np.ndarray, n: int) -> _Last:
    """Return the `n`-th oldest edge of all ranks. Edges of the same time are ordered by users' ids."""
    edges = shard.device.to_host(_edges(shard, 0, arcs))
    order = np.lexsort((edges, time))[:n]
    time, edges = _gathered(shard, time[order]), _gathered(shard, edges[order])
    at = np.lexsort((edges, time))[n - 1]
    return _Last(int(time[at]), int(edges[at]), None)


def _last_by_key(
    shard: Shard, arcs: Array, time: np.ndarray, n: int, keys: KeyLog | None, brought: np.ndarray | None
) -> _Last:
    """Return the `n`-th oldest edge of all ranks. Edges of the same time are ordered by their vertices' keys."""
    device = shard.device

    # Find the last time that leaves, and how many of its edges do.
    oldest = np.sort(_gathered(shard, np.sort(time)[:n]))
    last = oldest[n - 1]
    leave = n - int(np.searchsorted(oldest, last))

    # Have rank 0 order the vertices of these edges by their keys.
    same = arcs[device.asarray(time == last)]
    mine = np.concatenate([device.to_host(side).astype(np.uint32) for side in _ends(shard, same)])
    ids = distinct(_gathered(shard, distinct(mine)))
    places = np.empty(0, np.uint32) if keys is None else keys.places(ids, brought)
    order = _Order(device.asarray(ids.astype(np.uint64)), device.asarray(_gathered(shard, places)))

    # Find the last edge of this time that leaves.
    edges = np.sort(device.to_host(_edges(shard, 0, same, order)))[:leave]
    return _Last(int(last), int(np.sort(_gathered(shard, edges))[leave - 1]), order)


def _cut(shard: Shard, number: int, run: Run, named: Run, last: _Last) -> tuple[Run, int, int]:
    """Add expired edges to a structure's run and remove late ones; also return both numbers."""
    assert shard.clock is not None
    device, times = shard.device, shard.clock.times[number]

    def leaves(some: Run) -> Array:
        same = (some.time == last.time) & (_edges(shard, number, some.keys, last.order) <= np.uint64(last.edge))
        return (some.time < last.time) | same

    # Old edges that leave, and new ones that leave at once.
    old = times.up_to(last.time)
    old = old.keys[leaves(old) & ~is_in(device, old.keys, named.keys)]
    new = named.keys[(named.op > 0) & leaves(named)]

    # Late are insertions of edges that did not exist before; the others are deleted.
    present = times.find(new) != NEVER
    late = is_in(device, run.keys, new[~present])
    counts = late & _counted(shard, run.keys) & (True if run.op is None else run.op > 0)
    loops = counts & ((run.keys >> HALF) + np.uint64(shard.lo) == run.keys & LOW)
    n_late = device.total(counts) - (0 if shard.directed else device.total(loops) // 2)  # a loop comes as two arcs
    gone = device.xp.sort(device.concatenate([old, new[present]]))
    deleted = completed(device, deletions(device, gone), run.weight is not None)
    kept = completed(device, run.take(~late), run.weight is not None, ops=True)
    return merge_in_order(device, [kept, deleted]), n_late, device.total(_counted(shard, gone))
