"""Text files as bytes and tables: decompressed, without comments, with columns that blanks or a character separate."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from mgraph.convert.columns import choose
from mgraph.errors import InvalidBatch, ReadError

__all__ = ["COMPRESSED", "body_of", "columns_in_text", "head_of", "kind_of", "table_of"]

COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")  #: suffixes of the files that Arrow's codecs decompress
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*\n?", re.MULTILINE)
_ENDS = re.compile(rb"^ +| +$", re.MULTILINE)
_AROUND = re.compile(rb" *, *")
_BLANKS = re.compile(rb" {2,}")
_MARK = b"\xef\xbb\xbf"  # of byte order, with which some programs begin UTF-8


def kind_of(path: str) -> str:
    """The suffix of a file's name in lower case, without that of its compression: ".mtx" of "roads.mtx.gz"."""
    stem, suffix = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if suffix in COMPRESSED else suffix


def head_of(path: str) -> bytes:
    """The first 64 bytes of a file, decompressed."""
    return _read(path, 64)


def body_of(path: str) -> bytes:
    """A file's bytes, decompressed as its suffix says. O(bytes)."""
    return _read(path, None)


def _read(path: str, nbytes: int | None) -> bytes:
    import pyarrow as pa

    with pa.input_stream(path) as stream:
        found: bytes = stream.read(nbytes)
        return found.removeprefix(_MARK)


def table_of(path: str, wanted: Sequence[Any], keys: str | None, delimiter: str | None = None) -> Any:
    """Some columns of a text file as a ``pyarrow.Table``; lines that begin with # or % are comments. O(bytes).

    Parameters
    ----------
    wanted : (source, target, weight or None), or some of the first of these
        Names, which the first line has, or numbers of columns from 0. Columns that are numbers are called "0", "1" ...
    keys : str or None
        With "string" the ends are read as text, leading zeros and all.
    delimiter : str, optional
        By default a comma, if the first line has one, else blanks and tabs, any number of them.

    Raises
    ------
    ReadError
        Some columns are names and others numbers.
    InvalidBatch
        A column is not there, or a value is no UTF-8.
    ValueError
        Lines have different numbers of columns.
    """
    import pyarrow as pa

    named = {isinstance(name, str) for name in wanted if name is not None}
    if len(named) > 1:
        raise ReadError(f"columns {wanted}: either all are names, or all are numbers from 0")
    body, delimiter = _plain(body_of(path), delimiter)
    width = len(body[: body.find(b"\n") if b"\n" in body else None].split(delimiter.encode())) if body.strip() else 0
    there = None if named == {True} else [str(column) for column in range(width)]
    if there is not None and not width:
        return pa.table({str(name): pa.array([], pa.int64()) for name in wanted if name is not None})
    return columns_in_text(body, [None if name is None else str(name) for name in wanted], keys, delimiter, there)


def columns_in_text(
    given: str | bytes, wanted: Sequence[str | None], keys: str | None, delimiter: str, there: list[str] | None = None
) -> Any:
    """Columns of CSV, the path of a file or its text, as a ``pyarrow.Table``; the first line has names unless `there`.

    With ``keys="string"`` the first two of `wanted` are read as text, an empty cell as the empty string; else it is
    missing, and ``""`` is the empty string. `InvalidBatch` if a column is not there, a value
    is no UTF-8, or one of the two has text where whole numbers have to be.
    """
    import pyarrow as pa
    from pyarrow import csv

    def source() -> Any:
        return given if isinstance(given, str) else pa.BufferReader(given)

    parse, how = csv.ParseOptions(delimiter=delimiter), csv.ReadOptions(column_names=there)
    if there is None:
        with csv.open_csv(source(), parse_options=parse) as opened:
            try:
                there = opened.schema.names
            except UnicodeDecodeError as error:
                raise InvalidBatch(f"the line of names is no UTF-8: {error}") from None
    names = choose(there, wanted, "the file")
    types = dict.fromkeys(names[:2], "binary") if keys == "string" else {}  # "string" refuses without value and row
    null = {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}  # `""` is a name
    convert = csv.ConvertOptions(include_columns=names, column_types=types, **({} if types else null))
    table = csv.read_csv(source(), how, parse, convert)
    for at, name in enumerate(names):
        if pa.types.is_binary(table.field(at).type):
            table = table.set_column(at, name, _decoded(name, table.column(at)))
    if keys != "string":
        _check_ends(table.select(names[:2]), keys)
    return table


def _check_ends(ends: Any, keys: str | None) -> None:
    """Raise `InvalidBatch` for the first value that is no whole number, where the other end, or `keys`, are numbers.

    Arrow reads a column with one such value as text from its first row on.
    """
    import pyarrow as pa
    from pyarrow import compute

    text = [pa.types.is_string(field.type) for field in ends.schema]
    numbers = [pa.types.is_integer(field.type) for field in ends.schema]
    if not any(text) or (keys == "auto" and not any(numbers)):
        return
    at, advice = text.index(True), 'keys="string" reads both ends as text'
    whole = compute.match_substring_regex(ends.column(at), r"^[ \t]*[+-]?[0-9]+[ \t]*$")
    if (row := compute.index(whole, False).as_py()) < 0:
        return
    what = f"column {ends.column_names[at]!r}, row {row} is {ends.column(at)[row].as_py()!r}"
    if any(numbers):
        other = numbers.index(True)
        there = f"column {ends.column_names[other]!r} has whole numbers"
        raise InvalidBatch(f"{what}, and {there}; {advice}")
    raise InvalidBatch(f"{what}, which is no whole number; {advice}")


def _decoded(name: str, column: Any) -> Any:
    """A column of bytes as strings."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(column.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError:
                raise InvalidBatch(f"column {name!r}, row {row} is {value!r}, which is no UTF-8") from None
        raise


def _plain(body: bytes, delimiter: str | None) -> tuple[bytes, str]:
    """A text without comments, and the character between its columns."""
    start = 0
    while (found := _COMMENT.match(body, start)) is not None:  # those at the beginning, as most files have them
        start = found.end()
    body = body[start:]
    if b"#" in body or b"%" in body:
        body = _COMMENT.sub(b"", body)
    if delimiter is not None:
        return body, delimiter
    body = body.replace(b"\r\n", b"\n").lstrip(b" \t\n")
    if b"," in body[: body.find(b"\n") if b"\n" in body else None]:
        blank = (b", " in body or b" ," in body) and b'"' not in body  # a quoted name keeps its blanks
        return _AROUND.sub(b",", body) if blank else body, ","
    body = body.replace(b"\t", b" ")
    if b"  " in body or b" \n" in body or b"\n " in body or body.endswith(b" "):
        body = _BLANKS.sub(b" ", _ENDS.sub(b"", body))
    return body, " "
