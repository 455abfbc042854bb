"""A growing folder of files as a source of batches."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mgraph.checks import check_number
from mgraph.errors import InvalidOption
from mgraph.sources.places import Placed
from mgraph.tables.files.columnar import FILES, GrowingFile
from mgraph.tables.files.opening import suffix_of
from mgraph.tables.names import Names, from_mapping

__all__ = ["Folder"]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1  #: time between two listings of the folder
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Folder:
    """Source that reads the files of a folder by number, each as a batch.

    A file's offset is the last number in its name: that of ``edges-000042.parquet`` is 42. Files may be removed once
    the graph has them. Write a file under another suffix and rename it when it is complete. An unreadable file, perhaps
    half-copied, is logged and read again when it changes. If it does not change for `settle` seconds, an error names
    it. A file without a number, or one that comes with a number at or below that of the last file read, is not read,
    and the log names it once.

    Parameters
    ----------
    path : path
        Files that end in .npz, .parquet, .pq, .csv or .tsv, optionally followed by .gz or another suffix of a
        compressed file. Other files are ignored. All but .npz need pyarrow.
    name : str, optional
        Of the source; the folder's absolute path if left out.
    columns : mapping of str to str, optional
        Deprecated: `DynamicGraph.follow` and `stream` take the names of columns.
    idle : float, optional
        Seconds without a new file after which the source ends. 0 reads the present files. Without it the source does
        not end.
    settle : float
        Seconds to wait for an unreadable file to change; at most `idle`.

    Raises
    ------
    InvalidOption
        The folder does not exist, or `idle` or `settle` is negative.
    """

    path: str | os.PathLike[str]
    name: str | None = None
    columns: Mapping[str, str] | None = None
    idle: float | None = None
    settle: float = 5.0

    def __post_init__(self) -> None:
        if not os.path.isdir(self.path):
            raise InvalidOption(f"{os.fspath(self.path)} is no folder")
        for name in ("idle", "settle"):
            value = getattr(self, name)
            if value is not None and not check_number(value, name) >= 0:
                raise InvalidOption(f"{name} is {value}; it must be 0 seconds or more")

    def batches(self, after: Mapping[str, int]) -> Iterator[Placed]:
        """Yield the files after the last offset, as paths read later.

        Raises
        ------
        InvalidOption
            Two files have the same number.
        """
        names = None if self.columns is None else from_mapping(self.columns, Names(quiet=("weight",)))
        patience = self.settle if self.idle is None else min(self.settle, self.idle)
        name = self.name or os.path.abspath(self.path)
        # Poll the folder. `looked` is the time of the last file.
        last, looked = after.get(name, -1), time.monotonic()
        named: set[Path] = set()  # files that were read, or that the log has named
        if last >= 0:
            named.update(file for file in Path(self.path).iterdir() if 0 <= _number(file) <= last)
        while True:
            files = self._files(last, named)
            for last in sorted(files):
                yield (name, last), GrowingFile(os.fspath(files[last]), patience, names)
                looked = time.monotonic()
            if self.idle is not None and not files and time.monotonic() - looked >= self.idle:
                return
            if not files:
                time.sleep(LOOK_SECONDS)

    def _files(self, last: int, named: set[Path]) -> dict[int, Path]:
        """Return the files with numbers above `last`, and add them to `named`; log others that are not there yet."""
        files: dict[int, Path] = {}
        for file in Path(self.path).iterdir():
            if suffix_of(file) not in FILES:
                continue
            number = _number(file)
            if number > last:
                if number in files:
                    raise InvalidOption(f"{file} and {files[number].name} have the same number, {number}")
                files[number] = file
            elif file not in named:
                why = (
                    "its name has no number" if number < 0 else f"its number {number} is not above {last}, read before"
                )
                logger.warning("%s is not read: %s", file, why)
            named.add(file)
        return files


def _number(file: Path) -> int:
    """Return the last number in a file's name, before the suffixes; -1 without one."""
    numbers = _NUMBER.findall(file.name.removesuffix(file.suffix))
    return int(numbers[-1]) if numbers else -1
