"""Creation of a graph from a file of any known format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.checks import check_count
from mgraph.client.options import GraphOptions, keys_of
from mgraph.client.reports.progress import building, stage
from mgraph.convert.build import build, check_largest, from_columns, largest_id, names_of
from mgraph.convert.files import from_table_file
from mgraph.convert.matrices import check_shape
from mgraph.errors import InvalidOption, ReadError, UnknownVertex
from mgraph.facade import warn
from mgraph.tables.files.dimacs import dimacs
from mgraph.tables.files.formats import TABLES, format_of
from mgraph.tables.files.graph_file import GraphFile
from mgraph.tables.files.graphalytics import evlp
from mgraph.tables.files.graphml import graphml
from mgraph.tables.files.matrix_market import matrix_market
from mgraph.tables.files.metis import metis
from mgraph.tables.files.opening import blamed, body_of, check_path, guarded
from mgraph.tables.files.text import columns_in_head, edge_list
from mgraph.tables.ids import as_ids, as_keys, chosen_kind
from mgraph.tables.names import label, warn_unused

__all__ = ["read"]


@building
def read(
    cls: Any,
    path: str | os.PathLike[str],
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    *,
    time: str | int | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from a file, whose format is recognised. Needs pyarrow.

    ========================  =======================================================================================
    format                    recognised by; the graph
    ========================  =======================================================================================
    Parquet, CSV, TSV, .npz   contents; ``.csv``, ``.tsv``. As of `from_parquet` and `from_csv`. In CSV and TSV # begins
                              no comment.
    Matrix Market             contents. Entry (i, j) is the edge from i - 1 to j - 1. Values are weights; a symmetric
                              matrix is an undirected graph.
    METIS                     ``.graph``, ``.metis``. Undirected; vertices are numbered from 0 here, from 1 there.
                              Edge weights are read, vertex weights and sizes are not.
    DIMACS                    contents, ``.gr``. ``p sp``: directed, with weights; ``p edge``: undirected, without.
                              Vertices are numbered from 0 here, from 1 there.
    GraphML                   contents. One graph without parallel edges; nodes are strings, or integers where
                              ``keys="int64"``, ``keys=None`` or `n_vertices` is given.
    LDBC Graphalytics (EVLP)  ``.properties``, ``.v``, ``.e``; the three lie in one folder, and ``.e`` is enough. By
                              default with ``keys="int64"``, since its ids may be sparse.
    an edge list              anything else: one edge per line, with columns between tabs, commas or blanks. Lines that
                              begin with # or % are comments. A first line of names is left out.
    ========================  =======================================================================================

    JSON, HTML, GML, GEXF, DOT, Pajek, DGS, Arrow's IPC and archives are refused by their name.

    Parameters
    ----------
    path : path
        A file that is compressed by gzip, bzip2, xz, Zstandard or LZ4 is decompressed, to at most 250 times its size or
        64 MiB; the suffix before .gz, .bz2, .xz, .zst or .lz4 counts then. Parquet compresses its own columns.
    source, target, weight, time : str or int, optional
        The columns of an edge list, Parquet, CSV or TSV: names, or for text without a line of names numbers from 0. By
        default "source" and "target", or "src" and "dst", and 0 and 1 for an edge list; weights and times as in
        `from_pandas`. For GraphML and EVLP `weight` is the property of the edges, by default "weight" in GraphML where
        ``weighted=True``, and the first one in EVLP. Matrix Market and METIS have no names. Only edge
        lists and tables have times.
    client, n_vertices, **options
        As in `from_pandas`. ``weighted=False`` ignores the weights of a format; `directed` overrides the file's own
        direction.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    ReadError
        The file cannot be read, is malformed, or has bad values. The message names the file, and column, row and value
        or the line. Rows count from 0, without comments and the line of names. No graph was created.
    UnknownVertex
        An id is `n_vertices` or more. No graph was created.
    InvalidOption
        Columns are named for a format without names; or an error of `DynamicGraph`.

    Notes
    -----
    O(bytes). The whole file is in memory once or twice; `ingest` has the workers read files in parts.

    Examples
    --------
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph.read("roads.txt.gz", weight=2)  # doctest: +SKIP
    """
    # Recognise the format by the contents.
    names = source, target, weight, time
    file = check_path(path)
    stage(f"reading {os.path.basename(file)}")
    with guarded(file):
        kind = format_of(file)
    # Tables, and text whose columns are numbered.
    delimiter = {"csv": ",", "tsv": "\t"}.get(kind)
    numbered = any(isinstance(name, int) for name in names)
    if kind in TABLES and not (numbered and delimiter is not None):
        columns = names_of(options, *names)
        return from_table_file(cls, path, kind, delimiter, columns, client, n_vertices, options)
    if delimiter is not None or kind == "edge list":
        return _edge_list(cls, file, names, delimiter, client, n_vertices, options)
    # Formats of graphs.
    _check_names(kind, names)
    contents, decided = _contents(kind, file, weight, n_vertices, options)
    with blamed(file):
        return _graph(cls, kind, contents, client, n_vertices, decided)


def _check_names(kind: str, names: tuple[Any, ...]) -> None:
    """Raise `InvalidOption` if columns are named for a format without names."""
    source, target, weight, time = names
    named = {"source": source, "target": target, "time": time}
    if kind not in ("evlp", "graphml"):
        named["weight"] = weight
    for name, value in named.items():
        if value is not None:
            raise InvalidOption(f"{name} is {value!r}; a file of the format {kind} has no columns to name")


def _edge_list(
    cls: Any, file: str, names: tuple[Any, ...], delimiter: str | None, client: Any, n_vertices: Any, options: Any
) -> Any:
    """Create a graph from a text file."""
    # Choose the columns; the ends are the first two by default.
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    source, target, weight, time = names
    if weight is None:
        with guarded(file):
            weight = _column_of_weights(file, delimiter, options.get("weighted"), names)
    places = {
        "src": 0 if source is None else source, "dst": 1 if target is None else target, "weight": weight, "time": time,
    }  # fmt: skip
    named = {column: name for column, name in places.items() if name is not None}
    # Read them, and create the graph.
    with guarded(file):
        table = edge_list(file, [*named.values()], keys, delimiter)
    columns = {column: table.column(str(name)) for column, name in named.items()}
    labels = {column: label(str(name)) for column, name in named.items()}
    with blamed(file):
        return from_columns(cls, columns, labels, client, n_vertices, options)


def _column_of_weights(file: str, delimiter: str | None, weighted: bool | None, names: tuple[Any, ...]) -> Any:
    """Return the column of weights of a text file, where the user named none; None without one.

    It is the column "weight" if the graph is to be `weighted`. A warning says which columns are not used that may be
    weights.
    """
    # By its name, where the columns have names.
    first, has_names = columns_in_head(file, delimiter)
    by_name = any(isinstance(name, str) for name in names)
    if (has_names or by_name) and "weight" in first:
        warn_unused(["weight"] if weighted is None else [], "the file")
        return None if not weighted else "weight" if by_name else first.index("weight")
    # Else weights are not guessed; a warning names a column that may hold them.
    used = {name for name in (*names, 0, 1) if isinstance(name, int)}
    if weighted and not by_name and len(first) > len(used):
        more = min(set(range(len(first))) - used)
        warn(f"all weights are 1: the file has {len(first)} columns, and weight={more} would read column {more}")
    return None


def _contents(kind: str, file: str, weight: Any, n_vertices: Any, options: Any) -> tuple[GraphFile, dict[str, Any]]:
    """Read a file of a graph format. The user's options take precedence."""
    # Vertices of EVLP are integer keys by default.
    keys, weighted = options.get("keys", "auto"), options.get("weighted", True)
    if kind == "evlp" and n_vertices is None and keys == "auto":
        keys = "int64"
    kind_of_keys = keys_of(keys, n_vertices)
    # Read it with the reader of its format.
    with guarded(file):
        if kind == "graphml":
            numbers = n_vertices is not None or keys in (None, "int64")
            contents = graphml(body_of(file), weight, options.get("weighted"), numbers)
        elif kind == "evlp":
            contents = evlp(file, weight, kind_of_keys, weighted)
        else:
            reader = {"dimacs": dimacs, "matrix market": matrix_market, "metis": metis}[kind]
            contents = reader(body_of(file), bool(weighted))
    # The file decides direction and weights, unless the user does.
    says = {"directed": contents.directed, "weighted": "weight" in contents.columns}
    return contents, {**says, **options, "keys": keys}


def _graph(cls: Any, kind: str, contents: GraphFile, client: Any, n_vertices: Any, options: Any) -> Any:
    """Create a graph from the contents of a file."""
    if contents.n_vertices is not None:
        return _numbered(cls, kind, contents, client, n_vertices, options)
    keys = _chosen(contents, keys_of(options["keys"], n_vertices))
    batch = EdgeBatch.of(contents.columns, keys, contents.labels)
    if contents.vertices is None:
        return build(cls, batch, contents.labels, client, n_vertices, options)
    return _listed(cls, contents, batch, client, n_vertices, options, known=kind == "evlp")


def _chosen(contents: GraphFile, keys: str | None) -> str | None:
    """Return the keys of a graph; "auto" decides by the file's vertices."""
    if keys != "auto" or contents.vertices is None:
        return keys
    return chosen_kind(contents.vertices, contents.vertices, ("column 'node'",) * 2)


def _numbered(cls: Any, kind: str, contents: GraphFile, client: Any, n_vertices: Any, options: Any) -> Any:
    """Create a graph from a file that numbers its vertices."""
    # Check the number of vertices.
    n, columns = contents.n_vertices, dict(contents.columns)
    assert n is not None
    if n_vertices is not None and (n_vertices < n or (kind == "matrix market" and n_vertices != n)):
        raise UnknownVertex(f"the file has {n} vertices, and n_vertices is {n_vertices}")
    if kind == "matrix market":
        check_shape((n, n))
    else:
        check_count(n, "the number of vertices of the file")
    # Bring the edges to the wanted direction.
    src, dst, wanted = columns["src"], columns["dst"], options["directed"]
    if kind == "metis" and not wanted:  # it has each edge both ways
        columns = {name: column[src <= dst] for name, column in columns.items()}
    elif kind != "metis" and contents.directed is False and wanted:
        back = src != dst
        ends = {"src": np.concatenate([src, dst[back]]), "dst": np.concatenate([dst, src[back]])}
        columns |= {name: np.concatenate([column, column[back]]) for name, column in columns.items()} | ends
    return from_columns(cls, columns, contents.labels, client, n if n_vertices is None else n_vertices, options)


def _listed(
    cls: Any, contents: GraphFile, batch: EdgeBatch, client: Any, n_vertices: Any, options: Any, known: bool
) -> Any:
    """Create a graph from a file that lists its vertices. With `known`, edges may have no others."""
    if contents.directed is False and options["directed"]:
        batch = _both_ways(batch)
    # Listed vertices are keys.
    if batch.keys is not None:
        vertices = as_keys(contents.vertices, batch.keys, "column '0'")
        if known and batch.keys == "int64":
            _check_listed(batch, contents.labels, vertices)
        return build(cls, batch, contents.labels, client, None, options, vertices)
    # Listed vertices are ids; the largest decides the number of vertices.
    ids = as_ids(contents.vertices, "column '0'")
    if known:
        _check_listed(batch, contents.labels, ids)
    largest = int(ids.max()) if len(ids) else -1
    if n_vertices is None:
        largest = max(largest, largest_id(batch, contents.labels)[0])
        check_largest(largest, "the largest vertex", None, len(batch))
        n_vertices = largest + 1
    elif largest >= check_count(n_vertices, "n_vertices"):
        raise UnknownVertex(f"the file has the vertex {largest}, and n_vertices is {n_vertices}")
    return build(cls, batch, contents.labels, client, n_vertices, options)


def _both_ways(batch: EdgeBatch) -> EdgeBatch:
    """Return the edges of an undirected file as arcs, a loop once."""
    src, dst = (end if isinstance(end, np.ndarray) else np.asarray(end) for end in (batch.src, batch.dst))
    back = src != dst
    weight = None if batch.weight is None else np.concatenate([batch.weight, batch.weight[back]])
    ends = np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])
    return EdgeBatch(*ends, weight, keys=batch.keys)


def _check_listed(batch: EdgeBatch, labels: Mapping[str, str], vertices: np.ndarray) -> None:
    for end in ("src", "dst"):
        column = getattr(batch, end)
        unknown = ~np.isin(column, vertices)
        if unknown.any():
            row = int(unknown.argmax())
            raise ReadError(f"{labels[end]}, row {row} is {column[row]}, which is not in the file of vertices")
