"""Results of algorithms on a shard: columns of values, and the state of maintained results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.algorithm import Maintained
from mgraph.device import Array, Device

__all__ = ["MaintainedState", "Result"]


@dataclass(frozen=True)
class Result:
    """Columns of an algorithm's result by name, for the internal ids ``lo .. lo + n - 1``, the shard's range then."""

    columns: dict[str, Array]
    lo: int

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(column.nbytes) for column in self.columns.values())

    def column(self, name: str | None) -> Array:
        """Return a column by its name, or the first one for None."""
        return self.columns[next(iter(self.columns)) if name is None else name]

    def top(self, device: Device, column: str | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return internal ids and values of the `k` largest of a column, largest first, NaN last, ties by id. O(n)."""
        values = self.column(column)
        k = min(k, len(values))
        ids, largest = device.host.empty(k, np.int64), device.host.empty(k, values.dtype)
        what = f"the {k} largest of {len(values)} values"
        with device.taking(40 * len(values) + 16 * k, what), device.host.taking(48 * k, what):
            _write_largest(device, values, ids, largest)  # whose arrays are gone when their memory is given back
        ids += self.lo
        return ids, largest


@dataclass
class MaintainedState:
    """A maintained result on one rank.

    Attributes
    ----------
    made : Maintained or None
        None before it is computed, and while it is updated, since an error may leave a part of it updated.
    epoch, generation : int
        Those of the shard when it was last brought up to date.
    starts : tuple of int
        Where the ranges began then.
    seconds : float
        How long its last computation from the start took, on the slowest rank.
    share : float
        The share of the graph's edges that may be visited before it is computed again.
    times, slow, pause : int
        How many updates in a row took too long; how many changed arcs the last of them had; and how many updates with
        about as many arcs are to be left out.
    removals : int
        How often vertices were removed since the last read. Before each removal the result was brought up to date.
    spent : float
        Seconds that took.
    touched, visited : int
        The edges that differed then, and those that were visited.
    """

    made: Maintained | None = None
    epoch: int = 0
    generation: int = 0
    starts: tuple[int, ...] = ()
    seconds: float = 0.0
    share: float = 1 / 8
    times: int = 0
    slow: int = 0
    pause: int = 0
    removals: int = 0
    spent: float = 0.0
    touched: int = 0
    visited: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return 0 if self.made is None else self.made.nbytes


def _write_largest(device: Device, values: Array, ids: np.ndarray, largest: np.ndarray) -> None:
    """Write the places and values of the ``len(ids)`` largest of `values`, in order."""
    places = _places_of_largest(device, values, len(ids))
    host, numbers = device.to_host(places), device.to_host(values[places])
    ranks = np.lexsort((host, -numbers if numbers.dtype.kind == "f" else ~numbers))  # NaN sorts last
    ids[:], largest[:] = host[ranks], numbers[ranks]


def _places_of_largest(device: Device, values: Array, k: int) -> Array:
    """Return the places of the `k` largest values, in no order; those of NaN only if there are too few others."""
    xp = device.xp
    if k == 0:
        return device.empty(0, np.int64)
    if values.dtype.kind == "f":
        missing = xp.isnan(values)
        if bool(missing.any()):
            present = xp.flatnonzero(~missing)
            largest = present[_places_of_largest(device, values[present], min(k, len(present)))]
            return xp.concatenate([largest, xp.flatnonzero(missing)[: k - len(largest)]])
    least = xp.partition(values, len(values) - k)[len(values) - k]
    above, equal = xp.flatnonzero(values > least), xp.flatnonzero(values == least)
    return xp.concatenate([above, equal[: k - len(above)]])
