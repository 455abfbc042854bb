"""Scan of a rank's log: its records up to a torn end, and the first synced record that is broken.

A crash tears only bytes that were not synced. So a damaged record behind the last synced place is the torn end; before
that place it is a broken middle. The synced place is in record headers, in marks, in the head of the log, and in the
names of segments, since a segment is begun once the one before it is synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mgraph.log.files import Contents, Files, pieces
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import HEADER, MAGIC, WITHIN, Entry, foreign, header_of, is_header, may_refuse, segment_start

__all__ = ["Scan", "has_records", "scan"]

WINDOW = 1 << 16  #: bytes per read of headers
_MAGIC = np.frombuffer(MAGIC, np.uint32)[0]


@dataclass
class Scan:
    """The records of a rank's log.

    Attributes
    ----------
    entries : list of Entry
        Changes and refusals, in their order in the log.
    broken : str or None
        The file and the offset of a damaged record that had been synced, after which only refusals are read.
    undecided : (int, int) or None
        The epoch and the attempt of the last change before that, if the damaged record may be its refusal.
    exists : bool
        True if there is a log.
    last : str or None
        The path of the last segment.
    nbytes : int
        Bytes of all segments.
    segments : int
    first : int or None
        The place at which the first segment begins.
    unsynced : (int, int)
        The offsets in the last segment between which records may not be on the disk.
    """

    entries: list[Entry] = field(default_factory=list)
    broken: str | None = None
    undecided: tuple[int, int] | None = None
    exists: bool = False
    last: str | None = None
    nbytes: int = 0
    segments: int = 0
    first: int | None = None
    unsynced: tuple[int, int] = (0, 0)


def scan(files: Files, folder: str, log: int, begin: int = 0, verify: bool = False, mark: int = 0) -> Scan:
    """Read the records of a rank's log from place `begin` on, where a segment begins.

    O(records), and the bytes read.

    The last segment may be that of a graph that goes on, and be cut to its length meanwhile.

    Parameters
    ----------
    verify : bool
        Check the columns of all records, not only of those that may be torn.
    mark : int
        A place up to which the log was synced.
    """
    segments = [place for name in files.names(folder) if (place := segment_start(name)) is not None]
    starts = [start for start in segments if start >= begin]
    result = Scan(exists=bool(segments), first=starts[0] if starts else None)
    if segments and begin not in starts:
        result.broken = f"{folder}: the segment with place {begin} is missing"
        return result

    # Read the headers, one segment after another, and the largest place that they call synced.
    place, synced, base, later = begin, max(begin, mark), begin, list[Entry]()
    for number, start in enumerate(starts):
        synced = max(synced, start)
        if start < place:  # a full disk: the segment before it went on
            continue
        if place != start:
            break
        path, base = f"{folder}/{start:016x}.log", start
        with files.contents(path) as contents:
            size = contents.size
            result.last, result.segments, result.nbytes = path, number + 1, result.nbytes + size
            headers = _Headers(contents)
            if foreign(headers.at(0), log):
                result.broken = f"{path} belongs to another store, or to another rank"
                return result
            while (entry := headers.entry(place - start, start, log, path, size)) is not None:
                synced = max(synced, _synced_by(entry))
                place = entry.end
                if entry.kind != "mark":
                    result.entries.append(entry)
            later = [*_later(contents, place - start, start, log, path, size)]
            synced = max([synced, *map(_synced_by, later)])

    # Cut the log at the first record whose columns are damaged; one that had been synced breaks it.
    torn = _first_damaged(files, result.entries, synced, verify)
    if torn is not None:
        place, later = result.entries[torn].place, [*result.entries[torn:], *later]
        del result.entries[torn:]
    result.unsynced = max(0, min(synced, place) - base), max(0, place - base)
    if starts and place < synced:
        start = max(start for start in starts if start <= place)
        path = f"{folder}/{start:016x}.log"
        head = bytearray(HEADER)
        with files.contents(path) as contents:
            fate = "damaged" if place - start < contents.size else "missing: the file ends there"
            n = contents.read(place - start, [head])
        _add_refusals(result, bytes(head[:n]), later)
        result.broken = f"{path}, offset {place - start}: a record that was synced is {fate}"
    return result


def _add_refusals(result: Scan, head: bytes, later: list[Entry]) -> None:
    """Add the refusals behind a damaged record, and that which it was itself, or note which it may have been.

    `head` is its header. The next change tells if the last one was kept: then it follows that one's epoch.
    """
    result.entries += [entry for entry in later if entry.kind == "refused"]
    refused = {(entry.epoch, entry.attempt) for entry in result.entries if entry.kind == "refused"}
    changes = [entry for entry in result.entries if entry.kind != "refused"]
    last = next((entry for entry in reversed(changes) if (entry.epoch, entry.attempt) not in refused), None)
    if last is None or last.kind in WITHIN:
        return
    after = next((entry for entry in later if entry.kind not in ("refused", "mark")), None)
    if after is not None:
        if after.epoch - (after.kind not in WITHIN) < last.epoch:
            result.entries.append(last._replace(kind="refused"))
    elif may_refuse(head):
        result.undecided = last.epoch, last.attempt


def has_records(files: Files, folder: str) -> bool:
    """Return True if a segment in `folder` holds the header of a record, of whatever log. O(bytes)."""
    for name in files.names(folder):
        if segment_start(name) is not None:
            with files.contents(f"{folder}/{name}") as contents:
                if any(is_header(head) for _, head in _magic_heads(contents, 0, contents.size)):
                    return True
    return False


def _synced_by(entry: Entry) -> int:
    """Return the place up to which a record calls its log synced."""
    return max(entry.synced, entry.n if entry.kind == "mark" else 0)


class _Headers:
    """Reads the headers of records in windows, since records may be small."""

    def __init__(self, contents: Contents) -> None:
        self._contents, self._bytes, self._begin, self._n = contents, bytearray(WINDOW), 0, 0

    def at(self, offset: int) -> bytes:
        """Return the bytes of a header at an offset."""
        # Read the window from this offset on, unless it has the header.
        first = offset - self._begin
        if not 0 <= first <= self._n - HEADER:
            self._begin, first, self._n = offset, 0, self._contents.read(offset, [self._bytes])
        return bytes(self._bytes[first : min(first + HEADER, self._n)])

    def entry(self, offset: int, start: int, log: int, path: str, size: int) -> Entry | None:
        """Return the record at an offset of the segment that begins at `start`, even if it was just written."""
        entry = header_of(self.at(offset), offset, start + offset, log, path, size)
        if entry is None and self._begin < offset:
            self._n = 0
            entry = header_of(self.at(offset), offset, start + offset, log, path, size)
        return entry


def _first_damaged(files: Files, entries: list[Entry], synced: int, verify: bool) -> int | None:
    """Return the number of the first entry with damaged columns, of those behind `synced`; of all if `verify`."""
    with RecordColumns(files) as columns:
        for number, entry in enumerate(entries):
            if entry.kind != "refused" and (verify or entry.end > synced) and not columns.whole(entry):
                return number
    return None


def _later(contents: Contents, at: int, start: int, log: int, path: str, size: int) -> Iterator[Entry]:
    """Yield the records of this log behind a damaged place of a segment."""
    for offset, head in _magic_heads(contents, at, size):
        if (entry := header_of(head, offset, start + offset, log, path, size)) is not None:
            yield entry


def _magic_heads(contents: Contents, at: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield each offset from `at` on where a header may begin, and its bytes."""
    for data in pieces(contents, at, size):
        words = data[: len(data) // 8 * 8].view(np.uint32)[::2]
        for number in np.flatnonzero(words == _MAGIC).tolist():
            head = bytearray(HEADER)
            offset = at + 8 * number
            contents.read(offset, [head])
            yield offset, bytes(head)
        at += len(data)
