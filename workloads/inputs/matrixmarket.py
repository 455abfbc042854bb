"""MatrixMarket coordinate files: entry (i, j) is the edge from i - 1 to j - 1, its value the weight.

Reference: R. F. Boisvert, R. Pozo, K. A. Remington, The Matrix Market Exchange Formats, NISTIR 5935, 1996.
"""

from __future__ import annotations

from pathlib import Path

from workloads.inputs.stream_checks import Parsed
from workloads.inputs.textfile import TextTable

__all__ = ["parse"]

FIELDS = {"pattern": 2, "real": 3, "double": 3, "integer": 3}
SYMMETRIES = ("general", "symmetric")


def parse(path: Path, body: bytes) -> Parsed:
    """The edges of a coordinate file, ids still from 1; a symmetric one is an undirected graph. O(bytes)."""
    table = TextTable(path, body)
    width, symmetric = _banner(table, body)
    line, rows, columns, entries = _size(table)
    start = 0
    for _ in range(line):
        start = body.find(b"\n", start) + 1 or len(body)
    table = TextTable(path, body[start:], line + 1)
    values = table.numbers(width)
    if len(values[0]) != entries:
        table.fail(line, f"the size line announces {entries} entries and {len(values[0])} follow")
    found = dict(zip(("src", "dst", "weight"), values, strict=False))
    return Parsed(
        found,
        lambda row: f"line {table.line_of(row)}",
        n_vertices=max(rows, columns),
        directed=not symmetric,
        base=1,
        limits={"src": rows, "dst": columns},
    )


def _banner(table: TextTable, body: bytes) -> tuple[int, bool]:
    """Fields a line and whether it is symmetric, from the first line."""
    words = body.split(b"\n", 1)[0].decode(errors="replace").lower().split()
    if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
        table.fail(1, "does not begin with %%MatrixMarket matrix FORMAT FIELD SYMMETRY")
    form, field, symmetry = words[2:]
    if form != "coordinate" or field not in FIELDS or symmetry not in SYMMETRIES:
        table.fail(
            1, f"{form} {field} {symmetry}; read are coordinate, {', '.join(FIELDS)}, and {' or '.join(SYMMETRIES)}"
        )
    return FIELDS[field], symmetry == "symmetric"


def _size(table: TextTable) -> tuple[int, int, int, int]:
    """Line number, rows, columns and entries of the size line."""
    found = next(table.rows(), None)
    if found is None:
        table.fail(1, "no line with rows, columns and entries follows")
    line, fields = found
    if len(fields) != 3 or not all(field.isdigit() for field in fields):
        table.fail(line, f"{b' '.join(fields).decode(errors='replace')!r} is not rows, columns and entries")
    rows, columns, entries = map(int, fields)
    return line, rows, columns, entries
