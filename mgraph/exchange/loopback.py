"""Exchange of a graph on a single worker. It sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from mgraph.errors import Aborted, InvalidOption
from mgraph.exchange.common import check_parts
from mgraph.exchange.contract import Array, Exchange

__all__ = ["Loopback"]


class Loopback(Exchange):
    """Exchange of a single rank: collectives return their arguments, in O(1).

    It never waits, but every call checks `aborted`, so that another thread can end a loop of supersteps.
    """

    name: ClassVar[str] = "loopback"

    def __init__(self, aborted: Callable[[], bool] = lambda: False) -> None:
        super().__init__(0, 1, aborted)
        self._closed = False

    @property
    def address(self) -> bytes:
        """Empty, because this is the only rank."""
        return b""

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Check that this is the only rank. Raises `InvalidOption` for more."""
        if len(addresses) != 1:
            raise InvalidOption(f"{len(addresses)} addresses were given to a loopback exchange, which has 1 rank")

    def alltoallv(self, parts: Sequence[Array], lengths: np.ndarray | None = None) -> list[Array]:
        """Implement `Exchange.alltoallv` without a copy."""
        self._check()
        check_parts(parts, 1)
        return [parts[0]]

    def allgather(self, part: Array) -> list[Array]:
        """Implement `Exchange.allgather` without a copy."""
        self._check()
        return [part]

    def gather_values(self, values: np.ndarray, call: str) -> list[np.ndarray]:
        """Implement `Exchange.gather_values`."""
        self._check()
        return [values]

    def least(self, value: int) -> int:
        """Implement `Exchange.least` without an array."""
        if self._closed or self.aborted():
            self._check()
        return value

    def close(self) -> None:
        """Make later calls raise `Aborted`."""
        self._closed = True
        self.close_world()

    def _check(self) -> None:
        if self._closed or self.aborted():
            raise Aborted(f"rank 0 of 1: the exchange was {'closed' if self._closed else 'aborted'}")
