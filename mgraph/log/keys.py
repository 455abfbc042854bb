"""The keys of the vertices as the log knows them, for snapshots and for who opens the store again; on rank 0 alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.keys import Names

__all__ = ["KeyLog"]


class KeyLog:
    """Follows the changes that are logged, in their order.

    Attributes
    ----------
    names : Names or None
        The key of each vertex; None as long as there was none.
    """

    def __init__(self) -> None:
        self.names: Names | None = None
        self._before: Names | None = None
        self._n = 0

    def begin(self, kind: str, columns: Mapping[str, Any]) -> None:
        """Take in a change that is to come: keys at the end, or ids that go."""
        self._before, self._n = self.names, 0 if self.names is None else self.names.n
        if kind == "remove_vertices" and self.names is not None:
            self.names = self.names.without(self._n, np.asarray(columns["ids"]))
        elif columns.get("keys") is not None:
            self.add(columns["keys"])

    def refuse(self) -> None:
        """What was begun last is not made."""
        self.names = self._before
        if self.names is not None:
            self.names.drop(self._n)

    def add(self, packed: np.ndarray) -> None:
        """Keys at the end, as `Names.packed` has them."""
        kind, keys = Names.unpacked(packed)
        if self.names is None:
            self.names = Names(kind, Device("cpu"))
        self.names.append(keys)
