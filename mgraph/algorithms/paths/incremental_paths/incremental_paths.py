"""Incremental shortest paths: lengths maintained under changes of the graph, on a single rank or several.

Every rank has the lengths of all vertices. An edge that was inserted, or got a smaller weight, may give its end a
smaller length. An edge that was deleted, or got a larger weight, may have supported its end, which is now a suspect. A
suspect without another support is cut, and the vertices that it supported become suspects [1]_. In a sparse graph whole
subtrees may be cut at once instead (`paths.incremental_paths.subtree_cut`). Then the vertices that were cut get the
least length that a neighbour gives them, and a search resumes from there and from the ends of inserted edges
(`paths.near_far`).

On a single rank, a vertex that is cut gets a bound if lengths are sums of weights: the lengths of a subtree grow by no
more than the length of its root, and longer paths are not followed. In a model of a torus this saves three to four of
five visits. Sums of floats that begin elsewhere are rounded differently, so the bound has a margin, and a vertex for
which no path below its bound was found is searched again without a bound.

==================== ======================================== ========== ===============================================
step                 launches                                 read-backs exchange
==================== ======================================== ========== ===============================================
suspects             1                                        1, on one  allreduce of a number
                                                              rank none
rounds of suspects   1 for many rounds, on one rank, while    1          nothing
                     few are suspects
whole subtrees       10, instead of rounds                    1          nothing
a round of suspects  2; p more for each list received         2          allreduce of a number; allgathers of 4 bytes
                                                                         per vertex cut, and 4 per suspect
bounds               4 before the search and 1 after it       1          nothing
search               3, and one for each list received;       1          as in `near_far`
                     then as in `near_far`
new lengths          nothing on one rank                      1          allgathers of 8 or 12 bytes per vertex whose
                                                                         length has changed
==================== ======================================== ========== ===============================================

References
----------
.. [1] G. Ramalingam, T. Reps, "An incremental algorithm for a generalization of the shortest-path problem",
   J. Algorithms 21, 1996. The paper checks suspects in the order of their lengths; here, a suspect is checked again
   when one of its supports was cut.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgraph.algorithms.algorithm import LANES, EdgeDelta, Renumbering, Shard, incoming, kernels
from mgraph.algorithms.paths.incremental_paths.counters import CUT, EDGES, LEFT, REFUSED, SEEDS, SUSPECTS, TIED, WORDS
from mgraph.algorithms.paths.incremental_paths.subtree_cut import SubtreeCut
from mgraph.algorithms.paths.near_far.search import (
    BLOCKWISE,
    BLOCKWISE_STEPS,
    BLOCKWISE_TILES,
    BLOCKWISE_TURNS,
    Lengths,
    NearFarSearch,
)
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct
from mgraph.structures import Structure

__all__ = ["IncrementalPaths", "incremental_kernels", "reversed_arcs"]

FILE = "algorithms/paths/incremental_paths/incremental_paths.cuh"
NESTED = 2  #: rounds for roots that are below other roots
SPARSE = 8  #: mean degree up to which paths may be so long that it pays to cut whole subtrees
MANY = 512  #: the most suspects for one kernel on a CPU; on a GPU that is `BLOCKWISE`
PARTS = (32, 8, 2, 1)  #: divisors: a CPU checks more suspects than `MANY` in such parts, one after another
CPU_STEPS = 4  #: steps of `InvalidatePersistent` between two checks of the visited edges; a GPU has `BLOCKWISE_STEPS`
SAMPLE, SPARSEST = 512, 8  #: changed arcs that a CPU samples, if there are at least `SPARSEST` times as many
ENOUGH = 32  #: suspects in a sample from which an estimate is made
UNSURE = 1.5  #: factor by which an estimate of the edges may be too large
FEW, TURNS = 8, 8  #: most suspects for which `InvalidatePersistent` is tried first, and its turns


def incremental_kernels(shard: Shard, lengths: Lengths) -> Library:
    """Return the kernels for lengths of this kind."""
    return kernels(shard, FILE, shard.out_edges.view(), LENGTHS=lengths.bits)


def most_of_sample(every: int, most: int) -> int:
    """Return the most edges that a sample may visit of which an update of `most` edges is expected to fit."""
    return int(most // 2 * min(1, UNSURE / every))


class IncrementalPaths:
    """Lengths of a maintained search.

    Parameters
    ----------
    shard : Shard
    search : NearFarSearch
        A search that has ended, with the lengths of all vertices on every rank.
    source : int
        The vertex that needs no support.
    inward : bool
        True if paths follow edges backwards.
    parents : int64[hi - lo], optional
        The predecessors of the own vertices: for each, the smallest internal id that supports it, -1 for none.

    Attributes
    ----------
    length : uint32 or uint64[n_vertices]
        The lengths of all vertices, the same on every rank.
    tied : bool
        True if a vertex was supported only by a vertex of its own length.
    cut_off : uint32[k]
        The vertices of all ranks that the last call of `apply_changes` has cut.
    edges : int
        The edges that searches of this rank have followed in the last call.
    """

    def __init__(
        self, shard: Shard, search: NearFarSearch, source: int, inward: bool = False, parents: Array = None
    ) -> None:
        self.shard, self.device, self.source, self.inward = shard, shard.device, source, inward
        self.parents = parents
        self.lengths, self.delta = search.lengths, search.delta
        self.kernels, self.edges = incremental_kernels(shard, self.lengths), 0
        self.tied = False
        self.cut_off = self.device.empty(0, np.uint32)
        self._take(search)

    def _take(self, search: NearFarSearch) -> None:
        # Allocate bitmaps, lists and counters.
        device, shard, words = self.device, self.shard, -(-self.shard.n_vertices // 32) + 1
        self.search, self.length = search, search.length
        self.cut, self.listed = device.zeros(words, np.uint32), device.zeros(words, np.uint32)
        self.suspects, self.gone = device.empty(shard.n_vertices, np.uint32), device.empty(search.n, np.uint32)
        self.state, self.counts = device.zeros(WORDS, np.int64), np.zeros(WORDS, np.int64)

        # The search's lists are free until it resumes: roots and bounds use them.
        n, bounded = search.n, self.bounded
        self.tree = Struct(
            length=self.length, none=self.lengths.none, first=shard.lo, n=n, source=self.source,
            cut=self.cut, listed=self.listed, suspects=self.suspects, gone=self.gone,
            root=search.lists[n : 2 * n] if bounded else None,
            rise=search.lists[2 * n : 3 * n].view(np.float32) if bounded else None, state=self.state,
        )  # fmt: skip
        self.subtree_cut = SubtreeCut(search, self.kernels, self.tree)

    @property
    def forward(self) -> Structure:
        """Edges that paths follow."""
        return incoming(self.shard, "this search") if self.inward else self.shard.out_edges

    @property
    def backward(self) -> Structure | None:
        """Reverse of `forward`: the same edges, grouped by destination. None if the graph does not store them."""
        return self.shard.out_edges if self.inward else self.shard.in_edges

    @property
    def bounded(self) -> bool:
        """True if cut vertices get bounds: lengths by weights, single rank."""
        return self.shard.size == 1 and self.lengths.bits > 0

    @property
    def jumps(self) -> bool:
        """True if whole subtrees may be cut: in a sparse graph, if the search may relax blockwise."""
        sparse = self.shard.out_edges.num_edges <= SPARSE * self.search.n
        return sparse and self.bounded and self.search.relaxes_blockwise and self.backward is not None and not self.tied

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        search = self.search
        arrays = (self.length, self.cut, self.listed, self.suspects, self.gone, search.lists, search.marks, search.held)
        return self.subtree_cut.nbytes + sum(
            int(array.nbytes) for array in (*arrays, self.parents) if array is not None
        )

    def grow(self, more: Array) -> None:
        """Append vertices with the lengths `more`."""
        length = self.device.concatenate([self.length, more])
        if self.parents is not None:
            rows = self.shard.hi - self.shard.lo - len(self.parents)
            self.parents = self.device.concatenate([self.parents, self.device.full(rows, -1, np.int64)])
        self._take(NearFarSearch(self.shard, self.lengths, self.delta, self.forward, length))

    def renumber(self, ids: Renumbering, length: Array) -> bool:
        """Adopt new internal ids, and `length` in their order. Returns False if the source was removed.

        At most one read-back.
        """
        self.source = int(ids.new[self.source])
        if self.source < 0:
            return False
        if self.parents is not None:
            parents = self.parents[ids.rows]
            self.parents = self.device.xp.where(parents < 0, parents, ids.new[parents])
        self.cut_off = self.cut_off[:0]
        self._take(NearFarSearch(self.shard, self.lengths, self.delta, self.forward, length))
        return True

    def visited(self) -> int:
        """Return the edges that all ranks visited in the last `apply_changes`."""
        return self._sum(self.edges + int(self.counts[EDGES]))[0]

    # ---- applying changes --------------------------------------------------------------------------------------------

    def apply_changes(self, changes: EdgeDelta, most: int, sampled: bool = False) -> bool | None:
        """Update the lengths to the shard's current edges. Returns True if any may have changed.

        `sampled` says that a sample of the changes has shown that they fit.

        Returns None if it gives up: if about `most` edges would be visited, or half as many to cut vertices; if a
        support is lost and the graph does not store the reverse edges; or if a weight is invalid for a search.
        """
        # Reset the counters, and orient the arcs like the paths.
        self.search.set_edges(self.forward)
        self.edges = 0
        self.device.fill(self.state, 0)
        if self.inward:
            changes = reversed_arcs(self.device, changes)
        changed = Struct(**changes.fields())
        before = self.own.copy() if self.parents is not None else None

        # Cut the vertices that have lost their support: none by hops without deletions.
        gone: list[Array] | None = []
        if changes.deleted or self.lengths.bits:
            if not self._fits(changes, most, sampled):
                return None
            gone = self._invalidate(most // 2, changed, len(changes))
        else:
            self.counts = np.zeros(WORDS, np.int64)
        if gone is None or self.counts[REFUSED]:
            return None
        self.cut_off = gone[0] if len(gone) == 1 else self.device.concatenate([self.gone[:0], *gone])
        if len(self.cut_off) and self._rows_of_cut() > most:
            return None

        # Compute their lengths anew, then the predecessors.
        updated = self._recompute(changed, changes)
        if self.parents is None:
            return updated
        if self.backward is None:
            return None
        self._reparent(changed, changes, before)
        return True

    @property
    def own(self) -> Array:
        """Lengths of the own vertices."""
        return self.length[self.shard.lo : self.shard.hi]

    def read(self) -> np.ndarray:
        """Read back the words of the state."""
        self.counts = Device.to_host(self.state).copy()
        return self.counts

    def _sum(self, *mine: int) -> list[int]:
        if self.shard.size == 1:
            return list(mine)
        totals: list[int] = self.shard.exchange.allreduce(np.array(mine, np.int64)).tolist()
        return totals

    @property
    def _in_parts(self) -> bool:
        """True if much work is done in parts, after which a call may give up: on a CPU, single rank."""
        return self.shard.size == 1 and self.device.kind == "cpu" and self.backward is not None

    def _fits(self, changes: EdgeDelta, most: int, sampled: bool) -> bool:
        """List the suspects. Returns False if they are expected to visit more than `most` edges.

        A CPU lists and checks those of some changed arcs first, if there are many, unless they were `sampled` before.
        """
        every, cut = len(changes) // SAMPLE, 0
        if self._in_parts and every >= SPARSEST and not sampled:
            # Check the suspects of every such arc, and count the edges of the vertices that are cut.
            parts = (changes.keys, changes.kinds, changes.old, changes.new)
            keys, kinds, old, new = (None if part is None else part[::every].copy() for part in parts)
            sample = EdgeDelta(keys, kinds, 1, old, new)
            self.kernels.ListSuspects(len(sample), tree=self.tree, changed=Struct(**sample.fields()), stale=None)
            suspects = int(self.read()[SUSPECTS])
            enough = suspects >= ENOUGH
            if not self._check_suspects(suspects, most // 2, every if enough else 1):
                return False
            cut = int(self.counts[CUT])
            if cut and enough and every * self._rows_of_cut() > UNSURE * most:
                return False

        # List all suspects, among them the vertices that the cut ones supported.
        self.kernels.ListSuspects(
            len(changes), tree=self.tree, changed=Struct(**changes.fields()), stale=self.subtree_cut.stale
        )
        if cut:
            self.kernels.SuspectChildren(cut, graph=self.forward.view(), tree=self.tree, begin=0, end=cut)
        return True

    def _check_suspects(self, count: int, most: int, every: int = 1) -> bool:
        """Cut `count` suspects that no edge supports. A CPU checks many in parts.

        Returns False if they, or `every` times as many, are expected to visit more than `most` edges.
        """
        assert self.backward is not None
        graph, before = self.backward.view(), int(self.counts[EDGES])
        for part in PARTS if self._in_parts and count * every > MANY else (1,):
            self.kernels.CheckSuspects(count // part, graph=graph, tree=self.tree, count=count // part)
            visited = int(self.read()[EDGES])
            if self._in_parts and max(visited, (before + (visited - before) * part * every) / UNSURE) > most:
                return False
        self.device.fill(self.state[:1], 0)
        return True

    def _invalidate(self, most: int, changed: Struct, n: int) -> list[Array] | None:
        """Cut the vertices that have lost their support. Returns lists of them, from all ranks; None to give up."""
        # A single rank tries the cheap ways first: a few turns of one kernel, then whole subtrees.
        backward, gone, begin = self.backward, list[Array](), 0
        alone = self.shard.size == 1 and backward is not None
        if alone and self.device.kind == "cpu" and not self.read()[SUSPECTS]:  # a read costs a CPU nothing
            return [self.gone[: int(self.counts[CUT])]]
        if jumps := self.jumps:
            self._invalidate_persistent(most, gone, FEW, TURNS)
            if self.counts[SUSPECTS] and self.counts[EDGES] <= most:
                assert backward is not None
                self.counts = self.subtree_cut.cut(backward.view(), changed, n)
                self.tied = bool(self.counts[TIED])
                gone = [] if self.tied else [self.gone[: int(self.counts[CUT])]]
        if not alone:
            self.read()
        elif self.tied or not jumps:
            self._invalidate_persistent(most, gone)

        # Rounds until no rank has suspects.
        counts = self.counts
        suspects = self._sum(int(counts[SUSPECTS]))[0]
        while suspects:
            if self.shard.size == 1:
                self.shard.exchange.barrier()  # an aborted call ends here
            if backward is None or (alone and int(counts[EDGES]) > most):
                return None

            # Cut the suspects that no edge supports.
            begin = int(counts[CUT])
            if not self._check_suspects(int(counts[SUSPECTS]), most):
                return None
            counts = self.counts
            end = int(counts[CUT])
            fresh, visited = self._sum(end - begin, int(counts[EDGES]))
            if visited > most:
                return None
            if fresh == 0:
                break

            # The vertices that they supported are the next suspects.
            gone += self._invalidate_everywhere(self.gone[begin:end])
            self.kernels.SuspectChildren(end - begin, graph=self.forward.view(), tree=self.tree, begin=begin, end=end)
            counts = self._invalidate_persistent(most, gone) if alone else self.read()
            if self.shard.size > 1:
                counts = self._swap_suspects(int(counts[SUSPECTS]))
            suspects = self._sum(int(counts[SUSPECTS]))[0]
        return gone

    def _rows_of_cut(self) -> int:
        """Return the edges that were visited, and those that `_recompute` will visit: of all rows that were cut."""
        cut, visited = self.gone[: int(self.counts[CUT])] - np.uint32(self.shard.lo), int(self.counts[EDGES])
        assert self.backward is not None
        same = self.backward is self.forward
        for edges in {id(edges): edges for edges in (self.backward, self.forward)}.values():
            visited += (1 + same) * self.device.total(edges.degrees(cut, checked=True))
        return self._sum(visited)[0]

    def _invalidate_persistent(
        self, most: int, gone: list[Array], few: int | None = None, turns: int = BLOCKWISE_TURNS
    ) -> np.ndarray:
        """Cut vertices by one persistent kernel while few are suspects, on a single rank. Returns the counts.

        The vertices are appended to `gone`.
        """
        backward, forward, search, begin = self.backward, self.forward, self.search, sum(map(len, gone))
        assert backward is not None
        steps = min(BLOCKWISE_STEPS, CPU_STEPS) if self.device.kind == "cpu" else BLOCKWISE_STEPS
        self.kernels.InvalidatePersistent(
            BLOCKWISE_TILES, graph=backward.view(), onward=forward.view(), tree=self.tree, other=search.lists,
            few=max(BLOCKWISE[self.device.kind], MANY) if few is None else few, most=most,
            turns=turns * BLOCKWISE_STEPS // steps, steps=steps, same=int(backward is forward), arrived=search.arrived,
        )  # fmt: skip
        counts = self.read()
        gone.append(self.gone[begin : int(counts[CUT])])
        return counts

    def _invalidate_everywhere(self, own: Array) -> list[Array]:
        """Announce the cut vertices `own` to all ranks. Returns all ranks' lists."""
        if self.shard.size == 1:
            return [own]
        parts = list(self.shard.exchange.allgather(own.copy()))
        for rank, part in enumerate(parts):
            if rank != self.shard.rank:
                self.kernels.MarkInvalid(len(part), tree=self.tree, list=part, n=len(part))
        return parts

    def _swap_suspects(self, n: int) -> np.ndarray:
        """Send suspects to their owners. Returns the counts after the exchange."""
        suspects = self.suspects[:n].copy()
        self.kernels.Unlist(n, tree=self.tree, list=suspects, n=n)
        self.device.fill(self.state[:1], 0)
        for part in self.shard.exchange.allgather(suspects):
            self.kernels.ReceiveSuspects(len(part), tree=self.tree, list=part, n=len(part))
        return self.read()

    def _recompute(self, changed: Struct, changes: EdgeDelta) -> bool:
        """Recompute the lengths of cut vertices, and reduce lengths after insertions. True if any may have changed."""
        # Reset the cut vertices, and resume the search from the vertices that their neighbours reach.
        lost, cut = self.cut_off, int(self.counts[CUT])
        listed = {"tree": self.tree, "list": lost, "n": len(lost)}
        bounds = self._bounds(cut) if self.bounded and cut else None
        if len(lost):
            self.kernels.ForgetLengths(len(lost), **listed, bounds=bounds)
        seeds = self.seeds(changed, changes, cut)
        if len(lost):
            self.kernels.UnmarkInvalid(len(lost), **listed)
        updated = self.resume(*seeds, len(lost) > 0)

        # Search again, without bounds, for vertices that were not reached below their bounds.
        if bounds is not None:
            self.kernels.DropUnreached(len(lost), **listed, bounds=bounds)
            if self.read()[LEFT]:
                self.resume(*self.seeds(changed, changes, cut))
        return updated

    def _bounds(self, cut: int) -> Array:
        """Bound the increase of the roots' lengths; allocate bounds for the `cut` vertices."""
        assert self.backward is not None
        graph = self.backward.view()
        for nested in range(NESTED + 1):
            self.kernels.RiseOfRoots(-(-cut // LANES), graph=graph, tree=self.tree, count=cut, nested=nested)
        return self.device.empty(cut, self.lengths.word)

    def seeds(self, changed: Struct, changes: EdgeDelta, cut: int = 0) -> tuple[Array, Array]:
        """Return the sources of the next search and their lengths.

        They are the ends of changed arcs that get smaller lengths, the same on every rank, and those of the `cut` own
        vertices that a neighbour reaches. A vertex may occur several times.
        """
        n, room, backward = len(changes), len(changes) + cut, self.backward
        seeds, words = self.device.empty(room, np.uint32), self.device.empty(room, np.uint64)
        self.device.fill(self.state[SEEDS : SEEDS + 1], 0)
        if backward is not None and cut:
            self.kernels.SeedInvalid(cut, graph=backward.view(), tree=self.tree, count=cut, seeds=seeds, words=words)
        if changes.deleted < n:
            self.kernels.SeedInserted(n, tree=self.tree, changed=changed, seeds=seeds, words=words)
        n = int(self.read()[SEEDS])
        return seeds[:n], words[:n]

    def resume(self, sources: Array, words: Array, changed: bool = False) -> bool:
        """Resume the search from `sources` with the lengths `words`. True if any length may have changed."""
        several = self.shard.size > 1
        if not self._sum(len(sources))[0]:
            return changed
        before = self.own.copy() if several else None
        self.search.resume(sources, words)
        self.edges += self.search.edges
        if several:
            self._share(before)
        return True

    def _share(self, before: Array) -> None:
        """Send the own lengths that differ from `before` to all ranks."""
        shard, ids = self.shard, self._differing(before)
        words = self.device.gather(self.length, ids)
        all_words = shard.exchange.allgather(words)
        for rank, part in enumerate(shard.exchange.allgather(ids)):
            if rank != shard.rank:
                self.device.scatter(self.length, part, all_words[rank])

    def _differing(self, before: Array) -> Array:
        """Return the own vertices whose lengths differ from `before`."""
        n = self.search.n
        with self.device.taking(17 * n, f"the lengths of {n} vertices that have changed"):
            return self.device.xp.flatnonzero(self.own != before).astype(np.uint32) + np.uint32(self.shard.lo)

    def _reparent(self, changed: Struct, changes: EdgeDelta, before: Array) -> None:
        """Recompute predecessors of changed arcs' ends, of vertices whose lengths differ, and of their successors."""
        # List the vertices whose predecessors may have changed.
        self.device.fill(self.state[:1], 0)
        self.kernels.ListEnds(len(changes), tree=self.tree, changed=changed)
        ids = self._differing(before)
        assert self.backward is not None
        self.kernels.ListNeighbors(len(ids), graph=self.forward.view(), tree=self.tree, list=ids, n=len(ids))

        # Their owners find the predecessors.
        count = int(self.read()[SUSPECTS])
        if self.shard.size > 1:
            count = int(self._swap_suspects(count)[SUSPECTS])
        self.kernels.FindParents(count, graph=self.backward.view(), tree=self.tree, count=count, parents=self.parents)
        self.read()

    def results(self) -> tuple[Array, dict[str, int]]:
        """Return the own lengths in the result's dtype, the number of reached vertices, and the levels."""
        shard, dtype = self.shard, np.int32 if self.lengths.bits == 0 else self.lengths.word
        out, counts = self.device.empty(self.search.n, dtype), self.device.zeros(2, np.int64)
        self.kernels.ResultLengths(self.search.n, tree=self.tree, out=out, found=counts)
        here = Device.to_host(counts).copy()
        levels = int(here[1])
        if self.lengths.bits == 0 and shard.size > 1:
            levels = int(shard.exchange.allreduce(here[1:], "max")[0])
        return out, {"reached": self._sum(int(here[0]))[0], "levels": levels}


def reversed_arcs(device: Device, changes: EdgeDelta) -> EdgeDelta:
    """Return the changes with each arc reversed."""
    with device.taking(16 * len(changes), f"{len(changes)} changed arcs"):
        keys = changes.keys << np.uint64(32) | changes.keys >> np.uint64(32)
    return replace(changes, keys=keys)
