"""The way from a key to its number: an open-addressing hash table, of which `table.cuh` has the kernels.

A slot holds a number, 4 bytes, and the key is compared where it lies in `KeyArray`, so that two different keys never
get one number. At most half of the slots are full. A key of 64 bits takes 16 to 26 bytes, the way back included.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from mgraph.batch import MAX_VERTICES
from mgraph.device import Array, Device
from mgraph.errors import CapacityError
from mgraph.kernels import load
from mgraph.keys.key_array import KeyArray
from mgraph.tables.texts import Texts

__all__ = ["NONE", "KeyTable"]

NONE = 2**32 - 1  #: stands for no number
LEAST = 64  #: slots


class KeyTable:
    """Keys with numbers 0, 1 and so on, in the order in which they came. Several threads may use it.

    Parameters
    ----------
    kind : "int64" | "string"
    device : Device
        Where keys are looked up; the host for strings.
    names : KeyArray, optional
        The keys that are there already, which differ.

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
        self._slots = self._made(self.names.n)
        self._enter(0)

    @property
    def n(self) -> int:
        """How many keys there are."""
        return self.names.n

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of the keys."""
        return int(self._slots.nbytes) + self.names.nbytes

    def find(self, column: Any, known: int | None = None) -> Array:
        """The number of each key of a column, or `NONE`: uint32[n], on the device. O(n).

        Parameters
        ----------
        column : int64[n] or Texts
        known : int, optional
            Numbers from this one on do not count.
        """
        with self._lock:
            if isinstance(column, Texts) and column.codes is not None:
                return self.find(Texts(column.at, column.text), known)[column.codes]
            keys, n = self._here(column), len(column)
            numbers = self.device.empty(n, np.uint32)
            known = self.n if known is None else min(known, self.n)
            self._kernels.FindKeys(
                n, keys=keys, names=self.names.columns, slots=self._slots, mask=len(self._slots) - 1,
                known=known, n=n, number=numbers,
            )  # fmt: skip
            return numbers

    def number(self, column: Any) -> Array:
        """As `find`, but new keys get the next numbers, in the order in which they come first in the column.

        Raises
        ------
        CapacityError
            There are too many vertices, or there is too little memory. No key was added.
        """
        with self._lock:
            if isinstance(column, Texts) and column.codes is not None:
                return self._number_coded(column)
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
        """Of a dictionary only what rows use becomes a key, in the order of the rows."""
        assert column.codes is not None
        n, strings = len(column.codes), Texts(column.at, column.text)
        first = np.full(len(strings), n, np.int64)
        first[column.codes[::-1]] = np.arange(n - 1, -1, -1)  # of the rows of a string the first is written last
        used = np.argsort(first, kind="stable")[: int((first < n).sum())]
        numbers = np.full(len(strings), NONE, np.uint32)
        numbers[used] = self.number(strings.take(used))
        return numbers[column.codes]

    def _firsts(self, column: Any, missed: Array) -> tuple[Array, Array]:
        """For each place in `missed`, the least one whose place has the same key; and whether it is that itself."""
        m, keys, device = len(missed), self._here(column), self.device
        if m >= NONE:
            raise CapacityError(f"{m} keys are new in one batch; it can have at most {NONE - 1}")
        slots = self._made(m)
        first, is_first, slot = (device.empty(m, dtype) for dtype in (np.uint32, np.uint32, np.int64))
        self._kernels.ClaimKeys(m, keys=keys, places=missed, slots=slots, mask=len(slots) - 1, n=m, slot=slot)
        self._kernels.FirstKeys(m, slots=slots, slot=slot, n=m, first=first, is_first=is_first)
        return first, is_first

    def _append(self, column: Any, places: Array) -> None:
        """Add the keys at these places, which are new and differ."""
        before, total = self.n, self.n + len(places)
        if total > MAX_VERTICES:
            raise CapacityError(f"there would be {total} vertices; 32-bit ids allow at most {MAX_VERTICES}")
        if 2 * total > len(self._slots):
            slots, self._slots = self._slots, self._made(total)
            try:
                self._enter(0)
            except BaseException:
                self._slots = slots
                raise
        self.names.append(column.take(places) if isinstance(column, Texts) else self.device.asarray(column)[places])
        self._enter(before)

    def _made(self, n: int) -> Array:
        """Empty slots for `n` keys."""
        return self.device.full(max(LEAST, 1 << (2 * n - 1).bit_length() if n else 0), NONE, np.uint32)

    def _enter(self, first: int) -> None:
        """Enter the keys from number `first` on, which are in no slot."""
        n, slots = self.n - first, self._slots
        self._kernels.AddKeys(n, names=self.names.columns, slots=slots, mask=len(slots) - 1, first=first, n=n)

    def _here(self, column: Any) -> dict[str, Array]:
        """A column as kernels take it."""
        if isinstance(column, Texts):
            return {"at": self.device.asarray(column.at), "text": self.device.asarray(column.text)}
        return {"at": self.device.asarray(column, np.int64), "text": None}

    def hashes(self, n: int) -> np.ndarray:
        """A hash of the key of each number below `n`, uint64[n] in host memory; it depends on the key alone."""
        with self._lock:
            hashes = self.device.empty(n, np.uint64)
            self._kernels.HashKeys(n, keys=self.names.columns, n=n, hashes=hashes)
            return Device.to_host(hashes)

    def drop(self, n: int) -> None:
        """Forget the keys from number `n` on, the last ones that were added. O(slots) if there are such."""
        with self._lock:
            if self.n > n:
                self._slots[self._slots >= np.uint32(n)] = NONE
                self.names.drop(n)

    def without(self, n: int, gone: np.ndarray) -> KeyTable:
        """A table of the first `n` keys but those of the numbers `gone`; the others move up. O(n)."""
        with self._lock:
            return KeyTable(self.kind, self.device, self.names.without(n, gone))
