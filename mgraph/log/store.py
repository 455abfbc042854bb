"""A store: a folder with the description of a graph, its terms, the logs of each term's ranks, and snapshots.

==================================  ====================================================================================
name                                content
==================================  ====================================================================================
``store.json``                      format, id, the kind of graph
``term-000001.json``                the number of ranks, and the epoch at which the term begins
``term-000001/rank-0000/*.log``     the segments of one rank's log
``head-0000.json``                  the newest term, and how far the rank's log in it was synced
``snapshot-000000000042.json``      epoch, the places of the logs, the files with their checksums
``snapshot-000000000042/*.arrow``   the edges of one rank
``communities.bin``                 the names of communities when the graph was closed; in snapshots theirs
``owner.json``                      the store's id, where the snapshots are elsewhere
``lock``, ``rank-0000.lock``        locked by rank 0, and by each rank that has a log open; the holder is inside
``*.damaged``                       what a repair gave up
==================================  ====================================================================================

A term is one opening of a graph for writing, as in Raft. The description of a term ends the term before it at its own
epoch. Descriptions carry a checksum, and a rename makes them valid.

Order of the writes when a term begins: the description of the term; the log of each rank; the head of each rank; then
the first record. So a crash leaves a head that is older than the store, and never one that names what is missing.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from mgraph.errors import InvalidOption, StoreError
from mgraph.log.files import Files, failed, pieces, reading
from mgraph.log.manifest import FORMAT, Head, StoredGraph, Term, described, head_name, term_of
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import Entry, checksum, log_id, segment_name, segment_start
from mgraph.log.remote import files_at, is_remote
from mgraph.log.scan import Scan, has_records, scan

__all__ = ["Store", "check_files"]

OWNER = "owner.json"  #: names the store of the snapshots in a folder without a log
LOCK_SECONDS = 5.0  #: wait for a lock: a graph that just ended may still hold it
#: fields that identify each kind of description
FIELDS = {
    "store": {"format", "id"},
    "term": {"number", "size", "epoch", "sync"},
    "head": {"store", "term", "rank", "synced", "epoch"},
    "snapshot": {"epoch", "term", "n_vertices", "places", "files"},
    "owner": {"id"},
}

T = TypeVar("T")


def check_files(snapshot: Mapping[str, Any], path: str) -> None:
    """Raise `StoreError` if a snapshot's files are not described as `mgraph.log.snapshot` does."""
    try:
        keys = snapshot.get("keys")
        for about in snapshot["files"] if keys is None else [*snapshot["files"], keys]:
            pieces = about.get("pieces", ())
            sizes = [(about["rows"], about["nbytes"]), *((rows, nbytes) for rows, nbytes, _ in pieces)]
            texts = [about["name"], about["checksum"], *(digest for *_, digest in pieces)]
            if any(type(n) is not int or n < 0 for pair in sizes for n in pair):
                raise ValueError(f"sizes {sizes}")
            if not all(isinstance(text, str) for text in texts):
                raise TypeError(f"texts {texts}")
            if pieces and tuple(map(sum, zip(*sizes[1:], strict=True))) != sizes[0]:
                raise ValueError(f"pieces with other sums than {sizes[0]}")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path} describes its files as mgraph does not ({type(error).__name__}: {error}); restore it from a backup"
        ) from error


class Store:
    """The files of a store: its descriptions, segments and locks. `mgraph.log.recovery_scan` reads the graph in it.

    Parameters
    ----------
    path : str
        A folder, or a URL of fsspec for a place that has snapshots only.
    files : Files, optional

    Attributes
    ----------
    missing_reason : "unseen" or None
        The reason of a `StoreError` about the missing log of a rank.
    """

    missing_reason: Literal["unseen"] | None = None

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path.rstrip("/") if is_remote(path) else os.path.abspath(path)
        self.files = files_at(path) if files is None else files
        self._archive: Store | None = None
        self._heads: dict[tuple[int, int], Head] = {}
        self.last_term = 0  #: the newest term as of the last call of `terms`

    @property
    def archive(self) -> Store:
        """The store that has the snapshots, here or at the URL in ``store.json``."""
        if self._archive is None:
            elsewhere = self.about().get("snapshots") if self.exists else None
            if elsewhere is None:
                return self
            self._archive = Store(elsewhere)
        return self._archive

    def at(self, *names: str) -> str:
        """Return the path of something in the store."""
        return "/".join((self.path, *names))

    def has(self, *names: str) -> bool:
        """Return True if the store has a file or folder; `StoreError` if that cannot be read."""
        path = self.at(*names)
        with reading(path):
            return self.files.exists(path)

    def names(self, *folder: str) -> list[str]:
        """Return the names in the store or in a folder of it, sorted; `StoreError` if they cannot be read."""
        path = self.at(*folder)
        with reading(path):
            return self.files.names(path)

    # ---- descriptions ------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """True if the folder holds a store."""
        return self.has("store.json")

    def create(self, kind: Mapping[str, Any]) -> dict[str, Any]:
        """Make a store for a graph of this kind; return its description.

        Raises
        ------
        InvalidOption
            The folder holds a store.
        StoreError
            The folder cannot be written.
        """
        self.check_new()
        about = described(kind, uuid.uuid4().hex)
        try:
            self.describe("store.json", about)
        except BaseException:
            # Its name may not be durable, and a later term must not begin in a store without a description.
            with suppress(OSError):
                self.files.remove(self.at("store.json"))
            raise
        self.mark_archive(about)
        return about

    def check_new(self) -> None:
        """Raise `InvalidOption` if the folder holds a store, or terms of one."""
        if self.exists or any(name.startswith("term-") for name in self.names()):
            raise InvalidOption(
                f"{self.path} holds a store: open it with DynamicGraph.open({self.path!r}), on a cluster with its "
                "client before the path"
            )

    def check_place(self, kind: Mapping[str, Any]) -> None:
        """Raise `InvalidOption` if the place for the snapshots has another graph's."""
        if (elsewhere := kind.get("snapshots")) is not None:
            archive = Store(elsewhere)
            if any(name == OWNER or name.startswith(("store.", "snapshot-")) for name in archive.names()):
                raise InvalidOption(f"{archive.path} has snapshots of another graph: choose another place")

    def mark_archive(self, about: Mapping[str, Any]) -> None:
        """Write the store's id beside the snapshots, if they are elsewhere."""
        if (elsewhere := about.get("snapshots")) is not None:
            archive = Store(elsewhere)
            archive.make_folder()
            archive.describe(OWNER, {"id": about["id"]})

    def check_archive(self) -> None:
        """Raise `StoreError` if another store has the place of the snapshots.

        Earlier versions did not mark it.
        """
        archive = self.archive
        marked = archive is not self and archive.has(OWNER)
        if marked and archive.read(OWNER)["id"] != self.about()["id"]:
            raise StoreError(
                f"{archive.at(OWNER)} says that the snapshots there are of another store than {self.path}; restore its "
                "own from a backup"
            )

    def make_folder(self) -> None:
        """Make the folder; `StoreError` if that fails."""
        try:
            self.files.folder(self.path)
            # The name of an existing folder may not be durable, and an earlier sync may have failed.
            for step in (self.files.touch_folder, self.files.sync_folder):
                try:
                    step(os.path.dirname(self.path))
                except OSError as error:
                    if error.errno == errno.EIO:  # other errors: the parent may be another user's
                        raise
        except OSError as error:
            raise failed(error, self.path, "the folder of the store cannot be made:") from error

    def describe(self, name: str, content: Mapping[str, Any], durable: bool = True) -> None:
        """Write a description in a single step; without `durable`, a crash may bring back the one before."""
        text = json.dumps(content, sort_keys=True)
        sealed = json.dumps({"content": content, "checksum": f"{checksum(text.encode()):016x}"}, sort_keys=True)
        try:
            self.files.replace(self.at(name), sealed.encode(), durable)
        except OSError as error:
            raise failed(error, self.at(name), "the store cannot be written:") from error

    def read(self, name: str) -> dict[str, Any]:
        """Return a description; `StoreError` if it is damaged or misnamed."""
        # Check the bytes.
        path = self.at(name)
        try:
            with reading(path):
                sealed = json.loads(self.files.read(path))
            content: dict[str, Any] = sealed["content"]
            whole = sealed["checksum"] == f"{checksum(json.dumps(content, sort_keys=True).encode()):016x}"
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole or not isinstance(content, dict):
            raise StoreError(f"{path} is damaged: its checksum is another; restore it from a backup")

        # Check the fields: a misnamed description has others.
        kind = name.partition(".")[0].partition("-")[0]
        if "/" not in name and not FIELDS.get(kind, set()) <= content.keys():
            raise StoreError(f"{path} is misnamed: it does not describe a {kind}; restore it from a backup")
        return content

    def about(self) -> dict[str, Any]:
        """Return the description of the graph.

        Raises
        ------
        StoreError
            The description is missing, damaged, or of a version to come.
        """
        if not self.exists:
            raise StoreError(
                f"{self.path} holds no store that this process can see; the workers of a graph share the folder of a "
                'store, unless the graph is made with disks="local"'
            )
        about = self.read("store.json")
        self.check_format(about, "store.json")
        return about

    def check_described(self) -> None:
        """Raise `StoreError` if the folder holds terms without ``store.json``."""
        if not self.exists and (terms := self._descriptions("term-")):
            raise StoreError(f"{self.at('store.json')} is missing, and {terms[0]} is there: restore it from a backup")

    def check_format(self, about: Mapping[str, Any], name: str) -> None:
        """Raise `StoreError` if a description is of a version to come."""
        if about["format"] > FORMAT:
            raise StoreError(
                f"{self.at(name)} has format {about['format']} and this mgraph reads up to {FORMAT}: install "
                "the version that wrote it, or a newer one"
            )

    def terms(self, damaged: list[str] | None = None) -> list[Term]:
        """Return all terms, in their order.

        `damaged`: see `_all_of`.
        """

        def parse(name: str) -> Term:
            term = Term(**self.read(name))
            if name != f"term-{term.number:06d}.json":
                raise StoreError(f"{self.at(name)} is misnamed: it describes term {term.number}; rename it")
            return term

        terms = self._all_of("term-", parse, damaged)
        self.last_term = max((term.number for term in terms), default=0)
        return terms

    def heads(self, damaged: list[str] | None = None) -> list[Head]:
        """Read the heads, by which `scan` checks the logs.

        `damaged`: see `_all_of`.
        """
        store = self.about()["id"]
        heads = self._all_of("head-", lambda name: Head.parse(self.read(name), self.at(name), store), damaged)
        self._heads = {head.key: head for head in heads}
        return heads

    def snapshots(self, damaged: list[str] | None = None) -> list[dict[str, Any]]:
        """Return the descriptions of the whole snapshots, by epoch.

        `damaged`: see `_all_of`.
        """

        def parse(name: str) -> dict[str, Any]:
            content = {"folder": name.removesuffix(".json"), **self.read(name)}  # format 1 may lack the folder
            if name != f"{content['folder']}.json":
                raise StoreError(f"{self.at(name)} is misnamed: it describes {content['folder']}; rename it")
            check_files(content, self.at(name))
            return content

        return self._all_of("snapshot-", parse, damaged)

    def _all_of(self, begins: str, parse: Callable[[str], T], damaged: list[str] | None) -> list[T]:
        """Parse all descriptions of a kind.

        The names of those that are damaged or misnamed are appended to `damaged`; without it, `StoreError` names the
        first.
        """
        results = []
        for name in self._descriptions(begins):
            try:
                results.append(parse(name))
            except StoreError as error:
                if damaged is None:
                    raise StoreError(f"{error}, or open the store with repair=True, which does without it") from None
                damaged.append(name)
        return results

    def _descriptions(self, begins: str) -> list[str]:
        return [name for name in self.names() if name.startswith(begins) and name.endswith(".json")]

    def undescribed(self) -> list[str]:
        """Return the folders of terms with a whole record and without a description."""
        names = self.names()
        return [name for name in names if term_of(name) and f"{name}.json" not in names and self._has_records(name)]

    def _has_records(self, term: str) -> bool:
        """Return True if a log of a term's folder holds a whole record."""
        with reading(self.at(term)):
            return any(has_records(self.files, self.at(term, rank)) for rank in self.names(term))

    def missing_term(self, number: int) -> str:
        """Return the message that the description of a term is missing."""
        return f"{self.at(f'term-{number:06d}.json')} is missing"

    def begin_term(self, stored: StoredGraph | None, size: int, sync: str) -> Term:
        """Begin a term after a stored graph, which is made durable first.

        Records behind it are cut.

        Raises
        ------
        StoreError
            The store cannot be written, or the folder of the new term holds a record.
        """
        # Make durable what was read, and set aside what a repair gives up.
        for log in stored.unsynced if stored else []:
            self.sync(log)
        if stored:
            for name in stored.damaged:
                self.archive.set_aside(name)
            for name in stored.aside:
                self.set_aside(name)

        # Describe the term, in place of an opening that ended before its first record.
        number, epoch = (stored.term + 1, stored.epoch) if stored else (1, 0)
        term = Term(number, size, epoch, sync, self.vertices_at_start(stored))
        name = f"term-{number:06d}"
        if self._has_records(name):
            raise StoreError(f"{self.at(name)} holds records, and the term begins only now; move the folder away")
        self.files.remove(self.at(name))
        self.describe(f"{name}.json", term.content)
        return term

    def set_aside(self, name: str) -> None:
        """Rename a file or folder that a repair gives up, if it exists.

        Nobody reads it from now on.
        """
        new, number = f"{name}.damaged", 1
        while self.has(new):
            number += 1
            new = f"{name}.damaged-{number}"
        if self.has(name):
            try:
                self.files.rename(self.at(name), self.at(new))
            except OSError as error:
                raise failed(error, self.at(name), "the store cannot be written:") from error

    def vertices_at_start(self, stored: StoredGraph | None) -> int | None:
        """Return the vertices that a new term's description needs, or None."""
        return stored.left if stored and stored.about.get("drop_isolated") else None

    def write_head(self, head: Head, durable: bool = True) -> None:
        """Write the head of a rank's log; without `durable`, a crash may bring back the one before."""
        self.describe(head_name(head.rank), head.content, durable)

    def sync(self, log: Scan) -> None:
        """Make the records of a scanned log durable, which has a last segment."""
        path, (at, end) = log.last or "", log.unsynced
        try:
            file = self.files.open(path)
            try:
                # Write again what was read: after a failed sync, the system may keep it in memory without writing it.
                with self.files.contents(path) as contents:
                    for data in pieces(contents, at, end):
                        file.write(at, [data])
                        at += len(data)
                file.sync()
            finally:
                file.close()
        except OSError as error:
            raise failed(error, path, "the log cannot be synced:") from error

    def usage(self) -> tuple[int, int]:
        """Return the number of segments, and the bytes of all files."""
        segments = nbytes = 0
        for folder, _, names in os.walk(self.path):
            segments += sum(name.endswith(".log") for name in names)
            for name in names:
                with suppress(OSError):
                    nbytes += os.stat(os.path.join(folder, name)).st_blocks * 512
        return segments, nbytes

    def log_folder(self, term: int, rank: int) -> str:
        """Return the folder of a rank's log."""
        return self.at(f"term-{term:06d}", f"rank-{rank:04d}")

    def drop_segments(self, term: int, rank: int, place: int) -> None:
        """Remove the segments that end at or before the start of another, `place`."""
        for name in self._segments_of(term, rank):
            start = segment_start(name)
            if start is not None and start < place:
                self.files.remove(f"{self.log_folder(term, rank)}/{name}")

    def _segments_of(self, term: int, rank: int) -> list[str]:
        """Return the names in the folder of a rank's log; `StoreError` if they cannot be read."""
        folder = self.log_folder(term, rank)
        with reading(folder):
            return self.files.names(folder)

    # ---- locks -------------------------------------------------------------------------------------------------------

    def lock(self, name: str = "lock", who: str = "", seconds: float = LOCK_SECONDS) -> Any:
        """Lock the store until the result is closed, or this process ends.

        Raises
        ------
        StoreError
            Another process has the lock, or the file cannot be locked. The message names the holder.
        """
        path, end = self.at(name), time.monotonic() + seconds
        while True:
            try:
                lock = self.files.lock(path)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    what = f"{self.path} is in use by {self._holder(path)}: close that graph first"
                    raise StoreError(what, reason="in use") from None
                time.sleep(0.05)
            except OSError as error:
                raise failed(error, path, "the store cannot be locked:") from error

        # Write the holder into the file, for the message above.
        process = f"process {os.getpid()} on {socket.gethostname()}"
        with suppress(OSError):
            lock.truncate(0)
            lock.write((f"{who}, {process}" if who else process).encode())
            lock.flush()
        return lock

    def lock_rank(self, rank: int, who: str = "") -> Any:
        """Lock the files that a rank writes, like `lock`."""
        return self.lock(f"rank-{rank:04d}.lock", who)

    def check_ranks(self, who: str = "") -> None:
        """Raise `StoreError` if a rank of another graph has its lock."""
        for name in self.names():
            if name.startswith("rank-") and name.endswith(".lock"):
                self.lock(name, who).close()

    def _holder(self, path: str) -> str:
        try:
            return self.files.read(path).decode(errors="replace") or "another graph"
        except OSError:
            return "another graph"

    # ---- logs, as a recovery scan reads them -------------------------------------------------------------------------

    def has_all_epochs(self, terms: list[Term]) -> bool:
        """Return True if the log has all epochs from 0 on."""
        first = segment_name(0)
        return bool(terms and terms[0].number == 1) and all(
            first in self._segments_of(1, rank) for rank in range(terms[0].size)
        )

    def scans_of(self, term: Term, places: list[int], repair: bool) -> list[Scan]:
        """Scan the logs of a term's ranks from `places` on."""
        return [self.scan(term.number, rank, places[rank], repair) for rank in range(term.size)]

    def scan(self, term: int, rank: int, place: int, repair: bool) -> Scan:
        """Scan the log of a rank from `place` on."""
        folder, log = self.log_folder(term, rank), log_id(self.about()["id"], term, rank)
        mark = self._heads[term, rank].synced if (term, rank) in self._heads else 0
        try:
            return scan(self.files, folder, log, place, repair, mark)
        except OSError as error:
            raise failed(error, error.filename or folder, "the log cannot be read:") from error

    def must_exist(self, term: Term, rank: int) -> bool:
        """Return True if the log of a rank cannot be missing.

        Its head was written after the log was made.
        """
        return (term.number, rank) in self._heads

    def missing(self, term: Term, rank: int) -> str:
        """Return the message that the log of a rank is missing."""
        return f"{self.log_folder(term.number, rank)} is missing"

    def offsets_of(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, tuple[str, int]]]:
        """Yield the records with a place in a source, and that place."""
        with RecordColumns(self.files) as columns:
            for entry in entries:
                if entry.extra and (offset := columns.offset(entry)) is not None:
                    yield entry, offset
