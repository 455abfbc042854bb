"""Permanent removal of vertices, in a graph with keys: later ids move up, without gaps.

As for new ranges, every rank builds its new part of the graph beside the old one, then all vote. Rows keep their order
and their owner, so nothing is sorted or sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mgraph.device import Array
from mgraph.kernels import load
from mgraph.partition import Partition
from mgraph.structures import Run
from mgraph.worker.shard.shard import Shard
from mgraph.worker.vertices.rebalance import Move, Moved, rebuilt

__all__ = ["Removal", "without"]


class Removal(Move):
    """Removal of vertices with all their edges. O(n_vertices + m).

    Parameters
    ----------
    shard : Shard
    ids : uint32[k]
        Users' ids, ascending and distinct.
    epochs : int
        1 if it is a separate epoch, 0 if it belongs to the previous one.

    Attributes
    ----------
    deleted : int
        The number of deleted edges that this rank counted.
    """

    logged = True
    exchanges = False

    def __init__(self, shard: Shard, ids: Any, epochs: int = 1) -> None:
        super().__init__(shard, lambda shard: without(shard, ids))
        self.epochs, self.deleted, self.gone = epochs, 0, ids

    def commit(self) -> None:
        """Replace the old part by the new one. Internal ids change their meaning."""
        assert self._moved is not None
        self.deleted = self.shard.num_edges - self._moved.num_edges
        super().commit()
        self.shard.generation += self._moved.order is None
        self.shard.change_log.forget(self.shard.epoch)  # its arcs have the old ids, which a later order cannot renumber


def without(shard: Shard, ids: Any) -> Moved:
    """Build the rank's part without users' ids. `CapacityError` if memory runs out."""
    device, n = shard.device, shard.n_vertices
    with device.taking(24 * n, f"the ids of {n} vertices"):
        # New ids are prefix sums of the vertices that stay.
        stays = device.full(n, 1, np.uint8)
        stays[shard.internal(ids)] = 0
        before = device.zeros(n + 1, np.int64)
        device.cumsum(stays, out=before[1:])
        partition = Partition(tuple(device.to_host(before[device.asarray(np.array(shard.partition.starts))]).tolist()))
        new = before[:-1].astype(np.uint32)
        # Of the order, keep the entries of vertices that stay.
        order = None
        if shard.order is not None:
            order = device.gather(new, shard.order[device.gather(stays, shard.order).astype(bool)])
    moved = rebuilt(shard, partition, lambda run: _left(shard, run, stays, new, partition))
    return replace(moved, order=order)


def _left(shard: Shard, run: Run, stays: Array, new: Array, partition: Partition) -> Run:
    """Return a run's edges between vertices that stay, by new ids, in local rows."""
    device = shard.device
    with device.taking(16 * len(run), f"the choice among {len(run)} arcs"):
        keep = (stays[run.keys >> np.uint64(32)] & stays[run.keys & np.uint64(0xFFFFFFFF)]).astype(bool)
        kept = run.take(keep)
    keys = kept.keys
    load(device, "kernels/arcs.cuh").Renumber(len(keys), keys=keys, n=len(keys), ids=new)
    keys -= np.uint64(partition.range(shard.rank)[0] << 32)
    return kept
