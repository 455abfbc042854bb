"""Reading one rank's log: its records up to a torn end, and whether something in the middle is broken.

A crash tears what was not synced. So a record that is damaged behind the last place of which the log says that it was
synced is the torn end; one that is damaged before that place is a broken middle. The log says it in each record's
header, by marks, and by the names of segments, since a segment is begun when the one before it is synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mgraph.log.files import Contents, Files, pieces
from mgraph.log.record_columns import RecordColumns
from mgraph.log.records import HEADER, MAGIC, Entry, foreign, header_of, segment_start

__all__ = ["Scan", "scan"]

WINDOW = 1 << 16  #: bytes that are read for headers at a time
_MAGIC = np.frombuffer(MAGIC, np.uint32)[0]


@dataclass
class Scan:
    """What one rank's log holds.

    Attributes
    ----------
    entries : list of Entry
        Changes and refusals, in their order in the log.
    broken : str or None
        The file and the offset of a damaged record that had been synced, after which nothing is read.
    there : bool
        Whether there is a log at all.
    last : str or None
        The path of the last segment.
    nbytes : int
        Bytes of all segments.
    segments : int
    first : int or None
        The place at which the first segment begins.
    """

    entries: list[Entry] = field(default_factory=list)
    broken: str | None = None
    there: bool = False
    last: str | None = None
    nbytes: int = 0
    segments: int = 0
    first: int | None = None


def scan(files: Files, folder: str, log: int, begin: int = 0, verify: bool = False) -> Scan:
    """Read the headers of a rank's log from `begin` on, where a segment begins; and the columns of what may be torn.

    With `verify`, read all columns. O(records), and the bytes that are read. The last segment may be that of a graph
    that goes on, and be cut to its length meanwhile.
    """
    found, synced = Scan(), begin
    starts = [start for name in files.names(folder) if (start := segment_start(name)) is not None and start >= begin]
    place = starts[0] if starts else begin
    found.there, found.first = bool(starts), starts[0] if starts else None
    if starts and place > begin:
        found.broken = f"{folder}: the segment with place {begin} is missing"
        return found
    for number, start in enumerate(starts):
        synced = max(synced, start)
        if start < place:  # there was no room for it, and the segment before it went on
            continue
        if place != start:
            break
        path = f"{folder}/{start:016x}.log"
        with files.contents(path) as contents:
            size = contents.size
            found.last, found.segments, found.nbytes = path, number + 1, found.nbytes + size
            heads = _Heads(contents)
            if foreign(heads.at(0), log):
                found.broken = f"{path} belongs to another store, or to another rank"
                return found
            while (entry := heads.entry(place - start, start, log, path, size)) is not None:
                synced = max(synced, entry.synced, entry.n if entry.kind == "mark" else 0)
                place = entry.end
                if entry.kind != "mark":
                    found.entries.append(entry)
            for later in _later(contents, place - start, start, log, path, size):
                synced = max(synced, later.synced, later.n if later.kind == "mark" else 0)
    torn = _first_damaged(files, found.entries, synced, verify)
    if torn is not None:
        place = found.entries[torn].place
        del found.entries[torn:]
    if place < synced:
        start = max(start for start in starts if start <= place)
        found.broken = f"{folder}/{start:016x}.log, offset {place - start}: a record that was synced is damaged"
    return found


class _Heads:
    """Reads the headers of records, with what is around them, since records may be small."""

    def __init__(self, contents: Contents) -> None:
        self._contents, self._bytes, self._begin, self._n = contents, bytearray(WINDOW), 0, 0

    def at(self, offset: int) -> bytes:
        """The bytes of a header at an offset."""
        first = offset - self._begin
        if not 0 <= first <= self._n - HEADER:
            self._begin, first, self._n = offset, 0, self._contents.read(offset, [self._bytes])
        return bytes(self._bytes[first : min(first + HEADER, self._n)])

    def entry(self, offset: int, start: int, log: int, path: str, size: int) -> Entry | None:
        """The record at an offset of the segment that begins at `start`. A graph may just have written it."""
        entry = header_of(self.at(offset), offset, start + offset, log, path, size)
        if entry is None and self._begin < offset:
            self._n = 0
            entry = header_of(self.at(offset), offset, start + offset, log, path, size)
        return entry


def _first_damaged(files: Files, entries: list[Entry], synced: int, verify: bool) -> int | None:
    """The number of the first entry whose columns are not what was written, of those that may be torn, or of all."""
    with RecordColumns(files) as bodies:
        for number, entry in enumerate(entries):
            if entry.kind != "refused" and (verify or entry.end > synced) and not bodies.whole(entry):
                return number
    return None


def _later(contents: Contents, at: int, start: int, log: int, path: str, size: int) -> Iterator[Entry]:
    """Records of this log behind a damaged place of a segment, wherever one begins."""
    for data in pieces(contents, at, size):
        words = data[: len(data) // 8 * 8].view(np.uint32)[::2]
        for number in np.flatnonzero(words == _MAGIC).tolist():
            head = bytearray(HEADER)
            offset = at + 8 * number
            contents.read(offset, [head])
            if (entry := header_of(bytes(head), offset, start + offset, log, path, size)) is not None:
                yield entry
        at += len(data)
