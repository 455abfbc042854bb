"""Which rank owns which vertices: contiguous ranges of internal ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption

__all__ = ["Partition", "degree_order"]


@dataclass(frozen=True)
class Partition:
    """Rank r owns the internal ids ``starts[r] .. starts[r + 1] - 1``; ranges may be empty.

    Vertices added later join the last range, so that an internal id never changes.
    """

    starts: tuple[int, ...]

    def __post_init__(self) -> None:
        steps = np.diff(self.starts)
        if len(self.starts) < 2 or self.starts[0] != 0 or (steps < 0).any():
            raise InvalidOption(f"range starts {self.starts} must begin at 0 and never fall")

    @classmethod
    def equal(cls, n_vertices: int, size: int) -> Partition:
        """Ranges whose lengths differ by at most one vertex."""
        return cls(tuple(n_vertices * r // size for r in range(size + 1)))

    @classmethod
    def balanced(cls, degrees: np.ndarray, size: int) -> Partition:
        """Ranges of about equal work, one unit a vertex and one an edge, from a histogram of degrees by internal id.

        O(n) once. A vertex is never split: one hub heavier than the mean share stays whole.
        """
        work = np.cumsum(np.asarray(degrees, np.int64) + 1)
        total = int(work[-1]) if len(work) else 0
        if total == 0:
            return cls((0,) * (size + 1))
        cuts = np.searchsorted(work, [total * r // size for r in range(1, size)], side="left") + 1
        return cls((0, *(min(int(c), len(work)) for c in cuts), len(work)))

    @property
    def size(self) -> int:
        """How many ranks."""
        return len(self.starts) - 1

    @property
    def n_vertices(self) -> int:
        """How many vertices."""
        return self.starts[-1]

    def range(self, rank: int) -> tuple[int, int]:
        """The half-open range of internal ids that `rank` owns."""
        return self.starts[rank], self.starts[rank + 1]

    def owner(self, ids: Any) -> np.ndarray:
        """The rank that owns each id of a host array; O(log size) an id."""
        return np.searchsorted(np.asarray(self.starts[1:-1], np.int64), ids, side="right")

    def grown(self, n: int) -> Partition:
        """The same ranges with `n` more vertices at the end of the last one."""
        return Partition((*self.starts[:-1], self.starts[-1] + n))


def degree_order(degrees: Any, size: int) -> Any:
    """Internal ids by which every rank's range begins with its hubs: for `DynamicGraph`'s `order`.

    The vertices are dealt to the `size` equal ranges in turn, by descending degree. What PageRank and BFS keep for the
    hubs then shares cache lines, and the ranges have about equally many edges.

    Parameters
    ----------
    degrees : array of numbers, shape (n,)
        What is known of the degrees, or what is expected; a CuPy array is worked on where it is.
    size : int
        How many workers.

    Returns
    -------
    uint32[n]
        The internal id of each vertex, a permutation, where `degrees` is. O(n log n).

    Examples
    --------
    >>> degree_order([1, 5, 3, 4], 2)
    array([3, 0, 1, 2], dtype=uint32)
    """
    xp: Any = np
    if hasattr(degrees, "__cuda_array_interface__"):
        import cupy

        xp = cupy
    degrees, n = xp.asarray(degrees), len(degrees)
    starts = np.asarray(Partition.equal(n, size).starts)
    turn = xp.arange(n)
    inside = xp.asarray(starts)[turn % size] + turn // size
    longer = np.flatnonzero(np.diff(starts) > n // size)  # what is left over goes to the ranges that are one longer
    inside[n - len(longer) :] = xp.asarray(starts[longer] + n // size)
    order = xp.empty(n, np.uint32)
    order[xp.argsort(-degrees.astype(np.float64), kind="stable")] = inside
    return order
