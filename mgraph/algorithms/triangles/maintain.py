"""Triangles that follow the graph: the exact difference that the changed edges make.

For each changed edge, the row of its end of smaller degree is sent to the owner of the other end, which looks for the
same neighbours there. So an edge takes as many searches as that row is long. Triangles of two or three deleted edges
are found by the pairs of deleted edges that meet at a vertex. An order among the changed edges keeps a triangle of
several of them from counting twice.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.algorithms.algorithm import Changes, Columns, Followed, Shard, by_source, kernels
from mgraph.algorithms.triangles.program import run
from mgraph.device import Array
from mgraph.kernels import Struct
from mgraph.structures import Run
from mgraph.structures.plan import DELETED, UPDATED

__all__ = ["Triangles"]

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


class Triangles:
    """The triangles at each own vertex on one rank.

    Attributes
    ----------
    counts : int64[hi - lo]
    total, pairs : int
        The triangles of the graph, and the sum over all vertices of the pairs of their neighbours.
    """

    takes_deletions = True

    def __init__(self, shard: Shard) -> None:
        self.shard, self.device = shard, shard.device
        self.kernels = kernels(shard, "algorithms/triangles/difference.cuh", shard.out_edges.view())
        columns, info = run(shard)
        self.counts, self.total, self.pairs = columns["triangles"], info["total"], info["pairs"]

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self.counts.nbytes)

    def columns(self) -> Columns:
        """The triangles at each own vertex, and those of the graph."""
        return {"triangles": self.counts.copy()}, {"total": self.total, "pairs": self.pairs}

    # ---- following changes -------------------------------------------------------------------------------------------

    def follow(self, changes: Changes, most: int) -> Followed | None:
        """Bring the counts up to date; see `mgraph.algorithms.algorithm.Maintained`."""
        self._grow()
        device, xp = self.device, self.device.xp
        with device.taking(48 * len(changes), f"{len(changes)} changed edges"):
            src, dst = changes.keys >> HALF, changes.keys & LOW
            counted = (src != dst) & (changes.kinds != UPDATED)
            arcs, kinds = changes.keys[counted], changes.kinds[counted]
            forward = (src < dst)[counted]
            gone, offsets = arcs[kinds == DELETED], device.zeros(1, np.int64)
            if len(gone):
                ends = xp.searchsorted(gone, ((gone >> HALF) + np.uint64(1)) << HALF)
                later = ends - xp.arange(len(gone)) - 1  # deleted arcs after each from the same vertex
                offsets = xp.concatenate([offsets, xp.cumsum(later)]).astype(np.int64)
        self.edges = Struct(keys=arcs[forward], kinds=kinds[forward], n=int(forward.sum()))
        lower, upper, searches = self._ends(arcs[forward])
        n_pairs = int(offsets[-1])
        if searches + n_pairs > most:
            return None
        found = [*self._with_neighbours(lower, upper), self._of_pairs(gone, offsets, n_pairs)]
        self._add(device.concatenate(found))
        self._count_pairs(arcs, kinds)
        return Followed(searches + n_pairs, len(arcs) > 0)

    def _grow(self) -> None:
        more = self.shard.hi - self.shard.lo - len(self.counts)
        if more:
            self.counts = self.device.concatenate([self.counts, self.device.zeros(more, np.int64)])

    def _own(self, vertices: Array) -> Array:
        return (vertices >= self.shard.lo) & (vertices < self.shard.hi)

    def _ends(self, keys: Array) -> tuple[Array, Array, int]:
        """The lower and the upper end of each edge, and the sum of the lower ends' degrees; the same on every rank."""
        device, shard, n = self.device, self.shard, len(keys)
        ends = device.concatenate([(keys >> HALF).astype(np.uint32), keys.astype(np.uint32)])
        own, mine = self._own(ends), device.zeros(2 * n, np.uint32)
        mine[own] = shard.out_edges.degrees(ends[own] - np.uint32(shard.lo))
        degrees, *others = shard.exchange.allgather(mine)
        for theirs in others:
            degrees = degrees + theirs
        lower, upper = device.empty(n, np.uint32), device.empty(n, np.uint32)
        self.kernels.LowerEnds(n, edges=self.edges, degrees=degrees, lower=lower, upper=upper)
        least = device.xp.minimum(degrees[:n], degrees[n:])
        return lower, upper, int(least.sum(dtype=np.int64))

    def _with_neighbours(self, lower: Array, upper: Array) -> list[Array]:
        """What triangles of a changed edge with edges that are there add to their corners."""
        device, found = self.device, []
        for edges, lengths, ids in self._rows_sent(lower, upper):
            n, offsets = len(ids), device.zeros(len(edges) + 1, np.int64)
            device.cumsum(lengths, out=offsets[1:])
            adds, places = device.empty(n, np.int8), device.empty(n, np.uint32)
            self.kernels.CloseEdges(
                n, graph=self.shard.out_edges.view(), edges=self.edges, lo=self.shard.lo, lower=lower, upper=upper,
                list=edges, offsets=offsets, listed=len(edges), ids=ids, n=n, adds=adds, places=places,
            )  # fmt: skip
            hits = device.xp.flatnonzero(adds)
            edge = places[hits]
            found += [_corners(vertices, adds[hits]) for vertices in (lower[edge], upper[edge], ids[hits])]
        return found

    def _rows_sent(self, lower: Array, upper: Array) -> list[tuple[Array, ...]]:
        """From each rank the edges whose upper ends are here, the lengths of their lower ends' rows, and the rows."""
        shard, device, xp = self.shard, self.device, self.device.xp
        edges = xp.flatnonzero(self._own(lower)).astype(np.uint32)
        starts = device.asarray(np.asarray(shard.partition.starts[1:-1], np.int64))
        owner = xp.searchsorted(starts, upper[edges].astype(np.int64), side="right")
        order = xp.argsort(owner, kind="stable")
        edges, owner = edges[order], owner[order]
        csr = shard.out_edges.neighbors(lower[edges] - np.uint32(shard.lo))
        lengths = xp.diff(csr.offsets).astype(np.uint32)
        cuts = xp.searchsorted(owner, xp.arange(shard.size + 1))
        at, to = (device.to_host(bounds).tolist() for bounds in (cuts, csr.offsets[cuts]))
        columns = ((edges, at), (lengths, at), (csr.dst, to))
        sent = (shard.exchange.alltoallv([c[a:b] for a, b in pairwise(bounds)]) for c, bounds in columns)
        return list(zip(*sent, strict=True))

    def _of_pairs(self, gone: Array, offsets: Array, n: int) -> Array:
        """What triangles of two or three deleted edges add to their corners."""
        device, shard = self.device, self.shard
        adds, corners = device.empty(n, np.int8), device.empty(3 * n, np.uint32)
        self.kernels.ClosePairs(
            n, graph=shard.out_edges.view(), edges=self.edges, lo=shard.lo, hi=shard.hi, arcs=gone, offsets=offsets,
            n_arcs=len(gone), n=n, adds=adds, corners=corners,
        )  # fmt: skip
        adds = device.repeat(adds, 3)
        hits = device.xp.flatnonzero(adds)
        return _corners(corners[hits], adds[hits])

    def _add(self, corners: Array) -> None:
        """Add to the counts of all ranks what the triangles that this one has found add to their corners."""
        shard, device = self.shard, self.device
        added = int((corners & LOW).sum()) - len(corners)
        self.total += int(shard.exchange.allreduce(np.array([added], np.int64))[0]) // 3
        device.sort(corners)
        for part in shard.exchange.alltoallv([part.keys for part in Run(corners).split(shard.partition.starts)]):
            self.kernels.AddCorners(len(part), corners=part, n=len(part), lo=shard.lo, counts=self.counts)

    def _count_pairs(self, arcs: Array, kinds: Array) -> None:
        """Bring the pairs of neighbours up to date, by the degrees of the ends of the changed arcs."""
        shard, edges = self.shard, self.shard.out_edges
        own = self._own(arcs >> HALF)
        vertices, _, more = by_source(self.device, arcs[own], kinds[own])
        rows = vertices - np.uint32(shard.lo)
        now = edges.degrees(rows).astype(np.int64) - edges.has_edges(rows, vertices)
        before = now - more
        differ = (now * (now - 1) - before * (before - 1)).sum() // 2
        self.pairs += int(shard.exchange.allreduce(np.array([int(differ)], np.int64))[0])


def _corners(vertices: Array, adds: Array) -> Array:
    """Words for `AddCorners`."""
    words: Array = vertices.astype(np.uint64) << HALF | (adds + np.int8(1)).astype(np.uint64)
    return words
