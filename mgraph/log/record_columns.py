"""Reading the columns of records, each record checked before its use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import xxhash

from mgraph.errors import StoreError
from mgraph.log.files import PIECE, Contents, Files, failed
from mgraph.log.records import HEADER, Entry, columns_nbytes, layout, offset_of, stand_ins

__all__ = ["RecordColumns"]

OPEN = 64  #: maximum number of open files; each rank of a term has one that is being read


class RecordColumns:
    """Reads the columns of records, in a single thread.

    Parameters
    ----------
    files : Files
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open: OrderedDict[str, Contents] = OrderedDict()
        self._rest = np.empty(0, np.uint8)  # bytes that are read only to check them
        self._checked: Entry | None = None

    def __enter__(self) -> RecordColumns:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def read(self, entry: Entry) -> np.ndarray:
        """Return the bytes of a record's columns; `StoreError` if they are damaged."""
        body = np.empty(entry.nbytes, np.uint8)
        if not self._filled(entry, [(0, body)]):
            raise _damaged(entry)
        return body

    def whole(self, entry: Entry) -> bool:
        """Return True if a record's columns are as they were written."""
        return self._filled(entry, [])

    def fill(self, entry: Entry, lo: int, hi: int, columns: Mapping[str, np.ndarray]) -> None:
        """Fill columns, by name, with the operations `lo` to `hi` - 1.

        Missing columns get their default. All bytes of the record are read and checked, unless another part of it was
        filled just before; `StoreError` if they are damaged.
        """
        # Find the wanted bytes of each column.
        wanted, at, stands = [], 0, stand_ins(entry)
        for name, dtype in layout(entry).items():
            if name in columns:
                wanted.append((at + lo * dtype.itemsize, columns[name].view(np.uint8)))
            at += entry.n * dtype.itemsize
        for name in columns.keys() & stands.keys():
            columns[name][:] = stands[name]

        # Read them; all bytes are checked, unless that was done for another part just before.
        if entry == self._checked:
            whole = all(self._read(entry, begin, [column]) for begin, column in wanted)
        else:
            whole = self._filled(entry, wanted)
        if not whole:
            raise _damaged(entry)
        self._checked = entry if hi - lo < entry.n else None

    def offset(self, entry: Entry) -> tuple[str, int] | None:
        """Return the place in a source of a batch's record; None without one, or if it is damaged."""
        text = np.empty(entry.extra, np.uint8)
        return offset_of(bytes(text)) if entry.extra and self._read(entry, columns_nbytes(entry), [text]) else None

    def _filled(self, entry: Entry, wanted: Sequence[tuple[int, np.ndarray]]) -> bool:
        """Read all of a record, and keep the bytes at ascending offsets.

        Returns True if they are as written.
        """
        if len(self._rest) < min(entry.nbytes, PIECE):
            self._rest = np.empty(min(entry.nbytes, PIECE), np.uint8)
        digest, at = xxhash.xxh3_64(), 0
        for buffers in _runs(entry.nbytes, wanted, self._rest):
            if not self._read(entry, at, buffers):
                return False
            for buffer in buffers:
                digest.update(buffer.data)
                at += len(buffer)
        return digest.intdigest() == entry.body

    def _read(self, entry: Entry, at: int, buffers: Sequence[np.ndarray]) -> bool:
        """Fill buffers from an offset of a record's columns.

        Returns False if the file ends before.
        """
        try:
            return self._contents(entry.path).read(entry.at + HEADER + at, buffers) == sum(map(len, buffers))
        except OSError as error:
            raise failed(error, entry.path, "the log cannot be read:") from error

    def _contents(self, path: str) -> Contents:
        if path not in self._open:
            self._open[path] = self._files.contents(path)
        self._open.move_to_end(path)
        while len(self._open) > OPEN:
            self._open.popitem(last=False)[1].close()
        return self._open[path]


def _runs(nbytes: int, wanted: Sequence[tuple[int, np.ndarray]], rest: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Yield buffers for all bytes of a record, in runs that are read together.

    Between the wanted columns the bytes go to `rest`.

    A run has `rest` once and about `PIECE` bytes at most, so that they are hashed while they are in a cache.
    """
    # Each wanted column ends a stretch of other bytes; an empty one ends the record.
    run: list[np.ndarray] = []
    at = size = 0
    for begin, column in [*wanted, (nbytes, rest[:0])]:
        while at < begin:
            n = min(len(rest), begin - at)
            yield [*run, rest[:n]]
            run, size, at = [], 0, at + n
        # Cut a long column, so that its bytes are hashed while they are in a cache.
        for lo in range(0, len(column), PIECE):
            run.append(column[lo : lo + PIECE])
            size += len(run[-1])
            if size >= PIECE:
                yield run
                run, size = [], 0
        at += len(column)
    if run:
        yield run


def _damaged(entry: Entry) -> StoreError:
    return StoreError(
        f"{entry.path}, offset {entry.at}: the record of epoch {entry.epoch} is damaged; the store is whole up to "
        f"epoch {entry.epoch - 1}; repair=True opens it there and gives up the rest"
    )
