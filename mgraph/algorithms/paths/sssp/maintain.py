"""Maintained single-source shortest paths by weights (`paths.incremental_paths`)."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Maintained, Renumbering, Shard
from mgraph.algorithms.paths.incremental_paths.incremental_paths import IncrementalPaths
from mgraph.algorithms.paths.sssp.program import Paths

__all__ = ["Distances"]


class Distances(Maintained):
    """Distances from the source to the own vertices, maintained under changes of the graph."""

    def __init__(self, shard: Shard, source: int, predecessors: bool = False, dtype: str = "float32") -> None:
        self.shard, self.source, self.dtype = shard, source, dtype
        paths = Paths(shard, source, dtype)
        parents = paths.predecessors()[0] if predecessors else None
        paths.search.all_gather()
        self.info = {"delta": paths.search.delta, "supersteps": paths.search.rounds}
        self.incremental = IncrementalPaths(shard, paths.search, source, parents=parents)
        self.tied = predecessors and self._tied()

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self.incremental.nbytes

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Update the distances. Returns None if they must be computed anew."""
        if self.tied and len(changes):
            return None
        self._grow()
        changed = self.incremental.apply_changes(changes, most)
        if changed is None:
            return ApplyResult(self.incremental.visited(), False, "gave up")
        if self.incremental.parents is not None and self._tied():
            return None
        return ApplyResult(self.incremental.visited(), changed)

    def _tied(self) -> bool:
        """Return True if a reached vertex has no predecessor that is nearer to the source.

        The choice of such a predecessor depends on other vertices, so it cannot be maintained.
        """
        shard, parents, own = self.shard, self.incremental.parents, self.incremental.own
        with shard.device.taking(24 * len(own), f"the predecessors of {len(own)} vertices"):
            # Select the reached vertices, except the source.
            reached = own != own.dtype.type(self.incremental.lengths.none)
            if shard.lo <= self.source < shard.hi:
                reached[self.source - shard.lo] = False
            rows = shard.device.xp.flatnonzero(reached)
            # Compare their lengths with those of their predecessors.
            tied = (parents[rows] < 0) | (self.incremental.length[parents[rows]] >= own[rows])
        return bool(shard.exchange.allreduce(np.array([shard.device.total(tied) > 0], np.int64), "max")[0])

    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids. Returns False if the source was removed."""
        continues = self.incremental.renumber(ids, self.incremental.length[ids.kept])
        self.source = self.incremental.source
        return continues

    def _grow(self) -> None:
        more, lengths = self.shard.n_vertices - len(self.incremental.length), self.incremental.lengths
        if more:
            self.incremental.grow(self.shard.device.full(more, lengths.none, lengths.word))

    def columns(self) -> Columns:
        """Return the distances of the own vertices, and their predecessors if maintained."""
        words, counts = self.incremental.results()
        columns = {"distance": words.view(self.dtype)}
        if self.incremental.parents is not None:
            columns["predecessors"] = self.incremental.parents.copy()
        return columns, {"reached": counts["reached"], **self.info}
