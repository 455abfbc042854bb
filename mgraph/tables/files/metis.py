"""Read METIS: line i has the neighbours of vertex i, maybe with weights.

References
----------
G. Karypis, V. Kumar, "METIS: A Software Package for Partitioning Unstructured Graphs", manual, section 4.1.1.
"""

from __future__ import annotations

import numpy as np

from mgraph.distinct import distinct
from mgraph.errors import ReadError
from mgraph.tables.files.graph_file import GraphFile
from mgraph.tables.files.numbers import lines_of, numbers_of, places_from_1, sizes_in

__all__ = ["metis"]

LABELS = {"src": "column 'vertex'", "dst": "column 'neighbour'", "weight": "column 'weight'"}

Lines = list[tuple[int, bytes]]


def metis(body: bytes, weighted: bool) -> GraphFile:
    """Return the undirected graph of a file. O(bytes).

    It has each edge in both directions. `ReadError` names the line where it is malformed; an edge must be in the lines
    of both its ends.
    """
    # Drop comments, which may be in any encoding, and blank lines around the rows.
    lines = [(at, line) for at, line, _ in lines_of(body) if not line.lstrip().startswith(b"%")]
    while lines and not lines[0][1].strip():
        lines.pop(0)
    n, m, before, weights = _header(lines[0] if lines else (1, b""))
    lines = lines[1:]
    while len(lines) > n and not lines[-1][1].strip():
        lines.pop()
    if len(lines) != n:
        raise ReadError(f"the first line announces {n} vertices, and {len(lines)} lines follow")
    # Parse the rows; each edge must be in both its rows.
    source, target, values = _rows(lines, n, before, weights)
    _check(lines, n, m, source, target, values)
    columns = {"src": source, "dst": target}
    if weights and weighted:
        columns["weight"] = values
    return GraphFile(columns, LABELS, False, n)


def _header(first: tuple[int, bytes]) -> tuple[int, int, int, bool]:
    """Parse the first line: vertices, edges, numbers before a line's first neighbour, and if edges have weights."""
    at, line = first
    words = line.decode(errors="replace").split()
    if not 2 <= len(words) <= 4 or (numbers := sizes_in(words)) is None:
        text = line.decode(errors="replace").strip()[:60]
        raise ReadError(f"line {at} is {text!r}; it must have the numbers of vertices and edges, maybe a format")
    form = words[2] if len(words) > 2 else "0"
    if len(form) > 3 or set(form) - {"0", "1"}:
        raise ReadError(f"line {at} has the format {form!r}; it has up to three digits, 0 or 1")
    sizes, vertices, edges = (digit == "1" for digit in f"{form:0>3}")
    constraints = (numbers[3] if len(numbers) > 3 else 1) if vertices else 0
    return numbers[0], numbers[1], sizes + constraints, edges


def _rows(lines: Lines, n: int, before: int, weighted: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arcs of all lines: sources and targets from 0, int64[m], and weights."""
    # Parse all lines at once; if that fails, line by line for the number in the message.
    try:
        numbers, words = numbers_of(b"".join(line + b"\n" for _, line in lines))
    except ReadError:
        for at, line in lines:
            numbers_of(line, at)
        raise
    # Cut the sizes and weights of vertices off the front of each line.
    places = np.arange(len(numbers)) - np.repeat(np.cumsum(words) - words, words)  # each word's place in its line
    short = (words > 0) & (words < before)
    if short.any():
        at = int(short.argmax())
        raise ReadError(f"line {lines[at][0]} has {words[at]} numbers; {before} come before the first neighbour")
    numbers, counts = numbers[places >= before], np.maximum(words - before, 0)
    # Split neighbours and weights, which alternate.
    if weighted and (counts % 2).any():
        raise ReadError(f"line {lines[int((counts % 2).argmax())][0]} has a neighbour without a weight")
    source, step = np.repeat(np.arange(n), counts // 2 if weighted else counts), 2 if weighted else 1
    target, bad = places_from_1(numbers[::step], n)
    if bad >= 0:
        raise ReadError(f"line {lines[source[bad]][0]} names neighbour {numbers[::step][bad]:.15g}; there are 1 to {n}")
    return source, target, numbers[1::2] if weighted else np.ones(len(source))


def _check(lines: Lines, n: int, m: int, source: np.ndarray, target: np.ndarray, values: np.ndarray) -> None:
    """Raise `ReadError` unless each arc has its reverse, of the same weight, and `m` edges exist."""
    # The arcs with u <= v must be the reverses of those with u >= v, and be `m`.
    forth, back = source * n + target, target * n + source
    lower, upper = distinct(forth[source <= target]), distinct(back[source >= target])
    if not np.array_equal(lower, upper):
        at = int((~np.isin(forth, back)).argmax())
        u, v = source[at] + 1, target[at] + 1
        raise ReadError(f"line {lines[u - 1][0]} names neighbour {v}, and the line of {v} does not name {u}")
    if len(lower) != m:
        raise ReadError(f"the first line announces {m} edges, and there are {len(lower)}")
    # Sorted by edge, an arc and its reverse stand at the same place.
    first, last = np.argsort(forth, kind="stable"), np.argsort(back, kind="stable")
    if (differ := values[first] != values[last]).any():
        at = int(first[differ.argmax()])
        u, v = source[at] + 1, target[at] + 1
        raise ReadError(f"line {lines[u - 1][0]} gives neighbour {v} another weight than the line of {v} gives {u}")
