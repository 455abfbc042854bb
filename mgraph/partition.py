"""Partition of the vertices: each rank owns a contiguous range of internal ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption

__all__ = ["Partition", "degree_order"]


@dataclass(frozen=True)
class Partition:
    """Ranges of internal ids: rank r owns ``starts[r] .. starts[r + 1] - 1``.

    Ranges may be empty. Vertices added later join the last range, so that no internal id changes.
    """

    starts: tuple[int, ...]
    size: int = field(init=False, compare=False, repr=False)  #: the number of ranks
    n_vertices: int = field(init=False, compare=False, repr=False)
    widest: int = field(init=False, compare=False, repr=False)  #: the length of the longest range

    def __post_init__(self) -> None:
        steps = np.diff(self.starts)
        if len(self.starts) < 2 or self.starts[0] != 0 or (steps < 0).any():
            raise InvalidOption(f"range starts {self.starts} must begin with 0 and must not decrease")
        vars(self).update(size=len(self.starts) - 1, n_vertices=self.starts[-1], widest=int(steps.max()))

    @classmethod
    def equal(cls, n_vertices: int, size: int) -> Partition:
        """Return ranges whose lengths differ by at most one vertex."""
        return cls(tuple(n_vertices * r // size for r in range(size + 1)))

    @classmethod
    def balanced(cls, degrees: np.ndarray, size: int) -> Partition:
        """Return ranges of about equal work, a unit per vertex and edge.

        A vertex is never split, so a range with a hub may exceed the mean. O(n).

        Parameters
        ----------
        degrees : array of ints, shape (n,)
            The degree of each vertex, by internal id.
        size : int
            The number of ranges.
        """
        # Cut the prefix sums of the work at multiples of its mean.
        work = np.cumsum(np.asarray(degrees, np.int64) + 1)
        total = int(work[-1]) if len(work) else 0
        if total == 0:
            return cls((0,) * (size + 1))
        cuts = np.searchsorted(work, [total * r // size for r in range(1, size)], side="left") + 1
        return cls((0, *(min(int(c), len(work)) for c in cuts), len(work)))

    def range(self, rank: int) -> tuple[int, int]:
        """Return the half-open range of internal ids that `rank` owns."""
        return self.starts[rank], self.starts[rank + 1]

    def owner(self, ids: Any) -> np.ndarray:
        """Return the owning rank of each internal id: int64[n]. O(n log size)."""
        return np.searchsorted(np.asarray(self.starts[1:-1], np.int64), ids, side="right")

    def grown(self, n: int) -> Partition:
        """Return the partition with `n` more vertices in the last range."""
        if self.n_vertices == 0:  # the first vertices are split equally
            return Partition.equal(n, self.size)
        return Partition((*self.starts[:-1], self.starts[-1] + n))


def degree_order(degrees: Any, size: int) -> Any:
    """Return an `order` for `DynamicGraph` by descending degree within each worker's range.

    The vertices are dealt to the `size` equally long ranges in turn, by descending degree. PageRank's and BFS's values
    for hubs then share cache lines, and the ranges have about equally many edges. Of vertices of equal degree, each
    range takes consecutive ones, as many as it would get in turn. So most edges of grids and roads stay within a range.
    O(n log n).

    Parameters
    ----------
    degrees : array of numbers, shape (n,)
        The known or expected degree of each vertex. A CuPy array is sorted on its GPU.
    size : int
        The number of workers.

    Returns
    -------
    uint32[n]
        The internal id of each vertex, a permutation, in the same memory (host or GPU) as `degrees`.

    Examples
    --------
    >>> degree_order([1, 5, 3, 4], 2)
    array([3, 0, 1, 2], dtype=uint32)
    """
    xp: Any = np
    if hasattr(degrees, "__cuda_array_interface__"):
        import cupy

        xp = cupy
    # The place t of the degree order lies in range t % size. The remainder goes to the ranges that are one longer.
    degrees, n = xp.asarray(degrees), len(degrees)
    starts = np.asarray(Partition.equal(n, size).starts)
    longer = np.flatnonzero(np.diff(starts) > n // size)
    ranges = xp.arange(n) % size
    ranges[n - len(longer) :] = xp.asarray(longer)
    places = xp.asarray(starts)[ranges] + xp.arange(n) // size
    vertices = xp.argsort(-degrees.astype(np.float64), kind="stable")

    # The places of equal degrees by range, for the vertices in the given order.
    falling = degrees[vertices]
    ranges[1:] += size * xp.cumsum(falling[1:] != falling[:-1])
    del falling
    places = places[xp.argsort(ranges, kind="stable")]
    order = xp.empty(n, np.uint32)
    order[vertices] = places
    return order
