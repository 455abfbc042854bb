"""The format of a log: records of 8-byte words, little-endian, each with its place and two checksums.

=======  ====  ===========================================================================================
offset   size  what
=======  ====  ===========================================================================================
0        4     ``MGR1``
4        1     the kind, one of `KINDS`
5        1     the columns, by the bits `WEIGHT`, `OP`, `DELETES`, `KEYS` and `TIME`; and `AHEAD`
6        2     bytes of the place in a source; 0 for none
8        8     the epoch that the change makes; for a kind in `WITHIN`, the epoch that it belongs to
16       8     the attempt: which try at that epoch; ascending in stream order
24       8     n: edges or ids; of a mark the place up to which the log is synced
32       8     the number of vertices afterwards, if the change brings some; else 0
40       8     bytes of the columns and the place in a source, padded to 8
48       8     the place up to which this log was synced when the record was written
56       8     XXH3 of these bytes
64       8     the record's own place in this log, in bytes from the log's beginning
72       8     the log: a hash of store, term and rank
80       8     XXH3 of the 80 bytes before
88       -     the columns: src, dst, time, weight, op; or ids; or a time; then the place in a source, as JSON
               ``[name, n]``; then, in rank 0's record, the keys of new vertices in the format of
               `mgraph.keys.KeyArray.packed`
=======  ====  ===========================================================================================

Each kept attempt is one epoch, except for the kinds in `WITHIN`: the removal of vertices that have lost their last edge
belongs to the epoch before.

Blocks of older files or of other logs are not taken for records here, since their place or log differs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import xxhash

from mgraph.tables.times import MOST

__all__ = [
    "HEADER",
    "REMOVALS",
    "WITHIN",
    "Draft",
    "Entry",
    "SnapshotState",
    "checksum",
    "columns_nbytes",
    "columns_of",
    "draft",
    "foreign",
    "header_of",
    "is_header",
    "keys_of",
    "layout",
    "log_id",
    "may_refuse",
    "offset_of",
    "resealed",
    "segment_name",
    "segment_start",
    "stand_ins",
]

MAGIC = b"MGR1"
HEADER = 88
WEIGHT, OP, DELETES, KEYS, TIME = 1, 2, 4, 8, 16
AHEAD = 128  #: with ``sync="always"``: earlier changes may not have been synced when the record was written
KINDS = {
    "batch": 1, "delete_vertices": 2, "add_vertices": 3, "remove_vertices": 4, "expire": 5, "drop_vertices": 6,
    "refused": 16, "mark": 17,
}  # fmt: skip
WITHIN = {"drop_vertices"}  #: changes that belong to the epoch before them, and take none
REMOVALS = {"remove_vertices", "drop_vertices"}  #: changes that move later ids up
IDS = {"delete_vertices", *REMOVALS}
NAMES = {number: name for name, number in KINDS.items()}
#: the columns of a batch, in their order: dtype, and the bit of a record that has the column
BATCH: dict[str, tuple[np.dtype, int]] = {
    "src": (np.dtype(np.uint32), 0),
    "dst": (np.dtype(np.uint32), 0),
    "time": (np.dtype(np.int64), TIME),
    "weight": (np.dtype(np.float32), WEIGHT),
    "op": (np.dtype(np.int8), OP),
}

_HEAD = struct.Struct("<4xBBHQQQQQQQQQ")
_WORD = struct.Struct("<Q")


class SnapshotState(IntEnum):
    """State of a rank's snapshot, sent with its vote. The ranks learn the minimum over all of them."""

    WRITING = 1  #: a snapshot is being written
    WANTED = 2  #: a snapshot is due
    IDLE = 3


@dataclass
class Draft:
    """A record to be written: the fields of its header, and its columns unless a tail has them."""

    kind: str
    mask: int
    epoch: int
    attempt: int
    n: int
    vertices: int
    parts: Sequence[Any]
    nbytes: int
    extra: int = 0

    def packed(self, synced: int, place: int, log: int, parts: Sequence[Any] | None = None) -> bytes:
        """Return the header for a place in a log.

        Hashes the columns, or `parts` in their place.
        """
        body = xxhash.xxh3_64()
        for part in self.parts if parts is None else parts:
            body.update(part)
        fields = (self.epoch, self.attempt, self.n, self.vertices, self.nbytes, synced, body.intdigest(), place, log)
        head = MAGIC + _HEAD.pack(KINDS[self.kind], self.mask, self.extra, *fields)[4:]
        return head + _WORD.pack(checksum(head))

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return HEADER + self.nbytes

    @property
    def ahead(self) -> bool:
        """True if the record has the bit `AHEAD`."""
        return bool(self.mask & AHEAD)


class Entry(NamedTuple):
    """A record in a log: the fields of its header, and its file.

    Attributes
    ----------
    kind : str
    mask : int
    epoch, attempt, n, vertices, nbytes, synced, body, place : int
        As in the module's table.
    path : str
    at : int
        The offset of the header in the file.
    extra : int
        Bytes of the place in a source.
    holder : int or None
        In a store on local disks, the rank that reads the record; None where every rank sees it.
    term : int
        The record's term, if it has a holder.
    """

    kind: str
    mask: int
    epoch: int
    attempt: int
    n: int
    vertices: int
    nbytes: int
    synced: int
    body: int
    place: int
    path: str
    at: int
    extra: int = 0
    holder: int | None = None
    term: int = 0

    @property
    def end(self) -> int:
        """The place behind the record."""
        return self.place + HEADER + self.nbytes


def checksum(data: Any) -> int:
    """Return the XXH3 hash, 64 bits."""
    return xxhash.xxh3_64_intdigest(data)


def log_id(store: str, term: int, rank: int) -> int:
    """Return the number of a rank's log in a term of a store."""
    return checksum(f"{store}/{term}/{rank}".encode())


def draft(kind: str, columns: Mapping[str, Any], epoch: int, attempt: int, ahead: bool = False) -> Draft:
    """Draft the record of a change.

    Columns are not copied; those of a GPU stay on it.
    """
    # The columns, by the kind of the change.
    mask, n, parts = AHEAD * ahead, 0, []
    if kind == "batch":
        op, weight = columns.get("op"), columns.get("weight")
        parts, n = [_plain(columns["src"], np.uint32), _plain(columns["dst"], np.uint32)], len(columns["src"])
        if columns.get("time") is not None:
            mask |= TIME
            parts.append(_plain(columns["time"], np.int64))
        if weight is not None:
            mask |= WEIGHT
            parts.append(_plain(weight, np.float32))
        if isinstance(op, int):
            mask |= DELETES
        elif op is not None:
            mask |= OP
            parts.append(_plain(op, np.int8))
    elif kind in IDS:
        parts, n = [_plain(columns["ids"], np.uint32)], len(columns["ids"])
    elif kind == "expire":
        parts, n = [np.array([columns["before"]], np.int64)], 1
    elif kind == "mark":
        n = int(columns["synced"])

    # The place in a source, and the keys of new vertices.
    extra = b"" if columns.get("offset") is None else json.dumps(list(columns["offset"])).encode()
    if extra:
        parts.append(np.frombuffer(extra, np.uint8))
    if columns.get("keys") is not None:
        mask |= KEYS
        parts.append(_plain(columns["keys"], np.uint8))

    # Pad to words of 8 bytes.
    nbytes, vertices = sum(part.nbytes for part in parts), int(columns.get("n_vertices", 0))
    if nbytes % 8:
        parts.append(np.zeros(8 - nbytes % 8, np.uint8))
    return Draft(kind, mask, epoch, attempt, n, vertices, parts, -(-nbytes // 8) * 8, len(extra))


def _plain(column: Any, dtype: Any) -> Any:
    if hasattr(column, "get"):  # on a GPU
        return column.astype(dtype, order="C", copy=False)
    return np.ascontiguousarray(column, dtype)


def header_of(head: bytes, at: int, place: int, log: int, path: str, size: int) -> Entry | None:
    """Parse the header at an offset of a file of `size` bytes.

    None if it belongs to another record, is cut, or names more columns than the record has bytes.
    """
    if len(head) < HEADER:
        return None
    kind, mask, extra, epoch, attempt, n, vertices, nbytes, synced, body, own, owner = _HEAD.unpack_from(head)
    if own != place or owner != log or kind not in NAMES or at + HEADER + nbytes > size or not is_header(head):
        return None
    entry = Entry(NAMES[kind], mask, epoch, attempt, n, vertices, nbytes, synced, body, place, path, at, extra)
    return entry if _least_nbytes(entry) <= nbytes else None


def resealed(entry: Entry, parts: Sequence[Any], log: int) -> bytes:
    """Return the header of a record with the hash of its columns, which the header in a tail lacks."""
    what = entry.kind, entry.mask, entry.epoch, entry.attempt, entry.n, entry.vertices
    return Draft(*what, parts, entry.nbytes, entry.extra).packed(entry.synced, entry.place, log)


def segment_name(place: int) -> str:
    """Return the name of the segment that begins at a place."""
    return f"{place:016x}.log"


def segment_start(name: str) -> int | None:
    """Return the place of a segment with this name; None for another file."""
    stem, _, kind = name.partition(".")
    try:
        return int(stem, 16) if kind == "log" and len(stem) == 16 else None
    except ValueError:
        return None


def foreign(head: bytes, log: int) -> bool:
    """Return True if a segment with these first bytes is of another log."""
    return len(head) == HEADER and is_header(head) and bool(_HEAD.unpack_from(head)[-1] != log)


def is_header(head: bytes) -> bool:
    """Return True if these bytes are a record's header, of any log."""
    return head[:4] == MAGIC and checksum(head[:-8]) == _WORD.unpack_from(head, HEADER - 8)[0]


def layout(entry: Entry) -> dict[str, np.dtype]:
    """Return the columns of a batch's record, in their order."""
    return {name: dtype for name, (dtype, bit) in BATCH.items() if not bit or entry.mask & bit}


def stand_ins(entry: Entry) -> dict[str, int]:
    """Return the values of the columns that a batch's record lacks.

    Deletions need no time.
    """
    stands = {"op": -1 if entry.mask & DELETES else 1, "weight": 1, "time": MOST}
    return {name: value for name, value in stands.items() if not entry.mask & BATCH[name][1]}


def columns_nbytes(entry: Entry) -> int:
    """Return the bytes of a batch's columns."""
    return sum(dtype.itemsize for dtype in layout(entry).values()) * entry.n


def _least_nbytes(entry: Entry) -> int:
    """Return the bytes of a record's columns and of its place in a source."""
    if entry.kind == "batch":
        return columns_nbytes(entry) + entry.extra
    if entry.kind in IDS:
        return 4 * entry.n + entry.extra
    return 8 if entry.kind == "expire" else entry.extra


def may_refuse(head: bytes) -> bool:
    """Return True if a damaged header may be that of a refusal.

    A single flipped bit is corrected. With more damage, the header may have been anything.
    """
    for mask in (0, *(1 << bit for bit in range(8 * len(head)))):
        whole = (int.from_bytes(head, "little") ^ mask).to_bytes(len(head), "little")
        if len(head) == HEADER and is_header(whole):
            return whole[4] == KINDS["refused"]
    return True


def keys_of(entry: Entry, body: np.ndarray) -> np.ndarray | None:
    """Return the keys that a record brings, as bytes; None without keys."""
    return body[columns_nbytes(entry) + entry.extra :] if entry.mask & KEYS else None


def offset_of(text: bytes) -> tuple[str, int] | None:
    """Parse the place in a source from bytes; None where they are damaged."""
    try:
        name, n = json.loads(text)
    except (ValueError, TypeError):
        return None
    return str(name), int(n)


def columns_of(entry: Entry, body: np.ndarray) -> dict[str, Any]:
    """Return the columns of a record other than a batch, as views."""
    if entry.kind in IDS:
        return {"ids": body[: 4 * entry.n].view(np.uint32)}
    if entry.kind == "expire":
        return {"before": int(body[:8].view(np.int64)[0])}
    return {}
