"""Recognise the format of a file by its contents, else by its name."""

from __future__ import annotations

import re

from mgraph.errors import ReadError
from mgraph.tables.files.opening import head_of, suffix_of

__all__ = ["TABLES", "format_of", "table_format_of"]

TABLES = ("csv", "npz", "parquet", "tsv")  #: formats that are tables, read by any call
#: formats by the suffix of a file's name
SUFFIXES = {
    ".csv": "csv",
    ".e": "evlp",
    ".gr": "dimacs",
    ".graph": "metis",
    ".graphml": "graphml",
    ".metis": "metis",
    ".mtx": "matrix market",
    ".npz": "npz",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".properties": "evlp",
    ".tsv": "tsv",
    ".v": "evlp",
}
BINARY = ("npz", "parquet")
#: how the contents of a format begin, lower case, after blanks
_BEGINNINGS = [
    (re.compile(pattern, re.DOTALL), name)
    for pattern, name in (
        (rb"%%matrixmarket", "matrix market"),
        (rb"par1", "parquet"),
        (rb"pk\x03\x04|\x93numpy", "npz"),
        (rb"(<\?xml.*|<!--.*|<!doctype graphml.*)?<(\w+:)?graphml\b", "graphml"),
        (rb"(c[ \t][^\n]*\n|c\r?\n|\s)*p[ \t]+(sp|edge|col|aux|max)\b", "dimacs"),
    )
]
#: how contents begin that are not read, with what they are
_REFUSED = [
    (re.compile(pattern, re.DOTALL), name)
    for pattern, name in (
        (rb"(<\?xml.*|<!--.*)?<gexf\b", "GEXF; networkx.read_gexf reads it"),
        (rb"(<\?xml.*)?(<!doctype html|<html|<head|<body)\b", "a page of HTML, maybe of an error"),
        (rb"<\?xml\b|<!doctype\b|<[a-z]\w*[\s>]", "XML, and no GraphML"),
        (rb"\{\s*[\"}]|\[\s*[\[{\"\]]", "JSON; networkx.node_link_graph or pandas.read_json read it"),
        (rb"((creator|version|comment|label)\b[^\n]*\n|#[^\n]*\n|\s)*graph\s*\[", "GML; networkx.read_gml reads it"),
        (rb"dgs00\d", "DGS of GraphStream"),
        (rb"\*(vertices|network|edges|arcs)\b", "Pajek; networkx.read_pajek reads it"),
        (rb"(strict\s+)?(di)?graph\s+(\"[^\"]*\"|\w*)\s*\{", "DOT; networkx.nx_pydot reads it"),
        (rb"p[ \t]+(tw|td|cep|ds|hs)\b|(c[^\n]*\n)+p[ \t]+(tw|td|cep|ds|hs)\b", "DIMACS of PACE"),
        (rb"arrow1", "Arrow's IPC; pyarrow.ipc and from_arrow read it"),
        (rb"orc\b|obj\x01|sqlite format 3|\x89hdf|%pdf|\x7felf|\xd0\xcf\x11\xe0", "a binary file"),
        (rb"\x28\xb5\x2f\xfd|\x1f\x8b|bzh[1-9]|\xfd7zxz|7z\xbc\xaf|rar!", "compressed twice, or an archive"),
    )
]  # fmt: skip


def format_of(file: str) -> str:
    """Return the format of a file: a value of `SUFFIXES`, or "edge list".

    Raises
    ------
    ReadError
        Its contents are of a format that is not read, or not of the one that its name says. The format is named.
    """
    # The contents decide, if they begin as a known format does.
    head = head_of(file).lstrip().lower()
    named = SUFFIXES.get(suffix_of(file), "edge list")
    for pattern, name in _BEGINNINGS:
        if pattern.match(head):
            return name
    # Refuse formats that are known but not read.
    if named in ("csv", "tsv"):  # its first name may be anything but mark-up
        refused = [(pattern, name) for pattern, name in _REFUSED if not name.startswith(("JSON", "XML", "Pajek"))]
        refused += [(re.compile(rb"\{\s*\"|\[\s*[\[{]|<\?xml|<!doctype", re.DOTALL), "JSON or XML")]
    else:
        refused = _REFUSED
    for pattern, name in refused:
        if pattern.match(head):
            raise ReadError(f"it is {name}, which is not read here")
    # Refuse text with a binary name, and binary data with a name of text.
    if named in BINARY or (b"\0" in head and head.count(b"\0") > len(head) // 8):
        what = f"its name says {named}" if named in BINARY else "its name says text"
        raise ReadError(f"{what}, and its contents are not")
    return named


def table_format_of(file: str) -> str:
    """Return the format of a table, one of `TABLES`.

    `ReadError` for other formats, which only `DynamicGraph.read` takes.
    """
    kind = format_of(file)
    if kind == "edge list":
        return "csv"
    if kind not in TABLES:
        raise ReadError(f"it is a file of the format {kind}, which DynamicGraph.read takes")
    return kind
