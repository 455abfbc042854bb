"""gpma+: all rows in a sorted array with gaps, rebalanced by windows of leaves.

::

    leaf 0                leaf 1                leaf 2            (LEAF slots each; here 4)
    slots  [ 3  7  9  . | 1  4  .  .          | 2  5  6  8 ]      destinations only, packed to the left of each leaf
    counts [     3      |     2               |     4      ]
    start  [0, 4, 4, 8, 12]                                       row 0: 3 7 9, row 1: none, row 2: 1 4, row 3: 2 5 6 8

A batch is counted first and written once (Sha, Li, He, Tan: Accelerating Dynamic Graph Analytics on GPUs, PVLDB 11(1),
2017, section 5, climbs level by level instead). prepare finds each key's slot, sums up inserts and deletes, and gives
each changed leaf the smallest ancestor window whose new count is within bounds; commit rewrites those windows. Items
are merged by rank, not by key, so a slot need not store its row. `structures/pma` does all this. In gpma+ the leaves
are contiguous, and an array that is too full or too empty is rewritten.

Invariants
----------
1. ``len(slots) == leaves * LEAF``, ``sum(counts) == num_edges == sum(degrees)``.
2. Slots past their leaf's count hold 2**32 - 1, which is no id. No leaf is empty, unless it is the only one; no count
   is above the bound of a leaf.
3. ``start[r]`` is the slot of the first live item of row r or of a later row, or ``leaves * LEAF``; start never falls,
   and ``start[n_rows] == leaves * LEAF``.
4. The live slots of ``[start[r], start[r + 1])`` are row r, strictly ascending, and ``degrees[r]`` of them.
5. ``groups[g]`` is the sum of the counts of leaves ``1024 g .. 1024 g + 1023``.
6. ``heads[l]`` is leaf l's first slot, for searches on few cache lines.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mgraph.kernels import Struct, View
from mgraph.structures.pma.structure import Pma

__all__ = ["GpmaPlus"]

Array = Any


class GpmaPlus(Pma):
    """Packed memory array updated in batches, counts first.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    leaf : int
        Slots per leaf, a power of two from 8 to 128.
    leaf_density, root_density : (float, float)
        Minimum and maximum density of a leaf and of the whole array; levels between are interpolated.
    fill : float
        Density after a resize of the whole array, between the two bounds of the root.

    Notes
    -----
    A batch of b operations is located in O(b log m), and the windows around its keys are rewritten. It takes one
    read-back, whatever the array's height, and 2 to 4 launches up to 131,072 operations (1 to 4 up to 1,023 on a CPU),
    7 to 9 above, and up to 6 more for wide windows. Memory: 4 bytes per slot (8 with weights), 5 per leaf, 12 per row.
    Neighbours are sorted.
    """

    name: ClassVar[str] = "gpma+"
    _files: ClassVar[dict[str, str]] = {
        "prepare": "structures/pma/small.cuh",
        **{part: f"structures/pma/{part}.cuh" for part in ("commit", "build")},
        "view": "structures/gpma_plus/view.cuh",
    }
    slots: Array
    weights: Array

    def _end_of(self, leaves: int) -> int:
        return leaves * self.leaf

    def _spread(self, array: dict[str, Array]) -> dict[str, Any]:
        return array

    def _pack(self, arrays: dict[str, Any], start: Array, degrees: Array) -> tuple[Struct, Struct, View]:
        columns = {name: arrays[name] for name in ("slots", "weights", "heads")}
        return Struct(**arrays), Struct(at=start), self._view_of(start=start, degrees=degrees, **columns)

    def check_invariants(self) -> None:
        """Assert the module's invariants. O(n_rows + slots), on the host."""
        slots, start = map(self.device.to_host, (self.slots, self.start))
        leaf, leaves = self.leaf, self.leaves
        assert len(slots) == leaves * leaf, "1"
        self._check_directory(slots)
        counts = self.device.to_host(self.counts)
        assert leaves == 1 or counts.min() >= 1, "2"
        assert start[-1] == leaves * leaf, "3"
        live = (np.arange(leaf) < counts[:, None]).ravel()
        assert live[start[start < leaves * leaf]].all(), "3"
        self._check_rows(slots, start)
