"""Maintained results: on each rank, decide whether to go on from the last result or to compute it again.

All ranks take the same decisions. They agree on the epoch and the numbering of each rank's result (an allreduce),
gather the arcs that batches have changed since (allgathers of 9 bytes an arc, 17 with weights), and ask the algorithm
to go on from there. It gives up where it would visit more than a share of the edges. The share is measured: it is
halved after an update that took longer than the last computation from the start, and doubled after one that used most
of it, or all, in less than half that time. Where going on is slow for another reason, or is given up again and again,
it is left out for some time.

Vertices without edges may leave a graph with keys, and then the internal ids of others change. Results are brought up
to date before the removal, and renumbered after it. Between two reads that takes about as long as computing the result
twice, at most; then the next read computes it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, EdgeDelta, Renumbering
from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.kernels import load
from mgraph.structures.plan import DELETED, INSERTED, UPDATED
from mgraph.structures.sort import sort_keys
from mgraph.worker.shard.change_log import Touched
from mgraph.worker.shard.results import MaintainedState
from mgraph.worker.shard.shard import Shard

__all__ = ["catch_up", "end", "through_removal"]

Value = dict[str, Any]

LEAST_SHARE, MOST_SHARE = 1 / 1024, 1.0
FEW = 1024  #: edges that an update may visit in any case
#: going on is left out after it took so many seconds more than twice a computation from the start, TIMES in a row
SLOWER, TIMES = 0.005, 3
LONGEST = 16  #: times in a row for which it is left out, at most


def catch_up(shard: Shard, live: str, algorithm: Algorithm, args: Value) -> Value:
    """Bring a maintained result up to date, or compute it.

    Returns
    -------
    dict
        `how`: "unchanged", "incremental" or "again"; `touched`: the edges that differ from when it was last brought up
        to date, 0 if that is not known; `edges`: the edges that were visited on all ranks, 0 if it was computed again.
    """
    state = shard.maintained.setdefault(live, MaintainedState())
    shard.change_log.open(shard.epoch)
    report = _gone_on(shard, state)
    if report is None or report["how"] == "again":
        state.made, began = None, time.perf_counter()  # its memory is free before the new one is made
        assert algorithm.maintain is not None
        made = algorithm.maintain(shard, **args)
        state.seconds = _longest(shard, began)
        state.made = made
        report = report or {"how": "again", "touched": 0, "edges": 0}
    elif state.removals:
        report = {
            "how": "incremental",
            "touched": report["touched"] + state.touched,
            "edges": report["edges"] + state.visited,
        }
    state.spent, state.removals, state.touched, state.visited = 0.0, 0, 0, 0
    _note_place(shard, state)
    shard.change_log.forget(min(other.epoch for other in shard.maintained.values()))
    return report


def _note_place(shard: Shard, state: MaintainedState) -> None:
    """Note that a result is that of the shard as it is now."""
    state.epoch, state.generation, state.starts = shard.epoch, shard.generation, shard.partition.starts[:-1]


def _gone_on(shard: Shard, state: MaintainedState) -> Value | None:
    """Go on from the last result, and return what `catch_up` does; None where the ranks cannot go on.

    An error leaves no result, since it may have come after a part of the ranks had finished.
    """
    began, made = time.perf_counter(), state.made
    if not _current(shard, state):
        return None
    if state.epoch == shard.epoch and not state.removals:
        return {"how": "unchanged", "touched": 0, "edges": 0}
    assert made is not None
    state.made = None
    # the arcs that differ, and how many edges may be visited for them
    changes, arcs = _changes(shard, state.epoch), _sum(shard, shard.out_edges.num_edges)
    most, loops = max(int(arcs * state.share), FEW), _loops(shard, changes)
    followed = None
    if not _left_out(state, len(changes)):
        followed = made.apply_changes(changes, most) if len(changes) <= most else None
        _adapt(state, _longest(shard, began), None if followed is None else followed.edges / most, len(changes))
    touched = len(changes) if loops is None else (len(changes) + int(shard.device.to_host(loops)[0])) // 2
    if followed is None:
        return {"how": "again", "touched": touched, "edges": 0}
    state.made = made
    return {"how": "incremental" if followed.changed else "unchanged", "touched": touched, "edges": followed.edges}


def end(shard: Shard, live: str) -> None:
    """Free a maintained result; unknown ones are ignored."""
    if shard.maintained.pop(live, None) is not None and not shard.maintained:
        shard.change_log.close()


def _current(shard: Shard, state: MaintainedState) -> bool:
    """Return True if every rank has the result as of one epoch and all changes since, and can go on. One allreduce."""
    first, made = shard.change_log.first, state.made
    same = state.generation == shard.generation and state.starts == shard.partition.starts[:-1]
    here = made is not None and same and first is not None and first <= state.epoch
    if here and made is not None and not made.takes_deletions:
        here = not any(touched.deleted for _, touched in shard.change_log.since(state.epoch))
    mine = np.array([here, state.epoch, -state.epoch], np.int64)
    current, epoch, latest = shard.exchange.allreduce(mine, "min").tolist()
    return bool(current) and epoch == -latest


def _left_out(state: MaintainedState, size: int) -> bool:
    """Return True if updates of so many changes are left out, since the last ones took too long."""
    if state.pause == 0 or 2 * size < state.slow:
        return False
    state.pause -= 1
    return True


def _adapt(state: MaintainedState, seconds: float, used: float | None, size: int) -> None:
    """Adapt the share of edges that may be visited, and how often going on is tried, to the time of an update.

    `used` is the part of the share that was visited; None if it was given up.
    """
    if seconds > state.seconds and (used is None or used > 1 / 64):  # else it was not for the edges
        state.share = max(state.share / 2, LEAST_SHARE)
    elif (used is None or used > 0.5) and seconds < state.seconds / 2:
        state.share = min(state.share * 2, MOST_SHARE)
    if seconds <= SLOWER + (0 if used is None else 2 * state.seconds):
        state.times = 0 if used is not None else state.times
        return
    state.times, state.slow = state.times + 1, size
    state.pause = min(2 ** (state.times - TIMES), LONGEST) if state.times >= TIMES else 0


def _longest(shard: Shard, began: float) -> float:
    shard.device.synchronize()
    return float(shard.exchange.allreduce(np.array([time.perf_counter() - began]), "max")[0])


def _sum(shard: Shard, mine: int) -> int:
    return int(shard.exchange.allreduce(np.array([mine], np.int64))[0])


# ---- removals of vertices without edges ------------------------------------------------------------------------------


@contextmanager
def through_removal(shard: Shard, ids: np.ndarray) -> Iterator[None]:
    """Keep the maintained results while the block removes users' `ids`, which have no edges.

    A result that cannot go on is freed, and computed again by its next read.
    """
    for state in shard.maintained.values():
        _catch_up_for_removal(shard, state)
    going_on = [state for state in shard.maintained.values() if state.made is not None]
    numbering = _renumbering(shard, ids) if going_on else None
    generation = shard.generation
    yield
    if shard.generation == generation:
        return
    shard.change_log.forget(shard.epoch)  # arcs by the ids before
    for state in going_on:
        made, state.made = state.made, None
        assert made is not None
        try:
            if numbering is not None and made.renumber(numbering):
                state.made = made
        except CapacityError:  # the ranks agree in `_current`
            pass
        _note_place(shard, state)


def _catch_up_for_removal(shard: Shard, state: MaintainedState) -> None:
    """Bring a result up to date; or free it, if it cannot go on, or its updates since the last read took too long."""
    if state.spent > 2 * state.seconds + SLOWER:
        state.made = None
        return
    began = time.perf_counter()
    report = _gone_on(shard, state)
    if report is None or report["how"] == "again":
        state.made = None
        return
    state.spent += _longest(shard, began)
    state.removals, state.touched = state.removals + 1, state.touched + report["touched"]
    state.visited += report["edges"]
    _note_place(shard, state)


def _renumbering(shard: Shard, ids: np.ndarray) -> Renumbering | None:
    """Return the internal ids without users' `ids`; None if there is too little memory."""
    device, xp, n = shard.device, shard.device.xp, shard.n_vertices
    try:
        with device.taking(40 * n, f"new ids of {n} vertices"):
            new = device.full(n, 1, np.int64)
            new[shard.internal(ids)] = 0
            kept = xp.flatnonzero(new)
            rows = xp.flatnonzero(new[shard.lo : shard.hi])
            new = xp.where(new == 1, xp.cumsum(new) - 1, -1)
    except CapacityError:
        return None
    return Renumbering(kept, rows, new)


# ---- what was changed since an epoch ---------------------------------------------------------------------------------


def _changes(shard: Shard, epoch: int) -> EdgeDelta:
    """Return the difference between the arcs of all ranks and those at `epoch`."""
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
    """Count the changed arcs of an undirected graph that are self-loops, on the device; None of a directed graph."""
    if shard.directed:
        return None
    loops = shard.device.zeros(1, np.int64)
    load(shard.device, "worker/results/loops.cuh").CountLoops(
        len(changes), keys=changes.keys, n=len(changes), loops=loops
    )
    return loops
