"""Keys by vertex number: a growable array of int64 numbers or UTF-8 strings."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import MgraphError
from mgraph.tables.texts import Texts

__all__ = ["KeyArray", "columns_in"]

GROWTH = 4  #: arrays grow by a quarter


class KeyArray:
    """Keys in the order of their numbers.

    Keys are only appended, and only the last ones are dropped. A view of the first keys therefore stays valid.

    Parameters
    ----------
    kind : "int64" | "string"
    device : Device
        The device of the keys; the host for strings.

    Attributes
    ----------
    n : int
        The number of keys.
    """

    def __init__(self, kind: str, device: Device) -> None:
        self.kind, self.device, self.n = kind, device, 0
        self._sorted: tuple[Array, Array] | None = None  # the first keys in order, None of strings; their numbers
        self._at: Array = device.zeros(1, np.int64)
        self._text: Array = None if kind == "int64" else np.zeros(0, np.uint8)

    @property
    def columns(self) -> dict[str, Array]:
        """Arrays for kernels: `at` and `text`."""
        return {"at": self._at, "text": self._text}

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self._at, self._text, *(self._sorted or ()))
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def append(self, keys: Any) -> None:
        """Append keys: int64[k] on the device, or `Texts` without codes.

        Raises `CapacityError` if there is no memory. Then nothing was appended.
        """
        n = self.n + len(keys)
        if self.kind == "int64":
            at = self._longer(self._at, n, self.n)
            at[self.n : n] = keys
            self._at, self.n = at, n
            return

        # Strings: append their bytes, and their offsets moved to where these bytes begin.
        began, first, end = int(self._at[self.n]), int(keys.at[0]), int(keys.at[-1])
        at = self._longer(self._at, n + 1, self.n + 1)
        text = self._longer(self._text, began + end - first, began)
        np.add(keys.at[1:], began - first, out=at[self.n + 1 : n + 1])
        text[began : began + end - first] = keys.text[first:end]
        self._at, self._text, self.n = at, text, n

    def _longer(self, array: Array, n: int, used: int) -> Array:
        """Return the array with room for `n` elements; keeps the first `used`."""
        if n <= len(array):
            return array
        longer = self.device.empty(max(n, len(array) + len(array) // GROWTH), array.dtype)
        longer[:used] = array[:used]
        return longer

    def drop(self, n: int) -> None:
        """Drop all keys but the first `n`."""
        self.n = min(self.n, n)
        if self._sorted is not None and len(self._sorted[1]) > self.n:
            self._sorted = None

    def column(self, first: int = 0, end: int | None = None) -> Any:
        """Return the keys `first` to `end` - 1 as a view: int64[k] or `Texts`."""
        end = self.n if end is None else end
        return self._at[first:end] if self.kind == "int64" else Texts(self._at[first : end + 1], self._text)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the keys of `numbers`: int64[k], or str objects."""
        if self.kind == "int64":
            if isinstance(self._at, np.ndarray):
                return self._at[numbers]
            return Device.to_host(self._at[self.device.asarray(numbers)])
        return objects(self.column().take(np.asarray(numbers, np.int64)))

    def ascending(self, n: int) -> np.ndarray | None:
        """Sort the first `n` keys and return their numbers.

        uint32[n] in host memory, or None if the keys are sorted already. Strings are sorted by code point. O(n log n).
        For int64 keys the next call with a few more keys is O(n).
        """
        ordered = self._sorted
        if ordered is None or len(ordered[1]) != n:
            ordered = self._sorted = self._ordered(n, ordered)
        numbers = Device.to_host(ordered[1])
        return None if (numbers[1:] > numbers[:-1]).all() else numbers

    def _ordered(self, n: int, before: tuple[Array, Array] | None) -> tuple[Array, Array]:
        """Return the first `n` keys sorted, and their numbers. Extends an earlier result `before`."""
        column = self.column(0, n)
        if self.kind == "string":
            import pyarrow.compute as pc

            return None, np.asarray(pc.array_sort_indices(column.to_arrow())).astype(np.uint32)

        # Sort the keys that are new since `before`.
        xp, n_sorted = self.device.xp, 0 if before is None or len(before[1]) > n else len(before[1])
        more = xp.argsort(column[n_sorted:])
        new = column[n_sorted:][more], (more + n_sorted).astype(np.uint32)
        if not n_sorted:
            return new

        # Merge the two sorted sequences: `places` are the positions of the new keys.
        assert before is not None
        places = xp.searchsorted(before[0], new[0]) + xp.arange(n - n_sorted)
        old = xp.ones(n, bool)
        old[places] = False
        whole = xp.empty(n, np.int64), xp.empty(n, np.uint32)
        for column, first, then in zip(whole, before, new, strict=True):
            column[old], column[places] = first, then
        return whole

    def first(self, n: int) -> KeyArray:
        """Return the first `n` keys as a view. O(1)."""
        view = copy(self)
        view.drop(n)
        return view

    def without(self, n: int, gone: np.ndarray) -> KeyArray:
        """Copy the first `n` keys except those numbered `gone`. O(n)."""
        keep = np.ones(n, bool)
        keep[gone] = False
        left, column = KeyArray(self.kind, self.device), self.column(0, n)
        left.append(column[keep if isinstance(self._at, np.ndarray) else self.device.asarray(keep)])
        return left

    # ---- as bytes, for the log ---------------------------------------------------------------------------------------

    def packed(self, first: int = 0, end: int | None = None) -> np.ndarray:
        """Encode the keys `first` to `end` - 1 as bytes."""
        # Header: kind and count. Then the numbers, or the offsets and the text.
        column = self.column(first, end)
        n = len(column)
        if self.kind == "int64":
            parts = [np.array([0, n], np.int64), Device.to_host(column)]
            return np.concatenate(parts).view(np.uint8)
        at = np.concatenate([np.array([1, n], np.int64), column.at - column.at[0]])
        return np.concatenate([at.view(np.uint8), column.text[column.at[0] : column.at[-1]]])

    @classmethod
    def unpacked(cls, data: np.ndarray, device: Device | None = None) -> KeyArray:
        """Decode keys from `packed` bytes, ignoring trailing bytes."""
        kind, device = columns_in(data)[0], device or Device("cpu")
        names = cls(kind, device if kind == "int64" else device.host)
        names.extend(data)
        return names

    def extend(self, data: np.ndarray) -> None:
        """Append keys of the same kind, encoded by `packed`."""
        kind, keys = columns_in(data)
        assert kind == self.kind, "all keys of a graph are of one kind"
        self.append(self.device.asarray(keys) if kind == "int64" else keys)

    @staticmethod
    def count(data: np.ndarray) -> int:
        """Return the number of keys in bytes from `packed`."""
        return int(np.frombuffer(np.ascontiguousarray(data[8:16]), np.int64)[0])


def columns_in(data: np.ndarray) -> tuple[str, Any]:
    """Return kind and keys in bytes from `KeyArray.packed`, ignoring trailing bytes."""
    data = np.ascontiguousarray(data)
    kind, n = np.frombuffer(data[:16], np.int64).tolist()
    if kind == 0:
        return "int64", np.frombuffer(data[16 : 16 + 8 * n], np.int64)
    if kind != 1:
        raise MgraphError(f"keys of kind {kind}, which this mgraph does not know")
    at, text = np.frombuffer(data[16 : 24 + 8 * n], np.int64), data[24 + 8 * n :]
    return "string", Texts(at, text[: int(at[-1])])


def objects(texts: Texts) -> np.ndarray:
    """Convert strings to an array of str objects."""
    return np.asarray(texts)
