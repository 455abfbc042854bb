"""Keys of the vertices, on rank 0: for the store, and for clients of a published graph."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from mgraph.errors import CapacityError
from mgraph.keys import KeyArray

__all__ = ["KeyLog"]

Value = dict[str, Any]


class KeyLog:
    """Log of committed changes of the keys, in order.

    A client with the keys of an earlier time gets the difference. Therefore recent removals are kept, up to the
    present number of vertices, or `LEAST`.

    Parameters
    ----------
    names : KeyArray, optional
        The key of each vertex; None before the first.
    generation : int
        The generation of the numbering, as in `mgraph.client.vertices.numbering.Numbering`.

    Attributes
    ----------
    n : int
        The number of keys.
    """

    LEAST = 1 << 10

    def __init__(self, names: KeyArray | None = None, generation: int = 0) -> None:
        self._names, self._since = names, generation
        self.n = 0 if names is None else names.n
        self._noted: deque[tuple[Any, Any, int]] = deque()  # changes not yet in `_names`
        self._removals: deque[tuple[int, np.ndarray]] = deque()  # all since the generation `_since`
        self._n_removed = 0

    def note(self, brought: np.ndarray | None, gone: Any = None, generation: int = 0) -> None:
        """Log a committed change. Raises nothing. O(1) per new key, O(n) per removal.

        Parameters
        ----------
        brought : uint8[bytes] or None
            Keys added at the end, encoded by `KeyArray.packed`.
        gone : uint32[k] or None
            The removed ids, ascending.
        generation : int
            The generation of the numbering afterwards.
        """
        if brought is None and gone is None:
            return
        self._noted.append((brought, gone, generation))
        self.n += KeyArray.count(brought) if brought is not None else -len(gone)
        with suppress(MemoryError, CapacityError):  # a reader tries again
            self._fold()

    @property
    def names(self) -> KeyArray | None:
        """The key of each vertex. `CapacityError` or `MemoryError` if memory runs out."""
        self._fold()
        return self._names

    def _fold(self) -> None:
        """Apply the noted changes to the keys, and drop old removals."""
        while self._noted:
            # Apply a change; on an error it stays noted.
            brought, gone, generation = self._noted[0]
            names = self._names
            if brought is not None:
                if names is None:
                    self._names = KeyArray.unpacked(brought)
                else:
                    names.extend(brought)
            elif names is not None:
                ids = np.array(gone, np.int64)
                self._names = names.without(names.n, ids)
                self._removals.append((generation, ids))
                self._n_removed += len(ids)
            self._noted.popleft()

            # Drop the oldest removals above the limit.
            while self._n_removed > max(self.LEAST, self.n):
                self._since, ids = self._removals.popleft()
                self._n_removed -= len(ids)

    def places(self, ids: np.ndarray, brought: np.ndarray | None) -> np.ndarray:
        """Return the place of each of some vertices when these are ordered by their keys: uint32[k].

        Parameters
        ----------
        ids : uint32[k]
            Users' ids, ascending and different.
        brought : uint8[bytes] or None
            Keys behind those that are committed, as `KeyArray.packed` has them.
        """
        # Take the keys of these vertices, first of those that are committed.
        names, new = self.names, None if brought is None else KeyArray.unpacked(brought)
        n = 0 if names is None else names.n
        some: KeyArray | None = None
        for keys, rows in (names, ids[ids < n]), (new, ids[ids >= n] - np.uint32(n)):
            if keys is not None and len(rows):
                some = some or KeyArray(keys.kind, keys.device)
                some.append(keys.column().take(rows))

        # Number them by their order.
        numbers = np.arange(len(ids), dtype=np.uint32)
        order = None if some is None else some.ascending(len(ids))
        if order is None:
            return numbers
        places = np.empty_like(numbers)
        places[order] = numbers
        return places

    def since(self, generation: int, n: int) -> Value:
        """Return the keys added and ids removed since a client cached the first `n` keys.

        Returns
        -------
        dict
            `gone`, int64[k], the removed ids among these `n`; and `keys`, the keys behind the others, encoded by
            `KeyArray.packed`. Empty without keys.
        """
        names = self.names
        if names is None:
            return {}
        # Each removal's ids count without the earlier removals: shift them to the client's numbering.
        gone = np.arange(n if generation < self._since else 0)
        for then, ids in self._removals:
            if then > generation >= self._since:
                mine = ids[ids < n - len(gone)]
                before = gone - np.arange(len(gone))  # the number of kept ids before each removed one
                gone = np.sort(np.concatenate([gone, mine + np.searchsorted(before, mine, side="right")]))
        return {"gone": gone, "keys": names.packed(n - len(gone))}
