"""Columns of a result on the workers, shared by their handles."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from mgraph.client.calls.caller import Caller
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed
from mgraph.failures import Recovered

__all__ = ["RemoteColumns"]

T = TypeVar("T")

_TAKING = threading.RLock()  #: held while recomputed columns replace lost ones


class RemoteColumns:
    """The columns of one result on the workers, shared by the handles to them.

    They are freed with the graph's next call after `close`, or after the last handle was collected.

    Parameters
    ----------
    coordinator : Caller
    numbering : Numbering
        The order and the ranges in which the columns are stored on the ranks.
    name : str
        The algorithm's name.
    key : str
        The id of the columns on the workers.
    epoch : int
    dtypes : mapping of str to str
        The dtype of each column by its name, the main column first.
    info : mapping
        The scalars of the result, such as ``iterations``.
    kinds : mapping of str to str
        The kind of each column, as `Algorithm.columns` lists them.
    took : mapping
        The cost of updating a maintained result; empty for others.

    Attributes
    ----------
    again : callable or None
        Runs the algorithm again if the columns were lost with a worker.
    passed : mapping or None
        Of maintained communities, what changed since the last read, as rank 0 sends it.
    """

    again: Callable[[], RemoteColumns] | None = None
    passed: Mapping[str, Any] | None = None

    def __init__(
        self,
        coordinator: Caller,
        numbering: Numbering,
        name: str,
        key: str,
        epoch: int,
        dtypes: Mapping[str, str],
        info: Mapping[str, Any],
        kinds: Mapping[str, str],
        took: Mapping[str, Any] | None = None,
    ) -> None:
        self.coordinator, self.numbering, self.name, self.key = coordinator, numbering, name, key
        self.epoch, self.dtypes, self.info, self.kinds = epoch, dict(dtypes), dict(info), kinds
        self.took, self._incarnation = dict(took or {}), coordinator.status.incarnation
        self._free = weakref.finalize(self, coordinator.forget, key)
        # At exit the sessions end, which frees the results.
        self._free.atexit = False

    def close(self) -> None:
        """Free the columns with the graph's next call. May be called twice."""
        self._free()

    @property
    def closed(self) -> bool:
        """True once the columns are freed."""
        return not self._free.alive

    def check(self) -> None:
        """Raise `GraphClosed` if the columns are freed."""
        if self.closed:
            raise GraphClosed(f"this result of {self.name} (epoch {self.epoch}) was closed")

    def read(self, read: Callable[[], T]) -> T:
        """Call `read`, which reads the columns, and return its value. Lost columns are computed again first."""
        while True:
            self.check()
            self._revive()
            with suppress(Recovered):
                return read()

    def _revive(self) -> None:
        """Compute the columns again if they were lost, and the graph is still at their epoch."""
        if self._incarnation == self.coordinator.status.incarnation:
            return
        if self.again is None or self.epoch != self.coordinator.epoch:
            raise GraphClosed(
                f"this result of {self.name} (epoch {self.epoch}) was lost with a worker, and the graph is at epoch "
                f"{self.coordinator.epoch}: run it again"
            )

        # Take over the new columns, so that all handles see them. They are freed if another thread was first.
        lost, other = self._incarnation, self.again()
        with _TAKING:
            if self._incarnation != lost or self.closed:
                return
            other._free.detach()
            self._free.detach()
            self.key, self.numbering, self.info, self._incarnation = (
                other.key,
                other.numbering,
                other.info,
                other._incarnation,
            )
            self._free = weakref.finalize(self, self.coordinator.forget, self.key)
            self._free.atexit = False

    def parts(self, column: str) -> list[np.ndarray]:
        """Fetch a column in the ranks' order, one part per rank."""
        return [answer["values"] for answer in self.call("fetch", column=column)]

    def call(self, method: str, shares: Sequence[dict[str, Any]] | None = None, **args: Any) -> list[dict[str, Any]]:
        """Call a method for these columns on all ranks."""
        self.check()
        return self.coordinator.call(method, {"result": self.key, **args}, shares)
