"""PageRank by power iteration, as NetworkX defines it: uniform teleport, dangling mass spread evenly, unweighted.

Where in-edges are known, each rank pulls: the shares (rank / out-degree, float32) of all vertices are allgathered,
and each row sums those of its in-neighbours. Else it pushes: shares are added to a sum for every vertex of the graph,
and the sums of the other ranges travel to their owners in one alltoallv. Sums in registers are float64, sums in
memory 64-bit fixed point, so the result does not depend on timing; only shares and stored ranks are rounded to
float32, which costs an L1 distance of about 1e-7 to the same iteration in float64.

An iteration costs one read-back of 16 bytes, one allreduce of two numbers (at one rank it copies them) and, p being
the number of ranks:

================= =============================================================== =====================================
way               launches                                                        exchange
================= =============================================================== =====================================
pull              1, 2 where there are hubs; p copies of shares where p > 1       allgather of 4 bytes a vertex
push              2, 3 where there are hubs; p more where p > 1                   alltoallv of 4 bytes a vertex
================= =============================================================== =====================================
"""

from __future__ import annotations

import math
import operator

import numpy as np

from mgraph.algorithms.contract import LANES, Result, Shard, kernels, task_room
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.structures import Structure

__all__ = ["pagerank"]

FIXED_ONE = 2.0**60  # pagerank.cuh: 1 in the fixed point of its sums


class _Iteration:
    """One rank's part of one power iteration, push or pull.

    Attributes
    ----------
    ranks : float32[hi - lo]
    degrees : uint32[hi - lo]
        Out-degrees.
    tally : uint64[2, 2]
        L1 change and dangling mass of the own vertices, in fixed point, for even and odd iterations.
    """

    def __init__(self, shard: Shard, edges: Structure) -> None:
        self.shard, self.device, self.n = shard, shard.device, shard.hi - shard.lo
        self.view = edges.view()
        self.kernels = kernels(shard, "pagerank.cuh", self.view)
        self.ranks, self.degrees = self.device.empty(self.n, np.float32), self.device.empty(self.n, np.uint32)
        self.new_shares = self.device.empty(self.n, np.float32)
        cells = self.device.zeros(4, np.uint64)
        self.tally = [cells[:2], cells[2:]]
        self.tasks, self.n_tasks, self.hub_rows = self._list_hubs(edges)

    def _list_hubs(self, edges: Structure) -> tuple[Array, int, int]:
        room = task_room(edges)
        tasks, state = self.device.empty(room, np.uint64), self.device.zeros(2, np.int64)
        if room == 0:
            return tasks, 0, 0
        self.kernels.ListHubs(self.n, graph=self.view, n=self.n, tasks=tasks, state=state)
        n_tasks, hub_rows = Device.to_host(state).tolist()
        return tasks, n_tasks, hub_rows

    def begin(self, start: Array, scale: float, even: float) -> None:
        """Degrees, first ranks and first shares. One launch."""
        view = self.shard.out_edges.view()
        kernels(self.shard, "pagerank.cuh", view).StartRanks(
            self.n, graph=view, n=self.n, start=start, given=0 if start is None else min(len(start), self.n),
            scale=scale, even=even, degrees=self.degrees, ranks=self.ranks, shares=self.new_shares, tally=self.tally[0],
        )  # fmt: skip

    def read(self, step: int) -> tuple[float, float]:
        """The L1 change and the dangling mass of iteration `step`, over all ranks. One read-back, one allreduce."""
        mine = Device.to_host(self.tally[step & 1]).astype(np.float64) / FIXED_ONE
        change, dangling = self.shard.exchange.allreduce(mine)
        return float(change), float(dangling)

    def step(self, step: int, base: float, alpha: float) -> None:
        """Ranks of iteration `step` from those of the one before: ``base + alpha * sum``."""
        raise NotImplementedError


class _Pull(_Iteration):
    """Rows are destinations."""

    def __init__(self, shard: Shard, edges: Structure) -> None:
        super().__init__(shard, edges)
        self.shares = self.device.empty(shard.n_vertices, np.float32)
        self.sums = self.device.zeros(self.hub_rows, np.uint64)  # rows past the last hub's are never looked up

    def _gather_shares(self) -> None:
        if self.shard.size == 1:
            self.shares, self.new_shares = self.new_shares, self.shares
            return
        for r, part in enumerate(self.shard.exchange.allgather(self.new_shares)):
            first, end = self.shard.partition.range(r)
            self.shares[first:end] = part

    def step(self, step: int, base: float, alpha: float) -> None:
        self._gather_shares()
        self.kernels.PullHubs(
            self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, shares=self.shares, sums=self.sums
        )
        self.kernels.PullRanks(
            -(-self.n // LANES), graph=self.view, n=self.n, degrees=self.degrees, shares=self.shares, sums=self.sums,
            base=base, alpha=alpha, ranks=self.ranks, shares_out=self.new_shares,
            tally=self.tally[step & 1], spent=self.tally[1 - (step & 1)],
        )  # fmt: skip


class _Push(_Iteration):
    """Rows are sources."""

    def __init__(self, shard: Shard, edges: Structure) -> None:
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
        What it allocates does not fit: 12 bytes an owned vertex; 4 (pull) or 8 (push; 12 on several ranks) a vertex of
        the whole graph; 1 / 64 byte an edge for hubs' tasks; pulling, 8 bytes a row up to the last hub's.

    Notes
    -----
    O(n + m) an iteration; the module says what it launches and exchanges. The result is the same, bit for bit, whatever
    the timing; it varies in the last places with the device and the number of ranks.
    """
    max_iter, n = _check(alpha, tol, max_iter), shard.n_vertices
    if n == 0:
        return shard.device.empty(0, np.float32), {"iterations": 0, "error": 0.0, "converged": True}
    start = None if start is None else shard.device.asarray(start, np.float32)
    iteration: _Iteration
    iteration = _Push(shard, shard.out_edges) if shard.in_edges is None else _Pull(shard, shard.in_edges)
    iteration.begin(start, _scale(shard, start, 1 / n), 1 / n)
    error, dangling = iteration.read(0)
    error, steps = math.inf, 0
    while steps < max_iter and not error < tol:
        steps += 1
        iteration.step(steps, ((1 - alpha) + alpha * dangling) / n, alpha)
        error, dangling = iteration.read(steps)
    return iteration.ranks, {"iterations": steps, "error": error, "converged": error < tol}
