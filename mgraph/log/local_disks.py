"""A store on the local disks of several workers: each rank's log and snapshots are where its worker is.

===========================================  ===========================================================================
name                                         content
===========================================  ===========================================================================
``term-000001/rank-0000.json``               the graph, the term, and on which host and in which folder each rank is
``term-000001/rank-0000/*.log``              the segments of that rank's log
``head-0000.json``                           the newest term, and how far that rank's log in it was synced
``snapshot-…/rank-0000.json``, ``.arrow``    the edges of that rank, and the snapshot that they are a part of
``communities.bin``                          of rank 0: their names when the graph was closed
``graph-…-0000.lock``                        locked by each rank of the graph that has the store open
===========================================  ===========================================================================

Several workers may see the same folder, and others none of it. So a graph is opened in three steps, by all ranks: each
rank returns its `view`; all merge the views, which decides who reads which log, and each rank scans those logs; all
merge the scans, and find the same graph.

A term is complete when the descriptions of all its ranks are there. A rank's log begins only then, and after it the
rank's head. So a term of which a description is missing never began, if no head names it, and no log has a record; else
a disk is missing. Every worker that a graph needs to be opened has a part of the new term, so that none of them can be
opened alone afterwards.
"""

from __future__ import annotations

import os
import re
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption, StoreError
from mgraph.log.files import Files, pieces, reading
from mgraph.log.manifest import Head, StoredGraph, Term, chosen, described, term_of
from mgraph.log.records import Entry, segment_start
from mgraph.log.scan import Scan, has_records
from mgraph.log.store import Store, check_files
from mgraph.plain import pack, unpack

__all__ = ["LocalStore", "whole"]

Value = dict[str, Any]
Key = tuple[int, int]  #: the number of a term, and a rank in it

#: fields of the description of a rank's part of a term
PART = {"about", "number", "size", "epoch", "sync", "hosts", "paths", "rank", "opening"}
LOG = re.compile(r"rank-\d{4,}")  #: the folder of a log

_NUMBERS = tuple(name for name in Entry._fields if name not in ("kind", "path", "holder", "term"))


def whole(marks: Sequence[Value]) -> list[Value]:
    """Return the snapshots with all parts among `marks`, by epoch."""
    by_folder: dict[str, dict[int, Value]] = defaultdict(dict)
    for mark in marks:
        by_folder[mark["folder"]].setdefault(mark["rank"], mark)
    complete = [parts for _, parts in sorted(by_folder.items()) if len(parts) == parts[min(parts)]["size"]]
    return [
        {
            **parts[0]["content"],
            "folder": parts[0]["folder"],
            "keys": parts[0]["keys"] and {**parts[0]["keys"], "holder": parts[0].get("holder")},
            "communities": (named := parts[0].get("communities")) and {**named, "holder": parts[0].get("holder")},
            "places": [parts[rank]["place"] for rank in range(len(parts))],
            "files": [{**parts[rank]["file"], "holder": parts[rank].get("holder")} for rank in range(len(parts))],
        }
        for parts in complete
    ]


class LocalStore(Store):
    """A store of which each rank sees a part.

    Parameters
    ----------
    path : str
    rank : int
    graph : str
        The id of the graph that opens it.
    who : str
        The name of this rank's process in messages.
    files : Files, optional
    """

    missing_reason = "unseen"

    def __init__(self, path: str, rank: int, graph: str, who: str = "", files: Files | None = None) -> None:
        super().__init__(path, files)
        self.rank, self.graph, self._who = rank, graph, who
        self._about: Value | None = None
        self._openings: list[dict[int, Value]] = []  # per term, the descriptions of its ranks
        self._holders: dict[Key, int] = {}
        self._views: list[Value] = []
        self._marks: list[Value] = []
        self._scans: dict[Key, Scan] = {}
        self._places: dict[tuple[int, int, int], tuple[str, int]] = {}

    # ---- step 1: what each rank sees ---------------------------------------------------------------------------------

    def view(self) -> Value:
        """Return this rank's host and path, and the descriptions that it sees: parts of terms and snapshots, heads."""
        # Read the heads; a damaged one is an error only without repair, so that `heads` decides.
        host, heads, damaged = socket.gethostname(), [], []
        for name in self._descriptions("head-"):
            try:
                heads.append({"path": self.at(name), "content": self.read(name)})
            except StoreError as error:
                damaged.append((name, f"{host}: {error}"))
        return {
            "host": host,
            "path": self.path,
            "parts": [self._part(number, name) for number, name in self._part_names()],
            "marks": list(self.marks()),
            "heads": heads,
            "damaged": damaged,
            "undescribed": self._undescribed(),
        }

    def _part_names(self) -> Iterator[tuple[int, str]]:
        """Yield the term and the name of each description of a part."""
        for folder in self.names():
            if (number := term_of(folder)) is not None:
                for name in self.names(folder):
                    if name.startswith("rank-") and name.endswith(".json"):
                        yield number, f"{folder}/{name}"

    def _part(self, number: int, name: str) -> Value:
        part = self.read(name)
        if not part.keys() >= PART or name != f"term-{part['number']:06d}/rank-{part['rank']:04d}.json":
            raise StoreError(f"{self.at(name)} is misnamed: it describes another part; restore it from a backup")
        self.check_format(part["about"], name)
        return {**part, "begun": self._begun(self.log_folder(number, part["rank"]))}

    def _begun(self, folder: str) -> bool:
        """Return True if a log has anything but allocated room."""
        with reading(folder):
            segments = [name for name in self.files.names(folder) if segment_start(name) is not None]
            return len(segments) > 1 or any(segment_start(name) or self._used(f"{folder}/{name}") for name in segments)

    def _used(self, path: str) -> bool:
        with self.files.contents(path) as contents:
            return any(piece.any() for piece in pieces(contents, 0, contents.size))

    def _undescribed(self) -> list[str]:
        """Return the folders of logs with a whole record and without a description."""
        folders = [name for name in self.names() if term_of(name)]
        names = {folder: self.names(folder) for folder in folders}
        logs = [(folder, name) for folder in folders for name in names[folder] if LOG.fullmatch(name)]
        with reading(self.path):
            return [
                f"{folder}/{name}"
                for folder, name in logs
                if f"{name}.json" not in names[folder] and has_records(self.files, self.at(folder, name))
            ]

    def marks(self) -> Iterator[Value]:
        """Yield the descriptions of parts of snapshots that this rank sees."""
        for folder in self.names():
            if folder.startswith("snapshot-"):
                for name in self.names(folder):
                    if name.startswith("rank-") and name.endswith(".json"):
                        mark = self.read(f"{folder}/{name}")
                        if "content" in mark:
                            if (mark["folder"], f"rank-{mark['rank']:04d}.json") != (folder, name):
                                raise StoreError(f"{self.at(folder, name)} is misnamed; restore it from a backup")
                            yield mark

    def merge_views(self, views: Sequence[Value]) -> None:
        """Take the views of all ranks, in their order.

        They decide the graph, its terms, and which rank reads which part.

        Raises
        ------
        StoreError
            There is nothing, there are parts of several stores, or two graphs have gone on from the same term.
        """
        # Find the graph, which all parts have to name.
        self._views = list(views)
        openings: dict[tuple[int, str], dict[int, list[tuple[int, Value]]]] = defaultdict(lambda: defaultdict(list))
        about: dict[str, tuple[Value, Value]] = {}
        for rank, view in enumerate(views):
            for part in view["parts"]:
                about.setdefault(part["about"]["id"], (part["about"], view))
                openings[part["number"], part["opening"]][part["rank"]].append((rank, part))
        if not about:
            hosts = ", ".join(dict.fromkeys(view["host"] for view in views))
            raise StoreError(f"{self.path} holds no store on host {hosts}")
        if len(about) > 1:
            where = " and of another in ".join(f"{view['path']} on {view['host']}" for _, view in about.values())
            raise StoreError(f"there are parts of one store in {where}: name the workers that hold one, with workers=")
        self._about = next(iter(about.values()))[0]
        self.last_term = max(number for number, _ in openings)

        # Take the terms that began, and choose a reader for each log.
        self._openings, self._holders = [], {}
        named = {head["content"]["term"]["number"] for view in views for head in view["heads"]}
        for (number, _), ranks in sorted(openings.items()):
            size = next(iter(ranks.values()))[0][1]["size"]
            begun = number in named or any(part["begun"] for parts in ranks.values() for _, part in parts)
            if len(ranks) < size and not begun:
                continue
            if any(next(iter(other.values()))["number"] == number for other in self._openings):
                raise StoreError(
                    f"{self.path}: two graphs have gone on from term {number - 1}, each on a part of the disks: "
                    "name the workers that have one of them, with workers="
                )
            self._openings.append({rank: parts[0][1] for rank, parts in ranks.items()})
            for rank, parts in ranks.items():
                self._holders[number, rank] = parts[rank % len(parts)][0]

        # Choose a reader for each part of a snapshot.
        readers: dict[tuple[str, int], list[int]] = defaultdict(list)
        for rank, view in enumerate(views):
            for mark in view["marks"]:
                readers[mark["folder"], mark["rank"]].append(rank)
        marks = {(mark["folder"], mark["rank"]): mark for view in views for mark in view["marks"]}
        self._marks = [{**mark, "holder": readers[at][mark["rank"] % len(readers[at])]} for at, mark in marks.items()]

    # ---- step 2: what each rank scans --------------------------------------------------------------------------------

    def scan_own(self, epoch: int | None, repair: bool) -> bytes:
        """Scan the logs that this rank reads, up to `epoch`. `merge_scans` merges the results of all ranks."""
        self.heads([] if repair else None)
        snapshot, results = chosen(self.archive.snapshots(), epoch), []
        for (number, rank), holder in sorted(self._holders.items()):
            if holder != self.rank or (snapshot is not None and number < snapshot["term"]):
                continue
            begin = snapshot["places"][rank] if snapshot is not None and number == snapshot["term"] else 0
            scan = self.scan(number, rank, begin, repair)
            results.append((number, rank, _packed(scan), self._offsets_in(scan)))
        return pack(results)

    def _offsets_in(self, scan: Scan) -> dict[int, tuple[str, int]]:
        """Return the places in sources in a log, by the records' own places."""
        return {entry.place: offset for entry, offset in super().offsets_of(scan.entries)}

    # ---- step 3: what all ranks find ---------------------------------------------------------------------------------

    def merge_scans(self, scans: Sequence[bytes]) -> None:
        """Take the scans of all ranks, in their order."""
        self._scans, self._places = {}, {}
        for holder, results in enumerate(scans):
            for number, rank, packed, offsets in unpack(results):
                scan = _unpacked(packed, holder, number)
                if scan.broken is not None:
                    scan.broken = f"{self._views[holder]['host']}: {scan.broken}"
                self._scans[number, rank] = scan
                self._places.update(((number, rank, place), offset) for place, offset in offsets.items())

    @property
    def exists(self) -> bool:
        """True once the graph is known."""
        return self._about is not None

    def about(self) -> Value:
        """Return the description of the graph."""
        return super().about() if self._about is None else self._about

    def terms(self, damaged: list[str] | None = None) -> list[Term]:
        """Return all terms, in their order.

        A damaged part is an error in `view`.
        """
        names = [field.name for field in fields(Term)]
        parts = [next(iter(ranks.values())) for ranks in self._openings]
        return [Term(**{name: part[name] for name in names if name in part}) for part in parts]

    def heads(self, damaged: list[str] | None = None) -> list[Head]:
        """Return the heads that the ranks see. The names of damaged ones are appended to `damaged`, else raised."""
        # A head that is damaged on one disk is damaged for all ranks.
        problems = {name: problem for view in self._views for name, problem in view["damaged"]}
        if problems and damaged is None:
            raise StoreError(f"{min(problems.values())}, or open the store with repair=True, which does without it")
        if damaged is not None:
            damaged.extend(problems)

        # Several workers may see the same head, and copies of it; the newest counts.
        store, self._heads = self.about()["id"], {}
        for view in self._views:
            for content in view["heads"]:
                head = Head.parse(content["content"], content["path"], store)
                other = self._heads.setdefault(head.key, head)
                self._heads[head.key] = max(head, other, key=lambda head: head.synced)
        return list(self._heads.values())

    def undescribed(self) -> list[str]:
        """Return the folders of logs without a description, of all ranks."""
        return sorted({name for view in self._views for name in view["undescribed"]})

    def snapshots(self, damaged: list[str] | None = None) -> list[Value]:
        """Return the descriptions of the whole snapshots, by epoch.

        A damaged part is an error in `view`.
        """
        snapshots = whole(self._marks)
        for snapshot in snapshots:
            check_files(snapshot, self.at(snapshot["folder"]))
        return snapshots

    def has_all_epochs(self, terms: list[Term]) -> bool:
        """Return True if the scanned logs have all epochs."""
        # Dropped segments are those before a snapshot, and so the first ones.
        if not terms or terms[0].number != 1:
            return False
        return all(scan.first == 0 for scan in self.scans_of(terms[0], [], False))

    def scans_of(self, term: Term, places: list[int], repair: bool) -> list[Scan]:
        """Return the scans of a term's logs, from all ranks."""
        return [self._scans.get((term.number, rank), Scan()) for rank in range(term.size)]

    def offsets_of(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, tuple[str, int]]]:
        """Yield the records with a place in a source, and that place."""
        for entry in entries:  # each is the first of its epoch, which rank 0 wrote
            if (offset := self._places.get((entry.term, 0, entry.place))) is not None:
                yield entry, offset

    def missing_term(self, number: int) -> str:
        """Return the message that the descriptions of a term are missing."""
        return f"{self.at(f'term-{number:06d}')}: the description of a rank's part is missing"

    def must_exist(self, term: Term, rank: int) -> bool:
        """Return True if the log of a rank cannot be missing.

        It has a head, or its term began without its part.
        """
        return super().must_exist(term, rank) or (term.number, rank) not in self._holders

    def missing(self, term: Term, rank: int) -> str:
        """Return the message that a rank's log is missing, with its host."""
        # Every part of the term names the hosts of all.
        part = next(iter(self._openings[[other.number for other in self.terms()].index(term.number)].values()))
        host, path = part["hosts"][rank], part["paths"][rank]
        seen = any(view["host"] == host for view in self._views)
        why = (
            "a worker on that host does not have it, as after its disk was replaced" if seen else "start a worker there"
        )
        what = f"rank {rank}'s part of term {term.number} is missing: it was on host {host} in {path}"
        return f"{what}, and no worker of this graph sees it; {why}"

    # ---- a term of this graph ----------------------------------------------------------------------------------------

    def describe_new(self, kind: Mapping[str, Any], store: str) -> None:
        """Begin a store with the id `store` for a graph of this kind."""
        self._about = described(kind, store)

    def check_new(self) -> None:
        """Raise `InvalidOption` if the folder holds a store, or parts of one."""
        if self.has("store.json") or any(self._part_names()):
            raise InvalidOption(
                f"{self.path} on {socket.gethostname()} holds a store: open it with DynamicGraph.open({self.path!r}), "
                "on a cluster with its client before the path"
            )

    def own(self) -> list[Any]:
        """Lock the folder for this graph, and return the locks.

        Every rank has a lock of its own, and then looks for those of other graphs: of two that do so at the same time
        at least one sees the other.
        """
        mine = f"graph-{self.graph}-{self.rank:04d}.lock"
        while True:
            lock = self.lock(mine, self._who)
            try:
                # Try the locks of other graphs, and remove them if nobody has them.
                others = [
                    name
                    for name in self.names()
                    if name.endswith(".lock") and not name.startswith(f"graph-{self.graph}-")
                ]
                for name in others:
                    self.lock(name, self._who).close()
                if self.has(mine):  # unless an earlier graph has just removed it as a leftover
                    for name in others:
                        self.files.remove(self.at(name))
                    return [lock]
            except BaseException:
                lock.close()
                self.files.remove(self.at(mine))
                raise
            lock.close()

    def disown(self) -> None:
        """Remove this rank's lock, which was closed."""
        self.files.remove(self.at(f"graph-{self.graph}-{self.rank:04d}.lock"))

    def sync_own(self, stored: StoredGraph | None) -> None:
        """Make the scanned logs of this rank durable."""
        for key, scan in self._scans.items():
            if stored is not None and self._holders[key] == self.rank and any(scan is log for log in stored.unsynced):
                self.sync(scan)

    def begin_part(self, stored: StoredGraph | None, size: int, sync: str, views: Sequence[Value]) -> Term:
        """Describe this rank's part of a new term, after `sync_own` on every rank.

        Raises
        ------
        StoreError
            The store cannot be written, or the folder of the new log holds a record.
        """
        # Rename what a repair gives up; another rank may see the same folder, and do so at the same time.
        for name in stored.aside if stored else []:
            with suppress(FileNotFoundError):
                self.set_aside(name)

        # Describe the part, in a folder without a log.
        number = stored.term + 1 if stored else 1
        term = Term(number, size, stored.epoch if stored else 0, sync, self.vertices_at_start(stored))
        where = {"hosts": [view["host"] for view in views], "paths": [view["path"] for view in views]}
        part = {**term.content, **where, "about": self.about(), "rank": self.rank, "opening": self.graph}
        folder, log = f"term-{number:06d}", self.log_folder(number, self.rank)
        if has_records(self.files, log):
            raise StoreError(f"{log} holds records, and the term begins only now; move the folder away")
        self.files.remove(log)
        self.files.folder(self.at(folder))
        self.describe(f"{folder}/rank-{self.rank:04d}.json", part)
        self._holders.update({(number, rank): rank for rank in range(size)})
        self._openings.append({self.rank: part})
        return term

    def drop_before(self, snapshot: Mapping[str, Any]) -> None:
        """Remove the files that only epochs before a whole snapshot need."""
        for folder in self.names():
            number, part = term_of(folder), folder.startswith("snapshot-")
            if (number is not None and number < snapshot["term"]) or (part and folder < snapshot["folder"]):
                self._remove(folder)
        for rank, place in enumerate(snapshot["places"]):
            if self._holders.get((snapshot["term"], rank)) == self.rank:
                self.drop_segments(snapshot["term"], rank, place)

    def _remove(self, folder: str) -> None:
        """Remove a folder, the descriptions in it first."""
        for name in self.names(folder):
            if name.endswith(".json"):
                self.files.remove(self.at(folder, name))
        self.files.remove(self.at(folder))

    def usage_key(self) -> tuple[Any, ...]:
        """Return a key that workers share if they see the same folder."""
        about = os.stat(self.path)
        return socket.gethostname(), about.st_dev, about.st_ino


def _packed(scan: Scan) -> tuple[Any, ...]:
    """Return a scan as arrays, without an object for each entry."""
    # Paths and kinds are few: number them.
    paths = sorted({entry.path for entry in scan.entries})
    number = {path: at for at, path in enumerate(paths)}
    kinds = sorted({entry.kind for entry in scan.entries})
    rows = [
        (kinds.index(entry.kind), number[entry.path], *(getattr(entry, name) for name in _NUMBERS))
        for entry in scan.entries
    ]
    table = np.array(rows, np.uint64).reshape(len(rows), 2 + len(_NUMBERS))
    return kinds, paths, table, astuple(replace(scan, entries=[]))


def _unpacked(packed: tuple[Any, ...], holder: int, term: int) -> Scan:
    kinds, paths, table, rest = packed
    scan = Scan(*rest)
    scan.entries = [
        Entry(
            **dict(zip(_NUMBERS, row[2:], strict=True)),
            kind=kinds[row[0]],
            path=paths[row[1]],
            holder=holder,
            term=term,
        )
        for row in table.tolist()
    ]
    return scan
