"""Which rank owns which vertices: contiguous ranges of internal ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption

__all__ = ["Partition"]


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
        cuts = np.searchsorted(work, [total * r // size for r in range(1, size)], side="left") + 1 if total else []
        return cls((0, *(min(int(c), len(work)) for c in cuts), len(work)) if total else (0,) * (size + 1))

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
