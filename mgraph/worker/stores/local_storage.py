"""A rank's part of a store on local disks: a `Storage` with steps on which the ranks agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgraph.errors import MgraphError
from mgraph.log.local_disks import LocalStore
from mgraph.log.manifest import StoredGraph
from mgraph.log.recovery_scan import scan_store
from mgraph.log.snapshot import folder_of
from mgraph.worker.shard.shard import Shard
from mgraph.worker.stores.all_or_none import all_or_none
from mgraph.worker.stores.storage import Storage, Value

__all__ = ["LocalStorage"]


class LocalStorage(Storage):
    """The open files of a rank of a store on local disks.

    Parameters
    ----------
    path : str
    rank : int
    graph : str
        The graph's id.
    who : str
        The name of this rank's process in messages.
    """

    store: LocalStore

    def __init__(self, path: str, rank: int, graph: str, who: str = "") -> None:
        super().__init__(path, rank, who)
        self.store = LocalStore(path, rank, graph, who)
        self._views: Sequence[Value] = ()
        self._whole: list[Mapping[str, Any]] = []  # the snapshots that all ranks know to be whole, by epoch
        self._begun: Mapping[str, Any] | None = None  # the one that was begun last

    # ---- before there is a shard -------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Lock the folder for this graph, if it exists."""
        if self.store.has():
            self._lock()

    def view(self, new: bool = False) -> Value:
        """Return this worker's view of the store.

        With `new`, the folder must hold none.
        """
        if new:
            self.store.check_new()
        return self.store.view()

    def scan(self, sees: Sequence[Value], epoch: int | None, repair: bool) -> bytes:
        """Scan the logs of this rank, by the views of all ranks."""
        self._views = sees
        self.store.merge_views(sees)
        return self.store.scan_own(epoch, repair)

    def merge_scans(self, scans: Sequence[bytes], epoch: int | None, repair: bool) -> Value:
        """Return the summary of the stored graph, by all ranks' scans."""
        self.store.merge_scans(scans)
        self._stored = scan_store(self.store, epoch, repair)
        self._whole = list(self.store.archive.snapshots())
        return self._stored.summary

    def begin_new(self, kind: Value, store: str, sees: Sequence[Value]) -> None:
        """Make the folder of a new store with the id `store`."""
        self._views = sees
        if self.rank == 0:
            self.store.check_place(kind)
        self.store.make_folder()
        self._lock()
        self.store.check_new()
        self.store.describe_new(kind, store)
        if self.rank == 0:
            self.store.mark_archive(self.store.about())

    def stored_graph(self, epoch: int, repair: bool) -> StoredGraph:
        """Return the stored graph, the same on all ranks."""
        self.store.about()  # says so where no rank sees anything
        assert self._stored is not None
        return self._stored

    @property
    def sees_communities(self) -> bool:
        """True if this rank is to look for the communities that were saved when the graph closed."""
        return True

    # ---- the log -----------------------------------------------------------------------------------------------------

    def _begin(self, shard: Shard, sync: str) -> None:
        with all_or_none(shard):
            self.store.make_folder()
            self._lock()
            self.store.sync_own(self._stored)
        with all_or_none(shard):
            self.store.begin_part(self._stored, shard.size, sync, self._views)

    def _lock(self) -> None:
        if not self._locks:
            self._locks.extend(self.store.own())

    def _has(self) -> Value:
        return super()._has() | {"disks": "local"} | ({"snapshots": []} if self._alone else {})

    def report(self) -> Value:
        """Return the report of this worker's part.

        `whole` joins the snapshots of all.
        """
        segments, nbytes = self.store.usage()
        seen = {"folder": self.store.usage_key(), "segments": segments, "nbytes": nbytes}
        return super().report() | {"seen": seen, "marks": list(self.store.marks()) if self._alone else []}

    @property
    def _alone(self) -> bool:
        """True if the snapshots are beside the logs."""
        return self.store.archive is self.store

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self, shard: Shard) -> None:
        """Begin a snapshot.

        The ranks agree first if the last one is whole, and drop what it replaces.
        """
        # Agree whether the last snapshot is whole: 0 while it is written, 1 if it is not, 2 if it is.
        last, snapshots = self._begun, self._of(shard)
        says = 0 if snapshots.busy else 1 if last is None or snapshots.problem is not None else 2
        agreed = int(shard.exchange.allreduce(np.array([says], np.int8), "min")[0])
        if agreed == 0:
            raise MgraphError(f"{shard}: a snapshot is being written; wait for it")
        if not self._alone:
            self._check_shared(shard, self.store.archive)
        self._begun = None
        if agreed == 2 and last is not None:
            self._whole.append(last)
            self._drop()

        # Begin a segment on each rank, and tell all ranks its place.
        places = np.zeros(shard.size, np.int64)
        with all_or_none(shard):
            assert self.log is not None
            places[self.rank] = self.log.rotate()
        places = shard.exchange.allreduce(places, "sum")
        self._write(shard, int(places[self.rank]), local=self._alone)
        folder = folder_of(shard.epoch, self._term, shard.changes)
        self._begun = {"folder": folder, "term": self._term, "places": places.tolist()}

    def _drop(self) -> None:
        """Drop all but the newest whole snapshots, and the log before them."""
        # The newest are kept for all ranks alike.
        if self._retain and self._whole:
            self._whole = self._whole[-self._retain :]
            self.store.drop_before(self._whole[0])

    def close(self) -> None:
        """Close the log, release the locks, and remove this rank's lock file."""
        locked = bool(self._locks)
        super().close()
        if locked:
            self.store.disown()
