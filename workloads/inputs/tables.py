"""Text tables of edges: which column holds what, and ids that are names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.errors import ReadError
from workloads.inputs.stream_checks import Parsed
from workloads.inputs.textfile import NUMBER, TextTable

__all__ = ["known_names", "parse"]

ALIASES = {
    "src": ("src", "source", "from", "fromnodeid", "u", "head_id", "node1"),
    "dst": ("dst", "dest", "destination", "target", "to", "tonodeid", "v", "node2"),
    "t": ("t", "time", "timestamp", "unixts"),
    "op": ("op",),
    "weight": ("weight", "w", "rating", "value"),
}
BY_WIDTH = {2: ("src", "dst"), 3: ("src", "dst", "t"), 4: ("src", "dst", "weight", "t")}


def known_names(header: Iterable[str]) -> dict[str, str]:
    """Given name to column, for the names that are understood; the first of two for one column counts."""
    found: dict[str, str] = {}
    for given in header:
        plain = given.strip().strip('"').lower()
        column = next((name for name, aliases in ALIASES.items() if plain in aliases), None)
        if column and column not in found.values():
            found[given] = column
    return found


def parse(path: Path, body: bytes, kind: str, columns: Sequence[str] | None, relabel: bool) -> Parsed:
    """The columns of a text table; `kind` is the file's suffix. O(bytes)."""
    table = TextTable(path, body, separator=_separator(body, kind))
    first = next(table.rows(), None)
    directed = _says_directed(body)
    if first is None:
        return Parsed({"src": np.empty(0, np.uint32), "dst": np.empty(0, np.uint32)}, str, directed=directed)
    header = _header(table, *first, columns, relabel)
    layout = tuple(columns or header or BY_WIDTH.get(len(first[1]), ()))
    if not layout:
        table.fail(first[0], f"{len(first[1])} columns and no header; name them with columns")
    if len(layout) != len(first[1]):
        table.fail(first[0], f"{len(first[1])} fields, but columns names {len(layout)}")
    if header is not None:
        table = _after(table, first[0])
    values = _named_ids(table, layout) if relabel and not _all_numbers(table, layout) else table.numbers(len(layout))
    found = {name: values[at] for at, name in enumerate(layout) if name != "_"}
    return Parsed(found, lambda row: f"line {table.line_of(row)}", directed=directed)


def _separator(body: bytes, kind: str) -> bytes | None:
    if kind == ".tsv":
        return b"\t"
    first = next(TextTable(Path(), body).rows(), (0, [b""]))[1]
    line = b" ".join(first)
    return next((mark for mark in (b",", b";") if mark in line), None)


def _says_directed(body: bytes) -> bool:
    """What SNAP's leading comment says about direction."""
    end = 0
    while body[end : end + 1] == b"#":
        end = body.find(b"\n", end) + 1 or len(body)
    return b"undirected" not in body[:end].lower()


def _header(
    table: TextTable, line: int, fields: list[bytes], columns: Sequence[str] | None, relabel: bool
) -> list[str] | None:
    """The columns that a first row names, "_" for those not understood; None where it is no header."""
    if all(NUMBER.fullmatch(field) for field in fields):
        return None
    given = [field.decode(errors="replace") for field in fields]
    known = known_names(given)
    if {"src", "dst"} <= set(known.values()):
        return [known.pop(name, "_") for name in given]
    if not relabel and columns is None:
        table.fail(line, f"{' '.join(given)!r} are neither numbers nor a header that names src and dst")
    return None if columns is None or relabel else list(columns)


def _after(table: TextTable, line: int) -> TextTable:
    """The table without its lines up to and with `line`."""
    start = 0
    for _ in range(table.first_line, line + 1):
        start = table.body.find(b"\n", start) + 1 or len(table.body)
    return TextTable(table.path, table.body[start:], line + 1, table.separator)


def _all_numbers(table: TextTable, layout: tuple[str, ...]) -> bool:
    """Whether the ids are numbers that float64 keeps apart; longer ones are treated as names."""
    try:
        values = table.numbers(len(layout))
    except ReadError:
        return False
    ids = [values[layout.index(name)] for name in ("src", "dst")]
    return all(not len(v) or (np.isfinite(v).all() and np.abs(v).max() < 2**53) for v in ids)


def _named_ids(table: TextTable, layout: tuple[str, ...]) -> list[np.ndarray]:
    """The columns where src and dst are names; everything else must be numbers."""
    fields: list[list[Any]] = [[] for _ in layout]
    for line, row in table.rows():
        if len(row) != len(layout):
            table.fail(line, f"{len(row)} fields; the first row has {len(layout)}")
        for name, column, field in zip(layout, fields, row, strict=True):
            if name in ("src", "dst"):
                if not field:
                    table.fail(line, f"{name} is empty")
                column.append(field.strip(b'"').decode(errors="replace"))
            elif name == "_":
                column.append(0)
            elif NUMBER.fullmatch(field):
                column.append(float(field))
            else:
                table.fail(line, f"{name} is {field.decode(errors='replace')!r}; it must be a number")
    return [_column(name, column) for name, column in zip(layout, fields, strict=True)]


def _column(name: str, values: list[Any]) -> np.ndarray:
    if name in ("src", "dst"):
        return np.array(values, str)
    array = np.array(values, np.float64)
    whole = name == "t" and bool((array == np.floor(array)).all())
    return array.astype(np.int64) if whole else array
