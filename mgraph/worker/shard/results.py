"""Results of algorithms on a shard: columns of values, and the state of maintained results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Maintained, Memory
from mgraph.device import Array, Device
from mgraph.worker.shard.cost import CostModel

__all__ = ["MaintainedState", "Remembered", "Result", "Tried"]


@dataclass(frozen=True)
class Result:
    """Columns of an algorithm's result, for the internal ids ``lo .. lo + n - 1`` of its time."""

    columns: dict[str, Array]
    lo: int

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(column.nbytes) for column in self.columns.values())

    def column(self, name: str | None) -> Array:
        """Return a column by its name, or the first for None."""
        return self.columns[next(iter(self.columns)) if name is None else name]

    def top(self, device: Device, column: str | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and values of the `k` largest, descending, NaN last, ties by id. O(n)."""
        values = self.column(column)
        k = min(k, len(values))
        ids, largest = device.host.empty(k, np.int64), device.host.empty(k, values.dtype)
        what = f"the {k} largest of {len(values)} values"
        with device.taking(40 * len(values) + 16 * k, what), device.host.taking(48 * k, what):
            _write_largest(device, values, ids, largest)  # its arrays are freed before their reservations
        ids += self.lo
        return ids, largest


class Tried(NamedTuple):
    """An update of a maintained result on a rank: its seconds and outcome, and the numbers of arcs and changed arcs."""

    seconds: float
    applied: ApplyResult | None
    arcs: int
    changed: int


@dataclass
class MaintainedState:
    """Maintained result on a rank.

    Attributes
    ----------
    result : Maintained or None
        None before its computation, and during an update, since an error may leave a partial one.
    memory : Memory or None
        The part of it that outlives its computation; None if its algorithm has none.
    key : str
        The method and its arguments.
    epoch, generation : int
        The shard's at the last update.
    starts : tuple of int
        The starts of the ranges at the last update.
    changed : int
        The change log's `changed` at the last update.
    cost : CostModel
        The cost of updates, and of full computations.
    tried : Tried or None
        The last update, from which the cost model learns once all ranks have told how long it took.
    removals : int
        The number of removals of vertices since the last read. The result was updated before each.
    spent : float
        The seconds of these updates.
    touched, visited : int
        The changed and the visited edges of these updates.
    """

    result: Maintained | None = None
    memory: Memory | None = None
    key: str = ""
    epoch: int = 0
    generation: int = 0
    starts: tuple[int, ...] = ()
    changed: int = 0
    cost: CostModel = field(default_factory=CostModel)
    tried: Tried | None = None
    removals: int = 0
    spent: float = 0.0
    touched: int = 0
    visited: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return 0 if self.result is None else self.result.nbytes


@dataclass
class Remembered:
    """Memories of maintained results that have ended or come from the store, in a graph with a store.

    Equal on every rank.

    Attributes
    ----------
    kept : bool
        True if memories of results that end are kept.
    memories : dict of str to Memory
        In host memory, by the results' `key`; the oldest first.
    first : int
        A name that no result has used whose memory is not here, nor any larger.
    leaving : uint32[k] or None
        Users' ids that are being removed from the graph, and not yet from the memories.
    """

    kept: bool = False
    memories: dict[str, Memory] = field(default_factory=dict)
    first: int = 0
    leaving: np.ndarray | None = None


def _write_largest(device: Device, values: Array, ids: np.ndarray, largest: np.ndarray) -> None:
    """Write the places and values of the ``len(ids)`` largest of `values`, in order."""
    places = _places_of_largest(device, values, len(ids))
    host, numbers = device.to_host(places), device.to_host(values[places])
    ranks = np.lexsort((host, -numbers if numbers.dtype.kind == "f" else ~numbers))  # NaN sorts last
    ids[:], largest[:] = host[ranks], numbers[ranks]


def _places_of_largest(device: Device, values: Array, k: int) -> Array:
    """Return the places of the `k` largest, unordered; NaN only if needed."""
    xp = device.xp
    if k == 0:
        return device.empty(0, np.int64)
    # Partition without NaN; fill up with NaN if values are missing.
    if values.dtype.kind == "f":
        missing = xp.isnan(values)
        if device.total(missing):
            present = xp.flatnonzero(~missing)
            largest = present[_places_of_largest(device, values[present], min(k, len(present)))]
            return xp.concatenate([largest, xp.flatnonzero(missing)[: k - len(largest)]])
    # All above the k-th largest, then equal ones.
    least = xp.partition(values, len(values) - k)[len(values) - k]
    above, equal = xp.flatnonzero(values > least), xp.flatnonzero(values == least)
    return xp.concatenate([above, equal[: k - len(above)]])
