"""The current numbering and ranges of a graph's vertices in the client, and how the client learns of new ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from mgraph.batch import as_ids, check_ids
from mgraph.checks import check_count
from mgraph.client.caller import Caller
from mgraph.client.numbering import Numbering
from mgraph.device import Device
from mgraph.partition import Partition
from mgraph.protocol import Stale

__all__ = ["Directory"]

T = TypeVar("T")


class Directory:
    """The numbering of one graph's vertices, which changes when ranges move, vertices are added or are reordered.

    Several threads may use it. It repeats reads for which ranges have moved meanwhile, so that no other module has to.

    Parameters
    ----------
    coordinator : Caller
    numbering : Numbering
        The numbering with which the graph is made.

    Attributes
    ----------
    numbering : Numbering
        The numbering that this client knows. Replaced under the lock, after the workers have changed theirs.
    """

    def __init__(self, coordinator: Caller, numbering: Numbering) -> None:
        self.coordinator, self.numbering = coordinator, numbering
        self._lock = threading.RLock()

    @property
    def n_vertices(self) -> int:
        """The number of vertices, by what the ranks last said; asks none."""
        return self._ranges().n_vertices

    def check(self) -> None:
        """Raise if no call is possible any more. If Ctrl-C interrupted a change, learn what the ranks made of it."""
        self.coordinator.check()
        if self.coordinator.unsettled:
            self.coordinator.call("inspect")  # which waits until all ranks are released, and say what they have
        if self._ranges() != self.numbering.partition:
            with self._lock:  # another thread may be doing it
                self._follow()

    def ids(self, values: Any, name: str) -> np.ndarray:
        """`values` as vertex ids in host memory, uint32[n]; `UnknownVertex` if one is `n_vertices` or more."""
        self.check()
        ids = as_ids(values, name)
        check_ids(ids, self.n_vertices, name)
        return Device.to_host(ids)

    def read(self, read: Callable[[Numbering], T]) -> T:
        """The result of `read` with the current vertex ranges. If they are moved meanwhile, read again."""
        while True:
            numbering = self.numbering
            try:
                return read(numbering)
            except Stale:
                with self._lock:  # waits until another thread that moves the ranges has replaced the numbering
                    if self.numbering is numbering:
                        self.coordinator.call("inspect")  # its answers carry the ranks' states, and so the ranges
                        self._follow()
                    if self.numbering is numbering:
                        raise

    @contextmanager
    def moving(self, more: int = 0) -> Iterator[None]:
        """Lock the numbering, as it is now, while a call changes it on the workers, and then take the new one over.

        Raises
        ------
        CapacityError
            With `more` vertices to come there would be too many; or this process has no memory for their order, which
            is taken before the workers change.
        """
        with self._lock:
            self.check()
            check_count(self.n_vertices + more, "n_vertices")
            coming = self.numbering.moved(self.numbering.partition.grown(more)) if more else None
            try:
                yield
            finally:
                self._follow(coming)

    @contextmanager
    def growing(self, n_vertices: int) -> Iterator[int | None]:
        """As `moving`, while a batch brings vertices up to this number: the number, or None if they are there."""
        with self._lock:
            more = n_vertices - self.n_vertices
            if more <= 0:
                yield None
                return
            with self.moving(more):
                yield n_vertices

    def _follow(self, coming: Numbering | None = None) -> None:
        """Take over the ranges and the order from the ranks' last states; `coming` if that is what they have."""
        generation, ranges = self.coordinator.states[0].generation, self._ranges()
        if generation != self.numbering.generation:
            wanted = [{"wanted": rank == 0} for rank in range(len(self.coordinator.addresses))]
            order = self.coordinator.call("order", shares=wanted)[0]["order"]
            self.numbering = Numbering(ranges, np.ascontiguousarray(order, np.uint32), generation)
        elif ranges != self.numbering.partition:
            if coming is None or coming.partition != ranges:
                coming = self.numbering.moved(ranges)
            self.numbering = coming

    def _ranges(self) -> Partition:
        """The ranges in the ranks' last states; the known ones if the states disagree, as after the loss of a rank."""
        states = self.coordinator.states
        starts = (*(state.lo for state in states), states[-1].hi)
        if starts == self.numbering.partition.starts:
            return self.numbering.partition
        joined = all(state.hi == start for state, start in zip(states, starts[1:], strict=True))
        return Partition(starts) if joined else self.numbering.partition
