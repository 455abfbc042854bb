"""Maintained breadth-first search: distances in hops (`paths.incremental_paths`)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, EdgeDelta, Shard
from mgraph.algorithms.paths.bfs.program import run
from mgraph.algorithms.paths.incremental_paths.incremental_paths import (
    ENOUGH,
    UNSURE,
    incremental_kernels,
    most_of_sample,
)
from mgraph.algorithms.paths.incremental_paths.maintained import MaintainedPaths
from mgraph.algorithms.paths.near_far.search import HOPS
from mgraph.device import Array, Device
from mgraph.kernels import Struct
from mgraph.structures import Structure

__all__ = ["Distances"]

SAMPLE, EVERY = 2048, 8  #: sampled arcs before an update is prepared: at most one in `EVERY` changed arcs
FEWEST = 4096  #: changed arcs from which a sample is taken
PARTS = {"cpu": 1, "cuda": 16}  #: tiles that read a row together, by the kind of the device
SUSPECT, HELD = np.uint64(1 << 62), np.uint64(1 << 63)  #: bits of a word of `SampleSupports`, above the visited edges
EDGES = SUSPECT - np.uint64(1)
assert HOPS.none == 2**64 - 1  # `WordsOfHops` relies on it


class Distances(MaintainedPaths):
    """Distances of the own vertices from the source, or to it, in edges, maintained under changes of the graph."""

    def __init__(self, shard: Shard, source: int, direction: str = "out", predecessors: bool = False) -> None:
        super().__init__(shard, source, HOPS, run(shard, source, direction, predecessors), direction == "in")

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Update the distances. Returns None if they must be computed anew."""
        if sampled := self.incremental is None and self._samples(changes):
            visited, fits = self._sample(changes, most)
            if not fits:
                return ApplyResult(visited, False, "gave up")
        incremental = self._follow()
        changed = incremental.apply_changes(changes, most, sampled)
        how: Literal["gave up", "updated"] = "gave up" if changed is None else "updated"
        return ApplyResult(incremental.visited(), bool(changed), how, self.preparation)

    def _samples(self, changes: EdgeDelta) -> bool:
        """Return True if a sample of the changes is to come before an update: of many, on a single rank."""
        alone = self.shard.size == 1 and self._reverse is not None
        return alone and changes.deleted > 0 and len(changes) >= FEWEST

    @property
    def _reverse(self) -> Structure | None:
        return self.shard.out_edges if self.inward else self.shard.in_edges

    def _sample(self, changes: EdgeDelta, most: int) -> tuple[int, bool]:
        """Return the visited edges, and False if an update is expected to visit more than `most` edges."""
        # Look for other supports of the vertices that the arcs supported. Nothing is prepared for that.
        shard, reverse, distance = self.shard, self._reverse, self.found["distance"]
        every = max(EVERY, len(changes) // SAMPLE)
        enough = most_of_sample(every, most)
        samples = -(-len(changes) // every)
        words = shard.device.zeros(samples + 1, np.uint64)
        assert reverse is not None
        incremental_kernels(shard, HOPS).SampleSupports(
            samples * PARTS[shard.device.kind], graph=reverse.view(), changed=Struct(**changes.fields()),
            distance=distance, n=len(distance), inward=int(self.inward), samples=samples, every=every,
            parts=PARTS[shard.device.kind], enough=enough, words=words,
        )  # fmt: skip
        words = Device.to_host(words)[:-1]
        edges, suspect, held = words & EDGES, words & SUSPECT > 0, words & HELD > 0
        suspects, visited, cut = int(suspect.sum()), int(edges.sum()), int(edges[~held].sum())
        # Few suspects tell little about the cut vertices, whose rows are read twice more.
        rows = 0 if suspects < ENOUGH else every * (visited + 2 * cut)
        return visited, visited <= enough and rows <= UNSURE * most

    def _words(self, distance: Array) -> Array:
        n, words = len(distance), self.shard.device.empty(len(distance), np.uint64)
        incremental_kernels(self.shard, HOPS).WordsOfHops(n, distance=distance, n=n, words=words)
        return words

    def _distance(self, lengths: Array) -> Array:
        return lengths
