"""Changes, each decided by a ballot of all ranks, and logged if the graph has a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from mgraph.batch import COUNTS, TOLD, share_of
from mgraph.errors import MgraphError, StoreError
from mgraph.protocol import AFTER
from mgraph.structures import Run
from mgraph.structures.mixed_stream import load_kernels
from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.commit.change import (
    BatchChange,
    Change,
    GroupChange,
    Growth,
    Record,
    VerticesChange,
    expire_before,
)
from mgraph.worker.commit.expiry_by_count import expire_by_count
from mgraph.worker.commit.mixed import Execution, answered, logged, streams
from mgraph.worker.commit.route import incident_runs, route, share_runs
from mgraph.worker.inputs import ingest as steps
from mgraph.worker.inputs.sources import Reader, joined, open_source
from mgraph.worker.results.maintained import adopt_removal, through_removal
from mgraph.worker.shard.shard import Shard
from mgraph.worker.vertices.rebalance import Move, by_work
from mgraph.worker.vertices.removal import Removal
from mgraph.worker.vertices.reorder import by_degree, own_degrees

__all__ = [
    "add_vertices",
    "delete_vertices",
    "drop_vertices",
    "execute",
    "expire",
    "ingest",
    "isolated",
    "order",
    "rebalance",
    "remove_vertices",
    "reorder",
    "resolve",
    "update",
    "updates",
]


def update(
    rank: Rank,
    epoch: int,
    n_vertices: int | None = None,
    offset: tuple[str, int] | None = None,
    ahead: bool = False,
    keys: np.ndarray | None = None,
    whole: bool = False,
    *,
    src: np.ndarray,
    dst: np.ndarray,
    weight: np.ndarray | None = None,
    op: np.ndarray | int | None = None,
    time: np.ndarray | None = None,
) -> Value:
    """Apply this rank's part of a batch, which all ranks commit as `epoch`, or none.

    A small batch comes `whole` to every rank. The rank takes its own rows of it, and logs its share of the stream.

    A batch with `n_vertices` grows the graph to this number of vertices. `offset` is the batch's position in a source.
    `keys` has the keys of new vertices, on rank 0 if it keeps them. With `ahead`, further batches follow, and a single
    sync of the log may serve several.
    """
    shard, ballot, record = rank.shard, rank.ballot, None
    if epoch != shard.epoch + 1:
        _check_epoch(rank, epoch)
    # Most small batches take a short way.
    if n_vertices is None and offset is None and keys is None:
        answer = ballot.apply_directly(src, dst, op, weight, time, whole)
        if answer is not None:
            return answer
    share: Value = {"src": src, "dst": dst, "weight": weight, "op": op, "time": time}
    del src, dst, weight, op, time
    if whole and shard.clock is not None:  # late edges are counted by share
        share, whole = share_of(share, len(share["src"]), shard.rank, shard.size), False
    # Record the change, in the user's columns.
    if ballot.log is not None or offset is not None:
        logged_share = share_of(share, len(share["src"]), shard.rank, shard.size) if whole else share
        more: Value = {} if n_vertices is None else {"n_vertices": n_vertices, "keys": keys}
        if offset is not None:
            more["offset"] = str(offset[0]), int(offset[1])
            rank.stored().check_offset(more["offset"])
        record = _record(rank, "batch", {**logged_share, **more})
        del logged_share

    # Grow the graph, then sort and route the batch; undo the growth if that fails.
    with ballot.working(record, ahead):
        growth = None if n_vertices is None else Growth(shard, n_vertices)
        try:
            runs, expiry = share_runs(shard, **share, own=whole), None
            share.clear()
            if shard.clock is not None:
                runs, expiry = shard.admit(runs)
            if shard.size > 1 and not whole:
                runs = [route(shard, runs.pop(0)) for _ in range(len(runs))]
            if expiry is not None:
                runs, expiry = expire_by_count(shard, runs, expiry, ballot.keys, keys)
        except BaseException:
            if growth is not None:
                growth.undo()
            raise
        # Vote and commit.
        change = BatchChange(shard, runs, growth, expiry)
        change.brought = keys
        ballot.decide(change)
        done: Value = change.counted
        done["epoch"] = shard.epoch
    if ahead:
        done[AFTER] = ballot.safe
    return done


def updates(rank: Rank, epoch: int, sizes: np.ndarray, ahead: bool = True, **columns: Any) -> Value:
    """Apply this rank's parts of several batches, of lengths `sizes`, from `epoch` on.

    One ballot decides on all of them if it can; otherwise each batch has its own. If one fails, later ones are not
    applied, and the error has the counts of the earlier ones as `done`. The answer is sent when all are as durable as
    their acknowledgement needs.
    """
    counts, change = np.zeros((len(sizes), len(TOLD)), np.int64), None
    if len(sizes) > 1:
        _check_epoch(rank, epoch)
        if (change := _decide_together(rank, sizes, ahead, **columns)) is not None:
            counts[:, : len(COUNTS)] = change.by_batch
    for i, share in enumerate(_parts(sizes, columns) if change is None else ()):
        # An error reports the counts of the batches before it, if they are durable.
        try:
            report = update(rank, epoch + i, ahead=ahead, **share)
        except BaseException as error:
            described = rank.with_rank(error)
            if i:
                with suppress(StoreError):  # then the epochs on the disk are unknown
                    rank.ballot.make_safe()
                    vars(described)["done"] = counts[:i]  # errors of any class
            raise described  # noqa: B904
        counts[i] = [report.get(name, 0) for name in TOLD]
    done = {"epoch": rank.shard.epoch, "counts": counts.ravel()}
    return {**done, AFTER: rank.ballot.safe} if ahead else done


def _parts(sizes: np.ndarray, columns: Value) -> Iterator[Value]:
    """Yield the columns of each batch of a call."""
    at = 0
    for n in sizes.tolist():
        yield {name: c[at : at + n] if isinstance(c, np.ndarray) else c for name, c in columns.items()}
        at += n


def _decide_together(
    rank: Rank, sizes: np.ndarray, ahead: bool, whole: bool = False, **share: Any
) -> GroupChange | None:
    """Commit several batches by one ballot, and return the change; None if nothing was changed.

    It takes batches that exchange nothing, in a graph without a window: each batch expires edges before the next one.
    If a rank cannot prepare or log them all, the first of them may be possible.
    """
    shard, ballot, log = rank.shard, rank.ballot, rank.ballot.log
    moves = shard.clock is not None and shard.clock.moves
    if moves or not (whole or shard.size == 1):
        return None
    records = [] if log is None else list(_parts(sizes, share))
    if whole:
        records = [share_of(part, len(part["src"]), shard.rank, shard.size) for part in records]

    def sort() -> list[Run]:
        if log is not None:
            log.begin("batch", records[0], shard.epoch + 1, ahead, records[1:])
        batch = np.arange(len(sizes), dtype=np.uint32).repeat(sizes)
        return share_runs(shard, **share, batch=batch, own=whole)

    change = GroupChange(shard, len(sizes), sort)
    try:
        with shard.working(len(sizes)):
            ballot.decide(change)
    except BaseException as error:
        # An abort ends the ballots of single batches, too.
        if ballot.in_doubt is not None or ballot.broken is not None:
            raise
        if log is not None:
            log.refuse()
        if not isinstance(error, Exception):
            raise
        return None
    return change


def execute(
    rank: Rank,
    first: int,
    epoch: int | None = None,
    generation: int | None = None,
    n_vertices: int | None = None,
    room: int | None = None,
    ahead: bool = False,
    keys: np.ndarray | None = None,
    counts: list[int] | None = None,
    check: bool = False,
    **share: Any,
) -> Value:
    """Answer the queries of a stream, and apply its updates as `epoch`; None without updates on any rank.

    `first` is the offset of this rank's part in the stream; `n_vertices` and `keys` are as in `update`. For rows, the
    client translates ids by the order of `generation`, and `room` is as in `Execution`. `counts` and `check` are as in
    `streams`. Even with `ahead`, in a pipeline, the log is synced before the vote.
    """
    shard = rank.shard if epoch is None else _check_epoch(rank, epoch)
    if generation is not None:
        rank.same_ids(generation)
    rank.warm_up("execute", lambda: load_kernels(shard.out_edges))
    # Record the updates.
    logs = epoch is not None and rank.ballot.log is not None
    more: Value = {} if n_vertices is None else {"n_vertices": n_vertices, "keys": keys}
    record = _record(rank, "batch", {**logged(**share), **more}) if logs else None

    # Route and sort the stream, with the vertices it brings.
    with rank.ballot.working(record):
        growth = None if n_vertices is None else Growth(shard, n_vertices)
        try:
            change = Execution(shard, streams(shard, first=first, counts=counts, check=check, **share), growth, room)
        except BaseException:
            if growth is not None:
                growth.undo()
            raise
        # Vote. Fetch the answers while the device makes the updates.
        change.brought = keys
        try:
            if epoch is None:
                change.prepare()
            else:
                rank.ballot.decide(change, settle=False)
            value = answered(shard, change.answers)
        finally:
            rank.ballot.settle()
        return {"epoch": shard.epoch, **value, **change.updates.counted}


def ingest(
    rank: Rank,
    epoch: int,
    sources: list[Value],
    size: int,
    first: int = 0,
    generation: int | None = None,
    room: int = 1 << 62,
) -> Value:
    """Apply batches that the ranks read themselves, step by step, from `epoch` on.

    The source has `size` parts, of which this rank reads those in `sources`, from step `first` on. `generation` and
    `room` are as in `execute`.
    """
    shard = _check_epoch(rank, epoch)
    if generation is not None:
        rank.same_ids(generation)
    # A log writes a part while the next one is read, and the parts of several sources are joined.
    own, held = rank.ballot.log is not None or len(sources) > 1, rank.host.data_of
    opened = [open_source(source, source["rank"], size, shard.device, held, own) for source in sources]
    reads = [src.read if src.function is None else partial(_read_busy, rank, src.function, src.read) for src in opened]
    done = steps.ingest(shard, rank.ballot, joined(reads, shard.device, shard.spec.times), room, first)
    return {**done, "left_out": sorted(set[str]().union(*(source.left_out for source in opened)))}


def _read_busy(rank: Rank, function: str, read: Reader, step: int) -> Any:
    """Read a step with the user's function, named in `busy`: no beats are sent while it holds the GIL."""
    rank.busy = f"{function}() in step {step} of an ingest"
    try:
        return read(step)
    finally:
        rank.busy = None


def delete_vertices(rank: Rank, epoch: int, ids: np.ndarray) -> Value:
    """Delete every edge to or from users' `ids`, as `epoch`."""
    shard = _check_epoch(rank, epoch)
    with rank.ballot.working(_record(rank, "delete_vertices", {"ids": ids})):
        change = BatchChange(shard, incident_runs(shard, ids))
        return {**_decide(rank, change), **change.counted}


def expire(rank: Rank, epoch: int, before: int) -> Value:
    """Delete every edge with a time before `before`, as `epoch`."""
    shard = _check_epoch(rank, epoch)
    with rank.ballot.working(_record(rank, "expire", {"before": before})):
        change = expire_before(shard, before)
        return {**_decide(rank, change), **change.counted}


def isolated(rank: Rank) -> Value:
    """Return the users' ids of this rank's vertices without edges."""
    shard = rank.shard
    ids = shard.device.xp.flatnonzero(own_degrees(shard) == 0) + shard.lo
    ids = ids if shard.names is None else shard.names[ids]
    return {"ids": shard.device.fetch(ids.astype(np.uint32))}


def drop_vertices(rank: Rank, ids: np.ndarray) -> Value:
    """Remove users' ids without edges, as part of the previous epoch."""
    record = _record(rank, "drop_vertices", {"ids": ids})
    with through_removal(rank.shard, ids), rank.ballot.working(record):
        return _decide(rank, Removal(rank.shard, ids, epochs=0))


def remove_vertices(rank: Rank, epoch: int, ids: np.ndarray, isolated: bool = False) -> Value:
    """Remove users' ids, ascending and distinct, with all their edges, as `epoch`. Later ids move up.

    If they are `isolated`, maintained results stay valid.
    """
    shard = _check_epoch(rank, epoch)
    with through_removal(shard, ids, isolated), rank.ballot.working(_record(rank, "remove_vertices", {"ids": ids})):
        change = Removal(shard, ids)
        return {**_decide(rank, change), **dict.fromkeys(TOLD, 0), "deleted": change.deleted}


def add_vertices(rank: Rank, epoch: int, n_vertices: int, keys: np.ndarray | None = None) -> Value:
    """Grow the graph to `n_vertices` vertices, as `epoch`; `keys` as in `update`."""
    shard = _check_epoch(rank, epoch)
    with rank.ballot.attempt(_record(rank, "add_vertices", {"n_vertices": n_vertices, "keys": keys})):
        return _decide(rank, VerticesChange(shard, n_vertices), keys)


def rebalance(rank: Rank) -> Value:
    """Move the range boundaries so that the ranks have about equal work."""
    return _decide(rank, Move(rank.shard, by_work))


def reorder(rank: Rank) -> Value:
    """Renumber the vertices by descending degree."""
    return _decide(rank, Move(rank.shard, by_degree))


def order(rank: Rank, wanted: bool) -> Value:
    """Return the internal id of each user's id, if this rank is to send it."""
    shard = rank.shard
    return {"order": shard.device.fetch(shard.order)} if wanted and shard.order is not None else {}


def resolve(rank: Rank, changes: int) -> None:
    """Settle a change whose ballot was interrupted on this rank."""
    shard, change = rank.shard, rank.ballot.in_doubt
    generation = shard.generation
    rank.ballot.resolve(changes)
    if change is not None and change.gone is not None and shard.generation != generation:
        adopt_removal(shard, change.gone)


def _check_epoch(rank: Rank, epoch: int) -> Shard:
    """Return the shard; `MgraphError` unless `epoch` is its next one."""
    shard = rank.shard
    if epoch != shard.epoch + 1:
        raise MgraphError(f"{shard}: a change came as epoch {epoch} instead of {shard.epoch + 1}")
    return shard


def _record(rank: Rank, kind: str, columns: Value) -> Record | None:
    """Return the record of a change; None without a log, since a record keeps the columns in memory."""
    return None if rank.ballot.log is None else Record(kind, columns)


def _decide(rank: Rank, change: Change, brought: np.ndarray | None = None) -> Value:
    """Vote on a change that brings these keys, and commit it."""
    change.brought = brought
    rank.ballot.decide(change)
    return {"epoch": change.shard.epoch}
