"""Results that follow the graph: on each rank, whether to go on from the last one or to compute it again.

All ranks take the same decisions. They agree on what each of them has (an allreduce), gather what batches have changed
since (allgathers of 9 bytes an arc, 17 with weights), and ask the algorithm to go on from there. It gives up where it
would visit more than a share of the edges. The share is measured: it is halved when that took longer than the last
computation from the start, and doubled when most of it was used, or all, in less than half that time. Where going on is
slow for another reason, or is given up again and again, it is left out for some time.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, EdgeDelta
from mgraph.device import Array
from mgraph.kernels import load
from mgraph.structures.plan import DELETED, INSERTED, UPDATED
from mgraph.structures.sort import sort_keys
from mgraph.worker.shard.change_log import Touched
from mgraph.worker.shard.results import MaintainedState
from mgraph.worker.shard.shard import Shard

__all__ = ["catch_up", "end"]

Value = dict[str, Any]

LEAST_SHARE, MOST_SHARE = 1 / 1024, 1.0
FEW = 1024  #: so many edges may be visited in any case
#: going on is left out after it took so many seconds more than twice a computation from the start, TIMES in a row
SLOWER, TIMES = 0.005, 3
LONGEST = 16  #: times in a row for which it is left out, at most


def catch_up(shard: Shard, live: str, algorithm: Algorithm, args: Value) -> Value:
    """Bring a maintained result up to date, or make it.

    Returns
    -------
    dict
        `how`: "unchanged", "incremental" or "again"; `touched`: the edges that differ from when it was last brought up
        to date, 0 if that is not known; `edges`: the edges that were visited on all ranks, 0 if it was made again.
    """
    held = shard.maintained.setdefault(live, MaintainedState())
    shard.change_log.open(shard.epoch)
    report = _gone_on(shard, held)
    if report is None or report["how"] == "again":
        held.made, began = None, time.perf_counter()  # its memory is free before the new one is made
        assert algorithm.maintain is not None
        made = algorithm.maintain(shard, **args)
        held.seconds = _longest(shard, began)
        held.made = made
    held.epoch, held.generation, held.starts = shard.epoch, shard.generation, shard.partition.starts[:-1]
    shard.change_log.forget(min(one.epoch for one in shard.maintained.values()))
    return report or {"how": "again", "touched": 0, "edges": 0}


def _gone_on(shard: Shard, held: MaintainedState) -> Value | None:
    """Go on from the last result; what `apply_changes` returns, or None where that is not possible.

    An error leaves no result, since it may have come when a part of the ranks were done.
    """
    began, made = time.perf_counter(), held.made
    if not _known(shard, held):
        return None
    if held.epoch == shard.epoch:
        return {"how": "unchanged", "touched": 0, "edges": 0}
    assert made is not None
    held.made = None
    changes, arcs = _changes(shard, held.epoch), _sum(shard, shard.out_edges.num_edges)
    most, loops = max(int(arcs * held.share), FEW), _loops(shard, changes)
    followed = None
    if not _left_out(held, len(changes)):
        followed = made.apply_changes(changes, most) if len(changes) <= most else None
        _adapt(held, _longest(shard, began), None if followed is None else followed.edges / most, len(changes))
    touched = len(changes) if loops is None else (len(changes) + int(shard.device.to_host(loops)[0])) // 2
    if followed is None:
        return {"how": "again", "touched": touched, "edges": 0}
    held.made = made
    return {"how": "incremental" if followed.changed else "unchanged", "touched": touched, "edges": followed.edges}


def end(shard: Shard, live: str) -> None:
    """Free a maintained result; unknown ones are ignored."""
    if shard.maintained.pop(live, None) is not None and not shard.maintained:
        shard.change_log.close()


def _known(shard: Shard, held: MaintainedState) -> bool:
    """Whether every rank has the result as of one epoch, and what was changed since, and can go on; one allreduce."""
    first, made = shard.change_log.first, held.made
    same = held.generation == shard.generation and held.starts == shard.partition.starts[:-1]
    here = made is not None and same and first is not None and first <= held.epoch
    if here and made is not None and not made.takes_deletions:
        here = not any(touched.deleted for _, touched in shard.change_log.since(held.epoch))
    known, epoch, latest = shard.exchange.allreduce(np.array([here, held.epoch, -held.epoch], np.int64), "min").tolist()
    return bool(known) and epoch == -latest


def _left_out(held: MaintainedState, size: int) -> bool:
    """Whether not to try with so many changes, since that took too long the last times."""
    if held.pause == 0 or 2 * size < held.slow:
        return False
    held.pause -= 1
    return True


def _adapt(held: MaintainedState, seconds: float, used: float | None, size: int) -> None:
    """Change the share of the edges that may be visited, by how long it took to go on; and how often that is tried.

    `used` is the part of the share that was visited; None if it was given up.
    """
    if seconds > held.seconds and (used is None or used > 1 / 64):  # else it was not for the edges
        held.share = max(held.share / 2, LEAST_SHARE)
    elif (used is None or used > 0.5) and seconds < held.seconds / 2:
        held.share = min(held.share * 2, MOST_SHARE)
    if seconds <= SLOWER + (0 if used is None else 2 * held.seconds):
        held.times = 0 if used is not None else held.times
        return
    held.times, held.slow = held.times + 1, size
    held.pause = min(2 ** (held.times - TIMES), LONGEST) if held.times >= TIMES else 0


def _longest(shard: Shard, began: float) -> float:
    shard.device.synchronize()
    return float(shard.exchange.allreduce(np.array([time.perf_counter() - began]), "max")[0])


def _sum(shard: Shard, mine: int) -> int:
    return int(shard.exchange.allreduce(np.array([mine], np.int64))[0])


# ---- what was changed since an epoch ---------------------------------------------------------------------------------


def _changes(shard: Shard, epoch: int) -> EdgeDelta:
    """How the arcs of all ranks differ from those at `epoch`."""
    device, xp, since = shard.device, shard.device.xp, shard.change_log.since(epoch)
    if shard.size == 1 and len(since) == 1:
        one = since[0][1]  # each arc is there once, and in order
        return EdgeDelta(one.keys, one.kinds, one.deleted, one.old, one.new)
    columns = _gathered(shard, since)
    keys, epochs = columns.pop("keys"), columns.pop("epochs")
    with device.taking(64 * len(keys), f"{len(keys)} changed arcs"):
        if shard.size > 1:  # of one arc's changes, the order is that of the epochs
            stream = xp.argsort(epochs, kind="stable")
            keys, columns = keys[stream], {name: column[stream] for name, column in columns.items()}
        keys, places = sort_keys(device, keys, with_places=True)
        columns = {name: column[places] for name, column in columns.items()}
        kinds = columns["kinds"]
        edge = device.full(len(keys) + 1, 1, bool)
        edge[1:-1] = keys[1:] != keys[:-1]
        first, last = xp.flatnonzero(edge[:-1]), xp.flatnonzero(edge[1:])
        was, now = kinds[first] != INSERTED, kinds[last] != DELETED
        differs = was != now
        if "old" in columns:
            differs |= was & now & (columns["old"][first] != columns["new"][last])
        first, last, was, now = first[differs], last[differs], was[differs], now[differs]
        kind = xp.where(was, xp.where(now, UPDATED, DELETED), INSERTED).astype(np.uint8)
        weights = {"old": columns["old"][first], "new": columns["new"][last]} if "old" in columns else {}
        return EdgeDelta(keys[first], kind, int((kind == DELETED).sum()), **weights)


def _gathered(shard: Shard, since: list[tuple[int, Touched]]) -> dict[str, Array]:
    """The columns of what all ranks have changed, in the order of the epochs on each; on several with the epochs."""
    device = shard.device
    dtypes: dict[str, Any] = {"keys": np.uint64, "kinds": np.uint8}
    if shard.spec.weighted:
        dtypes |= {"old": np.float32, "new": np.float32}
    columns = {
        name: device.concatenate([device.empty(0, dtype), *(getattr(touched, name) for _, touched in since)])
        for name, dtype in dtypes.items()
    }
    if shard.size == 1:
        return {**columns, "epochs": None}
    epochs = np.repeat([at for at, _ in since], [len(touched) for _, touched in since]).astype(np.int64)
    columns["epochs"] = device.asarray(epochs)
    return {name: device.concatenate(shard.exchange.allgather(column)) for name, column in columns.items()}


def _loops(shard: Shard, changes: EdgeDelta) -> Array:
    """How many changed arcs of an undirected graph are self-loops, on the device; None of a directed graph."""
    if shard.directed:
        return None
    loops = shard.device.zeros(1, np.int64)
    load(shard.device, "worker/results/loops.cuh").CountLoops(
        len(changes), keys=changes.keys, n=len(changes), loops=loops
    )
    return loops
