"""Columns of strings, as UTF-8 in a common buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.facade import needed

__all__ = ["Texts", "arrow"]


def arrow() -> Any:
    """Return the module pyarrow; `MgraphError` without it."""
    return needed("pyarrow", "a column of strings or of Arrow")


@dataclass(frozen=True, eq=False, repr=False)
class Texts:
    """Strings in host memory, as UTF-8 in a common buffer.

    A sequence of str, indexed and compared as an array of them; ``numpy.asarray`` makes one.

    Parameters
    ----------
    at : int64[k + 1]
        String i is ``text[at[i] : at[i + 1]]``, in UTF-8.
    text : uint8[bytes]
    codes : int64[n], optional
        The string of each row, where strings are given once each, as in a categorical column. By default row i is
        string i.
    """

    at: np.ndarray
    text: np.ndarray
    codes: np.ndarray | None = None

    @classmethod
    def of(cls, array: Any) -> Texts:
        """Return the strings of an Arrow array without missing values.

        Without a copy if its offsets have 64 bits.
        """
        array = array.cast(arrow().large_string())
        _, offsets, data = array.buffers()
        if len(array) == 0 or offsets is None:
            return cls(np.zeros(1, np.int64), np.zeros(0, np.uint8))
        at = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        return cls(at, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8))

    def to_arrow(self) -> Any:
        """Return the strings of the rows as a ``pyarrow.LargeStringArray``."""
        pa = arrow()
        at, text = np.ascontiguousarray(self.at), np.ascontiguousarray(self.text)
        strings = pa.LargeStringArray.from_buffers(len(at) - 1, pa.py_buffer(at), pa.py_buffer(text))
        return strings if self.codes is None else strings.take(pa.array(self.codes))

    def take(self, rows: np.ndarray) -> Texts:
        """Return some rows."""
        if self.codes is not None:
            return Texts(self.at, self.text, self.codes[rows])
        return Texts.of(self.to_arrow().take(arrow().array(rows)))

    def __len__(self) -> int:
        return len(self.at) - 1 if self.codes is None else len(self.codes)

    @property
    def shape(self) -> tuple[int]:
        """Number of rows, as a tuple."""
        return (len(self),)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.at.nbytes + self.text.nbytes + (0 if self.codes is None else self.codes.nbytes))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        """Return the strings of the rows as a list."""
        strings: list[str] = self.to_arrow().to_pylist()
        return strings

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the strings of the rows as str objects."""
        if copy is False:
            raise ValueError("strings are stored in one buffer, so an array of them is always a copy; copy=False fails")
        objects: np.ndarray = self.to_arrow().to_numpy(zero_copy_only=False).astype(dtype or object)
        return objects

    def __eq__(self, other: object) -> Any:
        """Compare the strings elementwise, as an array of them does: bool[n]."""
        return np.asarray(self) == other

    def __ne__(self, other: object) -> Any:
        return np.asarray(self) != other

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __getitem__(self, rows: Any) -> Any:
        """Return the string of a row, or the rows of a slice (a view), of a mask or of places (copies)."""
        if isinstance(rows, int | np.integer):
            return self.to_arrow()[int(rows)].as_py()
        if not isinstance(rows, slice):
            return self.take(np.arange(len(self))[rows])
        first, end, step = rows.indices(len(self))
        if step != 1:
            return self.take(np.arange(first, end, step))
        if self.codes is not None:
            return Texts(self.at, self.text, self.codes[first:end])
        return Texts(self.at[first : max(first, end) + 1], self.text)
