"""A store: a folder with the description of a graph, its terms, the logs of each term's ranks, and snapshots.

==================================  ====================================================================================
name                                what
==================================  ====================================================================================
``store.json``                      format, id, the kind of graph
``term-000001.json``                the number of ranks, and the epoch at which the term begins
``term-000001/rank-0000/*.log``     the segments of one rank's log
``snapshot-000000000042.json``      epoch, the places of the logs, the files with their checksums
``snapshot-000000000042/*.arrow``   the edges of one rank
``lock``, ``rank-0000.lock``        locked by rank 0, and by each rank that has a log open; who has it is inside
==================================  ====================================================================================

A graph that is opened begins a term, whatever the number of its ranks. The description of a term ends the term before
it at its own epoch. Descriptions carry a checksum, and a rename makes them valid.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mgraph.errors import InvalidOption, StoreError
from mgraph.log.bodies import Bodies
from mgraph.log.files import Files, failed
from mgraph.log.records import AHEAD, REMOVALS, WITHIN, Entry, checksum, log_id
from mgraph.log.remote import files_at, is_remote
from mgraph.log.scan import Scan, scan
from mgraph.log.segments import segment_name, segment_start
from mgraph.log.survey import kept

__all__ = ["Store", "Survey", "Term", "chosen", "described"]

FORMAT = 3  #: of the files of a store, at most
PLAIN = 2  #: of a store without changes that belong to an epoch before them
LOCK_SECONDS = 5.0  #: for which to wait for a lock, which a graph that just ended still may have


@dataclass(frozen=True)
class Term:
    """One opening of a graph.

    Parameters
    ----------
    number, size : int
        `size` is the number of ranks.
    epoch : int
        The epoch at which it begins.
    sync : str
        See `mgraph.log.log`.
    n_vertices : int or None
        The number of vertices with which it begins. It is written where a change may belong to the epoch before it,
        so that it is seen if such a change is missing at the end of a log.
    """

    number: int
    size: int
    epoch: int
    sync: str
    n_vertices: int | None = None

    @property
    def content(self) -> dict[str, Any]:
        """As it is written."""
        return {name: value for name, value in vars(self).items() if value is not None}


def described(kind: Mapping[str, Any], store: str) -> dict[str, Any]:
    """The description of a new store with this id, of a graph of this kind."""
    return {"format": FORMAT if kind.get("drop_isolated") else PLAIN, "id": store, **kind}


def chosen(snapshots: Sequence[dict[str, Any]], epoch: int | None) -> dict[str, Any] | None:
    """The newest of some snapshots, ordered by epoch, at `epoch` or before it; None without one."""
    return next((one for one in reversed(snapshots) if epoch is None or one["epoch"] <= epoch), None)


@dataclass
class Survey:
    """What a store holds, up to an epoch or to its end.

    Attributes
    ----------
    about : dict
        The content of ``store.json``.
    epoch, n_vertices : int
        `n_vertices` is the most that there were, after the snapshot.
    left : int
        The number of vertices at `epoch`.
    last : str
        The kind of the last change.
    snapshot : dict or None
        The description of the snapshot to begin with.
    shares : list of tuple of Entry
        For each change after the snapshot the records of the ranks that wrote it.
    term : int
        The last term.
    tails : list of str
        The segments that may not be on the disk yet as they were read.
    notes : list of str
        What a repair gives up.
    offsets : dict of str to int
        The last place in each source.
    damaged : list of str
        The descriptions of snapshots that a repair does without.
    """

    about: dict[str, Any]
    epoch: int
    n_vertices: int
    snapshot: dict[str, Any] | None = None
    shares: list[tuple[Entry, ...]] = field(default_factory=list)
    term: int = 0
    tails: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    left: int = 0
    last: str = ""
    damaged: list[str] = field(default_factory=list)

    @property
    def told(self) -> dict[str, Any]:
        """What the client is told of it."""
        return {name: getattr(self, name) for name in ("about", "epoch", "n_vertices", "notes", "last")}

    def add(self, changes: Sequence[tuple[Entry, ...]], epoch: int) -> None:
        """Changes that follow, up to an epoch."""
        self.shares.extend(changes)
        self.epoch = epoch
        for shares in changes:
            gone = shares[0].n if shares[0].kind in REMOVALS else 0
            self.left, self.last = max(self.left - gone, *(entry.vertices for entry in shares), 0), shares[0].kind
            self.n_vertices = max(self.n_vertices, self.left)

    @property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return sum(entry.end - entry.place for shares in self.shares for entry in shares)


class Store:
    """The files of a store. It makes no decision that ranks would have to make together.

    Parameters
    ----------
    path : str
        Or a URL of fsspec, for what has snapshots only.
    files : Files, optional
    """

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path.rstrip("/") if is_remote(path) else os.path.abspath(path)
        self.files = files_at(path) if files is None else files
        self._archive: Store | None = None

    @property
    def archive(self) -> Store:
        """Where the snapshots are: here, or at the URL that ``store.json`` names."""
        if self._archive is None:
            elsewhere = self.about().get("snapshots") if self.exists else None
            if elsewhere is None:
                return self
            self._archive = Store(elsewhere)
        return self._archive

    def at(self, *names: str) -> str:
        """The path of something in the store."""
        return "/".join((self.path, *names))

    # ---- descriptions ------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether there is a store."""
        return self.files.exists(self.at("store.json"))

    def create(self, kind: Mapping[str, Any]) -> dict[str, Any]:
        """Make a store for a graph of this kind; its description.

        Raises
        ------
        InvalidOption
            There is one.
        StoreError
            It cannot be written.
        """
        self.check_new()
        about = described(kind, uuid.uuid4().hex)
        self.describe("store.json", about)
        return about

    def check_new(self) -> None:
        """Raise `InvalidOption` if there is a store."""
        if self.exists or any(name.startswith("term-") for name in self.files.names(self.path)):  # or a part of one
            raise InvalidOption(f"{self.path} holds a store: open it with DynamicGraph.open(client, {self.path!r})")

    def make_folder(self) -> None:
        """Make the folder; `StoreError` if that is not possible."""
        try:
            self.files.folder(self.path)
        except OSError as error:
            raise failed(error, self.path, "the folder of the store cannot be made:") from error
        with suppress(OSError):  # where it was there before, its name may not be durable; its folder may not be ours
            self.files.sync_folder(os.path.dirname(self.path))

    def describe(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a description, durably and at once."""
        text = json.dumps(content, sort_keys=True)
        sealed = json.dumps({"content": content, "checksum": f"{checksum(text.encode()):016x}"}, sort_keys=True)
        try:
            self.files.replace(self.at(name), sealed.encode())
        except OSError as error:
            raise failed(error, self.at(name), "the store cannot be written:") from error

    def read(self, name: str) -> dict[str, Any]:
        """A description; `StoreError` if it is not what was written."""
        path = self.at(name)
        try:
            sealed = json.loads(self.files.read(path))
            content: dict[str, Any] = sealed["content"]
            whole = sealed["checksum"] == f"{checksum(json.dumps(content, sort_keys=True).encode()):016x}"
        except OSError as error:
            raise failed(error, path, "the store cannot be read:") from error
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise StoreError(f"{path} is damaged: its checksum is another; restore it from a backup")
        return content

    def about(self) -> dict[str, Any]:
        """The description of the graph.

        Raises
        ------
        StoreError
            There is none here, or it is damaged, or of a version to come.
        """
        if not self.exists:
            raise StoreError(
                f"{self.path} holds no store that this worker can see; a store is a folder that all workers share, "
                'unless the graph is made with disks="local"'
            )
        about = self.read("store.json")
        self.check_format(about, "store.json")
        return about

    def check_format(self, about: Mapping[str, Any], name: str) -> None:
        """Raise `StoreError` if a description is of a version to come."""
        if about["format"] > FORMAT:
            raise StoreError(
                f"{self.at(name)} has format {about['format']} and this mgraph reads up to {FORMAT}: install "
                "the version that wrote it, or a newer one"
            )

    def terms(self) -> list[Term]:
        """All terms, in their order."""
        found = [self.read(name) for name in self._descriptions("term-")]
        return [Term(**content) for content in found]

    def snapshots(self, damaged: list[str] | None = None) -> list[dict[str, Any]]:
        """The descriptions of the whole snapshots, by epoch.

        The names of damaged ones are added to `damaged`, if it is given; else `StoreError` names the first.
        """
        found = []
        for name in self._descriptions("snapshot-"):
            try:
                found.append(self.read(name))
            except StoreError as error:
                if damaged is None:
                    raise StoreError(f"{error}, or open the store with repair=True, which does without it") from None
                damaged.append(name)
        return found

    def _descriptions(self, begins: str) -> list[str]:
        names = self.files.names(self.path)
        return [name for name in names if name.startswith(begins) and name.endswith(".json")]

    def begin(self, survey: Survey | None, size: int, sync: str) -> Term:
        """Begin a term after what was surveyed, which is made durable first, and cut what is behind it."""
        for path in survey.tails if survey else []:
            self.sync(path)
        for name in survey.damaged if survey else []:
            self.archive.files.rename(self.archive.at(name), self.archive.at(f"{name}.damaged"))
        number, epoch = (survey.term + 1, survey.epoch) if survey else (1, 0)
        term = Term(number, size, epoch, sync, self.beginning(survey))
        self.files.remove(self.at(f"term-{number:06d}"))  # of an opening that ended before it began
        self.describe(f"term-{number:06d}.json", term.content)
        return term

    def beginning(self, survey: Survey | None) -> int | None:
        """The number of vertices that the description of a new term needs."""
        return survey.left if survey and survey.about["format"] > PLAIN else None

    def sync(self, path: str) -> None:
        """Make durable what is in a file."""
        try:
            file = self.files.open(path)
            try:
                file.sync()
            finally:
                file.close()
        except OSError as error:
            raise failed(error, path, "the log cannot be synced:") from error

    def usage(self) -> tuple[int, int]:
        """The number of segments, and the bytes of all files."""
        segments = nbytes = 0
        for folder, _, names in os.walk(self.path):
            segments += sum(name.endswith(".log") for name in names)
            for name in names:
                with suppress(OSError):
                    nbytes += os.stat(os.path.join(folder, name)).st_blocks * 512
        return segments, nbytes

    def log_folder(self, term: int, rank: int) -> str:
        """The folder of one rank's log."""
        return self.at(f"term-{term:06d}", f"rank-{rank:04d}")

    def drop_segments(self, term: int, rank: int, place: int) -> None:
        """Remove the segments of a log that end at a place or before it, where a segment begins."""
        folder = self.log_folder(term, rank)
        for name in self.files.names(folder):
            start = segment_start(name)
            if start is not None and start < place:
                self.files.remove(f"{folder}/{name}")

    # ---- locks -------------------------------------------------------------------------------------------------------

    def lock(self, name: str = "lock", who: str = "", seconds: float = LOCK_SECONDS) -> Any:
        """Lock the store until what is returned is closed, or this process ends, however it ends.

        Raises
        ------
        StoreError
            Another process has it, or it cannot be locked. The message says who has it, as the holder gave itself.
        """
        path, end = self.at(name), time.monotonic() + seconds
        while True:
            try:
                held = self.files.lock(path)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise StoreError(f"{self.path} is in use by {self._holder(path)}: close that graph first") from None
                time.sleep(0.05)
            except OSError as error:
                raise failed(error, path, "the store cannot be locked:") from error
        process = f"process {os.getpid()} on {socket.gethostname()}"
        with suppress(OSError):
            held.truncate(0)
            held.write((f"{who}, {process}" if who else process).encode())
            held.flush()
        return held

    def lock_rank(self, rank: int, who: str = "") -> Any:
        """Lock what a rank writes; as `lock`."""
        return self.lock(f"rank-{rank:04d}.lock", who)

    def check_ranks(self, who: str = "") -> None:
        """Raise `StoreError` if a rank of an earlier graph still has its lock."""
        for name in self.files.names(self.path):
            if name.startswith("rank-") and name.endswith(".lock"):
                self.lock(name, who).close()

    def _holder(self, path: str) -> str:
        try:
            return self.files.read(path).decode(errors="replace") or "another graph"
        except OSError:
            return "another graph"

    # ---- what there is -----------------------------------------------------------------------------------------------

    def survey(self, epoch: int | None = None, repair: bool = False) -> Survey:
        """What the store holds, up to `epoch` or to its end.

        Parameters
        ----------
        epoch : int, optional
        repair : bool
            Where a record is damaged that had been synced, take what is before it, and say what that gives up.

        Raises
        ------
        StoreError
            It is damaged, or of a version to come.
        InvalidOption
            It has no such epoch.
        """
        about, terms = self.about(), self.terms()
        damaged: list[str] = []
        snapshots = self.archive.snapshots(damaged if repair else None)
        snapshot = chosen(snapshots, epoch)
        if snapshot is None and snapshots and not self._from_the_beginning(terms):
            oldest = snapshots[0]["epoch"]
            raise InvalidOption(f"{self.path} has epochs from {oldest} on, and {epoch} was asked for")
        begin = snapshot["epoch"] if snapshot else 0
        n, last = (snapshot or about)["n_vertices"], (snapshot or {}).get("last", "")
        found = Survey(about, begin, n, snapshot, term=terms[-1].number if terms else 0, left=n, last=last)
        found.damaged = damaged
        found.notes += [f"{self.archive.at(name)} is damaged, and read is what is before it" for name in damaged]
        for at, term in enumerate(terms):
            if snapshot is not None and term.number < snapshot["term"]:
                continue
            end = min(terms[at + 1 :], key=lambda later: later.epoch, default=None)
            if end is None or end.epoch >= found.epoch:
                ends = [one for one in (None if end is None else end.epoch, epoch) if one is not None]
                if found.epoch < min([term.epoch, *ends]):
                    self._lacks(term, found, repair)
                    break
                places = snapshot["places"] if snapshot and snapshot["term"] == term.number else [0] * term.size
                whole = self._read_term(term, places, end, epoch, found, repair)
                if not whole and end is not None:
                    break
        if epoch is not None and found.epoch < epoch:
            raise InvalidOption(f"{self.path} has epochs up to {found.epoch}, and {epoch} was asked for")
        found.offsets = self._offsets(found)
        return found

    def _offsets(self, found: Survey) -> dict[str, int]:
        """The last place in each source, by the snapshot and by the records after it."""
        offsets = dict((found.snapshot or {}).get("offsets", {}))
        offsets.update(offset for _, offset in self._offsets_of([shares[0] for shares in found.shares]))
        return offsets

    def _offsets_of(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, tuple[str, int]]]:
        """The places in sources that records have, and these records."""
        with Bodies(self.files) as bodies:
            for entry in entries:
                if entry.extra and (offset := bodies.offset(entry)) is not None:
                    yield entry, offset

    def _from_the_beginning(self, terms: list[Term]) -> bool:
        """Whether the log has all epochs, and none was dropped after a snapshot."""
        begun = terms and terms[0].number == 1
        first = segment_name(0)
        return bool(begun) and all(first in self.files.names(self.log_folder(1, r)) for r in range(terms[0].size))

    def _read_term(
        self, term: Term, places: list[int], end: Term | None, epoch: int | None, found: Survey, repair: bool
    ) -> bool:
        """Add what a term has after `found.epoch`, up to the term that ends it, and to `epoch`; whether it has that."""
        last, bounds = end is None, [one for one in (None if end is None else end.epoch, epoch) if one is not None]
        bound, scans = min(bounds, default=None), self._scans(term, places, repair)
        has = kept(scans, found.epoch, bound)
        problem = self._problem(term, scans, has.epoch, bound, last)
        found.add(has.shares, has.epoch)
        if end is not None and found.epoch >= end.epoch and end.n_vertices not in (None, found.left):
            problem = self._less(scans, found.epoch)
        if problem is not None and not repair:
            raise StoreError(
                f"{problem}; the store is whole up to epoch {has.epoch}; repair=True opens it there and gives up the "
                "rest"
            )
        if problem is not None:
            found.notes.append(f"{problem}: epochs after {has.epoch} are given up, {has.given_up} records or more")
        if last:
            found.tails.extend(one.last for one in scans if one.last is not None)
        return bound is None or (has.epoch >= bound and problem is None)

    def _lacks(self, term: Term, found: Survey, repair: bool) -> None:
        """Note that the epochs between what was found and the beginning of a term are nowhere; or raise it."""
        problem = f"{self.path}: a snapshot or a log with the epochs {found.epoch + 1} to {term.epoch} is missing"
        if not repair:
            raise StoreError(f"{problem}; restore it from a backup, or give up what follows with repair=True")
        found.notes.append(f"{problem}: epochs after {found.epoch} are given up")

    def _less(self, scans: list[Scan], epoch: int) -> str:
        """That the logs of a term end without a change that belongs to the epoch at which the next term begins."""
        broken = next((one.broken for one in scans if one.broken is not None), None)
        return broken or f"{scans[0].last}: vertices that left in epoch {epoch} are not there"

    def _scans(self, term: Term, places: list[int], repair: bool) -> list[Scan]:
        """What the logs of a term's ranks hold from these places on."""
        return [self.scan(term.number, rank, places[rank], repair) for rank in range(term.size)]

    def scan(self, term: int, rank: int, place: int, repair: bool) -> Scan:
        """What the log of one rank holds from a place on."""
        folder, log = self.log_folder(term, rank), log_id(self.about()["id"], term, rank)
        try:
            return scan(self.files, folder, log, place, repair)
        except OSError as error:
            raise failed(error, error.filename or folder, "the log cannot be read:") from error

    def _missing(self, term: Term, rank: int) -> str:
        """That the log of one rank is missing."""
        return f"{self.log_folder(term.number, rank)} is missing"

    def _problem(self, term: Term, scans: list[Scan], epoch: int, bound: int | None, last: bool) -> str | None:
        """Why the logs of a term have less than was synced, if they do; else None."""
        if bound is not None and epoch >= bound:
            return None
        broken = next((one.broken for one in scans if one.broken is not None), None)
        missing = next((rank for rank, one in enumerate(scans) if not one.there), None)
        if broken is None and missing is not None and (any(one.entries for one in scans) or not last):
            broken = self._missing(term, missing)
        written = [entry for one in scans for entry in one.entries if not entry.mask & AHEAD]
        newest = max((entry.epoch + (entry.kind in WITHIN) for entry in written), default=0)
        if broken is None and (not last or (term.sync == "always" and newest > epoch + 1)):
            short = min(range(term.size), key=lambda rank: scans[rank].entries[-1].epoch if scans[rank].entries else 0)
            broken = f"{scans[short].last}: epoch {epoch + 1} was synced and is not there"
        return broken
