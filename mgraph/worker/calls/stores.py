"""Stores: log, snapshots, and restored graphs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption
from mgraph.keys import KeyArray
from mgraph.log.read_only import ReadOnly
from mgraph.log.remote import is_remote
from mgraph.log.shared_memory_tail import finish as finish_logs
from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.stores import restore as again
from mgraph.worker.stores.all_or_none import all_or_none
from mgraph.worker.stores.communities import restore_communities
from mgraph.worker.stores.local_storage import LocalStorage
from mgraph.worker.stores.storage import How, Storage

__all__ = [
    "begin_at",
    "claim",
    "create_parts",
    "create_store",
    "finish",
    "keys",
    "latest",
    "new_parts",
    "restore",
    "save",
    "scan_parts",
    "share_keys",
    "snapshot",
    "store",
    "survey",
    "survey_parts",
    "writing",
]


def claim(rank: Rank, path: str) -> None:
    """Make this graph the only writer of a store, before its content is read."""
    rank.storage = _storage(rank, path)
    rank.storage.claim()


def _storage(rank: Rank, path: str) -> Storage:
    """Return the store on a shared disk, or else this worker's view of local disks."""
    shared = Storage(_here(path), rank.number, rank.host.name)
    shared.store.check_described()
    return shared if shared.store.exists else LocalStorage(_here(path), rank.number, rank.graph, rank.host.name)


def finish(rank: Rank, path: str, own: bool) -> None:
    """Write pending records of killed processes of this host to the store's logs."""
    if not is_remote(path):
        finish_logs(Storage(_here(path), rank.number).store.path, own)


def survey(rank: Rank, path: str, epoch: int | None, repair: bool) -> Value:
    """Return the content of a store, from rank 0.

    Without a store on a shared disk, the answer has `sees`: this worker's view of one on local disks.
    """
    storage = rank.storage = rank.storage or _storage(rank, path)
    return {"sees": storage.view()} if isinstance(storage, LocalStorage) else storage.scan_store(epoch, repair)


def scan_parts(rank: Rank, sees: list[Value], epoch: int | None, repair: bool) -> Value:
    """Scan this rank's logs of a store on local disks, given all ranks' views: `scans`, uint8[n]."""
    return {"scans": np.frombuffer(_local(rank).scan(sees, epoch, repair), np.uint8)}


def survey_parts(rank: Rank, scans: list[bytes], epoch: int | None, repair: bool) -> Value:
    """Merge the ranks' scans of a store on local disks into an answer like that of `survey`."""
    return _local(rank).merge_scans(scans, epoch, repair)


def new_parts(rank: Rank, path: str) -> Value:
    """Return the view `sees` of this rank's part of a new store on local disks."""
    rank.storage = local = LocalStorage(_here(path), rank.number, rank.graph, rank.host.name)
    return {"sees": local.view(new=True)}


def create_parts(rank: Rank, kind: Value, store: str, sees: list[Value], **how: Any) -> None:
    """Create a store like `create_store`, on local disks, given all ranks' views."""
    with all_or_none(rank.shard):
        _local(rank).begin_new(kind, store, sees)
    _start_log(rank, **how)


def _local(rank: Rank) -> LocalStorage:
    """Return the rank's store on local disks."""
    assert isinstance(rank.storage, LocalStorage), "the client asked first what this rank sees"
    return rank.storage


def _here(path: str) -> str:
    """Expand the environment's variables of this worker in a path."""
    here = os.path.expandvars(path)
    if path.startswith("$") and here == path:
        raise InvalidOption(f"store is {path}: this worker's environment has no such variable")
    return here


def create_store(rank: Rank, path: str, kind: Value, **how: Any) -> None:
    """Create a store for this new graph, and log its changes from now on."""
    rank.storage = Storage(_here(path), rank.number, rank.host.name)
    with all_or_none(rank.shard):
        rank.storage.create(kind)
    _start_log(rank, **how)


def restore(
    rank: Rank,
    epoch: int,
    repair: bool,
    how: Value | None,
    read_only: bool,
    after: int | None = None,
    recoveries: int = 0,
) -> Value:
    """Restore the surveyed epoch in this empty shard, then log changes with the options `how`, if given.

    The answer has the counts of each epoch after `after`: int64[6 * k], in the order of `TOLD`.
    """
    assert rank.storage is not None, "the client asked for no survey"
    stored = rank.storage.stored_graph(epoch, repair)
    known = restore_communities(rank.shard, rank.storage, stored, repair, writes=how is not None)
    counts = again.restore(rank.shard, rank.ballot, rank.storage.store, stored, after, known)
    rank.shard.restart_counters()
    rank.recoveries = recoveries
    rank.storage.read_keys(rank.shard, stored)
    rank.ballot.keys = rank.storage.keys if rank.number == 0 else None
    if how is not None:
        _start_log(rank, **how)
    elif read_only:
        rank.ballot.log = ReadOnly(epoch, f"this graph was opened as of epoch {epoch}")
    return {"epoch": rank.shard.epoch, "counts": counts}


def begin_at(rank: Rank, epoch: int, latest: int | None = None) -> None:
    """Continue from `epoch`, in a copy of another graph without a store.

    `latest` is the latest time seen, in a graph with times.
    """
    assert rank.ballot.log is None, "epochs of a store are its own"
    rank.shard.epoch = epoch
    if rank.shard.clock is not None and latest is not None:
        rank.shard.clock.begin(latest)


def latest(rank: Rank) -> Value:
    """Return the latest time seen; None in a graph without times."""
    return {"latest": None if rank.shard.clock is None else rank.shard.clock.latest}


def keys(rank: Rank, generation: int = -1, n: int = 0) -> Value:
    """Return the keys that a client with `n` keys of `generation` lacks; from rank 0."""
    if rank.ballot.keys is not None:
        return rank.ballot.keys.since(generation, n)
    return {} if rank.storage is None else rank.storage.keys.since(generation, n)


def share_keys(rank: Rank, keys: np.ndarray | None = None) -> None:
    """Track the vertices' keys on rank 0 for other clients, starting with `keys`."""
    if rank.number == 0:
        rank.ballot.keys = KeyLog(None if keys is None else KeyArray.unpacked(keys), rank.shard.generation)


def _start_log(rank: Rank, **how: Any) -> None:
    """Start the log of a rank's store, with options of `How`."""
    assert rank.storage is not None
    rank.ballot.keys = rank.storage.keys if rank.number == 0 else None
    rank.ballot.log = rank.storage.start(rank.shard, How(**how), rank.attempt, rank.aborted)
    rank.shard.remembered.kept = True


def snapshot(rank: Rank) -> None:
    """Begin a snapshot of this rank's edges."""
    rank.stored().snapshot(rank.shard)


def save(rank: Rank, path: str, kind: Value, keys: np.ndarray | None = None) -> None:
    """Begin to write this rank's edges to a separate folder, and on rank 0 the vertices' keys."""
    if rank.storage is None:
        rank.storage = Storage(_here(path), rank.number, rank.host.name)
    rank.storage.save(rank.shard, _here(path), kind, keys)


def writing(rank: Rank, problem: str | None = None) -> Value:
    """Return the progress of snapshots: `busy`, and the last `problem`.

    With `problem`, the error of another rank's part as the client learnt it, this rank ends its wait for that part.
    """
    if problem is not None and rank.storage is not None:
        rank.storage.end_snapshot(problem)
    return {"busy": False, "problem": None} if rank.storage is None else rank.storage.writing


def store(rank: Rank) -> Value:
    """Return the state of this rank's log, from `Storage.report`."""
    return {} if rank.storage is None else rank.storage.report()
