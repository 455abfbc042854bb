"""A store on the local disks of several workers: each rank's log and snapshots are where its worker is.

===========================================  ===========================================================================
name                                         what
===========================================  ===========================================================================
``term-000001/rank-0000.json``               the graph, the term, and on which host and in which folder each rank is
``term-000001/rank-0000/*.log``              the segments of that rank's log
``snapshot-…/rank-0000.json``, ``.arrow``    the edges of that rank, and the snapshot that they are a part of
``graph-…-0000.lock``                        locked by each rank of the graph that has the store open
===========================================  ===========================================================================

Several workers may see the same folder, and others none of it. So a graph is opened in three steps, by all ranks: each
one tells what it *sees*; all agree who reads which log, and each one *scans* those; all take the scans together, and
find the same.

A term is complete when the descriptions of all its ranks are there. A rank's log begins only then. So a term of which a
description is missing is one that never began, if no log that is there has a record; else a disk is missing. Every
worker that a graph needs to be opened has a part of the new term, so that none of them can be opened alone afterwards.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption, StoreError
from mgraph.log.files import Files, pieces
from mgraph.log.manifest import StoredGraph, Term, chosen, described
from mgraph.log.records import Entry, segment_start
from mgraph.log.scan import Scan
from mgraph.log.store import Store

__all__ = ["UNSEEN", "LocalStore", "whole"]

UNSEEN = "no worker of this graph sees it"  #: in the message about a part that is missing

Value = dict[str, Any]
Key = tuple[int, int]  #: the number of a term, and a rank in it

_NUMBERS = tuple(name for name in Entry._fields if name not in ("kind", "path", "holder", "term"))


def whole(marks: Sequence[Value]) -> list[Value]:
    """The snapshots of which all parts are among `marks`, the descriptions of parts; by epoch, the parts by rank."""
    found: dict[str, dict[int, Value]] = defaultdict(dict)
    for mark in marks:
        found[mark["folder"]].setdefault(mark["rank"], mark)
    complete = [parts for _, parts in sorted(found.items()) if len(parts) == parts[min(parts)]["size"]]
    return [
        {
            **parts[0]["content"],
            "folder": parts[0]["folder"],
            "keys": parts[0]["keys"] and {**parts[0]["keys"], "holder": parts[0].get("holder")},
            "places": [parts[rank]["place"] for rank in range(len(parts))],
            "files": [{**parts[rank]["file"], "holder": parts[rank].get("holder")} for rank in range(len(parts))],
        }
        for parts in complete
    ]


def _described(store: Store) -> Iterator[tuple[int, str]]:
    """The terms of which there are descriptions of ranks, and the names of these."""
    for folder in store.files.names(store.path):
        if (number := _term_of(folder)) is not None:
            for name in store.files.names(store.at(folder)):
                if name.startswith("rank-") and name.endswith(".json"):
                    yield number, f"{folder}/{name}"


def _term_of(folder: str) -> int | None:
    """The number of the term that a folder is of; None for another one."""
    begin, _, number = folder.partition("-")
    return int(number) if begin == "term" and number.isdigit() else None


class LocalStore(Store):
    """A store of which each rank sees a part.

    Parameters
    ----------
    path : str
    rank : int
    graph : str
        The id of the graph that opens it.
    who : str
        What messages call the process of this rank.
    files : Files, optional
    """

    def __init__(self, path: str, rank: int, graph: str, who: str = "", files: Files | None = None) -> None:
        super().__init__(path, files)
        self.rank, self.graph, self._who = rank, graph, who
        self._about: Value | None = None
        self._openings: list[dict[int, Value]] = []  # of each term the descriptions of its ranks
        self._holders: dict[Key, int] = {}
        self._sees: list[Value] = []
        self._marks: list[Value] = []
        self._scanned: dict[Key, Scan] = {}
        self._places: dict[tuple[int, int, int], tuple[str, int]] = {}
        self._last = 0

    # ---- what each rank sees -----------------------------------------------------------------------------------------

    def sees(self) -> Value:
        """What this rank sees: its host and path, the descriptions of parts of terms and of snapshots."""
        return {
            "host": socket.gethostname(),
            "path": self.path,
            "parts": [self._part(number, name) for number, name in _described(self)],
            "marks": list(self.marks()),
        }

    def _part(self, number: int, name: str) -> Value:
        part = self.read(name)
        self.check_format(part["about"], name)
        return {**part, "begun": self._begun(self.log_folder(number, part["rank"]))}

    def _begun(self, folder: str) -> bool:
        """Whether a log has anything but allocated room."""
        segments = [name for name in self.files.names(folder) if segment_start(name) is not None]
        return len(segments) > 1 or any(segment_start(name) or self._used(f"{folder}/{name}") for name in segments)

    def _used(self, path: str) -> bool:
        with self.files.contents(path) as contents:
            return any(piece.any() for piece in pieces(contents, 0, contents.size))

    def marks(self) -> Iterator[Value]:
        """The descriptions of parts of snapshots that this rank sees."""
        for folder in self.files.names(self.path):
            if folder.startswith("snapshot-"):
                for name in self.files.names(self.at(folder)):
                    if name.startswith("rank-") and name.endswith(".json"):
                        mark = self.read(f"{folder}/{name}")
                        if "content" in mark:
                            yield mark

    def agree(self, sees: Sequence[Value]) -> None:
        """Take what all ranks see, in their order: what graph it is, its terms, and which rank reads which part.

        Raises
        ------
        StoreError
            There is nothing, there are parts of several stores, or two graphs have gone on from the same term.
        """
        self._sees = list(sees)
        seen: dict[tuple[int, str], dict[int, list[tuple[int, Value]]]] = defaultdict(lambda: defaultdict(list))
        about: dict[str, tuple[Value, Value]] = {}
        for rank, one in enumerate(sees):
            for part in one["parts"]:
                about.setdefault(part["about"]["id"], (part["about"], one))
                seen[part["number"], part["opening"]][part["rank"]].append((rank, part))
        if not about:
            raise StoreError(f"{self.path} holds no store that a worker of this graph can see")
        if len(about) > 1:
            where = " and of another in ".join(f"{one['path']} on {one['host']}" for _, one in about.values())
            raise StoreError(f"there are parts of one store in {where}: name the workers that hold one, with workers=")
        self._about = next(iter(about.values()))[0]
        self._last = max(number for number, _ in seen)
        self._openings, self._holders = [], {}
        for (number, _), ranks in sorted(seen.items()):
            size = next(iter(ranks.values()))[0][1]["size"]
            if len(ranks) < size and not any(part["begun"] for views in ranks.values() for _, part in views):
                continue  # it never began
            if any(next(iter(other.values()))["number"] == number for other in self._openings):
                raise StoreError(
                    f"{self.path}: two graphs have gone on from term {number - 1}, each on a part of the disks: "
                    "name the workers that have one of them, with workers="
                )
            self._openings.append({rank: views[0][1] for rank, views in ranks.items()})
            for rank, views in ranks.items():
                self._holders[number, rank] = views[rank % len(views)][0]
        views_of: dict[tuple[str, int], list[int]] = defaultdict(list)
        for rank, one in enumerate(sees):
            for mark in one["marks"]:
                views_of[mark["folder"], mark["rank"]].append(rank)
        marks = {(mark["folder"], mark["rank"]): mark for one in sees for mark in one["marks"]}
        self._marks = [{**mark, "holder": views_of[at][mark["rank"] % len(views_of[at])]} for at, mark in marks.items()]

    # ---- what each rank scans ----------------------------------------------------------------------------------------

    def scans(self, epoch: int | None, repair: bool) -> bytes:
        """What the logs say that this rank reads, for all ranks to `take`; those that a survey up to `epoch` needs."""
        snapshot, told = chosen(self.archive.snapshots(), epoch), []
        for (number, rank), holder in sorted(self._holders.items()):
            if holder != self.rank or (snapshot is not None and number < snapshot["term"]):
                continue
            begin = snapshot["places"][rank] if snapshot is not None and number == snapshot["term"] else 0
            found = self.scan(number, rank, begin, repair)
            told.append((number, rank, _packed(found), self._offsets_in(found)))
        return pickle.dumps(told)

    def _offsets_in(self, found: Scan) -> dict[int, tuple[str, int]]:
        """The places in sources that a log has, by the records' own places."""
        return {entry.place: offset for entry, offset in super().offsets_of(found.entries)}

    def take(self, scans: Sequence[bytes]) -> None:
        """Take what all ranks have scanned, in their order."""
        self._scanned, self._places = {}, {}
        for holder, told in enumerate(scans):
            for number, rank, packed, offsets in pickle.loads(told):
                found = _unpacked(packed, holder, number)
                if found.broken is not None:
                    found.broken = f"{self._sees[holder]['host']}: {found.broken}"
                self._scanned[number, rank] = found
                self._places.update(((number, rank, place), offset) for place, offset in offsets.items())

    # ---- as of a store -----------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether it is known what graph it is."""
        return self._about is not None

    def about(self) -> Value:
        """The description of the graph."""
        return super().about() if self._about is None else self._about

    def terms(self) -> list[Term]:
        """All terms, in their order."""
        names = [field.name for field in fields(Term)]
        first = [next(iter(ranks.values())) for ranks in self._openings]
        return [Term(**{name: part[name] for name in names if name in part}) for part in first]

    def snapshots(self, damaged: list[str] | None = None) -> list[Value]:
        """The descriptions of the whole snapshots, by epoch; a damaged part is an error in `marks`."""
        return whole(self._marks)

    def has_all_epochs(self, terms: list[Term]) -> bool:
        """Whether the logs have all epochs, by what was scanned."""
        if not terms or terms[0].number != 1:
            return False
        return all(scan.first == 0 for scan in self.scans_of(terms[0], [], False))

    def scans_of(self, term: Term, places: list[int], repair: bool) -> list[Scan]:
        """What the logs of a term's ranks hold, as the ranks that see them have scanned it."""
        return [self._scanned.get((term.number, rank), Scan()) for rank in range(term.size)]

    def offsets_of(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, tuple[str, int]]]:
        """The places in sources that records have, and these records, by what was scanned."""
        for entry in entries:  # of rank 0, which is the first of an epoch's
            if (offset := self._places.get((entry.term, 0, entry.place))) is not None:
                yield entry, offset

    def missing(self, term: Term, rank: int) -> str:
        """That the log of one rank is missing, and where it was."""
        part = next(iter(self._openings[[one.number for one in self.terms()].index(term.number)].values()))
        host, path = part["hosts"][rank], part["paths"][rank]
        there = any(one["host"] == host for one in self._sees)
        why = (
            "a worker on that host does not have it, as after its disk was replaced"
            if there
            else "start a worker there"
        )
        return (
            f"rank {rank}'s part of term {term.number} is missing: it was on host {host} in {path}, and {UNSEEN}; {why}"
        )

    # ---- a term of this graph ----------------------------------------------------------------------------------------

    def found(self, kind: Mapping[str, Any], store: str) -> None:
        """Begin a store for a graph of this kind, with this id."""
        self._about = described(kind, store)

    def check_new(self) -> None:
        """Raise `InvalidOption` if the folder holds a store, or parts of one."""
        if self.files.exists(self.at("store.json")) or any(_described(self)):
            raise InvalidOption(
                f"{self.path} on {socket.gethostname()} holds a store: open it with DynamicGraph.open({self.path!r}), "
                "on a cluster with its client before the path"
            )

    def own(self) -> list[Any]:
        """Lock the folder for this graph; the locks. `StoreError` if another graph has it.

        Every rank has a lock of its own, and then looks for those of other graphs: of two that do so at the same time
        at least one sees the other.
        """
        mine = f"graph-{self.graph}-{self.rank:04d}.lock"
        while True:
            held = self.lock(mine, self._who)
            try:
                others = [
                    name
                    for name in self.files.names(self.path)
                    if name.endswith(".lock") and not name.startswith(f"graph-{self.graph}-")
                ]
                for name in others:
                    self.lock(name, self._who).close()
                if self.files.exists(self.at(mine)):  # else an earlier graph has just taken it for a leftover
                    for name in others:
                        self.files.remove(self.at(name))
                    return [held]
            except BaseException:
                held.close()
                self.files.remove(self.at(mine))
                raise
            held.close()

    def disown(self) -> None:
        """Remove this rank's lock, which was closed."""
        self.files.remove(self.at(f"graph-{self.graph}-{self.rank:04d}.lock"))

    def settle(self, survey: StoredGraph | None) -> None:
        """Make durable what this rank has read."""
        for key, found in self._scanned.items():
            if survey is not None and self._holders[key] == self.rank and found.last in survey.tails:
                self.sync(found.last)

    def begin_part(self, survey: StoredGraph | None, size: int, sync: str, sees: Sequence[Value]) -> Term:
        """Describe this rank's part of a new term after what was surveyed, which every rank has settled."""
        term = Term(self._last + 1, size, survey.epoch if survey else 0, sync, self.beginning(survey))
        where = {"hosts": [one["host"] for one in sees], "paths": [one["path"] for one in sees]}
        part = {**term.content, **where, "about": self.about(), "rank": self.rank, "opening": self.graph}
        folder = f"term-{term.number:06d}"
        self.files.remove(self.log_folder(term.number, self.rank))
        self.files.folder(self.at(folder))
        self.describe(f"{folder}/rank-{self.rank:04d}.json", part)
        self._holders.update({(term.number, rank): rank for rank in range(size)})
        self._openings.append({self.rank: part})
        return term

    def drop_before(self, snapshot: Mapping[str, Any]) -> None:
        """Remove what only earlier epochs than that of a whole snapshot need."""
        for folder in self.files.names(self.path):
            number, part = _term_of(folder), folder.startswith("snapshot-")
            if (number is not None and number < snapshot["term"]) or (part and folder < snapshot["folder"]):
                self._remove(folder)
        for rank, place in enumerate(snapshot["places"]):
            if self._holders.get((snapshot["term"], rank)) == self.rank:
                self.drop_segments(snapshot["term"], rank, place)

    def _remove(self, folder: str) -> None:
        """Remove a folder, the descriptions in it first."""
        for name in self.files.names(self.at(folder)):
            if name.endswith(".json"):
                self.files.remove(self.at(folder, name))
        self.files.remove(self.at(folder))

    def usage_key(self) -> tuple[Any, ...]:
        """The same for workers that see the same folder."""
        about = os.stat(self.path)
        return socket.gethostname(), about.st_dev, about.st_ino


def _packed(found: Scan) -> tuple[Any, ...]:
    """A scan without an object for each entry."""
    paths = sorted({entry.path for entry in found.entries})
    number = {path: at for at, path in enumerate(paths)}
    kinds = sorted({entry.kind for entry in found.entries})
    rows = [
        (kinds.index(entry.kind), number[entry.path], *(getattr(entry, name) for name in _NUMBERS))
        for entry in found.entries
    ]
    table = np.array(rows, np.uint64).reshape(len(rows), 2 + len(_NUMBERS))
    return kinds, paths, table, astuple(replace(found, entries=[]))


def _unpacked(packed: tuple[Any, ...], holder: int, term: int) -> Scan:
    kinds, paths, table, rest = packed
    found = Scan(*rest)
    found.entries = [
        Entry(
            **dict(zip(_NUMBERS, row[2:], strict=True)),
            kind=kinds[row[0]],
            path=paths[row[1]],
            holder=holder,
            term=term,
        )
        for row in table.tolist()
    ]
    return found
