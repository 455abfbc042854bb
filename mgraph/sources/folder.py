"""A folder of files that grows, as a source of batches."""

from __future__ import annotations

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

LOOK_SECONDS = 0.1  #: between two looks into the folder
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Folder:
    """A source that reads the files of a folder, each as one batch, in the order of the numbers in their names.

    A file's place is the last number in its name: that of ``edges-000042.parquet`` is 42. So files may be removed once
    the graph has them. A file is read once it has its name: write it under another suffix and rename it. A file that
    cannot be read, half-copied perhaps, is read again when it changes; the log names it, and if it does not change for
    `settle` seconds, an error does. A file whose number is not above that of the last one read is never read.

    Parameters
    ----------
    path : path
        Files that end in .npz, .parquet, .pq, .csv or .tsv, maybe with .gz or another suffix of compressed files;
        others are left alone. All but .npz need pyarrow.
    name : str, optional
        Of the source; the folder's absolute path if left out.
    columns : mapping of str to str, optional
        Deprecated: `DynamicGraph.follow` and `stream` take the names of columns.
    idle : float, optional
        Seconds without a new file after which the source ends. 0 reads the files that are there. Without it the source
        does not end.
    settle : float
        Seconds for which a file that cannot be read is watched for a change; at most `idle`.

    Raises
    ------
    InvalidOption
        There is no such folder, or `idle` or `settle` is negative.
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
        """Yield the files behind the last place, each as a path that is read when its turn comes.

        Raises
        ------
        InvalidOption
            Two files have the same number.
        """
        names = None if self.columns is None else from_mapping(self.columns, Names())
        patience = self.settle if self.idle is None else min(self.settle, self.idle)
        name = self.name or os.path.abspath(self.path)
        last, looked = after.get(name, -1), time.monotonic()
        while True:
            there = self._files(last)
            for last in sorted(there):
                yield (name, last), GrowingFile(os.fspath(there[last]), patience, names)
                looked = time.monotonic()
            if self.idle is not None and not there and time.monotonic() - looked >= self.idle:
                return
            if not there:
                time.sleep(LOOK_SECONDS)

    def _files(self, last: int) -> dict[int, Path]:
        """The files with numbers above `last`."""
        found: dict[int, Path] = {}
        for file in Path(self.path).iterdir():
            if suffix_of(file) in FILES and (numbers := _NUMBER.findall(file.name.removesuffix(file.suffix))):
                number = int(numbers[-1])
                if number in found and number > last:
                    raise InvalidOption(f"{file} and {found[number].name} have the same number, {number}")
                found[number] = file
        return {number: file for number, file in found.items() if number > last}
