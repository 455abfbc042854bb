"""Maintained connected components.

Each rank keeps a spanning forest of its arcs (`Links`), and every rank knows a path from each vertex to its root. An
inserted arc between two trees joins them. A deleted arc matters only if the forest has it. Then `Relink` searches a
replacement near the vertex that was cut off: in its row, and in the rows of the few vertices below it. Without one,
these vertices are a component. On several ranks and in directed graphs, only the row of the cut vertex is searched.

If a vertex stays loose, the program of a fresh run (`forest.cuh`) makes the forest again. It begins with the patches
into which the old forest was cut, and reads only rows outside the largest patch. If that would take longer than a fresh
run, or leave many small patches, the result is computed anew without a forest. The next deletions make one by a fresh
run, so graphs without deletions need none.

=================== ======== ========== ============================================
step                launches read-backs exchange
=================== ======== ========== ============================================
cut, relink, join   3        1          allreduce of a number, after deletions
names of new trees  1        nothing    nothing
forest again        2        nothing    as in a fresh run
labels              1        nothing    nothing; of the forest made again, nothing
least names         1        1          nothing; once, and after parts were cut off
=================== ======== ========== ============================================
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Maintained, Renumbering, Shard, kernels
from mgraph.algorithms.communities.components.program import UNLINKED, Links, connect
from mgraph.algorithms.primitives.bitmaps import words_of
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Array, Device
from mgraph.kernels import Struct, constants

__all__ = ["Components"]

FILE = "algorithms/communities/components/maintain.cuh"
JOINS, CUT, LOOSE, PARTED, EDGES, LINKED = range(6)
assert len(constants(FILE, HUB_DEGREE=64).enums["Counted"]) == 6
SAMPLES = 8  #: sampled rows per patch, in the mean: their first edges are followed before the largest patch is sought
PATCH = 128  #: mean vertices per patch from which a forest is made
SMALL = 1 << 15  #: smaller graphs may have as many patches as a graph with this many vertices
LOW = np.uint64(2**32 - 1)


class Components(Maintained):
    """Maintained components of a rank.

    Attributes
    ----------
    parent : uint32[n_vertices]
        Ways from each vertex of the graph to its root, the component's smallest vertex. Own vertices have their roots
        once they have labels: so no read visits the vertices of other ranks.
    flat : bool
        True if all vertices have their roots.
    links : Links or None
        This rank's forest. None until arcs are deleted.
    labels : int64[hi - lo] or None
        The result, until it is asked for, if the forest was made just now.
    least : uint32[n_vertices] or None
        The label by root, once the result was asked for and until the trees change.
    trees : int
        The number of trees, known with `labels` and with `least`.
    named : uint32[n_vertices] or None
        The order of the vertices' names with which `labels` or `least` was found.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.device = shard, shard.device
        self.kernels = kernels(shard, FILE, shard.out_edges.view())
        self._connect(keep=False)

    def _connect(self, keep: bool, kept: Array = None, stride: int = 1) -> None:
        """Find the components, from `kept` arcs of the last forest. Keep the forest if `keep` is true."""
        shard, device, n = self.shard, self.device, self.shard.n_vertices
        self.links: Links | None = Links(device.empty(n, np.uint64), device.zeros(n, np.uint8)) if keep else None
        self.least, self.named, self.flat = None, shard.by_name, True
        self.parent, self.labels, self.trees = connect(shard, self.links, kept, stride)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        arrays = (self.parent, self.labels, self.least, self.links)
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def columns(self) -> Columns:
        """Return the label of each own vertex's component."""
        labels, self.labels = self.labels, None
        if self.named is not self.shard.by_name:
            self.least, labels = None, None
        if labels is None:
            if self.least is None:
                self._name()
            rows = self.shard.hi - self.shard.lo
            labels = self.device.empty(rows, np.int64)
            self.kernels.Label(
                rows, first=self.shard.lo, rows=rows, parent=self.parent, least=self.least, labels=labels
            )  # fmt: skip
            self.flat |= rows == self.shard.n_vertices
        return {"component": labels}, {"components": self.trees, "supersteps": 1}

    def _name(self) -> None:
        """Find each root's name, the first place in `Shard.by_name` of a vertex in its tree, and count the trees."""
        n, trees, names = self.shard.n_vertices, self.device.zeros(1, np.int64), vertex_labels(self.shard)
        self.named = self.shard.by_name
        self.least = self.device.arange(0, n, np.uint32) if names is None else names.copy()
        self.kernels.LeastNames(
            n, names=names, n=n, parent=self.parent, least=self.least, roots=trees
        )  # fmt: skip
        self.trees, self.flat = int(Device.to_host(trees)[0]), True

    # ---- following changes -------------------------------------------------------------------------------------------

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult:
        """Implement `Maintained.apply_changes`. Gives up after deletions that cut the forest into many patches."""
        self._grow()
        shard, device, n, kept = self.shard, self.device, self.shard.n_vertices, self.links
        if kept is None and changes.deleted:
            self._connect(keep=True)
            return ApplyResult(0, True, "anew")
        changed, arcs, words = Struct(**changes.fields()), len(changes), words_of(n) if changes.deleted else 0
        state, stumps, suspects, cut, joined = device.carve(
            (6, np.int64), (words, np.uint32), (words, np.uint32), (arcs, np.uint64), (arcs, np.uint64)
        )
        for zeros in (state, stumps, suspects) if words else (state,):
            device.fill(zeros, 0)
        links = Struct(
            of=kept and kept.arcs, hooks=kept and kept.hooks, stumps=stumps, suspects=suspects, parent=self.parent,
            cut=cut, joined=joined, state=state,
        )  # fmt: skip

        # Cut the vertices that deleted arcs linked, and link them again. Inserted arcs join trees.
        parts = int(shard.size == 1 and shard.in_edges is shard.out_edges)
        if changes.deleted:
            if parts and not self.flat:
                self._name()
            self.kernels.CutLinks(arcs, changed=changed, links=links)
            self.kernels.Relink(
                arcs, graph=shard.out_edges.view(), first=shard.lo, rows=shard.hi - shard.lo, links=links,
                parts=parts,
            )  # fmt: skip
            if shard.size > 1:
                state[:] = device.asarray(shard.exchange.allreduce(Device.to_host(state)))
        self.kernels.JoinArcs(arcs, changed=changed, links=links)
        counts = Device.to_host(state).tolist()

        # If a rank has a loose vertex, make the forest again from its patches. Small patches do not pay.
        if kept is not None and counts[LOOSE]:
            cuts = max(1, counts[CUT])
            if cuts * PATCH > max(n, SMALL):
                return ApplyResult(counts[EDGES], True, "gave up")
            self.kernels.CutHooks(n, changed=changed, links=links, n=n)
            self._connect(True, kept.arcs, max(1, n // (SAMPLES * cuts)))
            return ApplyResult(counts[EDGES], True)
        joins, parted = counts[JOINS], counts[PARTED]
        if joins or parted:
            self.labels, self.flat = None, False
        if parted:
            self.least = None
        elif joins and self.least is not None:
            self.trees -= counts[LINKED]
            roots = 2 * joins
            self.kernels.NameJoined(
                roots, joined=joined.view(np.uint32), n=roots, parent=self.parent, least=self.least
            )  # fmt: skip
        return ApplyResult(counts[EDGES], joins > 0 or parted > 0)

    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids. The vertices that were removed had no edges."""
        device, xp = self.device, self.device.xp
        self.parent = ids.new[self.parent[ids.kept]].astype(np.uint32)
        self.least = self.labels = None
        # Both ends of an arc are still there, in the same order.
        if self.links is None:
            return True
        arcs = self.links.arcs[ids.kept]
        linked = xp.flatnonzero(arcs != UNLINKED)
        ends = arcs[linked]
        arcs[linked] = self._new(ids, ends >> np.uint64(32)) << np.uint64(32) | self._new(ids, ends & LOW)
        self.links = Links(arcs, device.zeros(len(arcs), np.uint8))
        self.kernels.NoteHooks(len(arcs), arcs=arcs, hooks=self.links.hooks, n=len(arcs))
        return True

    @staticmethod
    def _new(ids: Renumbering, vertices: Array) -> Array:
        return ids.new[vertices.astype(np.int64)].astype(np.uint64)

    def _grow(self) -> None:
        device, first, n = self.device, len(self.parent), self.shard.n_vertices
        if first == n:
            return
        self.least = self.labels = None
        self.parent = device.concatenate([self.parent, device.arange(first, n, np.uint32)])
        if self.links is None:
            return
        self.links = Links(
            device.concatenate([self.links.arcs, device.full(n - first, UNLINKED, np.uint64)]),
            device.concatenate([self.links.hooks, device.zeros(n - first, np.uint8)]),
        )
