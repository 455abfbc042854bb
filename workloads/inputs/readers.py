"""Reading graphs: SNAP text, CSV and TSV, MatrixMarket (each also .gz), .npz and Parquet."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption, ReadError
from workloads.inputs import matrixmarket, tables
from workloads.inputs.edges import COLUMNS, EdgeStream
from workloads.inputs.stream_checks import Parsed

__all__ = ["read"]


def read(
    path: str | Path,
    *,
    relabel: bool = False,
    columns: Sequence[str] | None = None,
    directed: bool | None = None,
) -> EdgeStream:
    """Read a graph or an edge stream from a file.

    Parameters
    ----------
    path : str or Path
        ``.mtx`` is MatrixMarket, ``.npz`` and ``.parquet`` are what they say, all else is a table in text: blanks
        and # comments as SNAP's, or CSV and TSV with or without a header. Text may end in ``.gz`` besides.
    relabel : bool
        Give vertices the ids 0, 1, 2 ... in order of first appearance and keep the old ids, numbers or not, as names.
        Without it ids are numbers, kept as they are.
    columns : sequence of "src" | "dst" | "t" | "op" | "weight" | "_", optional
        What the columns of a text table hold ("_" is skipped). Left out: the header's names; without a header
        src, dst; src, dst, t; or src, dst, weight, t (SNAP's signed networks), by their number.
    directed : bool, optional
        Overrides what the file says (SNAP's comment, MatrixMarket's symmetry, a "directed" entry of an .npz).

    Returns
    -------
    EdgeStream
        In the file's order.

    Raises
    ------
    ReadError
        No such file, not that format, or a malformed line, which is named by number with what is wrong with it.

    Notes
    -----
    O(bytes); relabelling adds O(m log m). An .npz holds src, dst [, t, op, weight, names, directed, n_vertices].
    """
    path = Path(path)
    if columns is not None:
        _check_columns(columns)
    reader = {".npz": _read_npz, ".parquet": _read_parquet, ".pq": _read_parquet}.get(path.suffix)
    if reader is not None:
        return _guarded(path, reader).stream(path, relabel, directed)
    body = _guarded(path, _bytes)
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind == ".mtx":
        return matrixmarket.parse(path, body).stream(path, relabel, directed)
    return tables.parse(path, body, kind, columns, relabel).stream(path, relabel, directed)


def _check_columns(columns: Sequence[str]) -> None:
    known = {*COLUMNS, "_"}
    for name in columns:
        if name not in known:
            raise InvalidOption(f"column {name!r} is none of {', '.join(sorted(known))}")
    named = [name for name in columns if name != "_"]
    if len(set(named)) < len(named) or not {"src", "dst"} <= set(named):
        raise InvalidOption(f"columns {', '.join(columns)}: src and dst are needed, each name at most once")


def _guarded(path: Path, work: Callable[[Path], Any]) -> Any:
    """``work(path)``, with what the file system and the formats raise turned into `ReadError`."""
    try:
        path.stat()  # Parquet's own message for a missing file is the bare path
        return work(path)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from None
    except (EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        if isinstance(error, ReadError):
            raise
        raise ReadError(f"{path}: not a readable {path.suffix} file: {error}") from None


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _read_npz(path: Path) -> Parsed:
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)  # each look-up in the archive itself would decompress again
    names = arrays.get("names")
    if names is not None:
        names = np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names.astype(str)
    return Parsed(
        {name: arrays[name] for name in COLUMNS if name in arrays},
        "entry {}".format,
        n_vertices=int(arrays["n_vertices"].item()) if "n_vertices" in arrays else None,
        names=names,
        directed=bool(arrays["directed"].item()) if "directed" in arrays else True,
    )


def _read_parquet(path: Path) -> Parsed:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ReadError(f"{path}: reading Parquet needs pyarrow, which is not installed: pip install pyarrow") from None
    table = pyarrow.parquet.read_table(path)
    found = tables.known_names(table.column_names)
    columns = {known: table[given].to_numpy() for given, known in found.items()}
    return Parsed({k: v.astype(str) if v.dtype == object else v for k, v in columns.items()}, "row {}".format)
