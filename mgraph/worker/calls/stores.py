"""The store of a graph: its log, its snapshots, and what is made again from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.keys import Names
from mgraph.log.log import ReadOnly
from mgraph.worker import restore as again
from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.keys import KeyLog
from mgraph.worker.storage import How, Storage
from mgraph.worker.together import together

__all__ = [
    "begin_at",
    "create_store",
    "keys",
    "latest",
    "restore",
    "save",
    "share_keys",
    "snapshot",
    "store",
    "survey",
    "writing",
]


def survey(rank: Rank, path: str, epoch: int | None, repair: bool, own: bool) -> Value:
    """What a store holds, for a graph that is to be made from it, and is to write it if `own`; from rank 0."""
    rank.storage = Storage(path, rank.number, rank.host.name)
    return rank.storage.survey(epoch, repair, own)


def create_store(rank: Rank, path: str, kind: Value, **how: Any) -> None:
    """Make a store for this graph, which has no epoch yet, and log what changes from now on."""
    rank.storage = Storage(path, rank.number, rank.host.name)
    with together(rank.shard):
        rank.storage.create(kind)
    _start_log(rank, **how)


def restore(
    rank: Rank, epoch: int, repair: bool, how: Value | None, read_only: bool, after: int | None = None
) -> Value:
    """Make the surveyed epoch again in this empty shard; then log what changes, where `how` says how.

    The answer has the counts of each epoch behind `after`: int64[6 * k], in the order of `TOLD`.
    """
    assert rank.storage is not None, "the client asked for no survey"
    found = rank.storage.found(epoch, repair)
    counts = again.restore(rank.shard, rank.ballot, rank.storage.store, found, after)
    rank.storage.read_keys(found, rank.shard.generation)
    if how is not None:
        _start_log(rank, **how)
    elif read_only:
        rank.ballot.log = ReadOnly(epoch)
    return {"epoch": rank.shard.epoch, "counts": counts}


def begin_at(rank: Rank, epoch: int, latest: int | None = None) -> None:
    """Count on from `epoch`, in a graph without a store that holds what another one held then.

    `latest` is the latest time that it has seen, in a graph with times.
    """
    assert rank.ballot.log is None, "epochs of a store are its own"
    rank.shard.epoch = epoch
    if rank.shard.clock is not None and latest is not None:
        rank.shard.clock.begin(latest)


def latest(rank: Rank) -> Value:
    """The latest time that the graph has seen; None in one without times."""
    return {"latest": None if rank.shard.clock is None else rank.shard.clock.latest}


def keys(rank: Rank, generation: int = -1, n: int = 0) -> Value:
    """The keys of the vertices, from rank 0, where it has them: what a client lacks; see `KeyLog.since`."""
    if rank.ballot.keys is not None:
        return rank.ballot.keys.since(generation, n)
    return {} if rank.storage is None else rank.storage.keys.since(generation, n)


def share_keys(rank: Rank, keys: np.ndarray | None = None) -> None:
    """Follow the keys of the vertices on rank 0, for other clients; `keys` are those that there are, on rank 0."""
    if rank.number == 0:
        rank.ballot.keys = KeyLog(None if keys is None else Names.unpacked(keys), rank.shard.generation)


def _start_log(rank: Rank, **how: Any) -> None:
    assert rank.storage is not None
    rank.ballot.keys = rank.storage.keys if rank.number == 0 else None
    rank.ballot.log = rank.storage.start(rank.shard, How(**how), rank.attempt, rank.aborted)


def snapshot(rank: Rank) -> None:
    """Begin a snapshot of this rank's edges."""
    rank.stored().snapshot(rank.shard)


def save(rank: Rank, path: str, kind: Value, keys: np.ndarray | None = None) -> None:
    """Begin to write this rank's edges to a folder of their own, and on rank 0 the vertices' keys."""
    if rank.storage is None:
        rank.storage = Storage(path, rank.number, rank.host.name)
    rank.storage.save(rank.shard, path, kind, keys)


def writing(rank: Rank) -> Value:
    """Whether a snapshot is being written, and why the last one was not."""
    return {"busy": False, "problem": None} if rank.storage is None else rank.storage.writing


def store(rank: Rank) -> Value:
    """How far this rank's log is; see `Storage.report`."""
    return {} if rank.storage is None else rank.storage.report()
