"""Making a graph again from its store: the edges of a snapshot, and then the logged changes, in stream order.

All ranks call `restore` together, on any number of ranks, and each finds the same changes. Small records are joined to
batches, of which each rank takes a contiguous part; a record of many operations is cut into parts. So a batch's rank
order is stream order, whatever ranks wrote the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from mgraph.errors import StoreError
from mgraph.log.files import Files
from mgraph.log.records import DELETES, OP, Entry, body_of, columns_of
from mgraph.log.store import Store, Survey
from mgraph.worker.ballot import Ballot
from mgraph.worker.change import BatchChange
from mgraph.worker.route import incident_runs, route, share_runs
from mgraph.worker.shard import Shard
from mgraph.worker.snapshot import parts_of

__all__ = ["restore"]

CHUNK = 1 << 21  #: operations that a rank takes at a time, which bounds the memory that they need

Columns = dict[str, Any]


def restore(shard: Shard, ballot: Ballot, store: Store, found: Survey) -> None:
    """Apply what was found in a store to an empty shard of a graph with all its vertices.

    Raises
    ------
    StoreError
        A record that was synced is damaged.
    CapacityError
        A worker has too little memory.
    """
    making = _Replay(shard, ballot, store.files)
    if found.snapshot is not None:
        for columns in parts_of(shard, store, found.snapshot, CHUNK):
            making.apply(columns, op=False)
    entries = [entry for shares in found.shares for entry in shares]
    for kind, group in groupby(entries, lambda entry: entry.kind):
        if kind == "batch":
            making.batches(list(group))
        elif kind == "delete_vertices":
            making.deletions(list(group))
    ballot.settle()
    shard.epoch = found.epoch  # of vertices that were added there are as many as at the end


class _Replay:
    """Applies records to a shard.

    Parameters
    ----------
    shard : Shard
    ballot : Ballot
    files : Files
    """

    def __init__(self, shard: Shard, ballot: Ballot, files: Files) -> None:
        self._shard, self._ballot, self._files = shard, ballot, files
        self._path, self._data = "", np.empty(0, np.uint8)

    def batches(self, entries: Sequence[Entry]) -> None:
        """Apply batches, which follow one another."""
        for group, mask in _groups(entries, CHUNK * self._shard.size):
            for mine in self._parts(group):
                self.apply(mine, bool(mask & (OP | DELETES)))

    def _parts(self, group: Sequence[Entry]) -> Iterator[Columns]:
        """The parts of this rank, of each of the batches that a group becomes."""
        shard, total = self._shard, sum(entry.n for entry in group)
        step = CHUNK * shard.size
        for at in range(0, total, step):
            n = min(step, total - at)
            first, end = at + n * shard.rank // shard.size, at + n * (shard.rank + 1) // shard.size
            yield self._cut(group, first, end)

    def _cut(self, group: Sequence[Entry], first: int, end: int) -> Columns:
        """The operations `first` to `end` - 1 of the records of a group."""
        parts, at = [], 0
        for entry in group:
            lo, hi = max(first - at, 0), min(end - at, entry.n)
            at += entry.n
            if lo < hi:
                parts.append(_filled(self._columns(entry), lo, hi, self._shard.spec.weighted))
        names = ("src", "dst", "op", *(("weight",) if self._shard.spec.weighted else ()))
        dtypes = {"src": np.uint32, "dst": np.uint32, "op": np.int8, "weight": np.float32}
        return {
            name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0, dtypes[name])
            for name in names
        }

    def _columns(self, entry: Entry) -> Columns:
        if entry.path != self._path:
            self._path, self._data = entry.path, self._files.map(entry.path)
        body = body_of(self._data, entry)
        if body is None:
            raise StoreError(
                f"{entry.path}, offset {entry.at}: the record of epoch {entry.epoch} is damaged; the store is whole up "
                f"to epoch {entry.epoch - 1}; repair=True opens it there and gives up the rest"
            )
        return columns_of(entry, body)

    def apply(self, columns: Columns, op: bool) -> None:
        """Apply this rank's part of a batch."""
        shard = self._shard
        with shard.working():
            runs = share_runs(
                shard, columns["src"], columns["dst"], columns.get("weight"), columns["op"] if op else None
            )
            self._ballot.decide(BatchChange(shard, [route(shard, run) for run in runs]))

    def deletions(self, entries: Sequence[Entry]) -> None:
        """Delete the edges of vertices, which every rank was told."""
        for _, shares in groupby(entries, lambda entry: entry.epoch):
            columns = self._columns(next(iter(shares)))
            self._ballot.decide(BatchChange(self._shard, incident_runs(self._shard, columns["ids"])))


def _groups(entries: Sequence[Entry], most: int) -> Iterator[tuple[list[Entry], int]]:
    """Records in stream order with `most` operations together, or one with more; and the columns that any has."""
    group: list[Entry] = []
    total = 0
    for entry in entries:
        if group and total + entry.n > most:
            yield group, _mask(group)
            group, total = [], 0
        group.append(entry)
        total += entry.n
    if group:
        yield group, _mask(group)


def _mask(group: Sequence[Entry]) -> int:
    mask = 0
    for entry in group:
        mask |= entry.mask
    return mask


def _filled(columns: Columns, lo: int, hi: int, weighted: bool) -> Columns:
    """A part of a record's columns, with the op and the weight that stand for those left out."""
    op, weight, n = columns["op"], columns["weight"], hi - lo
    part = {"src": columns["src"][lo:hi], "dst": columns["dst"][lo:hi]}
    part["op"] = np.full(n, 1 if op is None else op, np.int8) if op is None or isinstance(op, int) else op[lo:hi]
    if weighted:
        part["weight"] = np.ones(n, np.float32) if weight is None else weight[lo:hi]
    return part
