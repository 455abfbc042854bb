"""A store: a folder with the description of a graph, its terms, the logs of each term's ranks, and snapshots.

==================================  ====================================================================================
name                                what
==================================  ====================================================================================
``store.json``                      format, id, the kind of graph
``term-000001.json``                the number of ranks, and the epoch at which the term begins
``term-000001/rank-0000/*.log``     the segments of one rank's log
``snapshot-000000000042.json``      epoch, the places of the logs, the files with their checksums
``snapshot-000000000042/*.arrow``   the edges of one rank
``owner.json``                      the store's id, where the snapshots are elsewhere
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
from typing import Any

from mgraph.errors import InvalidOption, StoreError
from mgraph.log.files import Files, failed
from mgraph.log.manifest import FORMAT, PLAIN, StoredGraph, Term, described
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import Entry, checksum, log_id, segment_name, segment_start
from mgraph.log.remote import files_at, is_remote
from mgraph.log.scan import Scan, scan

__all__ = ["Store"]

OWNER = "owner.json"  #: whose snapshots are there, where they are not with the log
LOCK_SECONDS = 5.0  #: for which to wait for a lock, which a graph that just ended still may have


class Store:
    """The files of a store: its descriptions, segments and locks. `mgraph.log.recovery_scan` says what they hold.

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
        self.mark_archive(about)
        return about

    def check_new(self) -> None:
        """Raise `InvalidOption` if there is a store."""
        if self.exists or any(name.startswith("term-") for name in self.files.names(self.path)):  # or a part of one
            raise InvalidOption(
                f"{self.path} holds a store: open it with DynamicGraph.open({self.path!r}), on a cluster with its "
                "client before the path"
            )

    def check_place(self, kind: Mapping[str, Any]) -> None:
        """Raise `InvalidOption` if the place where a new graph's snapshots are to be has those of another one."""
        if (elsewhere := kind.get("snapshots")) is not None:
            archive = Store(elsewhere)
            if any(
                name == OWNER or name.startswith(("store.", "snapshot-")) for name in archive.files.names(archive.path)
            ):
                raise InvalidOption(f"{archive.path} has snapshots of another graph: choose another place")

    def mark_archive(self, about: Mapping[str, Any]) -> None:
        """Say where the snapshots are that they are of this store, if they are elsewhere."""
        if (elsewhere := about.get("snapshots")) is not None:
            archive = Store(elsewhere)
            archive.make_folder()
            archive.describe(OWNER, {"id": about["id"]})

    def check_archive(self) -> None:
        """Raise `StoreError` if another store has the place of the snapshots. An earlier version did not mark it."""
        archive = self.archive
        marked = archive is not self and archive.files.exists(archive.at(OWNER))
        if marked and archive.read(OWNER)["id"] != self.about()["id"]:
            raise StoreError(
                f"{archive.at(OWNER)} says that the snapshots there are of another store than {self.path}; restore its "
                "own from a backup"
            )

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

    def check_described(self) -> None:
        """Raise `StoreError` if there are terms of a graph, and not its description."""
        if not self.exists and (terms := self._descriptions("term-")):
            raise StoreError(f"{self.at('store.json')} is missing, and {terms[0]} is there: restore it from a backup")

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

    def begin(self, survey: StoredGraph | None, size: int, sync: str) -> Term:
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

    def beginning(self, survey: StoredGraph | None) -> int | None:
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

    # ---- what a survey reads -----------------------------------------------------------------------------------------

    def has_all_epochs(self, terms: list[Term]) -> bool:
        """Whether the log has all epochs, and none was dropped after a snapshot."""
        begun = terms and terms[0].number == 1
        first = segment_name(0)
        return bool(begun) and all(first in self.files.names(self.log_folder(1, r)) for r in range(terms[0].size))

    def scans_of(self, term: Term, places: list[int], repair: bool) -> list[Scan]:
        """What the logs of a term's ranks hold from these places on."""
        return [self.scan(term.number, rank, places[rank], repair) for rank in range(term.size)]

    def scan(self, term: int, rank: int, place: int, repair: bool) -> Scan:
        """What the log of one rank holds from a place on."""
        folder, log = self.log_folder(term, rank), log_id(self.about()["id"], term, rank)
        try:
            return scan(self.files, folder, log, place, repair)
        except OSError as error:
            raise failed(error, error.filename or folder, "the log cannot be read:") from error

    def missing(self, term: Term, rank: int) -> str:
        """That the log of one rank is missing."""
        return f"{self.log_folder(term.number, rank)} is missing"

    def offsets_of(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, tuple[str, int]]]:
        """The places in sources that records have, and these records."""
        with RecordColumns(self.files) as bodies:
            for entry in entries:
                if entry.extra and (offset := bodies.offset(entry)) is not None:
                    yield entry, offset
