"""Maintained triangles: the exact difference of the changed edges.

For each changed edge, the row of its end of smaller degree is sent to the owner of the other end, which searches these
neighbours there. So an edge takes as many searches as that row is long. Triangles of two or three deleted edges are
found by the pairs of deleted edges that meet at a vertex. An order among the changed edges keeps a triangle of several
of them from counting twice.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.algorithms.algorithm import LANES, ApplyResult, Columns, EdgeDelta, Maintained, Renumbering, Shard, kernels
from mgraph.algorithms.density.triangles.program import run
from mgraph.device import Array
from mgraph.kernels import Struct, constants
from mgraph.structures import Run

__all__ = ["Triangles"]

FILE = "algorithms/density/triangles/difference.cuh"
SEARCHES, COUNTED, IDS, UNITS, PAIRS, TRIANGLES, SENT, DEGREES = range(8)
assert len(constants(FILE).enums["Totals"]) == 8
NO_ARC = 2**64 - 1


class Triangles(Maintained):
    """Triangles at each own vertex of a rank.

    Attributes
    ----------
    counts : int64[hi - lo]
    total, pairs : int
        The triangles of the graph, and the sum over all vertices of the pairs of their neighbours.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.device = shard, shard.device
        self.kernels = kernels(shard, FILE, shard.out_edges.view())
        columns, info = run(shard)
        self.counts, self.total, self.pairs = columns["triangles"], info["total"], info["pairs"]

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self.counts.nbytes)

    def columns(self) -> Columns:
        """Return the triangles at each own vertex, and those of the graph."""
        return {"triangles": self.counts.copy()}, {"total": self.total, "pairs": self.pairs}

    # ---- following changes -------------------------------------------------------------------------------------------

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Implement `Maintained.apply_changes`."""
        # Find the end of smaller degree of each changed edge.
        self._grow()
        device, n = self.device, len(changes)
        self.edges = Struct(keys=changes.keys, kinds=changes.kinds, n=n)
        self.totals = device.zeros(8, np.int64)
        own, (lengths, units, dead) = self._own(None), (device.empty(n, np.int64) for _ in range(3))
        self.lower, self.upper = device.empty(n, np.uint32), device.empty(n, np.uint32)
        self.kernels.LowerEnds(
            n, graph=self.shard.out_edges.view(), edges=self.edges, own=own, degrees=self._degrees(n),
            lower=self.lower, upper=self.upper, lengths=lengths, units=units, dead=dead,
        )  # fmt: skip

        # Estimate the work, and give up if it is too much.
        gone, offsets = self._deleted_edges(changes.deleted, dead)
        totals = device.to_host(self.totals).copy()
        visited = int(totals[SEARCHES] + totals[PAIRS])
        if visited > most:
            return None

        # Count the triangles of changed edges.
        if totals[COUNTED]:
            sent = self._with_neighbours(lengths, units, totals)
            sent.append(self._of_pairs(gone, offsets, int(totals[PAIRS])))
            self._add(sent)
        return ApplyResult(visited, bool(totals[COUNTED]))

    def renumber(self, ids: Renumbering) -> bool:
        """Implement `Maintained.renumber`."""
        self.counts = self.counts[ids.rows]
        return True

    def _grow(self) -> None:
        more = self.shard.hi - self.shard.lo - len(self.counts)
        if more:
            self.counts = self.device.concatenate([self.counts, self.device.zeros(more, np.int64)])

    def _sum(self, *mine: int) -> list[int]:
        sums: list[int] = self.shard.exchange.allreduce(np.array(mine, np.int64)).tolist()
        return sums

    def _own(self, sent: Array) -> Struct:
        shard = self.shard
        return Struct(lo=shard.lo, hi=shard.hi, counts=self.counts, sent=sent, totals=self.totals)

    def _room(self, corners: int) -> Array:
        """Allocate room for corners of other ranks' vertices."""
        return self.device.empty(corners if self.shard.size > 1 else 0, np.uint64)

    def _degrees(self, n: int) -> Array:
        """Return the degrees of the changed arcs' sources, then of their destinations; equal on every rank."""
        shard, mine = self.shard, self.device.empty(2 * n, np.uint32)
        self.kernels.EndDegrees(
            n, graph=shard.out_edges.view(), edges=self.edges, lo=shard.lo, hi=shard.hi, degrees=mine
        )
        degrees, *others = shard.exchange.allgather(mine)
        for theirs in others:
            degrees = degrees + theirs
        return degrees

    def _deleted_edges(self, n: int, dead: Array) -> tuple[Array, Array]:
        """Return the deleted arcs without self-loops, then `NO_ARC`, and the number of pairs before each."""
        device, offsets = self.device, self.device.zeros(n + 1, np.int64)
        gone, later = device.full(n, NO_ARC, np.uint64), device.empty(n, np.int64)
        if n:
            self.kernels.ListGone(len(dead), edges=self.edges, upto=device.cumsum(dead, out=dead), gone=gone)
            self.kernels.Later(n, gone=gone, n=n, later=later, totals=self.totals)
            device.cumsum(later, out=offsets[1:])
        return gone, offsets

    def _with_neighbours(self, lengths: Array, units: Array, totals: np.ndarray) -> list[Array]:
        """Count triangles of a changed edge with existing edges.

        Returns the corners of other ranks' vertices.
        """
        corners = []
        for edges, rows, ids in self._rows_sent(lengths, units, totals):
            n, sent = len(ids), self._room(3 * len(ids))
            self.kernels.CloseEdges(
                -(-n // LANES), graph=self.shard.out_edges.view(), edges=self.edges, own=self._own(sent),
                lower=self.lower, upper=self.upper, list=edges, offsets=self._offsets(rows), listed=len(edges),
                ids=ids, n=n,
            )  # fmt: skip
            corners.append(self._taken(sent))
        return corners

    def _offsets(self, lengths: Array) -> Array:
        offsets = self.device.zeros(len(lengths) + 1, np.int64)
        self.device.cumsum(lengths, out=offsets[1:])
        return offsets

    def _rows_sent(self, lengths: Array, units: Array, totals: np.ndarray) -> list[tuple[Array, ...]]:
        """Exchange rows: the edges whose upper ends are here, the lengths of their lower ends' rows, and these rows."""
        # Sort the edges by the owner of the upper end.
        shard, device, xp = self.shard, self.device, self.device.xp
        if shard.size == 1:
            edges, cuts = device.arange(0, len(lengths), np.uint32), np.array([0, len(lengths)])
        else:
            edges = xp.flatnonzero(lengths).astype(np.uint32)
            starts = device.asarray(np.asarray(shard.partition.starts[1:-1], np.int64))
            owner = xp.searchsorted(starts, self.upper[edges].astype(np.int64), side="right")
            order = xp.argsort(owner, kind="stable")
            edges, owner = edges[order], owner[order]
            lengths, units = lengths[edges], units[edges]
            cuts = device.to_host(xp.searchsorted(owner, xp.arange(shard.size + 1)))

        # Copy the rows of the lower ends.
        n, n_units = int(totals[IDS]), int(totals[UNITS])
        offsets, ids = self._offsets(lengths), device.empty(n, np.uint32)
        self.kernels.RowIds(
            n_units, graph=shard.out_edges.view(), lo=shard.lo, lower=self.lower, list=edges, offsets=offsets,
            units=self._offsets(units), listed=len(edges), n=n_units, used=device.zeros(len(edges), np.int64), ids=ids,
        )  # fmt: skip

        # Send each owner its edges, lengths and rows.
        at = cuts.tolist()
        to = [0, n] if shard.size == 1 else device.to_host(offsets[device.asarray(cuts)]).tolist()
        columns = ((edges, at), (lengths, at), (ids, to))
        sent = (shard.exchange.alltoallv([c[a:b] for a, b in pairwise(bounds)]) for c, bounds in columns)
        return list(zip(*sent, strict=True))

    def _of_pairs(self, gone: Array, offsets: Array, n: int) -> Array:
        """Count triangles of two or three deleted edges.

        Returns the corners of other ranks' vertices.
        """
        sent = self._room(3 * n)
        self.kernels.ClosePairs(
            n, graph=self.shard.out_edges.view(), edges=self.edges, own=self._own(sent), gone=gone, offsets=offsets,
            n_gone=len(gone), n=n,
        )  # fmt: skip
        return self._taken(sent)

    def _taken(self, sent: Array) -> Array:
        """Return the part of `sent` that a kernel has written."""
        if self.shard.size == 1:
            return sent
        count = self.totals[SENT : SENT + 1]
        n = int(self.device.to_host(count)[0])
        self.device.fill(count, 0)
        return sent[:n]

    def _add(self, sent: list[Array]) -> None:
        """Add the corners of other ranks, and update the totals."""
        shard, device = self.shard, self.device
        if shard.size > 1:
            corners = device.concatenate(sent)
            device.sort(corners)
            for part in shard.exchange.alltoallv([part.keys for part in Run(corners).split(shard.partition.starts)]):
                self.kernels.AddCorners(len(part), own=self._own(None), corners=part, n=len(part))
        n = self.edges.values["n"]
        self.kernels.CountPairs(n, graph=shard.out_edges.view(), edges=self.edges, own=self._own(None))
        totals = device.to_host(self.totals)
        triangles, grown = self._sum(int(totals[TRIANGLES]), int(totals[DEGREES]))
        self.total, self.pairs = self.total + triangles, self.pairs + grown // 2
