"""Rebalancing: moves the boundaries of the ranges. Internal ids stay, and rows change their owner.

Every rank builds its new part of the graph beside the old one, from rows that stay and rows that it receives. Then all
ranks vote, and all switch to the new parts or none does. Until then, and after a failure, the graph is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mgraph.device import Array
from mgraph.kernels import load
from mgraph.partition import Partition
from mgraph.structures import Run, Structure
from mgraph.structures.run import sort_run
from mgraph.worker.commit.change import Change, forward_counts
from mgraph.worker.shard.shard import Shard
from mgraph.worker.shard.times import Times

__all__ = ["Move", "Moved", "all_edges", "balanced", "built", "by_work", "move", "rebuilt"]

CHUNK = 1 << 26  #: keys per insertion, to bound the memory of a structure's `prepare`


@dataclass
class Moved:
    """New part of a shard, by other ranges or other internal ids, ready to replace the old one.

    `order` is the new internal id of each user's id, or None if internal ids stay. `ids` is the new id of each internal
    id, if no vertex was removed. `times` has the times of each
    structure's arcs, in a graph with times.
    """

    partition: Partition
    structures: list[Structure]
    num_edges: int
    order: Array = None
    ids: Array = None
    times: Sequence[Times] = ()


class Move(Change):
    """Move of rows to other ranks, or change of internal ids; the edges stay the same.

    Parameters
    ----------
    shard : Shard
    build : callable
        Builds this rank's new part of the graph beside the old one. All ranks call it together.
    """

    epochs, logged = 0, False
    exchanges = True

    def __init__(self, shard: Shard, build: Callable[[Shard], Moved]) -> None:
        super().__init__(shard)
        self._build = build
        self._moved: Moved | None = None

    def prepare(self) -> None:
        """Build the new part."""
        self._moved = self._build(self.shard)

    def commit(self) -> None:
        """Replace the old part by the new one."""
        shard, moved = self.shard, self._moved
        assert moved is not None
        shard.num_edges = moved.num_edges
        shard.take_ranges(moved.partition)
        shard.hold(moved.structures[0], moved.structures[-1] if shard.in_edges is not None else None)
        if shard.clock is not None:
            shard.clock.times = list(moved.times)
        shard.change_log.note_move(shard.epoch, moved.ids)
        if moved.order is not None:
            shard.order = moved.order
            shard.generation += 1

    def discard(self) -> None:
        """Free the new part."""
        self._moved = None


def by_work(shard: Shard) -> Moved:
    """Return the rank's part of the graph by ranges of about equal work."""
    return move(shard, balanced(shard))


def balanced(shard: Shard) -> Partition:
    """Compute ranges of about equal work from the current degrees of out- and in-edges.

    The ranges equal those of `Partition.balanced`, without gathering all degrees. O(rows), two small exchanges.
    """
    # Prefix sums of the work, on this rank and over the ranks.
    device, size, xp = shard.device, shard.size, shard.device.xp
    work = device.full(shard.hi - shard.lo, 1, np.int64)
    for structure in shard.structures:
        work += structure.degrees()
    device.cumsum(work, out=work)
    with shard.waiting():
        mine = np.zeros(size, np.int64)
        mine[shard.rank] = int(work[-1]) if len(work) else 0
        totals = shard.exchange.allreduce(mine)

    # Each rank finds the cuts within its own rows; the maximum collects them.
    ends = np.cumsum(totals)
    before, total = int(ends[shard.rank] - mine[shard.rank]), int(ends[-1])
    goals = np.array([total * rank // size for rank in range(1, size)], np.int64)
    places = device.to_host(xp.searchsorted(work, device.asarray(goals - before))) + shard.lo + 1
    own = (goals > before) & (goals <= int(ends[shard.rank]))  # cuts after a row of this rank
    with shard.waiting():
        cuts = shard.exchange.allreduce(np.where(own, places, 0).astype(np.int64), "max")
    return Partition((0, *cuts.tolist(), shard.n_vertices))


def move(shard: Shard, partition: Partition) -> Moved:
    """Exchange rows by `partition`, and build the rank's new part.

    O(n_rows + m log m) at most, since a structure is built from its sorted keys. Needs memory for the keys, 8 bytes per
    arc, and for the new part beside the old one.

    Raises
    ------
    CapacityError
        The memory does not suffice.
    """
    return rebuilt(shard, partition, lambda run: _arrived(shard, partition, run))


def rebuilt(shard: Shard, partition: Partition, arrived: Callable[[Run], Run]) -> Moved:
    """Build the rank's part by `partition`.

    `arrived` maps this rank's arcs, by internal ids of the whole graph, to the arcs of its new rows, in local rows. It
    is called for each structure, and in a graph with times for the times of its arcs, whose runs have `time`.
    """
    structures, counted = [], 0
    for number, old in enumerate(shard.structures):
        new, forward = built(shard, partition, arrived(all_edges(shard, old)), count=number == 0)
        structures.append(new)
        counted += forward
    before = [] if shard.clock is None else shard.clock.times
    times = [old.rebuilt(arrived(_with_rows(shard, old.current()))) for old in before]
    shard.device.synchronize()
    return Moved(partition, structures, counted, times=times)


def _with_rows(shard: Shard, run: Run) -> Run:
    """Translate a run in local rows to internal ids of the whole graph."""
    return replace(run, keys=run.keys + np.uint64(shard.lo << 32))


def all_edges(shard: Shard, structure: Structure) -> Run:
    """Return all edges of a structure as a sorted run, by internal ids of the whole graph."""
    csr, device = structure.to_csr(), shard.device
    keys, n = device.empty(len(csr.dst), np.uint64), len(csr.dst)
    load(device, "kernels/arcs.cuh").RowKeys(
        n, offsets=csr.offsets, dst=csr.dst, n=n, rows=structure.n_rows, lo=shard.lo, keys=keys
    )
    weight = csr.weight
    del csr
    return Run(keys, None, weight) if structure.sorted_rows else sort_run(device, keys, None, weight)


def _arrived(shard: Shard, partition: Partition, run: Run) -> Run:
    """Exchange a run's parts, and return the edges of this rank's new rows, by local row numbers."""
    parts = run.split(partition.starts)
    with shard.waiting():
        keys = shard.exchange.alltoallv([part.keys for part in parts])
        columns = {
            name: shard.exchange.alltoallv([getattr(part, name) for part in parts])
            for name in ("weight", "time")
            if getattr(run, name) is not None
        }
    # The concatenation is sorted, since ranges ascend with the ranks.
    base = np.uint64(partition.range(shard.rank)[0] << 32)
    return Run(_joined(shard, keys, base), **{name: _joined(shard, column) for name, column in columns.items()})


def _joined(shard: Shard, parts: list[Array], base: np.uint64 | None = None) -> Array:
    """Concatenate the parts and subtract `base`; without a copy if possible."""
    full = [part for part in parts if len(part)] or parts[:1]
    if len(full) == 1 and not base:
        return full[0]
    whole = shard.device.concatenate(full)
    if base:
        whole -= base
    return whole


def built(shard: Shard, partition: Partition, run: Run, count: bool) -> tuple[Structure, int]:
    """Build a structure from `run`. Returns it, and the number of counted edges with `count`."""
    lo, hi = partition.range(shard.rank)
    structure, counted = shard.new_structure(hi - lo, partition.n_vertices), 0
    for at in range(0, len(run), CHUNK):
        plan = structure.prepare(run.take(slice(at, at + CHUNK)))
        if count:
            counted += (plan.counts if shard.directed else forward_counts(shard, plan, lo)).inserted
        structure.commit(plan)
    return structure, counted
