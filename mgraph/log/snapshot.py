"""Snapshots: the edges of an epoch as Arrow IPC files, one per rank, for pyarrow, Polars and DuckDB.

A file has the columns src, dst, in a weighted graph weight, and in a graph with times time, int64, by users' ids; an
undirected edge is in one file, once, with ``src <= dst``. Where a window combines weights, an edge has a row for each
of its insertions inside the window. Each rank describes its file beside it. When all have, rank 0 describes the
snapshot, and the rename of that description makes it valid. The description has a checksum per record batch, so readers
use only checked rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import xxhash

from mgraph.errors import StoreError
from mgraph.keys import KeyArray
from mgraph.log.files import File, failed
from mgraph.log.manifest import term_of
from mgraph.log.records import checksum
from mgraph.log.store import Store
from mgraph.tables.texts import Texts

__all__ = [
    "Rows",
    "arrow",
    "check_arrow",
    "drop_old",
    "folder_of",
    "give_up",
    "keys_in",
    "make_valid",
    "read_keys",
    "rows_of",
    "whole_file",
    "write_keys",
    "write_part",
    "written",
]

ROWS = 1 << 20  #: rows of a record batch
MAGIC = 8  #: bytes at the beginning of an Arrow IPC file, before the schema

Columns = Mapping[str, np.ndarray]


def check_arrow() -> None:
    """Raise `StoreError` without pyarrow, in less time than an import."""
    if find_spec("pyarrow") is None:
        raise StoreError('snapshots need pyarrow on every worker: pip install "dask-mgraph[snapshots]"')


def arrow() -> Any:
    """Return the module pyarrow; `StoreError` where it is not installed."""
    check_arrow()
    import pyarrow
    import pyarrow.ipc

    return pyarrow


def folder_of(epoch: int, term: int, changes: int) -> str:
    """Return the name of a snapshot's folder.

    `changes` counts changes of any kind in a term: after a move of rows, parts of the same epoch have other edges.
    """
    return f"snapshot-{epoch:012d}-{term:06d}-{changes:012d}"


class _Sink:
    """A file that Arrow writes, with checksums of it and of its pieces."""

    closed = False

    def __init__(self, file: File) -> None:
        self.file, self.at, self.hash = file, 0, xxhash.xxh3_64()
        self.pieces: list[tuple[int, int, str]] = []
        self._begin, self._piece = 0, xxhash.xxh3_64()

    def write(self, data: Any) -> int:
        """Append."""
        self.file.write(self.at, [data])
        self.hash.update(data)
        self._piece.update(data)
        self.at += len(data)
        return len(data)

    def end_piece(self, rows: int) -> None:
        """End the current piece, which holds `rows` rows."""
        self.pieces.append((rows, self.at - self._begin, self._piece.hexdigest()))
        self._begin, self._piece = self.at, xxhash.xxh3_64()

    def flush(self) -> None:
        """Do nothing: `write` has written."""

    close = flush


def write_part(
    store: Store,
    folder: str,
    rank: int,
    columns: Columns,
    place: int,
    over: Callable[[], bool] = lambda: False,
    mark: Mapping[str, Any] | None = None,
) -> None:
    """Write a rank's edges, durably, and then their description.

    Parameters
    ----------
    columns : mapping of str to array
    place : int
        The place in the rank's log at which later epochs begin.
    over : callable
        Asked before each record batch; returns True to give up.
    mark : mapping, optional
        On local disks, the snapshot that the part belongs to, as `mgraph.log.local_disks.whole` needs it.
    """
    about = f"{folder}/rank-{rank:04d}.json"
    if store.has(about) and "problem" not in store.read(about):
        return  # an earlier attempt at the same edges wrote it, and its snapshot may be valid
    what = _write(store, folder, f"{folder}/rank-{rank:04d}.arrow", columns, over)
    store.describe(about, {**what, "place": place} if mark is None else {**mark, "file": what, "place": place})


def write_keys(store: Store, folder: str, names: KeyArray, n: int) -> dict[str, Any]:
    """Write the keys of `n` vertices, durably, as an Arrow IPC file.

    Returns its description.
    """
    about = f"{folder}/keys.json"
    if store.has(about):
        return store.read(about)  # an earlier attempt wrote it
    what = _write(store, folder, f"{folder}/keys.arrow", {"key": names.column(0, n)})
    store.describe(about, {**what, "kind": names.kind})
    return store.read(about)


def read_keys(store: Store, about: Mapping[str, Any]) -> Any:
    """Read the keys that `write_keys` has written: int64[n] or `Texts`."""
    return keys_in(about, whole_file(store, about))


def keys_in(about: Mapping[str, Any], data: np.ndarray) -> Any:
    """Parse the keys in the bytes of a file of `write_keys`; `StoreError` if another program has written them."""
    pa = arrow()
    with _parsing(about["name"], 0):
        table = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data))).read_all()
        column = table["key"].combine_chunks()
        return Texts.of(column) if about["kind"] == "string" else column.to_numpy()


@contextmanager
def _parsing(path: str, at: int) -> Iterator[None]:
    """Raise `StoreError` for the errors of Arrow that a block raises: its bytes have the right checksum."""
    try:
        yield
    except (ArithmeticError, AttributeError, EOFError, LookupError, NotImplementedError, OSError, TypeError,
            ValueError) as error:  # fmt: skip
        raise StoreError(
            f"{path}: the bytes from {at} on are not what mgraph writes ({error}); restore it, or the whole store, "
            "from a backup"
        ) from error


def _write(
    store: Store, folder: str, name: str, columns: Mapping[str, Any], over: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Write columns as an Arrow IPC file, durably. Return its description."""
    path, files, pa = store.at(name), store.files, arrow()
    try:
        # Write record batches, each with a checksum of its own.
        files.folder(store.at(folder))
        file = files.open(path)
        try:
            file.truncate(0)
            sink = _Sink(file)
            schema = pa.schema([(key, _slice(pa, column, 0, 0).type) for key, column in columns.items()])
            with pa.PythonFile(sink, "w") as out, pa.ipc.new_file(out, schema) as writer:
                n = len(next(iter(columns.values())))
                for at in range(0, n, ROWS):
                    if over():
                        raise StoreError(f"{path}: the graph was closed before the snapshot was written")
                    part = [_slice(pa, column, at, at + ROWS) for column in columns.values()]
                    writer.write_batch(pa.record_batch(part, schema=schema))
                    sink.end_piece(len(part[0]))
            sink.end_piece(0)

            # Make the file and its name durable.
            file.sync()
        finally:
            file.close()
        files.sync_folder(store.at(folder))
    except OSError as error:
        raise failed(error, path, "the snapshot cannot be written:") from error
    return {"name": name, "rows": n, "nbytes": sink.at, "checksum": sink.hash.hexdigest(), "pieces": sink.pieces}


def _slice(pa: Any, column: Any, first: int, end: int) -> Any:
    """Return rows of a column as an Arrow array."""
    return column[first:end].to_arrow() if isinstance(column, Texts) else pa.array(column[first:end])


def give_up(store: Store, folder: str, rank: int, problem: str) -> bool:
    """Tell rank 0 that a part cannot be written. Return False if that failed, too.

    Parts of a valid snapshot stay untouched.
    """
    with suppress(StoreError, OSError):
        store.files.folder(store.at(folder))
        if not store.has(f"{folder}.json"):
            store.describe(f"{folder}/rank-{rank:04d}.json", {"problem": problem})
        return True
    return False


def written(store: Store, folder: str, size: int) -> bool:
    """Return True if all ranks have written their parts."""
    return all(store.has(f"{folder}/rank-{rank:04d}.json") for rank in range(size))


def make_valid(store: Store, folder: str, size: int, content: Mapping[str, Any]) -> None:
    """Describe a snapshot with all its parts, which makes it valid."""
    # Read the parts; a rank that could not write its part says why. Another attempt at this epoch begins without that.
    names = [f"{folder}/rank-{rank:04d}.json" for rank in range(size)]
    parts = [store.read(name) for name in names]
    if problems := {name: part["problem"] for name, part in zip(names, parts, strict=True) if "problem" in part}:
        for name in problems:
            with suppress(OSError):
                store.files.remove(store.at(name))
        raise StoreError(next(iter(problems.values())))
    places = [part.pop("place") for part in parts]
    store.describe(f"{folder}.json", {**content, "folder": folder, "places": places, "files": parts})


def drop_old(store: Store, retain: int) -> None:
    """Drop all but the newest `retain` snapshots, and the log before them.

    A description goes before what it describes.
    """
    archive = store.archive
    snapshots = archive.snapshots()
    if retain < 1 or not snapshots:
        return

    # Drop the snapshots.
    old, kept = snapshots[:-retain], snapshots[-retain:]
    files, first = store.files, kept[0]
    for about in old:
        folder = about["folder"]
        archive.files.remove(archive.at(f"{folder}.json"))
        archive.files.sync_folder(archive.path)
        archive.files.remove(archive.at(folder))

    # Drop the terms before the oldest kept snapshot's, and that term's log before the snapshot.
    names = {name.removesuffix(".json") for name in store.names()}
    for name in sorted(names):  # also folders that have lost their description
        if (number := term_of(name)) and number < first["term"]:
            files.remove(store.at(f"{name}.json"))
            files.sync_folder(store.path)
            files.remove(store.at(name))
    for rank, place in enumerate(first["places"]):
        store.drop_segments(first["term"], rank, place)


def whole_file(store: Store, about: Mapping[str, Any]) -> np.ndarray:
    """Return the bytes of a snapshot's file; `StoreError` if they are damaged."""
    piece = _Piece(store.at(about["name"]), 0, about["rows"], about["nbytes"], about["checksum"])
    return _checked(store, piece, np.empty(piece.nbytes, np.uint8))


def _checked(store: Store, piece: _Piece, data: np.ndarray) -> np.ndarray:
    """Read a piece into `data`; `StoreError` if it is damaged."""
    try:
        with store.files.contents(piece.path) as contents:
            n = contents.read(piece.at, [data])
    except OSError as error:
        raise failed(error, piece.path, "the snapshot cannot be read:") from error
    if n < piece.nbytes or f"{checksum(data):016x}" != piece.checksum:
        raise StoreError(
            f"{piece.path} is damaged in the {piece.nbytes} bytes from {piece.at} on: their checksum is another; "
            "restore it, or the whole store, from a backup"
        )
    return data


def rows_of(snapshot: Mapping[str, Any]) -> int:
    """Return the number of edges of a snapshot."""
    return sum(about["rows"] for about in snapshot["files"])


@dataclass(frozen=True)
class _Piece:
    """Bytes of a file that are checked together.

    A record batch, the end of the file, or the whole file.
    """

    path: str
    at: int
    rows: int
    nbytes: int
    checksum: str
    whole: bool = False


class Rows:
    """Reads rows of consecutive files of a snapshot.

    Each piece is checked before it is used.

    Parameters
    ----------
    store : Store
        The store that they are in.
    files : sequence of mapping
        Their descriptions.
    dtypes : mapping of str to dtype
        The columns that they have, in their order, and the dtype of each.
    """

    def __init__(self, store: Store, files: Sequence[Mapping[str, Any]], dtypes: Mapping[str, Any]) -> None:
        self._store, self._dtypes = store, dict(dtypes)
        self._pieces = [piece for about in files for piece in _pieces_of(store.at(about["name"]), about)]
        self._last: tuple[_Piece | None, Columns] = None, {}  # consecutive reads may each need an end of it
        self._buffer = np.empty(0, np.uint8)  # bytes of the last piece

    def check_ends(self) -> None:
        """Check the pieces without rows, which `read` skips."""
        for piece in self._pieces:
            if not piece.rows:
                _checked(self._store, piece, np.empty(piece.nbytes, np.uint8))

    def read(self, first: int, end: int) -> dict[str, np.ndarray]:
        """Return the columns of the rows `first` to `end` - 1."""
        # Copy the rows of each piece that overlaps.
        columns = {name: np.empty(end - first, dtype) for name, dtype in self._dtypes.items()}
        row = 0
        for piece in self._pieces:
            lo, hi = max(first, row), min(end, row + piece.rows)
            if lo < hi:
                for name, column in self._columns(piece).items():
                    columns[name][lo - first : hi - first] = column[lo - row : hi - row]
            row += piece.rows
        return columns

    def _columns(self, piece: _Piece) -> Columns:
        """Return the columns of a piece, as views of its bytes."""
        if self._last[0] != piece:
            self._last = None, {}
            if len(self._buffer) < piece.nbytes:
                self._buffer = np.empty(piece.nbytes, np.uint8)
            self._last = piece, self._parsed(piece, _checked(self._store, piece, self._buffer[: piece.nbytes]))
        return self._last[1]

    def _parsed(self, piece: _Piece, data: np.ndarray) -> Columns:
        """Return the columns in the bytes of a piece; `StoreError` if another program has written them."""
        with _parsing(piece.path, piece.at):
            return self._columns_in(piece, data)

    def _columns_in(self, piece: _Piece, data: np.ndarray) -> Columns:
        # A whole file is parsed by its own schema; a record batch by the columns that are wanted.
        pa = arrow()
        schema = pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in self._dtypes.items()])
        source = pa.BufferReader(pa.py_buffer(data))
        if piece.whole:
            (batch,) = pa.ipc.open_file(source).read_all().combine_chunks().to_batches()
        else:
            if not piece.at:
                source.seek(MAGIC)
                pa.ipc.read_schema(source)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
        if batch.num_rows != piece.rows:
            raise ValueError(f"{batch.num_rows} rows instead of {piece.rows}")
        return {name: _values(batch[name]) for name in self._dtypes}


def _pieces_of(path: str, about: Mapping[str, Any]) -> Iterator[_Piece]:
    at = 0
    for rows, nbytes, digest in about.get("pieces", ()):
        yield _Piece(path, at, rows, nbytes, digest)
        at += nbytes
    if not at:  # earlier versions wrote no pieces
        yield _Piece(path, 0, about["rows"], about["nbytes"], about["checksum"], whole=True)


def _values(column: Any) -> np.ndarray:
    """View an Arrow array of numbers as NumPy.

    Its `to_numpy` would import pandas, which takes a second.
    """
    dtype = np.dtype(column.type.to_pandas_dtype())
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)
