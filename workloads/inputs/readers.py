"""Readers of edge streams by the rules of `mgraph.tables`, with further column names and relabelled ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption, ReadError
from mgraph.tables.files.columnar import open_table
from mgraph.tables.files.formats import format_of
from mgraph.tables.files.matrix_market import matrix_market
from mgraph.tables.files.opening import body_of, check_path, guarded
from mgraph.tables.files.text import first_row, parse, plain_rows
from mgraph.tables.ids import as_ids
from mgraph.tables.weights import as_ops, as_weights
from workloads.inputs.edges import COLUMNS, EdgeStream

__all__ = ["read"]

ALIASES = {
    "src": ("src", "source", "from", "fromnodeid", "u", "head_id", "node1"),
    "dst": ("dst", "dest", "destination", "target", "to", "tonodeid", "v", "node2"),
    "t": ("t", "time", "timestamp", "unixts"),
    "op": ("op",),
    "weight": ("weight", "w", "rating", "value"),
}
BY_WIDTH = {2: ("src", "dst"), 3: ("src", "dst", "t"), 4: ("src", "dst", "weight", "t")}

Columns = dict[str, Any]


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
        A Matrix Market, .npz or Parquet file, or a table in text: SNAP's with # comments, CSV or TSV, with or without
        names. All may be compressed.
    relabel : bool
        Give vertices the ids 0, 1, 2 ... in order of first appearance and keep the old ids, numbers or not, as names.
        By default ids are numbers, kept as they are.
    columns : sequence of "src" | "dst" | "t" | "op" | "weight" | "_", optional
        The columns of a text table ("_" is skipped). By default the header's names; without a header src, dst; src,
        dst, t; or src, dst, weight, t (SNAP's signed networks), by their number.
    directed : bool, optional
        Overrides the file's direction (SNAP's comment, Matrix Market's symmetry, a "directed" entry of an .npz).

    Returns
    -------
    EdgeStream
        In the file's order; entries of Matrix Market at the same place are added up.

    Raises
    ------
    ReadError
        No such file, not that format, or a malformed row.

    Notes
    -----
    O(bytes); relabelling adds O(m log m). An .npz holds src, dst [, t, op, weight, names, directed, n_vertices].
    """
    # Recognise the format, then read it.
    if columns is not None:
        _check_columns(columns)
    file = check_path(path)
    with guarded(file):
        kind = format_of(file)
        if kind == "matrix market":
            matrix = matrix_market(body_of(file), weighted=True)
            more: dict[str, Any] = {"n_vertices": matrix.n_vertices, "directed": matrix.directed}
            return _stream(matrix.columns, more, relabel, directed)
        if kind in ("npz", "parquet"):
            return _stream(*_of_columns(file, kind), relabel=relabel, directed=directed)
        return _stream(*_of_text(file, kind, columns, relabel), relabel=relabel, directed=directed)


def _check_columns(columns: Sequence[str]) -> None:
    allowed = {*COLUMNS, "_"}
    for name in columns:
        if name not in allowed:
            raise InvalidOption(f"column {name!r} is none of {', '.join(sorted(allowed))}")
    named = [name for name in columns if name != "_"]
    if len(set(named)) < len(named) or not {"src", "dst"} <= set(named):
        raise InvalidOption(f"columns {', '.join(columns)}: src and dst are needed, each name at most once")


def _known(names: Iterable[str]) -> dict[str, str]:
    """Return the column of each understood name.

    Of two names for one column, the first counts.
    """
    columns: dict[str, str] = {}
    for name in names:
        plain = name.strip().strip('"').lower()
        column = next((column for column, aliases in ALIASES.items() if plain in aliases), None)
        if column and column not in columns.values():
            columns[name] = column
    return columns


def _of_columns(file: str, kind: str) -> tuple[Columns, dict[str, Any]]:
    """Return the columns and the metadata of an .npz or Parquet file."""
    # Read the columns with known names, and the metadata.
    with open_table(file, kind) as table:
        aliases = _known(table.names)
        read = table.read(list(aliases), None)
        more = [name for name in ("names", "directed", "n_vertices") if kind == "npz" and name in table.names]
        metadata = {name: np.asarray(value) for name, value in table.read(more, None).items()} if more else {}

    # Decode the names of vertices.
    if (names := metadata.pop("names", None)) is not None:
        metadata["names"] = np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names.astype(str)
    return {column: read[name] for name, column in aliases.items()}, {
        name: value if name == "names" else value.item() for name, value in metadata.items()
    }


def _of_text(file: str, kind: str, columns: Sequence[str] | None, relabel: bool) -> tuple[Columns, dict[str, Any]]:
    """Return the columns of a text table, and the direction in its leading comment."""
    # Split the first line.
    body = body_of(file)
    metadata = {"directed": b"undirected" not in b"".join(_leading(body)).lower()}
    body, delimiter = plain_rows(body, {"csv": ",", "tsv": "\t"}.get(kind))
    first = first_row(body, delimiter)
    if first is not None and len(first) == 1 and ";" in first[0]:
        delimiter, first = ";", first_row(body, ";")
    if first is None:
        return {"src": [], "dst": []}, metadata
    # Decide the columns: by the user, by a line of names, or by their number.
    aliases = _known(first)
    named = {"src", "dst"} <= set(aliases.values())
    header = named or (columns is not None and not relabel and not _all_numbers(first))
    if not header and not relabel and not _all_numbers(first):
        raise ReadError(f"its first line, {' '.join(first)[:60]!r}, has neither numbers nor the names of src and dst")

    # Choose and parse the columns.
    layout = columns or ([aliases.get(name, "_") for name in first] if named else BY_WIDTH.get(len(first), ()))
    if len(layout) != len(first):
        raise ReadError(f"it has {len(first)} columns, and {len(layout)} are named")
    places = {name: str(at) for at, name in enumerate(layout) if name != "_"}
    wanted = [places["src"], places["dst"], *(at for name, at in places.items() if name not in ("src", "dst"))]
    keys = "string" if relabel else None
    table = parse(body, delimiter, [str(at) for at in range(len(first))], int(header), wanted, keys)
    return {name: table.column(at) for name, at in places.items()}, metadata


def _all_numbers(row: Sequence[str]) -> bool:
    try:
        return all(float(field) == float(field) for field in row)
    except ValueError:
        return False


def _leading(body: bytes) -> Iterable[bytes]:
    for line in body.split(b"\n", 1 << 10):
        if not line.startswith(b"#"):
            return
        yield line


def _stream(columns: Columns, metadata: dict[str, Any], relabel: bool, directed: bool | None) -> EdgeStream:
    """Return the checked stream of columns; `metadata` comes from the file."""
    # Check and convert the ends.
    missing = [name for name in ("src", "dst") if name not in columns]
    if missing:
        raise ReadError(f"it has no column {missing[0]}; it has {', '.join(columns) or 'none'}")
    names = metadata.get("names")
    if relabel:
        src, dst, names = _relabelled(columns["src"], columns["dst"])
        metadata = {**metadata, "n_vertices": len(names)}
    else:
        src, dst = as_ids(columns["src"], "src"), as_ids(columns["dst"], "dst")

    # Convert the other columns.
    checked: dict[str, Any] = {"src": src, "dst": dst}
    if "t" in columns:
        checked["t"] = _times(columns["t"])
    if "op" in columns:
        checked["op"] = as_ops(columns["op"])
    if "weight" in columns:
        checked["weight"] = as_weights(columns["weight"], len(src))
    for name, column in checked.items():
        if column.shape != src.shape:
            raise ReadError(f"{name} has shape {column.shape} and src has shape {src.shape}; both need one per edge")

    # Check the number of vertices.
    least = max(int(src.max()), int(dst.max())) + 1 if len(src) else 0
    n = metadata.get("n_vertices", least if names is None else len(names))
    if least > n:
        raise ReadError(f"it has the vertex {least - 1} and {n} vertices; ids go up to {n - 1}")
    if names is not None and len(names) != n:
        raise ReadError(f"it has {len(names)} names for {n} vertices; each vertex has one")
    said_directed = bool(metadata.get("directed", True))
    return EdgeStream(**checked, n_vertices=n, names=names, directed=said_directed if directed is None else directed)


def _times(values: Any) -> np.ndarray:
    """Return times in the data's unit: int64[m] or float64[m]."""
    times = np.asarray(values)
    if times.dtype.kind not in "iuf":
        raise ReadError(f"t holds {times.dtype}; times are numbers")
    if times.dtype.kind == "f" and np.isnan(times).any():
        raise ReadError(f"t[{int(np.isnan(times).argmax())}] is missing; every edge needs a number")
    return times.astype(np.float64 if times.dtype.kind == "f" else np.int64, copy=False)


def _relabelled(src: Any, dst: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids 0, 1, 2 ... in order of first appearance, src before dst in a row, and the old ids as names.

    O(m log m).
    """
    # Bring both ends to one type.
    ends = [np.asarray(end) for end in (src, dst)]
    if any(end.dtype.kind not in "iu" for end in ends):
        ends = [end.astype(str) for end in ends]
    for name, end in zip(("src", "dst"), ends, strict=True):
        if end.dtype.kind == "U" and (empty := np.isin(end, ["", "None", "nan"])).any():
            raise ReadError(f"{name}[{int(empty.argmax())}] is missing; every vertex needs a name")

    # Number the distinct ids by their first appearance.
    old, first, inverse = np.unique(np.stack(ends, 1).ravel(), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    new = np.empty(len(old), np.uint32)
    new[order] = np.arange(len(old), dtype=np.uint32)
    pairs = new[inverse].reshape(-1, 2)
    names = old[order].astype(str) if len(old) else np.empty(0, "U1")
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), names
