"""The store of a graph: its log, its snapshots, and what is made again from them."""

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
from mgraph.worker.stores.disks import LocalStorage
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
    """Make this graph the only one that writes a store, before anybody finds out what that holds."""
    rank.storage = _storage(rank, path)
    rank.storage.claim()


def _storage(rank: Rank, path: str) -> Storage:
    """The store that this worker sees on a disk that all share; else what it may see of one on local disks."""
    shared = Storage(_here(path), rank.number, rank.host.name)
    shared.store.check_described()
    return shared if shared.store.exists else LocalStorage(_here(path), rank.number, rank.graph, rank.host.name)


def finish(rank: Rank, path: str, own: bool) -> None:
    """Write to the store's logs what processes of this host that were killed had yet to write."""
    if not is_remote(path):
        finish_logs(Storage(_here(path), rank.number).store.path, own)


def survey(rank: Rank, path: str, epoch: int | None, repair: bool) -> Value:
    """What a store holds, for a graph that is to be made from it; from rank 0.

    If this worker sees no store on a disk that all share, the answer has `sees`: what it sees of one on local disks.
    """
    storage = rank.storage = rank.storage or _storage(rank, path)
    return {"sees": storage.view()} if isinstance(storage, LocalStorage) else storage.scan_store(epoch, repair)


def scan_parts(rank: Rank, sees: list[Value], epoch: int | None, repair: bool) -> Value:
    """What the logs say that this rank reads of a store on local disks, by what all ranks see: `scans`, uint8[n]."""
    return {"scans": np.frombuffer(_local(rank).scan(sees, epoch, repair), np.uint8)}


def survey_parts(rank: Rank, scans: list[bytes], epoch: int | None, repair: bool) -> Value:
    """As `survey`, of a store on local disks, by what all ranks have scanned."""
    return _local(rank).merge_scans(scans, epoch, repair)


def new_parts(rank: Rank, path: str) -> Value:
    """Where this rank's part of a new store on local disks will be: `sees`."""
    rank.storage = local = LocalStorage(_here(path), rank.number, rank.graph, rank.host.name)
    return {"sees": local.view(new=True)}


def create_parts(rank: Rank, kind: Value, store: str, sees: list[Value], **how: Any) -> None:
    """As `create_store`, on local disks, by what all ranks see."""
    with all_or_none(rank.shard):
        _local(rank).begin_new(kind, store, sees)
    _start_log(rank, **how)


def _local(rank: Rank) -> LocalStorage:
    assert isinstance(rank.storage, LocalStorage), "the client asked first what this rank sees"
    return rank.storage


def _here(path: str) -> str:
    """A path as this worker has it, with its environment's variables."""
    here = os.path.expandvars(path)
    if path.startswith("$") and here == path:
        raise InvalidOption(f"store is {path}: this worker's environment has no such variable")
    return here


def create_store(rank: Rank, path: str, kind: Value, **how: Any) -> None:
    """Make a store for this graph, which has no epoch yet, and log what changes from now on."""
    rank.storage = Storage(_here(path), rank.number, rank.host.name)
    with all_or_none(rank.shard):
        rank.storage.create(kind)
    _start_log(rank, **how)


def restore(
    rank: Rank, epoch: int, repair: bool, how: Value | None, read_only: bool, after: int | None = None
) -> Value:
    """Make the surveyed epoch again in this empty shard; then log what changes, where `how` says how.

    The answer has the counts of each epoch behind `after`: int64[6 * k], in the order of `TOLD`.
    """
    assert rank.storage is not None, "the client asked for no survey"
    found = rank.storage.stored_graph(epoch, repair)
    counts = again.restore(rank.shard, rank.ballot, rank.storage.store, found, after)
    rank.storage.read_keys(rank.shard, found)
    rank.ballot.keys = rank.storage.keys if rank.number == 0 else None
    if how is not None:
        _start_log(rank, **how)
    elif read_only:
        rank.ballot.log = ReadOnly(epoch, f"this graph was opened as of epoch {epoch}")
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
        rank.ballot.keys = KeyLog(None if keys is None else KeyArray.unpacked(keys), rank.shard.generation)


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
        rank.storage = Storage(_here(path), rank.number, rank.host.name)
    rank.storage.save(rank.shard, _here(path), kind, keys)


def writing(rank: Rank) -> Value:
    """Whether a snapshot is being written, and why the last one was not."""
    return {"busy": False, "problem": None} if rank.storage is None else rank.storage.writing


def store(rank: Rank) -> Value:
    """How far this rank's log is; see `Storage.report`."""
    return {} if rank.storage is None else rank.storage.report()
