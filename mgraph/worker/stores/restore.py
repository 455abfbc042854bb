"""Restores a graph from its store: the edges of a snapshot, and then the logged changes, in stream order.

All ranks call `restore` together, on any number of ranks, and each finds the same changes. Small records are joined to
batches, of which each rank takes a contiguous part; a record of many operations is cut into parts. So a batch's rank
order is stream order, whatever ranks wrote the records. Records on a local disk are read by the rank that holds them,
and sent to those that take a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from mgraph.batch import TOLD
from mgraph.device import Device
from mgraph.keys import KeyArray
from mgraph.log.manifest import BY_KEY, StoredGraph
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import DELETES, KEYS, OP, REMOVALS, WITHIN, Entry, columns_of, keys_of
from mgraph.log.snapshot import keys_in, read_keys, whole_file
from mgraph.log.store import Store
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.commit.change import BatchChange, VerticesChange, expire_before
from mgraph.worker.commit.expiry_by_count import expire_by_count
from mgraph.worker.commit.route import incident_runs, route, share_runs
from mgraph.worker.inputs.read_ahead import ReadAhead
from mgraph.worker.results.remembered import remove as adopt_removal
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.shard.shard import Shard
from mgraph.worker.stores.snapshot import parts_of
from mgraph.worker.stores.transfer import Piece, transfer
from mgraph.worker.vertices.removal import Removal

__all__ = ["keys_at", "restore"]

#: most and fewest operations per batch of a rank; larger batches take less time
CHUNK, LEAST = 1 << 23, 1 << 21
BYTES = 128  #: memory per operation; about 30 suffice in a directed graph without weights
#: dtypes of a batch's columns
DTYPES = {"src": np.uint32, "dst": np.uint32, "op": np.int8, "weight": np.float32, "time": np.int64}

Columns = dict[str, Any]
Cut = tuple[Entry, int, int]  #: the operations `lo` to `hi` - 1 of a record


def restore(
    shard: Shard, ballot: Ballot, store: Store, stored: StoredGraph, after: int | None = None, known: int = 0
) -> np.ndarray:
    """Apply a stored graph to an empty shard with all its vertices.

    The shard's remembered memories include the first `known` changes.

    Returns
    -------
    int64[6 * k]
        The counts of this rank in each of the k epochs after `after`, in the order of `TOLD`. These epochs are applied
        one by one. Nothing is counted without `after`, or for epochs that are in a snapshot.

    Raises
    ------
    StoreError
        A record that was synced is damaged.
    CapacityError
        A worker has too little memory.
    """
    # Epochs up to `alone` may be joined to larger batches.
    alone = stored.epoch if after is None else after
    if shard.clock is not None and shard.clock.moves:  # the window depends on all batches before
        alone = -1

    # Apply the snapshot, and then the changes after it.
    with RecordColumns(store.files) as bodies, RecordColumns(store.files) as ahead:
        making = _Replay(shard, ballot, bodies, ahead)
        making.unknown = {id(shares[0]) for shares in stored.shares[known:] if shares[0].kind in REMOVALS}
        if shard.clock is not None and shard.clock.window_edges is not None:
            shard.clock.by_key = stored.about["format"] >= BY_KEY
            if shard.clock.by_key:
                names, making.key_changes = _key_changes(shard, store, stored)
                making.keys = KeyLog(names)
        if stored.snapshot is not None:
            making.rows(parts_of(shard, store, stored.snapshot, making.step))
            if shard.clock is not None:
                shard.clock.begin(stored.snapshot["latest"])
        counted = list(making.changes(list(_groups(stored.shares, alone, making.step * shard.size)), alone))

    # Keep the counts of the epochs that a caller asked for.
    rows = [
        counts for entry, counts in counted if after is not None and entry.epoch > after and entry.kind not in WITHIN
    ]
    counts = np.array(rows, np.int64).reshape(-1)
    if stored.left < shard.n_vertices:  # the shard was made for the largest number of vertices
        making.remove(np.arange(stored.left, shard.n_vertices, dtype=np.uint32))
    ballot.settle()
    shard.epoch = stored.epoch  # added vertices took no epochs here
    return counts


def keys_at(shard: Shard, store: Store, stored: StoredGraph) -> KeyArray | None:
    """Return the keys of the vertices at the end of a stored graph, on rank 0; None without keys.

    All ranks call it together.

    Raises
    ------
    StoreError
        A file or a record is damaged.
    """
    names, changes = _key_changes(shard, store, stored)
    keys = KeyLog(names)
    for brought, gone in changes.values():
        keys.note(brought, gone)
    return keys.names


def _key_changes(
    shard: Shard, store: Store, stored: StoredGraph
) -> tuple[KeyArray | None, dict[int, tuple[np.ndarray | None, Any]]]:
    """Return on rank 0 the keys of the snapshot, and the keys added and ids removed per record, by its `id`.

    All ranks call it together.
    """
    # Begin with the keys of the snapshot.
    names = None
    about = (stored.snapshot or {}).get("keys")
    if about is not None:
        named = _named_keys(shard, store, about)
        if shard.rank == 0:
            names = KeyArray(about["kind"], Device("cpu"))
            names.append(named)

    # Apply the records that bring or remove keys; those on local disks are sent to rank 0.
    changes = dict[int, tuple[np.ndarray | None, Any]]()
    entries = [shares[0] for shares in stored.shares]
    entries = [entry for entry in entries if entry.mask & KEYS or entry.kind in REMOVALS]
    here = [entry for entry in entries if entry.holder is not None]
    with RecordColumns(store.files) as bodies:
        pieces = [[_body(entry) for entry in here], *[[] for _ in range(1, shard.size)]]
        sent = iter(transfer(shard, pieces, bodies.read))
        for entry in entries if shard.rank == 0 else []:
            body = bodies.read(entry) if entry.holder is None else next(sent)
            changes[id(entry)] = keys_of(entry, body), columns_of(entry, body).get("ids")
    return names, changes


def _named_keys(shard: Shard, store: Store, about: Mapping[str, Any]) -> Any:
    """Return the keys of a snapshot, on rank 0."""
    if about.get("holder") is None:
        return read_keys(store.archive, about) if shard.rank == 0 else None

    piece = Piece(about["holder"], about["nbytes"], about)
    sent = transfer(shard, [[piece], *[[] for _ in range(1, shard.size)]], partial(whole_file, store))
    return keys_in(about, sent[0]) if sent else None


def _body(entry: Entry) -> Piece:
    assert entry.holder is not None
    return Piece(entry.holder, entry.nbytes, entry)


class _Part(NamedTuple):
    """Part of a group of batches, divided among the ranks.

    Rank r takes the operations from ``bounds[r]`` to ``bounds[r + 1]``.
    """

    group: Sequence[Entry]
    bounds: Sequence[int]

    @property
    def here(self) -> bool:
        """True if every rank sees the records."""
        return self.group[0].holder is None


class _Replay:
    """Applies records to a shard, while another thread reads the next ones.

    Parameters
    ----------
    shard : Shard
    ballot : Ballot
    bodies, ahead : RecordColumns
        For the shard's thread, and for the reading thread.

    Attributes
    ----------
    keys : KeyLog or None
        On rank 0, if keys order the edges: the keys of the vertices before the current record.
    key_changes : dict
        The keys that each record brings, and the ids that it removes, by the record's `id`.
    unknown : set of int
        Records, by `id`, of removals that the shard's memories have yet to adopt.
    step : int
        Operations per batch of a rank, the same on all ranks: half of each rank's free memory suffices for all.
    """

    def __init__(self, shard: Shard, ballot: Ballot, bodies: RecordColumns, ahead: RecordColumns) -> None:
        self._shard, self._ballot, self._bodies, self._ahead = shard, ballot, bodies, ahead
        kept = {"weight": shard.spec.weighted, "time": shard.clock is not None}
        self.keys: KeyLog | None = None
        self.key_changes: dict[int, tuple[np.ndarray | None, Any]] = {}
        self.unknown = set[int]()
        self._dtypes = {name: np.dtype(dtype) for name, dtype in DTYPES.items() if kept.get(name, True)}
        free = min(shard.device.memory_free, shard.device.host.memory_free)
        room = np.array([free // (2 * BYTES * shard.size)], np.int64)
        self.step = min(CHUNK, max(LEAST, int(shard.exchange.allreduce(room, "min")[0])))

    def rows(self, parts: Sequence[Callable[[], Columns]]) -> None:
        """Apply the rows of a snapshot."""
        with self._read_ahead(lambda number: parts[number]() if number < len(parts) else None) as ahead:
            for _ in parts:
                self.apply(ahead.next(), op=False, admitted=True)

    def changes(self, groups: Sequence[Sequence[Entry]], alone: int) -> Iterator[tuple[Entry, list[int]]]:
        """Apply groups of records, in order. Yields each group's first record, and this rank's counts as in `TOLD`.

        A group after epoch `alone` is a single epoch, so that its counts are those of its first commit.
        """
        most = self.step * self._shard.size
        parts = [_parts(group, most if group[0].epoch <= alone else None, self._shard.size) for group in groups]
        bundles = list(_bundles((part for some in parts for part in some), self._shard.rank, self.step))
        make = lambda number: [self._read(part) for part in bundles[number]] if number < len(bundles) else None  # noqa: E731
        with self._read_ahead(make) as ahead:
            read = chain.from_iterable(ahead.next() for _ in bundles)
            for group, its in zip(groups, parts, strict=True):
                brought, gone = self.key_changes.get(id(group[0]), (None, None))
                batches = group[0].kind == "batch"
                counts = self._batches(group, its, read, brought) if batches else self._change(group[0])
                if self.keys is not None:
                    self.keys.note(brought, gone)
                yield group[0], [counts.get(name, 0) for name in TOLD]

    def _read_ahead(self, make: Callable[[int], Any]) -> ReadAhead[Any]:
        """Prefetch in another thread, where nothing is sent to other ranks."""
        shard = self._shard
        name = f"mgraph-{shard.spec.graph}-{shard.rank}-ahead"
        return ReadAhead(name, shard.device, None, make, shard.exchange.aborted)

    def _batches(
        self, group: Sequence[Entry], parts: Sequence[_Part], read: Iterator[Columns], brought: np.ndarray | None
    ) -> dict[str, int]:
        """Apply each part of a group as a batch; on rank 0 with the new keys `brought`.

        Returns the counts of the last.
        """
        counts: dict[str, int] = {}
        mask = _mask(group)
        for part in parts:
            columns = next(read) if part.here else self._sent(part)
            counts = self.apply(columns, bool(mask & (OP | DELETES)), brought=brought)
        return counts

    def _change(self, entry: Entry) -> dict[str, int]:
        """Apply a change that is no batch. Return its counts."""
        if entry.kind == "delete_vertices":
            return self._delete(entry)
        if entry.kind in REMOVALS:
            return self._remove(entry)
        return self._expire(entry) if entry.kind == "expire" else {}

    def _read(self, part: _Part) -> Columns:
        """Read this rank's part of records that it sees."""
        first, end = part.bounds[self._shard.rank : self._shard.rank + 2]
        columns, at = {name: np.empty(end - first, dtype) for name, dtype in self._dtypes.items()}, 0
        for entry, lo, hi in _overlaps(part.group, first, end):
            rows = slice(at, at + hi - lo)
            self._ahead.fill(entry, lo, hi, {name: column[rows] for name, column in columns.items()})
            at = rows.stop
        return columns

    def _sent(self, part: _Part) -> Columns:
        """Receive this rank's part of records from the ranks that hold them."""
        width = sum(dtype.itemsize for dtype in self._dtypes.values())

        def load(cut: Cut) -> np.ndarray:
            entry, lo, hi = cut
            data = np.empty((hi - lo) * width, np.uint8)
            self._bodies.fill(entry, lo, hi, _split(data, self._dtypes, hi - lo))
            return data

        # Ask the holders for the cuts of all ranks, and join those of this rank.
        cuts = [_overlaps(part.group, first, end) for first, end in pairwise(part.bounds)]
        wanted = [[Piece(cut[0].holder or 0, (cut[2] - cut[1]) * width, cut) for cut in mine] for mine in cuts]
        pieces = [_split(data, self._dtypes, len(data) // width) for data in transfer(self._shard, wanted, load)]
        return {
            name: np.concatenate([np.empty(0, dtype), *(columns[name] for columns in pieces)])
            for name, dtype in self._dtypes.items()
        }

    def _columns(self, entry: Entry) -> Columns:
        """Return the columns of a record other than a batch.

        All ranks call it together if a rank holds the record.
        """
        if entry.holder is None:
            return columns_of(entry, self._bodies.read(entry))
        (body,) = transfer(self._shard, [[_body(entry)]] * self._shard.size, self._bodies.read)
        return columns_of(entry, body)

    def apply(
        self, columns: Columns, op: bool, admitted: bool = False, brought: np.ndarray | None = None
    ) -> dict[str, int]:
        """Apply this rank's part of a batch; return its counts.

        They are in the order of `TOLD`.

        Nothing is late where it was `admitted` to a window.
        """
        shard = self._shard
        with shard.working():
            ops, expiry = columns["op"] if op else None, None
            runs = share_runs(shard, columns["src"], columns["dst"], columns.get("weight"), ops, columns.get("time"))
            if not admitted:
                runs, expiry = shard.admit(runs)
            routed = [route(shard, run) for run in runs]
            routed, expiry = expire_by_count(shard, routed, expiry, self.keys, brought)
            change = BatchChange(shard, routed, expiry=expiry)
            self._ballot.decide(change)
        return change.counted

    def _expire(self, entry: Entry) -> dict[str, int]:
        """Delete edges by their time."""
        change = expire_before(self._shard, self._columns(entry)["before"])
        self._ballot.decide(change)
        return change.counted

    def _remove(self, entry: Entry) -> dict[str, int]:
        """Remove vertices, and add as many at the end for later records."""
        n, ids = self._shard.n_vertices, self._columns(entry)["ids"]
        counts = self.remove(ids)
        if id(entry) in self.unknown:
            adopt_removal(self._shard, ids)
        self._ballot.decide(VerticesChange(self._shard, n))
        return counts

    def remove(self, ids: np.ndarray) -> dict[str, int]:
        """Remove vertices. Return the counts."""
        change = Removal(self._shard, ids)
        self._ballot.decide(change)
        return {"deleted": change.deleted}

    def _delete(self, entry: Entry) -> dict[str, int]:
        """Delete the edges of vertices, which every rank was told."""
        change = BatchChange(self._shard, incident_runs(self._shard, self._columns(entry)["ids"]))
        self._ballot.decide(change)
        return change.counted


def _groups(changes: Iterable[Sequence[Entry]], alone: int, most: int) -> Iterator[list[Entry]]:
    """Yield the records that are applied together, in stream order.

    Those of batches up to epoch `alone` with `most` operations together, or one with more; else those of one change.
    """
    # Join batches up to `alone`; a change of another kind, or behind it, ends the group.
    group: list[Entry] = []
    total = 0
    for shares in changes:
        joins = shares[0].kind == "batch" and shares[0].epoch <= alone
        for entry in shares if joins else ():
            if group and total + entry.n > most:
                yield group
                group, total = [], 0
            group.append(entry)
            total += entry.n
        if not joins:
            if group:
                yield group
            yield list(shares)
            group, total = [], 0
    if group:
        yield group


def _parts(group: Sequence[Entry], step: int | None, size: int) -> list[_Part]:
    """Cut a group into batches of up to `step` operations.

    A single batch for None; none for other kinds.
    """
    total = sum(entry.n for entry in group) if group[0].kind == "batch" else 0
    return [
        _Part(group, [at + n * rank // size for rank in range(size + 1)])
        for at in range(0, total, step or max(1, total))
        for n in [min(step or total, total - at)]
    ]


def _bundles(parts: Iterable[_Part], rank: int, most: int) -> Iterator[list[_Part]]:
    """Yield parts that a rank reads together, with up to `most` operations.

    Each hand-over takes a while.
    """
    bundle: list[_Part] = []
    total = 0
    for part in parts:
        n = part.bounds[rank + 1] - part.bounds[rank]
        if bundle and total + n > most:
            yield bundle
            bundle, total = [], 0
        if part.here:
            bundle.append(part)
            total += n
    if bundle:
        yield bundle


def _overlaps(group: Sequence[Entry], first: int, end: int) -> Iterator[Cut]:
    """Yield the records of a group's operations `first` to `end` - 1."""
    at = 0
    for entry in group:
        lo, hi = max(first - at, 0), min(end - at, entry.n)
        at += entry.n
        if lo < hi:
            yield entry, lo, hi


def _split(data: np.ndarray, dtypes: Mapping[str, Any], n: int) -> Columns:
    """View consecutive bytes as columns of `n` rows."""
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
