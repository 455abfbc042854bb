"""Breadth-first search that follows the graph: distances as hops, by `paths.incremental_paths`."""

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
    """The distances from a vertex, or to it, on one rank."""

    takes_deletions = True

    def __init__(self, shard: Shard, source: int, direction: str = "out", predecessors: bool = False) -> None:
        self.shard = shard
        found, self.info = run(shard, source, direction, predecessors)
        inward = direction == "in"
        edges = incoming(shard, 'direction "in"') if inward else shard.out_edges
        search = NearFarSearch(shard, HOPS, edges=[edges], length=all_gather(shard, self._words(found["distance"])))
        self.incremental = IncrementalPaths(shard, search, source, inward, found.get("predecessors"))

    def _words(self, distance: Array) -> Array:
        device = self.shard.device
        words = device.astype(distance, np.uint64)
        with device.taking(2 * len(words), f"{len(words)} distances"):
            there = distance >= 0
        words <<= HOP
        words[~there] = NONE
        return words

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self.incremental.nbytes

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Bring the distances up to date; see `mgraph.algorithms.algorithm.Maintained`."""
        self._grow()
        changed = self.incremental.apply_changes(changes, most)
        return None if changed is None else ApplyResult(self.incremental.visited(), changed)

    def renumber(self, ids: Renumbering) -> bool:
        """Take over new internal ids; see `mgraph.algorithms.algorithm.Maintained`."""
        return self.incremental.renumber(ids, self.incremental.length[ids.kept])

    def _grow(self) -> None:
        more = self.shard.n_vertices - len(self.incremental.length)
        if more:
            self.incremental.grow(self.shard.device.full(more, HOPS.none, np.uint64))

    def columns(self) -> Columns:
        """The distances of the own vertices, in edges."""
        distance, found = self.incremental.results()
        columns = {"distance": distance}
        if self.incremental.parents is not None:
            columns["predecessors"] = self.incremental.parents.copy()
        return columns, {**self.info, **found}
