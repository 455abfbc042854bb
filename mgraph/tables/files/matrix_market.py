"""Read Matrix Market: the entry (i, j) is the edge from i - 1 to j - 1, its value the weight.

References
----------
R. F. Boisvert, R. Pozo, K. A. Remington, "The Matrix Market Exchange Formats", NISTIR 5935, 1996.
"""

from __future__ import annotations

import numpy as np

from mgraph.errors import InvalidBatch, ReadError
from mgraph.tables.files.graph_file import GraphFile
from mgraph.tables.files.numbers import lines_of, places_from_1, rows_of, sizes_in

__all__ = ["matrix_market"]

WIDTHS = {"pattern": 2, "real": 3, "double": 3, "integer": 3, "complex": 4}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
LABELS = {"src": "column 'row'", "dst": "column 'column'", "weight": "column 'data'"}


def matrix_market(body: bytes, weighted: bool) -> GraphFile:
    """Return the graph of a file of coordinates. O(m log m).

    Duplicate entries are summed. A symmetric matrix is an undirected graph. The lower triangle of a skew-symmetric one
    counts for both.
    """
    # Check the header before anything large is read.
    field, symmetry = _banner(body)
    rows, columns, entries, line, start = _sizes(body)
    if rows != columns:
        raise InvalidBatch(f"the matrix has shape {(rows, columns)}; one of a graph is square")
    width = WIDTHS[field]
    if field == "complex" and weighted:
        raise ReadError("line 1 says complex; weights are real numbers, and weighted=False leaves them out")
    if entries * 2 * width > len(body):
        raise ReadError(f"line {line} announces {entries} entries, and there are {len(body)} bytes")
    # Parse the entries, and split them into ends and weights.
    body = body[start:]
    if b"%" in body:  # a comment becomes a blank line
        body = b"\n".join(b"" if text.lstrip().startswith(b"%") else text for _, text, _ in lines_of(body))
    table = rows_of(body, width, entries, line)
    src, dst = (_places(table[:, at], what, rows) for at, what in ((0, "row"), (1, "column")))
    weight = table[:, 2] if field in ("real", "double", "integer") and weighted else None
    # Mirror a skew-symmetric matrix, with the other sign; then sum duplicates.
    if symmetry == "skew-symmetric":
        off = src != dst
        weight = None if weight is None else np.concatenate([weight, -weight[off]])
        src, dst = np.concatenate([src, dst[off]]), np.concatenate([dst, src[off]])
    sums = _added(src, dst, weight, symmetry == "symmetric")
    entries_by_name = dict(zip(("src", "dst", "weight"), sums, strict=True))
    named = {name: column for name, column in entries_by_name.items() if column is not None}
    return GraphFile(named, LABELS, symmetry != "symmetric", rows)


def _banner(body: bytes) -> tuple[str, str]:
    """Return the field and the symmetry of the first line."""
    words = body.split(b"\n", 1)[0].decode(errors="replace").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ReadError(f"line 1 is {' '.join(words)[:60]!r}; it must be %%MatrixMarket matrix FORMAT FIELD SYMMETRY")
    form, field, symmetry = words[2:]
    if form == "array":
        raise ReadError("the matrix is dense (array); one of coordinates is needed")
    if form != "coordinate" or field not in WIDTHS or symmetry not in SYMMETRIES:
        listed = f"coordinate; {', '.join(WIDTHS)}; {', '.join(SYMMETRIES)}"
        raise ReadError(f"line 1 says {form} {field} {symmetry}; it may say {listed}")
    if field == "pattern" and symmetry == "skew-symmetric":
        raise ReadError("line 1 says pattern skew-symmetric, which has no values to change the sign of")
    return field, symmetry


def _sizes(body: bytes) -> tuple[int, int, int, int, int]:
    """Return rows, columns, entries, their line number, and the offset of the next line."""
    for number, line, end in lines_of(body):
        if number == 1 or not line.strip() or line.lstrip().startswith(b"%"):
            continue
        text = line.decode(errors="replace")
        sizes = sizes_in(text.split())
        if sizes is None or len(sizes) != 3:
            raise ReadError(f"line {number} is {text[:60]!r}; it must have the numbers of rows, columns and entries")
        rows, columns, entries = sizes
        return rows, columns, entries, number, end
    raise ReadError("it has no line with the numbers of rows, columns and entries")


def _places(column: np.ndarray, what: str, n: int) -> np.ndarray:
    """Return a column of places from 1 as ids from 0."""
    places, bad = places_from_1(column, n)
    if bad >= 0:
        raise ReadError(f"entry {bad + 1} has the {what} {column[bad]:.15g}; there are 1 to {n}")
    return places


def _added(
    src: np.ndarray, dst: np.ndarray, weight: np.ndarray | None, both: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Sum the entries at the same place. With `both`, (i, j) and (j, i) are the same place."""
    # Sort by place; a run of equal places is summed.
    low, high = (np.maximum(src, dst), np.minimum(src, dst)) if both else (src, dst)
    places = low * (int(high.max(initial=0)) + 1) + high
    order = np.argsort(places, kind="stable")
    first = np.flatnonzero(np.diff(places[order], prepend=-1))
    if len(first) == len(order):
        return src, dst, weight
    kept = order[first]
    return src[kept], dst[kept], None if weight is None else np.add.reduceat(weight[order], first)
