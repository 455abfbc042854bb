"""Read files of columns, whole or in pieces: .npz, Parquet, and CSV by `mgraph.tables.files.text`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mgraph.budget import host_memory_limit
from mgraph.errors import ReadError
from mgraph.tables.files.formats import table_format_of
from mgraph.tables.files.opening import check_path, guarded
from mgraph.tables.files.text import Csv
from mgraph.tables.names import Names, label

__all__ = ["FILES", "GrowingFile", "TableFile", "columns_in", "open_table", "pieces_of"]

logger = logging.getLogger(__name__)

FILES = (".npz", ".parquet", ".pq", ".csv", ".tsv")  #: suffixes of the files that are tables


class TableFile(Protocol):
    """Open file of columns."""

    names: list[str]  #: names of the columns

    def nbytes(self, names: Sequence[str]) -> int:
        """Return the bytes of memory for some columns and a batch of them; 0 if unknown."""

    def read(self, names: Sequence[str], keys: str | None) -> Any:
        """Return some columns by name; the first two are the ends, of a graph with `keys`."""

    def pieces(self, names: Sequence[str], keys: str | None, rows: int) -> Iterator[Any]:
        """Yield some columns in pieces of about `rows` rows, with a single piece in memory."""


class _Npz:
    """NumPy archive."""

    def __init__(self, archive: Any) -> None:
        if isinstance(archive, np.ndarray):
            raise ReadError("the file has one array; an .npz archive with the arrays src and dst is needed")
        self._archive, self.names = archive, list(archive.files)

    def nbytes(self, names: Sequence[str]) -> int:
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in self._archive.zip.infolist()}
        return 2 * sum(sizes[name] for name in names)  # as read, and as a batch keeps them

    def read(self, names: Sequence[str], keys: str | None) -> dict[str, Any]:
        if self.nbytes(names) > 2 * host_memory_limit():
            raise ReadError(f"its arrays announce {self.nbytes(names) // 2} bytes, and there is less memory")
        return {name: self._archive[name] for name in names}

    def pieces(self, names: Sequence[str], keys: str | None, rows: int) -> Iterator[dict[str, Any]]:
        yield self.read(names, keys)


class _Parquet:
    """Parquet file, by pyarrow."""

    def __init__(self, file: Any) -> None:
        self._file, self.names = file, list(file.schema_arrow.names)

    def nbytes(self, names: Sequence[str]) -> int:
        return 3 * 8 * int(self._file.metadata.num_rows) * len(names)  # in Arrow, NumPy and a batch

    def read(self, names: Sequence[str], keys: str | None) -> dict[str, Any]:
        if self.nbytes(names) // 3 > host_memory_limit():
            raise ReadError(f"it announces {self._file.metadata.num_rows} rows, and there is memory for fewer")
        table = self._file.read(columns=list(names))
        table.validate(full=True)
        return {name: table.column(name) for name in names}

    def pieces(self, names: Sequence[str], keys: str | None, rows: int) -> Iterator[dict[str, Any]]:
        for block in self._file.iter_batches(batch_size=rows, columns=list(names)):
            block.validate(full=True)
            yield {name: block.column(name) for name in names}


@contextmanager
def _open(file: str, kind: str, delimiter: str | None) -> Iterator[TableFile]:
    """Open a file of the format `kind`."""
    if kind == "parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(file) as opened:
            yield _Parquet(opened)
    elif kind == "npz":
        with open(file, "rb") as raw:  # NumPy would leave it open if it is no archive
            yield _Npz(np.load(raw, allow_pickle=False))
    else:
        yield Csv(file, delimiter or ("\t" if kind == "tsv" else ","))


@contextmanager
def open_table(path: Any, kind: str | None = None, delimiter: str | None = None) -> Iterator[TableFile]:
    """Open a file of columns.

    Every error of the block becomes a `ReadError` that names the file.

    Parameters
    ----------
    kind : str, optional
        Its format, one of `TABLES`. Recognised by default.
    delimiter : str, optional
        Of a CSV file.
    """
    file = check_path(path)
    with guarded(file):
        kind = kind or table_format_of(file)
        with _open(file, kind, delimiter) as table:
            yield table


Piece = tuple[dict[str, Any], dict[str, str], list[str]]
LOOK_SECONDS = 0.1  #: time between two checks of a file that is being written


def pieces_of(path: Any, names: Names, keys: str | None, rows: int | None = None) -> Iterator[Piece]:
    """Read a file in pieces of about `rows` rows, or whole.

    Parameters
    ----------
    keys : str or None
        With "string" the ends of a CSV file are read as the text that they are.

    Yields
    ------
    columns : dict
        The columns by `mgraph.tables.names.COLUMNS`.
    labels : dict
        The columns' names in messages; a piece's rows are counted from its first one.
    unused : list of str
        The columns that are not used.

    Raises
    ------
    ReadError
        The file cannot be read; the message names it. What was yielded before is valid.
    """
    with open_table(path) as table:
        sources, unused = names.find(table.names, "the file")
        columns = [*sources.values()]
        blocks = [table.read(columns, keys)] if rows is None else table.pieces(columns, keys, rows)
        first = 0
        for block in blocks:
            where = f" from row {first} on" if first else ""
            labels = {column: f"{label(name)}{where}" for column, name in sources.items()}
            yield {column: block[name] for column, name in sources.items()}, labels, unused
            first += len(block[columns[0]])


@dataclass(frozen=True)
class GrowingFile(os.PathLike[str]):
    """Path of a file that may still be written.

    Parameters
    ----------
    path : str
    patience : float
        Seconds without a change of the file after which it is no longer expected to become readable.
    names : Names, optional
        Its columns, where they have other names than those of the call that reads it.
    """

    path: str
    patience: float = 0.0
    names: Names | None = None

    def __fspath__(self) -> str:
        return self.path


def columns_in(path: Any, names: Names, keys: str | None) -> Piece:
    """Read a whole file. If it is still being written, read it again when it changes."""
    growing = path if isinstance(path, GrowingFile) else GrowingFile(os.fspath(path))
    while True:
        seen = _stamp(growing.path)
        try:
            return next(pieces_of(growing.path, growing.names or names, keys))
        except ReadError as error:
            if not _changes(growing, seen):
                raise
            logger.warning("%s; it has changed since, and is read again", error)


def _changes(file: GrowingFile, seen: Any) -> bool:
    """Wait at most `file.patience` for a change of a file; return True if it changed."""
    began = time.monotonic()
    while _stamp(file.path) == seen:
        if time.monotonic() - began >= file.patience:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _stamp(file: str) -> Any:
    try:
        state = os.stat(file)
    except (OSError, ValueError):
        return None
    return state.st_size, state.st_mtime_ns, state.st_ino
