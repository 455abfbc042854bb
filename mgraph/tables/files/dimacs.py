"""Read DIMACS: ``p sp`` with arcs ``a u v w`` (ninth challenge), and ``p edge`` with edges ``e u v``.

References
----------
C. Demetrescu, A. V. Goldberg, D. S. Johnson (eds.), "The Shortest Path Problem: Ninth DIMACS Implementation Challenge",
AMS, 2009.
"""

from __future__ import annotations

import re

from mgraph.errors import ReadError
from mgraph.tables.files.graph_file import GraphFile
from mgraph.tables.files.numbers import lines_of, places_from_1, rows_of, sizes_in

__all__ = ["dimacs"]

_COMMENT = re.compile(rb"^[ \t]*c(?:[ \t][^\n]*)?$", re.MULTILINE)
LABELS = {"src": "column 'source'", "dst": "column 'target'", "weight": "column 'weight'"}


def dimacs(body: bytes, weighted: bool) -> GraphFile:
    """Return the graph of a file. O(bytes).

    Arcs are directed and have weights; edges are undirected and have none.
    """
    # The problem line says which letter begins each row, and how many there are.
    body = _COMMENT.sub(b"", body.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    kind, n, m, line, start = _problem(body)
    letter, width = (b"a", 3) if kind == "sp" else (b"e", 2)
    rows = body[start:]
    starts = re.findall(rb"^[ \t]*(\S+)", rows, re.MULTILINE)
    if (other := next((word for word in starts if word != letter), None)) is not None:
        at = next(number for number, text, _ in lines_of(rows) if text.split()[:1] == [other])
        text = other.decode(errors="replace")[:60]
        raise ReadError(f"line {line + at} begins with {text!r}; arcs of p {kind} begin with {letter.decode()!r}")
    # Parse all rows at once, without their letters; a letter alone is no row.
    table = rows_of(re.sub(rb"(?m)^([ \t]*)%c" % letter, rb"\1 ", rows), width, m, line)
    if len(starts) != m:
        raise ReadError(f"a line after line {line} has {letter.decode()!r} and no numbers")
    # Vertices are numbered from 1.
    places, bad = places_from_1(table[:, :2].ravel(), n)
    if bad >= 0:
        u, v = table[bad // 2, :2]
        raise ReadError(f"edge {bad // 2 + 1} is from {u:.15g} to {v:.15g}; there are the vertices 1 to {n}")
    columns = {"src": places[::2], "dst": places[1::2]}
    if kind == "sp" and weighted:
        columns["weight"] = table[:, 2]
    return GraphFile(columns, LABELS, kind == "sp", n)


def _problem(body: bytes) -> tuple[str, int, int, int, int]:
    """Return the problem's kind, vertices, edges, line number, and the offset of the next line."""
    for number, line, end in lines_of(body):
        words = line.decode(errors="replace").split()
        if not words:
            continue
        named = len(words) == 4 and words[:2] in (["p", "sp"], ["p", "edge"], ["p", "col"])
        if named and (sizes := sizes_in(words[2:])) is not None:
            return words[1], sizes[0], sizes[1], number, end
        text = line.decode(errors="replace")[:60]
        raise ReadError(f"line {number} is {text!r}; it must be p sp or p edge with the numbers of vertices and edges")
    raise ReadError("it has no line that begins with p")
