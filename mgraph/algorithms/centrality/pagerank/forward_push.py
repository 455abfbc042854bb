"""PageRank by forward push from changed edges, on each rank: residuals are pushed while they are large.

If a teleport and a jump from a vertex without edges lead to the same distribution, ranks are proportional to the
solution x of ``x = b + alpha P' x``: b is that distribution, and P' the transition matrix, transposed. The residual r
is what x lacks. A changed edge changes the residuals of its source's neighbours. A vertex whose residual is above a
limit adds it to its x, and pushes alpha times of it to its out-neighbours, round by round [1]_.

The L1 distance of x to the solution is at most the L1 norm of r, divided by ``1 - alpha``, and that of the ranks at
most twice as much over the sum of x. `ForwardPush.error` has the unit of the tolerance of
`centrality.pagerank.program`: the distance is at most ``alpha / (1 - alpha)`` times the error.

A round costs 4 launches, 5 if there may be hubs, two read-backs and an allreduce; on several ranks also a sort, and
alltoallvs of 12 bytes per vertex of another rank with a push to it. On one rank, a persistent kernel makes many rounds
while few residuals are large. Before a round of many rows, their edges are counted: one more launch and read-back.

The error falls by about the same factor with each edge visited, later by less. So from two errors it is known how many
edges it will take at least, and a push that would take too long gives up.

References
----------
.. [1] F. McSherry, "A uniform approach to accelerated PageRank computation", WWW 2005.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from mgraph.algorithms.algorithm import LANES, EdgeDelta, Renumbering, Shard, kernels, task_room
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct

__all__ = ["ForwardPush", "Pushes"]

LISTED, NEXT, EDGES, TASKS = range(4)
FEW = {
    "cuda": 1 << 15,
    "cpu": 2048,
}  #: rows up to which a persistent kernel is faster than a launch and a read-back per round
UNSURE = 1.5  #: factor by which an estimate of the edges, from two errors, may be too large
MOST = 2.0**62  #: the largest limit of residuals in fixed point; no sum exceeds it
ROUNDS = 256  #: rounds per launch, after which the host checks for an abort


class Pushes:
    """Pushes along all edges of rows, summed in fixed point and added to residuals.

    Attributes
    ----------
    flow : Struct
        The fields of ``Flow``.
    state, list : int64[8], uint32[n_vertices]
        Its counts, and the vertices with a push to them.
    edges : int
        The edges that this rank visited.
    lost : float
        What rounding has cut off at most.
    """

    shard: Shard
    device: Device
    kernels: Library
    flow: Struct
    state: Array
    list: Array
    one: float
    edges: int
    lost: float

    def _hand_on(self, rows: Array, count: int) -> None:
        view, room = self.shard.out_edges.view(), task_room(self.shard.out_edges)
        self.device.fill(self.state, 0)
        tasks = self.device.empty(room, np.uint64)
        arguments = {"graph": view, "flow": self.flow, "tasks": tasks}
        self.kernels.HandOn(-(-count // LANES), rows=rows, count=count, **arguments)
        self.kernels.HandOnHubs(room, **arguments)

    def _end_round(self) -> int:
        """Add the pushes to residuals.

        Returns the number of own rows above the limit.
        """
        state = self.device.to_host(self.state).copy()
        self.edges += int(state[EDGES])
        self.lost += int(state[EDGES]) / self.one
        listed = int(state[LISTED])
        if self.shard.size > 1:
            listed = self._swap(listed)
        self.kernels.EndRound(listed, flow=self.flow, count=listed)
        return int(self.device.to_host(self.state)[NEXT])

    def _swap(self, listed: int) -> int:
        """Send the pushes to vertices of other ranks.

        Returns the number of listed vertices then.
        """
        # Group the vertices by owner.
        shard, device, xp = self.shard, self.device, self.device.xp
        ids = self.list[:listed]
        ids = xp.sort(ids[(ids < shard.lo) | (ids >= shard.hi)])
        cuts = device.to_host(
            xp.searchsorted(ids.astype(np.int64), device.asarray(np.asarray(shard.partition.starts, np.int64)))
        ).tolist()

        # Take the sums out, and send them.
        values = device.empty(len(ids), np.int64)
        self.kernels.SendOut(len(ids), flow=self.flow, ids=ids, count=len(ids), values=values)
        sent = ([column[a:b] for a, b in pairwise(cuts)] for column in (ids, values))
        for their_ids, their_values in zip(*(shard.exchange.alltoallv(parts) for parts in sent), strict=True):
            self.kernels.TakeIn(
                len(their_ids), flow=self.flow, ids=their_ids, values=their_values, count=len(their_ids)
            )
        return int(device.to_host(self.state)[LISTED])


class ForwardPush(Pushes):
    """The solution x on a rank.

    Parameters
    ----------
    shard : Shard
    alpha, tol : float
    x : float64[hi - lo]
        Numbers in proportion to the ranks.
    base : float64[hi - lo] or None
        The distribution of teleports; None for 1 everywhere.

    Attributes
    ----------
    edges : int
        The edges that this rank visited in the last `apply_changes`.
    needs : int
        If that gave up: the edges that all ranks would have visited at least.
    error : float
        The error as of the last call, equal on every rank.
    """

    def __init__(self, shard: Shard, alpha: float, tol: float, x: Array, base: Array = None) -> None:
        # Scale x: ranks p solve p = c t + alpha P' p, where c is 1 - alpha and alpha times the mass on vertices without
        # edges.
        self.shard, self.device, self.alpha, self.tol = shard, shard.device, alpha, tol
        self.kernels = kernels(shard, "algorithms/centrality/pagerank/forward_push.cuh", shard.out_edges.view())
        self.x, self.base, self.edges, self.lost, self.made_for = x, base, 0, 0.0, shard.n_vertices
        self.needs = 0
        dangling = x[shard.out_edges.degrees() == 0]
        total, loose, based = self._sum(x.sum(), dangling.sum(), len(x) if base is None else base.sum())
        scale = based / (total * (1 - alpha) + alpha * loose)
        self.x, self.total = x * scale, total * scale

        # Choose the fixed point: 1 is so large that no sum overflows.
        room = 2 * based / (1 - alpha)  # an upper bound of the sum of x, and of any sum of residuals
        self.one = 2.0 ** (62 - math.ceil(math.log2(max(room, 1.0))))

        # Compute the residuals of x: r = b + alpha P' x - x.
        self._take()
        self.kernels.FirstValues(len(self.x), graph=shard.out_edges.view(), flow=self.flow, base=base)
        self._hand_on(None, len(self.x))
        self._end_round()
        self._measure()

    def _take(self) -> None:
        """Allocate the arrays of rounds."""
        device, rows, n = self.device, len(self.x), self.shard.n_vertices
        self.residual, self.value = device.zeros(rows, np.int64), device.zeros(rows, np.int64)
        self.sums, self.marks = device.zeros(n, np.int64), device.zeros(-(-n // 32) + 1, np.uint32)
        self.list, self.fronts = device.empty(n, np.uint32), [device.empty(rows, np.uint32) for _ in range(2)]
        self.state, self.arrived = device.zeros(2 * 4, np.int64), device.zeros(1, np.uint64)
        self._aim()

    def _aim(self) -> None:
        """Set the limit of residuals: with none above it, the error is below the tolerance."""
        most = self.tol * self.alpha * self.total / (2.2 * max(1, self.shard.n_vertices))
        self.most = max(int(min(most * self.one, MOST)), 1)
        self._face(0)

    def _face(self, front: int) -> None:
        self.flow = Struct(
            x=self.x, residual=self.residual, value=self.value, sums=self.sums, marks=self.marks, list=self.list,
            next=self.fronts[front], state=self.state, first=self.shard.lo, n=len(self.x), most=self.most,
            one=self.one, alpha=self.alpha,
        )  # fmt: skip

    def _sum(self, *mine: float) -> list[float]:
        sums: list[float] = self.shard.exchange.allreduce(np.array([float(number) for number in mine])).tolist()
        return sums

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        arrays = (self.x, self.residual, self.value, self.sums, self.marks, self.list, *self.fronts)
        return sum(int(array.nbytes) for array in arrays)

    def ranks(self, dtype: str) -> Array:
        """Return the ranks: x without slightly negative values, scaled to a sum of 1."""
        ranks = self.device.empty(len(self.x), dtype)
        into = {"single": ranks, "twice": None} if ranks.dtype == np.float32 else {"single": None, "twice": ranks}
        self.kernels.ShareOut(len(ranks), flow=self.flow, sum=self.positive, **into)
        return ranks

    def _measure(self) -> None:
        """Compute the error, from residuals and losses of fixed point, and the sums of x."""
        sums = self.device.zeros(3, np.int64)
        self.kernels.Sums(len(self.x), flow=self.flow, sums=sums)
        lacks, total, positive = (int(number) / self.one for number in self.device.to_host(sums))
        lacks, self.total, self.positive = self._sum(lacks + self.lost, total, positive)
        self.error = 2 * lacks / (self.alpha * self.total) if self.total else 0.0

    # ---- following changes -------------------------------------------------------------------------------------------

    def apply_changes(self, changes: EdgeDelta, most: int, renumbered: bool = False) -> bool:
        """Apply changes to x.

        Returns False, with an error that may be large, if more than about `most` edges would be visited. After vertices
        were `renumbered`, the sum of x differs, and so does the limit of residuals.
        """
        self.edges = self.needs = 0
        if self.shard.n_vertices > 2 * self.made_for:  # fixed point has no room for more
            return False
        # Take in new vertices and changed edges.
        fresh = self._grow()
        if renumbered:
            self._measure()
        self._aim()
        if not self._take_changes(changes, most):
            return False
        self._take_fresh(fresh)

        # Push round by round, until no residual is above the limit.
        front, alone = 0, self.shard.size == 1
        count, last, before = self._end_round(), 0.0, math.inf
        while True:
            few = count <= FEW[self.device.kind]
            next_edges = 0 if few else self._edges_of(self.fronts[front][:count])
            waiting, edges, ahead = self._sum(count, self.edges, next_edges)
            if waiting == 0:
                break
            if edges > last + self.shard.n_vertices:
                self._measure()
                self._expect(edges, edges - last, before)
                last, before = edges, self.error
            self.needs = max(self.needs, int(edges + ahead))
            if self.needs > most:
                break
            if alone and few:
                count, front = self._rounds(count, front, most)
                continue
            rows, front = self.fronts[front], 1 - front
            self._face(front)
            self.kernels.Values(count, graph=self.shard.out_edges.view(), flow=self.flow, rows=rows, count=count)
            self._hand_on(rows, count)
            count = self._end_round()
        self._measure()
        return waiting == 0

    def _expect(self, edges: float, more: float, before: float) -> None:
        """Expect that the error falls with further edges as with the last `more`: it was `before` them."""
        if self.tol < self.error < before < math.inf:
            rest = more * math.log(self.error / self.tol) / math.log(before / self.error)
            self.needs = int(min((edges + rest) / UNSURE, MOST))

    def _edges_of(self, rows: Array) -> int:
        return int(self.device.total(self.shard.out_edges.degrees(rows, checked=True)))

    def _rounds(self, count: int, front: int, most: int) -> tuple[int, int]:
        """Make rounds by a persistent kernel, on a single rank.

        Returns the number and list of rows above the limit.
        """
        edges, few = self.shard.out_edges, FEW[self.device.kind]
        self.device.fill(self.state, 0)
        self.kernels.Rounds(
            -(-few // LANES), graph=edges.view(), flow=self.flow, rows=self.fronts[1 - front], first=count,
            tasks=self.device.empty(task_room(edges), np.uint64), few=few, visits=most - self.edges, rounds=ROUNDS,
            arrived=self.arrived,
        )  # fmt: skip
        # Read the counts. After an odd number of rounds the lists are swapped.
        state = self.device.to_host(self.state)
        self.edges += int(state[EDGES])
        self.lost += int(state[EDGES]) / self.one
        if state[LISTED] % 2:
            front = 1 - front
            self._face(front)
        return int(state[NEXT]), front

    def renumber(self, ids: Renumbering) -> None:
        """Adopt new internal ids.

        Vertices without edges push nothing, so the solution stays for the others.
        """
        residual = self.residual[ids.rows]
        self.x = self.x[ids.rows]
        self.base = None if self.base is None else self.base[ids.rows]
        self._take()
        self.residual[:] = residual

    def _grow(self) -> int:
        """Allocate rows for added vertices, with x and residuals of 0.

        Returns how many are this rank's.
        """
        if self.shard.n_vertices == len(self.sums):
            return 0
        device, residual = self.device, self.residual
        rows = self.shard.hi - self.shard.lo - len(self.x)
        self.x = device.concatenate([self.x, device.zeros(rows, np.float64)])
        self._take()
        self.residual[: len(residual)] = residual
        if self.base is not None:
            self.base = device.concatenate([self.base, device.zeros(rows, np.float64)])
        return rows

    def _take_fresh(self, n: int) -> None:
        """Let walks teleport to the last `n` own vertices, if they teleport to all."""
        if n == 0 or self.base is not None:
            return
        ids, ones = self.device.arange(self.shard.hi - n, self.shard.hi, np.uint32), int(self.one)
        values = self.device.full(n, ones, np.int64)
        self.kernels.TakeIn(n, flow=self.flow, ids=ids, values=values, count=n)

    def _take_changes(self, changes: EdgeDelta, most: int) -> bool:
        """Change the residuals of the neighbours of vertices with changed edges.

        Returns False if these vertices have more than `most` edges. Few changes are not counted first.
        """
        # List the rows with changed degrees.
        device, n, graph = self.device, len(changes), self.shard.out_edges.view()
        changed, listed = Struct(**changes.fields()), device.zeros(1, np.int64)
        more, arcs, places = device.zeros(n, np.int64), device.zeros(n, np.uint32), device.empty(n, np.int64)
        self.kernels.ChangedRows(n, flow=self.flow, changed=changed, more=more, arcs=arcs, places=places, rows=listed)
        count = int(device.to_host(listed)[0])

        # Push the difference along all edges of these rows.
        rows, before = device.empty(count, np.uint32), device.empty(n, np.int64)
        self.kernels.ChangedValues(
            count, graph=graph, flow=self.flow, changed=changed, more=more, places=places, count=count, before=before,
            rows=rows,
        )  # fmt: skip
        if n > FEW[device.kind]:
            (edges,) = self._sum(self._edges_of(rows))
            self.needs = int(edges)
            if edges > most:
                return False
        self._hand_on(rows, count)

        # Correct it along the changed arcs.
        self.kernels.ChangedArcs(n, flow=self.flow, changed=changed, before=before)
        return True
