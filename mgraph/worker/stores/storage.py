"""A rank's part of its graph's store: creates it, scans it, begins its log, and closes it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mgraph.errors import InvalidOption, StoreError
from mgraph.keys import KeyArray
from mgraph.log.communities import FILE, write_communities
from mgraph.log.head import HeadWriter
from mgraph.log.log import Lag, Log
from mgraph.log.manifest import Head, StoredGraph, Term
from mgraph.log.records import log_id
from mgraph.log.recovery_scan import scan_store
from mgraph.log.segments import Segments
from mgraph.log.snapshot import folder_of
from mgraph.log.store import Store
from mgraph.worker.results.remembered import saved
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.shard.shard import Shard
from mgraph.worker.stores.all_or_none import all_or_none
from mgraph.worker.stores.restore import keys_at
from mgraph.worker.stores.shared_memory_tail import TAILED, tail_of
from mgraph.worker.stores.snapshot import Snapshots

__all__ = ["How", "Storage"]

logger = logging.getLogger(__name__)

Value = dict[str, Any]


@dataclass(frozen=True)
class How:
    """Options of the log; `DynamicGraph` documents each."""

    sync: str
    lag_bytes: int
    lag_seconds: float
    snapshot_bytes: int = 0
    retain: int = 2


class Storage:
    """The open files of a rank of a store.

    Rank 0 owns the descriptions and the lock; every rank has a log.

    Parameters
    ----------
    path : str
    rank : int
    who : str
        The name of this rank's process in messages.

    Attributes
    ----------
    log : Log or None
        None until `start`.
    keys : KeyLog
        The keys of the vertices, on rank 0.
    """

    def __init__(self, path: str, rank: int, who: str = "") -> None:
        self.store, self.rank, self._who = Store(path), rank, who
        self.log: Log | None = None
        self._stored: StoredGraph | None = None
        self._locks: list[Any] = []
        self._snapshots: Snapshots | None = None
        self._head: HeadWriter | None = None
        self.keys = KeyLog()
        self._communities: Value | None = None  # values that `close` writes
        self._term = self._retain = 0

    # ---- before there is a shard -------------------------------------------------------------------------------------

    def create(self, kind: Value) -> None:
        """Make the store, if this is rank 0."""
        if self.rank == 0:
            self.store.check_new()
            self.store.check_place(kind)
            self.store.make_folder()
            self._own()
            self.store.create(kind)

    def _own(self) -> None:
        """Lock the store for this graph, and check the ranks of earlier graphs."""
        self._locks.append(self.store.lock(who=self._who))
        self.store.check_ranks(self._who)

    def claim(self) -> None:
        """Lock the store for this graph, if this is rank 0."""
        if self.rank == 0:
            self.store.about()  # names what is wrong before a lock is made in a folder that is no store
            self._own()

    def scan_store(self, epoch: int | None, repair: bool) -> Value:
        """Return the summary of the stored graph for the client, from rank 0."""
        if self.rank != 0:
            return {}
        self._stored = scan_store(self.store, epoch, repair)
        return self._stored.summary

    def read_keys(self, shard: Shard, found: StoredGraph) -> None:
        """Read the vertices' keys at the end of the stored graph, on rank 0. All ranks call it together."""
        names = keys_at(shard, self.store, found)
        if self.rank == 0:
            self.keys = KeyLog(names, shard.generation)

    def stored_graph(self, epoch: int, repair: bool) -> StoredGraph:
        """Return the stored graph up to `epoch`."""
        if self._stored is None:
            self._stored = scan_store(self.store, epoch, repair)
        return self._stored

    @property
    def sees_communities(self) -> bool:
        """True if this rank is to look for the communities that were saved when the graph closed."""
        return self.rank == 0

    # ---- the log -----------------------------------------------------------------------------------------------------

    def _begin(self, shard: Shard, sync: str) -> None:
        """Describe the new term.

        An allreduce tells the ranks that its description is written.
        """
        with all_or_none(shard):
            if self.rank == 0:
                self.store.begin_term(self._stored, shard.size, sync)

    def _lock(self) -> None:
        """Lock the files that this rank writes."""
        self._locks.append(self.store.lock_rank(self.rank, self._who))

    def _newest(self) -> Term:
        """Return the newest term, under this rank's lock: the one that follows the stored graph.

        A worker that was stopped for long may come here when its graph is lost and another one has opened the store,
        and closed it. It must not write into the other one's log.
        """
        term, begun = self.store.terms()[-1], 1 + (self._stored.term if self._stored else 0)
        if term.number != begun:
            raise StoreError(f"{self.store.path} was opened again as term {term.number}, while term {begun} began here")
        return term

    def start(self, shard: Shard, how: How, attempt: int, aborted: Callable[[], bool]) -> Log:
        """Begin a term, on all ranks together, and this rank's log in it.

        An allreduce tells the ranks that all logs exist before any head names one, since a failed sync on one rank may
        drop another log's name from their common folder. Nothing is logged before all heads exist.
        """
        self._begin(shard, how.sync)
        with all_or_none(shard):
            # Make the log, in a folder of its own.
            about = self.store.about()  # raises an error if this worker does not see what rank 0 wrote
            self._lock()
            term, name = self._newest(), f"mgraph-{shard.spec.graph}-{self.rank}-log"
            number = log_id(about["id"], term.number, self.rank)
            folder = self.store.log_folder(term.number, self.rank)
            segments = Segments(self.store.files, folder, number)
            log = self.log = Log(
                segments, how.sync, shard.epoch, name=name, aborted=aborted, lag=Lag(how.lag_bytes, how.lag_seconds),
                snapshot_bytes=-(-how.snapshot_bytes // shard.size),
            )  # fmt: skip

            # Continue the offsets and the snapshots of the stored graph.
            log.attempt, self._term, self._retain = attempt, term.number, how.retain
            if self._stored:
                log.offsets, log.last = dict(self._stored.offsets), self._stored.last
            log.since = -(self._stored.nbytes if self._stored else 0) // shard.size
            if how.sync == "background" and shard.device.kind in TAILED:
                log.attach_tail(partial(tail_of, shard.device, how.lag_bytes, number, folder))

        # Name the log in the rank's head: from now on it cannot be missing.
        with all_or_none(shard):
            head = Head(about["id"], term, self.rank, 0, shard.epoch)
            self._head = HeadWriter(self.store, head, log, f"mgraph-{shard.spec.graph}-{self.rank}-head")
            self._head.write()
            self._head.start()
            log.snapshot, log.busy = partial(self._automatic, shard), lambda: self._of(shard).busy
        self._stored = None
        return log

    def report(self) -> Value:
        """Return how far the log is durable, the lag in bytes, and on rank 0 the contents of the store.

        Waits until the log's file has all that was acknowledged.
        """
        log = self.log
        if log is not None:
            log.flush()
        # Every rank has its log; the descriptions are read by rank 0.
        mine = {"durable": log.durable if log else 0, "lag": log.lag if log else 0, "logged": log.place if log else 0}
        return mine | (self._has() if self.rank == 0 else {})

    def _has(self) -> Value:
        segments, nbytes = self.store.usage()
        snapshots = [about["epoch"] for about in self.store.archive.snapshots()]
        offsets = dict(self.log.offsets) if self.log else {}
        return {"segments": segments, "nbytes": nbytes, "snapshots": snapshots, "offsets": offsets, "disks": "shared"}

    def check_offset(self, offset: tuple[str, int]) -> None:
        """Raise `InvalidOption` unless a place in a source is new."""
        assert self.log is not None
        name, n = offset
        if n <= (last := self.log.offsets.get(name, -1)):
            raise InvalidOption(f"offset is {n} of {name!r}, which is in the graph up to {last}: the batch is there")

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self, shard: Shard) -> None:
        """Begin a snapshot; the log goes on in a new segment."""
        assert self.log is not None
        if self.store.archive is not self.store:
            self._check_shared(shard, self.store.archive)
        with all_or_none(shard):  # otherwise rank 0 would wait for the part of a rank that failed
            self._of(shard).check_idle(shard)
            place = self.log.rotate()
        self._write(shard, place)

    def _write(self, shard: Shard, place: int, local: bool = False) -> None:
        """Begin to write a snapshot; later changes follow `place`."""
        assert self.log is not None
        more = {"offsets": dict(self.log.offsets), "last": self.log.last}
        self._of(shard).begin(
            shard, self.store, place, self._term, self._retain, more=more, names=self.keys.names, local=local,
            communities=self._saved(shard),
        )  # fmt: skip
        self.log.since = place
        if self._head is not None:
            self._head.hurry()

    def _saved(self, shard: Shard, closed: bool = False) -> Value | None:
        """Return the names of communities to save, on rank 0."""
        return {"term": self._term, "closed": closed, **saved(shard)} if self.rank == 0 else None

    def _automatic(self, shard: Shard) -> None:
        try:
            self.snapshot(shard)
        except Exception as error:  # only logged: the change before it is made
            logger.warning("%s: no snapshot was taken: %s", shard, error)
            assert self.log is not None
            self.log.since = self.log.place  # try again after as many bytes

    def save(self, shard: Shard, path: str, kind: Value, keys: Any = None) -> None:
        """Begin a snapshot that is a store of its own.

        `keys` are the vertices' keys, on rank 0.
        """
        store = Store(path)
        with all_or_none(shard):
            self._of(shard).check_idle(shard)
            if store.exists:
                raise InvalidOption(f"{store.path} holds a store or a saved graph: choose another folder")
            if self.rank == 0:  # remove parts of a copy that was not completed, maybe of another graph
                store.make_folder()
                store.files.remove(store.at(folder_of(shard.epoch, 0, shard.changes)))
        self._check_shared(shard, store)
        names = None if keys is None else KeyArray.unpacked(keys)
        communities = self._saved(shard, closed=True)
        communities = communities and {**communities, "term": 0}
        self._of(shard).begin(shard, store, 0, 0, 0, kind, names=names, communities=communities)

    def _check_shared(self, shard: Shard, store: Store) -> None:
        """Raise `StoreError` on a rank that does not see rank 0's folder."""
        # Rank 0 writes a file, and the others look for it.
        mark = store.at(f"{shard.spec.graph}-{shard.changes}.seen")
        try:
            with all_or_none(shard):
                if self.rank == 0:
                    store.make_folder()
                    store.describe(os.path.basename(mark), {"host": socket.gethostname()})
            with all_or_none(shard):
                if not store.has(os.path.basename(mark)):
                    raise StoreError(
                        f"{shard}, on host {socket.gethostname()}, does not see what rank 0 has written to "
                        f"{store.path}: it must be a folder that all workers share, or a URL"
                    )
        finally:
            if self.rank == 0:
                with suppress(OSError):
                    store.files.remove(mark)

    def _of(self, shard: Shard) -> Snapshots:
        if self._snapshots is None:
            self._snapshots = Snapshots(self.rank, shard.size)
        return self._snapshots

    @property
    def writing(self) -> Value:
        """Flags of the snapshot that is being written, and the error of the last one; `lacked` if memory ran out."""
        if (snapshots := self._snapshots) is None:
            return {"busy": False, "problem": None}
        return {"busy": snapshots.busy, "problem": snapshots.problem, "lacked": snapshots.lacked}

    def end_snapshot(self, problem: str) -> None:
        """End a snapshot, because another rank does not write its part for the reason `problem`."""
        if self._snapshots is not None:
            self._snapshots.fail(problem)

    def keep_communities(self, shard: Shard) -> None:
        """Copy the names of communities, which `close` writes."""
        if self.log is not None:
            try:
                self._communities = self._saved(shard, closed=True)
            except Exception as error:  # the device may be lost
                logger.warning("%s: the names of communities were not saved: %s", shard, error)

    def close(self) -> None:
        """Close the log, write the names of communities, and then release the locks."""
        # The head names what the closed log has; the locks go last.
        if self._snapshots is not None:
            self._snapshots.close()
        if self.log is not None:
            self.log.close()
        if self._communities is not None:
            try:
                write_communities(self.store, FILE, self.store.about()["id"], self._communities)
            except StoreError as error:
                logger.warning("the names of communities were not saved: %s", error)
        if self._head is not None:
            self._head.close()
        locks, self._locks = self._locks, []
        for lock in locks:
            with suppress(OSError):
                lock.close()
