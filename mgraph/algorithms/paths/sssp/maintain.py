"""Maintained single-source shortest paths by weights (`paths.incremental_paths`)."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, EdgeDelta, Shard
from mgraph.algorithms.paths.incremental_paths.maintained import MaintainedPaths
from mgraph.algorithms.paths.sssp.program import Paths
from mgraph.device import Array

__all__ = ["Distances"]


class Distances(MaintainedPaths):
    """Distances from the source to the own vertices, maintained under changes of the graph.

    Attributes
    ----------
    tied : bool
        True with predecessors that cannot be maintained.
    """

    def __init__(self, shard: Shard, source: int, predecessors: bool = False, dtype: str = "float32") -> None:
        self.dtype = dtype
        paths = Paths(shard, source, dtype)
        super().__init__(shard, source, paths.lengths, paths.result(predecessors))
        self.tied = predecessors and self._tied(paths.search.length, self.found["predecessors"])

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Update the distances. Returns None if they must be computed anew."""
        if self.tied and len(changes):
            return None
        incremental = self._follow()
        changed = incremental.apply_changes(changes, most)
        if changed is None:
            return ApplyResult(incremental.visited(), False, "gave up")
        if incremental.parents is not None and self._tied(incremental.length, incremental.parents):
            return None
        return ApplyResult(incremental.visited(), changed, preparation=self.preparation)

    def _tied(self, length: Array, parents: Array) -> bool:
        """Return True if a reached vertex has no predecessor that is nearer to the source.

        The choice of such a predecessor depends on other vertices, so it cannot be maintained. `length` are the lengths
        of all vertices, and `parents` the predecessors of the own ones.
        """
        shard, own = self.shard, length[self.shard.lo : self.shard.hi]
        with shard.device.taking(24 * len(own), f"the predecessors of {len(own)} vertices"):
            # Select the reached vertices, except the source.
            reached = own != own.dtype.type(self.lengths.none)
            if shard.lo <= self.source < shard.hi:
                reached[self.source - shard.lo] = False
            rows = shard.device.xp.flatnonzero(reached)
            # Compare their lengths with those of their predecessors.
            tied = (parents[rows] < 0) | (length[parents[rows]] >= own[rows])
        return bool(shard.exchange.allreduce(np.array([shard.device.total(tied) > 0], np.int64), "max")[0])

    def _words(self, distance: Array) -> Array:
        return distance.view(self.lengths.word).copy()

    def _distance(self, lengths: Array) -> Array:
        return lengths.view(self.dtype)
