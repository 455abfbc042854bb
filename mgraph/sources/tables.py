"""Files of any size as parts: Parquet and CSV are read a piece at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mgraph.batch import name_columns
from mgraph.errors import InvalidBatch, ReadError
from mgraph.sources.folder import FILES, read_file

__all__ = ["FILES", "parts_of"]


def parts_of(path: str | os.PathLike[str], columns: Mapping[str, str] | None, rows: int) -> Iterator[dict[str, Any]]:
    """The columns src, dst and maybe weight, op and time of a file, in pieces of about `rows` rows.

    An .npz file is one piece. Of Parquet and CSV files about one piece is in memory at a time.

    Raises
    ------
    ReadError
        The file cannot be read; the message names it. What was yielded before is valid.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise ReadError(f"{path}: there is no such file on this machine")
    if path.suffix == ".npz":
        yield read_file(path, columns)
        return
    try:
        yield from _pieces(path, columns, rows)
    except ImportError:
        raise ReadError(f"{path}: reading Parquet and CSV needs pyarrow: pip install pyarrow") from None
    except (InvalidBatch, OSError, ValueError) as error:  # pyarrow's errors are of the last two
        raise ReadError(f"{path}: {error}") from None


def _pieces(path: Path, columns: Mapping[str, str] | None, rows: int) -> Iterator[dict[str, Any]]:
    from pyarrow import Table, csv, parquet

    if path.suffix != ".csv":
        with parquet.ParquetFile(path) as file:
            named = name_columns(file.schema_arrow.names, columns, "the file")
            for block in file.iter_batches(batch_size=rows, columns=list(named.values())):
                yield {key: block[column].to_numpy(zero_copy_only=False) for key, column in named.items()}
        return
    with csv.open_csv(path) as file:
        named, held = name_columns(file.schema.names, columns, "the file"), []
        for block in file:
            held.append(block)
            if sum(one.num_rows for one in held) >= rows:
                yield _joined(Table.from_batches(held), named)
                held = []
        if held:
            yield _joined(Table.from_batches(held), named)


def _joined(table: Any, named: Mapping[str, str]) -> dict[str, Any]:
    return {key: table[column].to_numpy() for key, column in named.items()}
