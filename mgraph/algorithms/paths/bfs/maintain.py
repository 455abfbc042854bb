"""Maintained breadth-first search: distances in hops (`paths.incremental_paths`)."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Renumbering, Shard, incoming
from mgraph.algorithms.paths.bfs.program import run
from mgraph.algorithms.paths.incremental_paths.incremental_paths import IncrementalPaths
from mgraph.algorithms.paths.near_far.search import HOPS, NearFarSearch
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.device import Array

__all__ = ["Distances"]

HOP = np.uint64(32)  #: a length is hops << 32
NONE = np.uint64(HOPS.none)


class Distances:
    """Distances of the own vertices from the source, or to it, maintained under changes of the graph."""

    takes_deletions = True

    def __init__(self, shard: Shard, source: int, direction: str = "out", predecessors: bool = False) -> None:
        self.shard = shard
        columns, self.info = run(shard, source, direction, predecessors)
        inward = direction == "in"
        edges = incoming(shard, 'direction "in"') if inward else shard.out_edges
        search = NearFarSearch(shard, HOPS, edges=[edges], length=all_gather(shard, self._words(columns["distance"])))
        self.incremental = IncrementalPaths(shard, search, source, inward, columns.get("predecessors"))

    def _words(self, distance: Array) -> Array:
        device = self.shard.device
        words = device.astype(distance, np.uint64)
        with device.taking(2 * len(words), f"{len(words)} distances"):
            reached = distance >= 0
        words <<= HOP
        words[~reached] = NONE
        return words

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self.incremental.nbytes

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Update the distances. Returns None if they must be computed anew."""
        self._grow()
        changed = self.incremental.apply_changes(changes, most)
        return None if changed is None else ApplyResult(self.incremental.visited(), changed)

    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids. Returns False if the source was removed."""
        return self.incremental.renumber(ids, self.incremental.length[ids.kept])

    def _grow(self) -> None:
        more = self.shard.n_vertices - len(self.incremental.length)
        if more:
            self.incremental.grow(self.shard.device.full(more, HOPS.none, np.uint64))

    def columns(self) -> Columns:
        """Return the distances of the own vertices in edges, and their predecessors if maintained."""
        distance, counts = self.incremental.results()
        columns = {"distance": distance}
        if self.incremental.parents is not None:
            columns["predecessors"] = self.incremental.parents.copy()
        return columns, {**self.info, **counts}
