"""Window of a number of edges: each batch removes the oldest edges above it.

Edges are ordered by time, and edges of one time by source and destination, by users' ids. So the removed edges depend
neither on the number of ranks nor on the order of the vertices. The ranks find the last removed edge together: each
offers as many of its oldest edges as must leave. Then each structure of each rank deletes its arcs up to that edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mgraph.device import Array
from mgraph.structures import Run
from mgraph.worker.shard.edge_expiry import EdgeExpiry
from mgraph.worker.shard.merge import merge_in_order
from mgraph.worker.shard.shard import Shard
from mgraph.worker.shard.times import NEVER, completed, deletions, is_in, last_of_keys

__all__ = ["expire_by_count"]

HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def expire_by_count(
    shard: Shard, runs: Sequence[Run], expiry: EdgeExpiry | None
) -> tuple[list[Run], EdgeExpiry | None]:
    """Add the deletions of expired edges to a batch in local rows, and remove its late insertions.

    Returns the runs unchanged without such a window. Otherwise all ranks call it together: two small exchanges, and one
    of the oldest edges if some leave.
    """
    most = None if shard.clock is None else shard.clock.window_edges
    if most is None or expiry is None:
        return list(runs), expiry
    # Count the edges of all ranks after the batch.
    named = [_last(shard, run) for run in runs]
    with shard.device.taking(64 * sum(map(len, runs)), "the edges of a window"), shard.waiting():
        total = int(shard.exchange.allreduce(np.array([_total(shard, named[0])], np.int64))[0])
    if total <= most:
        return list(runs), expiry

    # Find the last edge to remove, and cut each structure's run there.
    last = _last_to_leave(shard, named[0], total - most)
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
    return shard.num_edges + int((counted & (named.op > 0)).sum()) - int((counted & present).sum())


def _counted(shard: Shard, keys: Array) -> Array:
    """Return a mask of the arcs that count as edges: bool[n]."""
    if shard.directed:
        return shard.device.xp.ones(len(keys), bool)
    return (keys >> HALF) + np.uint64(shard.lo) <= keys & LOW


def _edges(shard: Shard, number: int, keys: Array) -> Array:
    """Return the edges of arcs, ``src << 32 | dst`` by users' ids; equal for both arcs of an edge."""
    rows, ends = (keys >> HALF) + np.uint64(shard.lo), keys & LOW
    if (names := shard.names) is not None:
        rows, ends = names[rows].astype(np.uint64), names[ends].astype(np.uint64)
    if not shard.directed:
        xp = shard.device.xp
        rows, ends = xp.minimum(rows, ends), xp.maximum(rows, ends)
    return rows << HALF | ends if number == 0 else ends << HALF | rows


def _last_to_leave(shard: Shard, named: Run, n: int) -> tuple[int, int]:
    """Return the time and the edge of the `n`-th oldest edge of all ranks after a batch."""
    assert shard.clock is not None
    device, times = shard.device, shard.clock.times[0]
    # This rank's candidates: old edges that the batch leaves alone, and its insertions.
    old = times.oldest(n + len(named), lambda keys: _counted(shard, keys))
    stay = ~is_in(device, old.keys, named.keys)
    new = named.op > 0
    keys = device.concatenate([old.keys[stay], named.keys[new]])
    time = device.concatenate([old.time[stay], named.time[new]])
    # The oldest n of this rank, then of all ranks.
    mine = _counted(shard, keys)
    edges, time = device.to_host(_edges(shard, 0, keys[mine])), device.to_host(time[mine])
    order = np.lexsort((edges, time))[:n]
    with shard.waiting():
        parts = [shard.exchange.allgather(device.asarray(column[order])) for column in (time, edges)]
    time, edges = (device.to_host(device.concatenate(part)) for part in parts)
    at = np.lexsort((edges, time))[n - 1]
    return int(time[at]), int(edges[at])


def _cut(shard: Shard, number: int, run: Run, named: Run, last: tuple[int, int]) -> tuple[Run, int, int]:
    """Add expired edges to a structure's run and remove late ones; also return both numbers."""
    assert shard.clock is not None
    device, times = shard.device, shard.clock.times[number]

    def leaves(some: Run) -> Array:
        time, edge = last
        same = (some.time == time) & (_edges(shard, number, some.keys) <= np.uint64(edge))
        return (some.time < time) | same

    # Old edges that leave, and new ones that leave at once.
    old = times.up_to(last[0])
    old = old.keys[leaves(old) & ~is_in(device, old.keys, named.keys)]
    new = named.keys[(named.op > 0) & leaves(named)]

    # Late are insertions of edges that did not exist before; the others are deleted.
    present = times.find(new) != NEVER
    late = is_in(device, run.keys, new[~present])
    counts = late & _counted(shard, run.keys) & (True if run.op is None else run.op > 0)
    loops = counts & ((run.keys >> HALF) + np.uint64(shard.lo) == run.keys & LOW)
    n_late = int(counts.sum()) - (0 if shard.directed else int(loops.sum()) // 2)  # a loop comes as two arcs
    gone = device.xp.sort(device.concatenate([old, new[present]]))
    deleted = completed(device, deletions(device, gone), run.weight is not None)
    kept = completed(device, run.take(~late), run.weight is not None, ops=True)
    return merge_in_order(device, [kept, deleted]), n_late, int(_counted(shard, gone).sum())
