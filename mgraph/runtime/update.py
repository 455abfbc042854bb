"""A batch's way into the shards: sort, route to the owners, merge, prepare, vote, commit. Every rank does the same."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from mgraph.device import Array
from mgraph.errors import Aborted
from mgraph.runtime.shard import Shard, aligned
from mgraph.structures import Counts, Plan, Run, Structure
from mgraph.structures.run import make_keys, merge_runs, sort_run

__all__ = ["Prepared", "commit", "discard", "incident_runs", "prepare", "refused", "route", "share_runs", "vote"]

HALF = np.uint64(32)


@dataclass
class Prepared:
    """A batch that this shard could commit: a plan for each structure, and what it does to the edges counted here."""

    plans: list[tuple[Structure, Plan]]
    counts: Counts


def share_runs(shard: Shard, src: Any, dst: Any, weight: Any = None, op: Any = None) -> list[Run]:
    """The runs of all arcs that follow from a share of a batch, which is in users' ids and in stream order.

    One run for each structure, in global internal ids: (src, dst) for `out_edges`, two arcs for an undirected edge,
    and (dst, src) for `in_edges` of a directed graph. The last of repeats has won. O(n).
    """
    device, xp = shard.device, shard.device.xp
    src, dst = shard.internal(src), shard.internal(dst)
    op, weight = (None if a is None else device.asarray(aligned(a)) for a in (op, weight))
    if not shard.directed:  # (a, b) and (b, a) are one edge, of which the later operation wins
        src, dst = xp.minimum(src, dst), xp.maximum(src, dst)
    run = sort_run(device, make_keys(device, src, dst), op, weight)
    if not shard.directed:
        return [_with_mirror(shard, run)]
    return [run] if shard.in_edges is None else [run, _mirror(shard, run)]


def _swapped(keys: Array) -> Array:
    return (keys << HALF) | (keys >> HALF)


def _mirror(shard: Shard, run: Run) -> Run:
    return sort_run(shard.device, _swapped(run.keys), run.op, run.weight)


def _with_mirror(shard: Shard, run: Run) -> Run:
    swapped = _swapped(run.keys)
    there = run.take(swapped != run.keys)  # a self-loop is one arc
    back = Run(_swapped(there.keys), there.op, there.weight)
    columns = ((a, b) for a, b in ((run.keys, back.keys), (run.op, back.op), (run.weight, back.weight)))
    return sort_run(shard.device, *(None if a is None else shard.device.xp.concatenate([a, b]) for a, b in columns))


def route(shard: Shard, run: Run) -> Run:
    """Send each part of `run` to the owner of its rows; the run of what all ranks sent here, in local rows.

    Ranks hold contiguous shares of the stream, so that rank order is stream order, and the later rank wins. Which of
    the optional columns there are is the same on every rank.
    """
    parts = run.split(shard.partition.starts)
    columns = [_exchanged(shard, [getattr(part, name) for part in parts]) for name in ("keys", "op", "weight")]
    merged = merge_runs(shard.device, [Run(*column) for column in zip(*columns, strict=True)])
    return Run(merged.keys - (np.uint64(shard.lo) << HALF), merged.op, merged.weight)


def _exchanged(shard: Shard, parts: list[Array]) -> list[Array]:
    return parts if parts[0] is None else shard.exchange.alltoallv(parts)


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
        shard.device.check_memory(sum(_held(plan.work) for _, plan in plans))
        return Prepared(plans, _counts(shard, plans[0][1]))
    except BaseException:
        _discard(plans)
        raise


def vote(shard: Shard, ready: bool) -> bool:
    """Whether every rank is ready: the answer is the same everywhere."""
    return bool(shard.exchange.allreduce(np.array([ready], np.int8), "min")[0])


def commit(shard: Shard, prepared: Prepared) -> None:
    """Do what was prepared: a new epoch. Speaks to no other rank, so that no loss can stop it halfway."""
    for structure, plan in prepared.plans:
        structure.commit(plan)
    shard.device.synchronize()  # a commit that fails on a GPU has to fail here, not in a later call
    shard.num_edges += prepared.counts.inserted - prepared.counts.deleted
    shard.epoch += 1


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


def _counts(shard: Shard, plan: Plan) -> Counts:
    """The counts of a plan of `out_edges`; an undirected edge counts with its arc of ``src <= dst``."""
    if shard.directed:
        return plan.counts
    run, xp = plan.run, shard.device.xp
    counted = (run.keys >> HALF) + np.uint64(shard.lo) <= (run.keys & np.uint64(0xFFFFFFFF))
    became = xp.bincount(plan.outcome[counted], minlength=5)[1:]
    return Counts(*(int(number) for number in shard.device.to_host(became)))


def _held(value: Any) -> int:
    """Bytes of the arrays in a plan's work, which its commit will touch: the system maps memory only then."""
    if hasattr(value, "nbytes") and hasattr(value, "dtype"):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(_held(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_held(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return sum(_held(getattr(value, f.name)) for f in fields(value))
    return 0
