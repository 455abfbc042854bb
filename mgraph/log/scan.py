"""Reading one rank's log: its records up to a torn end, and whether something in the middle is broken.

A crash tears what was not synced. So a record that is damaged behind the last place of which the log says that it was
synced is the torn end; one that is damaged before that place is a broken middle. The log says it in each record's
header, by marks, and by the names of segments, since a segment is begun when the one before it is synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from mgraph.log.files import Files
from mgraph.log.records import HEADER, MAGIC, Entry, body_of, foreign, header_at
from mgraph.log.segments import segment_start

__all__ = ["Scan", "scan"]

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

    With `verify`, read all columns. O(records), and the bytes that are read.
    """
    found, synced = Scan(), begin
    starts = [start for name in files.names(folder) if (start := segment_start(name)) is not None and start >= begin]
    place = starts[0] if starts else begin
    found.there, found.first = bool(starts), starts[0] if starts else None
    if starts and place > begin:
        found.broken = f"{folder}: the segment with place {begin} is missing"
        return found
    maps: dict[str, np.ndarray] = {}
    for number, start in enumerate(starts):
        synced = max(synced, start)
        if place != start:
            break
        path = f"{folder}/{start:016x}.log"
        # the last segment may be that of a graph that goes on, and be cut to its length while it is read here
        data = maps[path] = files.map(path) if start != starts[-1] else np.frombuffer(files.read(path), np.uint8)
        found.last, found.segments, found.nbytes = path, number + 1, found.nbytes + len(data)
        if foreign(data, log):
            found.broken = f"{path} belongs to another store, or to another rank"
            return found
        while (entry := header_at(data, place - start, place, log, path)) is not None:
            synced = max(synced, entry.synced, entry.n if entry.kind == "mark" else 0)
            place = entry.end
            if entry.kind != "mark":
                found.entries.append(entry)
        for later in _later(data, place - start, start, log, path):
            synced = max(synced, later.synced, later.n if later.kind == "mark" else 0)
    torn = _first_damaged(found.entries, maps, synced, verify)
    if torn is not None:
        place = found.entries[torn].place
        del found.entries[torn:]
    if place < synced:
        start = max(start for start in starts if start <= place)
        found.broken = f"{folder}/{start:016x}.log, offset {place - start}: a record that was synced is damaged"
    return found


def _first_damaged(entries: list[Entry], maps: dict[str, np.ndarray], synced: int, verify: bool) -> int | None:
    """The number of the first entry whose columns are not what was written, of those that may be torn, or of all."""
    damaged: Callable[[Entry], bool] = lambda entry: (  # noqa: E731
        entry.kind != "refused" and (verify or entry.end > synced) and body_of(maps[entry.path], entry) is None
    )
    return next((number for number, entry in enumerate(entries) if damaged(entry)), None)


def _later(data: np.ndarray, at: int, start: int, log: int, path: str) -> Iterator[Entry]:
    """Records of this log behind a damaged place of a segment, wherever one begins."""
    words = data[at : at + (len(data) - at) // 8 * 8].view(np.uint32)[::2]
    for number in np.flatnonzero(words == _MAGIC).tolist():
        offset = at + 8 * number
        if offset + HEADER <= len(data) and (entry := header_at(data, offset, start + offset, log, path)) is not None:
            yield entry
