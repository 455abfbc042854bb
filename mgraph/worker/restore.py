"""Making a graph again from its store: the edges of a snapshot, and then the logged changes, in stream order.

All ranks call `restore` together, on any number of ranks, and each finds the same changes. Small records are joined to
batches, of which each rank takes a contiguous part; a record of many operations is cut into parts. So a batch's rank
order is stream order, whatever ranks wrote the records. Records on a local disk are read by the rank that holds them,
and sent to those that take a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from mgraph.batch import TOLD
from mgraph.device import Device
from mgraph.errors import StoreError
from mgraph.keys import Names
from mgraph.log.files import Files
from mgraph.log.records import DELETES, KEYS, OP, REMOVALS, WITHIN, Entry, body_of, columns_of, keys_of
from mgraph.log.snapshot import check_file, keys_in, mapped, read_keys
from mgraph.log.store import Store, Survey
from mgraph.times import MOST
from mgraph.worker.ballot import Ballot
from mgraph.worker.carry import Piece, carried
from mgraph.worker.change import BatchChange, VerticesChange, expiry
from mgraph.worker.keys import KeyLog
from mgraph.worker.removal import Removal
from mgraph.worker.route import incident_runs, route, share_runs
from mgraph.worker.shard import Shard
from mgraph.worker.snapshot import parts_of
from mgraph.worker.trim import trimmed

__all__ = ["keys_at", "restore"]

#: operations that a rank takes at a time, at most and at least; fewer and larger batches take less time
CHUNK, LEAST = 1 << 23, 1 << 21
BYTES = 128  #: of memory that an operation takes meanwhile; about 30 of a directed graph without weights
#: of the columns of a batch
DTYPES = {"src": np.uint32, "dst": np.uint32, "op": np.int8, "weight": np.float32, "time": np.int64}

Columns = dict[str, Any]
Cut = tuple[Entry, int, int]  #: the operations `lo` to `hi` - 1 of a record


def restore(shard: Shard, ballot: Ballot, store: Store, found: Survey, after: int | None = None) -> np.ndarray:
    """Apply what was found in a store to an empty shard of a graph with all its vertices.

    Returns
    -------
    int64[6 * k]
        What this rank counted in each of the k epochs behind `after`, in the order of `TOLD`; these are applied one
        by one. None are counted without `after`, or by epochs that are in a snapshot.

    Raises
    ------
    StoreError
        A record that was synced is damaged.
    CapacityError
        A worker has too little memory.
    """
    making = _Replay(shard, ballot, store.files)
    if found.snapshot is not None:
        for columns in parts_of(shard, store, found.snapshot, making.step):
            making.apply(columns, op=False, admitted=True)
        if shard.clock is not None:
            shard.clock.begin(found.snapshot["latest"])
    alone = found.epoch if after is None else after
    if shard.clock is not None and shard.clock.moves:  # what a batch makes of a window depends on those before it
        alone = -1
    entries = [entry for shares in found.shares for entry in shares if entry.epoch <= alone]
    for kind, group in groupby(entries, lambda entry: entry.kind):
        making.changes(kind, list(group))
    counted = [
        (shares[0], making.counted(shares[0].kind, shares)) for shares in found.shares if shares[0].epoch > alone
    ]
    told = [
        counts for entry, counts in counted if after is not None and entry.epoch > after and entry.kind not in WITHIN
    ]
    counts = np.array(told, np.int64).reshape(-1)
    if found.left < shard.n_vertices:  # the shard was made for the most vertices that there were
        making.remove(np.arange(found.left, shard.n_vertices, dtype=np.uint32))
    ballot.settle()
    shard.epoch = found.epoch  # of vertices that were added there are as many as at the end
    return counts


def keys_at(shard: Shard, store: Store, found: Survey) -> Names | None:
    """The keys of the vertices as of the end of what was found in a store, on rank 0; None if there was none.

    All ranks call it together.

    Raises
    ------
    StoreError
        A file or a record is damaged.
    """
    names, bodies = None, _Bodies(store.files)
    about = (found.snapshot or {}).get("keys")
    if about is not None:
        named = _named_keys(shard, store, about)
        if shard.rank == 0:
            names = Names(about["kind"], Device("cpu"))
            names.append(named)
    keys = KeyLog(names)
    entries = [shares[0] for shares in found.shares]
    entries = [entry for entry in entries if entry.mask & KEYS or entry.kind in REMOVALS]
    here = [entry for entry in entries if entry.holder is not None]
    sent = iter(carried(shard, [[_body(entry) for entry in here], *[[] for _ in range(1, shard.size)]], bodies.read))
    for entry in entries if shard.rank == 0 else []:
        body = bodies.read(entry) if entry.holder is None else next(sent)
        keys.note(keys_of(entry, body), columns_of(entry, body).get("ids"))
    return keys.names


def _named_keys(shard: Shard, store: Store, about: Mapping[str, Any]) -> Any:
    """The keys of a snapshot, on rank 0."""
    if about.get("holder") is None:
        return read_keys(store.archive, about) if shard.rank == 0 else None

    def load(about: Mapping[str, Any]) -> np.ndarray:
        check_file(store, about)
        return mapped(store, about)

    piece = Piece(about["holder"], about["nbytes"], about)
    sent = carried(shard, [[piece], *[[] for _ in range(1, shard.size)]], load)
    return keys_in(about, sent[0]) if sent else None


def _body(entry: Entry) -> Piece:
    assert entry.holder is not None
    return Piece(entry.holder, entry.nbytes, entry)


class _Bodies:
    """Reads records.

    Parameters
    ----------
    files : Files
    """

    def __init__(self, files: Files) -> None:
        self._files, self._path, self._data = files, "", np.empty(0, np.uint8)

    def read(self, entry: Entry) -> np.ndarray:
        """The bytes of a record's columns; `StoreError` if they are not what was written."""
        if entry.path != self._path:
            self._path, self._data = entry.path, self._files.map(entry.path)
        body = body_of(self._data, entry)
        if body is None:
            raise StoreError(
                f"{entry.path}, offset {entry.at}: the record of epoch {entry.epoch} is damaged; the store is whole up "
                f"to epoch {entry.epoch - 1}; repair=True opens it there and gives up the rest"
            )
        return body


class _Replay:
    """Applies records to a shard.

    Parameters
    ----------
    shard : Shard
    ballot : Ballot
    files : Files

    Attributes
    ----------
    step : int
        How many operations a rank takes at a time, the same on all ranks: half of the free memory of each suffices for
        those of all.
    """

    def __init__(self, shard: Shard, ballot: Ballot, files: Files) -> None:
        self._shard, self._ballot, self._bodies = shard, ballot, _Bodies(files)
        free = min(shard.device.memory_free, shard.device.host.memory_free)
        room = np.array([free // (2 * BYTES * shard.size)], np.int64)
        self.step = min(CHUNK, max(LEAST, int(shard.exchange.allreduce(room, "min")[0])))

    def changes(self, kind: str, entries: Sequence[Entry]) -> None:
        """Apply changes of one kind, which follow one another."""
        if kind == "batch":
            for group, mask in _groups(entries, self.step * self._shard.size):
                for mine in self._parts(group, self.step * self._shard.size):
                    self.apply(mine, bool(mask & (OP | DELETES)))
        elif kind == "delete_vertices":
            for _, shares in groupby(entries, lambda entry: entry.epoch):
                self._delete(next(iter(shares)))
        elif kind in REMOVALS:
            for _, shares in groupby(entries, lambda entry: (entry.epoch, entry.attempt)):
                self._remove(next(iter(shares)))
        elif kind == "expire":
            for _, shares in groupby(entries, lambda entry: entry.epoch):
                self._expire(next(iter(shares)))

    def counted(self, kind: str, shares: Sequence[Entry]) -> list[int]:
        """Apply one epoch as it was applied first, and so with the same counts; those of this rank."""
        told: dict[str, int] = {}
        if kind == "batch":
            total = sum(entry.n for entry in shares)
            for mine in self._parts(shares, max(1, total)):
                told = self.apply(mine, bool(_mask(shares) & (OP | DELETES)))
        elif kind == "delete_vertices":
            told = self._delete(shares[0])
        elif kind in REMOVALS:
            told = self._remove(shares[0])
        elif kind == "expire":
            told = self._expire(shares[0])
        return [told.get(name, 0) for name in TOLD]

    def _parts(self, group: Sequence[Entry], step: int) -> Iterator[Columns]:
        """The parts of this rank, of each of the batches of up to `step` operations that a group becomes."""
        shard, total = self._shard, sum(entry.n for entry in group)
        for at in range(0, total, step):
            n = min(step, total - at)
            bounds = [at + n * rank // shard.size for rank in range(shard.size + 1)]
            yield self._cut(group, bounds)

    def _cut(self, group: Sequence[Entry], bounds: Sequence[int]) -> Columns:
        """The operations of the records of a group for this rank; those for rank r begin at ``bounds[r]``."""
        kept = {"weight": self._shard.spec.weighted, "time": self._shard.clock is not None}
        dtypes = {name: dtype for name, dtype in DTYPES.items() if kept.get(name, True)}
        cuts = [list(_overlaps(group, first, end)) for first, end in pairwise(bounds)]
        parts = self._sent(cuts, dtypes) if any(entry.holder is not None for entry in group) else self._read(cuts)
        return {
            name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0, dtype)
            for name, dtype in dtypes.items()
        }

    def _read(self, cuts: Sequence[Sequence[Cut]]) -> list[Columns]:
        """What this rank takes of records that it sees."""
        return [_filled(self._columns(entry), lo, hi) for entry, lo, hi in cuts[self._shard.rank]]

    def _sent(self, cuts: Sequence[Sequence[Cut]], dtypes: Mapping[str, Any]) -> list[Columns]:
        """What this rank takes of records that their holders send."""
        width = sum(np.dtype(dtype).itemsize for dtype in dtypes.values())

        def load(cut: Cut) -> np.ndarray:
            entry, lo, hi = cut
            columns = _filled(columns_of(entry, self._bodies.read(entry)), lo, hi)
            return np.concatenate([np.ascontiguousarray(columns[name]).view(np.uint8) for name in dtypes])

        wanted = [[Piece(cut[0].holder or 0, (cut[2] - cut[1]) * width, cut) for cut in one] for one in cuts]
        return [_split(data, dtypes, len(data) // width) for data in carried(self._shard, wanted, load)]

    def _columns(self, entry: Entry) -> Columns:
        """The columns of a record; all ranks ask together for one that has a holder."""
        if entry.holder is None:
            return columns_of(entry, self._bodies.read(entry))
        (body,) = carried(self._shard, [[_body(entry)]] * self._shard.size, self._bodies.read)
        return columns_of(entry, body)

    def apply(self, columns: Columns, op: bool, admitted: bool = False) -> dict[str, int]:
        """Apply this rank's part of a batch; what it counted, by the names in `TOLD`.

        Nothing is late where it was `admitted` to a window.
        """
        shard = self._shard
        with shard.working():
            ops, tick = columns["op"] if op else None, None
            runs = share_runs(shard, columns["src"], columns["dst"], columns.get("weight"), ops, columns.get("time"))
            if not admitted:
                runs, tick = shard.admit(runs)
            routed, tick = trimmed(shard, [route(shard, run) for run in runs], tick)
            change = BatchChange(shard, routed, tick=tick)
            self._ballot.decide(change)
        return change.told

    def _expire(self, entry: Entry) -> dict[str, int]:
        """Delete edges by their time."""
        change = expiry(self._shard, self._columns(entry)["before"])
        self._ballot.decide(change)
        return change.told

    def _remove(self, entry: Entry) -> dict[str, int]:
        """Remove vertices, and add as many at the end, which later records may bring."""
        n, told = self._shard.n_vertices, self.remove(self._columns(entry)["ids"])
        self._ballot.decide(VerticesChange(self._shard, n))
        return told

    def remove(self, ids: np.ndarray) -> dict[str, int]:
        """Remove vertices; what it counted."""
        change = Removal(self._shard, ids)
        self._ballot.decide(change)
        return {"deleted": change.deleted}

    def _delete(self, entry: Entry) -> dict[str, int]:
        """Delete the edges of vertices, which every rank was told."""
        change = BatchChange(self._shard, incident_runs(self._shard, self._columns(entry)["ids"]))
        self._ballot.decide(change)
        return change.told


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


def _overlaps(group: Sequence[Entry], first: int, end: int) -> Iterator[Cut]:
    """The parts of records that have the operations `first` to `end` - 1 of a group."""
    at = 0
    for entry in group:
        lo, hi = max(first - at, 0), min(end - at, entry.n)
        at += entry.n
        if lo < hi:
            yield entry, lo, hi


def _split(data: np.ndarray, dtypes: Mapping[str, Any], n: int) -> Columns:
    """Columns of `n` rows that follow one another in bytes."""
    columns, at = {}, 0
    for name, dtype in dtypes.items():
        nbytes = n * np.dtype(dtype).itemsize
        columns[name] = data[at : at + nbytes].view(dtype)
        at += nbytes
    return columns


def _mask(group: Sequence[Entry]) -> int:
    mask = 0
    for entry in group:
        mask |= entry.mask
    return mask


def _filled(columns: Columns, lo: int, hi: int) -> Columns:
    """A part of a record's columns, with what stands for those left out; deletions need no time."""
    part, stands = {}, {"op": 1, "weight": 1, "time": MOST}
    for name, dtype in DTYPES.items():
        column = columns[name] if columns[name] is not None else stands[name]
        part[name] = np.full(hi - lo, column, dtype) if isinstance(column, int) else column[lo:hi]
    return part
