"""Connected components that follow the graph.

Every rank knows the tree of each vertex. An inserted edge between two trees joins them. Where the graph has in-edges, a
vertex also has its number of hops from its tree's root, by which the forest is repaired (`paths.incremental_paths`):
a deleted edge matters only if it was the last that led to its end with so many hops. The vertices that are cut off
look for other ways. Those that find none are new components, each with a new root. Of trees that are joined, all but
the largest are given to it by a search from the inserted edges.

Without in-edges only the trees' roots are kept, and each deletion means that the result is computed again. In a large
graph whose components are found in a few milliseconds, as on a GPU, to repair a forest would take longer, so only the
roots are kept, too. The same holds after trees of many vertices were joined, in which nobody then knows the hops. In an
undirected graph on one rank, the ends of deleted edges then look for a way to their root, each from smallest neighbour
to smallest neighbour. If each finds one, or is in a part of few vertices, the components are known (`Apart`); if not,
they are found again.
"""

from __future__ import annotations

import time

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Renumbering, Shard, kernels
from mgraph.algorithms.communities.components.program import connect
from mgraph.algorithms.paths.incremental_paths.incremental_paths import (
    IncrementalPaths,
    all_neighbor_edges,
    reversed_arcs,
)
from mgraph.algorithms.paths.near_far.search import HOPS, NearFarSearch
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, constants

__all__ = ["Components"]

#: with more arcs, no forest is kept if the components are found in fewer seconds than this
LARGE, QUICK = 1 << 27, 0.02
PIECES = 64  #: so many new components are searched one after another; with more, the result is computed again
NONE = np.uint64(2**64 - 1)
LOW = np.uint64(2**32 - 1)  #: of a word of the forest: its root
JOINS, FAILED, SPLIT, EDGES = range(4)
FILE = "algorithms/communities/components/maintain.cuh"
assert len(constants(FILE, HUB_DEGREE=64).enums["Parting"]) == 4


class Components:
    """Maintained components of a rank.

    Attributes
    ----------
    parent : uint32[n_vertices]
        The root of each vertex of the graph.
    forest : IncrementalPaths or None
        The forest by hops from the roots, ``hops << 32 | root``; None where it is not known.
    least : uint32[n_vertices] or None
        The label by root, once the result was asked for and until the trees change.
    trees : int
        The number of trees, known with `least`.
    named : uint32[n_vertices] or None
        The order of the vertices' names with which `least` was found.
    left : int
        How many vertices have left their trees for a larger one in the last call.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.device = shard, shard.device
        began = time.perf_counter()
        self.parent = connect(shard, named=False)[0]
        self.kernels = kernels(shard, FILE, shard.out_edges.view())
        self.forest = self._by_hops() if shard.in_edges is not None and self._worth(began) else None
        self.least: Array = None
        self.trees = 0
        self.named: Array = None
        self.left = 0

    def _worth(self, began: float) -> bool:
        """Return True if a forest is worth its upkeep. All ranks return the same."""
        shard = self.shard
        self.device.synchronize()
        mine = np.array([shard.out_edges.num_edges, int(1e6 * (time.perf_counter() - began))], np.int64)
        arcs, microseconds = shard.exchange.allreduce(mine).tolist()
        return bool(arcs <= LARGE or microseconds > 1e6 * QUICK * shard.size)

    def _by_hops(self) -> IncrementalPaths:
        shard = self.shard
        ids = self.device.arange(shard.lo, shard.hi, np.uint32)
        roots = ids[self.parent[shard.lo : shard.hi] == ids]
        search = NearFarSearch(shard, HOPS, edges=all_neighbor_edges(shard))
        search.run(roots, self.device.astype(roots, np.uint64))
        search.all_gather()
        return IncrementalPaths(shard, search, source=-1)

    iterates = False

    @property
    def takes_deletions(self) -> bool:
        """Support for deletions, by a forest or by the rows of all vertices."""
        shard = self.shard
        return self.forest is not None or (shard.size == 1 and shard.in_edges is shard.out_edges)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        nbytes = int(self.parent.nbytes) + (0 if self.least is None else int(self.least.nbytes))
        return nbytes + (0 if self.forest is None else self.forest.nbytes)

    def columns(self) -> Columns:
        """Return the label of each own vertex's component."""
        if self.least is None or self.named is not self.shard.by_name:
            self.named = self.shard.by_name
            self.least, self.trees = _least_ids(self.shard, self.kernels, self.parent)
        rows = self.shard.hi - self.shard.lo
        labels = self.device.empty(rows, np.int64)
        self.kernels.Label(
            rows, first=self.shard.lo, rows=rows, parent=self.parent, least=self.least, labels=labels
        )  # fmt: skip
        return {"component": labels}, {"components": self.trees, "supersteps": 1}

    # ---- following changes -------------------------------------------------------------------------------------------

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Apply changes to the components. None if they must be computed anew."""
        followed = self._apply(changes, most)
        if followed is None or followed.changed:
            self.least = None
        return followed

    def _apply(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        # The direction of arcs does not matter.
        self._grow()
        if self.shard.in_edges is not self.shard.out_edges:
            changes = _both_ways(self.device, changes)
        changed = Struct(**changes.fields())
        state, n = self.device.zeros(4, np.int64), len(changes)
        # Without a forest, the ends of deleted edges look for a way to their root. Inserted arcs join trees.
        if self.forest is None and changes.deleted:
            graph = self.shard.out_edges.view()
            self.kernels.Apart(n, graph=graph, changed=changed, parent=self.parent, state=state, most=most // 2)
        self.kernels.JoinArcs(n, changed=changed, parent=self.parent, joins=state)
        # Read how that went, and point all vertices to the roots of joined trees.
        counts = Device.to_host(state).tolist()
        joined = counts[JOINS] > 0
        if counts[FAILED] or counts[EDGES] > most // 2:
            return None
        if joined:
            self.kernels.Compress(self.shard.n_vertices, parent=self.parent, n=self.shard.n_vertices)
        if self.forest is None:
            return ApplyResult(counts[EDGES], joined or counts[SPLIT] > 0)
        # Repair the forest; drop it if that fails after insertions only.
        followed = self._update_forest(self.forest, changed, changes, most, joined)
        if followed is None and not changes.deleted:  # the joined trees are known, and only the forest is not
            self.forest, followed = None, ApplyResult(0, joined)
        return followed

    def _update_forest(
        self, forest: IncrementalPaths, changed: Struct, changes: EdgeDelta, most: int, joined: bool
    ) -> ApplyResult | None:
        """Apply changes to the forest, and take the trees from it."""
        outcome = forest.apply_changes(
            changes, most, lambda: not joined or self._give_to_largest(forest, changed, changes, most)
        )
        if outcome is None or not self._add_roots(forest, joined):
            return None
        if outcome or joined:
            self.kernels.Roots(len(self.parent), words=forest.length, n=len(self.parent), parent=self.parent)
        return ApplyResult(forest.visited(), outcome or joined)

    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids. False if a root was removed. Reads back once."""
        roots = ids.new[self.parent[ids.kept]]
        if bool((roots < 0).any()):
            return False
        self.parent, self.least = roots.astype(np.uint32), None
        if self.forest is None:
            return True
        words = self.forest.length[ids.kept]
        roots = ids.new[(words & LOW).astype(np.int64)].astype(np.uint64)
        return self.forest.renumber(ids, words & ~LOW | roots)

    def _grow(self) -> None:
        first, n = len(self.parent), self.shard.n_vertices
        if first == n:
            return
        self.least = None
        more = self.device.arange(first, n, np.uint32)
        self.parent = self.device.concatenate([self.parent, more])
        if self.forest is not None:
            self.forest.grow(self.device.astype(more, np.uint64))

    # ---- joined trees ------------------------------------------------------------------------------------------------

    def _largest(self, forest: IncrementalPaths) -> Array:
        """Return the largest of each group of joined trees, by their common parent: uint64[n_vertices].

        The words are ``size << 32 | root``.
        """
        n, trees = len(self.parent), {"words": forest.length, "n": len(self.parent)}
        sizes, largest = self.device.zeros(n, np.uint32), self.device.zeros(n, np.uint64)
        self.kernels.TreeSizes(n, sizes=sizes, **trees)
        self.kernels.LargestTrees(n, sizes=sizes, parent=self.parent, largest=largest, **trees)
        return largest

    def _give_to_largest(self, forest: IncrementalPaths, changed: Struct, changes: EdgeDelta, most: int) -> bool:
        """Give joined trees to the largest; False if about `most` edges move."""
        n, left = len(self.parent), self.device.zeros(1, np.int64)
        largest = self._largest(forest)
        self.kernels.LeaveTrees(n, words=forest.length, n=n, parent=self.parent, largest=largest, left=left)
        arcs = int(self.shard.exchange.allreduce(np.array([self.shard.out_edges.num_edges], np.int64))[0])
        self.left = int(Device.to_host(left)[0])
        if self.left * arcs > most * n:
            return False
        forest.resume(*forest.seeds(changed, changes))
        return True

    # ---- new components ----------------------------------------------------------------------------------------------

    def _add_roots(self, forest: IncrementalPaths, joined: bool) -> bool:
        """Make new components of the vertices that no search reached; False if they are too many."""
        # List the unreached vertices.
        if not joined and not len(forest.cut_off):
            return True
        if joined:
            apart = self._all_unreached(forest)
        else:
            apart = self._unreached(forest, forest.cut_off)
        # Vertices without edges are components; each search from a root finds another.
        if len(apart):
            self._take_lone(forest, apart)
        for _ in range(PIECES):
            apart = self._unreached(forest, apart)
            if len(apart) == 0:
                return True
            root = apart.min().reshape(1)
            forest.resume(root, root.astype(np.uint64))
        return False

    def _all_unreached(self, forest: IncrementalPaths) -> Array:
        """Return vertices that left their trees or were cut off, and no search reached."""
        n, count = len(self.parent), self.device.zeros(1, np.int64)
        apart = self.device.empty(self.left + len(forest.cut_off), np.uint32)
        self.kernels.ListUnreached(n, words=forest.length, n=n, list=apart, found=count)
        return apart[: int(Device.to_host(count)[0])]

    @staticmethod
    def _unreached(forest: IncrementalPaths, vertices: Array) -> Array:
        return vertices[forest.length[vertices] == NONE]

    def _take_lone(self, forest: IncrementalPaths, vertices: Array) -> None:
        """Make components of the vertices without edges: many, after deletions of vertices."""
        shard = self.shard
        own = vertices[(vertices >= shard.lo) & (vertices < shard.hi)]
        for edges in all_neighbor_edges(shard):
            own = own[edges.degrees(own - np.uint32(shard.lo)) == 0]
        for part in shard.exchange.allgather(own):
            forest.length[part] = part.astype(np.uint64)


def _both_ways(device: Device, changes: EdgeDelta) -> EdgeDelta:
    """Return changed arcs and their reverses, not in order."""
    back, twice = reversed_arcs(device, changes), lambda a, b: None if a is None else device.concatenate([a, b])
    columns = {name: twice(getattr(changes, name), getattr(back, name)) for name in ("keys", "kinds", "old", "new")}
    return EdgeDelta(deleted=changes.deleted, **columns)


def _least_ids(shard: Shard, library: Library, parent: Array) -> tuple[Array, int]:
    """Return the label of each root, uint32[n_vertices], and the number of trees. One read-back.

    A label is the first place in `Shard.by_name` of a vertex in the tree.
    """
    n, roots = shard.n_vertices, shard.device.zeros(1, np.int64)
    least = shard.device.full(n, 2**32 - 1, np.uint32)
    library.LeastIds(n, order=shard.by_name, n=n, parent=parent, least=least, roots=roots)
    return least, int(Device.to_host(roots)[0])
