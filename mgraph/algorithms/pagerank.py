"""PageRank by power iteration, as NetworkX defines it: uniform teleport, dangling mass spread evenly, unweighted.

A vertex's share is what it hands on along each out-edge: rank / out-degree. Each rank pulls: every row sums what its
in-neighbours hand on. That is only what their shares have changed by since the iteration before, cut to 16 bits; what
was cut off counts among the next changes. So 64 of them lie on a cache line, half as many bytes travel, and the ranks
come out as in the plain iteration, after as many iterations: the changes themselves go to 0. Where the graph is
directed and its in-edges are not kept, they are made for the call by a sort (see `transpose`). Without the memory for
that, or for a few iterations, it pushes: whole shares are added to a sum for every vertex of the graph, and the sums of
the other ranges travel to their owners.

Every vertex gets besides what the ranks together did not hand on: teleport, dangling mass, and what was cut off; so
ranks always sum to 1. Sums in registers are float64, sums that many tiles add to 64-bit fixed point, so the result does
not depend on timing; only stored ranks, shares and sums are float32, which costs an L1 distance of about 1e-7 to the
same iteration in float64.

An iteration costs one read-back of 16 bytes, one allreduce of two numbers (at one rank it copies them) and, p being
the number of ranks:

================= =============================================================== =====================================
way               launches                                                        exchange
================= =============================================================== =====================================
pull              2, 3 where there are hubs; p copies of shares where p > 1       allgather of 2 bytes a vertex
push              2, 3 where there are hubs; p more where p > 1                   alltoallv of 4 bytes a vertex
================= =============================================================== =====================================
"""

from __future__ import annotations

import math
import operator

import numpy as np

from mgraph.algorithms.contract import LANES, Result, Shard, kernels, task_room
from mgraph.algorithms.transpose import Rows, transposed
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.structures import Structure

__all__ = ["pagerank"]

FIXED_ONE = 2.0**60  # ranks.cuh: 1 in the fixed point of its sums
FEW = 8  #: iterations at most for which in-edges are not made: 529M arcs take 59 ms, and save 9 an iteration


class _Iteration:
    """One rank's part of one power iteration, push or pull.

    Attributes
    ----------
    ranks : float32[hi - lo]
    degrees : uint32[hi - lo]
        Out-degrees.
    tally : uint64[2, 2]
        Of the own vertices, in fixed point: the L1 change, and the rank handed on. For even and odd iterations.
    """

    file = ""

    def __init__(self, shard: Shard, edges: Structure | Rows) -> None:
        self.shard, self.device, self.n = shard, shard.device, shard.hi - shard.lo
        self.edges, self.view = edges, edges.view()
        self.kernels = kernels(shard, self.file, self.view)
        self.ranks, self.degrees = self.device.empty(self.n, np.float32), self.device.empty(self.n, np.uint32)
        cells = self.device.zeros(4, np.uint64)
        self.tally = [cells[:2], cells[2:]]
        self.tasks, self.n_tasks, self.hub_rows = self._list_hubs()

    def _list_hubs(self) -> tuple[Array, int, int]:
        room = task_room(self.edges)
        tasks, state = self.device.empty(room, np.uint64), self.device.zeros(2, np.int64)
        if room == 0:
            return tasks, 0, 0
        self.kernels.ListHubs(self.n, graph=self.view, n=self.n, tasks=tasks, state=state)
        n_tasks, hub_rows = Device.to_host(state).tolist()
        return tasks[:n_tasks], n_tasks, hub_rows

    def begin(self, start: Array, scale: float, even: float) -> None:
        """Degrees and first ranks. One launch."""
        view = self.shard.out_edges.view()
        kernels(self.shard, "ranks.cuh", view).StartRanks(
            self.n, graph=view, n=self.n, start=start, given=0 if start is None else min(len(start), self.n),
            scale=scale, even=even, degrees=self.degrees, ranks=self.ranks, tally=self.tally[0],
        )  # fmt: skip

    def read(self, step: int) -> tuple[float, float]:
        """The L1 change of iteration `step` and the rank handed on, over all ranks. One read-back, one allreduce."""
        mine = Device.to_host(self.tally[step & 1]).astype(np.float64) / FIXED_ONE
        change, handed = self.shard.exchange.allreduce(mine)
        return float(change), float(handed)

    def step(self, step: int, base: float, alpha: float) -> None:
        """Ranks of iteration `step` from those of the one before: ``base + alpha * sum``."""
        raise NotImplementedError


class _Pull(_Iteration):
    """Rows are destinations.

    Attributes
    ----------
    handed : float32[hi - lo]
        What each out-neighbour of a vertex has of it.
    news : list of uint16[hi - lo]
        What was handed on last: one part, three of them at a given start.
    """

    file = "pagerank.cuh"

    def __init__(self, shard: Shard, edges: Structure | Rows) -> None:
        super().__init__(shard, edges)
        self.news: list[Array] = []
        self.handed, self.base = self.device.empty(self.n, np.float32), 0.0
        self.sums = self.device.empty(self.n, np.float32)
        self.hub_sums = self.device.zeros(self.hub_rows, np.uint64)  # rows past the last hub's are never looked up
        self.everyones = self.device.empty(shard.n_vertices if shard.size > 1 else 0, np.uint16)
        if edges.sorted_rows and self.n_tasks:
            self._sort_tasks()

    def _sort_tasks(self) -> None:
        """By their first sources, so that tiles at work at the same time read the same lines. Once; 0.3 ms for 600k."""
        ids = self.device.empty(self.n_tasks, np.uint32)
        self.kernels.FirstIds(self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, ids=ids)
        self.tasks = self.tasks[self.device.xp.argsort(ids, kind="stable")]

    def begin(self, start: Array, scale: float, even: float) -> None:
        """Degrees, first ranks and first shares: of a given start whole, as what was cut off would cost iterations."""
        super().begin(start, scale, even)
        self.tally.reverse()  # that of what was handed on whole is to be cleared
        parts = 1 if start is None else 3  # 3 * 8 bits: a float32's
        news = self.device.empty(parts * self.n, np.uint16)
        self.news = [news[k * self.n : (k + 1) * self.n] for k in range(parts)]
        self.kernels.FirstShares(
            self.n, n=self.n, ranks=self.ranks, shares=self._shares(), parts=parts, tally=self.tally[0],
            spent=self.tally[1],
        )  # fmt: skip

    def _shares(self) -> dict[str, Array]:
        return {"degrees": self.degrees, "handed": self.handed, "news": self.news[0]}

    def _gathered(self, part: Array) -> Array:
        if self.shard.size == 1:
            return part
        for r, theirs in enumerate(self.shard.exchange.allgather(part)):
            first, end = self.shard.partition.range(r)
            self.everyones[first:end] = theirs
        return self.everyones

    def _pull(self, part: Array, sums: Array) -> None:
        news = self._gathered(part)
        self.kernels.PullHubs(
            self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, news=news, sums=self.hub_sums
        )
        self.kernels.PullRows(-(-self.n // LANES), graph=self.view, n=self.n, news=news, sums=sums)

    def step(self, step: int, base: float, alpha: float) -> None:
        self._pull(self.news[0], self.sums)
        for part in self.news[1:]:
            more = self.device.empty(self.n, np.float32)
            self._pull(part, more)
            self.sums += more
        del self.news[1:]
        keep, shift, self.base = float(step > 1), base - self.base, base
        self.kernels.FinishPull(
            self.n, sums=self.sums, hub_sums=self.hub_sums, hub_rows=self.hub_rows, n=self.n, keep=keep, shift=shift,
            alpha=alpha, ranks=self.ranks, shares=self._shares(), tally=self.tally[step & 1],
            spent=self.tally[1 - (step & 1)],
        )  # fmt: skip


class _Push(_Iteration):
    """Rows are sources."""

    file = "pagerank_push.cuh"

    def __init__(self, shard: Shard, edges: Structure | Rows) -> None:
        super().__init__(shard, edges)
        self.sums = self.device.zeros(shard.n_vertices, np.uint64)
        self.own = self.sums[shard.lo : shard.hi]
        self.leaving = self.device.empty(shard.n_vertices if shard.size > 1 else 0, np.float32)

    def _to_owners(self) -> None:
        shard = self.shard
        n, first, end = shard.n_vertices, shard.lo, shard.hi
        self.kernels.DrainSums(n - self.n, sums=self.sums, n=n, first=first, end=end, out=self.leaving)
        ranges = [shard.partition.range(r) if r != shard.rank else (0, 0) for r in range(shard.size)]
        for r, part in enumerate(shard.exchange.alltoallv([self.leaving[first:end] for first, end in ranges])):
            if r != shard.rank:
                self.kernels.AddSums(self.n, part=part, n=self.n, sums=self.own)

    def step(self, step: int, base: float, alpha: float) -> None:
        common = {"graph": self.view, "degrees": self.degrees, "ranks": self.ranks, "sums": self.sums}
        self.kernels.PushHubs(self.n_tasks, tasks=self.tasks, n=self.n_tasks, **common)
        self.kernels.PushRanks(-(-self.n // LANES), n=self.n, **common)
        if self.shard.size > 1:
            self._to_owners()
        self.kernels.FinishRanks(
            self.n, sums=self.own, n=self.n, degrees=self.degrees, base=base, alpha=alpha, ranks=self.ranks,
            tally=self.tally[step & 1], spent=self.tally[1 - (step & 1)],
        )  # fmt: skip


def _check(alpha: float, tol: float, max_iter: int) -> int:
    for name, value in (("alpha", alpha), ("tol", tol)):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)) or math.isnan(value):
            raise InvalidOption(f"{name} is {value!r}; it is a number")
    if not 0 <= alpha <= 1:
        raise InvalidOption(f"alpha is {alpha}; it runs from 0 to 1")
    if tol < 0:
        raise InvalidOption(f"tol is {tol}; it is not negative")
    try:
        steps = operator.index(max_iter)
    except TypeError:
        raise InvalidOption(f"max_iter is {max_iter!r}; it is a whole number") from None
    if steps < 0:
        raise InvalidOption(f"max_iter is {steps}; it is not negative")
    return steps


def _scale(shard: Shard, start: Array, even: float) -> float:
    """What makes the ranks that a start gives sum to 1 over all ranks; one read-back and one allreduce."""
    total, bad = even * (shard.hi - shard.lo), 0.0
    if start is not None and len(start):
        start = start[: shard.hi - shard.lo]
        total = float(start.sum(dtype=np.float64)) + even * (shard.hi - shard.lo - len(start))
        bad = float(not float(start.min()) >= 0)  # NaN too
    total, bad = shard.exchange.allreduce(np.array([total, bad])).tolist()
    if bad or not 0 < total < math.inf:
        raise InvalidOption(f"start sums to {total} and holds {int(bad)} bad parts; ranks are finite and not negative")
    return 1 / total


def pagerank(shard: Shard, alpha: float = 0.85, tol: float = 1e-6, max_iter: int = 100, start: Array = None) -> Result:
    """The PageRank of every vertex, as ``networkx.pagerank`` without weights.

    Parameters
    ----------
    shard : Shard
    alpha : float
        The damping factor, 0 to 1.
    tol : float
        Stop once the ranks' L1 change over an iteration is below it: they are then within ``alpha / (1 - alpha) * tol``
        of the limit. (NetworkX multiplies its tol by the number of vertices, which on 100,000 of them stops after 4
        iterations, 0.07 from the limit.) Ranks are float32, and on a few graphs (stars) they go on swinging by up to
        5e-7: a lower tol may never be met.
    max_iter : int
        Iterations at most.
    start : float32[k], or None
        Ranks of the own vertices to begin with, an earlier result as a rule, scaled to sum to 1 over the whole graph.
        Vertices past its end, which were added since, begin at ``1 / n_vertices``, as all do where it is None.

    Returns
    -------
    ranks : float32[hi - lo] on the shard's device
        They sum to 1 over all ranks.
    info : dict
        ``iterations``; ``error``, the last L1 change; ``converged``, whether that is below the limit. Where it is not
        after `max_iter` iterations the ranks come back all the same: NetworkX raises there.

    Raises
    ------
    InvalidOption
        On every rank alike.
    CapacityError
        What it allocates does not fit. Pulling: 18 bytes an owned vertex, 26 with a start; 8 a row up to the last
        hub's; on several ranks 2 a vertex of the whole graph. Pushing: 8 an owned vertex and 8 (on several ranks 12) a
        vertex of the whole graph. Both: 1 / 64 byte an edge for hubs' tasks. See `transposed` for what in-edges take
        that the graph does not keep.

    Notes
    -----
    O(n + m) an iteration; the module says what it launches and exchanges. The result is the same, bit for bit, whatever
    the timing; it varies in the last places with the device and the number of ranks.
    """
    max_iter, n = _check(alpha, tol, max_iter), shard.n_vertices
    if n == 0:
        return shard.device.empty(0, np.float32), {"iterations": 0, "error": 0.0, "converged": True}
    start = None if start is None else shard.device.asarray(start, np.float32)
    scale = _scale(shard, start, 1 / n)
    incoming: Structure | Rows | None = shard.in_edges
    if incoming is None and max_iter > FEW:
        incoming = transposed(shard)
    iteration = _Push(shard, shard.out_edges) if incoming is None else _Pull(shard, incoming)
    iteration.begin(start, scale, 1 / n)
    error, handed = iteration.read(0)
    error, steps = math.inf, 0
    while steps < max_iter and not error < tol:
        steps += 1
        iteration.step(steps, (1 - alpha * handed) / n, alpha)
        error, handed = iteration.read(steps)
    return iteration.ranks, {"iterations": steps, "error": error, "converged": error < tol}
