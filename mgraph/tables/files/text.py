"""Read tables in text by pyarrow's CSV reader: CSV, TSV, and edge lists.

Blanks or a character separate the columns of an edge list.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mgraph.errors import InvalidBatch, ReadError
from mgraph.tables.files.opening import body_of, head_of, opened

__all__ = ["Csv", "columns_in_head", "edge_list", "first_row", "parse", "plain_rows"]

_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*\n?", re.MULTILINE)
_AROUND = re.compile(rb'("(?:[^"]|"")*")|[ \t]*(,)[ \t]*')
_ENDS = re.compile(rb"^ +| +$", re.MULTILINE)
_BLANKS = re.compile(rb" {2,}")
_DIGIT = re.compile(r"[0-9]")
_NUMBER = r"^[ \t]*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_STAMPS = (("s",), ("ns",), ("s", "UTC"), ("ns", "UTC"))  #: units and time zones of dates
SCANNED = 1 << 16  #: rows of a file that are looked at together
SMALL = 1 << 16  #: bytes of a text that may be one row
#: names that the line of names of an edge list may have for each end
_SOURCES = ("source", "src", "from", "fromnodeid", "node1")
_TARGETS = ("target", "dst", "dest", "destination", "to", "tonodeid", "node2")


class Csv:
    """CSV file with the columns' names in its first line.

    Parameters
    ----------
    file : str
    delimiter : str
        The character between columns.
    """

    def __init__(self, file: str, delimiter: str = ",") -> None:
        self._file, self._delimiter = file, delimiter
        head = head_of(file)
        first = first_row(head, delimiter)
        if first is None:
            raise ReadError("Empty CSV file: it has no line of names")
        self._spaced, self._late = _is_spaced(first), head[:1] in b"\r\n"
        self._bare = b"\n" not in head and b"\r" not in head  # a line of names without an end
        self.names = [name.strip() for name in first] if self._spaced else first

    def nbytes(self, names: Sequence[str]) -> int:
        """Return 0: the size in memory is not known."""
        return 0

    def read(self, names: Sequence[str], keys: str | None) -> Any:
        """Read some columns; with string keys, the ends as text."""
        body = body_of(self._file).lstrip(b"\r\n")
        return parse(_stripped(body) if self._spaced else body, self._delimiter, self.names, 1, names, keys)

    def pieces(self, names: Sequence[str], keys: str | None, rows: int) -> Iterator[Any]:
        """Yield some columns in pieces of about `rows` rows.

        The whole file decides whether the ends are text.
        """
        if self._bare:
            return
        if self._spaced or self._late:
            yield self.read(names, keys)
            return
        text = keys == "string" or (keys == "auto" and self._has_text(names[:2]))
        first = 0
        for table in self._blocks(names, keys, rows):
            yield table if text else numbered(table, names[:2], keys, first)
            first += len(table)

    def _has_text(self, ends: Sequence[str]) -> bool:
        """Return True if both ends are text; `InvalidBatch` if a single end is."""
        first, odd = 0, dict[str, tuple[int, str]]()
        for table in self._blocks(ends, None, SCANNED):
            for name in ends:
                at = -1 if name in odd else _first_text(table.column(name))
                if at >= 0:
                    odd[name] = first + at, table.column(name)[at].as_py()
            first += len(table)
        _refuse_mixed(ends, odd, "auto")
        return bool(odd)

    def _blocks(self, names: Sequence[str], keys: str | None, rows: int) -> Iterator[Any]:
        """Yield tables of about `rows` rows, with the ends as text."""
        import pyarrow as pa

        # Pyarrow chooses the types of other columns by the first MiB. Where a later row is of another type, go on by
        # the rows of each table.
        first = 0
        try:
            for table in self._tables(names, names[:2], keys, rows):
                yield table
                first += len(table)
        except pa.ArrowInvalid:
            if len(names) == 2:
                raise
            for table in self._tables(names, names, keys, rows):
                if len(table) > (known := min(first, len(table))):
                    yield _typed(table.slice(known), names[2:])
                first -= known

    def _tables(self, names: Sequence[str], texts: Sequence[str], keys: str | None, rows: int) -> Iterator[Any]:
        """Yield tables of about `rows` rows, with the columns `texts` as text."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        with opened(self._file) as stream:
            how = _options(self._delimiter, self.names, 1, names, keys, texts=texts, quoted=True)
            blocks = list[Any]()
            with arrow_csv.open_csv(pa.PythonFile(stream, "r"), *how) as batches:
                for block in batches:
                    blocks.append(block)
                    if sum(part.num_rows for part in blocks) >= rows:
                        yield _decoded(pa.Table.from_batches(blocks))
                        blocks = []
            if blocks:
                yield _decoded(pa.Table.from_batches(blocks))


# ---- edge lists ------------------------------------------------------------------------------------------------------


def edge_list(file: str, wanted: Sequence[Any], keys: str | None, delimiter: str | None = None) -> Any:
    """Read columns of a text file as a ``pyarrow.Table``. O(bytes).

    Parameters
    ----------
    wanted : (source, target, weight or None, time or None), or some of the first of these
        Names, which the first line has, or numbers of columns from 0. Columns that are numbers are called "0", "1" ...
        A line of names is left out where columns are numbers.
    keys : str or None
        With "string" the ends are read as text, leading zeros and all.
    delimiter : str, optional
        Of .csv and .tsv, in which # and % begin no comments. Others have the tab between columns if each row has the
        same number of tabs, else a comma if the first row has one, else blanks, any number of them.

    Raises
    ------
    ReadError
        Some columns are names and others numbers.
    InvalidBatch
        A column is not there or is wanted twice, or a value is no UTF-8.
    ValueError
        Lines have different numbers of columns.
    """
    import pyarrow as pa

    # Find the columns, by names or numbers, in the first row.
    named = {isinstance(name, str) for name in wanted if name is not None}
    if len(named) > 1:
        raise ReadError(f"columns {tuple(wanted)}: either all are names, or all are numbers from 0")
    body, delimiter = plain_rows(body_of(file), delimiter)
    first = first_row(body, delimiter)
    names = [str(name) for name in wanted if name is not None]
    if first is None:
        return pa.table({name: pa.array([], pa.int64()) for name in names})
    columns = first if named == {True} else [str(place) for place in range(len(first))]
    for name in names:
        if columns.count(name) != 1:
            count = "no column" if name not in columns else f"{columns.count(name)} columns"
            listed = ", ".join(map(repr, columns)) or "none"
            raise InvalidBatch(f"the file has {count} {name!r}; its columns are {listed}")
        if names.count(name) > 1:
            raise InvalidBatch(
                f"column {name!r} is wanted twice; source, target, weight and time are columns of their own"
            )
    # Leave out a row of names, also of unknown names.
    header = _has_names(first)
    if named == {True} or header:
        return parse(body, delimiter, columns, 1, names, keys)
    if keys != "string" and not any(map(_DIGIT.search, first)):
        # a first row without digits is one of names if all rows after it are numbers
        try:
            table = parse(body, delimiter, columns, 1, names, keys)
        except (InvalidBatch, ValueError):
            return parse(body, delimiter, columns, 0, names, keys)
        if len(table) and not any(pa.types.is_string(field.type) for field in table.schema):
            return table
    return parse(body, delimiter, columns, 0, names, keys)


def columns_in_head(file: str, delimiter: str | None) -> tuple[list[str], bool]:
    """Return the fields of a file's first row, and True if they name columns."""
    head = head_of(file)
    body, delimiter = plain_rows(head[: head.rfind(b"\n") + 1] or head, delimiter)
    first = [name.strip() for name in first_row(body, delimiter) or []]
    return first, _has_names(first)


def plain_rows(body: bytes, delimiter: str | None) -> tuple[bytes, str]:
    """Return a text without comments, and the character between its columns."""
    # A known delimiter means no comments.
    if delimiter is not None:
        first = first_row(body, delimiter)
        return (_stripped(body) if first and _is_spaced(first) else body), delimiter
    # Drop comments.
    start = 0
    while (match := _COMMENT.match(body, start)) is not None:  # most files have them at the beginning
        start = match.end()
    body = body[start:]
    if b"#" in body or b"%" in body:
        body = _COMMENT.sub(b"", body)
    body = body.replace(b"\r\n", b"\n").lstrip(b" \t\n" if b"\t" not in body else b"\n")
    # Choose the delimiter: a comma in the first row, tabs in each row, else blanks.
    first_line = body[: body.find(b"\n") if b"\n" in body else None]
    if b"," in first_line and b"\t" not in first_line:
        return _stripped(body), ","
    if _has_tabs(body):
        return body, "\t"
    body = body.replace(b"\t", b" ").lstrip(b" \n")
    if b"  " in body or b" \n" in body or b"\n " in body or body.endswith(b" "):
        body = _BLANKS.sub(b" ", _ENDS.sub(b"", body))
    return body, " "


def _has_tabs(body: bytes) -> bool:
    """Return True if tabs separate the columns.

    Each row has the same number of tabs, and in the first row none stands beside blanks or at an end.
    """
    first = body[: body.find(b"\n") if b"\n" in body else None]
    tabs = first.count(b"\t")
    if not tabs or any(not field.strip(b" ") or field != field.strip(b" ") for field in first.split(b"\t")):
        return False
    body = body.rstrip(b"\n")
    return body.count(b"\t") == tabs * (body.count(b"\n") + 1 - body.count(b"\n\n"))


def _has_names(first: list[str]) -> bool:
    """Return True if the first row has names of both ends."""
    names = [name.strip().lower() for name in first]
    return any(name in _SOURCES for name in names) and any(name in _TARGETS for name in names)


# ---- what pyarrow is told, and what is done with its columns ---------------------------------------------------------


def first_row(body: bytes, delimiter: str) -> list[str] | None:
    """Return the fields of the first row, quoted or not; None without rows."""
    try:
        head = body[: 1 << 16].decode() if len(body) <= 1 << 16 else body[: 1 << 16].decode(errors="replace")
    except UnicodeDecodeError as error:
        if b"\n" in body[: error.start]:
            head = body[: error.start].decode()
        else:
            raise InvalidBatch(f"the line of names is no UTF-8: {error}") from None
    rows = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    try:
        return next((row for row in rows if row), None)
    except csv.Error as error:
        raise ReadError(f"its first line cannot be read: {error}") from None


def _is_spaced(first: list[str]) -> bool:
    """Return True if a blank follows each delimiter of the first row."""
    return len(first) > 1 and all(field.startswith(" ") and field.strip() for field in first[1:])


def _stripped(body: bytes) -> bytes:
    """Remove the blanks around commas outside quotes."""
    if b", " not in body and b" ," not in body and b"\t" not in body:
        return body
    return _AROUND.sub(lambda match: match[1] or b",", body)


def parse(
    body: bytes, delimiter: str, columns: Sequence[str], skip: int, names: Sequence[str], keys: str | None
) -> Any:
    """Read the columns `names` of a text, without its first `skip` rows.

    `columns` are the names of all its columns.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    if len(body) < SMALL and not body.endswith((b"\n", b"\r")):
        body += b"\n"  # without which pyarrow cannot skip the only row
    ends, quoted = names[:2], b'"' in body
    text = keys == "string" or b"0x" in body or b"0X" in body  # pyarrow reads 0x1f as 31
    while True:
        how = _options(delimiter, columns, skip, names, keys, texts=ends if text else (), quoted=quoted)
        table = arrow_csv.read_csv(pa.BufferReader(body), *how)
        if text or all(_is_plain(table.schema.field(name).type) for name in ends):
            break
        text = True  # dates, times, true and false
    table = _decoded(table)
    return table if keys == "string" else numbered(table, ends, keys)


def numbered(table: Any, ends: Sequence[str], keys: str | None, first: int = 0) -> Any:
    """Convert each end to numbers if all its rows are; `first` is the number of the first row.

    Raises
    ------
    InvalidBatch
        One end is text and the other is not, or `keys` are numbers.
    """
    odd = dict[str, tuple[int, str]]()
    for name in ends:
        column = table.column(name)
        if _is_text(column.type):
            if (at := _first_text(column)) >= 0:
                odd[name] = first + at, column[at].as_py()
            else:
                table = table.set_column(table.column_names.index(name), name, _as_numbers(column))
    _refuse_mixed(ends, odd, keys)
    return table


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_plain(kind: Any) -> bool:
    """Return True for types of numbers or text, and for the null type."""
    import pyarrow as pa

    return _is_text(kind) or any(
        is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)
    )


def _first_text(column: Any) -> int:
    """Return the first row that is no number; -1 if all are.

    Pyarrow's own idea of a number is wider.
    """
    from pyarrow import compute

    if _all_digits(column):
        return -1
    return int(compute.index(compute.match_substring_regex(column, _NUMBER), False).as_py())


def _all_digits(column: Any) -> bool:
    """Return True if strings consist of digits. Takes a tenth of the time of a pattern."""
    from pyarrow import compute

    return bool(compute.all(compute.ascii_is_decimal(column)).as_py())


def _as_numbers(column: Any) -> Any:
    """Convert strings of numbers to int64, or to float64 if any has a point or is too large."""
    import pyarrow as pa
    from pyarrow import compute

    if not _all_digits(column):
        column = compute.replace_substring_regex(column, "^[ \\t]*[+]?|[ \\t]*$", "")
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column.cast(pa.float64())


def _typed(table: Any, names: Sequence[str]) -> Any:
    """Convert columns of text to the first type that has all their values, in pyarrow's order."""
    import pyarrow as pa
    from pyarrow import compute

    for name in names:
        column = compute.utf8_trim_whitespace(table.column(name))
        column = compute.if_else(compute.equal(column, ""), None, column)
        for kind in (pa.int64(), pa.float64(), pa.date32(), *(pa.timestamp(*how) for how in _STAMPS)):
            with suppress(pa.ArrowInvalid):
                column = column.cast(kind)
                break
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _refuse_mixed(ends: Sequence[str], odd: Mapping[str, tuple[int, str]], keys: str | None) -> None:
    """Raise `InvalidBatch` for text in an end, if the other end or `keys` are numbers.

    `odd` has the row and the value of the first text of each end that has any.
    """
    name = next((name for name in ends if name in odd), None)
    if name is None or (keys == "auto" and len(odd) == len(set(ends))):
        return
    what = f"column {name!r}, row {odd[name][0]} is {odd[name][1]!r}"
    other = next((other for other in ends if other not in odd), None)
    reason = "which is no whole number" if other is None else f"and column {other!r} has whole numbers"
    raise InvalidBatch(f'{what}, {reason}; keys="string" reads both ends as text')


def _options(
    delimiter: str,
    columns: Sequence[str],
    skip: int,
    names: Sequence[str],
    keys: str | None,
    *,
    texts: Sequence[str],
    quoted: bool,
) -> tuple[Any, Any, Any]:
    """Return pyarrow's options.

    With `columns` as names, those in the file may be duplicates, or invalid UTF-8. The columns `texts` are read
    as bytes. Nothing is no value, except in a column of names, where it is a name.
    """
    from pyarrow import csv as arrow_csv

    reading = arrow_csv.ReadOptions(column_names=list(columns), skip_rows_after_names=skip)
    parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=quoted)
    types = dict.fromkeys(texts, "binary")  # "string" refuses without value and row
    null = {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}  # `""` is a name
    more = {} if keys == "string" else null
    return reading, parsing, arrow_csv.ConvertOptions(include_columns=list(names), column_types=types, **more)


def _decoded(table: Any) -> Any:
    """Convert columns of bytes to strings; `InvalidBatch` for the first invalid UTF-8."""
    import pyarrow as pa

    for at, name in enumerate(table.column_names):
        if not pa.types.is_binary(table.field(at).type):
            continue
        try:
            table = table.set_column(at, name, table.column(at).cast(pa.string()))
        except pa.ArrowInvalid:
            for row, value in enumerate(table.column(at).to_pylist()):
                try:
                    (value or b"").decode()
                except UnicodeDecodeError:
                    raise InvalidBatch(f"column {name!r}, row {row} is {value!r}, which is no UTF-8") from None
            raise
    return table
