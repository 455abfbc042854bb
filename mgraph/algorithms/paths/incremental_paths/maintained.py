"""Maintained distances from a source: the columns of a search until changes come, then incremental paths."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Columns, Maintained, Renumbering, Shard, incoming
from mgraph.algorithms.paths.incremental_paths.incremental_paths import IncrementalPaths, incremental_kernels
from mgraph.algorithms.paths.near_far.search import Lengths, NearFarSearch, library
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.device import Array
from mgraph.kernels.stopwatch import Stopwatch
from mgraph.structures import Structure

__all__ = ["MaintainedPaths"]


class MaintainedPaths(Maintained):
    """Distances of the own vertices from a source, or to it, maintained under changes of the graph.

    Parameters
    ----------
    shard : Shard
    source : int
    lengths : Lengths
        The kind of the lengths.
    columns : Columns
        The result of the search, computed just now.
    inward : bool
        True if paths follow edges backwards.

    Attributes
    ----------
    found : dict
        The columns of the search; empty once `incremental` is made.
    incremental : IncrementalPaths or None
        Made for the first changes: a result that is computed anew each time does not need it.
    preparation : float
        The seconds that the last call of `_follow` took to make `incremental`.
    """

    def __init__(self, shard: Shard, source: int, lengths: Lengths, columns: Columns, inward: bool = False) -> None:
        self.shard, self.source, self.lengths, self.inward = shard, source, lengths, inward
        self.found, self.info = columns
        self.incremental: IncrementalPaths | None = None
        self.preparation = 0.0

    def prepare(self) -> None:
        """Implement `Maintained.prepare`: load the kernels of the first update."""
        incremental_kernels(self.shard, self.lengths)
        library(self.shard, self.lengths, self._edges)

    @property
    def _edges(self) -> Structure:
        return incoming(self.shard, 'direction "in"') if self.inward else self.shard.out_edges

    @abstractmethod
    def _words(self, distance: Array) -> Array:
        """Return a new array with the lengths of these distances."""

    @abstractmethod
    def _distance(self, lengths: Array) -> Array:
        """Return the distances of `IncrementalPaths.results`."""

    def _follow(self) -> IncrementalPaths:
        """Return the incremental paths, of all vertices of the graph: it may have more than at the last call."""
        self.preparation = 0.0
        if self.incremental is None:
            watch = Stopwatch(self.shard.device, self.shard.size == 1)
            self.incremental = self._begin()
            self.shard.device.synchronize()
            self.preparation = watch.seconds()
        elif more := self.shard.n_vertices - len(self.incremental.length):
            self.incremental.grow(self._unreached(more))
        return self.incremental

    def _begin(self) -> IncrementalPaths:
        """Begin to follow changes, from the columns of the search."""
        # Append the new vertices, which the last rank owns.
        shard, device = self.shard, self.shard.device
        words, parents = self._words(self.found["distance"]), self.found.get("predecessors")
        more = shard.hi - shard.lo - len(words)
        if more:
            words = device.concatenate([words, self._unreached(more)])
        if parents is not None:  # a copy: results have the array
            parents = device.concatenate([parents, device.full(more, -1, np.int64)])
        self.found = {}
        delta, length = self.info.get("delta", 0.0), all_gather(shard, words)
        search = NearFarSearch(shard, self.lengths, delta, self._edges, length)
        return IncrementalPaths(shard, search, self.source, self.inward, parents)

    def _unreached(self, n: int) -> Array:
        return self.shard.device.full(n, self.lengths.none, self.lengths.word)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        if self.incremental is None:
            return sum(int(column.nbytes) for column in self.found.values())
        return self.incremental.nbytes

    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids. Returns False if the source was removed."""
        self.source = int(ids.new[self.source])
        if self.incremental is not None:
            return self.incremental.renumber(ids, self.incremental.length[ids.kept])
        columns = {name: column[ids.rows] for name, column in self.found.items()}
        if (parents := columns.get("predecessors")) is not None:
            columns["predecessors"] = self.shard.device.xp.where(parents < 0, parents, ids.new[parents])
        self.found = columns
        return self.source >= 0

    def columns(self) -> Columns:
        """Return the distances of the own vertices, and their predecessors if maintained."""
        if self.incremental is None:
            return dict(self.found), self.info
        lengths, counts = self.incremental.results()
        columns: dict[str, Any] = {"distance": self._distance(lengths)}
        if self.incremental.parents is not None:
            columns["predecessors"] = self.incremental.parents.copy()
        return columns, {**self.info, **{name: n for name, n in counts.items() if name in self.info}}
