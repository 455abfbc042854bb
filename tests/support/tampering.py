"""Small stores in memory, on a shared disk or on local ones, and all that may happen to a file or folder of theirs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from crashing import CrashingFiles, Inode, Later

from mgraph.log.head import HeadWriter
from mgraph.log.local_disks import LocalStore
from mgraph.log.log import Lag, Log
from mgraph.log.manifest import Head, StoredGraph
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import columns_of, log_id
from mgraph.log.recovery_scan import scan_store
from mgraph.log.segments import Segments
from mgraph.log.snapshot import Rows, drop_old, folder_of, make_valid, rows_of, write_part
from mgraph.log.store import Store

PATH = "/data/store"
SEGMENT = 1200
N = 1 << 20
KIND = {"n_vertices": N, "drop_isolated": True}
STORE = "a" * 32  #: the id of a store on local disks

Disk = dict[str, bytes | None]  #: the files by their paths; folders are None


def disk_of(files: CrashingFiles) -> Disk:
    return {path: None if inode is None else bytes(inode.data) for path, inode in files.now.items()}


def files_of(disk: Disk) -> CrashingFiles:
    files = CrashingFiles()
    files.now = {path: None if data is None else Inode(data) for path, data in disk.items()}
    return files


@dataclass
class Tampered:
    """A store to which one thing happened."""

    name: str
    disks: list[Disk]


@dataclass
class StoreInMemory:
    """A store, its earlier states, and the changes in it, by their numbers.

    Parameters
    ----------
    local : bool
        Each rank has a disk of its own.
    ranks : int
    """

    local: bool
    ranks: int
    disks: list[CrashingFiles] = field(default_factory=list)
    history: list[list[Disk]] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    epoch: int = 0

    @classmethod
    def empty(cls, local: bool, ranks: int) -> Any:
        """Make the disks for a store."""
        store = cls(local, ranks)
        for _ in range(ranks if local else 1):
            files = CrashingFiles()
            files.folder("/data")
            store.disks.append(files)
        return store

    @classmethod
    def build(cls, seed: int, local: bool, ranks: int, terms: int, *, snapshots: bool, sync: str = "always") -> Any:
        """Make a store of some terms, each closed, with some changes each; the last term has at least one."""
        rng, store = random.Random(seed), cls.empty(local, ranks)
        for term in range(1, terms + 1):
            session = Session(store, sync)
            store.keep_state()
            for _ in range(rng.randint(term == terms, 4)):
                session.change(drop=bool(store.epoch) and rng.random() < 0.3)
                if snapshots and rng.random() < 0.3:
                    session.snapshot(rng.choice([0, 1, 2]))
                if rng.random() < 0.4:
                    session.write_heads()
                    store.keep_state()
            session.close()
            store.keep_state()
        return store

    def keep_state(self) -> None:
        self.history.append([disk_of(files) for files in self.disks])

    def opened(self) -> tuple[int, list[int]]:
        """The epoch and the changes of the store, each record and each row checked."""
        stores, stored = scanned(self)
        return stored.epoch, self.content(stores[0], stored)

    def content(self, store: Store, stored: StoredGraph) -> list[int]:
        there: list[int] = []
        if stored.snapshot is not None:
            for about in stored.snapshot["files"]:
                where = self.stores()[about.get("holder") or 0]
                rows = Rows(where, [about], dict.fromkeys(["src", "dst"], np.uint32))
                rows.check_ends()
                there += rows.read(0, rows_of({"files": [about]}))["src"].tolist()
        for shares in stored.shares:
            (number,) = {self.number_of(entry) for entry in shares}
            there.append(number)
        return sorted(there)

    def number_of(self, entry: Any) -> int:
        with RecordColumns(self.disks[entry.holder or 0]) as columns:
            if entry.kind == "drop_vertices":
                return int(columns_of(entry, columns.read(entry))["ids"][0])
            src = np.empty(entry.n, np.uint32)
            columns.fill(entry, 0, entry.n, {"src": src})
            return int(src[0])

    def stores(self) -> list[Any]:
        if self.local:
            graph = f"g{len(self.made)}-{self.epoch}-{len(self.history)}"
            return [LocalStore(PATH, rank, graph, files=files) for rank, files in enumerate(self.disks)]
        return [Store(PATH, self.disks[0])]

    def records(self) -> Counter[bytes]:
        """The segments that hold a record, wherever they are."""
        segments = [data for files in self.disks for path, data in disk_of(files).items() if path.endswith(".log")]
        return Counter(data.rstrip(b"\0") for data in segments if data and b"MGR1" in data)

    def tampered(self, disks: list[Disk]) -> StoreInMemory:
        return StoreInMemory(
            self.local, self.ranks, [files_of(disk) for disk in disks], [], list(self.made), self.epoch
        )


def scanned(store: StoreInMemory, repair: bool = False) -> tuple[list[Any], StoredGraph]:
    """Open a store for reading, as the ranks of a graph do together."""
    stores = store.stores()
    if not store.local:
        stores[0].check_described()
        return stores, scan_store(stores[0], repair=repair)
    views = [rank.view() for rank in stores]
    for rank in stores:
        rank.merge_views(views)
    scans = [rank.scan_own(None, repair) for rank in stores]
    for rank in stores:
        rank.merge_scans(scans)
    found = [scan_store(rank, repair=repair) for rank in stores]
    return stores, found[0]


class Session:
    """A graph that writes a store."""

    def __init__(self, store: StoreInMemory, sync: str = "always", repair: bool = False) -> None:
        self.store, self.changes = store, 0
        files = store.disks if store.local else store.disks * store.ranks
        new = all(not any(name.startswith(PATH) for name in disk.now) for disk in store.disks)
        stored = None
        if not new:
            self.stores, stored = scanned(store, repair)
        else:
            self.stores = store.stores()
            self.stores[0].make_folder()
        if store.local:
            views = [{"host": "h", "path": PATH} for _ in self.stores]
            for rank in self.stores:
                rank.make_folder()
                if new:
                    rank.describe_new(KIND, STORE)
                rank.sync_own(stored)
            terms = [rank.begin_part(stored, store.ranks, sync, views) for rank in self.stores]
            self.term = terms[0]
        else:
            if new:
                self.stores[0].create(KIND)
            self.term = self.stores[0].begin_term(stored, store.ranks, sync)
            self.stores = self.stores * store.ranks
        store.epoch = self.term.epoch
        identity = self.stores[0].about()["id"]
        self.logs, self.heads = [], []
        for rank, where in enumerate(self.stores):
            number = log_id(identity, self.term.number, rank)
            segments = Segments(files[rank], where.log_folder(self.term.number, rank), number, SEGMENT)
            log = Log(segments, sync, store.epoch, lag=Lag(1 << 30, 1e9), executor=lambda name: Later())
            self.logs.append(log)
            self.heads.append(HeadWriter(where, Head(identity, self.term, rank, 0, store.epoch), log))
            self.heads[-1].write()

    def change(self, drop: bool = False) -> None:
        """Make one change, or one that belongs to the last epoch."""
        store, number = self.store, max(self.store.made, default=0) + 1
        self.changes += 1
        for rank, log in enumerate(self.logs):
            src = np.full(5, number, np.uint32)
            if drop:
                log.begin("drop_vertices", {"ids": src[:1]}, store.epoch)
            else:
                log.begin("batch", {"src": src, "dst": src + np.uint32(rank)}, store.epoch + 1)
        for log in self.logs:
            log.ready()
        for log in self.logs:
            log.keep()
        store.made.append(number)
        store.epoch += not drop

    def snapshot(self, retain: int) -> None:
        store, term = self.store, self.term.number
        folder = folder_of(store.epoch, term, self.changes)
        places = [log.rotate() for log in self.logs]
        content = {"epoch": store.epoch, "term": term, "n_vertices": N - self.dropped(), "offsets": {}, "last": ""}
        for rank, where in enumerate(self.stores):
            mine = np.array(store.made[rank :: store.ranks], np.uint32)
            mark = {"folder": folder, "rank": rank, "size": store.ranks, "content": content, "keys": None}
            columns = {"src": mine, "dst": mine}
            write_part(where, folder, rank, columns, places[rank], mark=mark if store.local else None)
        if not store.local:
            make_valid(self.stores[0], folder, store.ranks, {**content, "keys": None})
            drop_old(self.stores[0], retain)
        elif retain:
            about = {"folder": folder, "term": term, "places": places}
            for where in self.stores:
                where.drop_before(about)

    def dropped(self) -> int:
        return len(self.store.made) - self.store.epoch

    def write_heads(self) -> None:
        for head in self.heads:
            head.write()

    def close(self) -> None:
        for log, head in zip(self.logs, self.heads, strict=True):
            log.close()
            head.close()


# ---- what happens to a file or a folder ------------------------------------------------------------------------------


def below(disk: Disk, path: str) -> Disk:
    """A file, or a folder with all in it, by the rest of their paths."""
    return {name[len(path) :]: data for name, data in disk.items() if name == path or name.startswith(f"{path}/")}


def without(disk: Disk, path: str) -> Disk:
    return {name: data for name, data in disk.items() if name != path and not name.startswith(f"{path}/")}


def put(disk: Disk, path: str, content: Disk) -> Disk:
    return {**without(disk, path), **{path + rest: data for rest, data in content.items()}}


def tamper(store: StoreInMemory) -> Iterator[Tampered]:
    """Yield the store with each thing that may happen to each of its files and folders, one at a time."""
    disks = [disk_of(files) for files in store.disks]
    for number, disk in enumerate(disks):
        paths = sorted(path for path in disk if path.startswith(f"{PATH}/"))
        for path in paths:
            for name, changed in _changes(disk, path, paths, [state[number] for state in store.history]):
                yield Tampered(f"{name} on disk {number}", [*disks[:number], changed, *disks[number + 1 :]])


def _changes(disk: Disk, path: str, paths: list[str], history: list[Disk]) -> Iterator[tuple[str, Disk]]:
    data = disk[path]
    yield f"delete {path}", without(disk, path)
    if data:
        yield f"zero {path}", {**disk, path: bytes(len(data))}
        for size in sorted({0, 1, len(data) // 2, len(data) - 100, len(data) - 1}):
            if size >= 0:
                yield f"truncate {path} to {size} bytes", {**disk, path: data[:size]}
    own = below(disk, path)
    folder, _, name = path.rpartition("/")
    for copy in (f"{name} (copy)", *_next_names(name)):
        if f"{folder}/{copy}" not in disk:
            yield f"duplicate {path} as {copy}", put(disk, f"{folder}/{copy}", own)
            yield f"rename {path} to {copy}", put(without(disk, path), f"{folder}/{copy}", own)
    for other in paths:
        kin = (data is None) == (disk[other] is None) and not other.startswith(f"{path}/")
        if other > path and kin and below(disk, other) != own:
            yield f"swap {path} with {other}", put(put(disk, path, below(disk, other)), other, own)
        if other != path and kin and not path.startswith(f"{other}/") and below(disk, other) != own:
            yield f"copy {path} over {other}", put(disk, other, own)
    for number, state in enumerate(history):
        if path in state and below(state, path) != own:
            yield f"restore {path} as of state {number}", put(disk, path, below(state, path))


def _next_names(name: str) -> Iterator[str]:
    """Names with one number in them one higher."""
    stem, dot, kind = name.partition(".")
    parts = stem.split("-")
    for at, part in enumerate(parts):
        if part.isdigit():
            higher = f"{int(part) + 1:0{len(part)}d}"
            yield "-".join([*parts[:at], higher, *parts[at + 1 :]]) + dot + kind
