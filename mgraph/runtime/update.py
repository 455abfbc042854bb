"""A batch's way into the shards: sort, route to the owners, merge, prepare, vote, commit. Every rank does the same.

What a batch costs here on a GPU, beside what its structure's prepare and commit cost (a column is keys, op or weight):

==========================  ==================================  ========================================================
step                        one rank                            several ranks
==========================  ==================================  ========================================================
`share_runs`                1 launch and a sort a structure     the same
  checked (not yet by the   1 read-back                         the same
  client)
`route`                     nothing: not even a copy            a search and a read-back to split, an exchange, a
                                                                launch for each run received but one; with op or
                                                                weight a copy for each part sent
`prepare`, undirected       1 launch, 1 read-back: its counts   the same
`vote`                      nothing                             1 small allreduce
`commit`                    1 wait for the stream               the same
==========================  ==================================  ========================================================

A sort takes a few launches (see `mgraph.structures.sort`); with op or weight it also gathers each column once. An
undirected edge is two arcs that follow each other in the stream, so that of (a, b) and (b, a) the later wins in both
rows by the rule for repeats alone: nothing is put in order before the sort.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.batch import check_ids
from mgraph.device import Array
from mgraph.errors import Aborted
from mgraph.kernels import load
from mgraph.partition import Partition
from mgraph.runtime.merge import merge_in_order
from mgraph.runtime.shard import Shard
from mgraph.structures import Counts, Plan, Run, Structure
from mgraph.structures.run import sort_run

__all__ = [
    "Prepared",
    "commit",
    "discard",
    "forward_counts",
    "incident_runs",
    "prepare",
    "refused",
    "route",
    "share_runs",
    "vote",
    "waiting",
    "working",
]

HALF = 32


@dataclass
class Prepared:
    """A batch that this shard could commit: a plan for each structure, and what it does to the edges counted here."""

    plans: list[tuple[Structure, Plan]]
    counts: Counts


def share_runs(
    shard: Shard, src: Any, dst: Any, weight: Any = None, op: Any = None, *, check: bool = False
) -> list[Run]:
    """The runs of all arcs that follow from a share of a batch, which is in users' ids and in stream order.

    One run for each structure, in global internal ids: (src, dst) for `out_edges`, each edge both ways in an undirected
    graph, and (dst, src) for `in_edges` of a directed one. Repeats stay, in stream order. O(n log n).

    Raises
    ------
    UnknownVertex
        With `check`, which a share needs that no client has looked at: an id past the graph's vertices.
    """
    src, dst, op, weight = (shard.here(column) for column in (src, dst, op, weight))
    keys = _arcs(shard, src, dst, check)
    if not shard.directed:  # each column twice, as the arcs are
        op, weight = (a if a is None or isinstance(a, int) else shard.device.xp.repeat(a, 2) for a in (op, weight))
    runs = [sort_run(shard.device, keys, op, weight)]
    if shard.directed and shard.in_edges is not None:
        runs.append(sort_run(shard.device, _arcs(shard, dst, src), op, weight))
    return runs


def _arcs(shard: Shard, src: Array, dst: Array, check: bool = False) -> Array:
    """Keys of arcs, in stream order and in internal ids."""
    device, n, stride = shard.device, len(src), 1 if shard.directed else 2
    keys = device.empty(n * stride, np.uint64)
    largest = device.zeros(2, np.uint64) if check else None
    load(device, "arcs.cuh").Arcs(
        n, src=src, dst=dst, order=shard.order, n=n, vertices=shard.n_vertices, stride=stride,
        keys=keys, largest=largest,
    )  # fmt: skip
    if largest is not None and int(device.to_host(largest).max()) >= shard.n_vertices:  # name the first one
        check_ids(src, shard.n_vertices, "src")
        check_ids(dst, shard.n_vertices, "dst")
    return keys


def route(shard: Shard, run: Run, partition: Partition | None = None) -> Run:
    """Send each part of `run` to the owner of its rows; the run of what all ranks sent here, in local rows.

    Owners are those of now, or by `partition`. Ranks hold contiguous shares of the stream, so that rank order is stream
    order, and the later rank wins. Which of the optional columns there are is the same on every rank.
    """
    partition = partition or shard.partition
    parts = run.split(partition.starts)
    with waiting(shard):
        if run.op is None and run.weight is None:
            arrived = [Run(keys) for keys in shard.exchange.alltoallv([part.keys for part in parts])]
        elif shard.size == 1:
            arrived = parts
        else:
            arrived = _swapped(shard, run, parts)
    return merge_in_order(shard.device, arrived, partition.range(shard.rank)[0] << HALF)


def _swapped(shard: Shard, run: Run, parts: list[Run]) -> list[Run]:
    """Runs of several columns in one exchange: the bytes of each part's keys, then of its weights and of its ops."""
    xp, byte = shard.device.xp, np.uint8
    packed = [
        xp.concatenate([column.view(byte) for column in (part.keys, part.weight, part.op) if column is not None])
        for part in parts
    ]
    width = 8 + 4 * (run.weight is not None) + (run.op is not None)
    arrived = []
    for data in shard.exchange.alltoallv(packed):
        n = len(data) // width
        keys, rest = data[: 8 * n].view(np.uint64), data[8 * n :]
        weight = None if run.weight is None else rest[: 4 * n].view(np.float32)
        arrived.append(Run(keys, None if run.op is None else rest[len(rest) - n :].view(np.int8), weight))
    return arrived


@contextmanager
def waiting(shard: Shard) -> Iterator[None]:
    """Count the time of a call to the other ranks as waiting, so that the rest is this rank's own work."""
    began = time.perf_counter()
    try:
        yield
    finally:
        shard.waited += time.perf_counter() - began


@contextmanager
def working(shard: Shard) -> Iterator[None]:
    """Note how long a batch takes this rank, without its waiting for others."""
    began, waited = time.perf_counter(), shard.waited
    try:
        yield
    finally:
        shard.seconds = time.perf_counter() - began - (shard.waited - waited)


def incident_runs(shard: Shard, ids: Any) -> list[Run]:
    """For each structure the deletions, in local rows, of every edge to or from users' ids; O(n + m), a scan."""
    vertices = shard.internal(ids)
    rows = vertices[(vertices >= shard.lo) & (vertices < shard.hi)] - np.uint32(shard.lo)
    return [structure.incident(vertices, rows) for structure in shard.structures]


def prepare(shard: Shard, runs: list[Run]) -> Prepared:
    """Prepare the runs, in local rows, of all structures; or none, where one raises.

    Raises
    ------
    CapacityError
        Memory, or the worker's memory limit, does not suffice. The shard is as it was.
    """
    plans: list[tuple[Structure, Plan]] = []
    try:
        for structure, run in zip(shard.structures, runs, strict=True):
            plans.append((structure, structure.prepare(run)))
        counts = plans[0][1].counts if shard.directed else forward_counts(shard, plans[0][1], shard.lo)
        return Prepared(plans, counts)
    except BaseException:
        _discard(plans)
        raise


def forward_counts(shard: Shard, plan: Plan, lo: int) -> Counts:
    """What a plan does to undirected edges, each counted with its arc of ``src <= dst``; its row 0 is source `lo`."""
    run, counts = plan.run, shard.device.zeros(5, np.int64)
    load(shard.device, "arcs.cuh").CountForward(
        len(run), keys=run.keys, outcome=plan.outcome, n=len(run), lo=lo, counts=counts
    )
    return Counts(*shard.device.to_host(counts)[1:].tolist())


def vote(shard: Shard, ready: bool) -> bool:
    """Whether every rank is ready: the answer is the same everywhere."""
    with waiting(shard):
        return bool(shard.exchange.allreduce(np.array([ready], np.int8), "min")[0])


def commit(shard: Shard, prepared: Prepared) -> None:
    """Do what was prepared: a new epoch. Speaks to no other rank, so that no loss can stop it halfway.

    Asynchronous on a GPU: who calls this waits for the stream before anything else may fail.
    """
    for structure, plan in prepared.plans:
        structure.commit(plan)
    shard.num_edges += prepared.counts.inserted - prepared.counts.deleted
    shard.epoch += 1
    shard.changes += 1


def discard(prepared: Prepared | None) -> None:
    """Free what was prepared."""
    if prepared is not None:
        _discard(prepared.plans)


def _discard(plans: list[tuple[Structure, Plan]]) -> None:
    for structure, plan in plans:
        structure.discard(plan)


def refused(shard: Shard) -> Aborted:
    """What the ranks raise that could have committed, where another could not."""
    return Aborted(f"{shard}: another rank could not prepare the batch; nothing was changed")
