"""Maintained results: updated incrementally, or recomputed, whichever is faster.

All ranks take the same decisions. They agree on the epoch and the numbering of each rank's result, tell how long the
last update took on each, and gather the arcs changed since, 9 bytes per arc, 17 with weights: few of them in the same
message, many in another one. Then they ask the algorithm for an incremental update. It gives up if it would visit more
edges than a `CostModel` allows, which learns from the time of each update.

Results with a `Memory`, such as communities, depend on the updates before them. For these only counts of arcs decide,
never times, so that the same batches and reads give the same results on any ranks. They survive moves of ranges and new
orders: the change log is renumbered, and the results adopt the new order themselves.

Vertices without edges may leave a graph with keys, which changes the internal ids of others. Results are updated before
the removal and renumbered after it. Between two reads this may take about twice the time of a computation; after that,
the next read recomputes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from mgraph.algorithms.algorithm import (
    Algorithm,
    Columns,
    EdgeDelta,
    Maintained,
    Memory,
    Remembering,
    Renumbering,
)
from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.exchange.columns import join_columns, split_columns
from mgraph.kernels import load
from mgraph.kernels.stopwatch import Stopwatch
from mgraph.structures.plan import DELETED, INSERTED, UPDATED
from mgraph.structures.sort import sort_keys
from mgraph.worker.results.remembered import key_of, remember, remove
from mgraph.worker.shard.change_log import MOST
from mgraph.worker.shard.cost import CostModel
from mgraph.worker.shard.results import MaintainedState, Tried
from mgraph.worker.shard.shard import Shard

__all__ = ["adopt_removal", "catch_up", "columns", "end", "through_removal"]

Value = dict[str, Any]

RECOMPUTED = {"how": "recomputed", "touched": 0, "edges": 0}  #: the report of a result that is computed anew
FEW = 4096  #: changed arcs of a rank that are sent with its numbers
APART = 8  #: batches whose columns are copied to the host one by one; joining more on the device takes less time
SHORT = 0.1  #: seconds up to which a first computation is repeated
FIRST_USE = 2  #: ratio of the times of an update that has just prepared its arrays and of the next one, at most
SLOWER = 0.005  #: seconds that updates for removals may take beyond twice a full computation


def catch_up(shard: Shard, live: str, algorithm: Algorithm, args: Value, first_name: int = 0) -> Value:
    """Update a maintained result, or compute it. `first_name` is for a new `Memory`.

    Returns
    -------
    dict
        `how`: "unchanged", "incremental" or "recomputed"; `touched`: the number of edges changed since the last update,
        0 if no update was completed; `edges`: the number of edges visited on all ranks, 0 after a recomputation.
    """
    if (state := shard.maintained.get(live)) is None:
        state = shard.maintained[live] = MaintainedState()
    shard.change_log.open(shard.epoch)
    if algorithm.memory is not None:
        shard.change_log.whole, state.key = True, key_of(algorithm.name, args)
        _agree_on_memory(shard, state, algorithm.memory, first_name)
    report = _updated(shard, state)
    if report is None or state.result is None:
        _compute(shard, state, algorithm, args)
        report = report or dict(RECOMPUTED)
    elif state.removals and report["how"] != "recomputed":
        # Earlier updates, before removals of vertices, count too.
        report = {
            "how": "incremental",
            "touched": report["touched"] + state.touched,
            "edges": report["edges"] + state.visited,
        }

    # The change log may forget what all results have seen.
    state.spent, state.removals, state.touched, state.visited = 0.0, 0, 0, 0
    _note_place(shard, state)
    shard.change_log.forget(min(other.epoch for other in shard.maintained.values()))
    return report


def _compute(shard: Shard, state: MaintainedState, algorithm: Algorithm, args: Value) -> None:
    """Compute a result, and learn how long that takes. One allgather of two numbers; nothing on a single rank.

    A first short computation is repeated: it took most of its time to load kernels.
    """
    assert algorithm.maintain is not None
    memory, first = [] if state.memory is None else [state.memory], not state.cost.seconds
    repeats = first and not memory
    while True:
        state.result, watch = None, _stopwatch(shard)  # the old result is freed first
        result = algorithm.maintain(shard, *memory, **args)
        seconds, arcs = _longest(shard, watch)
        if not repeats or seconds > SHORT:
            break
        repeats = False
        del result
    if result.iterates and not state.cost.seconds:
        state.cost.rate = seconds / max(arcs, 1)  # it iterates over all edges, some dozen times
    state.cost.computed(seconds, arcs)
    if first:
        result.prepare()
    state.result = result


def _agree_on_memory(shard: Shard, state: MaintainedState, make: Callable[[int], Memory], first_name: int) -> None:
    """Take up the memory that the graph remembers, or make one, unless each rank has that of the same last read.

    One allreduce. The ranks differ after an error of some of them.
    """
    remembered, memory = shard.remembered, state.memory
    if state.result is None and memory is None and (memory := remembered.memories.pop(state.key, None)) is not None:
        memory.move_to(shard.device)
        memory.next = max(memory.next, first_name)
    first_name = max(first_name, remembered.first, 0 if memory is None else memory.next)
    read = -1 if memory is None or memory.read is None else memory.read
    own = [read, -read, int(memory is None), first_name]
    last, first, missing, name = shard.exchange.allreduce(np.array(own, np.int64), "max").tolist()
    if missing or last != -first:
        memory, state.result = make(name), None
    state.memory = memory


def _note_place(shard: Shard, state: MaintainedState) -> None:
    """Record the shard's epoch, numbering and ranges as those of the result."""
    state.epoch, state.generation, state.starts = shard.epoch, shard.generation, shard.partition.starts[:-1]
    state.changed = shard.change_log.changed


def _updated(shard: Shard, state: MaintainedState) -> Value | None:
    """Update the last result incrementally, and return a report like `catch_up`; None if the ranks cannot.

    An error leaves no result, since some ranks may have finished before it.
    """
    result = state.result
    if (agreed := _agree(shard, state)) is None:
        return None
    assert result is not None
    if state.epoch == shard.epoch and not state.removals:
        # Only a result with a memory survives a new order.
        if state.generation != shard.generation:
            state.result = None
            assert isinstance(result, Remembering)
            result.adopt_order()
            state.result = result
        return {"how": "unchanged", "touched": 0, "edges": 0}
    state.result = None

    # If an update is likely to take too long, do not even look at the changed arcs.
    arcs, applied = agreed.arcs, None
    most = 0 if state.memory is not None else state.cost.most(arcs, agreed.logged)
    if not most and not result.iterates and state.memory is None:
        return dict(RECOMPUTED)

    # Gather them, and update. The device counts loops meanwhile.
    watch = _stopwatch(shard)
    changes = _changes(shard, state.epoch, agreed)
    if not shard.directed:
        _begin_count_of_loops(shard, changes)
    if state.memory is None:
        applied = result.apply_changes(changes, most)
    elif agreed.changed <= MOST:
        applied = result.apply_changes(changes, arcs)
    useful = applied is not None and applied.how != "gave up"
    if most:
        # What an update has prepared helps later ones, unless it gave up.
        shard.device.synchronize()
        preparation = applied.preparation if useful and applied is not None else 0.0
        state.tried = Tried(watch.seconds() - preparation, applied, arcs, agreed.logged)
    if applied is None or not useful:
        return dict(RECOMPUTED)

    # Report edges: an undirected edge is two arcs, a loop one.
    touched = len(changes)
    if not shard.directed:
        shard.device.synchronize()
        touched = (touched + shard.change_log.loops[0].item(0)) // 2
    state.result = result
    if applied.how == "anew":
        return {**RECOMPUTED, "touched": touched}
    return {"how": "incremental" if applied.changed else "unchanged", "touched": touched, "edges": applied.edges}


def columns(shard: Shard, state: MaintainedState) -> Columns:
    """Return the columns of an up-to-date result. Their time counts as part of the update."""
    assert state.result is not None
    if state.tried is None:
        return state.result.columns()
    watch = _stopwatch(shard)
    values = state.result.columns()
    shard.device.synchronize()
    if state.tried.applied is not None and state.tried.applied.how == "updated":
        state.tried = state.tried._replace(seconds=state.tried.seconds + watch.seconds())
    return values


def end(shard: Shard, live: str) -> None:
    """Free a maintained result; unknown ids are ignored."""
    if (state := shard.maintained.pop(live, None)) is not None:
        remember(shard, state)
        if not shard.maintained:
            shard.change_log.close()


class _Agreed(NamedTuple):
    """Counts that all ranks have agreed on before an update.

    Attributes
    ----------
    arcs : int
        The arcs of the graph.
    batches : int
        The most batches since the result on a rank.
    deleted : int
        The deletions in the batches since the result.
    logged : int
        The arcs of all ranks in these batches, with repeats.
    changed : int
        The changed arcs of these batches, which do not depend on the number of batches that are decided together.
    epochs : list of int64[2, k]
        The epochs of each rank's batches, and their numbers of changes.
    columns : list of uint8[k]
        The changes of each rank, joined, in host memory; empty unless there are few.
    """

    arcs: int
    batches: int
    deleted: int
    logged: int
    changed: int
    epochs: list[np.ndarray]
    columns: list[np.ndarray]


def _agree(shard: Shard, state: MaintainedState) -> _Agreed | None:
    """Return the agreed counts if each rank has the same result and all later changes, else None.

    One allgather; nothing on a single rank.
    """
    log, result = shard.change_log, state.result
    first = log.first
    same = state.generation == shard.generation and state.starts == shard.partition.starts[:-1]
    same |= state.memory is not None
    usable = result is not None and same and first is not None and first <= state.epoch
    since = log.since(state.epoch) if usable else []
    # Count batches and arcs. After a move, several ranks may have changed an arc, and a batch is not in order.
    batches, deleted, logged, moved = len(since), 0, 0, False
    for at, touched in since:
        deleted, logged, moved = deleted + touched.deleted, logged + len(touched), moved or at <= log.moved
    batches += moved
    tried, state.tried = state.tried, None
    changed, arcs = log.changed - state.changed, shard.out_edges.num_edges
    if shard.size == 1:
        if tried is not None:
            _learn(state.cost, tried, tried.seconds)
        agreed = _Agreed(arcs, batches, deleted, logged, changed, [], [])
        return agreed if usable else None

    # Tell a rank's numbers, the epochs and lengths of its batches, and few changes.
    nanoseconds = 0 if tried is None else int(1e9 * tried.seconds)
    numbers = [usable, state.epoch, arcs, batches, deleted, logged, nanoseconds, len(since), changed]
    words = np.array([*numbers, *(at for at, _ in since), *(len(touched) for _, touched in since)], np.int64)
    if 0 < logged <= FEW:
        mine = shard.device.joined_on_host(_logged(shard, since, apart=APART))
        words = np.concatenate([words, mine.view(np.int64)])
    every = shard.exchange.gather_values(words, "allgather")

    # A few numbers of each rank: NumPy would take longer.
    first = len(numbers)
    usables, ats, arcs_of, batches_of, deletions, logged_of, times, held, changed_of = zip(
        *[theirs[:first].tolist() for theirs in every], strict=True
    )
    if tried is not None:
        _learn(state.cost, tried, max(times) / 1e9)
    if not all(usables) or set(ats) != {state.epoch}:
        return None
    ends = [first + 2 * n for n in held]
    few = max(logged_of) <= FEW
    return _Agreed(
        arcs=sum(arcs_of), batches=max(batches_of), deleted=sum(deletions), logged=sum(logged_of),
        changed=sum(changed_of),
        epochs=[theirs[first:end].reshape(2, -1) for theirs, end in zip(every, ends, strict=True)],
        columns=[theirs[end:].view(np.uint8) for theirs, end in zip(every, ends, strict=True)] if few else [],
    )  # fmt: skip


def _learn(cost: CostModel, tried: Tried, seconds: float) -> None:
    """Learn from an update that took so long on the slowest rank."""
    applied, work = tried.applied, (seconds, tried.arcs, tried.changed)
    if applied is None:
        cost.gave_up(*work)
    elif applied.how == "iterated after a try":
        cost.gave_up(*work, applied.tried)
    elif applied.how == "gave up":
        cost.gave_up(*work, applied.edges)
    elif applied.how == "updated":
        first_use = FIRST_USE if applied.preparation else 1
        cost.completed(seconds / first_use, tried.arcs, tried.changed, applied.edges)


def _stopwatch(shard: Shard) -> Stopwatch:
    return Stopwatch(shard.device, shard.size == 1)


def _longest(shard: Shard, watch: Stopwatch) -> tuple[float, int]:
    """Return the seconds of the slowest rank, and the arcs of all ranks."""
    shard.device.synchronize()
    seconds, arcs = watch.seconds(), shard.out_edges.num_edges
    if shard.size == 1:
        return seconds, arcs
    every = np.stack(shard.exchange.gather_values(np.array([seconds, arcs]), "allgather"))
    return float(every[:, 0].max()), int(every[:, 1].sum())


# ---- removals of vertices without edges ------------------------------------------------------------------------------


@contextmanager
def through_removal(shard: Shard, ids: np.ndarray, isolated: bool = True) -> Iterator[None]:
    """Keep the maintained results while the block removes users' `ids`.

    A result that cannot be kept is freed, and recomputed by its next read; also each, unless the vertices are
    `isolated`. Memories stay.
    """
    # Update all results first, with the present ids.
    for state in shard.maintained.values():
        if isolated:
            _catch_up_for_removal(shard, state)
        elif state.memory is not None:
            state.result = None
    numbering = _renumbering(shard, ids) if isolated and _results(shard) else None
    generation = shard.generation
    shard.remembered.leaving = ids  # until the memories adopt them: a snapshot may begin with the change
    results: list[_Present] = []
    try:
        yield
    finally:
        shard.remembered.leaving = None
        if shard.generation != generation:
            results = _results(shard)
            adopt_removal(shard, ids)
    if not isolated or shard.generation == generation:
        return

    # Renumber them.
    for state, result, memory in results:
        if state.memory is not memory:  # the result is forgotten with it
            continue
        try:
            if numbering is not None and result.renumber(numbering):
                state.result = result
        except (CapacityError, MemoryError):  # the ranks agree in `_agree`
            pass
        _note_place(shard, state)


def adopt_removal(shard: Shard, ids: np.ndarray) -> None:
    """Free the results after the removal of users' `ids`, since they have the old ids. The memories adopt it."""
    for state in shard.maintained.values():
        state.result = None
    remove(shard, ids)


class _Present(NamedTuple):
    """Result with the memory that it has now."""

    state: MaintainedState
    result: Maintained
    memory: Memory | None


def _results(shard: Shard) -> list[_Present]:
    states = shard.maintained.values()
    return [_Present(state, state.result, state.memory) for state in states if state.result is not None]


def _catch_up_for_removal(shard: Shard, state: MaintainedState) -> None:
    """Update a result, or free it if that fails or updates have taken too long."""
    if state.memory is None and state.spent > 2 * state.cost.seconds + SLOWER:
        state.result = None
        return
    watch = _stopwatch(shard)
    report = _updated(shard, state)
    result, state.result = state.result, None
    if report is None or result is None:
        return
    state.spent += _longest(shard, watch)[0]
    # An error before leaves no result: the next read would apply the same changes to it again.
    state.result = result
    state.removals, state.touched = state.removals + 1, state.touched + report["touched"]
    state.visited += report["edges"]
    _note_place(shard, state)


def _renumbering(shard: Shard, ids: np.ndarray) -> Renumbering | None:
    """Return the internal ids without users' `ids`; None if memory runs out."""
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


# ---- changes since an epoch ------------------------------------------------------------------------------------------


def _changes(shard: Shard, epoch: int, agreed: _Agreed) -> EdgeDelta:
    """Return the net difference between the arcs of all ranks now and at `epoch`."""
    device, xp, since = shard.device, shard.device.xp, shard.change_log.since(epoch)
    if shard.size == 1 and len(since) == 1 and agreed.batches == 1:
        return since[0][1]  # unique and sorted

    # A rank has the arcs of its own range: one batch of each is unique and sorted, too.
    columns = _gathered(shard, since, agreed)
    keys = columns.pop("keys")
    if agreed.batches <= 1:
        return EdgeDelta(keys, columns.pop("kinds"), agreed.deleted, **columns)

    # Sort the changes by arc, and those of an arc by epoch.
    with device.taking(64 * len(keys), f"{len(keys)} changed arcs"):
        if shard.size > 1:
            epochs = np.concatenate([np.repeat(*batches) for batches in agreed.epochs])
            stream = device.asarray(np.argsort(epochs, kind="stable"))
            keys, columns = keys[stream], {name: column[stream] for name, column in columns.items()}
        keys, places = sort_keys(device, keys, with_places=True)
        columns = {name: column[places] for name, column in columns.items()}

        # Compare the first and the last state of each arc.
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
        return EdgeDelta(keys[first], kind, device.total(kind == DELETED), **weights)


def _columns(shard: Shard) -> dict[str, Any]:
    """Return the dtypes of a change's columns, the widest first, so that all are aligned."""
    weights = {"old": np.float32, "new": np.float32} if shard.spec.weighted else {}
    return {"keys": np.uint64, **weights, "kinds": np.uint8}


def _logged(shard: Shard, since: list[tuple[int, EdgeDelta]], apart: int = 1) -> list[Array]:
    """Return the columns of all batches on this rank. The parts of up to `apart` batches are not joined."""
    device, columns = shard.device, []
    for name, dtype in _columns(shard).items():
        parts = [getattr(touched, name) for _, touched in since] or [device.empty(0, dtype)]
        columns += parts if len(parts) <= apart else [device.concatenate(parts)]
    return columns


def _gathered(shard: Shard, since: list[tuple[int, EdgeDelta]], agreed: _Agreed) -> dict[str, Array]:
    """Return the columns of all ranks' changes. One allgather, unless `agreed` has them."""
    device, dtypes = shard.device, _columns(shard)
    if agreed.columns:
        parts = [split_columns(data, dtypes) for data in agreed.columns]
        together = [part[name].view(np.uint8) for name in dtypes for part in parts]
        data, shard.change_log.sending = device.begin_joined(together)
        return split_columns(data, dtypes)
    columns = _logged(shard, since)
    if shard.size == 1:
        return {name: device.concatenate([column]) for name, column in zip(dtypes, columns, strict=True)}
    parts = [split_columns(data, dtypes) for data in shard.exchange.allgather(join_columns(device, columns))]
    return {name: device.concatenate([part[name] for part in parts]) for name in dtypes}


def _begin_count_of_loops(shard: Shard, changes: EdgeDelta) -> None:
    """Begin to count the self-loops among an undirected graph's changes, in `ChangeLog.loops`."""
    words, mapped = shard.change_log.loops
    words[:] = 0
    load(shard.device, "worker/results/loops.cuh").CountLoops(
        len(changes), keys=changes.keys, n=len(changes), loops=mapped
    )
