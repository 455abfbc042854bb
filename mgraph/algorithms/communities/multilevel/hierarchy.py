"""The levels of a multilevel method, and the communities of the graph's own vertices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Shard, incoming, kernels
from mgraph.algorithms.communities.multilevel.aggregation import CoarseRows, add_up, next_level, number_communities
from mgraph.algorithms.communities.multilevel.level import FILE, Level
from mgraph.algorithms.communities.multilevel.objective import Objective
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.algorithms.primitives.weight_sums import WeightSums, unit_of
from mgraph.device import Array

__all__ = ["Hierarchy", "finest_level", "vertex_level", "warm"]


def finest_level(shard: Shard, what: str, quality: str, resolution: float) -> Level:
    """Return the level of the graph's vertices, each in a community of its own.

    Raises `InvalidOption` on every rank, naming `what`, if a weight is negative or not finite, or if the graph is
    directed and has no in-edges.
    """
    # Weigh the rows.
    device, out, back = shard.device, shard.out_edges, incoming(shard, what)
    directed, rows = back is not out, shard.hi - shard.lo
    factor = 1 if directed else 2
    unit = unit_of(shard, what, factor, FILE)
    sides: list[Any] = [out, back] if directed else [compact_rows(shard, out, True)]
    weights = [WeightSums(shard, side.view(), side, shard.lo, rows, factor, unit, FILE) for side in sides]
    strengths = [all_gather(shard, one.strengths()) for one in weights]
    total = sum(device.total(strength) for strength in strengths)
    arcs = int(shard.exchange.allreduce(np.array([sum(side.num_edges for side in sides)]))[0])
    if quality == "cpm":
        strengths = [device.full(shard.n_vertices, 1, np.int64)] * len(sides)

    # Describe the level.
    objective = Objective(quality, resolution, directed, unit or 1.0, total, total / max(arcs, 1))
    level = vertex_level(shard, sides, strengths, objective, unit)
    level.start()
    level.loops = level.inside
    return level


def vertex_level(shard: Shard, sides: list[Any], strengths: list[Array], objective: Objective, unit: float) -> Level:
    """Return the level of the graph's vertices, whose communities are not yet given by `Level.start`."""
    names = vertex_labels(shard)
    return Level(shard, sides, shard.partition, names, strengths, 0, objective, unit)


class Hierarchy:
    """The present level, and its vertex for each own vertex of the graph.

    Earlier levels stay in memory, so that `climb` can return to them.

    Attributes
    ----------
    finest, level : Level
        The first level, and the present one.
    levels : int
        How often communities, or parts of them, became vertices.
    """

    def __init__(self, finest: Level) -> None:
        self.finest, self.level, self.levels = finest, finest, 0
        self.members = finest.device.arange(finest.first, finest.first + finest.rows, np.uint32)
        self._finer: list[tuple[Level, Array]] = []  # earlier levels, and the next level's vertex of each of theirs
        self.names = finest.names  # smallest user's id of each vertex of the level; None for its id

    def coarsen(self, parts: Array = None, few: int = 0) -> bool:
        """Make each part of a community a vertex; without `parts` each community. Returns False if none has two.

        With `parts`, each community also becomes a vertex if there are fewer than `few` more parts than communities.
        """
        of_communities = number_communities(self.level, self.level.labels)
        numbers, least = of_communities if parts is None else number_communities(self.level, parts)
        if len(least) < len(of_communities[1]) + few:
            numbers, least = of_communities
        if len(least) == self.level.n:
            return False
        level = next_level(self.level, numbers, len(least), None if parts is None else of_communities[0])
        self._descend(numbers, least)
        self._finer.append((self.level, numbers))
        self.level, self.levels = level, self.levels + 1
        return True

    def is_whole(self) -> bool:
        """Return True if each community is one vertex of the present level."""
        level = self.level
        if level.inside != level.loops:
            return False
        # Vertices that are joined by edges of weight 0, or not at all, have no weight between them.
        return len(number_communities(level, level.labels)[1]) == level.n

    def ascend(self) -> None:
        """Begin on the first level with the communities of the last one."""
        numbers, _ = number_communities(self.level, self.level.labels)
        labels = all_gather(self.finest.shard, self.finest.device.gather(numbers, self.members))
        self.finest.start(labels, self.level.inside)

    def climb(self) -> Iterator[Level]:
        """Go back level by level, and yield each, after it has begun with the communities of the last one."""
        while self._finer:
            level, numbers = self._finer.pop()
            communities, _ = number_communities(self.level, self.level.labels)
            level.start(level.device.gather(communities, numbers), self.level.inside)
            self.level = level
            yield level

    def communities(self) -> tuple[Array, int]:
        """Return the smallest user's id in the community of each own vertex, int64, and the number of communities."""
        numbers, least = number_communities(self.level, self.level.labels)
        self._descend(numbers, least)
        own = self.level.device.gather(self.names, self.members)
        return self.level.device.astype(own, np.int64), len(self.names)

    def _descend(self, numbers: Array, least: Array) -> None:
        device = self.level.device
        self.members = device.gather(numbers, self.members)
        self.names = least if self.levels == 0 else device.gather(self.names, least)


def warm(shard: Shard, *files: str) -> None:
    """Compile the launches of the levels on this shard, and other `files` for the rows of the first level."""
    device = shard.device
    offsets, none = device.zeros(1, np.int64), device.empty(0, np.uint64)
    out = shard.out_edges
    finest = compact_rows_sample(shard, out) if shard.in_edges is out else out
    for edges in (finest, CoarseRows(offsets, device.empty(0, np.uint32), none)):
        WeightSums(shard, edges.view(), edges, 0, 0, file=FILE)
    for file in files:
        kernels(shard, file, finest.view())
    add_up(device, device.zeros(2, np.uint64), device.zeros(2, np.uint64))
