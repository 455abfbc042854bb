"""Maintained breadth-first search: distances in hops (`paths.incremental_paths`)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Maintained, Renumbering, Shard, incoming
from mgraph.algorithms.paths.bfs.program import run
from mgraph.algorithms.paths.incremental_paths.incremental_paths import IncrementalPaths, incremental_kernels
from mgraph.algorithms.paths.near_far.search import HOPS, NearFarSearch, library
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.device import Array
from mgraph.kernels.stopwatch import Stopwatch
from mgraph.structures import Structure

__all__ = ["Distances"]

HOP = 32  #: a length is hops << 32
assert HOPS.none == 2**64 - 1


class Distances(Maintained):
    """Distances of the own vertices from the source, or to it, maintained under changes of the graph.

    Attributes
    ----------
    found : dict
        The columns of the search, until changes come: a result that is computed anew each time needs no more.
    incremental : IncrementalPaths or None
        From then on.
    """

    def __init__(self, shard: Shard, source: int, direction: str = "out", predecessors: bool = False) -> None:
        self.shard, self.source, self.inward = shard, source, direction == "in"
        self.found, self.info = run(shard, source, direction, predecessors)
        self.incremental: IncrementalPaths | None = None

    def prepare(self) -> None:
        """Implement `Maintained.prepare`: load the kernels of the first update."""
        incremental_kernels(self.shard, HOPS)
        library(self.shard, HOPS, self._edges)

    @property
    def _edges(self) -> Structure:
        return incoming(self.shard, 'direction "in"') if self.inward else self.shard.out_edges

    def _begin(self) -> IncrementalPaths:
        """Begin to follow changes, from the columns of the search. The graph may have more vertices than these."""
        # Append the new vertices, which the last rank owns.
        shard, device = self.shard, self.shard.device
        words, parents = self._words(self.found["distance"]), self.found.get("predecessors")
        more = shard.hi - shard.lo - len(words)
        if more:
            words = device.concatenate([words, device.full(more, HOPS.none, np.uint64)])
        if parents is not None:  # a copy: results have the array
            parents = device.concatenate([parents, device.full(more, -1, np.int64)])
        self.found = {}
        search = NearFarSearch(shard, HOPS, edges=self._edges, length=all_gather(shard, words))
        return IncrementalPaths(shard, search, self.source, self.inward, parents)

    def _words(self, distance: Array) -> Array:
        # -1 becomes `HOPS.none`, whose bits are all set.
        hops = self.shard.device.astype(distance, np.int64)
        with self.shard.device.taking(8 * len(hops), f"{len(hops)} distances"):
            signs = hops >> 63
        hops <<= HOP
        hops |= signs
        return hops.view(np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        if self.incremental is None:
            return sum(int(column.nbytes) for column in self.found.values())
        return self.incremental.nbytes

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Update the distances. Returns None if they must be computed anew."""
        preparation = 0.0
        if (incremental := self.incremental) is None:
            watch = Stopwatch(self.shard.device, self.shard.size == 1)
            incremental = self.incremental = self._begin()
            self.shard.device.synchronize()
            preparation = watch.seconds()
        elif more := self.shard.n_vertices - len(incremental.length):
            incremental.grow(self.shard.device.full(more, HOPS.none, np.uint64))
        changed = incremental.apply_changes(changes, most)
        how: Literal["gave up", "updated"] = "gave up" if changed is None else "updated"
        return ApplyResult(incremental.visited(), bool(changed), how, preparation)

    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids. Returns False if the source was removed."""
        if self.incremental is not None:
            return self.incremental.renumber(ids, self.incremental.length[ids.kept])
        self.source, columns = (
            int(ids.new[self.source]),
            {name: column[ids.rows] for name, column in self.found.items()},
        )
        if (parents := columns.get("predecessors")) is not None:
            columns["predecessors"] = self.shard.device.xp.where(parents < 0, parents, ids.new[parents])
        self.found = columns
        return self.source >= 0

    def columns(self) -> Columns:
        """Return the distances of the own vertices in edges, and their predecessors if maintained."""
        if self.incremental is None:
            return dict(self.found), self.info
        distance, counts = self.incremental.results()
        columns = {"distance": distance}
        if self.incremental.parents is not None:
            columns["predecessors"] = self.incremental.parents.copy()
        return columns, {**self.info, **counts}
