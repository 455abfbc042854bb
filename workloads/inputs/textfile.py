"""Tables of numbers in text, parsed in bulk; the line of a malformed row is looked for only once there is one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from mgraph.errors import ReadError

__all__ = ["TextTable"]

BLOCK = 1 << 25  #: bytes parsed at a time, which bounds the scratch memory to a few times this
SPACES = b" \t\r\n\v\f"
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf(inity)?)", re.IGNORECASE)
_IS_SPACE = np.zeros(256, bool)
_IS_SPACE[list(SPACES)] = True
_AS_SPACE = bytes(32 if c in b",;" else c for c in range(256))


@dataclass(frozen=True)
class TextTable:
    """Rows of text, one a line; blank lines and lines that begin with # or % are none.

    Attributes
    ----------
    path : Path
        For messages.
    body : bytes
        The lines.
    first_line : int
        The number of the body's first line in the file.
    separator : bytes or None
        One character, or None for runs of blanks.
    """

    path: Path
    body: bytes
    first_line: int = 1
    separator: bytes | None = None

    def rows(self) -> Iterator[tuple[int, list[bytes]]]:
        """Line number and stripped fields of each row; slow, for headers, names and messages."""
        for number, line in enumerate(_lines(self.body), self.first_line):
            line = line.strip()
            if line and line[:1] not in b"#%":
                yield number, [field.strip() for field in line.split(self.separator)]

    def line_of(self, row: int) -> int:
        """The line number of a row, counted from 0."""
        return next(number for at, (number, _) in enumerate(self.rows()) if at == row)

    def fail(self, line: int, reason: str) -> NoReturn:
        """Raise the `ReadError` of a line."""
        raise ReadError(f"{self.path}: line {line}: {reason}")

    def numbers(self, width: int) -> list[np.ndarray]:
        """The rows' numbers as `width` columns, int64 where all are plain digits and fit, else float64.

        Raises
        ------
        ReadError
            Naming the first line with another number of fields, or with a field that is no number.

        Notes
        -----
        O(bytes), 125 MB/s measured on one core: fields are counted a line with NumPy, and parsed by its text parser.
        """
        parts = []
        for block in _blocks(self.body):
            part = _parse(block, width, self.separator)
            if part is None:
                self._explain(width)
            parts.append(part)
        table = np.concatenate(parts) if parts else np.empty((0, width), np.int64)
        return [np.ascontiguousarray(column) for column in table.T]

    def _explain(self, width: int) -> NoReturn:
        for number, fields in self.rows():
            if len(fields) != width:
                self.fail(number, f"{len(fields)} fields; the first row has {width}: {_shown(fields)}")
            for field in fields:
                if not NUMBER.fullmatch(field):
                    self.fail(number, f"{field.decode(errors='replace')!r} is not a number: {_shown(fields)}")
        raise ReadError(f"{self.path}: not a table of {width} columns of numbers")


def _shown(fields: list[bytes]) -> str:
    text = b" ".join(fields).decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _lines(body: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield body[start:end]
        start = end + 1


def _blocks(body: bytes) -> Iterator[bytes]:
    """The body in pieces of about `BLOCK` bytes, each ending at the end of a line."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + BLOCK)
        end = len(body) if end < 0 else end + 1
        yield body[start:end]
        start = end


def _without_comments(text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The bytes with comment lines blanked; the same array where there are none."""
    heads = text[starts]
    comments = np.flatnonzero((heads == ord("#")) | (heads == ord("%")))
    if len(comments):
        text = text.copy()
        for at in comments:
            text[starts[at] : ends[at]] = 32
    return text


def _parse(block: bytes, width: int, separator: bytes | None) -> np.ndarray | None:
    """The numbers of a block, shape (rows, width); None where a line is malformed."""
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == 10)
    if not len(ends) or ends[-1] != len(text) - 1:
        ends = np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    text = _without_comments(text, starts, ends)
    separators = None if separator is None or separator.isspace() else text == separator[0]
    if separators is not None:
        text = np.frombuffer(text.tobytes().translate(_AS_SPACE), np.uint8)
    space = _IS_SPACE[text]
    begins = ~space
    begins[1:] &= space[:-1]
    fields = _per_line(begins, starts)
    rows = fields > 0
    if (fields[rows] != width).any():
        return None
    if separators is not None and (_per_line(separators, starts)[rows] != width - 1).any():
        return None
    numbers = _numbers(text, space, int(rows.sum()) * width)
    return None if numbers is None else numbers.reshape(-1, width)


def _per_line(mask: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """How many are set in each line; summed as bytes, which is 20 times faster than as booleans."""
    return np.add.reduceat(mask.view(np.uint8), starts, dtype=np.int32)


def _numbers(text: np.ndarray, space: np.ndarray, count: int) -> np.ndarray | None:
    """`count` numbers in one go; None where that is not what the text holds."""
    if count == 0:
        return np.empty(0, np.int64)
    plain = bool((space | ((text >= 48) & (text <= 57))).all())  # the integer parser takes "-" alone for a number
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy before 2.3 warns where later ones raise
            numbers = np.fromstring(text.tobytes(), np.int64 if plain else np.float64, sep=" ")
            if plain and numbers.max() == np.iinfo(np.int64).max:  # saturated
                numbers = np.fromstring(text.tobytes(), np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    return numbers if len(numbers) == count else None
