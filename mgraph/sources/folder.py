"""A folder of files that grows, as a source of batches."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.batch import name_columns
from mgraph.checks import check_number
from mgraph.errors import InvalidBatch, InvalidOption, ReadError
from mgraph.sources.places import Placed

__all__ = ["Folder"]

FILES = (".npz", ".parquet", ".pq", ".csv")
LOOK_SECONDS = 0.1  #: between two looks into the folder
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Folder:
    """A source that reads the files of a folder, each as one batch, in the order of the numbers in their names.

    A file's place is the last number in its name: that of ``edges-000042.parquet`` is 42. So files may be removed once
    the graph has them. A file is read once it has its name: write it under another suffix and rename it. A file whose
    number is not above that of the last one read is never read.

    Parameters
    ----------
    path : path
        Files that end in .npz, .parquet, .pq or .csv; others are left alone. Parquet and CSV need pyarrow.
    name : str, optional
        Of the source; the folder's absolute path if left out.
    columns : mapping of str to str, optional
        The names of the columns that hold src, dst, weight, op and time, where they are not these.
    idle : float, optional
        Seconds without a new file after which the source ends. 0 reads the files that are there. Without it the source
        does not end.

    Raises
    ------
    InvalidOption
        There is no such folder, or `idle` is negative.
    """

    path: str | os.PathLike[str]
    name: str | None = None
    columns: Mapping[str, str] | None = None
    idle: float | None = None

    def __post_init__(self) -> None:
        if not os.path.isdir(self.path):
            raise InvalidOption(f"{os.fspath(self.path)} is no folder")
        if self.idle is not None and not check_number(self.idle, "idle") >= 0:
            raise InvalidOption(f"idle is {self.idle}; it must be 0 seconds or more")

    def batches(self, after: Mapping[str, int]) -> Iterator[Placed]:
        """As `mgraph.sources.places.Places`.

        Raises
        ------
        InvalidOption
            Two files have the same number.
        ReadError
            A file cannot be read.
        """
        name = self.name or os.path.abspath(self.path)
        last, looked = after.get(name, -1), time.monotonic()
        while True:
            there = self._files(last)
            for last in sorted(there):
                yield (name, last), read_file(there[last], self.columns)
                looked = time.monotonic()
            if self.idle is not None and not there and time.monotonic() - looked >= self.idle:
                return
            if not there:
                time.sleep(LOOK_SECONDS)

    def _files(self, last: int) -> dict[int, Path]:
        """The files with numbers above `last`."""
        found: dict[int, Path] = {}
        for file in Path(self.path).iterdir():
            if file.suffix in FILES and (numbers := _NUMBER.findall(file.stem)):
                number = int(numbers[-1])
                if number in found and number > last:
                    raise InvalidOption(f"{file} and {found[number].name} have the same number, {number}")
                found[number] = file
        return {number: file for number, file in found.items() if number > last}


def read_file(path: Path, columns: Mapping[str, str] | None) -> dict[str, Any]:
    """The columns src, dst, weight, op and time of a file, as far as it has them; `ReadError` names the file."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[column] for key, column in _named(archive.files, columns).items()}
        import pyarrow.csv
        import pyarrow.parquet

        table = pyarrow.csv.read_csv(path) if path.suffix == ".csv" else pyarrow.parquet.read_table(path)
        return {key: table[column].to_numpy() for key, column in _named(table.column_names, columns).items()}
    except ImportError:
        raise ReadError(f"{path}: reading Parquet and CSV needs pyarrow: pip install pyarrow") from None
    except (InvalidBatch, OSError, EOFError, ValueError) as error:
        raise ReadError(f"{path}: {error}") from None


def _named(there: Any, columns: Mapping[str, str] | None) -> dict[str, str]:
    named: dict[str, str] = name_columns(there, columns, "the file")
    return named
