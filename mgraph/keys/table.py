"""Hash table from keys to numbers, with open addressing. Kernels are in `table.cuh`.

A slot holds a number of 4 bytes. The key itself is compared in `KeyArray`, so two different keys never share a number.
The load factor is at most one half. A key of 64 bits takes 16 to 26 bytes, `KeyArray` included.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from mgraph.batch import MAX_VERTICES
from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.forks import renew_in_children
from mgraph.kernels import load
from mgraph.keys.key_array import KeyArray
from mgraph.tables.texts import Texts

__all__ = ["NONE", "KeyTable"]

NONE = 2**32 - 1  #: the number of an unknown key
LEAST = 64  #: slots of the smallest table


class KeyTable:
    """Table that numbers keys 0, 1, 2, ... in the order of their first use. Thread-safe.

    Parameters
    ----------
    kind : "int64" | "string"
    device : Device
        The device that looks keys up; the host for strings.
    names : KeyArray, optional
        Initial keys, which must differ.

    Attributes
    ----------
    names : KeyArray
        The key of each number.
    """

    def __init__(self, kind: str, device: Device, names: KeyArray | None = None) -> None:
        self.kind, self.device = kind, device if kind == "int64" else device.host
        self.names = KeyArray(kind, self.device) if names is None else names
        self._kernels = load(self.device, "keys/table.cuh")
        self._lock = threading.RLock()
        renew_in_children(self)
        self._slots = self._new_slots(self.names.n)
        self._enter(0)

    @property
    def n(self) -> int:
        """The number of keys."""
        return self.names.n

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of the keys."""
        return int(self._slots.nbytes) + self.names.nbytes

    def find(self, column: Any, known: int | None = None) -> Array:
        """Look up the number of each key: uint32[n] on the device.

        Parameters
        ----------
        column : int64[n] or Texts
        known : int, optional
            Treat numbers from this one on as unknown.

        Notes
        -----
        O(n). An unknown key gets `NONE`.
        """
        with self._lock:
            if isinstance(column, Texts) and column.codes is not None:
                return self.find(Texts(column.at, column.text), known)[column.codes]
            # Strings of a dictionary are looked up once; here are plain columns.
            keys, n = self._here(column), len(column)
            numbers = self.device.empty(n, np.uint32)
            limit = self.n if known is None else min(known, self.n)
            self._kernels.FindKeys(
                n, keys=keys, names=self.names.columns, slots=self._slots, mask=len(self._slots) - 1,
                known=limit, n=n, number=numbers,
            )  # fmt: skip
            return numbers

    def number(self, column: Any) -> Array:
        """Look up the number of each key. New keys get the next numbers.

        Raises
        ------
        CapacityError
            There are too many vertices, or there is too little memory. No key was added.
        """
        with self._lock:
            if isinstance(column, Texts) and column.codes is not None:
                return self._number_coded(column)
            # Find the new keys. The first of equal ones gets the next number, by a prefix sum.
            numbers = self.find(column)
            xp = self.device.xp
            missed = xp.flatnonzero(numbers == np.uint32(NONE))
            if len(missed):
                first, is_first = self._firsts(column, missed)
                rank = self.device.cumsum(is_first, out=self.device.empty(len(missed), np.int64))
                before = self.n
                self._append(column, missed[is_first.astype(bool)])
                numbers[missed] = (before - 1 + rank[first]).astype(np.uint32)
            return numbers

    def _number_coded(self, column: Texts) -> Array:
        """Number the used strings of a dictionary, in the order of the rows."""
        assert column.codes is not None
        n, strings = len(column.codes), Texts(column.at, column.text)
        first = np.full(len(strings), n, np.int64)
        first[column.codes[::-1]] = np.arange(n - 1, -1, -1)  # reversed: a string's first row is written last
        used = np.argsort(first, kind="stable")[: int((first < n).sum())]
        numbers = np.full(len(strings), NONE, np.uint32)
        numbers[used] = self.number(strings.take(used))
        return numbers[column.codes]

    def _firsts(self, column: Any, missed: Array) -> tuple[Array, Array]:
        """Return the first index of each missed key, and flags of firsts."""
        m, keys, device = len(missed), self._here(column), self.device
        if m >= NONE:
            raise CapacityError(f"{m} keys are new in one batch; it can have at most {NONE - 1}")
        # Build a temporary table of the new keys. Of equal keys the least index wins.
        slots = self._new_slots(m)
        first, is_first, slot = (device.empty(m, dtype) for dtype in (np.uint32, np.uint32, np.int64))
        self._kernels.ClaimKeys(m, keys=keys, places=missed, slots=slots, mask=len(slots) - 1, n=m, slot=slot)
        self._kernels.FirstKeys(m, slots=slots, slot=slot, n=m, first=first, is_first=is_first)
        return first, is_first

    def _append(self, column: Any, places: Array) -> None:
        """Append the keys at `places`, which are new and distinct."""
        before, total = self.n, self.n + len(places)
        if total > MAX_VERTICES:
            raise CapacityError(f"there would be {total} vertices; 32-bit ids allow at most {MAX_VERTICES}")

        # Rehash into a larger table before its load factor passes one half.
        if 2 * total > len(self._slots):
            slots, self._slots = self._slots, self._new_slots(total)
            try:
                self._enter(0)
            except BaseException:
                self._slots = slots
                raise
        self.names.append(column.take(places) if isinstance(column, Texts) else self.device.asarray(column)[places])
        self._enter(before)

    def _new_slots(self, n: int) -> Array:
        """Allocate empty slots for `n` keys."""
        return self.device.full(max(LEAST, 1 << (2 * n - 1).bit_length() if n else 0), NONE, np.uint32)

    def _enter(self, first: int) -> None:
        """Insert the keys numbered `first` and up into the slots."""
        n, slots = self.n - first, self._slots
        self._kernels.AddKeys(n, names=self.names.columns, slots=slots, mask=len(slots) - 1, first=first, n=n)

    def _here(self, column: Any) -> dict[str, Array]:
        """Return the arrays of a column for kernels."""
        if isinstance(column, Texts):
            return {"at": self.device.asarray(column.at), "text": self.device.asarray(column.text)}
        return {"at": self.device.asarray(column, np.int64), "text": None}

    def hashes(self, n: int) -> np.ndarray:
        """Hash the first `n` keys: uint64[n] in host memory."""
        with self._lock:
            hashes = self.device.empty(n, np.uint64)
            self._kernels.HashKeys(n, keys=self.names.columns, n=n, hashes=hashes)
            return Device.to_host(hashes)

    def drop(self, n: int) -> None:
        """Remove the keys numbered `n` and up. O(slots) if any exist."""
        with self._lock:
            if self.n > n:
                self._slots[self._slots >= np.uint32(n)] = NONE
                self.names.drop(n)

    def without(self, n: int, gone: np.ndarray) -> KeyTable:
        """Return a table without the keys `gone`; later keys move up."""
        with self._lock:
            return KeyTable(self.kind, self.device, self.names.without(n, gone))
