"""A graph from a file of any known format."""

from __future__ import annotations

import os
from typing import Any, Unpack

from mgraph.client.options import GraphOptions, keys_of
from mgraph.client.reports.progress import building
from mgraph.convert import formats
from mgraph.convert.build import build
from mgraph.convert.files import from_csv, from_parquet, reading
from mgraph.convert.frames import arrow_edges
from mgraph.convert.text import head_of, kind_of, table_of
from mgraph.errors import ReadError

__all__ = ["read"]

#: by the suffix of a file's name
_FORMATS = {
    ".csv": "csv",
    ".e": "evlp",
    ".graph": "metis",
    ".graphml": "graphml",
    ".metis": "metis",
    ".mtx": "matrix market",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".properties": "evlp",
    ".tsv": "csv",
    ".v": "evlp",
}
#: by a file's first bytes, in lower case; None for what is not read
_BEGINNINGS = {
    b"%%matrixmarket": "matrix market",
    b"<?xml": "graphml",
    b"<graphml": "graphml",
    b"par1": "parquet",
    b"pk\x03\x04": None,
    b"arrow1": None,
}


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
    """A new graph of a file, read in this process, whose format is recognised; needs pyarrow.

    ========================  =======================================================================================
    format                    recognised by, and what its graph is
    ========================  =======================================================================================
    Parquet, CSV, TSV         contents; ``.csv``, ``.tsv``. As of `from_parquet` and `from_csv`.
    Matrix Market             contents. Entry (i, j) is the edge from i - 1 to j - 1. Values are weights; a symmetric
                              matrix is an undirected graph. Needs SciPy.
    METIS                     ``.graph``, ``.metis``. Undirected; vertices are numbered from 0 here, from 1 there.
                              Weights of edges are read, those and sizes of vertices are not.
    GraphML                   contents. As of `from_networkx`; nodes are strings, or integers where ``keys="int64"``,
                              ``keys=None`` or `n_vertices` is given. Needs NetworkX.
    LDBC Graphalytics (EVLP)  ``.properties``, ``.v``, ``.e``; the three lie in one folder, and ``.e`` is enough. By
                              default with ``keys="int64"``, since its ids may be sparse.
    an edge list              anything else: an edge a line, with columns between blanks, tabs or commas, and no line
                              of names. Lines that begin with # or % are comments.
    ========================  =======================================================================================

    Parameters
    ----------
    path : path
        The suffixes .gz, .bz2, .zst and .lz4 say that the file is compressed; the suffix before counts then. Parquet
        compresses its own columns.
    source, target, weight, time : str or int, optional
        The columns of an edge list, Parquet, CSV or TSV: names, or for text without a line of names numbers from 0. By
        default "source" and "target", and 0 and 1 for an edge list; and no weights and no times. For GraphML and EVLP
        `weight` is the property of the edges; EVLP takes the first one by default. Matrix Market and METIS have no
        names. Times are read of edge lists and tables only.
    client, n_vertices, **options
        As in `from_pandas`. ``weighted=False`` leaves the weights out that a format brings; `directed` overrides what a
        file says of itself.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    ReadError
        The file cannot be read, is malformed, or has bad values. The message names the file, and column, row and value
        or the line. Rows count from 0, without comments and the line of names. No graph was made.
    UnknownVertex
        An id is `n_vertices` or more. No graph was made.
    InvalidOption
        Columns are named for a format that has none; or as `DynamicGraph`.

    Notes
    -----
    O(bytes). The whole file is in memory once or twice; `ingest` has the workers read Parquet in parts.

    Examples
    --------
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph.read("roads.txt.gz", weight=2)  # doctest: +SKIP
    """
    names = source, target, weight, time
    with reading(path) as file:
        kind = _format(file)
        if kind in ("csv", "parquet") and not any(isinstance(name, int) for name in names):
            given: dict[str, Any] = {"client": client, "n_vertices": n_vertices, **options}
            given["time"] = None if time is None else str(time)
            ends = str(source or "source"), str(target or "target"), None if weight is None else str(weight)
            if kind == "parquet":
                return from_parquet(cls, path, *ends, **given)
            return from_csv(cls, path, *ends, delimiter=_delimiter(file) or ",", **given)
        if kind in ("csv", "parquet", "edge list"):
            return _edge_list(cls, file, names, client, n_vertices, options)
        reader = {
            "evlp": formats.evlp,
            "graphml": formats.graphml,
            "matrix market": formats.matrix_market,
            "metis": formats.metis,
        }[kind]
        formats.check_names(kind, names)
        return reader(cls, file, weight, client, n_vertices, options)


def _format(path: str) -> str:
    """The format of a file, by its first bytes, else by its suffix."""
    head = head_of(path).lstrip().lower()
    for beginning, kind in _BEGINNINGS.items():
        if head.startswith(beginning):
            if kind is None:
                raise ReadError("it is an archive or an Arrow file; DynamicGraph.ingest and from_arrow take these")
            return kind
    return _FORMATS.get(kind_of(path), "edge list")


def _delimiter(path: str) -> str | None:
    """The character between columns that a suffix says."""
    return {".csv": ",", ".tsv": "\t"}.get(kind_of(path))


def _edge_list(cls: Any, path: str, names: tuple[Any, ...], client: Any, n_vertices: Any, options: Any) -> Any:
    """A graph of a text file."""
    keys = keys_of(options.get("keys", "auto"), n_vertices)
    source, target, *others = names
    wanted = 0 if source is None else source, 1 if target is None else target, *others
    table = table_of(path, wanted, keys, _delimiter(path))
    columns = [None if name is None else str(name) for name in wanted]
    edges = arrow_edges(table, str(columns[0]), str(columns[1]), columns[2], keys, columns[3])
    return build(cls, edges, client, n_vertices, options)
