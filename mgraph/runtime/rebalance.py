"""Moving the boundaries of the ranges while the graph lives: internal ids stay, rows change their owner.

Every rank makes its part of the graph anew beside the old one, from the rows that stay and those that come; then all
vote, and switch or do not. Until then, and on every failure, the graph is as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mgraph.device import Array
from mgraph.kernels import load
from mgraph.partition import Partition
from mgraph.runtime.shard import Shard
from mgraph.runtime.update import forward_counts, waiting
from mgraph.structures import Run, Structure
from mgraph.structures.run import sort_run

__all__ = ["Moved", "balanced", "leaving", "move", "rebuilt", "switch"]

CHUNK = 1 << 26  #: keys built in at a time: what a structure's prepare takes for them is bounded by it


@dataclass
class Moved:
    """A shard's part of the graph by other ranges or other ids, ready to take the place of what it has.

    `order` is the internal id of each user's id, None where that stays.
    """

    partition: Partition
    structures: list[Structure]
    num_edges: int
    order: Array = None


def balanced(shard: Shard) -> Partition:
    """Ranges of about equal work by the degrees of now, out- and in-edges where both are kept; the same on every rank.

    What `Partition.balanced` would give for all degrees, without gathering them: O(rows), two small exchanges.
    """
    device, size, xp = shard.device, shard.size, shard.device.xp
    work = device.full(shard.hi - shard.lo, 1, np.int64)
    for structure in shard.structures:
        work += structure.degrees()
    xp.cumsum(work, out=work)
    with waiting(shard):
        mine = np.zeros(size, np.int64)
        mine[shard.rank] = int(work[-1]) if len(work) else 0
        totals = shard.exchange.allreduce(mine)
    ends = np.cumsum(totals)
    before, total = int(ends[shard.rank] - mine[shard.rank]), int(ends[-1])
    goals = np.array([total * rank // size for rank in range(1, size)], np.int64)
    places = device.to_host(xp.searchsorted(work, device.asarray(goals - before))) + shard.lo + 1
    held = (goals > before) & (goals <= int(ends[shard.rank]))  # the cut falls behind a row of this rank
    with waiting(shard):
        cuts = shard.exchange.allreduce(np.where(held, places, 0).astype(np.int64), "max")
    return Partition((0, *cuts.tolist(), shard.n_vertices))


def move(shard: Shard, partition: Partition) -> Moved:
    """Send the rows that leave, take those that come, and build this rank's part of the graph by `partition`.

    O(n_rows + m log m) at most: a structure is built from its sorted keys. Takes memory for the keys, 8 bytes an arc,
    and for the new part beside the old one.

    Raises
    ------
    CapacityError
        There is no room for it.
    """
    return rebuilt(shard, partition, lambda old: _arrived(shard, partition, leaving(shard, old)))


def rebuilt(shard: Shard, partition: Partition, arrived: Callable[[Structure], Run]) -> Moved:
    """What this rank holds by `partition`; `arrived` gives its edges of a structure, in local rows."""
    structures, counted = [], 0
    for number, old in enumerate(shard.structures):
        new, forward = _built(shard, partition, arrived(old), count=number == 0)
        structures.append(new)
        counted += forward
    shard.device.synchronize()
    return Moved(partition, structures, counted)


def switch(shard: Shard, moved: Moved) -> None:
    """Take what was moved; cannot fail."""
    shard.partition, shard.num_edges = moved.partition, moved.num_edges
    shard.out_edges = moved.structures[0]
    shard.in_edges = moved.structures[-1] if shard.in_edges is not None else None
    if moved.order is not None:
        shard.order = moved.order
        shard.generation += 1
    shard.changes += 1


def leaving(shard: Shard, structure: Structure) -> Run:
    """All edges of a structure as a sorted run, in global internal ids."""
    csr, device = structure.to_csr(), shard.device
    keys, n = device.empty(len(csr.dst), np.uint64), len(csr.dst)
    load(device, "arcs.cuh").RowKeys(
        n, offsets=csr.offsets, dst=csr.dst, n=n, rows=structure.n_rows, lo=shard.lo, keys=keys
    )
    weight = csr.weight
    del csr
    return Run(keys, None, weight) if structure.sorted_rows else sort_run(device, keys, None, weight)


def _arrived(shard: Shard, partition: Partition, run: Run) -> Run:
    """What the ranks hold of this rank's new rows, in local rows: ranges ascend with the ranks."""
    parts = run.split(partition.starts)
    with waiting(shard):
        keys = shard.exchange.alltoallv([part.keys for part in parts])
        weights = None if run.weight is None else shard.exchange.alltoallv([part.weight for part in parts])
    base = np.uint64(partition.range(shard.rank)[0] << 32)
    return Run(_joined(shard, keys, base), None, None if weights is None else _joined(shard, weights))


def _joined(shard: Shard, parts: list[Array], base: np.uint64 | None = None) -> Array:
    """The parts one after another, less `base`; a copy, unless it is one part that stays as it is."""
    full = [part for part in parts if len(part)] or parts[:1]
    if len(full) == 1 and not base:
        return full[0]
    whole = shard.device.empty(sum(map(len, full)), full[0].dtype)
    shard.device.xp.concatenate(full, out=whole)
    if base:
        whole -= base
    return whole


def _built(shard: Shard, partition: Partition, run: Run, count: bool) -> tuple[Structure, int]:
    """A structure of the run, and how many of its edges this rank counts."""
    lo, hi = partition.range(shard.rank)
    structure, counted = shard.new_structure(hi - lo), 0
    for at in range(0, len(run), CHUNK):
        plan = structure.prepare(run.take(slice(at, at + CHUNK)))
        if count:
            counted += (plan.counts if shard.directed else forward_counts(shard, plan, lo)).inserted
        structure.commit(plan)
    return structure, counted
