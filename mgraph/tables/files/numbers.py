"""Parse rows of numbers in bulk, by NumPy. The line number of a malformed row is searched afterwards."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import NoReturn

import numpy as np

from mgraph.errors import ReadError

__all__ = ["lines_of", "numbers_of", "places_from_1", "rows_of", "sizes_in"]

BLOCK = 1 << 25  #: bytes parsed at a time, which bounds the scratch memory to a few times this
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*([eEdD][+-]?\d+)?|\.\d+([eEdD][+-]?\d+)?|nan|inf(inity)?)", re.IGNORECASE)
_IS_SPACE = np.zeros(256, bool)
_IS_SPACE[list(b" \t\r\n\v\f")] = True
_IS_DIGIT = np.zeros(256, bool)
_IS_DIGIT[list(b"0123456789")] = True
_IS_LETTER = np.zeros(256, bool)
_IS_LETTER[list(b"aAfFiInNtTyY")] = True  # letters of nan and infinity
_FORTRAN = bytes.maketrans(b"dD", b"ee")  #: exponents


def lines_of(body: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield each line's number from 1, the line, and the offset of the next line."""
    number, start = 1, 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield number, body[start:end], end + 1
        number, start = number + 1, end + 1


def numbers_of(body: bytes, first_line: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Parse the numbers in a text.

    Parameters
    ----------
    body : bytes
        Numbers between blanks, without comments.
    first_line : int
        The number of the body's first line in the file, for messages.

    Returns
    -------
    numbers : int64[n] or float64[n]
        Integers where all are plain digits, and fit.
    counts : int64[lines]
        The number of numbers in each line.

    Raises
    ------
    ReadError
        Something is no number, or is too large for float64. The message names the line.

    Notes
    -----
    O(bytes).
    """
    numbers, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for block in _blocks(body):
        parsed = _parsed(block)
        if parsed is None:
            _explain(body, first_line)
        numbers.append(parsed[0])
        counts.append(parsed[1])
    return np.concatenate(numbers), np.concatenate(counts)


def rows_of(body: bytes, width: int, n: int, line: int) -> np.ndarray:
    """Parse `n` rows of `width` numbers, [n, width]. Skips blank lines.

    `line` is the number of the line before them, which announces `n`. Raises `ReadError` if a row has more or fewer
    numbers, or if there are more or fewer rows.
    """
    numbers, counts = numbers_of(body, line + 1)
    wrong = (counts != 0) & (counts != width)
    if wrong.any():
        at = int(wrong.argmax())
        raise ReadError(f"line {line + 1 + at} has {counts[at]} numbers; it must have {width}")
    if len(numbers) != n * width:
        raise ReadError(f"line {line} announces {n} rows, and {len(numbers) // width} follow")
    return numbers.reshape(-1, width)


def sizes_in(words: list[str]) -> list[int] | None:
    """Return the whole numbers of a header, of fewer than 20 digits each; None if a word is something else."""
    plain = all(word.isdecimal() and word.isascii() and len(word) < 20 for word in words)
    return [int(word) for word in words] if plain else None


def places_from_1(column: np.ndarray, n: int) -> tuple[np.ndarray, int]:
    """Return numbers from 1 to `n` as ids from 0, int64[k], and the first row outside; -1 if none is."""
    bad = ~((column >= 1) & (column <= n) & (column == np.floor(column)))
    return (np.empty(0, np.int64), int(bad.argmax())) if bad.any() else (column.astype(np.int64) - 1, -1)


def _blocks(body: bytes) -> Iterator[bytes]:
    """Yield the body in blocks of about `BLOCK` bytes that end with a line."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + BLOCK)
        end = len(body) if end < 0 else end + 1
        yield body[start:end]
        start = end


def _parsed(block: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the numbers of a block and their count per line; None if a word is no number."""
    # A word begins at each byte that follows a blank; count them per line.
    text = np.frombuffer(block, np.uint8)
    space = _IS_SPACE[text]
    begins = ~space
    begins[1:] &= space[:-1]
    ends = np.flatnonzero(text == 10)
    starts = np.append(0, ends + 1)
    starts = starts[starts < len(text)]
    # summed as bytes, which is 20 times faster than as booleans
    counts = np.add.reduceat(begins.view(np.uint8), starts, dtype=np.int64)
    numbers = _values(block, text, space, int(counts.sum()))
    return None if numbers is None else (numbers, counts)


def _values(block: bytes, text: np.ndarray, space: np.ndarray, count: int) -> np.ndarray | None:
    """Return the `count` numbers of a block; None if the text holds anything else."""
    # Refuse NUL and bytes outside ASCII.
    if count == 0:
        return np.empty(0, np.int64)
    if text.max() > 127 or (text == 0).any():
        return None
    # Digits alone are integers, unless int64 is too small; all else is float64.
    plain = bool((space | _IS_DIGIT[text]).all())  # the integer parser takes "-" alone for a number
    if not plain:
        block = block.translate(_FORTRAN)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy before 2.3 warns where later ones raise
            numbers = np.fromstring(block, np.int64 if plain else np.float64, sep=" ")
            if plain and numbers.max() == np.iinfo(np.int64).max:  # saturated
                numbers = np.fromstring(block, np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    # the parser needs no blank between numbers: "1-2" would be two
    if len(numbers) != count:
        return None
    # and takes 1e400 for infinity
    if numbers.dtype.kind == "f" and np.isinf(numbers).any() and not _IS_LETTER[text].any():
        return None
    return numbers


def _explain(body: bytes, first_line: int) -> NoReturn:
    """Raise `ReadError` for the first word that is no number."""
    for number, line, _ in lines_of(body):
        for word in line.split():
            at, shown = first_line + number - 1, repr(word.decode(errors="replace")[:60])
            if not _NUMBER.fullmatch(word):
                raise ReadError(f"line {at} has {shown}, which is no number")
            if not word.strip(b"+-").isalpha() and np.isinf(float(word.translate(_FORTRAN))):
                raise ReadError(f"line {at} has {shown}, which is too large for a number of 64 bits")
    raise ReadError("it has something that is no number")
