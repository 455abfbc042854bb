"""Graphs from Matrix Market, METIS, GraphML and LDBC Graphalytics' files.

References
----------
R. F. Boisvert, R. Pozo, K. A. Remington, "The Matrix Market Exchange Formats", NISTIR 5935, 1996.
G. Karypis, V. Kumar, "METIS: A Software Package for Partitioning Unstructured Graphs", manual, section 4.1.1.
A. Iosup et al., "The LDBC Graphalytics Benchmark", arXiv:2011.15028, section 2.2.2.
"""

from __future__ import annotations

import os
import warnings
from io import BytesIO
from typing import Any

import numpy as np

from mgraph.client.options import keys_of
from mgraph.columns import as_keys
from mgraph.convert.build import Edges, build, check_largest
from mgraph.convert.columns import Column, vertex_ids
from mgraph.convert.frames import arrow_edges
from mgraph.convert.graphs import from_networkx
from mgraph.convert.matrices import check_shape, from_scipy
from mgraph.convert.text import COMPRESSED, body_of, table_of
from mgraph.errors import InvalidOption, ReadError, UnknownVertex

__all__ = ["check_names", "evlp", "graphml", "matrix_market", "metis"]


def check_names(kind: str, names: tuple[Any, ...]) -> None:
    """Raise `InvalidOption` if columns are named that a format has not."""
    source, target, weight, time = names
    given = {"source": source, "target": target, "time": time}
    if kind in ("matrix market", "metis"):
        given["weight"] = weight
    for name, value in given.items():
        if value is not None:
            raise InvalidOption(f"{name} is {value!r}; a file of the format {kind} has no columns to name")


def matrix_market(cls: Any, path: str, weight: None, client: Any, n_vertices: Any, options: Any) -> Any:
    """A graph of a Matrix Market file of coordinates; entries at the same place are added up. O(bytes)."""
    from scipy import io, sparse

    body = body_of(path)
    try:
        rows, columns, entries, form, field, symmetry = io.mminfo(BytesIO(body))
        if form != "coordinate":
            raise ReadError(f"the matrix is dense ({form}); one of coordinates is needed")
        if n_vertices is not None and n_vertices != rows:
            raise UnknownVertex(f"the matrix has {rows} rows and {columns} columns, and n_vertices is {n_vertices}")
        check_shape((rows, columns))
        if entries > len(body):
            raise ReadError(f"its head announces {entries} entries, and there are {len(body)} bytes")
        matrix = io.mmread(BytesIO(body), spmatrix=False)
    except OverflowError as error:
        raise ReadError(f"{error} Numbers have at most 64 bits") from None
    options = {"directed": symmetry != "symmetric", "weighted": field != "pattern", **options}
    if symmetry == "symmetric" and not options["directed"]:
        matrix = sparse.tril(matrix)  # each edge once
    return from_scipy(cls, matrix, client=client, **options)


def graphml(cls: Any, path: str, weight: Any, client: Any, n_vertices: Any, options: Any) -> Any:
    """A graph of a GraphML file, by NetworkX."""
    import networkx as nx

    numbers = n_vertices is not None or options.get("keys", "auto") in (None, "int64")
    try:
        graph = nx.read_graphml(BytesIO(body_of(path)), node_type=int if numbers else str)
    except (nx.NetworkXError, SyntaxError) as error:  # of XML
        raise ReadError(str(error)) from None
    return from_networkx(cls, graph, weight, client=client, n_vertices=n_vertices, **options)


# ---- METIS -----------------------------------------------------------------------------------------------------------


def metis(cls: Any, path: str, weight: None, client: Any, n_vertices: Any, options: Any) -> Any:
    """A graph of a METIS file: line i has the neighbours of vertex i, maybe with weights. O(bytes).

    `ReadError` names the line where it is malformed; an edge must be in the lines of both its ends.
    """
    text = body_of(path).decode("ascii").splitlines()
    lines = [(at, line) for at, line in enumerate(text, 1) if not line.lstrip().startswith("%")]
    while lines and not lines[0][1].strip():
        lines.pop(0)
    n, m, before, weighted = _metis_header(lines[0] if lines else (1, ""))
    body = lines[1:]
    while len(body) > n and not body[-1][1].strip():
        body.pop()
    if len(body) != n:
        raise ReadError(f"the first line announces {n} vertices, and {len(body)} lines follow")
    if n_vertices is not None and n_vertices < n:
        raise UnknownVertex(f"the file has {n} vertices, and n_vertices is {n_vertices}")
    source, target, values = _metis_rows(body, n, before, weighted)
    _check_metis(body, n, m, source, target, values)
    options = {"directed": False, "weighted": weighted, **options}
    if not options["directed"]:
        once = source <= target
        source, target, values = source[once], target[once], values[once]
    size = n if n_vertices is None else n_vertices
    keys = keys_of(options.get("keys", "auto"), size)
    data = Column("weight", values) if weighted and options["weighted"] else None
    assert keys is None
    return build(cls, Edges.of(Column("vertex", source), Column("neighbour", target), data), client, size, options)


def _metis_header(first: tuple[int, str]) -> tuple[int, int, int, bool]:
    """Vertices, edges, numbers before the first neighbour of a line, and whether edges have weights."""
    at, line = first
    words = line.split()
    if not 2 <= len(words) <= 4 or not all(word.isdigit() for word in words):
        raise ReadError(f"line {at} is {line[:60]!r}; it must have the numbers of vertices and edges, maybe a format")
    sizes, vertices, edges = (digit == "1" for digit in f"{words[2] if len(words) > 2 else '0':0>3}"[-3:])
    constraints = (int(words[3]) if len(words) > 3 else 1) if vertices else 0
    return int(words[0]), int(words[1]), sizes + constraints, edges


def _metis_rows(
    lines: list[tuple[int, str]], n: int, before: int, weighted: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arcs of all lines: sources and targets from 0, int64[m], and weights, float64[m]."""
    words = np.array([len(line.split()) for _, line in lines], np.int64)
    numbers = _numbers(lines, int(words.sum()))
    places = np.arange(len(numbers)) - np.repeat(np.cumsum(words) - words, words)  # in its line
    numbers, counts = numbers[places >= before], np.maximum(words - before, 0)
    if weighted and (counts % 2).any():
        raise ReadError(f"line {lines[int((counts % 2).argmax())][0]} has a neighbour without a weight")
    source, step = np.repeat(np.arange(n), counts // 2 if weighted else counts), 2 if weighted else 1
    target = numbers[::step]
    wrong = ~((target >= 1) & (target <= n) & (target == np.floor(target)))
    if wrong.any():
        bad = int(wrong.argmax())
        raise ReadError(f"line {lines[source[bad]][0]} names neighbour {target[bad]:.15g}; there are 1 to {n}")
    return source, target.astype(np.int64) - 1, numbers[1::2] if weighted else np.ones(len(source))


def _numbers(lines: list[tuple[int, str]], many: int) -> np.ndarray:
    """The numbers in all lines: float64[many]."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # older versions of NumPy warn of what is no number
            return np.fromstring(" ".join(line for _, line in lines), np.float64, sep=" ") if many else np.empty(0)
    except (DeprecationWarning, ValueError):
        at, word = next((at, word) for at, line in lines for word in line.split() if not _is_number(word))
        raise ReadError(f"line {at} has {word!r}, which is no number") from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word  # which Python takes, and the parser does not


def _check_metis(
    lines: list[tuple[int, str]], n: int, m: int, source: np.ndarray, target: np.ndarray, values: np.ndarray
) -> None:
    """Raise `ReadError` unless each arc has its reverse, of the same weight, and there are `m` edges."""
    there, back = source * n + target, target * n + source
    lower, upper = _distinct(there[source <= target]), _distinct(back[source >= target])
    if not np.array_equal(lower, upper):
        at = int((~np.isin(there, back)).argmax())
        u, v = source[at] + 1, target[at] + 1
        raise ReadError(f"line {lines[u - 1][0]} names neighbour {v}, and the line of {v} does not name {u}")
    if len(lower) != m:
        raise ReadError(f"the first line announces {m} edges, and there are {len(lower)}")
    first, last = np.argsort(there, kind="stable"), np.argsort(back, kind="stable")
    if (differ := values[first] != values[last]).any():
        at = int(first[differ.argmax()])
        u, v = source[at] + 1, target[at] + 1
        raise ReadError(f"line {lines[u - 1][0]} gives neighbour {v} another weight than the line of {v} gives {u}")


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, ascending; by sorting, since `numpy.unique` hashes, and takes ten times as long."""
    values = np.sort(values)
    return values[np.diff(values, prepend=-1) != 0]


# ---- LDBC Graphalytics -----------------------------------------------------------------------------------------------


def evlp(cls: Any, path: str, weight: Any, client: Any, n_vertices: Any, options: Any) -> Any:
    """A graph of ``NAME.e``, with ``NAME.v`` and ``NAME.properties`` beside it where they are. O(bytes)."""
    own = _properties(_beside(path, ".properties"))
    folder = os.path.dirname(path)
    found = {
        kind: os.path.join(folder, own[f"{kind}-file"]) if f"{kind}-file" in own else _beside(path, suffix)
        for kind, suffix in (("vertex", ".v"), ("edge", ".e"))
    }
    if found["edge"] is None:
        raise ReadError("there is no file of edges beside it, which ends in .e")
    options = {"directed": own.get("directed", "true").lower() != "false", **options}
    if n_vertices is None and options.get("keys", "auto") == "auto":
        options["keys"] = "int64"
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    place = _weight_column(own, weight) if options.get("weighted", True) else None
    table = table_of(found["edge"], (0, 1, place), keys, " ")
    edges = arrow_edges(table, "0", "1", None if place is None else str(place), keys)
    if found["vertex"] is None:
        return build(cls, edges, client, n_vertices, options)
    listed = table_of(found["vertex"], (0,), keys, " ")["0"]
    if keys is not None:
        names = as_keys(listed, keys, "column '0'")
        if keys == "int64":
            _check_listed(edges, names)
        return build(cls, edges, client, None, options, names)
    ids = vertex_ids(Column("0", listed.to_numpy()))
    _check_listed(edges, ids)
    if n_vertices is None:
        largest = int(ids.max()) if len(ids) else -1
        check_largest(largest, "the largest vertex", None, len(edges.src))
        n_vertices = largest + 1
    return build(cls, edges, client, n_vertices, options)


def _check_listed(edges: Edges, vertices: np.ndarray) -> None:
    for name, column in zip(edges.names, (edges.src, edges.dst), strict=True):
        unknown = ~np.isin(column, vertices)
        if unknown.any():
            row = int(unknown.argmax())
            raise ReadError(f"column {name!r}, row {row} is {column[row]}, which is not in the file of vertices")


def _weight_column(own: dict[str, str], weight: Any) -> int | None:
    """The place of the column of weights: of the property `weight`, else of the first one, if there is any."""
    names = [name.strip() for name in own.get("edge-properties.names", "").split(",") if name.strip()]
    if weight is None:
        return 2 if names else None
    if isinstance(weight, int):
        return weight
    if weight not in names:
        raise ReadError(f"the edges have no property {weight!r}; they have {', '.join(map(repr, names)) or 'none'}")
    return 2 + names.index(weight)


def _beside(path: str, suffix: str) -> str | None:
    """The file of the same name with another suffix, compressed or not; None if there is none."""
    stem, last = os.path.splitext(path)
    stem = os.path.splitext(stem)[0] if last in COMPRESSED else stem
    return next((stem + suffix + more for more in ("", *COMPRESSED) if os.path.exists(stem + suffix + more)), None)


def _properties(path: str | None) -> dict[str, str]:
    """The properties of the graph, without the prefix ``graph.NAME.``; # begins a comment."""
    lines = [] if path is None else body_of(path).decode().splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    found = {key.strip(): value.strip() for key, _, value in pairs}
    names = {key.split(".")[1] for key in found if key.startswith("graph.") and key.count(".") > 1}
    if len(names) > 1:
        raise ReadError(f"{path} has the properties of several graphs: {', '.join(sorted(names))}")
    return {key.removeprefix(f"graph.{name}."): value for name in names for key, value in found.items()}
