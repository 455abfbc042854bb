"""What algorithms leave on a shard: columns of values, and results that follow the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.algorithm import Maintained
from mgraph.device import Array, Device

__all__ = ["Following", "Result"]


@dataclass(frozen=True)
class Result:
    """What an algorithm left here: columns of the internal ids ``lo .. lo + n - 1``, its range then, by name."""

    columns: dict[str, Array]
    lo: int

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(column.nbytes) for column in self.columns.values())

    def column(self, name: str | None) -> Array:
        """A column by its name, or the first for None."""
        return self.columns[next(iter(self.columns)) if name is None else name]

    def top(self, device: Device, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The internal ids and values of the `k` largest of the first column, largest first, ties by id; O(n)."""
        values = self.column(None)
        k = min(k, len(values))
        ids, best = device.host.empty(k, np.int64), device.host.empty(k, values.dtype)
        what = f"the {k} largest of {len(values)} values"
        with device.taking(24 * len(values) + 16 * k, what), device.host.taking(48 * k, what):
            _find_largest(device, values, ids, best)
        ids += self.lo
        return ids, best


@dataclass
class Following:
    """A result that follows the graph, on one rank.

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

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return 0 if self.made is None else self.made.nbytes


def _find_largest(device: Device, values: Array, ids: np.ndarray, best: np.ndarray) -> None:
    """Write where the largest values are to `ids`, and these to `best`: as many as that has, largest first."""
    xp, k = device.xp, len(ids)
    if k == 0:
        return
    least = xp.partition(values, len(values) - k)[len(values) - k]
    above, equal = xp.flatnonzero(values > least), xp.flatnonzero(values == least)
    places = xp.concatenate([above, equal[: k - len(above)]])
    host, found = device.to_host(places), device.to_host(values[places])
    ranked = np.lexsort((host, -found.astype(np.float64)))
    ids[:], best[:] = host[ranked], found[ranked]
